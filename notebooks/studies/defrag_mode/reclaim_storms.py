"""Reclaim and refaults under defrag_mode without and with two fixes of 2026, on a made-up host.

"mm/page_alloc: fix defrag_mode for non-reclaimable allocations" lets atomic requests fall back
(S8.6), "mm: page_alloc: fix non-movable reclaim storm in defrag_mode" lets others reclaim and
compact for a whole block (S8.7). 7.3 has both. The host is full of page cache that is read again,
nearly every movable block has a kernel page in it, and the kernel's memory grows.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
from pagealloc_model.notebooks.studies.others.full_host import FullHost, run_full_host

import pagealloc_model as pm

RULES, SEEDS = "7.3", (0, 1, 2)
HOST = FullHost(
    gib=4,
    nr_cpus=4,
    free_per_mille=15,
    kernel_percent=5,
    scattered_per_mille=900,
    anon_percent=20,
    cache_pages_per_s=2_000,
    atomic_per_s=2_000,
    lasting_per_mille=500,
    lasting_s=30.0,
    kernel_per_s=3_000,
    huge_per_s=5,
    working_set_pages=400_000,
    reads_per_s=20_000,
    seconds=5,
)
_MERGED = pm.Policy(
    defrag_mode=True,
    defrag_atomic_falls_back=False,
    defrag_promotes_order=False,
    promoted_fall_back_afresh=False,
)
SIDES = {
    "mode 0": pm.Policy(defrag_mode=False),
    "mode 1 without both fixes": _MERGED,
    "mode 1, atomic requests fall back": replace(_MERGED, defrag_atomic_falls_back=True),
    "mode 1, others reclaim for a block": pm.Policy(
        defrag_mode=True, defrag_atomic_falls_back=False
    ),
    "mode 1 with both (7.3)": pm.Policy(defrag_mode=True),
}
COUNTED = {
    "allocstall": "stalls",
    "pgscan_direct": "direct scanned",
    "workingset_refault_file": "file refaults",
    "requests_failed": "requests failed",
}


def storm_runs() -> pd.DataFrame:
    """Counters of the whole run, a row a side and seed: side, seed and those of `COUNTED`."""
    rules, rows = pm.KernelRules.preset(RULES), []
    for side, policy in SIDES.items():
        for seed in SEEDS:
            last = run_full_host(replace(HOST, seed=seed), policy, rules=rules).iloc[-1]
            rows.append({"side": side, "seed": seed} | last[list(COUNTED)].to_dict())
    return pd.DataFrame(rows)


def storm_table() -> pd.DataFrame:
    """A row a side: the mean over seeds of each counter, with the least and the most."""
    by_side = storm_runs().groupby("side", sort=False)
    table = pd.DataFrame({"made-up host, 5 s": list(SIDES)})
    for name, words in COUNTED.items():
        spread = by_side[name].agg(["mean", "min", "max"]).itertuples(index=False)
        table[words] = [f"{mean:,.0f} ({low:,.0f} to {high:,.0f})" for mean, low, high in spread]
    return table
