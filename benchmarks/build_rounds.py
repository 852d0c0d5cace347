"""Rounds of a build beside huge-page faults: what the kernel did, and what whole blocks became.

Usage: python benchmarks/build_rounds.py measured | predicted DIR     (make readme prints them)

DIR is where `pagealloc experiment build_rounds` left its runs. `measured`: counters of a round come
from the recording's snapshots nearest to the round's begin and end; pages of blocks from the copies
of page flags that the workload made at each round's begin, and from the recording, which knows as
what a page was allocated. `predicted`: elastic replays of mode 0's recordings under mode 0 and
under mode 1, at the recording's own costs of reclaim and compaction; nothing of mode 1's is read.
The tables go to data/experiments/build_rounds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from build_round_pages import pages_by_round

import pagealloc_model as pm
from pagealloc_model.measured.recorded_costs import at_recorded_cost
from pagealloc_model.recording.recorded_machine import start_snapshots
from pagealloc_model.recording.snapshot import Snapshot
from pagealloc_model.recording.trace.columns import Trace
from pagealloc_model.verdict.change_verdict import change_interval, mean_interval

PLACE = Path(__file__).resolve().parent.parent / "data" / "experiments" / "build_rounds"
ROUNDS, BLOCKS, FORMER = "rounds.csv", "blocks.csv", "former_blocks.csv"
PREDICTED = "predicted.csv"
COUNTED = {
    "served": "thp_fault_alloc",
    "refused": "thp_fault_fallback",
    "direct_compactions": "compact_stall",
    "failed_compactions": "compact_fail",
    "kcompactd_scanned": "compact_daemon_migrate_scanned",
    "pages_migrated": "pgmigrate_success",
    "kswapd_scanned": "pgscan_kswapd",
}
HELD = {
    "free": "nr_free_pages",
    "free_in_whole_blocks": "nr_free_pages_blocks",
    "slab_reclaimable": "nr_slab_reclaimable",
    "slab_unreclaimable": "nr_slab_unreclaimable",
    "page_tables": "nr_page_table_pages",
}
SKIPPED, SUCCESS = 1, 8
KCOMPACTD = {
    "kswapd_found_too_few_free": ("suitable", "kswapd", "ret", SKIPPED),
    "kcompactd_woken_for_blocks": ("kcompactd_wake", "", "order", 9),
    "deferred": ("deferred", "kcompactd", "order", 9),
    "kcompactd_runs": ("end", "kcompactd", "", 0),
    "successful_runs": ("end", "kcompactd", "status", SUCCESS),
}
"""Column: event of compaction, thread ("" for any), and the column and value that are counted."""
LATE = 5
"""The last rounds, as the post compares them with the first."""
SHOWN_PERCENT = 0.5
SIDES = {"A": "0", "B": "1"}
"""vm.defrag_mode by side."""


def measured(directory: Path) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """All finished runs of an experiment: by round, what blocks hold, what former ones hold."""
    parts: tuple[list[pd.DataFrame], ...] = ([], [], [])
    for run in finished(directory, SIDES):
        recording = pm.open(run / "recording")
        begins = pd.read_csv(run / "rounds" / "rounds.csv")["time_ns"].tolist()
        tables = (by_round(recording, begins), *pages_by_round(recording, run / "rounds", begins))
        for part, table in zip(parts, tables, strict=True):
            table.insert(0, "side", run.name[0])
            table.insert(1, "boot", int(run.name[1:]))
            part.append(table)
    first, second, third = (pd.concat(part, ignore_index=True) for part in parts)
    return first, second, third


def by_round(recording: pm.Recording, begins: list[int]) -> pd.DataFrame:
    """Counters in each round, gauges and pageblocks by type at its end, fallbacks by kind."""
    at = [
        min(recording.snapshots, key=lambda each, time=time: abs(each.time_ns - time))
        for time in begins
    ]
    rows = []
    for number, (before, after) in enumerate(pairwise(at), 1):
        row = {"round": number, "seconds": (begins[number] - begins[number - 1]) / 1e9}
        for name, counter in COUNTED.items():
            row[name] = _value(after, counter) - _value(before, counter)
        rows.append(row | {name: _value(after, gauge) for name, gauge in HELD.items()})
        rows[-1] |= _blocks(after)
    table = pd.DataFrame(rows).assign(**_of_kcompactd(recording.trace, begins))
    fallbacks = recording.trace.tables.get("kmem:mm_page_alloc_extfrag")
    for name, owned in (("claims", True), ("steals", False)):
        rows_of = [] if fallbacks is None else (fallbacks["change_ownership"] != 0) == owned
        times = [] if fallbacks is None else fallbacks["time_ns"][rows_of]
        table[name] = _counts(times, begins)
    return table


def _of_kcompactd(trace: Trace, begins: list[int]) -> dict[str, np.ndarray]:
    """By round: kcompactd's wakes for blocks, and what came of them."""
    columns = {}
    for name, (event, thread, column, value) in KCOMPACTD.items():
        table = trace.tables.get(f"compaction:mm_compaction_{event}")
        if table is None:
            columns[name] = _counts([], begins)
            continue
        chosen = np.ones(len(table["time_ns"]), bool)
        if column:
            chosen = table[column] == value
        if thread:
            by_it = [trace.comms.get(int(pid), "").startswith(thread) for pid in table["pid"]]
            chosen &= np.asarray(by_it, bool)
        columns[name] = _counts(table["time_ns"][chosen], begins)
    return columns


