"""Rounds of a build beside huge-page faults: what the kernel did, and what whole blocks became.

Usage: python notebooks/studies/build_rounds.py measured | predicted | first DIR

`make readme` prints the tables.

DIR is where `pagealloc experiment build_rounds` left its runs. `measured`: what each run's files
tell (`build_round_counts`), and what blocks hold, which takes the recording as well, as it knows as
what a page was allocated. `predicted`: elastic replays of whole recordings under either mode, at
the recording's own costs of reclaim and compaction. `first`: all rounds of a whole recording from
its first round alone, with TOUCHED base pages in place of a refused huge page, as the load's
program touches so many, and with all 512. The tables go to data/experiments/build_rounds and
data/rounds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from pagealloc_model.notebooks.studies import shipped_rounds as shipped
from pagealloc_model.notebooks.studies.build_round_counts import (
    COUNTED,
    KCOMPACTD,
    by_round,
    is_whole,
    recording_of,
)
from pagealloc_model.notebooks.studies.build_round_pages import pages_by_round
from pagealloc_model.notebooks.studies.round_trend import rounds_from_the_first

import pagealloc_model as pm
from pagealloc_model.measured.costs import at_recorded_cost
from pagealloc_model.recording.recorded_machine import start_snapshots
from pagealloc_model.verdict.statistics import change_interval, mean_interval

DATA = Path(__file__).resolve().parents[2] / "data"
PLACE = DATA / "experiments" / "build_rounds"
ROUNDS, BLOCKS, FORMER = "rounds.csv", "blocks.csv", "former_blocks.csv"
PREDICTED = "predicted.csv"
FIRST = DATA / "rounds" / "first_round.csv"
HOSTS = {"busy": shipped.BUSY, "quiet": (3, 4, 5, 6)}
"""Boots by host: one after the other on two CPUs beside other work; all at once on 16 CPUs."""
TOUCHED = 9
"""Addresses that `huge_pages` touches of a region (its source, programs/huge_pages.c)."""
LATE = 5
"""The last rounds, as the post compares them with the first."""
SHOWN_PERCENT = 0.5
SIDES = {"A": "0", "B": "1"}
"""vm.defrag_mode by side."""


def measured(directory: Path) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """All finished runs of an experiment: by round, what blocks hold, what former ones hold."""
    parts: tuple[list[pd.DataFrame], ...] = ([], [], [])
    for run in finished(directory, SIDES):
        recording, begins = recording_of(run), begins_of(run)
        tables = [by_round(run, recording, begins)]
        if recording is not None:
            tables += pages_by_round(recording, run / "rounds", begins)
        for part, table in zip(parts, tables, strict=False):
            table.insert(0, "side", run.name[0])
            table.insert(1, "boot", int(run.name[1:]))
            part.append(table)
    first, second, third = (pd.concat(part, ignore_index=True) for part in parts)
    return first, second, third


def begins_of(run: Path) -> list[int]:
    """Return when each round begins, and the last one ends, ns."""
    return pd.read_csv(run / "rounds" / "rounds.csv")["time_ns"].tolist()


def predicted(directory: Path) -> pd.DataFrame:
    """Counters in each round by elastic replays of whole recordings, under either mode.

    Column `recorded` is the side whose demand was replayed, `side` that whose mode it had.
    """
    tables = []
    for run in finished(directory, SIDES):
        if not is_whole(run):
            continue
        recording = pm.open(run / "recording")
        begins = np.array(begins_of(run))
        own = at_recorded_cost(recording.trace, start_snapshots(recording)[1])
        for side, mode in SIDES.items():
            policy = pm.Policy(defrag_mode=mode == "1")
            counters = pm.replay(recording, policy, assumptions=own).vmstat
            wide = counters.pivot_table(index="time_ns", columns="name", values="value")
            nearest = abs(wide.index.to_numpy()[:, None] - begins).argmin(axis=0)
            counts = wide[list(COUNTED.values())].iloc[nearest].diff().iloc[1:]
            table = counts.set_axis(list(COUNTED), axis=1).reset_index(drop=True)
            table.insert(0, "recorded", run.name[0])
            table.insert(1, "side", side)
            table.insert(2, "boot", int(run.name[1:]))
            table.insert(3, "round", range(1, len(table) + 1))
            tables.append(table)
    return pd.concat(tables, ignore_index=True)


def from_first_rounds(directory: Path) -> pd.DataFrame:
    """Rounds of whole recordings, each predicted from its first round alone."""
    tables = []
    for run in finished(directory, SIDES):
        if is_whole(run):
            for touched, survivors in ((TOUCHED, ("once", "stay", "gone")), (None, ("once",))):
                found = rounds_from_the_first(
                    pm.open(run / "recording"),
                    begins_of(run),
                    survivors=survivors,
                    touched=touched,
                )
                name = f"build_rounds_{run.name}" + (", 512 touched" if touched is None else "")
                tables.append(found.assign(recording=name))
    return pd.concat(tables, ignore_index=True)[["survivors", *shipped.KEPT]]


def finished(directory: Path, sides: Iterable[str]) -> list[Path]:
    """Folders of finished runs."""
    found = [run for side in sides for run in sorted(directory.glob(f"runs/{side}[1-9]*"))]
    return [run for run in found if (run / "run.json").exists()]


def round_lines() -> Iterator[str]:
    """Markdown tables from the shipped ones: by round, the trend, what former blocks hold."""
    rounds = with_host(pd.read_csv(PLACE / ROUNDS))
    replayed = with_host(pd.read_csv(PLACE / PREDICTED))
    first = pd.read_csv(FIRST)
    yield from _served_lines(rounds)
    yield ""
    yield from _predicted_lines(rounds, replayed)
    yield ""
    yield from _error_lines(rounds, replayed)
    yield ""
    yield from _trend_lines(rounds)
    yield ""
    yield from _first_round_lines(rounds, first)
    yield ""
    yield from _mode_lines(rounds, replayed)
    yield ""
    yield from _held_lines(rounds)
    yield ""
    yield from _kcompactd_lines(rounds)
    yield ""
    yield from _block_lines(with_host(pd.read_csv(PLACE / BLOCKS)))
    yield ""
    yield from _former_lines(with_host(pd.read_csv(PLACE / FORMER)))


def with_host(table: pd.DataFrame) -> pd.DataFrame:
    """A table with the host that each boot had, the share served in percent, and all fallbacks."""
    host = {boot: name for name, boots in HOSTS.items() for boot in boots}
    table = table.assign(host=table["boot"].map(host))
    if "served" in table:
        table["share"] = 100 * table["served"] / (table["served"] + table["refused"])
    if "claims" in table:
        table["fallbacks"] = table["claims"] + table["steals"]
    return table


def _served_lines(rounds: pd.DataFrame) -> Iterator[str]:
    """Huge pages served in percent and free pages in whole blocks, a column a host and side."""
    columns = {"served, %": "share", "free pages in whole blocks": "free_in_whole_blocks"}
    cells = [
        (f"{name}, {host}, mode {SIDES[side]}", own.groupby("round")[column])
        for name, column in columns.items()
        for (host, side), own in rounds.groupby(["host", "side"])
    ]
    yield f"| round | {' | '.join(name for name, _ in cells)} |"
    yield f"|--:|{'--:|' * len(cells)}"
    for number in sorted(set(rounds["round"])):
        row = [_with_range(own.get_group(number).dropna().tolist()) for _, own in cells]
        yield f"| {number} | {' | '.join(row)} |"


def _predicted_lines(rounds: pd.DataFrame, replayed: pd.DataFrame) -> Iterator[str]:
    """Huge pages served in percent by the kernel and by replays of the same boots in their mode."""
    own = replayed[replayed["recorded"] == replayed["side"]]
    both = rounds.merge(
        own[["side", "boot", "round", "share"]], on=["side", "boot", "round"], suffixes=("", "_of")
    )
    columns = [
        (f"{words}, {host}, mode {SIDES[side]}", mine.groupby("round")[column])
        for (host, side), mine in both.groupby(["host", "side"])
        for words, column in (("measured", "share"), ("replayed", "share_of"))
    ]
    yield f"| served, %, in round | {' | '.join(name for name, _ in columns)} |"
    yield f"|--:|{'--:|' * len(columns)}"
    for number in sorted(set(both["round"])):
        row = [_with_range(mine.get_group(number).tolist()) for _, mine in columns]
        yield f"| {number} | {' | '.join(row)} |"


def _with_range(values: list[float]) -> str:
    """The mean over boots, and the least and the most of them."""
    if len(values) < 2:
        return f"{values[0]:,.0f}" if values else "NA"
    return f"{sum(values) / len(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def _error_lines(rounds: pd.DataFrame, replayed: pd.DataFrame) -> Iterator[str]:
    """Mean error of a round's share, round 1 left out, over boots, and of null models."""
    share = rounds.set_index(["side", "boot", "round"])["share"].dropna()
    yield "| mean error of a round's share, points | boots | replayed | null | the null model |"
    yield "|---|--:|--:|--:|---|"
    for (recorded, side, host), own in replayed.groupby(["recorded", "side", "host"]):
        errors, nulls = [], []
        for boot, mine in own[own["round"] > 1].groupby("boot"):
            found = mine.set_index("round")["share"]
            true = share[side, boot].loc[2:]
            null = share[recorded, boot].loc[2:] if recorded != side else 100
            errors.append((found - true).abs().mean())
            nulls.append((null - true).abs().mean())
        words = f"{host} host, mode {SIDES[side]}, demand of a boot of mode {SIDES[recorded]}"
        null = "nothing decays, 100 %" if recorded == side else f"as mode {SIDES[recorded]} did"
        yield f"| {words} | {len(errors)} | {_mean(errors)} | {_mean(nulls)} | {null} |"


