"""How far replays of recordings under pressure are off: literal, as means over seeds, and elastic.

Usage: python benchmarks/pressed.py RECORDING ... [--seeds N] [--csv FILE] [--reclaims | --elastic |
       --counters | --huge-pages]

A row has what the kernel did, the mean of the model's numbers over N seeds (5) and their range, the
error beside that of the null model, and the bound that was set before for this error. Series are
off by a mean distance over the snapshots, in shares of the measured range (orders: a total
variation), totals by the mean's share of what was measured; fallbacks are judged by their factor.
RECORDING is a directory, or a shipped name. With `--reclaims`: how many last direct reclaims for
requests of a page were in vain by `pa:ha_unreserve`, by what is nearest in time, and by how late
the request was served (T10.17). With `--elastic`: a row per recording and values of an elastic
replay: general ones, recorded costs alone, and all that the recording shows, which commands take.
With `--counters`: a row per counter of vmstat that an elastic replay predicts. With `--huge-pages`:
faults for huge pages, served and refused, and refills of their order.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import numpy as np
import pandas as pd

import pagealloc_model as pm
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.base.text import percent, times
from pagealloc_model.diagnosis.budget import RETRY_NS
from pagealloc_model.measured.measured import Measured
from pagealloc_model.numbers.result_tables import FEW_MEASURED, counts_cell, is_few
from pagealloc_model.numbers.values import FIRST_PART
from pagealloc_model.numbers.vocabulary import ALLOCSTALL, COUNTER_NAMES, Growth
from pagealloc_model.numbers.whole_run import BY_USES
from pagealloc_model.policy import ElasticAssumptions
from pagealloc_model.predicted.demand.reclaim import direct_reclaims
from pagealloc_model.predicted.elastic_values import elastic_values
from pagealloc_model.recording.trace import tracepoints as tp

SEEDS = 5
QUANTITIES = {
    "free_and_listed_pages": ("free and listed pages", 0.03),
    "free_pages": ("free pages", None),
    "order_distribution_tv": ("distribution over orders", None),
    "pcp_count": ("pages on a CPU's lists", 0.25),
    "refill_pages": ("pages refilled", 0.10),
    "refill_transactions": ("refills", 0.12),
    "drain_pages": ("pages drained", 0.10),
    "drain_transactions": ("drains", 0.12),
    "extfrag_events": ("fallbacks", 2.0),
    "watermark_boost": ("watermark boosts", None),
    "highatomic_blocks": ("reserved blocks at the end", None),
}
"""Quantities by their metric, and the largest error that is aimed at: of fallbacks a factor."""
SHOWN = {
    "free_and_listed_pages": "free and listed",
    "order_distribution_tv": "orders",
    "pcp_count": "a CPU's lists",
    "refill_pages": "pages refilled",
    "refill_transactions": "refills",
    "drain_pages": "pages drained",
    "drain_transactions": "drains",
    "extfrag_events": "fallbacks over seeds",
}
"""Columns of the table that a page shows, by metric."""
TOTALS = ("refill_pages", "refill_transactions", "drain_pages", "drain_transactions")
COUNTS = (*TOTALS, "extfrag_events", "highatomic_blocks")
ELASTIC = ("free_pages", *TOTALS, "extfrag_events")
BY_PART = ("order_distribution_tv", "pcp_count")


def errors_of(path: str, seed: int) -> tuple[str, pd.DataFrame]:
    """A recording's name, and the rows of its literal replay with one seed, one a quantity.

    Of orders and lists, which zones and CPUs show, the mean; of all else the whole machine's.
    """
    options = {"assumptions": pm.Assumptions(reclaim="literal"), "seed": seed}
    validation = pm.validate(pm.open(path), **options, progress=lambda _: None)
    errors = validation.errors
    errors = errors[errors["metric"].isin(QUANTITIES) & errors["error"].notna()]
    by_part = errors["metric"].isin(BY_PART)
    shown = errors[by_part != (errors["scope"] == "all")]
    names = ["measured", "predicted", "error", "null", "null_error"]
    return validation.recording.name, shown.groupby("metric")[names].mean()


def over_seeds(path: str, seeds: int = SEEDS) -> pd.DataFrame:
    """A recording's rows: means and ranges over seeds, replayed side by side on two cores."""
    context = get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as workers:
        made = list(workers.map(partial(errors_of, path), range(seeds)))
    tables = pd.concat([table for _, table in made], keys=range(seeds), names=["seed"])
    rows = []
    for metric, (words, aim) in QUANTITIES.items():
        if metric not in tables.index.get_level_values("metric"):
            continue
        table = tables.xs(metric, level="metric")
        measured, model = float(table["measured"].iloc[0]), table["predicted"]
        error, null = float(table["error"].mean()), float(table["null_error"].mean())
        if metric in COUNTS:
            model_mean = float(model.mean())
            unmeasured = np.inf if model_mean else 0.0
            error = (model_mean - measured) / measured if measured else unmeasured
        off = abs(error)
        if metric == "extfrag_events":
            off = max(error + 1, 1 / (error + 1)) if error > -1 else np.inf
        is_nearer = abs(error) < abs(null) or metric == "extfrag_events"
        distance = metric == "order_distribution_tv"
        cells = [_in_percent(value, signed=metric in COUNTS) for value in (error, null)]
        if metric in COUNTS and measured < FEW_MEASURED:
            cells = [counts_cell(float(table[of].mean()), measured) for of in ("predicted", "null")]
        rows.append(
            {
                "recording": made[0][0],
                "quantity": words,
                "kernel": np.nan if distance else round(measured),
                "model": np.nan if distance else round(float(model.mean())),
                "least": np.nan if distance else round(float(model.min())),
                "most": np.nan if distance else round(float(model.max())),
                "error": cells[0],
                "null error": cells[1],
                "aim": "" if aim is None else times(aim) if aim > 1 else f"{aim:.0%}",
                "met": "" if aim is None else "yes" if off <= aim and is_nearer else "no",
            }
        )
    return pd.DataFrame(rows)


