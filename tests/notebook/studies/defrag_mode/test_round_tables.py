"""Rounds of a build: first rounds, trends, tables that ship, and rows of the post beside them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from pagealloc_model.notebooks.studies.defrag_mode import defrag_hosts as study
from pagealloc_model.notebooks.studies.defrag_mode import round_tables as shipped
from pagealloc_model.notebooks.studies.defrag_mode.round_trend import (
    SIDES,
    rounds_from_the_first,
    rounds_of_sides,
    series,
    trends,
)

import pagealloc_model as pm
from pagealloc_model.base.errors import UsageError
from pagealloc_model.policy.policy import policy_numbers


def test_only_the_first_round_is_read() -> None:
    """Requests of later rounds would ask for more huge pages than the first has."""
    recording = pm.open("mixed_6.1")
    first_ns = int(recording.trace.time_ns[0])
    begins = [first_ns, first_ns + 2_400_000_000, first_ns + 4_800_000_000]
    table = rounds_from_the_first(recording, begins, survivors=("stay",), seeds=(0,))
    assert list(table["side"].unique()) == list(SIDES)
    assert set(table["round"]) == {1, 2}
    whole = rounds_from_the_first(
        recording, [first_ns, int(recording.trace.time_ns[-1])], survivors=("stay",), seeds=(0,)
    )
    requests = table.set_index(["side", "round"])["huge_asked"]["vanilla", 1]
    assert 0 < requests < whole["huge_asked"].iloc[0]


def test_times_outside_the_recording_are_refused() -> None:
    recording = pm.open("mixed_6.1")
    last_ns = int(recording.trace.time_ns[-1])
    for begins in ([], [last_ns], [last_ns, last_ns + 1]):
        with pytest.raises(UsageError, match="give two times"):
            rounds_from_the_first(recording, begins)


def falling(slopes: dict[str, float], noise: float = 0.0) -> pd.DataFrame:
    """Four seeds a side; the share falls by so much from one end to the other."""
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        [
            {
                "recording": "made",
                "side": side,
                "seed": seed,
                "round": number,
                "served": 0.9 + slope * number / 10 + noise * rng.standard_normal(),
            }
            for side, slope in slopes.items()
            for seed in range(4)
            for number in range(1, 12)
        ]
    )


def test_a_trend_is_judged_by_its_interval_and_the_first_round_is_left_out() -> None:
    table = falling({"falls": -0.5, "stays": 0.0}, noise=0.01)
    table.loc[table["round"] == 1, "served"] = 0.0
    trend = trends(table).set_index("side")
    assert trend.loc["falls", "trend"] == pytest.approx(-25, abs=2)
    assert (
        trend.loc["falls", "low"] <= trend.loc["falls", "trend"] <= trend.loc["falls", "high"] < 0
    )
    assert list(trend["decays"]) == [True, False]
    assert trend.loc["stays", "low"] <= 0 <= trend.loc["stays", "high"]


def test_one_run_has_no_interval_and_no_verdict() -> None:
    table = falling({"falls": -0.5})
    trend = trends(table[table["seed"] == 0]).iloc[0]
    assert np.isnan(trend["low"])
    assert trend["decays"] is pd.NA


def test_all_recordings_together_have_a_row() -> None:
    table = falling({"falls": -0.5})
    both = pd.concat([table, table.assign(recording="other")])
    trend = trends(both)
    assert list(trend["recording"]) == ["made", "other", "all"]
    assert list(trend["runs"]) == [4, 4, 8]


def test_each_step_of_the_series_changes_one_thing() -> None:
    steps = list(series().values())
    for before, after in pairwise(steps):
        changed = {
            name for name, value in after.given().items() if before.given().get(name) != value
        }
        assert len(changed) == 1


def test_the_last_step_is_what_7_3_does() -> None:
    rules = pm.KernelRules.preset("7.3")
    whole = pm.Policy(defrag_mode=True, defrag_kswapd_assist=True, defrag_watermarks=True)
    last = list(series().values())[-1]
    assert last.defrag_atomic_falls_back == rules.defrag_mode_fixes
    assert policy_numbers(last, rules) | {"defrag_atomic_falls_back": 1} == policy_numbers(
        whole, rules
    )


def test_sides_see_the_same_and_are_told_apart() -> None:
    sides = {"one": pm.Policy(thp_defrag="always"), "same": pm.Policy(thp_defrag="always")}
    table = rounds_of_sides([pm.open("mixed_6.1")], sides, (0,), rounds=1)
    one, same = (table[table["side"] == side].reset_index(drop=True) for side in sides)
    assert one.drop(columns="side").equals(same.drop(columns="side"))
    assert table["served"].between(0, 1).all()


def test_posted_and_measured_rounds_are_those_that_were_told() -> None:
    posted = shipped.posted_rounds().set_index(["side", "round"])["served"]
    assert posted["vanilla", 1] == pytest.approx(61988 / (46727.07 + 21910.60))
    assert posted["defrag_mode", 15] == pytest.approx(56280 / (57054.53 + 11581.40))
    guests = shipped.shipped_rounds(shipped.GUESTS)
    hosts = {f"guest 7.3.4, SLUB, {host} host" for host in ("busy", "quiet")}
    assert set(guests["recording"]) == {"guest 7.3.4, SLUB_TINY", *hosts}
    boots = guests[guests["recording"].isin(hosts)].groupby("recording")["seed"].agg(set)
    assert boots.tolist() == [{1, 2}, {3, 4}]
    tiny = guests[guests["recording"] == "guest 7.3.4, SLUB_TINY"]
    boots = tiny.groupby(["side", "seed"])["huge_served"].agg(list)
    assert boots["vanilla", 1] == [300, 203, 172, 144, 150, 120, 126, 132, 132, 132, 138, 132]
    assert boots["defrag_mode", 3] == [300, 209, 198, 178, 174, 194, 171, 180, 166, 168, 166, 158]
    assert set(guests["note"]) == {"", "disturbed"}


def test_slabs_mix_blocks_under_vanilla_only_and_cost_huge_pages_there() -> None:
    """What docs and notebook say of the shipped table, of the recording with slabs."""
    rounds = shipped.shipped_rounds("recordings")
    assert set(rounds["recording"]) == set(shipped.RECORDINGS)
    mean = rounds.groupby(["survivors", "recording", "side", "round"])[["mixed_blocks", "served"]]
    slab = mean.mean().xs(shipped.RECORDINGS[0], level="recording")
    last = rounds["round"].max()
    mixed = slab["mixed_blocks"].xs(last, level="round")
    assert mixed["stay", "vanilla"] > 3 * mixed["stay", "defrag_mode"]
    assert mixed["stay", "vanilla"] > 3 * mixed["gone", "vanilla"]
    served = slab["served"]
    assert served["stay", "vanilla", last] < served["stay", "vanilla", 6] - 0.1
    assert served["stay", "defrag_mode", last] > served["stay", "defrag_mode", 6]
    assert served["gone", "vanilla", last] > served["gone", "vanilla", 6]
    decays = {name: trends(own)["decays"].any() for name, own in rounds.groupby("survivors")}
    assert not any(decays.values())


@pytest.mark.parametrize(("host", "boot"), [("busy", "A1"), ("quiet", "A3")])
def test_a_guest_is_predicted_from_its_first_round(host: str, boot: str) -> None:
    """Nearer than that nothing decays, and than that a refused huge page becomes 512 pages."""
    guests = shipped.shipped_rounds(shipped.GUESTS)
    guest = guests[guests["recording"] == f"guest 7.3.4, SLUB, {host} host"]
    measured = trends(guest).set_index("side")
    first = shipped.shipped_rounds(shipped.FIRST_ROUND)
    model, all_touched = (
        trends(first[(first["survivors"] == "once") & (first["recording"] == name)])
        for name in (f"build_rounds_{boot}", f"build_rounds_{boot}, 512 touched")
    )
    for side in shipped.SIDES:
        true = measured.loc[side]
        own, other = (table.set_index("side").loc[side] for table in (model, all_touched))
        assert abs(own["last"] - true["last"]) < 9
        assert abs(own["last"] - true["last"]) < abs(other["last"] - true["last"])
        assert abs(own["trend"] - true["trend"]) < abs(true["trend"])
    assert model["decays"].all()


def test_the_series_table_has_every_step_in_its_order() -> None:
    table = shipped.shipped_rounds("series")
    assert list(table["side"].unique()) == list(series())
    mixed = table[table["round"] == table["round"].max()].groupby("side")["mixed_blocks"].mean()
    assert (mixed.drop("vanilla") < mixed["vanilla"] / 3).all()


def test_hosts_have_all_rows_of_the_post_for_every_size_and_kind_of_faults() -> None:
    rows = shipped.host_rows()
    hosts = len(shipped.SIZES_GIB) * len(shipped.FAULTS)
    assert len(rows) == hosts * len(study.ROWS)
    verdicts = shipped.host_verdicts()
    assert len(verdicts) == hosts
    assert (
        verdicts.set_index(["gib", "faults"])["direct_compaction"]
        .xs("may reclaim", level="faults")
        .all()
    )
    assert verdicts["sign"].max() <= 3


def test_tables_that_there_are_not_are_named_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="recordings, series, hosts, guests, first_round"):
        shipped.shipped_rounds("others")
    with pytest.raises(UsageError, match="recordings, series, hosts"):
        shipped.write_table("guests")