def _mean(values: list[float]) -> str:
    mean = f"{sum(values) / len(values):.1f}"
    return mean if len(values) < 2 else f"{mean} ({min(values):.1f} to {max(values):.1f})"


def changes(rounds: pd.DataFrame, by: list[str]) -> pd.Series:
    """The share of the last rounds less that of the first ones, round 1 left out, in points."""
    kept = rounds[rounds["round"] > 1].dropna(subset=["share"])
    last = kept["round"].max()
    early = kept[kept["round"] <= 1 + LATE].groupby(by)["share"].mean()
    return kept[kept["round"] > last - LATE].groupby(by)["share"].mean() - early


def _trend_lines(rounds: pd.DataFrame) -> Iterator[str]:
    """Points between the first and the last rounds, by host and mode, with Student's interval."""
    change = changes(rounds, ["host", "side", "boot"])
    yield f"| last {LATE} rounds less rounds 2 to {1 + LATE} | boots | points | interval |"
    yield "|---|--:|--:|---|"
    for (host, side), own in change.groupby(["host", "side"]):
        mean, low, high = mean_interval(own.tolist())
        words = f"{host} host, mode {SIDES[side]}"
        yield f"| {words} | {len(own)} | {mean:+.1f} | {_interval(low, high)} |"


def _first_round_lines(rounds: pd.DataFrame, first: pd.DataFrame) -> Iterator[str]:
    """The same change of each recorded boot, measured, and predicted from its first round."""
    change = changes(rounds, ["side", "boot"])
    found = changes(first.assign(share=100 * first["served"]), ["recording", "survivors", "side"])
    by_seed = changes(
        first.assign(share=100 * first["served"]), ["recording", "survivors", "side", "seed"]
    )
    ends = rounds[rounds["round"] > rounds["round"].max() - LATE]
    ends = ends.groupby(["side", "boot"])["share"].mean()
    last = first[first["round"] > first["round"].max() - LATE].groupby(
        ["recording", "survivors", "side"]
    )
    ends_of = 100 * last["served"].mean()
    heads = [
        *("boot", "mode", "measured", "once", "of seeds", "again", "null", "once, 512 touched"),
        *(f"last {LATE}, %: {side}" for side in ("measured", "once", "once, 512 touched")),
    ]
    yield f"| {' | '.join(heads)} |"
    yield f"|---|{'--:|' * (len(heads) - 1)}"
    for (side, boot), measured_points in change.items():
        name, mode = f"build_rounds_{side}{boot}", "vanilla" if side == "A" else "defrag_mode"
        if (name, "once", mode) not in found.index:
            continue
        seeds = by_seed[name, "once", mode]
        all_touched = (f"{name}, 512 touched", "once", mode)
        cells = [
            f"{measured_points:+.1f}",
            f"{found[name, 'once', mode]:+.1f}",
            f"{seeds.min():+.1f} to {seeds.max():+.1f}",
            *(f"{found[name, words, mode]:+.1f}" for words in ("stay", "gone")),
            f"{found[all_touched]:+.1f}",
            f"{ends[side, boot]:.0f}",
            f"{ends_of[name, 'once', mode]:.0f}",
            f"{ends_of[all_touched]:.0f}",
        ]
        yield f"| {side}{boot} | {SIDES[side]} | {' | '.join(cells)} |"