def reclaims_in_vain(paths: Sequence[str]) -> pd.DataFrame:
    """How the last reclaims for requests of a page are judged, recording by recording.

    The null model calls all of them in vain, or none, whichever is right more often.
    """
    rows = []
    for path in paths:
        recording = pm.open(path)
        trace, calls = recording.trace, recording.trace.tables.get("pa:ha_unreserve")
        found = direct_reclaims(trace)
        if found is None or calls is None:
            continue
        is_last = np.diff(found.row, append=-1) != 0
        served = (trace.order[found.row] == 0) & (trace.pfn[found.row] >= 0)
        judged = np.flatnonzero(is_last & served)
        row, end_ns = found.row[judged], found.end_ns[judged]
        served_ns = trace.time_ns[row]
        tasks, times = np.asarray(calls["pid"]), np.asarray(calls["time_ns"])
        true = np.array(
            [
                ((tasks == pid) & (times >= first) & (times <= last)).any()
                for pid, first, last in zip(trace.pid[row], end_ns, served_ns, strict=True)
            ],
            bool,
        )
        nearest, late = found.in_vain[judged], served_ns - end_ns > RETRY_NS
        rows.append(
            {
                "recording": recording.name,
                "last reclaims": len(true),
                "in vain": int(true.sum()),
                "by the nearest": int(nearest.sum()),
                "right": f"{(nearest == true).mean():.0%}",
                "by time*": int(late.sum()),
                "right*": f"{(late == true).mean():.0%}",
                "null right": f"{max(true.mean(), 1 - true.mean()):.0%}",
            }
        )
    return pd.DataFrame(rows)


NEAR = 1.5
NEVER_COUNTED = ("oom_kill", "pgdeactivate")


