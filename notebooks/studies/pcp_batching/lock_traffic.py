"""Lock traffic: predicted against recorded, across policies, scaled up, and in an avalanche.

Usage: python notebooks/studies/pcp_batching/lock_traffic.py
       [sites | fastpath | pairs | scale | avalanche | amplifier ...]

`sites`: acquisitions and contended ones of kbuild and xfree. `fastpath`: atomic requests by the
rule of 7.3, of network traffic and of a guest. `pairs`: drains of one guest recording predicted
from the other, made under the other setting of pcp_free_batched. `scale`: the guest recordings'
four CPUs from two of them. `avalanche`: 316 CPUs and 1 TiB, all processes exit. `amplifier`: the
same while a CPU drains everybody's lists.
Recordings are looked up as `pagealloc info NAME` does.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from pagealloc_model.notebooks.studies.others.error_lines import apart, table_lines

import pagealloc_model as pm
from pagealloc_model.measured.rules import choose_rules
from pagealloc_model.numbers.statistics import relative
from pagealloc_model.predicted.prepared import prepare
from pagealloc_model.recording.recorded_machine import effective_policy
from pagealloc_model.recording.trace.columns import Event

SPREAD = pm.locks.SPREAD
LITERAL = pm.Assumptions(reclaim="literal")

BINS = (0, 1, 2, 4, 8, 16, 32, 63, 64, 127, 253, 509, 1021, 2017, 1 << 20)
"""Drain sizes in pages, one batch in a bin of its own."""
SITES = ("refill", "drain", "buddy_alloc", "direct_free")


def sites(paths: tuple[str, ...] = ("kbuild", "xfree")) -> pd.DataFrame:
    """Measured and predicted by site; NA is what no event shows.

    Waits that cannot be known, or are of sites the model does not have, are left out.
    """
    rows = []
    for path in paths:
        recording = pm.open(path)
        by_site = pm.locks.compare_locks(recording).by_site.set_index("site").reindex(SITES)
        for what in ("acquisitions", "pages_per_acquisition", "contended"):
            for site in SITES:
                values = [by_site.loc[site, f"{what}_{side}"] for side in ("measured", "predicted")]
                shown = values if what == "contended" else values[1:]
                if not any(pd.isna(value) for value in shown):
                    rows.append((recording.name, what.replace("_", " "), site, *values))
        sums = [by_site[f"contended_{side}"].sum() for side in ("measured", "predicted")]
        rows.append((recording.name, "contended", "all", *sums))
    columns = ["recording", "what", "site", "measured", "predicted"]
    return _with_error(pd.DataFrame(rows, columns=columns))


def _with_error(frame: pd.DataFrame) -> pd.DataFrame:
    measured = pd.to_numeric(frame["measured"], errors="coerce")
    error = pd.to_numeric(frame["predicted"]) / measured.where(measured > 0) - 1
    return frame.assign(error=error)


def fastpath(paths: Sequence[str] = ("jumbo_frames", "highatomic_stock")) -> pd.DataFrame:
    """Holds of zone->lock by the rule up to 7.2 and by that of 7.3 (S2.5)."""
    rows = []
    for path in paths:
        recording = pm.open(path)
        sides = [
            pm.replay(recording, policy, rules="7.3", assumptions=LITERAL)
            for policy in (pm.Policy(highatomic_fastpath=is_new) for is_new in (False, True))
        ]
        counts = [side.lock_times().acquisitions["site"].value_counts() for side in sides]
        for what in ("refill", "buddy_alloc", "all"):
            old, new = (
                float(count.sum() if what == "all" else count.get(what, 0)) for count in counts
            )
            rows.append(
                (recording.name, _atomic_requests(recording), what, old, new, relative(new, old))
            )
    columns = ["recording", "atomic requests", "holds", "up to 7.2", "7.3", "change"]
    return pd.DataFrame(rows, columns=columns)


def _atomic_requests(recording: pm.Recording) -> int:
    """Of an order above 0, with __GFP_HIGH, that may not reclaim directly."""
    trace, bits = recording.trace, recording.trace.gfp_bits
    high, direct = bits["__GFP_HIGH"], bits["__GFP_DIRECT_RECLAIM"]
    is_asked = (trace.event == Event.ALLOC) & (trace.order > 0)
    return int(np.count_nonzero(is_asked & (trace.gfp & (high | direct) == high)))


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
        predicted = _commits(pm.replay(source, policy, assumptions=LITERAL).transactions_full)
        measured = _commits(target.measure().transactions_full)
        before = _commits(source.measure().transactions_full)
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
    shares = [np.histogram(pages, BINS)[0] / len(pages) for pages in (one, other)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def judged_scale_up(recording: pm.Recording, cpus: Sequence[int], *, seed: int = 0) -> pd.DataFrame:
    """Predict a recording from the streams of some of its CPUs, beside what it shows."""
    rules = choose_rules(recording, None).rules
    all_cpus = prepare(recording, rules, LITERAL, 0).machine.nr_cpus
    everything = pm.synthetic.scaled_up(recording, all_cpus, rules=rules, seed=seed)
    part = pm.synthetic.scaled_up(recording, all_cpus, cpus=cpus, rules=rules, seed=seed)
    real = recording.measure()
    sides = {
        "all_streams": _transactions(recording, everything, rules),
        "predicted": _transactions(recording, part, rules),
    }
    rows = []
    for site in SITES:
        for metric in ("acquisitions", "pages"):
            row: dict[str, object] = {"site": site, "metric": metric}
            is_seen = site not in real.unseen_sites
            row["measured"] = (
                _total(real.transactions_full, site, metric) if is_seen else float("nan")
            )
            row |= {name: _total(frame, site, metric) for name, frame in sides.items()}
            row["error"] = relative(float(row["predicted"]), float(row["measured"]))  # type: ignore[arg-type]
            row["added"] = relative(float(row["predicted"]), float(row["all_streams"]))  # type: ignore[arg-type]
            rows.append(row)
    return pd.DataFrame(rows)


def _transactions(recording: pm.Recording, scenario: object, rules: pm.KernelRules) -> pd.DataFrame:
    done = pm.synthetic.run(scenario, effective_policy(recording, None), rules=rules)
    return done.transactions_full


def _total(frame: pd.DataFrame, site: str, metric: str) -> float:
    rows = frame[frame["site"] == site]
    return float(len(rows) if metric == "acquisitions" else rows["pages"].sum())


def scale(paths: tuple[str, ...] = ("batched72", "unbatched72")) -> pd.DataFrame:
    """Four CPUs from two."""
    parts = []
    for path in paths:
        recording = pm.open(path)
        for cpus in ((0, 1), (2, 3)):
            table = judged_scale_up(recording, cpus)
            table.insert(0, "from CPUs", f"{cpus[0]} and {cpus[1]}")
            table.insert(0, "recording", recording.name)
            parts.append(table)
    return pd.concat(parts, ignore_index=True)


def avalanche() -> pd.DataFrame:
    """316 processes of 8192 pages exit at once on 1 TiB, with and without batches.

    In brackets: times for costs that are tenfold apart.
    """
    scenario = pm.synthetic.scenario("exit", gib=1024, nr_cpus=316, rules="6.18")
    rows = []
    for batch in (31, 63, 127):
        for batched in (False, True):
            begun = time.process_time()
            policy = pm.Policy(pcp_batch=batch, pcp_free_batched=batched)
            times = with_costs(pm.synthetic.run(scenario, policy, rules="6.18"))
            drains = [part.acquisitions.query("cause == 'commit'") for part in times]
            rows.append(
                {
                    "pcp->batch": batch,
                    "batched": "yes" if batched else "no",
                    "drains": len(drains[1]),
                    "longest hold, pages": drains[1]["pages"].max(),
                    "longest hold, us": spread(rows["hold_ns"].max() / 1e3 for rows in drains),
                    "median wait, ms": spread(rows["wait_ns"].median() / 1e6 for rows in drains),
                    "longest wait, ms": spread(rows["wait_ns"].max() / 1e6 for rows in drains),
                    "longest spell, ms": spread(
                        part.stalls["longest_spell_ns"].max() / 1e6 for part in times
                    ),
                    "CPU seconds": time.process_time() - begun,
                }
            )
    return pd.DataFrame(rows)


def amplifier() -> pd.DataFrame:
    """The same with a CPU that drains all lists every millisecond, while the exits take 300 ms.

    Once as if it left other CPUs alone, so that their trylocks succeed although it holds their
    lists; and while kswapd runs, which limits what lists hold (S4.6).
    """
    rows = []
    for reclaimers, kswapd in ((0, False), (1, False), (1, True)):
        scenario = pm.synthetic.scenario(
            "exit",
            gib=1024,
            nr_cpus=316,
            rules="6.18",
            reclaimers=reclaimers,
            stagger_ns=300_000_000,
            reclaim_active=kswapd,
        )
        for batched in (False, True):
            policy = pm.Policy(pcp_free_batched=batched)
            run = pm.synthetic.run(scenario, policy, rules="6.18")
            for fails in (False, True)[: 1 + reclaimers]:
                load = {"reclaimers": reclaimers, "kswapd runs": "yes" if kswapd else "no"}
                rows.append(load | _amplified(run, batched=batched, fails=fails))
    return pd.DataFrame(rows)


def _amplified(run: pm.synthetic.Run, *, batched: bool, fails: bool) -> dict[str, object]:
    """Results of one run's trylocks, and the longest hold of each caller."""
    low, times, high = with_costs(run, fails=fails)
    failed = times.trylocks.sum()
    holds = {row.cause or row.site: row for row in times.longest_holds().itertuples()}
    row: dict[str, object] = {
        "batched": "yes" if batched else "no",
        "trylocks fail": "yes" if fails else "no",
        "pages freed one by one": failed["frees"],
        "drains cut short": failed["drains_cut_short"],
        "pages left": failed["pages_left"],
        "longest wait of a free, ms": spread(_freeing_wait(part) for part in (low, times, high)),
    }
    for caller in ("commit", "decay", "drain_all", "refill"):
        row[f"longest hold of {caller}, pages"] = holds[caller].pages if caller in holds else 0
    return row