def _counts(times: Sequence[int], begins: list[int]) -> np.ndarray:
    """How many times fall in each round."""
    return np.histogram(times, begins)[0]


def predicted(directory: Path) -> pd.DataFrame:
    """Counters in each round by elastic replays of side A, under its mode and under the other."""
    tables = []
    for run in finished(directory, "A"):
        recording = pm.open(run / "recording")
        begins = pd.read_csv(run / "rounds" / "rounds.csv")["time_ns"].to_numpy()
        own = at_recorded_cost(recording.trace, start_snapshots(recording)[1])
        for side, mode in SIDES.items():
            policy = pm.Policy(defrag_mode=mode == "1")
            counters = pm.replay(recording, policy, assumptions=own).vmstat
            wide = counters.pivot_table(index="time_ns", columns="name", values="value")
            nearest = abs(wide.index.to_numpy()[:, None] - begins).argmin(axis=0)
            counts = wide[list(COUNTED.values())].iloc[nearest].diff().iloc[1:]
            table = counts.set_axis(list(COUNTED), axis=1).reset_index(drop=True)
            table.insert(0, "side", side)
            table.insert(1, "boot", int(run.name[1:]))
            table.insert(2, "round", range(1, len(table) + 1))
            tables.append(table)
    return pd.concat(tables, ignore_index=True)


def finished(directory: Path, sides: Iterable[str]) -> list[Path]:
    """Folders of finished runs."""
    found = [run for side in sides for run in sorted(directory.glob(f"runs/{side}[1-9]*"))]
    return [run for run in found if (run / "run.json").exists()]


def _value(snapshot: Snapshot, name: str) -> int:
    return (snapshot.vmstat.get(name) if snapshot.vmstat else None) or 0


def _blocks(snapshot: Snapshot) -> dict[str, int]:
    """Pageblocks by type over all zones."""
    info = snapshot.pagetypeinfo
    if info is None:
        return {}
    totals = [sum(column) for column in zip(*(row.blocks for row in info.pageblocks), strict=True)]
    wanted = ("Unmovable", "Movable", "Reclaimable")
    return {
        f"blocks_{name.lower()}": total
        for name, total in zip(info.migratetypes, totals, strict=False)
        if name in wanted
    }


def round_lines() -> Iterator[str]:
    """Markdown tables from the shipped ones: by round, the trend, what former blocks hold."""
    rounds = pd.read_csv(PLACE / ROUNDS)
    yield from _served_lines(rounds)
    if (PLACE / PREDICTED).exists():
        yield ""
        replayed = pd.read_csv(PLACE / PREDICTED)
        yield from _predicted_lines(rounds, replayed)
        yield ""
        yield from _error_lines(rounds, replayed)
    yield ""
    yield from _trend_lines(rounds)
    yield ""
    yield from _kcompactd_lines(rounds)
    yield ""
    yield from _block_lines(pd.read_csv(PLACE / BLOCKS))
    yield ""
    yield from _former_lines(pd.read_csv(PLACE / FORMER))