def counter_rows(paths: Sequence[str], seeds: int = SEEDS) -> pd.DataFrame:
    """Counters of vmstat that elastic replays predict, as means over seeds, beside the kernel's.

    From the first to the last sample; replays as commands make them. The null model goes on as in
    the first quarter. Counters of second uses are left out where no filemap event shows them, and
    all that the kernel counted fewer than `FEW_MEASURED` times.

    Returns:
        recording, counter, kernel, model, null; near, null_near: within a factor of `NEAR`.
    """
    rows = []
    for path in paths:
        recording = pm.open(path)
        kernel = recording.measure().vmstat
        shown = {*COUNTER_NAMES} - {*NEVER_COUNTED}
        shown -= set() if tp.FILEMAP_ADD in recording.trace.tables else {*BY_USES}
        assumptions = pm.Assumptions(reclaim="elastic")
        replays = [
            pm.replay(recording, assumptions=assumptions, seed=seed) for seed in range(seeds)
        ]
        times = np.unique(kernel["time_ns"].to_numpy(np.int64))
        whole = times[(times >= replays[0].edges[0]) & (times <= replays[0].edges[-1])][[0, -1]]
        quarter = np.array([whole[0], whole[0] + FIRST_PART * (whole[1] - whole[0])])
        real, first = (_grown(kernel, edges) for edges in (whole, quarter))
        models = pd.DataFrame([_grown(one.vmstat, whole) for one in replays]).mean()
        for name in (*COUNTER_NAMES, ALLOCSTALL):
            if real.get(name, 0.0) < FEW_MEASURED or name not in (shown | {ALLOCSTALL}):
                continue
            sides = {"model": models[name], "null": first[name] / FIRST_PART}
            near = [
                max(side, real[name]) <= NEAR * min(side, real[name]) for side in sides.values()
            ]
            row = {"recording": recording.name, "counter": name, "kernel": real[name], **sides}
            rows.append(row | dict(zip(("near", "null_near"), near, strict=True)))
    return pd.DataFrame(rows)


HUGE_PAGES = ("thp_fault_alloc", "thp_fault_fallback")


def huge_page_rows(paths: Sequence[str], seeds: int = SEEDS) -> pd.DataFrame:
    """Huge pages that faults asked for, and refills of their order, in elastic replays.

    Between the first and the last sample; means over seeds of replays as commands make them, and
    their ranges. The null model goes on as in the first quarter.
    """
    rows = []
    for path in paths:
        recording = pm.open(path)
        measured = recording.measure()
        assumptions = pm.Assumptions(reclaim="elastic")
        replays = [
            pm.replay(recording, assumptions=assumptions, seed=seed) for seed in range(seeds)
        ]
        times = np.unique(measured.vmstat["time_ns"].to_numpy(np.int64))
        whole = times[(times >= replays[0].edges[0]) & (times <= replays[0].edges[-1])][[0, -1]]
        quarter = np.array([whole[0], whole[0] + FIRST_PART * (whole[1] - whole[0])])
        real, first = (_of_huge_pages(measured, edges) for edges in (whole, quarter))
        models = pd.DataFrame([_of_huge_pages(one, whole) for one in replays])
        for name, kernel in real.items():
            counts = [round(each) for each in (models[name].min(), models[name].max())]
            means = {"kernel": round(kernel), "model": round(models[name].mean())}
            null = {"null model": round(first[name] / FIRST_PART)}
            shown = {"recording": recording.name, "quantity": name, **means}
            rows.append(shown | dict(zip(("least", "most"), counts, strict=True)) | null)
    return pd.DataFrame(rows)


def _of_huge_pages(tables: pm.Replay | Measured, edges: np.ndarray) -> dict[str, float]:
    grown = _grown(tables.vmstat, edges)
    holds = tables.transactions_full
    is_refill = (holds["site"] == "refill") & (holds["order"] == pr.THP_ORDER)
    refills = int(holds["time_ns"][is_refill].between(*edges).sum())
    served = {name: grown[name] for name in HUGE_PAGES}
    return {"faults": sum(served.values()), **served, "refills of order 9": float(refills)}


def near_rows(table: pd.DataFrame) -> pd.DataFrame:
    """How many of `counter_rows` are near, by recording and in all, beside the null model's."""
    rows = []
    for words, own in (*table.groupby("recording", sort=False), ("all", table)):
        off = own[~own["near"]]
        shares = {name: f"{own[of].sum()} ({own[of].mean():.0%})" for name, of in _NEAR.items()}
        compaction = off["counter"].str.startswith(("compact", "pgmigrate")).sum()
        rows.append(
            {"recording": words, "counters": len(own), **shares, "off, of compaction": compaction}
        )
    return pd.DataFrame(rows)


_NEAR = {f"model, within {NEAR}": "near", f"null model, within {NEAR}": "null_near"}


def _grown(vmstat: pd.DataFrame, edges: np.ndarray) -> dict[str, float]:
    """Growth of each counter between two times; stalls of all zones together."""
    growth = Growth.between(vmstat, edges.astype(float))
    stalls = [name for name in growth.by_name if name.startswith(ALLOCSTALL)]
    grown = {name: float(of.sum()) for name, of in growth.by_name.items()}
    return grown | {ALLOCSTALL: sum(grown[name] for name in stalls)}