def _freeing_wait(times: pm.locks.LockTimes) -> float:
    """The longest wait, in ms, of a CPU that frees pages of its own."""
    frame = times.acquisitions
    frees = frame["site"].isin(("drain", "direct_free")) & (frame["cause"] != "drain_all")
    return float(frame.loc[frees, "wait_ns"].max()) / 1e6


def with_costs(run: pm.synthetic.Run, *, fails: bool = True) -> list[pm.locks.LockTimes]:
    """A run's times for costs that are tenfold apart, with those assumed between them."""
    return [
        run.lock_times(
            pm.locks.LockModel(costs=pm.locks.LockCosts().times(factor), trylock_fails=fails)
        )
        for factor in (1 / SPREAD, 1.0, SPREAD)
    ]


def spread(values: Iterable[float]) -> str:
    """The middle one of three, and the others in brackets; NA if it is not known."""
    numbers = list(values)
    low, value, high = (f"{value:,.3g}" if value < 100 else f"{value:,.0f}" for value in numbers)
    return f"{value} ({low} to {high})" if np.isfinite(numbers[1]) else "NA"


def short_lines(directory: Path) -> Iterator[str]:
    """A markdown table of acquisitions by site."""
    of = sites(tuple(str(directory / name) for name in ("kbuild", "xfree")))
    yield from table_lines(of[of["what"] == "acquisitions"].drop(columns="what"))


def lines(directory: Path) -> Iterator[str]:
    """Markdown tables of lock traffic: by site, across policies, from fewer CPUs, made up."""
    of = {name: str(directory / name) for name in ("kbuild", "xfree", "unbatched72", "batched72")}
    crossed = pairs(of["unbatched72"], of["batched72"])
    scaled = scale((of["batched72"], of["unbatched72"]))
    shown = scaled[scaled["site"].isin(("refill", "drain"))]
    return apart(
        table_lines(sites((of["kbuild"], of["xfree"]))),
        table_lines(crossed.set_index("from").T.reset_index(names="predicted from")),
        table_lines(shown.drop(columns="all_streams")),
        table_lines(avalanche().drop(columns="CPU seconds")),
        table_lines(amplifier()),
    )


PARTS: dict[str, Callable[[], pd.DataFrame]] = {
    "sites": sites,
    "fastpath": fastpath,
    "pairs": pairs,
    "scale": scale,
    "avalanche": avalanche,
    "amplifier": amplifier,
}


if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        print(PARTS[part]().to_string())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    print(f"most memory in use: {peak:.2f} GiB")