def _mode_lines(rounds: pd.DataFrame, replayed: pd.DataFrame) -> Iterator[str]:
    """Mode 1 less mode 0: between boots of a host, within hosts, and of one demand in replays."""
    last = rounds["round"].max()
    spans = {
        f"rounds 2 to {last}": (2, last),
        "rounds 5 to 8": (5, 8),
        f"last {LATE} rounds": (last - LATE + 1, last),
    }
    yield "| mode 1 less mode 0 | boots a mode | of | difference | interval |"
    yield "|---|--:|---|--:|---|"
    for words, (begin, end) in spans.items():
        within = rounds[rounds["round"].between(begin, end)]
        for column, unit in (("share", "served, points"), ("free_in_whole_blocks", "whole blocks")):
            means = within.groupby(["host", "side", "boot"])[column].mean().dropna()
            means = means / 512 if column != "share" else means
            for host in HOSTS:
                sides = [means[host, side].tolist() for side in SIDES]
                low, high = change_interval(*sides)
                change = np.mean(sides[1]) - np.mean(sides[0])
                cells = f"{len(sides[0])} | {unit} | {change:+.1f} | {_interval(low, high)}"
                yield f"| {host} host, {words} | {cells} |"
        same = replayed[replayed["round"].between(begin, end)]
        same = same.groupby(["recorded", "boot", "side"])["share"].mean().unstack("side")
        mean, low, high = mean_interval((same["B"] - same["A"]).tolist())
        cells = f"{len(same)} | served, points | {mean:+.1f} | {_interval(low, high)}"
        yield f"| one demand replayed in both, {words} | {cells} |"


