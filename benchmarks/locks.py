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


def sites() -> None:
    """Measured and predicted by site."""
    for name in ("kbuild", "xfree"):
        compared = pm.compare_locks(pm.open(name))
        print(name, compared.by_site.set_index("site").T.to_string(), *compared.notes, sep="\n")


def pairs() -> None:
    """Sizes of drains under the other policy, as total variation distance, and the longest."""
    rows = []
    for name, other in (("unbatched72", "batched72"), ("batched72", "unbatched72")):
        source, target = pm.open(name), pm.open(other)
        policy = pm.Policy(pcp_free_batched=other == "batched72")
        predicted = _commits(pm.replay(source, policy).transactions_full)
        measured = _commits(pm.measure(target).transactions_full)
        before = _commits(pm.measure(source).transactions_full)
        rows.append(
            {
                "from": name,
                "predicts": other,
                "distance": _distance(predicted, measured),
                "no change": _distance(before, measured),
                "longest measured": measured.max(),
                "longest predicted": predicted.max(),
                "longest without change": before.max(),
                "p99 measured": np.quantile(measured, 0.99),
                "p99 predicted": np.quantile(predicted, 0.99),
            }
        )
    print(pd.DataFrame(rows).T.to_string())


def _commits(transactions: pd.DataFrame) -> np.ndarray:
    """Pages of each drain by an overflowing free."""
    rows = transactions[(transactions["site"] == "drain") & (transactions["cause"] == "commit")]
    return rows["pages"].to_numpy(dtype=float)


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    """Total variation distance of two samples over `BINS`."""
    shares = [np.histogram(each, BINS)[0] / len(each) for each in (one, other)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def scale() -> None:
    """Four CPUs from two."""
    for name in ("batched72", "unbatched72"):
        for cpus in ((0, 1), (2, 3)):
            print(f"{name} from CPUs {cpus}")
            print(pm.judged_scale_up(pm.open(name), cpus).to_string())


def avalanche() -> None:
    """316 processes of 8192 pages exit at once on 1 TiB, with and without batches."""
    scenario = pm.made_up_scenario("exit", gib=1024, nr_cpus=316, rules="6.18")
    print(*scenario.lines, sep="\n")
    rows = {}
    for batch in (31, 63, 127):
        for batched in (False, True):
            begun = time.process_time()
            policy = pm.Policy(pcp_batch=batch, pcp_free_batched=batched)
            run = pm.run_scenario(scenario, policy, rules="6.18")
            times = run.times()
            drains = times.acquisitions[times.acquisitions["cause"] == "commit"]
            rows[str(policy)] = {
                "drains": len(drains),
                "longest hold, pages": drains["pages"].max(),
                "longest hold, us": drains["hold_ns"].max() / 1e3,
                "median wait, us": drains["wait_ns"].median() / 1e3,
                "longest wait, us": drains["wait_ns"].max() / 1e3,
                "CPU seconds": time.process_time() - begun,
            }
    print(pd.DataFrame(rows).to_string())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    print(f"most memory in use: {peak:.2f} GiB")


PARTS: dict[str, Callable[[], None]] = {
    "sites": sites,
    "pairs": pairs,
    "scale": scale,
    "avalanche": avalanche,
}


if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