def _served_lines(rounds: pd.DataFrame) -> Iterator[str]:
    """Huge pages served in percent and free pages in whole blocks, by round, a column a side."""
    kept = rounds.assign(share=100 * rounds["served"] / (rounds["served"] + rounds["refused"]))
    sides = [side for side in SIDES if side in set(kept["side"])]
    columns = {
        "served, %": "share",
        "free pages in whole blocks": "free_in_whole_blocks",
        "fallbacks": "fallbacks",
        "unmovable blocks": "blocks_unmovable",
    }
    kept["fallbacks"] = kept["claims"] + kept["steals"]
    heads = [f"{name}, mode {SIDES[side]}" for name in columns for side in sides]
    yield f"| round | {' | '.join(heads)} |"
    yield f"|--:|{'--:|' * len(heads)}"
    for number, mine in kept.groupby("round"):
        cells = [
            _with_range(mine[mine["side"] == side][column].tolist())
            for column in columns.values()
            for side in sides
        ]
        yield f"| {number} | {' | '.join(cells)} |"


def _predicted_lines(rounds: pd.DataFrame, replayed: pd.DataFrame) -> Iterator[str]:
    """Huge pages served in percent, by the kernel and by replays of mode 0's recordings."""
    columns = [
        (f"{words}, mode {mode}", _shares(table[table["side"] == side]))
        for side, mode in SIDES.items()
        for words, table in (("measured", rounds), ("predicted", replayed))
    ]
    yield f"| served, %, in round | {' | '.join(name for name, _ in columns)} |"
    yield f"|--:|{'--:|' * len(columns)}"
    for number in sorted(set(rounds["round"])):
        cells = [_with_range(share.get(number, pd.Series()).tolist()) for _, share in columns]
        yield f"| {number} | {' | '.join(cells)} |"


def _shares(table: pd.DataFrame) -> dict[int, pd.Series]:
    share = 100 * table["served"] / (table["served"] + table["refused"])
    return {number: mine for number, mine in share.groupby(table["round"])}


def _with_range(values: list[float]) -> str:
    """The mean over boots, and the least and the most of them."""
    if len(values) < 2:
        return f"{values[0]:,.0f}" if values else "NA"
    return f"{sum(values) / len(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def _error_lines(rounds: pd.DataFrame, replayed: pd.DataFrame) -> Iterator[str]:
    """Mean error of predicted shares, boots averaged, round 1 left out, and of null models."""
    both = {"measured": rounds, "predicted": replayed}
    share = {
        (words, side): pd.Series({n: s.mean() for n, s in _shares(mine).items() if n > 1})
        for words, table in both.items()
        for side, mine in table.groupby("side")
    }
    if ("measured", "B") not in share:
        return
    nulls = {"A": ("nothing decays, 100 %", 100), "B": ("as mode 0 did", share["measured", "A"])}
    yield "| mean error of a round's share, points | predicted | null | the null model |"
    yield "|---|--:|--:|---|"
    for side, (words, null) in nulls.items():
        errors = [
            abs(each - share["measured", side]).mean() for each in (share["predicted", side], null)
        ]
        yield f"| mode {SIDES[side]} | {errors[0]:.1f} | {errors[1]:.1f} | {words} |"


