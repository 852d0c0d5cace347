"""The reserve in guests by snapshot, guests under `defer`, and what ships of them."""

from __future__ import annotations

import pandas as pd
import pytest
from pagealloc_model.notebooks.studies.highatomic import idle_reserve_tables as idle
from pagealloc_model.notebooks.studies.highatomic.defer_guests import (
    DEFER,
    MADVISE,
    MEASURED,
    PREDICTED,
    QUANTITIES,
    defer_changes,
)
from pagealloc_model.notebooks.studies.highatomic.gate_by_host_size import host_in, run_regions
from pagealloc_model.notebooks.studies.highatomic.gate_map import BURST, IDLE
from pagealloc_model.notebooks.studies.highatomic.guest_reserve import (
    index_states,
    reserve_by_run,
    reserve_over_time,
)

import pagealloc_model as pm


def test_snapshots_tell_the_reserve() -> None:
    recording = pm.open("highatomic_stock")
    table = reserve_over_time(recording.dated_snapshots)
    measured = recording.measure()
    reserve = measured.free_pages[measured.free_pages["migratetype"] == "HighAtomic"]
    small = reserve[reserve["order"] < 9].groupby("time_ns")["pages"].sum()
    assert table["partly_used"].to_list() == small.to_list()
    counted = measured.vmstat[measured.vmstat["name"] == "pgscan_kswapd"]["value"]
    assert table["pgscan_kswapd"].iloc[-1] == counted.iloc[-1] - counted.iloc[0]
    zones = recording.dated_snapshots[0].zoneinfo
    assert zones is not None
    assert table["low_mark"].iloc[0] == sum(zone.low or 0 for zone in zones.zones if zone.managed)


