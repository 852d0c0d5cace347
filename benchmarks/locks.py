"""Lock traffic: predicted against recorded, across policies, scaled up, and in an avalanche.

Usage: python benchmarks/locks.py [sites | pairs | scale | avalanche ...]

`sites`: acquisitions and contended ones of kbuild and xfree. `pairs`: drains of one guest
recording predicted from the other, made under the other setting of pcp_free_batched. `scale`: the
guest recordings' four CPUs from two of them. `avalanche`: 316 CPUs and 1 TiB, all processes exit.
Recordings are looked up as `pagealloc info NAME` does.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable

import numpy as np
import pandas as pd

import pagealloc_model as pm

BINS = (0, 1, 2, 4, 8, 16, 32, 63, 64, 127, 253, 509, 1021, 2017, 1 << 20)
"""Drain sizes in pages, one batch in a bin of its own."""
SITES = ("refill", "drain", "buddy_alloc", "direct_free")


def sites(paths: tuple[str, ...] = ("kbuild", "xfree")) -> pd.DataFrame:
    """Measured and predicted by site; waits of sites the model does not have are left out."""
    rows = []
    for path in paths:
        bundle = pm.open(path)
        by_site = pm.compare_locks(bundle).by_site.set_index("site").reindex(SITES)
        for what in ("acquisitions", "pages_per_acquisition", "contended"):
            for site in SITES:
                values = [by_site.loc[site, f"{what}_{side}"] for side in ("measured", "predicted")]
                if not any(pd.isna(value) for value in values):
                    rows.append((bundle.name, what.replace("_", " "), site, *values))
        sums = [by_site[f"contended_{side}"].sum() for side in ("measured", "predicted")]
        rows.append((bundle.name, "contended", "all", *sums))
    columns = ["recording", "what", "site", "measured", "predicted"]
    return _with_error(pd.DataFrame(rows, columns=columns))


def _with_error(frame: pd.DataFrame) -> pd.DataFrame:
    measured = frame["measured"].astype(float)
    error = frame["predicted"].astype(float) / measured.where(measured > 0) - 1
    return frame.assign(error=error)


def pairs(unbatched: str = "unbatched72", batched: str = "batched72") -> pd.DataFrame:
    """Sizes of drains by overflowing frees under the other policy.

    `distance` is the total variation distance between predicted and measured sizes; `no change`
    that of the recording itself, as if the policy changed nothing.
    """
    rows = []
    for source, target, policy in (
        (pm.open(unbatched), pm.open(batched), pm.Policy(pcp_free_batched=True)),
        (pm.open(batched), pm.open(unbatched), pm.Policy(pcp_free_batched=False)),
    ):
        predicted = _commits(pm.replay(source, policy).transactions_full)
        measured = _commits(pm.measure(target).transactions_full)
        before = _commits(pm.measure(source).transactions_full)
        rows.append(
            {
                "from": source.name,
                "predicts": target.name,
                "distance": _distance(predicted, measured),
                "no change": _distance(before, measured),
                "longest measured": measured.max(),
                "longest predicted": predicted.max(),
                "longest without change": before.max(),
                "p99 measured": np.quantile(measured, 0.99),
                "p99 predicted": np.quantile(predicted, 0.99),
            }
        )
    return pd.DataFrame(rows)


def _commits(transactions: pd.DataFrame) -> np.ndarray:
    """Pages of each drain by an overflowing free."""
    rows = transactions[(transactions["site"] == "drain") & (transactions["cause"] == "commit")]
    return rows["pages"].to_numpy(dtype=float)


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    """Total variation distance of two samples over `BINS`."""
    shares = [np.histogram(each, BINS)[0] / len(each) for each in (one, other)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def scale(paths: tuple[str, ...] = ("batched72", "unbatched72")) -> pd.DataFrame:
    """Four CPUs from two."""
    parts = []
    for path in paths:
        bundle = pm.open(path)
        for cpus in ((0, 1), (2, 3)):
            table = pm.judged_scale_up(bundle, cpus)
            table.insert(0, "from CPUs", f"{cpus[0]} and {cpus[1]}")
            table.insert(0, "recording", bundle.name)
            parts.append(table)
    return pd.concat(parts, ignore_index=True)


def avalanche() -> pd.DataFrame:
    """316 processes of 8192 pages exit at once on 1 TiB, with and without batches."""
    scenario = pm.made_up_scenario("exit", gib=1024, nr_cpus=316, rules="6.18")
    rows = []
    for batch in (31, 63, 127):
        for batched in (False, True):
            begun = time.process_time()
            policy = pm.Policy(pcp_batch=batch, pcp_free_batched=batched)
            times = pm.run_scenario(scenario, policy, rules="6.18").times()
            drains = times.acquisitions[times.acquisitions["cause"] == "commit"]
            rows.append(
                {
                    "pcp->batch": batch,
                    "batched": "yes" if batched else "no",
                    "drains": len(drains),
                    "longest hold, pages": drains["pages"].max(),
                    "longest hold, us": drains["hold_ns"].max() / 1e3,
                    "median wait, us": drains["wait_ns"].median() / 1e3,
                    "longest wait, us": drains["wait_ns"].max() / 1e3,
                    "CPU seconds": time.process_time() - begun,
                }
            )
    return pd.DataFrame(rows)


PARTS: dict[str, Callable[[], pd.DataFrame]] = {
    "sites": sites,
    "pairs": pairs,
    "scale": scale,
    "avalanche": avalanche,
}


if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        print(PARTS[part]().to_string())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    print(f"most memory in use: {peak:.2f} GiB")