def _trend_lines(rounds: pd.DataFrame) -> Iterator[str]:
    """Points between the first and the last rounds, round 1 left out, and between the modes."""
    kept = rounds[rounds["round"] > 1]
    share = kept.assign(share=100 * kept["served"] / (kept["served"] + kept["refused"]))
    last = kept["round"].max()
    early = share[share["round"] <= 1 + LATE].groupby(["side", "boot"])["share"].mean()
    late = share[share["round"] > last - LATE].groupby(["side", "boot"])["share"].mean()
    yield "| | boots | points | interval |"
    yield "|---|--:|--:|---|"
    for side in sorted(set(kept["side"])):
        change = (late - early).loc[side].tolist()
        mean, low, high = mean_interval(change)
        words = f"mode {SIDES[side]}: last {LATE} rounds less rounds 2 to {1 + LATE}"
        yield f"| {words} | {len(change)} | {mean:+.1f} | {_interval(low, high)} |"
    if set(kept["side"]) == set(SIDES):
        whole = share.groupby(["side", "boot"])["share"].mean()
        for words, of in ((f"last {LATE} rounds", late), (f"rounds 2 to {last}", whole)):
            sides = [of.loc[side].tolist() for side in SIDES]
            low, high = change_interval(*sides)
            change = sum(sides[1]) / len(sides[1]) - sum(sides[0]) / len(sides[0])
            boots = min(len(each) for each in sides)
            cells = f"{boots} | {change:+.1f} | {_interval(low, high)}"
            yield f"| mode 1 less mode 0, {words} | {cells} |"


def _interval(low: float, high: float) -> str:
    return "NA" if low != low else f"{low:+.1f} to {high:+.1f}"


def _kcompactd_lines(rounds: pd.DataFrame) -> Iterator[str]:
    """What kcompactd was woken for and did, in a whole boot, on average."""
    totals = rounds.groupby(["side", "boot"])[list(KCOMPACTD)].sum().groupby("side").mean()
    yield f"| vm.defrag_mode | {' | '.join(name.replace('_', ' ') for name in totals)} |"
    yield f"|--:|{'--:|' * len(totals.columns)}"
    for side, row in totals.iterrows():
        yield f"| {SIDES[side]} | {' | '.join(f'{value:,.0f}' for value in row)} |"


def _block_lines(blocks: pd.DataFrame) -> Iterator[str]:
    """Blocks by how much of the kernel's is in them, and their free pages, at four times."""
    last = blocks["round"].max()
    chosen = blocks[blocks["round"].isin((0, last // 4, last // 2, last))]
    kinds = [name for name in dict.fromkeys(chosen["holds"]) if name.startswith("blocks")]
    yield f"| vm.defrag_mode | end of round | {' | '.join(kinds)} |"
    yield f"|--:|--:|{'---|' * len(kinds)}"
    for (side, number), mine in chosen.groupby(["side", "round"]):
        means = mine.groupby("holds")[["blocks", "pages"]].mean()
        cells = [f"{means['blocks'][kind]:.0f} ({means['pages'][kind]:,.0f})" for kind in kinds]
        yield f"| {SIDES[side]} | {number} | {' | '.join(cells)} |"


def _former_lines(former: pd.DataFrame) -> Iterator[str]:
    """What sits at the end in blocks that were wholly free when the first round began."""
    end = former[former["round"] == former["round"].max()]
    named = end.assign(order=[_order_words(order) for order in end["order"]])
    pages = named.groupby(["side", "holds", "order"])["pages"].sum()
    shares = (100 * pages / pages.groupby("side").transform("sum")).unstack("side").fillna(0)
    rows = shares[(shares >= SHOWN_PERCENT).any(axis=1)]
    yield f"| holds | allocation order | {' | '.join(f'%, mode {SIDES[side]}' for side in rows)} |"
    yield f"|---|---|{'--:|' * len(rows.columns)}"
    for (holds, order), row in rows.iterrows():
        yield f"| {holds} | {order} | {' | '.join(f'{value:.1f}' for value in row)} |"
    rest = " | ".join(f"{value:.1f}" for value in shares.sum() - rows.sum())
    yield f"| all else | | {rest} |"


def _order_words(order: int) -> str:
    return "" if order < 0 else "0" if not order else "9" if order == 9 else "1 to 8"


def main(words: list[str]) -> int:
    """Write the tables of finished runs."""
    if len(words) != 2 or words[0] not in ("measured", "predicted"):
        print(__doc__)
        return 2
    directory = Path(words[1])
    PLACE.mkdir(parents=True, exist_ok=True)
    if words[0] == "predicted":
        tables = {PREDICTED: predicted(directory)}
    else:
        tables = dict(zip((ROUNDS, BLOCKS, FORMER), measured(directory), strict=True))
    for name, table in tables.items():
        table.to_csv(PLACE / name, index=False, float_format="%.6g")
    print("\n".join(round_lines()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
