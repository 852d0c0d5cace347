"""Size of the gate's effect at each point of a map, held against the posted sizes.

Posted with "mm/page_alloc: skip high atomic reservation at or below costly order", mainline and
gate: THP success 1-6% and 44-78%, compaction success 0-2% and 24-47%, pgscan_kswapd 70.2 and 29.9
million pages a minute. What follows from them was settled before the first run of a map:

- "posted": the change is at least the smallest that the posted ranges allow: 38 points of THP
  success, 22 points of compaction success, a fall of pages scanned by 57%.
- "smaller": it has the posted direction, and is above one point, or 1% of pages scanned.
- "opposite": the same in the other direction.
- "none": less than that. All of the others also need a mean change over the seeds of more than
  twice its standard deviation over the seeds.
- "unknown": some run has fewer than five tries, so that there is no rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from pagealloc_model.notebooks.studies.highatomic.gate_map import (
    AXES,
    GATE_ORDER,
    Axis,
    design,
    run_map,
)
from pagealloc_model.notebooks.studies.others.shipped_data import shipped_data

import pagealloc_model as pm

POSTED, SMALLER, NONE, OPPOSITE, UNKNOWN = "posted", "smaller", "none", "opposite", "unknown"
SIZES = (POSTED, SMALLER, NONE, OPPOSITE, UNKNOWN)
LEAST = 0.01
FEWEST_TRIES = 5


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A posted quantity."""

    name: str
    tries: str
    posted: float
    mainline_at_most: float
    gate_at_least: float
    words: str


OUTCOMES = (
    Outcome(
        name="thp_success",
        tries="huge_faults",
        posted=0.38,
        mainline_at_most=0.06,
        gate_at_least=0.44,
        words="THP success",
    ),
    Outcome(
        name="compaction_success",
        tries="compactions",
        posted=0.22,
        mainline_at_most=0.02,
        gate_at_least=0.24,
        words="compaction success",
    ),
    Outcome(
        name="pgscan_kswapd",
        tries="",
        posted=-0.57,
        mainline_at_most=float("nan"),
        gate_at_least=float("nan"),
        words="pgscan_kswapd",
    ),
)


def gate_effects(hosts: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """One row for each point and outcome: both sides, the change, and which size it has.

    Returns:
        Columns point, the design's, reserved_blocks and whole_blocks (mainline, at the end),
        outcome, mainline, gate, change and its spread over seeds, size, and at_posted_levels:
        mainline as low and the gate as high as posted. Changes of a count are shares of
        mainline's.
    """
    rows = []
    for point, own in runs.groupby("point"):
        sides = {gate: side.set_index("seed") for gate, side in own.groupby("gate")}
        mainline, gated = sides[0], sides[GATE_ORDER]
        about = {"point": point} | hosts.iloc[int(point)].to_dict()
        about |= mainline[["reserved_blocks", "whole_blocks"]].mean().to_dict()
        rows += [about | _effect(outcome, mainline, gated) for outcome in OUTCOMES]
    return pd.DataFrame(rows)


def _effect(outcome: Outcome, mainline: pd.DataFrame, gated: pd.DataFrame) -> dict[str, object]:
    without, with_gate = mainline[outcome.name], gated[outcome.name]
    changes = with_gate - without if outcome.tries else with_gate / without - 1
    tried = [side[outcome.tries].min() for side in (mainline, gated)] if outcome.tries else []
    change, spread = float(changes.mean()), float(changes.std(ddof=1))
    before, after = float(without.mean()), float(with_gate.mean())
    known = all(count >= FEWEST_TRIES for count in tried)
    return {
        "outcome": outcome.name,
        "mainline": before,
        "gate": after,
        "change": change,
        "spread": spread,
        "size": size_of(change, spread, outcome.posted) if known else UNKNOWN,
        "at_posted_levels": known
        and before <= outcome.mainline_at_most
        and after >= outcome.gate_at_least,
    }


def size_of(change: float, spread: float, posted: float) -> str:
    """The one of `SIZES`, but "unknown", of a change."""
    if abs(change) <= LEAST or not abs(change) > 2 * spread:
        return NONE
    if change * posted < 0:
        return OPPOSITE
    return POSTED if abs(change) >= abs(posted) else SMALLER


def by_axis(effects: pd.DataFrame, axes: tuple[Axis, ...] = AXES) -> pd.DataFrame:
    """Count points of each size that lie in the lower, middle and upper third of each axis."""
    rows = []
    for outcome, own in effects.groupby("outcome", sort=False):
        for axis in axes:
            edges = [axis.at(share / 3) for share in range(4)]
            third_of = np.digitize(own[axis.name], edges[1:3])
            for third, part in enumerate(("low", "middle", "high")):
                about = {"outcome": outcome, "axis": axis.name, "part": part}
                bounds = {"from": edges[third], "to": edges[third + 1]}
                rows.append(about | bounds | _points_by_size(own[third_of == third]))
    return pd.DataFrame(rows)


REGION = ["load", "defrag", "proactiveness"]


def by_region(effects: pd.DataFrame, outcome: str = OUTCOMES[0].name) -> pd.DataFrame:
    """Size of one outcome's effect in each region: a load, a `defrag` and a proactiveness.

    Returns:
        Columns load, defrag, proactiveness; mainline and gate, means over the region's points;
        change, least and most: of their changes; and one for each size with its points.
    """
    rows = []
    for region, own in effects[effects["outcome"] == outcome].groupby(REGION, sort=False):
        changes = own["change"]
        rows.append(
            dict(zip(REGION, region, strict=True))
            | {"mainline": own["mainline"].mean(), "gate": own["gate"].mean()}
            | {"change": changes.mean(), "least": changes.min(), "most": changes.max()}
            | _points_by_size(own)
        )
    return pd.DataFrame(rows)


def _points_by_size(effects: pd.DataFrame) -> dict[str, int]:
    return {size: int((effects["size"] == size).sum()) for size in SIZES}


FILE = "gate_map.csv"
POINTS = 3
"""Hosts of each load, `defrag` and proactiveness."""
SEEDS = 3


def made_map() -> pd.DataFrame:
    """Effects at all points."""
    hosts = design(POINTS)
    return gate_effects(hosts, run_map(hosts, SEEDS))


def write_map(effects: pd.DataFrame) -> Path:
    """Put a map in place of the one in data/."""
    path = shipped_data("the map") / FILE
    effects.to_csv(path, index=False, float_format="%.6g")
    return path


def shipped_map() -> pd.DataFrame:
    """Effects at all points, as `gate_effects` returns them."""
    path = shipped_data("the map") / FILE
    if not path.is_file():
        raise pm.UsageError(f"{path} is missing; write it with pressure.py map")
    return pd.read_csv(path)
