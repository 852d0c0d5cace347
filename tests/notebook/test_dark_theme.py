"""Colours of figures on a dark page."""

from __future__ import annotations

from pagealloc_model.notebook.picture import GROUND, ON_DARK
from pagealloc_model.show.figures import faceted as palette
from tests.show.grey import READABLE, contrast, luminance

NO_LINES = {"white", palette.GRID, palette.MODEBAR["bgcolor"]}


def test_every_colour_of_the_palette_has_one_that_stands_out_from_a_dark_ground() -> None:
    used = {
        palette.INK,
        palette.MODEBAR["color"],
        *palette.MIGRATETYPE_COLOURS.values(),
        *palette.ORDER_COLOURS,
        *palette.SITE_COLOURS.values(),
        *palette.PREDICTION_COLOURS,
    }
    assert used <= set(ON_DARK) - NO_LINES
    ground = luminance(GROUND)
    for colour in set(ON_DARK) - NO_LINES:
        assert contrast(luminance(ON_DARK[colour]), ground) > READABLE, colour


def test_orders_rank_by_lightness_on_a_dark_ground_too() -> None:
    found = [luminance(ON_DARK[colour]) for colour in palette.ORDER_COLOURS]
    assert found == sorted(found, reverse=True)
