"""Rounds of a build beside huge-page faults: what the kernel did, and what whole blocks became.

Usage: python notebooks/studies/defrag_mode/build_rounds.py measured | predicted | first DIR

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
from typing import Any

import numpy as np
import pandas as pd
from pagealloc_model.notebooks.studies.defrag_mode import round_tables as shipped
from pagealloc_model.notebooks.studies.defrag_mode.build_round_counts import (
    COUNTED,
    KCOMPACTD,
    by_round,
    is_whole,
    pages_by_round,
    recording_of,
)
from pagealloc_model.notebooks.studies.defrag_mode.round_trend import rounds_from_the_first
from pagealloc_model.notebooks.studies.others.error_lines import apart, markdown

import pagealloc_model as pm
from pagealloc_model.measured.costs import at_recorded_cost
from pagealloc_model.numbers.statistics import change_interval, mean_interval
from pagealloc_model.recording.recorded_machine import start_snapshots

DATA = Path(__file__).resolve().parents[3] / "data"
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
                rounds = rounds_from_the_first(
                    pm.open(run / "recording"), begins_of(run), survivors=survivors, touched=touched
                )
                name = f"build_rounds_{run.name}" + (", 512 touched" if touched is None else "")
                tables.append(rounds.assign(recording=name))
    return pd.concat(tables, ignore_index=True)[["survivors", *shipped.KEPT]]


def finished(directory: Path, sides: Iterable[str]) -> list[Path]:
    """Folders of finished runs."""
    runs = [run for side in sides for run in sorted(directory.glob(f"runs/{side}[1-9]*"))]
    return [run for run in runs if (run / "run.json").exists()]


def round_lines() -> Iterator[str]:
    """Markdown tables from the shipped ones: by round, the trend, what former blocks hold."""
    rounds, replayed, blocks, former = (
        with_host(pd.read_csv(PLACE / name)) for name in (ROUNDS, PREDICTED, BLOCKS, FORMER)
    )
    return apart(
        _served_lines(rounds),
        _predicted_lines(rounds, replayed),
        _error_lines(rounds, replayed),
        _trend_lines(rounds),
        _first_round_lines(rounds, pd.read_csv(FIRST)),
        _mode_lines(rounds, replayed),
        _held_lines(rounds),
        _kcompactd_lines(rounds),
        _block_lines(blocks),
        _former_lines(former),
    )


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
    cells = {
        f"{name}, {host}, mode {SIDES[side]}": own.groupby("round")[column]
        for name, column in columns.items()
        for (host, side), own in rounds.groupby(["host", "side"])
    }
    return _by_round("round", cells, rounds)


def _predicted_lines(rounds: pd.DataFrame, replayed: pd.DataFrame) -> Iterator[str]:
    """Huge pages served in percent by the kernel and by replays of the same boots in their mode."""
    own = replayed[replayed["recorded"] == replayed["side"]]
    keys = ["side", "boot", "round"]
    both = rounds.merge(own[[*keys, "share"]], on=keys, suffixes=("", "_of"))
    cells = {
        f"{words}, {host}, mode {SIDES[side]}": table.groupby("round")[column]
        for (host, side), table in both.groupby(["host", "side"])
        for words, column in (("measured", "share"), ("replayed", "share_of"))
    }
    return _by_round("served, %, in round", cells, both)


def _by_round(head: str, cells: dict[str, Any], rounds: pd.DataFrame) -> Iterator[str]:
    """A row a round, the means and ranges of values by column and round."""
    rows = (
        [number, *(_with_range(own.get_group(number).dropna().tolist()) for own in cells.values())]
        for number in sorted(set(rounds["round"]))
    )
    return markdown([head, *cells], rows)


def _with_range(values: list[float]) -> str:
    """The mean over boots, and the least and the most of them."""
    if len(values) < 2:
        return f"{values[0]:,.0f}" if values else "NA"
    return f"{sum(values) / len(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def _error_lines(rounds: pd.DataFrame, replayed: pd.DataFrame) -> Iterator[str]:
    """Mean error of a round's share, round 1 left out, over boots, and of null models."""
    share = rounds.set_index(["side", "boot", "round"])["share"].dropna()
    rows = []
    for (recorded, side, host), own in replayed.groupby(["recorded", "side", "host"]):
        errors, nulls = [], []
        for boot, table in own[own["round"] > 1].groupby("boot"):
            true = share[side, boot].loc[2:]
            null = share[recorded, boot].loc[2:] if recorded != side else 100
            errors.append((table.set_index("round")["share"] - true).abs().mean())
            nulls.append((null - true).abs().mean())
        words = f"{host} host, mode {SIDES[side]}, demand of a boot of mode {SIDES[recorded]}"
        null = "nothing decays, 100 %" if recorded == side else f"as mode {SIDES[recorded]} did"
        rows.append([words, len(errors), _mean(errors), _mean(nulls), null])
    what = "mean error of a round's share, points"
    return markdown([what, "boots", "replayed", "null", "the null model"], rows)


