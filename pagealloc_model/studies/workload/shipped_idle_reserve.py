"""Tables of an idle reserve that come with the package; making them takes minutes.

`python benchmarks/pressure.py idle`, `costs`, `large` and `scores` write them.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.recorded_machine import recorded_machine
from pagealloc_model.recording.recording import Recording, shipped_recordings_directory
from pagealloc_model.show.post.message import Message
from pagealloc_model.show.post.reserve_reply import reserve_reply
from pagealloc_model.studies.experiments.shipped import shipped_experiment, shipped_experiments
from pagealloc_model.studies.workload.gate_effects import by_region
from pagealloc_model.studies.workload.idle_reserve import (
    LARGE_HOST,
    answers_and_costs,
    score_over_time,
    two_by_two,
)
from pagealloc_model.studies.workload.shipped_map import shipped_map
from pagealloc_model.verdict.change_verdict import mean_interval

PLAN = "idle_reserve"
FOLDER = Path("experiments") / PLAN
GUEST_SCORES, MODEL_SCORES = "guest_scores", "model_scores"
EARLIER_BOOTS = "earlier_boots"
"""Measured by hand, of a 6.12.117 in a guest of 2 GiB: four processes read at random for 30 s, and
for 15 s beside atomic requests of orders 1 to 3; then none of these but 60 s of 5 huge-page faults
and 2,000 reads a second. Their recordings were not kept."""
TWO_BY_TWO, LARGE, ANSWERS = "model_two_by_two", "model_64_gib", "answers"
TABLES = (TWO_BY_TWO, LARGE, ANSWERS, MODEL_SCORES, GUEST_SCORES, EARLIER_BOOTS)


def made_table(name: str) -> pd.DataFrame:
    """One of the model's `TABLES`, made anew.

    Args:
        name: any but `GUEST_SCORES`.

    Raises:
        UsageError: no such table.
    """
    makers = {
        TWO_BY_TWO: two_by_two,
        LARGE: lambda: two_by_two(LARGE_HOST, seeds=(0,), defrags=("madvise",)),
        ANSWERS: answers_and_costs,
        MODEL_SCORES: score_over_time,
    }
    if name not in makers:
        raise UsageError(f"no table {name!r} of the model; there are {', '.join(makers)}")
    return makers[name]()


def guest_scores(recordings: dict[str, Recording]) -> pd.DataFrame:
    """The score of S9.6 in recorded guests, as their snapshots' free lists give it.

    Args:
        recordings: by side.

    Returns:
        Columns side, second since the first snapshot; reserved_blocks, whole_blocks, free_pages;
        score and score_without_reserve, percent; thp_fault_alloc, thp_fault_fallback and
        compact_daemon_migrate_scanned since the first.
    """
    return pd.concat(
        [_guest(recording).assign(side=side) for side, recording in recordings.items()],
        ignore_index=True,
    )


def _guest(recording: Recording) -> pd.DataFrame:
    measured = recording.measure()
    free = measured.free_pages
    order = recorded_machine(recording).pageblock_order
    reserved = free["migratetype"] == "HighAtomic"
    whole = free["order"] >= order
    pages = free["pages"]
    sums = {
        "free_pages": pages,
        "in_pieces": pages.where(~whole, 0),
        "own": pages.where(reserved, 0),
        "own_in_pieces": pages.where(reserved & ~whole, 0),
    }
    table = pd.DataFrame(sums).groupby(free["time_ns"]).sum()
    begin = table.index[0]
    rest = table["free_pages"] - table["own"]
    table["score"] = 100 * table["in_pieces"] // table["free_pages"]
    table["score_without_reserve"] = 100 * (table["in_pieces"] - table["own_in_pieces"]) // rest
    table["whole_blocks"] = (table["own"] - table["own_in_pieces"]) // (1 << order)
    blocks = measured.pageblocks
    held = blocks[blocks["migratetype"] == "HighAtomic"].groupby("time_ns")["blocks"].sum()
    table["reserved_blocks"] = held.reindex(table.index, method="nearest")
    counters = measured.vmstat.pivot(index="time_ns", columns="name", values="value")
    for name in ("thp_fault_alloc", "thp_fault_fallback", "compact_daemon_migrate_scanned"):
        since = counters[name] - counters[name].iloc[0]
        table[name] = since.reindex(table.index, method="nearest")
    table["second"] = (table.index - begin) / 1e9
    return table.drop(columns=["in_pieces", "own", "own_in_pieces"]).reset_index(drop=True)


def write_table(name: str, table: pd.DataFrame) -> Path:
    """Put a table in place of the one in data/; returns where.

    Raises:
        UsageError: there is no data directory.
    """
    path = _path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, index=False, float_format="%.5g")
    return path


def shipped_table(name: str) -> pd.DataFrame:
    """One of `TABLES`, as `made_table` or `guest_scores` returned it.

    Raises:
        UsageError: no such table, or it was left out of this copy.
    """
    path = _path(name)
    if name not in TABLES or not path.is_file():
        raise UsageError(f"no table {name!r} in {path.parent}; there are {', '.join(TABLES)}")
    return pd.read_csv(path)


def guest_effects() -> pd.DataFrame:
    """Changes of THP success in the guests of the plan idle_reserve, measured and predicted.

    Returns:
        Rows of `changes_table` for elastic replays; none where the experiment did not ship.
    """
    if PLAN not in shipped_experiments():
        return pd.DataFrame()
    changes = shipped_experiment(PLAN).changes
    mine = (changes["metric"] == "THP success") & (changes["mode"] == "elastic")
    columns = ["pair", "runs_before", "runs_after", "before", "change", "low", "high"]
    return changes.loc[mine, [*columns, "predicted", "verdict"]].reset_index(drop=True)


def earlier_boots() -> pd.DataFrame:
    """Huge pages in 12 boots made by hand, with the interval over boots of each cell.

    Returns:
        Columns gate, proactiveness, boots, thp_success, low, high, whole_blocks,
        kcompactd_scanned, kswapd_scanned: means.
    """
    rows = []
    cells = shipped_table(EARLIER_BOOTS).groupby(["gate", "proactiveness"], sort=False)
    for (gate, share), own in cells:
        mean, low, high = mean_interval(own["thp_success"].to_list())
        rows.append(
            {"gate": gate, "proactiveness": share, "boots": len(own)}
            | {"thp_success": mean, "low": max(low, 0.0), "high": min(high, 1.0)}
            | own[["whole_blocks", "kcompactd_scanned", "kswapd_scanned"]].mean().to_dict()
        )
    return pd.DataFrame(rows)


def reply() -> Message:
    """The reply to the thread, from the tables that ship."""
    return reserve_reply(
        shipped_table(TWO_BY_TWO),
        shipped_table(LARGE),
        shipped_table(ANSWERS),
        by_region(shipped_map()),
        guest_effects(),
        earlier_boots(),
    )


def _path(name: str) -> Path:
    data = shipped_recordings_directory()
    if data is None:
        raise UsageError("data/ was left out of this copy; it would hold the table")
    return data / FOLDER / f"{name}.csv"
