"""Where the reserve's gate has an effect on made-up full hosts, as text for a mail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pagealloc_model.notebooks.studies.gate_effects import (
    OUTCOMES,
    POSTED,
    REGION,
    SIZES,
    Outcome,
    by_axis,
    by_region,
)
from pagealloc_model.notebooks.studies.pressure_map import AXES, HOST, WARM_UP_S, Axis

from pagealloc_model.base.table import Table
from pagealloc_model.base.text import WIDTH, paragraph

if TYPE_CHECKING:
    import pandas as pd

RULE = (
    "Points by the size of the gate's effect. posted: at least the smallest change that the posted "
    "ranges allow (38 points of THP success, 22 of compaction success, 57% fewer pages scanned). "
    "smaller: the same direction, above 1 point or 1%. opposite: the other direction. none: less "
    "than that, or no more than twice its standard deviation over the seeds, which about one point "
    "in 14 exceeds by chance with 3 seeds. unknown: too few tries for a rate."
)
AXIS_WORDS = {axis.name: axis.words for axis in AXES}


def gate_map_table(
    effects: pd.DataFrame, axes: tuple[Axis, ...] = AXES, *, width: int = WIDTH
) -> str:
    """Totals, regions, points by thirds of every axis, those of posted size and their meaning."""
    parts = [
        _totals(effects, width),
        _regions(effects, width),
        _thirds(effects, axes, width),
        _posted_points(effects, width),
        paragraph(RULE, width=width),
        paragraph(
            f"Made-up hosts of {AXES[0].low:g} to {AXES[0].high:g} GiB whose faults are not "
            f"madvised, {HOST.seconds - WARM_UP_S} s each after {WARM_UP_S} s of warm-up; cap and "
            "watermarks as shares of memory are those of 64 GiB. Load idle: no atomic requests, "
            "and a reserve of 1% that is wholly free at first; burst: atomic requests during the "
            "warm-up; steady: all the time. Nothing is fitted to the posted figures.",
            width=width,
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _totals(effects: pd.DataFrame, width: int) -> str:
    counts = effects.groupby("outcome")["size"].value_counts()
    levels = effects.groupby("outcome")["at_posted_levels"].sum()
    rows = [
        (
            "all points",
            outcome.words,
            *(str(counts.get((outcome.name, size), 0)) for size in SIZES),
            str(levels[outcome.name]) if outcome.tries else "-",
        )
        for outcome in OUTCOMES
    ]
    header = ("points", "outcome", *SIZES, "at posted levels")
    return Table(header, rows).to_text(width)


def _regions(effects: pd.DataFrame, width: int) -> str:
    rows = [
        (
            f"{row['load']}, defrag={row['defrag']}",
            f"proactiveness {row['proactiveness']}",
            *(f"{100 * row[side]:.0f}%" for side in ("mainline", "gate")),
            f"{100 * row['least']:+.0f} to {100 * row['most']:+.0f}",
            "/".join(str(row[size]) for size in SIZES),
        )
        for row in by_region(effects).to_dict("records")
    ]
    header = ("THP success", "", "mainline", "gate", "points", "/".join(SIZES))
    return Table(header, rows).to_text(width)


def _thirds(effects: pd.DataFrame, axes: tuple[Axis, ...], width: int) -> str:
    names = [outcome.name for outcome in OUTCOMES]
    rows = []
    for (axis, _), group in by_axis(effects, axes).groupby(["axis", "part"], sort=False):
        own = group.set_index("outcome")
        low, high = own[["from", "to"]].iloc[0]
        words = f"{_rounded(low)} to {_rounded(high)}"
        cells = tuple("/".join(str(own.loc[name, size]) for size in SIZES) for name in names)
        rows.append((AXIS_WORDS[axis], words, *cells))
    header = ("axis", "part", *(each.words for each in OUTCOMES))
    return f"{'/'.join(SIZES)}:\n{Table(header, rows).to_text(width)}"


def _rounded(value: float) -> str:
    return f"{float(f'{value:.2g}'):g}"


def _posted_points(effects: pd.DataFrame, width: int) -> str:
    lines = [line for outcome in OUTCOMES for line in _points_of(effects, outcome, width)]
    return "\n".join(lines or ["No point shows an effect of the posted size."])


def _points_of(effects: pd.DataFrame, outcome: Outcome, width: int) -> Iterator[str]:
    own = effects[(effects["outcome"] == outcome.name) & (effects["size"] == POSTED)]
    for row in own.to_dict("records"):
        where = ", ".join(f"{axis.name}={row[axis.name]:g}" for axis in AXES)
        about = ", ".join(f"{name}={row[name]}" for name in REGION)
        before, after = (
            f"{100 * row[side]:.0f}%" if outcome.tries else f"{row[side]:.0f}"
            for side in ("mainline", "gate")
        )
        yield paragraph(
            f"{before} -> {after} with {about}, {where}; mainline's reserve "
            f"{row['reserved_blocks']:.0f} blocks",
            width=width,
            label=f"{outcome.words}: ",
        )
