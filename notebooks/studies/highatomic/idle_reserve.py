"""Effects of an idle reserve on huge pages, and what each answer to it costs atomic requests.

Compaction begins by itself where enough of the free memory is in small pieces (S9.6). Free blocks
of the reserve count as whole ones there, though no huge page may be served from them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
from pagealloc_model.notebooks.studies.highatomic.gate_map import (
    DEFRAGS,
    GATE_ORDER,
    PROACTIVENESS,
    RULES,
    full_reserve,
    policy_of,
)
from pagealloc_model.notebooks.studies.others.full_host import FullHost, run_full_host
from pagealloc_model.notebooks.studies.others.shipped_data import success

import pagealloc_model as pm

IDLE_HOST = FullHost(
    gib=16,
    nr_cpus=8,
    reserved_blocks=full_reserve(16),
    atomic_per_s=0,
    atomic_ms=50.0,
    kernel_per_s=20,
    cache_pages_per_s=4000,
    huge_per_s=10,
    huge_s=4.0,
    thp_defrag="madvise",
    thp_madvised=False,
    seconds=60,
)
"""The reserve is full, wholly free and idle; faults neither compact nor wake kswapd."""
LARGE_HOST = replace(
    IDLE_HOST,
    gib=64,
    nr_cpus=32,
    reserved_blocks=312,
    kernel_per_s=80,
    cache_pages_per_s=16_000,
    huge_per_s=40,
)
"""As large as the posted hosts, with their reserve; rates as of `IDLE_HOST`, per GiB."""

BURST_HOST = replace(
    IDLE_HOST,
    gib=4,
    nr_cpus=4,
    reserved_blocks=full_reserve(4),
    atomic_per_s=40_000,
    atomic_ms=50.0,
    atomic_pause_s=(0, 50),
    kernel_per_s=0,
    cache_pages_per_s=1000,
    huge_per_s=3,
    seconds=60,
)
"""A burst of atomic requests after a long quiet."""
QUIET_S = (10, 50)
"""Seconds of the quiet in which huge pages are counted; the burst follows."""

FULL, EMPTY = True, False
ANSWERS: Mapping[str, tuple[pm.Policy, bool]] = {
    "mainline": (pm.Policy(), FULL),
    "gate at order 3": (pm.Policy(highatomic_gate_order=GATE_ORDER), EMPTY),
    "only requests at the min mark reserve": (pm.Policy(highatomic_slowpath_only=True), EMPTY),
    "score without HighAtomic": (pm.Policy(score_without_highatomic=True), FULL),
    "kcompactd unreserves": (pm.Policy(kcompactd_unreserves=True), FULL),
}
"""Mainline, and what was proposed, was merged or follows from the mechanism (S7.2, S7.1, S9.10);
and whether the reserve is full as the quiet begins. Under 7.3's rule it may have grown before."""


def score_over_time(host: FullHost = IDLE_HOST) -> pd.DataFrame:
    """The score of S9.6, second by second, under mainline and under the gate.

    Returns:
        Columns side ("mainline", "gate"), and those of `run_full_host`.
    """
    tables = []
    for side, gate in (("mainline", False), ("gate", True)):
        table = _run(_begun(host, gate), GATE_ORDER if gate else 0)
        table.insert(0, "side", side)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def two_by_two(
    host: FullHost = IDLE_HOST, seeds: Iterable[int] = (0, 1, 2), defrags: Iterable[str] = DEFRAGS
) -> pd.DataFrame:
    """Huge pages with and without the gate and proactive compaction, for each `defrag`."""
    seeds = tuple(seeds)
    rows = []
    for defrag, gate, share in itertools.product(defrags, (0, GATE_ORDER), PROACTIVENESS):
        begun = replace(_begun(host, gate > 0), thp_defrag=defrag)
        runs = [
            _run(replace(begun, seed=seed), gate, compaction_proactiveness=share).iloc[-1]
            for seed in seeds
        ]
        ends = pd.DataFrame(runs)
        served = ends["thp_fault_alloc"] / (ends["thp_fault_alloc"] + ends["thp_fault_fallback"])
        rows.append(
            {"defrag": defrag, "gate": gate, "proactiveness": share}
            | success(served)
            | {name: ends[name].mean() for name in ("whole_blocks", "score")}
            | {"kcompactd_scanned": ends["compact_daemon_migrate_scanned"].mean()}
            | {"kswapd_scanned": ends["pgscan_kswapd"].mean()}
        )
    return pd.DataFrame(rows)


