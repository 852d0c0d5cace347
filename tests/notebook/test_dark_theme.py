"""Colours of figures on a dark page."""

from __future__ import annotations

from pagealloc_model.notebook.picture import GROUND, MAP_ON_DARK, ON_DARK
from pagealloc_model.show.figures import faceted as palette
from pagealloc_model.show.figures.pageblock_map import LEVELS, shade
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
    steps = [luminance(ON_DARK[colour]) for colour in palette.ORDER_COLOURS]
    assert steps == sorted(steps, reverse=True)


def test_maps_are_dark_and_their_marks_stand_out() -> None:
    for name in palette.MIGRATETYPES:
        grounds = [luminance(MAP_ON_DARK[shade(name, level)]) for level in range(LEVELS)]
        assert grounds == sorted(grounds)
        assert contrast(grounds[0], luminance(GROUND)) < READABLE
        for mark in (palette.INK, "white"):
            inks = [luminance(MAP_ON_DARK[colour]) for colour in (mark, palette.INK)]
            assert all(max(contrast(ink, ground) for ink in inks) > READABLE for ground in grounds)
