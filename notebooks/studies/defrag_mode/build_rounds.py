"""Rounds of a build beside huge-page faults: what the kernel did, and what replays make of it.

Made from data/experiments/build_rounds (the plan of that name; by round and boot, measured and by
replays of each boot's demand in either mode) and data/rounds. `make readme` writes the tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pagealloc_model.notebooks.studies.defrag_mode import round_tables as shipped
from pagealloc_model.notebooks.studies.others.error_lines import apart, markdown

from pagealloc_model.numbers.statistics import change_interval, mean_interval

DATA = Path(__file__).resolve().parents[3] / "data"
PLACE = DATA / "experiments" / "build_rounds"
ROUNDS, PREDICTED = "rounds.csv", "predicted.csv"
FIRST = DATA / "rounds" / "first_round.csv"
HOSTS = {"busy": shipped.BUSY, "quiet": (3, 4, 5, 6)}
"""Boots by host: one after the other on two CPUs beside other work; all at once on 16 CPUs."""
LATE = 5
"""The last rounds, as the post compares them with the first."""
SIDES = {"A": "0", "B": "1"}
"""vm.defrag_mode by side."""


def round_lines() -> Iterator[str]:
    """Markdown tables from the shipped ones: by round, the trend, what former blocks hold."""
    rounds, replayed = (with_host(pd.read_csv(PLACE / name)) for name in (ROUNDS, PREDICTED))
    return apart(
        _served_lines(rounds),
        _predicted_lines(rounds, replayed),
        _error_lines(rounds, replayed),
        _first_round_lines(rounds, pd.read_csv(FIRST)),
        _mode_lines(rounds, replayed),
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
