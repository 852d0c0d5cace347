"""Tables of an idle reserve that come with the package; making them takes minutes.

`python pressure.py idle`, `costs`, `large`, `regions` and `scores` write them, and `idle_guests.py`
those of guests whose snapshots alone were kept.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from pagealloc_model.notebooks.studies.highatomic.defer_guests import defer_changes
from pagealloc_model.notebooks.studies.highatomic.gate_by_host_size import run_regions
from pagealloc_model.notebooks.studies.highatomic.guest_reserve import (
    reserve_by_run,
    reserve_over_time,
)
from pagealloc_model.notebooks.studies.highatomic.idle_reserve import (
    LARGE_HOST,
    answers_and_costs,
    score_over_time,
    two_by_two,
)
from pagealloc_model.notebooks.studies.highatomic.reserve_reply import reserve_reply
from pagealloc_model.notebooks.studies.others.experiment_tables import shipped_experiment
from pagealloc_model.notebooks.studies.others.shipped_data import shipped_data, success

import pagealloc_model as pm
from pagealloc_model.show.post.message import Message

PLAN, SLOWPATH_PLAN = "idle_reserve", "idle_slowpath"
GUEST_SCORES, MODEL_SCORES = "guest_scores", "model_scores"
EARLIER_BOOTS = "earlier_boots"
"""Measured by hand, of a 6.12.117 in a guest of 2 GiB: four processes read at random for 30 s, and
for 15 s beside atomic requests of orders 1 to 3; then none of these but 60 s of 5 huge-page faults
and 2,000 reads a second. Their recordings were not kept."""
TWO_BY_TWO, LARGE, ANSWERS = "model_two_by_two", "model_64_gib", "answers"
HOST_REGIONS = "model_regions"
DEFER_RUNS, SLOWPATH_RESERVE = "defer_runs", "reserve"
FOLDERS = {
    **dict.fromkeys((TWO_BY_TWO, LARGE, ANSWERS, HOST_REGIONS, MODEL_SCORES), PLAN),
    **dict.fromkeys((GUEST_SCORES, EARLIER_BOOTS, DEFER_RUNS), PLAN),
    SLOWPATH_RESERVE: SLOWPATH_PLAN,
}
"""Where each table lies, by the plan that it belongs to."""
TABLES = tuple(FOLDERS)
SCANNED = ("kcompactd_scanned", "kswapd_scanned")
SLOWPATH_SETTINGS = {
    "slowpath_only": "vm.highatomic_slowpath_only",
    "gate": "vm.highatomic_gate_order",
}
"""Columns, and the plan's settings."""


def made_table(name: str) -> pd.DataFrame:
    """One of the model's `TABLES`, made anew."""
    makers = {
        TWO_BY_TWO: two_by_two,
        LARGE: lambda: two_by_two(LARGE_HOST, seeds=(0,), defrags=("madvise",)),
        ANSWERS: answers_and_costs,
        HOST_REGIONS: run_regions,
        MODEL_SCORES: score_over_time,
    }
    if name not in makers:
        raise pm.UsageError(f"no table {name!r} of the model; there are {', '.join(makers)}")
    return makers[name]()


def guest_scores(recordings: dict[str, pm.Recording]) -> pd.DataFrame:
    """The score of S9.6 in recorded guests, as their snapshots' free lists give it.

    Returns:
        Columns side, and those of `reserve_over_time`.
    """
    return pd.concat(
        [
            reserve_over_time(recording.dated_snapshots).assign(side=side)
            for side, recording in recordings.items()
        ],
        ignore_index=True,
    )


def write_table(name: str, table: pd.DataFrame) -> Path:
    """Put a table in place of the one in data/; returns where."""
    path = _path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, index=False, float_format="%.5g")
    return path


def shipped_table(name: str) -> pd.DataFrame:
    """One of `TABLES`, as `made_table` or `guest_scores` returned it."""
    path = _path(name)
    if not path.is_file():
        raise pm.UsageError(f"{path} is missing; it was left out of this copy")
    return pd.read_csv(path).rename(columns={"crumbs": "partly_used"})  # as registered


def guest_effects(plan: str = PLAN) -> pd.DataFrame:
    """Changes of THP success in the guests of a plan, measured and predicted.

    Returns:
        Rows of `changes_table` for elastic replays.
    """
    changes = shipped_experiment(plan).changes
    elastic = (changes["metric"] == "THP success") & (changes["mode"] == "elastic")
    columns = ["pair", "runs_before", "runs_after", "before", "change", "low", "high"]
    return changes.loc[elastic, [*columns, "predicted", "verdict"]].reset_index(drop=True)


def earlier_boots() -> pd.DataFrame:
    """Huge pages in 12 boots made by hand, with the interval over boots of each cell.

    Returns:
        Columns gate, proactiveness, boots, thp_success, low, high, whole_blocks,
        kcompactd_scanned, kswapd_scanned: means.
    """
    boots = shipped_table(EARLIER_BOOTS)
    return _cells(boots, ["gate", "proactiveness"], ["whole_blocks", *SCANNED])


def _cells(boots: pd.DataFrame, settings: list[str], means: list[str]) -> pd.DataFrame:
    """Return a row a cell: how many boots, THP success with its interval, and means."""
    rows = []
    for values, own in boots.groupby(settings, sort=False):
        rows.append(
            dict(zip(settings, values, strict=True))
            | {"boots": len(own)}
            | success(own["thp_success"])
            | own[means].mean().to_dict()
        )
    return pd.DataFrame(rows)


def reply() -> Message:
    """The reply to the thread, from the tables that ship."""
    return reserve_reply()


def slowpath_reserves() -> pd.DataFrame:
    """Growth and content of the reserve in each guest of the plan idle_slowpath."""
    table = reserve_by_run(shipped_table(SLOWPATH_RESERVE))
    sides = {side.letter: side for side in shipped_experiment(SLOWPATH_PLAN).sides}
    for place, (column, setting) in enumerate(SLOWPATH_SETTINGS.items()):
        values = [int(sides[name[0]].values[setting]) for name in table["run"]]
        table.insert(place, column, values)
    return table


def slowpath_cells() -> pd.DataFrame:
    """Huge pages in those guests, with the interval over boots of each cell of the 2 x 2."""
    return _cells(
        slowpath_reserves(),
        list(SLOWPATH_SETTINGS),
        ["reserved_blocks", "whole_blocks", "partly_used", "in_use", "held_back", *SCANNED],
    )


def defer_effects() -> pd.DataFrame:
    """Changes by `defrag=defer`, and by the gate under it, in guests: see `defer_changes`."""
    return defer_changes(shipped_table(DEFER_RUNS))


def _path(name: str) -> Path:
    if name not in FOLDERS:
        raise pm.UsageError(f"no table {name!r}; there are {', '.join(TABLES)}")
    return shipped_data("the table") / "experiments" / FOLDERS[name] / f"{name}.csv"