def elastic_rows(paths: Sequence[str], seeds: int = SEEDS) -> pd.DataFrame:
    """Errors of elastic replays by the values that they take, as means over seeds.

    All are of the whole machine, with their ranges over seeds; free pages as a share of the
    measured range.
    """
    rows = []
    for path in paths:
        recording = pm.open(path)
        values = {
            "general": pm.Assumptions(reclaim="elastic", elastic=ElasticAssumptions()),
            "recorded costs": elastic_values(recording).costs_alone,
            "all recorded": pm.Assumptions(reclaim="elastic"),
        }
        for words, assumptions in values.items():
            runs = [_elastic_errors(recording, assumptions, seed) for seed in range(seeds)]
            cells = {
                QUANTITIES[metric][0]: _over_seeds(rows)
                for metric, rows in pd.concat(runs).groupby("metric", sort=False)
            }
            rows.append({"recording": recording.name, "values": words, **cells})
    return pd.DataFrame(rows)


def _elastic_errors(
    recording: pm.Recording, assumptions: pm.Assumptions, seed: int
) -> pd.DataFrame:
    """Rows of the error table of one replay under the recorded policy."""
    options = {"assumptions": assumptions, "seed": seed, "progress": lambda _: None}
    errors = pm.validate(recording, **options).errors
    return errors[(errors["scope"] == "all") & errors["metric"].isin(ELASTIC)]


def _over_seeds(rows: pd.DataFrame) -> str:
    """The mean of an error, and its range where there are several; of few events the counts."""
    row, known = rows.iloc[0], rows["error"].dropna()
    if is_few(row):
        low, high = (
            f"{value:,.0f}" for value in (rows["predicted"].min(), rows["predicted"].max())
        )
        return f"{low} to {high}, kernel {row['measured']:,.0f}"
    if known.empty:
        return "NA"
    signed = row["metric"] in COUNTS
    values = (known.mean(), known.min(), known.max())
    mean, low, high = (_in_percent(value, signed=signed) for value in values)
    return mean + (f" ({low} to {high})" if low != high else "")


def _in_percent(error: float, *, signed: bool) -> str:
    return percent(error) if signed else percent(error).lstrip("+")


def table(paths: Sequence[str], seeds: int = SEEDS) -> pd.DataFrame:
    """The rows of several recordings, as they are shown."""
    shown = pd.concat([over_seeds(path, seeds) for path in paths], ignore_index=True)
    for name in ("kernel", "model", "least", "most"):
        shown[name] = [f"{value:,.0f}" if value == value else "" for value in shown[name]]
    return shown


def shown_lines(rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """The table as pages show it: a row per recording, the null model's error in brackets."""
    wanted = {words: head for metric, head in SHOWN.items() for words in [QUANTITIES[metric][0]]}
    yield f"| recording | {' | '.join(wanted.values())} |"
    yield "|---|" + "--:|" * len(wanted)
    for recording in dict.fromkeys(row["recording"] for row in rows):
        own = {row["quantity"]: row for row in rows if row["recording"] == recording}
        cells = []
        for words in wanted:
            row = own[words]
            cell = f"{row['error']} ({row['null error']})"
            if words == QUANTITIES["extfrag_events"][0]:
                cell = f"{row['least']} to {row['most']}, kernel {row['kernel']}"
            cells.append(cell)
        yield f"| {recording} | {' | '.join(cells)} |"


def main(words: Sequence[str]) -> int:
    """Print the table of recordings, or write it as CSV."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recordings", nargs="+", metavar="RECORDING")
    parser.add_argument("--seeds", type=int, default=SEEDS, metavar="N")
    parser.add_argument("--csv", metavar="FILE")
    tables = parser.add_mutually_exclusive_group()
    tables.add_argument("--reclaims", action="store_true")
    tables.add_argument("--elastic", action="store_true")
    tables.add_argument("--counters", action="store_true")
    tables.add_argument("--huge-pages", action="store_true")
    asked = parser.parse_args(words)
    if asked.reclaims:
        made = reclaims_in_vain(asked.recordings)
    else:
        rows = elastic_rows if asked.elastic else counter_rows if asked.counters else table
        rows = huge_page_rows if asked.huge_pages else rows
        made = rows(asked.recordings, asked.seeds)
    if asked.csv:
        made.to_csv(asked.csv, index=False)
    else:
        print(made.to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