def _interval(low: float, high: float) -> str:
    return "NA" if low != low else f"{low:+.1f} to {high:+.1f}"


def _held_lines(rounds: pd.DataFrame) -> Iterator[str]:
    """Pages by what they hold at the end of three rounds, of all boots of a host and mode."""
    kinds = ["free", "page_cache", "anonymous", "slab", "page_tables"]
    last = rounds["round"].max()
    chosen = rounds[rounds["round"].isin((1, last // 2, last))]
    yield f"| host, mode, boots | end of round | {' | '.join(kinds).replace('_', ' ')} |"
    yield f"|---|--:|{'--:|' * len(kinds)}"
    for (host, side, number), mine in chosen.groupby(["host", "side", "round"]):
        cells = " | ".join(f"{mine[kind].mean():,.0f}" for kind in kinds)
        yield f"| {host}, {SIDES[side]}, {len(mine)} | {number} | {cells} |"


def _kcompactd_lines(rounds: pd.DataFrame) -> Iterator[str]:
    """What kcompactd was woken for and did, in a whole boot, on average."""
    known = rounds.dropna(subset=["kcompactd_runs"])
    columns = [*KCOMPACTD, "fallbacks"]
    totals = known.groupby(["host", "side", "boot"])[columns].sum().groupby(["host", "side"])
    yield f"| host, vm.defrag_mode, boots | {' | '.join(columns).replace('_', ' ')} |"
    yield f"|---|{'--:|' * len(columns)}"
    for (host, side), own in totals:
        cells = " | ".join(f"{value:,.0f}" for value in own.mean())
        yield f"| {host}, {SIDES[side]}, {len(own)} | {cells} |"


def _block_lines(blocks: pd.DataFrame) -> Iterator[str]:
    """Blocks by how much of the kernel's is in them, and their free pages, at three times."""
    last = blocks["round"].max()
    chosen = blocks[blocks["round"].isin((0, last // 2, last))]
    kinds = [name for name in dict.fromkeys(chosen["holds"]) if name.startswith("blocks")]
    yield f"| host, vm.defrag_mode | end of round | {' | '.join(kinds)} |"
    yield f"|---|--:|{'---|' * len(kinds)}"
    for (host, side, number), mine in chosen.groupby(["host", "side", "round"]):
        means = mine.groupby("holds")[["blocks", "pages"]].mean()
        cells = [f"{means['blocks'][kind]:.0f} ({means['pages'][kind]:,.0f})" for kind in kinds]
        yield f"| {host}, {SIDES[side]} | {number} | {' | '.join(cells)} |"


def _former_lines(former: pd.DataFrame) -> Iterator[str]:
    """What sits at the end in blocks that were wholly free when the first round began."""
    end = former[former["round"] == former["round"].max()]
    named = end.assign(
        order=[_order_words(order) for order in end["order"]],
        where=end["host"] + ", mode " + end["side"].map(SIDES),
    )
    pages = named.groupby(["where", "holds", "order"])["pages"].sum()
    shares = (100 * pages / pages.groupby("where").transform("sum")).unstack("where").fillna(0)
    rows = shares[(shares >= SHOWN_PERCENT).any(axis=1)]
    yield f"| holds | allocation order | {' | '.join(f'%, {where}' for where in rows)} |"
    yield f"|---|---|{'--:|' * len(rows.columns)}"
    for (holds, order), row in rows.iterrows():
        yield f"| {holds} | {order} | {' | '.join(f'{value:.1f}' for value in row)} |"
    rest = " | ".join(f"{value:.1f}" for value in shares.sum() - rows.sum())
    yield f"| all else | | {rest} |"


def _order_words(order: int) -> str:
    return "" if order < 0 else "0" if not order else "9" if order == 9 else "1 to 8"


def main(words: list[str]) -> int:
    """Write the tables of finished runs."""
    if len(words) != 2 or words[0] not in ("measured", "predicted", "first"):
        print(__doc__)
        return 2
    directory = Path(words[1])
    PLACE.mkdir(parents=True, exist_ok=True)
    if words[0] == "predicted":
        tables = {PLACE / PREDICTED: predicted(directory)}
    elif words[0] == "first":
        tables = {FIRST: from_first_rounds(directory)}
    else:
        places = (PLACE / name for name in (ROUNDS, BLOCKS, FORMER))
        tables = dict(zip(places, measured(directory), strict=True))
    for path, table in tables.items():
        table.to_csv(path, index=False, float_format="%.6g")
    print("\n".join(round_lines()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
