"""Controls of a policy: made of its fields, moved and given back."""

from __future__ import annotations

import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.notebook.controls import PolicyControls
from pagealloc_model.policy.policy import Policy


def test_controls_come_from_the_fields_metadata_and_start_as_recorded() -> None:
    controls = PolicyControls(["highatomic_gate_order"], labels={"highatomic_gate_order": "gate"})
    slider = controls.values["highatomic_gate_order"]
    assert (slider.min, slider.max, slider.value) == (0, 10, 0)
    assert slider.description == "gate (order)"
    assert "reserve no pageblock" in slider.tooltip
    recorded = PolicyControls(["pcp_high_min"], recorded={"pcp_high_min": 2001})
    slider = recorded.values["pcp_high_min"]
    assert (slider.value, recorded.policy) == (2001, Policy())
    assert (slider.value - slider.min) % slider.step == 0
    with pytest.raises(UsageError, match="nonsense"):
        PolicyControls(["nonsense"])


def test_moving_a_control_takes_the_field_and_it_is_given_back() -> None:
    controls = PolicyControls(["pcp_batch", "pcp_free_batched"], recorded={"pcp_batch": 63})
    seen = []
    controls.on_change(seen.append)
    controls.values["pcp_batch"].value = 31
    controls.values["pcp_batch"].value = 32
    controls.values["pcp_free_batched"].value = not controls.values["pcp_free_batched"].value
    controls.reset()
    assert [policy.pcp_batch for policy in seen] == [31, 32, 32, None]
    assert seen[-1] == Policy()
    controls.values["pcp_batch"].value = 31
    controls.as_recorded["pcp_batch"].value = True
    assert controls.values["pcp_batch"].value == 63
    assert controls.policy == Policy()


def test_a_control_that_is_not_set_shows_what_is_in_effect() -> None:
    recorded = {"pageblock_order": 9, "min_free_kbytes": 45056}
    controls = PolicyControls(list(recorded), recorded=recorded)
    told: list[Policy] = []
    controls.on_change(told.append)
    slider, box = (part["min_free_kbytes"] for part in (controls.values, controls.as_recorded))
    controls.values["pageblock_order"].value = 7
    controls.follow({"pageblock_order": 7, "min_free_kbytes": 11264})
    assert (slider.value, box.value, box.description) == (11264, True, "follows")
    assert told == [Policy(pageblock_order=7)] == [controls.policy]
    assert (slider.value - slider.min) % slider.step == 0
    controls.reset()
    controls.follow(recorded)
    assert (slider.value, box.description) == (45056, "as recorded")
