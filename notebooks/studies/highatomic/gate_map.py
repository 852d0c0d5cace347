"""Made-up full hosts all over a region of loads, each with and without the reserve's gate.

The reserve's cap and the watermarks are at the share of memory that they have on 64 GiB. Nothing is
fitted to posted figures; the ranges of `AXES` are round and wide.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import pandas as pd
from pagealloc_model.notebooks.studies.others.full_host import FullHost, run_full_host

import pagealloc_model as pm
from pagealloc_model.base.progress_bar import progress
from pagealloc_model.policy import ElasticAssumptions

RULES = "6.18"
GATE_ORDER = 3
MIN_FREE_KBYTES_PER_GIB = 1056
"""As on 64 GiB, where the kernel sets 67584 at boot (S1.5)."""
BLOCKS_PER_GIB = 512

HOST = FullHost(nr_cpus=8, seconds=40, thp_madvised=False)
"""Memory of its huge-page faults is not madvised."""
WARM_UP_S = 10
"""Left out of the rates; as long as a burst lasts."""

IDLE, BURST, STEADY = "idle", "burst", "steady"
LOADS = (IDLE, BURST, STEADY)
"""Loads of atomic requests: there are none, and the reserve begins full and wholly free; they come
for `WARM_UP_S` and then no more; they come all the time."""
DEFRAGS = ("always", "defer", "madvise")
"""Settings of transparent_hugepage/defrag: faults compact once; they only wake kswapd; neither."""
PROACTIVENESS = (20, 0)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One quantity of the hosts that is varied.

    Attributes:
        name: column of a design.
        low: lowest value.
        high: highest value.
        is_log: values are spread evenly in their logarithm.
        words: what it is.
    """

    name: str
    low: float
    high: float
    is_log: bool
    words: str

    def at(self, share: float) -> float:
        """The value at a share of the range, 0 to 1."""
        if self.is_log:
            return self.low * (self.high / self.low) ** share
        return self.low + (self.high - self.low) * share


AXES = (
    Axis(name="gib", low=4, high=16, is_log=True, words="memory, GiB"),
    Axis(name="cache_per_gib", low=60, high=1000, is_log=True, words="pages read/s per GiB"),
    Axis(name="huge_per_gib", low=0.3, high=3, is_log=True, words="huge-page faults/s per GiB"),
    Axis(name="huge_s", low=0.5, high=20, is_log=True, words="life of a huge page, s"),
    Axis(name="atomic_per_gib", low=20, high=1000, is_log=True, words="atomics/s per GiB"),
    Axis(name="kernel_per_gib", low=0.2, high=20, is_log=True, words="kernel requests/s per GiB"),
    Axis(name="scattered_per_mille", low=0, high=500, is_log=False, words="pinned blocks, 1/1000"),
    Axis(name="stuck_per_mille", low=0, high=5, is_log=False, words="pages that stay, 1/1000"),
    Axis(name="working_set_percent", low=0, high=40, is_log=False, words="read again, % of memory"),
)
"""Kernel requests are of orders 1 to 3 and compact themselves."""


def design(points: int, axes: tuple[Axis, ...] = AXES, seed: int = 0) -> pd.DataFrame:
    """Hosts spread evenly over all axes, as many for every load, `defrag` and proactiveness.

    The axes are a Latin hypercube (scipy.stats.qmc).

    Returns:
        A column for each axis, load, defrag and proactiveness, one row a host.
    """
    if points < 1:
        raise pm.UsageError("a map needs at least one point")
    from scipy.stats import qmc

    kinds = list(itertools.product(LOADS, DEFRAGS, PROACTIVENESS)) * points
    sampler = qmc.LatinHypercube(len(axes), rng=seed, optimization="random-cd")
    rows = []
    for shares, kind in zip(sampler.random(len(kinds)), kinds, strict=True):
        values = zip(axes, shares, strict=True)
        row = {axis.name: float(f"{axis.at(float(share)):.3g}") for axis, share in values}
        rows.append(row | dict(zip(("load", "defrag", "proactiveness"), kind, strict=True)))
    return pd.DataFrame(rows)


def run_map(hosts: pd.DataFrame, seeds: int) -> pd.DataFrame:
    """Every host under mainline's rule and under the gate, once for each seed."""
    rows = []
    runs = len(hosts) * seeds * 2
    with progress("full hosts", runs, "runs", given=None) as report:
        for point, row in enumerate(hosts.to_dict("records")):
            for seed, gate in itertools.product(range(seeds), (0, GATE_ORDER)):
                sample = _run({str(name): value for name, value in row.items()}, seed, gate)
                rows.append({"point": point, "seed": seed, "gate": gate} | sample)
                if report is not None:
                    report(len(rows) / runs)
    return pd.DataFrame(rows)


def policy_of(host: FullHost) -> pm.Policy:
    """Watermarks at the share of memory of a large host."""
    return pm.Policy(min_free_kbytes=round(MIN_FREE_KBYTES_PER_GIB * host.gib))


def full_reserve(gib: float) -> int:
    """Pageblocks of 1% of memory."""
    return round(gib * BLOCKS_PER_GIB / 100)


def host_of(row: dict[str, float | str], *, gate: bool) -> FullHost:
    """The host of a design's row; with the gate it begins without a reserve."""
    gib, load = float(row["gib"]), str(row["load"])

    def rate(name: str) -> int:
        return max(1, round(gib * float(row[name])))

    return replace(
        HOST,
        gib=gib,
        thp_defrag=str(row["defrag"]),
        cache_pages_per_s=rate("cache_per_gib"),
        huge_per_s=rate("huge_per_gib"),
        huge_s=float(row["huge_s"]),
        atomic_per_s=0 if load == IDLE else rate("atomic_per_gib"),
        atomic_pause_s=(WARM_UP_S, HOST.seconds) if load == BURST else (0, 0),
        reserved_blocks=full_reserve(gib) if load == IDLE and not gate else 0,
        kernel_per_s=rate("kernel_per_gib"),
        scattered_per_mille=round(float(row["scattered_per_mille"])),
        working_set_pages=round(gib * 2**18 * float(row["working_set_percent"]) / 100),
        reads_per_s=rate("cache_per_gib"),
    )


def _run(row: dict[str, float | str], seed: int, gate: int) -> dict[str, float]:
    host = replace(host_of(row, gate=gate > 0), seed=seed)
    policy = replace(
        policy_of(host),
        highatomic_gate_order=gate,
        compaction_proactiveness=int(row["proactiveness"]),
    )
    stuck = round(float(row["stuck_per_mille"]))
    elastic = ElasticAssumptions(
        anon_migration_fails_per_mille=stuck, file_migration_fails_per_mille=stuck
    )
    table = run_full_host(
        host,
        policy,
        rules=pm.KernelRules.preset(RULES),
        assumptions=pm.Assumptions(reclaim="elastic", elastic=elastic),
    ).set_index("second")
    last = table.iloc[-1]
    change = last - table.loc[WARM_UP_S]
    faults = change["thp_fault_alloc"] + change["thp_fault_fallback"]
    compactions = change["compact_success"] + change["compact_fail"]
    return {
        "reserved_blocks": last["reserved_blocks"],
        "whole_blocks": last["whole_blocks"],
        "huge_faults": faults,
        "thp_success": _share(change["thp_fault_alloc"], faults),
        "compactions": compactions,
        "compaction_success": _share(change["compact_success"], compactions),
        "pgscan_kswapd": change["pgscan_kswapd"],
    }


def _share(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")