def test_states_whose_only_free_blocks_are_reserved_have_the_index_of_the_other_pages() -> None:
    """The last snapshot's, by hand from its free lists."""
    recording = pm.open("highatomic_stock")
    states = index_states([recording])
    assert set(states["zone"]) == {"Normal"} and (states["hidden"] > 0).all()
    free = recording.measure().free_pages
    free = free[(free["time_ns"] == free["time_ns"].max()) & (free["zone"] == "Normal")]
    own = free[free["migratetype"] != "HighAtomic"]
    assert own.loc[own["order"] >= 9, "pages"].sum() == 0 < free["order"].max()
    buddies = int((own["pages"] / 2.0 ** own["order"]).sum())
    index = 1000 - (1000 + 1000 * own["pages"].sum() // 512) // buddies
    assert states["index_without"].iloc[-1] == index
    assert index_states([pm.open("highatomic_gate3")]).empty


def over_time(**columns: list[float]) -> pd.DataFrame:
    """A run with four snapshots, of a reserve that grows and then lies idle."""
    table = {
        "run": "A1",
        "second": [0.0, 2.0, 4.0, 6.0],
        "reserved_blocks": [0, 2, 3, 3],
        "whole_blocks": [0, 0, 1, 1],
        "partly_used": [0, 300, 800, 900],
        "free_pages": 5000,
        "score": [100, 95, 88, 88],
        "score_without_reserve": [100, 99, 99, 99],
        "thp_fault_alloc": [0, 0, 1, 4],
        "thp_fault_fallback": [0, 0, 3, 8],
        "compact_daemon_migrate_scanned": [0, 5, 5, 7],
        "pgscan_kswapd": [0, 50, 60, 70],
    }
    return pd.DataFrame(table | columns)


def test_a_run_is_told_by_its_growth_and_by_what_is_there_when_pages_are_asked_for() -> None:
    (row,) = reserve_by_run(over_time()).to_dict("records")
    assert (row["first_block_s"], row["last_block_s"]) == (2.0, 4.0)
    assert (row["reserved_blocks"], row["whole_blocks"], row["partly_used"]) == (3, 1, 800)
    assert row["in_use"] == 2 * 512 - 800
    assert row["held_back"] == 1
    assert row["thp_success"] == 4 / 12
    seen = over_time(score=[100, 95, 91, 91])
    assert reserve_by_run(seen)["held_back"].to_list() == [0]


def guests(defer_gate: tuple[float, ...], predicted: float) -> pd.DataFrame:
    """Two runs a side; each prediction is of a recording under madvise."""
    shares = {
        (MADVISE, 0): (0.1, 0.12),
        (MADVISE, 3): (0.2, 0.22),
        (DEFER, 0): (0.5, 0.52),
        (DEFER, 3): defer_gate,
    }
    rows = [
        {"kind": MEASURED, "defrag": defrag, "gate": gate, "from_gate": gate, "run": f"A{run}"}
        | dict.fromkeys(QUANTITIES, value)
        for (defrag, gate), values in shares.items()
        for run, value in enumerate(values)
    ]
    predictions = {(MADVISE, 0, 0): 0.1, (DEFER, 0, 0): 0.5, (DEFER, 3, 0): 0.5 + predicted}
    predictions |= {(MADVISE, 3, 3): 0.2, (DEFER, 3, 3): 9.0}
    rows += [
        {"kind": PREDICTED, "defrag": defrag, "gate": gate, "from_gate": recorded, "run": "A0"}
        | dict.fromkeys(QUANTITIES, value)
        for (defrag, gate, recorded), value in predictions.items()
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("predicted", "word"), [(0.3, "predicted"), (0.01, "right direction"), (-0.1, "wrong")]
)
def test_the_gate_under_defer_is_predicted_from_guests_without_it(
    predicted: float, word: str
) -> None:
    changes = defer_changes(guests((0.8, 0.82), predicted))
    gate = changes[changes["pair"] == "defer, gate 0 -> defer, gate 3"].iloc[0]
    assert gate["change"] == pytest.approx(0.3)
    assert gate["predicted"] == pytest.approx(predicted)
    assert gate["verdict"] == word


def test_the_merged_rule_halves_the_reserve_and_the_gate_leaves_none() -> None:
    cells = idle.slowpath_cells().set_index(["slowpath_only", "gate"])
    assert (cells["boots"] == 3).all()
    assert (cells.xs(3, level="gate")["reserved_blocks"] == 0).all()
    assert cells.loc[(1, 0), "reserved_blocks"] < cells.loc[(0, 0), "reserved_blocks"]
    effects = idle.guest_effects(idle.SLOWPATH_PLAN)
    assert len(effects) == 4
    assert (effects["low"] < effects["predicted"]).all()


def test_shipped_guests_under_defer_have_all_three_changes() -> None:
    changes = idle.defer_effects()
    assert len(changes) == 3 * len(QUANTITIES)
    assert changes["verdict"].notna().all()


def test_hosts_of_a_region_differ_in_size_and_in_what_they_begin_with() -> None:
    small, large = (host_in(IDLE, "defer", gib, gate=False) for gib in (4, 64))
    assert (small.reserved_blocks, large.reserved_blocks) == (20, 312)
    assert large.huge_per_s == pytest.approx(16 * small.huge_per_s, rel=0.25)
    assert host_in(IDLE, "defer", 4, gate=True).reserved_blocks == 0
    burst = host_in(BURST, "madvise", 4, gate=False)
    assert burst == host_in(BURST, "madvise", 4, gate=True)
    assert burst.reserved_blocks == 0 < burst.atomic_per_s
    assert burst.seconds > 2 * small.seconds


def test_regions_have_a_row_for_each_load_and_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    regions = "pagealloc_model.notebooks.studies.highatomic.gate_by_host_size.REGIONS"
    monkeypatch.setattr(regions, ((IDLE, "madvise"),))
    (row,) = run_regions({1: (0,)}).to_dict("records")
    assert row["runs"] == 1
    assert row["gate"] > row["mainline"]
    assert row["least"] == row["most"] == pytest.approx(row["gate"] - row["mainline"])
    shipped = idle.shipped_table(idle.HOST_REGIONS)
    assert set(shipped["gib"]) == {4, 16, 64}