def answers_and_costs(
    host: FullHost = BURST_HOST, seeds: Iterable[int] = (0, 1, 2, 3, 4)
) -> pd.DataFrame:
    """Effects of each of `ANSWERS` on huge pages in the quiet, and on atomics in the burst."""
    seeds = tuple(seeds)
    begin, end = QUIET_S
    rows = []
    for answer, (policy, is_full) in ANSWERS.items():
        whole = replace(policy, min_free_kbytes=policy_of(host).min_free_kbytes)
        begun = _begun(host, not is_full)
        rules = pm.KernelRules.preset(RULES)
        runs = [
            run_full_host(replace(begun, seed=seed), whole, rules=rules).set_index("second")
            for seed in seeds
        ]
        quiet = pd.DataFrame([run.loc[end] - run.loc[begin] for run in runs])
        burst = pd.DataFrame([run.iloc[-1] - run.loc[end] for run in runs])
        served = quiet["thp_fault_alloc"] / (quiet["thp_fault_alloc"] + quiet["thp_fault_fallback"])
        rows.append(
            {"answer": answer}
            | {
                name: np.mean([run.loc[end, name] for run in runs])
                for name in ("reserved_blocks", "whole_blocks")
            }
            | success(served)
            | _failures(burst, _asked(host))
            | {"kswapd_scanned": burst["pgscan_kswapd"].mean()}
        )
    return pd.DataFrame(rows)


def _failures(burst: pd.DataFrame, counts: Mapping[int, float]) -> dict[str, float]:
    """Return failed requests per 10,000 of each order: mean, least and most over seeds."""
    shares = {}
    for order, requests in counts.items():
        failed = 1e4 * burst[f"failed_order_{order}"] / requests
        name = f"failed_order_{order}"
        shares |= {name: failed.mean(), f"{name}_least": failed.min(), f"{name}_most": failed.max()}
    return shares


def _asked(host: FullHost) -> dict[int, float]:
    """Requests of the burst by order, those of the kernel itself included."""
    weights = np.array(host.atomic_order_weights, float)
    seconds = host.seconds - host.atomic_pause_s[1]
    atomic = host.atomic_per_s * weights / weights.sum()
    own = np.array([0.0, *(host.kernel_per_s * weights[1:] / weights[1:].sum())])
    return {order: seconds * float(atomic[order] + own[order]) for order in (1, 2, 3)}


def _begun(host: FullHost, gate: bool) -> FullHost:
    """The host as it begins: the gate has kept its reserve empty."""
    return replace(host, reserved_blocks=0) if gate else host


def _run(host: FullHost, gate: int, **changed: int) -> pd.DataFrame:
    policy = replace(policy_of(host), highatomic_gate_order=gate, **changed)
    return run_full_host(host, policy, rules=pm.KernelRules.preset(RULES))


HOST = FullHost(
    gib=4, nr_cpus=4, cache_pages_per_s=6_000, atomic_per_s=3_000, huge_per_s=1, seconds=30
)
"""The rates of the default 64 GiB host, a 16th of them each."""

SHORT_MS, LONG_MS = 0.2, 200.0


def why_not_recycled(host: FullHost = HOST, seeds: Iterable[int] = (0,)) -> pd.DataFrame:
    """The reserve with short and long lives, with and without what per-CPU lists serve.

    Without huge-page faults, so that no direct reclaim gives blocks back, and with them.

    Returns:
        Columns huge_per_s, atomic_ms, from_pcp; blocks_taken and blocks_given_back in all,
        reserved_blocks, whole_blocks and partly_used at the end; means over the seeds.
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
    return pd.DataFrame(rows)[[*columns, "reserved_blocks", "whole_blocks", "partly_used"]]


def _means(host: FullHost, policy: pm.Policy, seeds: Iterable[int]) -> dict[str, float]:
    """Columns of the last second of `run_full_host`."""
    rules = pm.KernelRules.preset(RULES)
    ends = [run_full_host(replace(host, seed=seed), policy, rules=rules).iloc[-1] for seed in seeds]
    return pd.DataFrame(ends).mean().to_dict()
