"""Widgets of the studies: what their controls show of a policy in effect."""

from __future__ import annotations

from pagealloc_model.notebooks.studies.others import widgets

import pagealloc_model as pm
from pagealloc_model.numbers.comparison import recorded_values
from tests.small_recordings import shipped_recording


def test_a_control_that_follows_another_shows_the_value_in_effect() -> None:
    stock = shipped_recording("highatomic_stock")
    explorer = widgets.pageblock_orders(stock)
    whole = pm.explore(stock, candidate=pm.Policy(pageblock_order=7))
    in_effect = pm.replay(stock, pm.Policy(pageblock_order=7)).policy.min_free_kbytes
    recorded = recorded_values(pm.replay(stock))["min_free_kbytes"]
    for controls in (explorer.controls, whole.controls):
        slider, box = (part["min_free_kbytes"] for part in (controls.values, controls.as_recorded))
        assert (slider.value, box.value, box.description) == (in_effect, True, "follows")
    explorer.controls.reset()
    explorer.wait()
    slider, box = (
        part["min_free_kbytes"]
        for part in (explorer.controls.values, explorer.controls.as_recorded)
    )
    assert (slider.value, box.description) == (recorded, "as recorded")
    assert in_effect < recorded
