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
