"""Sizes of per-CPU lists: batch, high_min and high_max of a zone's pagesets (S4.2, S4.3)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy
from pagealloc_model.recording.machine import Machine, Zone

BATCH_CAP_BYTES = 256 << 10
"""Upper bound of pcp->batch before rounding (S4.2)."""


def set_pageset(
    region: np.ndarray,
    machine: Machine,
    zone: Zone,
    cpu: int,
    rules: KernelRules,
    policy: Policy,
) -> None:
    """zone_set_pageset_high_and_batch(): set the words of one pageset, whose lists are empty.

    Args:
        region: the pageset's words; written.
        machine: for the CPUs of the zone's node.
        zone: its pages, and what its pagesets had in the recording.
        cpu: whose pageset it is.
        rules: the kernel generation.
        policy: swept fields.
    """
    lists = region[at.PCP_LISTS : at.PCP_SITES].reshape(-1, at.LIST_WORDS)
    lists[:, at.HEAD] = -1
    lists[:, at.TAIL] = -1
    if not zone.managed:
        return
    found = next((each for each in zone.pagesets if each.cpu == cpu), None)
    size = zone_batchsize(zone.managed)
    if found is not None and policy.pcp_batch is None:
        size = found.batch
    size = _given(policy.pcp_batch, size)
    low, high = high_limits(zone, size, _local_cpus(machine, zone), policy, rules)
    region[at.PCP_BATCH] = size
    region[at.PCP_HIGH_MIN] = low
    region[at.PCP_HIGH_MAX] = high
    region[at.PCP_HIGH] = found.high if found is not None and rules.pcp_auto_tuned else low


def _local_cpus(machine: Machine, zone: Zone) -> int:
    """No kernel function: return how many CPUs share a zone's pages in S4.3.

    They are its node's, all CPUs if that has none.
    """
    return machine.cpus_of_node(machine.nodes.index(zone.node)) or machine.nr_cpus


def zone_batchsize(managed: int) -> int:
    """zone_batchsize(): return pcp->batch of a zone, the same in every generation (S4.2).

    Args:
        managed: the zone's managed pages.
    """
    size = min(managed >> 12, BATCH_CAP_BYTES >> 12)
    if size <= 1:
        return 1
    doubled = size + size // 2
    return (1 << (doubled.bit_length() - 1)) - 1


def high_limits(
    zone: Zone, size: int, nr_cpus: int, policy: Policy, rules: KernelRules
) -> tuple[int, int]:
    """zone_highsize(): return pcp->high_min and high_max of a zone (S4.3).

    They are by policy, else as recorded, else computed. Both are `high` where the kernel does not
    tune it.

    Args:
        zone: watermarks and managed pages; its pagesets say what the kernel had.
        size: pcp->batch.
        nr_cpus: CPUs of the zone's node, all CPUs if it has none.
        policy: `pcp_high_min`, `pcp_high_max`, `percpu_pagelist_high_fraction`, and the fields
            that the computed limits depend on.
        rules: kernel generation.
    """
    fraction = policy.percpu_pagelist_high_fraction
    as_recorded = (
        fraction is None
        and policy.pcp_batch is None
        and policy.min_free_kbytes is None
        and policy.watermark_scale_factor is None
    )
    recorded = _recorded_limits(zone, rules) if as_recorded else None
    if recorded is not None:
        low, high = recorded
    elif fraction is not None and fraction >= 8:
        low = high = max(zone.managed // fraction // nr_cpus, 4 * size)
    else:
        low = max(zone.low // nr_cpus, 4 * size)
        high = max(zone.managed // 8 // nr_cpus, 4 * size)
    low = _given(policy.pcp_high_min, low)
    if not rules.pcp_auto_tuned:
        return low, low
    return low, _given(policy.pcp_high_max, high)


def _recorded_limits(zone: Zone, rules: KernelRules) -> tuple[int, int] | None:
    """No kernel function: return the limits a zone's pagesets show.

    A kernel that does not print them has a fixed `high`.
    """
    found = zone.pagesets[0] if zone.pagesets else None
    if found is None:
        return None
    if found.high_min is not None and found.high_max is not None:
        return found.high_min, found.high_max
    return None if rules.pcp_auto_tuned else (found.high, found.high)


def _given(value: int | bool | None, otherwise: int | bool) -> int:
    """No kernel function: return a value, or another if it is None."""
    return int(otherwise if value is None else value)