def _mean(values: list[float]) -> str:
    mean = f"{sum(values) / len(values):.1f}"
    return mean if len(values) < 2 else f"{mean} ({min(values):.1f} to {max(values):.1f})"


def changes(rounds: pd.DataFrame, by: list[str]) -> pd.Series:
    """The share of the last rounds less that of the first ones, round 1 left out, in points."""
    later = rounds[rounds["round"] > 1].dropna(subset=["share"])
    last = later["round"].max()
    early = later[later["round"] <= 1 + LATE].groupby(by)["share"].mean()
    return later[later["round"] > last - LATE].groupby(by)["share"].mean() - early


def _trend_lines(rounds: pd.DataFrame) -> Iterator[str]:
    """Points between the first and the last rounds, by host and mode, with Student's interval."""
    rows = []
    change = changes(rounds, ["host", "side", "boot"])
    for (host, side), own in change.groupby(["host", "side"]):
        mean, low, high = mean_interval(own.tolist())
        words = f"{host} host, mode {SIDES[side]}"
        rows.append([words, len(own), f"{mean:+.1f}", _interval(low, high)])
    what = f"last {LATE} rounds less rounds 2 to {1 + LATE}"
    return markdown([what, "boots", "points", "interval"], rows)


def _first_round_lines(rounds: pd.DataFrame, first: pd.DataFrame) -> Iterator[str]:
    """The same change of each recorded boot, measured, and predicted from its first round."""
    keys = ["recording", "survivors", "side"]
    first = first.assign(share=100 * first["served"])
    predicted, by_seed = changes(first, keys), changes(first, [*keys, "seed"])
    ends = rounds[rounds["round"] > rounds["round"].max() - LATE]
    ends = ends.groupby(["side", "boot"])["share"].mean()
    ends_of = first[first["round"] > first["round"].max() - LATE].groupby(keys)["share"].mean()
    heads = [
        *("boot", "mode", "measured", "once", "of seeds", "again", "null", "once, 512 touched"),
        *(f"last {LATE}, %: {side}" for side in ("measured", "once", "once, 512 touched")),
    ]
    rows = []
    for (side, boot), points in changes(rounds, ["side", "boot"]).items():
        name, mode = f"build_rounds_{side}{boot}", "vanilla" if side == "A" else "defrag_mode"
        once, all_touched = (name, "once", mode), (f"{name}, 512 touched", "once", mode)
        if once not in predicted.index:
            continue
        seeds = by_seed[once]
        rows.append(
            [
                f"{side}{boot}",
                SIDES[side],
                f"{points:+.1f}",
                f"{predicted[once]:+.1f}",
                f"{seeds.min():+.1f} to {seeds.max():+.1f}",
                *(f"{predicted[name, words, mode]:+.1f}" for words in ("stay", "gone")),
                f"{predicted[all_touched]:+.1f}",
                *(f"{end:.0f}" for end in (ends[side, boot], ends_of[once], ends_of[all_touched])),
            ]
        )
    return markdown(heads, rows)


