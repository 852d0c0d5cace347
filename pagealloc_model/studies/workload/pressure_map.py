"""Made-up full hosts all over a region of loads, each with and without the reserve's gate.

The hosts are small: 4 GiB, with the reserve's cap and the watermarks at the share of memory that
they have on 64 GiB. A pageblock is 16 times more of such a host, so that what a few blocks do shows
more. Nothing is fitted to posted figures; the ranges of `AXES` are round and wide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import pandas as pd

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.progress_bar import progress
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy
from pagealloc_model.studies.workload.full_host import FullHost, run_full_host

RULES = "6.18"
GATE_ORDER = 3
MIN_FREE_KBYTES_PER_GIB = 1056
"""As on 64 GiB, where the kernel sets 67584 at boot (S1.5)."""

HOST = FullHost(gib=4, nr_cpus=4, seconds=20)
WARM_UP_S = 6
"""Left out of the rates."""

FAULTS = ("always", "madvised", "defer")
"""How hard a fault tries for a huge page: it compacts once; it reclaims and compacts; it only wakes
kswapd (S8.5). The host's own faults are madvised."""
LIGHT_FAULTS = ("madvise",)
"""Faults that are not madvised under that setting, or any under `never`: they neither compact nor
wake kswapd."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One quantity of the hosts that is varied.

    Attributes:
        name: field of `FullHost`.
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
    Axis(name="atomic_per_s", low=300, high=20_000, is_log=True, words="atomic requests/s"),
    Axis(name="atomic_ms", low=0.2, high=200, is_log=True, words="their mean life, ms"),
    Axis(name="huge_per_s", low=2, high=64, is_log=True, words="huge-page faults/s"),
    Axis(name="huge_s", low=0.5, high=20, is_log=True, words="life of a huge page, s"),
    Axis(name="anon_percent", low=10, high=90, is_log=False, words="occupancy: anonymous, %"),
    Axis(
        name="cache_pages_per_s", low=2_000, high=40_000, is_log=True, words="churn: pages read/s"
    ),
    Axis(name="scattered_per_mille", low=0, high=1000, is_log=False, words="pinned blocks, 1/1000"),
)


NEAR_HIGHEST = {"huge_per_s": 20.0, "scattered_per_mille": 300.0}
NEAR_AXES = tuple(replace(axis, high=NEAR_HIGHEST.get(axis.name, axis.high)) for axis in AXES)
NEAR_FAULTS = ("always",)
"""A second design: few pinned blocks, few huge pages, faults that compact once. Chosen after a
first run of the wide design, where effects on compaction lay there."""


def design(
    points: int, axes: tuple[Axis, ...] = AXES, faults: tuple[str, ...] = FAULTS, seed: int = 0
) -> pd.DataFrame:
    """Hosts spread evenly over all axes: a Latin hypercube (scipy.stats.qmc).

    Args:
        points: how many hosts.
        axes: what is varied, and how far.
        faults: how hard huge-page faults try, out of `FAULTS` and `LIGHT_FAULTS`.
        seed: of the design.

    Returns:
        A column for each axis and `faults`, one row a host.

    Raises:
        UsageError: no point.
    """
    if points < 1:
        raise UsageError("a map needs at least one point")
    from scipy.stats import qmc

    sampler = qmc.LatinHypercube(len(axes) + 1, rng=seed, optimization="random-cd")
    whole = {each.name for each in fields(FullHost) if each.type == "int"}
    rows = []
    for shares in sampler.random(points):
        row: dict[str, float | str] = {}
        for axis, share in zip(axes, shares[:-1], strict=True):
            value = axis.at(float(share))
            row[axis.name] = round(value) if axis.name in whole else float(f"{value:.3g}")
        rows.append(row | {"faults": faults[int(shares[-1] * len(faults))]})
    return pd.DataFrame(rows)


def run_map(hosts: pd.DataFrame, seeds: int) -> pd.DataFrame:
    """Every host under mainline's rule and under the gate, once for each seed.

    Args:
        hosts: a `design`.
        seeds: how many; both sides of a pair have the same demand.

    Returns:
        Columns point, seed, gate; reserved_blocks and whole_blocks at the end; huge_faults,
        thp_success, compactions, compaction_success and pgscan_kswapd after the warm-up, rates as
        shares, NaN where nothing was tried.
    """
    rows = []
    runs = len(hosts) * seeds * 2
    with progress("full hosts", runs, "runs", given=None) as report:
        for point, host, policy in _hosts(hosts):
            for seed in range(seeds):
                for gate in (0, GATE_ORDER):
                    gated = replace(policy, highatomic_gate_order=gate)
                    sample = _run(replace(host, seed=seed), gated)
                    rows.append({"point": point, "seed": seed, "gate": gate} | sample)
                    if report is not None:
                        report(len(rows) / runs)
    return pd.DataFrame(rows)


def policy_of(host: FullHost, faults: str = "madvised") -> Policy:
    """Watermarks at the share of memory of a large host, and how hard huge-page faults try."""
    return Policy(
        min_free_kbytes=round(MIN_FREE_KBYTES_PER_GIB * host.gib),
        thp_defrag=None if faults == "madvised" else faults,
    )


def _hosts(hosts: pd.DataFrame) -> Iterator[tuple[int, FullHost, Policy]]:
    for point, row in enumerate(hosts.to_dict("records")):
        faults = str(row.pop("faults"))
        host = replace(HOST, **{str(name): value for name, value in row.items()})
        yield point, host, policy_of(host, faults)


def _run(host: FullHost, policy: Policy) -> dict[str, float]:
    table = run_full_host(host, policy, rules=KernelRules.preset(RULES)).set_index("second")
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
