"""The gate's effect by size of host: the reserve idle from the start, or minutes after a burst.

Rates are those of `IDLE_HOST`, per GiB, and the reserve is 1 % of memory, 312 blocks of 64 GiB.
Nothing is fitted to posted figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pandas as pd
from pagealloc_model.notebooks.studies.highatomic.gate_map import (
    BURST,
    DEFRAGS,
    GATE_ORDER,
    IDLE,
    RULES,
    WARM_UP_S,
    full_reserve,
    policy_of,
)
from pagealloc_model.notebooks.studies.highatomic.idle_reserve import IDLE_HOST, LARGE_HOST
from pagealloc_model.notebooks.studies.others.full_host import FullHost, run_full_host

import pagealloc_model as pm
from pagealloc_model.base.progress_bar import progress

SEEDS: Mapping[int, tuple[int, ...]] = {4: (0, 1, 2), 16: (0, 1, 2), 64: (0,)}
"""Of the hosts by GiB: a large one takes long."""
ATOMICS_PER_S_PER_GIB = 800
"""In the burst; about what `FullHost` has by itself."""
MINUTES_S = 200
"""Length of a run with a burst of `WARM_UP_S` at its begin."""
REGIONS = (
    *((IDLE, defrag) for defrag in DEFRAGS),
    *((BURST, defrag) for defrag in DEFRAGS if defrag != "always"),
)
"""Loads and settings of transparent_hugepage/defrag."""


def host_in(load: str, defrag: str, gib: int, *, gate: bool) -> FullHost:
    """The host of one region."""
    share = gib / IDLE_HOST.gib
    reserved = LARGE_HOST.reserved_blocks if gib == LARGE_HOST.gib else full_reserve(gib)
    host = replace(
        IDLE_HOST,
        gib=gib,
        nr_cpus=max(2, gib // 2),
        reserved_blocks=0,
        kernel_per_s=round(share * IDLE_HOST.kernel_per_s),
        cache_pages_per_s=round(share * IDLE_HOST.cache_pages_per_s),
        huge_per_s=round(share * IDLE_HOST.huge_per_s),
        thp_defrag=defrag,
    )
    if load == IDLE:
        return host if gate else replace(host, reserved_blocks=reserved)
    return replace(
        host,
        atomic_per_s=ATOMICS_PER_S_PER_GIB * gib,
        atomic_pause_s=(WARM_UP_S, MINUTES_S),
        seconds=MINUTES_S,
    )


def run_regions(seeds: Mapping[int, Iterable[int]] = SEEDS) -> pd.DataFrame:
    """Each region's hosts with and without the gate, at the default proactiveness."""
    rows = []
    cases = [(load, defrag, gib) for load, defrag in REGIONS for gib in seeds]
    with progress("regions", len(cases), "regions", given=None) as report:
        for done, (load, defrag, gib) in enumerate(cases, 1):
            pairs = [_pair(load, defrag, gib, seed) for seed in seeds[gib]]
            rows.append({"load": load, "defrag": defrag, "gib": gib} | _row(pairs))
            if report is not None:
                report(done / len(cases))
    return pd.DataFrame(rows)


def _pair(load: str, defrag: str, gib: int, seed: int) -> tuple[pd.Series, pd.Series]:
    """Return what happened after the warm-up without the gate and with it."""
    mainline, gate = (
        _run(replace(host_in(load, defrag, gib, gate=order > 0), seed=seed), order)
        for order in (0, GATE_ORDER)
    )
    return mainline, gate


def _run(host: FullHost, gate: int) -> pd.Series:
    policy = replace(policy_of(host), highatomic_gate_order=gate)
    table = run_full_host(host, policy, rules=pm.KernelRules.preset(RULES)).set_index("second")
    last, change = table.iloc[-1], table.iloc[-1] - table.loc[WARM_UP_S]
    faults = change["thp_fault_alloc"] + change["thp_fault_fallback"]
    return pd.Series(
        {
            "thp_success": change["thp_fault_alloc"] / faults,
            "reserved_blocks": last["reserved_blocks"],
            "whole_blocks": last["whole_blocks"],
            "given_back": last["blocks_given_back"],
            "scanned": change["pgscan_kswapd"],
        }
    )


def _row(pairs: list[tuple[pd.Series, pd.Series]]) -> dict[str, float]:
    mainline, gate = (pd.DataFrame(rows) for rows in zip(*pairs, strict=True))
    changes = (gate["thp_success"] - mainline["thp_success"]).to_numpy()
    return {
        "runs": len(pairs),
        "mainline": mainline["thp_success"].mean(),
        "gate": gate["thp_success"].mean(),
        "change": changes.mean(),
        "least": changes.min(),
        "most": changes.max(),
        **{name: mainline[name].mean() for name in ("reserved_blocks", "whole_blocks")},
        "given_back": mainline["given_back"].mean(),
        "scanned": (gate["scanned"] / mainline["scanned"]).mean() - 1,
    }
