"""Tables of rounds that come with the package, and what is said of them."""

from __future__ import annotations

import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.show import figures
from pagealloc_model.studies.rounds import shipped_rounds as shipped
from pagealloc_model.studies.rounds.round_trend import trends
from pagealloc_model.studies.rounds.series import series
from pagealloc_model.studies.workload import defrag_study as study


def test_posted_and_measured_rounds_are_those_that_were_told() -> None:
    posted = shipped.posted_rounds().set_index(["side", "round"])["served"]
    assert posted["vanilla", 1] == pytest.approx(61988 / (46727.07 + 21910.60))
    assert posted["defrag_mode", 15] == pytest.approx(56280 / (57054.53 + 11581.40))
    guests = shipped.shipped_rounds(shipped.GUESTS)
    assert set(guests["recording"]) == {"guest 7.3.4, SLUB_TINY", "guest 7.3.4, SLUB"}
    tiny = guests[guests["recording"] == "guest 7.3.4, SLUB_TINY"]
    boots = tiny.groupby(["side", "seed"])["huge_served"].agg(list)
    assert boots["vanilla", 1] == [300, 203, 172, 144, 150, 120, 126, 132, 132, 132, 138, 132]
    assert boots["defrag_mode", 3] == [300, 209, 198, 178, 174, 194, 171, 180, 166, 168, 166, 158]
    assert set(guests["note"]) == {"", "disturbed"}


def test_vanilla_decays_where_slabs_outlive_a_round_and_only_there() -> None:
    """What docs and notebook say of the shipped table."""
    rounds = shipped.shipped_rounds("recordings")
    assert set(rounds["recording"]) == set(shipped.RECORDINGS)
    found = {
        name: trends(own).set_index(["recording", "side"])["decays"]
        for name, own in rounds.groupby("survivors")
    }
    slab, *others = shipped.RECORDINGS
    assert found["stay"][slab, "vanilla"]
    assert not found["stay"][slab, "defrag_mode"]
    assert not any(found["stay"][name, side] for name in others for side in shipped.SIDES)
    assert not found["gone"].any()


def test_a_guest_is_predicted_from_its_first_round_in_direction_and_nearer_than_null() -> None:
    guests = shipped.shipped_rounds(shipped.GUESTS)
    measured = trends(guests[guests["recording"] == "guest 7.3.4, SLUB"]).set_index("side")
    first = shipped.shipped_rounds(shipped.FIRST_ROUND)
    model, null = (
        trends(first[first["survivors"] == word]).set_index("side") for word in ("stay", "gone")
    )
    for side in shipped.SIDES:
        error = abs(model.loc[side, "trend"] - measured.loc[side, "trend"])
        assert error < abs(null.loc[side, "trend"] - measured.loc[side, "trend"])
        assert error < 12
    assert model["decays"].all()


def test_the_series_table_has_every_step_in_its_order() -> None:
    table = shipped.shipped_rounds("series")
    assert list(table["side"].unique()) == list(series())
    decays = trends(table).set_index("side")["decays"]
    assert decays["vanilla"]
    assert not decays.drop("vanilla").any()


def test_hosts_have_all_rows_of_the_post_for_every_size_and_kind_of_faults() -> None:
    rows = shipped.host_rows()
    hosts = len(shipped.SIZES_GIB) * len(shipped.FAULTS)
    assert len(rows) == hosts * len(study.ROWS)
    told = shipped.host_verdicts()
    assert len(told) == hosts
    assert (
        told.set_index(["gib", "faults"])["direct_compaction"]
        .xs("may reclaim", level="faults")
        .all()
    )
    assert told["sign"].max() <= 3


def test_the_first_picture_has_a_panel_for_each_table_and_both_sides_in_it() -> None:
    panels = shipped.rounds_panels()
    figure = figures.rounds_served(panels)
    lines = [trace for trace in figure.data if trace.mode == "lines+markers"]
    assert len(lines) == 2 * len(panels)
    assert [trace.name for trace in lines if trace.showlegend] == list(shipped.SIDES)
    posted = lines[0]
    assert posted.y[0] == pytest.approx(100 * shipped.posted_rounds()["served"].iloc[0])


def test_tables_that_there_are_not_are_named_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="recordings, series, hosts, guests, first_round"):
        shipped.shipped_rounds("others")
    with pytest.raises(UsageError, match="recordings, series, hosts"):
        shipped.write_table("guests")
