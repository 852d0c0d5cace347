"""Tables of rounds that come with the package, and what is said of them."""

from __future__ import annotations

import pytest
from pagealloc_model.notebooks.studies import defrag_study as study
from pagealloc_model.notebooks.studies import shipped_rounds as shipped
from pagealloc_model.notebooks.studies.figures import rounds_served
from pagealloc_model.notebooks.studies.round_trend import series, trends

from pagealloc_model.base.errors import UsageError


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
        found, other = (each.set_index("side").loc[side] for each in (model, all_touched))
        assert abs(found["last"] - true["last"]) < 9
        assert abs(found["last"] - true["last"]) < abs(other["last"] - true["last"])
        assert abs(found["trend"] - true["trend"]) < abs(true["trend"])
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
    figure = rounds_served(panels)
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