def _mode_lines(rounds: pd.DataFrame, replayed: pd.DataFrame) -> Iterator[str]:
    """Mode 1 less mode 0: between boots of a host, within hosts, and of one demand in replays."""
    last = rounds["round"].max()
    spans = {
        f"rounds 2 to {last}": (2, last),
        "rounds 5 to 8": (5, 8),
        f"last {LATE} rounds": (last - LATE + 1, last),
    }
    rows = []

    def add(words: str, boots: int, unit: str, change: float, low: float, high: float) -> None:
        rows.append([words, boots, unit, f"{change:+.1f}", _interval(low, high)])

    for words, span in spans.items():
        within = rounds[rounds["round"].between(*span)]
        for column, unit in (("share", "served, points"), ("free_in_whole_blocks", "whole blocks")):
            means = within.groupby(["host", "side", "boot"])[column].mean().dropna()
            means = means / 512 if column != "share" else means
            for host in HOSTS:
                sides = [means[host, side].tolist() for side in SIDES]
                change = np.mean(sides[1]) - np.mean(sides[0])
                interval = change_interval(*sides)
                add(f"{host} host, {words}", len(sides[0]), unit, change, *interval)
        same = replayed[replayed["round"].between(*span)]
        same = same.groupby(["recorded", "boot", "side"])["share"].mean().unstack("side")
        change = mean_interval((same["B"] - same["A"]).tolist())
        add(f"one demand replayed in both, {words}", len(same), "served, points", *change)
    return markdown(["mode 1 less mode 0", "boots a mode", "of", "difference", "interval"], rows)


def _interval(low: float, high: float) -> str:
    return "NA" if low != low else f"{low:+.1f} to {high:+.1f}"


def _held_lines(rounds: pd.DataFrame) -> Iterator[str]:
    """Pages by what they hold at the end of three rounds, of all boots of a host and mode."""
    kinds = ["free", "page_cache", "anonymous", "slab", "page_tables"]
    last = rounds["round"].max()
    chosen = rounds[rounds["round"].isin((1, last // 2, last))]
    rows = (
        [f"{host}, {SIDES[side]}, {len(own)}", number]
        + [f"{own[kind].mean():,.0f}" for kind in kinds]
        for (host, side, number), own in chosen.groupby(["host", "side", "round"])
    )
    heads = ("host, mode, boots", "end of round", *(kind.replace("_", " ") for kind in kinds))
    return markdown(heads, rows)


def _kcompactd_lines(rounds: pd.DataFrame) -> Iterator[str]:
    """Wakeups and work of kcompactd, in a whole boot, on average."""
    known = rounds.dropna(subset=["kcompactd_runs"])
    columns = [*KCOMPACTD, "fallbacks"]
    totals = known.groupby(["host", "side", "boot"])[columns].sum().groupby(["host", "side"])
    rows = (
        [f"{host}, {SIDES[side]}, {len(own)}", *(f"{value:,.0f}" for value in own.mean())]
        for (host, side), own in totals
    )
    heads = ["host, vm.defrag_mode, boots", *(name.replace("_", " ") for name in columns)]
    return markdown(heads, rows)


def _block_lines(blocks: pd.DataFrame) -> Iterator[str]:
    """Blocks by how much of the kernel's is in them, and their free pages, at three times."""
    last = blocks["round"].max()
    chosen = blocks[blocks["round"].isin((0, last // 2, last))]
    kinds = [name for name in dict.fromkeys(chosen["holds"]) if name.startswith("blocks")]
    rows = []
    for (host, side, number), own in chosen.groupby(["host", "side", "round"]):
        means = own.groupby("holds")[["blocks", "pages"]].mean()
        cells = [f"{means['blocks'][kind]:.0f} ({means['pages'][kind]:,.0f})" for kind in kinds]
        rows.append([f"{host}, {SIDES[side]}", number, *cells])
    return markdown(["host, vm.defrag_mode", "end of round", *kinds], rows)


def _former_lines(former: pd.DataFrame) -> Iterator[str]:
    """Pages at the end in blocks that were wholly free when the first round began."""
    end = former[former["round"] == former["round"].max()]
    named = end.assign(
        order=[_order_words(order) for order in end["order"]],
        where=end["host"] + ", mode " + end["side"].map(SIDES),
    )
    pages = named.groupby(["where", "holds", "order"])["pages"].sum()
    shares = (100 * pages / pages.groupby("where").transform("sum")).unstack("where").fillna(0)
    shown = shares[(shares >= SHOWN_PERCENT).any(axis=1)]
    rows = [(*key, *row) for key, row in zip(shown.index, shown.to_numpy(), strict=True)]
    rows.append(("all else", "", *(shares.sum() - shown.sum())))
    return markdown(
        ["holds", "allocation order", *(f"%, {where}" for where in shown)],
        ([holds, order, *(f"{value:.1f}" for value in row)] for holds, order, *row in rows),
    )


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
