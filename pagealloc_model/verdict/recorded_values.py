"""The policy values of the recorded machine: where controls start, what posts compare with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagealloc_model.policy.policy_fields import Setting
    from pagealloc_model.predicted.replay import Replay
    from pagealloc_model.recording.machine import Machine


def recorded_values(base: Replay) -> dict[str, Setting]:
    """Policy fields whose recorded value is known: from rules, per-CPU lists and sysctls.

    Args:
        base: a replay under the recorded policy.
    """
    from_rules: dict[str, Setting] = {
        "pcp_free_batched": base.rules.free_batched,
        "pcp_decay_batched": base.rules.decay_batched,
        "highatomic_from_pcp": base.rules.highatomic_from_pcp,
    }
    return from_rules | _from_pagesets(base.machine) | base.policy.given()


def _from_pagesets(machine: Machine) -> dict[str, Setting]:
    """Limits of the largest zone's per-CPU lists."""
    with_lists = [zone for zone in machine.zones if zone.pagesets]
    if not with_lists:
        return {}
    pageset = max(with_lists, key=lambda zone: zone.managed).pagesets[0]
    limits = {
        "pcp_batch": pageset.batch,
        "pcp_high_min": pageset.high_min,
        "pcp_high_max": pageset.high_max,
    }
    return {name: value for name, value in limits.items() if value is not None}
