"""An experiment on a question that a reviewer asked about the highatomic reserve (S7).

Asked about "mm/page_alloc: skip high atomic reservation at or below costly order": "Maxing out the
reserves is odd. ALLOC_HIGHATOMIC allocations will try reserved space first, and I'd expect things
that are commonly highatomic to be short-lived. Why don't we stop with a couple of claimed
highatomic blocks that get continuously recycled?" One thing is changed at a time on a small made-up
host.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pandas as pd
from pagealloc_model.notebooks.studies.full_host import FullHost, run_full_host
from pagealloc_model.notebooks.studies.pressure_map import RULES, policy_of

from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy

HOST = FullHost(
    gib=4, nr_cpus=4, cache_pages_per_s=6_000, atomic_per_s=3_000, huge_per_s=1, seconds=30
)
"""The rates of the default 64 GiB host, a 16th of them each."""

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


def _means(host: FullHost, policy: Policy, seeds: Iterable[int]) -> dict[str, float]:
    """Columns of the last second of `run_full_host`."""
    rules = KernelRules.preset(RULES)
    ends = [run_full_host(replace(host, seed=seed), policy, rules=rules).iloc[-1] for seed in seeds]
    return pd.DataFrame(ends).mean().to_dict()
