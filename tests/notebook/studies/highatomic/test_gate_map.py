"""Maps of the gate's effect on made-up full hosts: designs, sizes of effects, table, figure."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from pagealloc_model.notebooks.studies.highatomic.gate_effects import (
    NONE,
    OPPOSITE,
    OUTCOMES,
    POINTS,
    POSTED,
    REGION,
    SEEDS,
    SIZES,
    SMALLER,
    UNKNOWN,
    by_axis,
    by_region,
    gate_effects,
    shipped_map,
    size_of,
)
from pagealloc_model.notebooks.studies.highatomic.gate_map import (
    AXES,
    BURST,
    DEFRAGS,
    GATE_ORDER,
    IDLE,
    LOADS,
    PROACTIVENESS,
    STEADY,
    WARM_UP_S,
    design,
    host_of,
    run_map,
)

from pagealloc_model.base.errors import UsageError


def test_a_design_fills_the_ranges_of_its_axes() -> None:
    hosts = design(2)
    pd.testing.assert_frame_equal(hosts, design(2))
    for axis in AXES:
        values = hosts[axis.name]
        assert values.between(axis.low * 0.99, axis.high).all()
        assert (values < axis.at(0.2)).any()
        assert (values > axis.at(0.8)).any()
    assert (hosts.groupby(REGION).size() == 2).all()
    assert len(hosts) == 2 * len(LOADS) * len(DEFRAGS) * len(PROACTIVENESS)
    narrow = replace(AXES[0], high=2 * AXES[0].low)
    assert design(1, (narrow,))["gib"].max() <= narrow.high


def test_only_an_idle_host_begins_with_a_reserve_and_the_gate_without() -> None:
    hosts = design(1).drop_duplicates("load").to_dict("records")
    begun = {row["load"]: host_of(row, gate=False) for row in hosts}
    assert {load: host.reserved_blocks > 0 for load, host in begun.items()} == {
        IDLE: True,
        BURST: False,
        STEADY: False,
    }
    assert begun[IDLE].atomic_per_s == 0 < begun[BURST].atomic_per_s
    assert begun[BURST].atomic_pause_s == (WARM_UP_S, begun[BURST].seconds)
    assert all(host_of(row, gate=True).reserved_blocks == 0 for row in hosts)


def test_a_design_needs_a_point() -> None:
    with pytest.raises(UsageError, match="at least one point"):
        design(0)


@pytest.mark.parametrize(
    ("change", "spread", "posted", "size"),
    [
        (0.40, 0.1, 0.38, POSTED),
        (0.40, 0.3, 0.38, NONE),
        (0.20, 0.01, 0.38, SMALLER),
        (-0.20, 0.01, 0.38, OPPOSITE),
        (0.005, 0.0, 0.38, NONE),
        (-0.60, 0.1, -0.57, POSTED),
        (0.60, 0.1, -0.57, OPPOSITE),
        (0.40, float("nan"), 0.38, NONE),
    ],
)
def test_sizes_of_changes(change: float, spread: float, posted: float, size: str) -> None:
    assert size_of(change, spread, posted) == size


def runs(mainline: float, gate: float, tries: int = 50) -> pd.DataFrame:
    """Two seeds of one host, with these rates of success under both rules."""
    return pd.DataFrame(
        {
            "point": 0,
            "seed": seed,
            "gate": order,
            "reserved_blocks": 20,
            "whole_blocks": 1,
            "huge_faults": tries,
            "thp_success": rate + seed / 100,
            "compactions": tries,
            "compaction_success": rate + seed / 100,
            "pgscan_kswapd": 1000 * (1 - rate),
        }
        for order, rate in ((0, mainline), (GATE_ORDER, gate))
        for seed in (0, 1)
    )


def test_effects_are_paired_by_seed_and_held_against_posted_levels() -> None:
    effects = gate_effects(design(1), runs(0.04, 0.5)).set_index("outcome")
    assert effects["size"].to_dict() == {
        "thp_success": POSTED,
        "compaction_success": POSTED,
        "pgscan_kswapd": SMALLER,
    }
    assert effects["at_posted_levels"].to_dict() == {
        "thp_success": True,
        "compaction_success": False,
        "pgscan_kswapd": False,
    }
    assert effects.loc["thp_success", "spread"] == pytest.approx(0)


def test_too_few_tries_give_no_rate() -> None:
    effects = gate_effects(design(1), runs(0.04, 0.5, tries=4)).set_index("outcome")
    assert effects["size"].to_list() == [UNKNOWN, UNKNOWN, SMALLER]


def test_a_run_of_a_host_has_both_rules_and_all_outcomes() -> None:
    small = replace(AXES[0], low=1, high=1.0001)
    idle = design(1, (small, *AXES[1:])).iloc[:1]
    table = run_map(idle, 1)
    assert table["gate"].to_list() == [0, GATE_ORDER]
    assert table.loc[1, "reserved_blocks"] == 0
    assert {outcome.name for outcome in OUTCOMES} <= set(table.columns)


def test_the_map_in_data_is_of_the_design_that_is_named() -> None:
    effects = shipped_map()
    shipped = effects[effects["outcome"] == "thp_success"].reset_index(drop=True)
    hosts = design(POINTS)
    pd.testing.assert_frame_equal(shipped[hosts.columns], hosts, check_dtype=False)
    assert SEEDS > 1
    counted = by_axis(effects)
    per_axis = counted.groupby(["outcome", "axis"])[list(SIZES)].sum().sum(axis=1)
    assert (per_axis == len(hosts)).all()
    regions = by_region(effects)
    assert (regions[list(SIZES)].sum(axis=1) == POINTS).all()
    assert (regions["least"] <= regions["most"]).all()
