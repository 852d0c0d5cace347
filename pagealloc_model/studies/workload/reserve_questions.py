"""Experiments on the questions that reviewers asked about the highatomic reserve (S7).

Asked about "mm/page_alloc: skip high atomic reservation at or below costly order": "Maxing out the
reserves is odd. ALLOC_HIGHATOMIC allocations will try reserved space first, and I'd expect things
that are commonly highatomic to be short-lived. Why don't we stop with a couple of claimed
highatomic blocks that get continuously recycled?" and "How can 1% of memory throw such a wrench
into the gears?" Each experiment changes one thing at a time on a small made-up host.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pandas as pd

from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy
from pagealloc_model.studies.workload.full_host import FullHost, run_full_host
from pagealloc_model.studies.workload.pressure_map import GATE_ORDER, RULES, policy_of

HOST = FullHost(
    gib=4, nr_cpus=4, cache_pages_per_s=6_000, atomic_per_s=3_000, huge_per_s=1, seconds=30
)
"""The rates of the default 64 GiB host, a 16th of them each."""

AFFECTED_HOST = FullHost(
    gib=4,
    nr_cpus=4,
    scattered_per_mille=100,
    cache_pages_per_s=16_000,
    atomic_per_s=4_000,
    atomic_ms=50.0,
    huge_per_s=4,
    huge_s=1.0,
    seconds=20,
)
"""Round values from the part of the map where the gate has an effect (`shipped_map`)."""

SHORT_MS, LONG_MS = 0.2, 200.0


def why_not_recycled(host: FullHost = HOST, seeds: Iterable[int] = (0,)) -> pd.DataFrame:
    """The reserve with short and long lives, with and without what per-CPU lists serve.

    Without huge-page faults, so that no direct reclaim gives blocks back, and with them.

    Args:
        host: the one to change.
        seeds: of times and places.

    Returns:
        Columns huge_per_s, atomic_ms, from_pcp; blocks_taken and blocks_given_back in all,
        reserved_blocks, whole_blocks and crumbs at the end; means over the seeds.
    """
    rows = []
    for huge in (0, host.huge_per_s):
        for life in (SHORT_MS, LONG_MS):
            for from_pcp in (True, False):
                policy = replace(policy_of(host), highatomic_from_pcp=from_pcp)
                changed = replace(host, huge_per_s=huge, atomic_ms=life)
                about = {"huge_per_s": huge, "atomic_ms": life, "from_pcp": from_pcp}
                rows.append(about | _means(changed, policy, seeds))
    columns = ["huge_per_s", "atomic_ms", "from_pcp", "blocks_taken", "blocks_given_back"]
    return pd.DataFrame(rows)[[*columns, "reserved_blocks", "whole_blocks", "crumbs"]]


def what_one_percent_does(
    host: FullHost = AFFECTED_HOST, seeds: Iterable[int] = (0, 1, 2)
) -> pd.DataFrame:
    """Huge pages with the reserve, with a larger one, without, and with 1% kept free otherwise.

    Faults compact once (defrag=always).

    Args:
        host: the one to run under each policy.
        seeds: of times and places.

    Returns:
        Columns policy; reserved_blocks at the end; blocks_taken in all; huge_pages; huge_pages_lost
        against the gate; thp_success, compaction_success; pgscan_kswapd; means over the seeds.
    """
    base = policy_of(host, "always")
    gate = replace(base, highatomic_gate_order=GATE_ORDER)
    one_percent = round(host.gib * (1 << 20) / 100)
    policies = {
        "mainline, cap of 1%": base,
        "cap of 4%": replace(base, highatomic_reserve_percent=4),
        "gate": gate,
        "gate, 1% more min_free": replace(
            gate, min_free_kbytes=(base.min_free_kbytes or 0) + one_percent
        ),
    }
    table = pd.DataFrame([_means(host, policy, seeds) for policy in policies.values()])
    served, refused = table["thp_fault_alloc"], table["thp_fault_fallback"]
    compacted, failed = table["compact_success"], table["compact_fail"]
    return pd.DataFrame(
        {
            "policy": list(policies),
            "reserved_blocks": table["reserved_blocks"],
            "blocks_taken": table["blocks_taken"],
            "huge_pages": served,
            "huge_pages_lost": served[list(policies).index("gate")] - served,
            "thp_success": served / (served + refused),
            "compaction_success": compacted / (compacted + failed),
            "pgscan_kswapd": table["pgscan_kswapd"],
        }
    ).round(3)


def _means(host: FullHost, policy: Policy, seeds: Iterable[int]) -> dict[str, float]:
    """Columns of the last second of `run_full_host`."""
    rules = KernelRules.preset(RULES)
    ends = [run_full_host(replace(host, seed=seed), policy, rules=rules).iloc[-1] for seed in seeds]
    return pd.DataFrame(ends).mean().to_dict()
