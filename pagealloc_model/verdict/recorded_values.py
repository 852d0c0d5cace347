"""The policy values of the recorded machine: where controls start, what posts compare with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pagealloc_model.allocator.pcp import high_limits
from pagealloc_model.policy.policy import Policy

if TYPE_CHECKING:
    from pagealloc_model.policy.kernel_rules import KernelRules
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
    return from_rules | _from_pagesets(base.machine, base.rules) | base.policy.given()


def _from_pagesets(machine: Machine, rules: KernelRules) -> dict[str, Setting]:
    """Limits of the largest zone's per-CPU lists; computed where the kernel does not print them."""
    with_lists = [zone for zone in machine.zones if zone.pagesets]
    if not with_lists:
        return {}
    zone = max(with_lists, key=lambda zone: zone.managed)
    batch = zone.pagesets[0].batch
    cpus = machine.cpus_of_node(machine.nodes.index(zone.node)) or machine.nr_cpus
    low, high = high_limits(zone, batch, cpus, Policy(), rules)
    return {"pcp_batch": batch, "pcp_high_min": low, "pcp_high_max": high}
