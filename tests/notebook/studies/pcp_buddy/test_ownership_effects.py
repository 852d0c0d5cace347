"""Holds of zone->lock that ownership's figure and tables count, beside what events show."""

from __future__ import annotations

import pytest
from pagealloc_model.notebooks.studies.others import widgets
from pagealloc_model.notebooks.studies.pcp_buddy import ownership_effects as effects

import pagealloc_model as pm
from pagealloc_model.notebook.view import Explorer
from pagealloc_model.numbers.errors import recorded_lock_model
from tests.small_recordings import shipped_recording

OWNED = pm.Policy(pageblock_ownership="pcp_buddy")


@pytest.fixture(scope="module")
def xfree() -> pm.Recording:
    return shipped_recording("xfree")


@pytest.fixture(scope="module")
def explorer(xfree: pm.Recording) -> Explorer:
    return widgets.pcp_buddy(xfree)


def test_the_figure_counts_failed_trylocks_and_compares_what_events_show(
    xfree: pm.Recording, explorer: Explorer
) -> None:
    figure = explorer.chart.figure
    last = {trace.meta: trace.y[-1] for trace in figure.data if len(trace.y)}
    times = pm.replay(xfree, OWNED).lock_times(recorded_lock_model(xfree))
    failed = (times.acquisitions["cause"] == "trylock").sum()
    taken = last[f"{effects.ACQUISITIONS}/predicted:1"]
    assert taken == len(times.acquisitions)
    assert failed > taken / 2
    assert f"{effects.ACQUISITIONS}/measured:0" not in last
    lock = xfree.measure().lock
    seen = lock[lock["site"].isin(["refill", "drain"])]["acquisitions"].sum()
    assert last[f"{effects.MOVED}/measured:0"] == seen
    base = pm.replay(xfree).holds()["site"]
    assert last[f"{effects.MOVED}/predicted:0"] == base.isin(["refill", "drain"]).sum()
    notes = " ".join(note.text.replace("<br>", " ") for note in figure.layout.annotations)
    assert effects.NOT_SEEN in notes


def test_more_cpus_are_shown_beside_the_recorded_policy_on_as_many(explorer: Explorer) -> None:
    explorer.own[0].value = 2 * explorer.own[0].value
    explorer.wait()
    assert "shown" in explorer.status.value
    metas = {trace.meta for trace in explorer.chart.figure.data}
    assert f"{effects.MOVED}/predicted:0" in metas
    assert not any("measured" in meta for meta in metas)
    words = explorer.text.value
    assert "zone-&gt;lock acquisitions, failed trylocks" in words


def test_replays_side_by_side_have_the_costs_of_the_recording(xfree: pm.Recording) -> None:
    table = effects.side_by_side({"mainline": pm.replay(xfree), "owned": pm.replay(xfree, OWNED)})
    rows = table.set_index("effect")
    model = recorded_lock_model(xfree)
    held = pm.replay(xfree).lock_times(model).acquisitions["hold_ns"].sum() / 1e6
    assert rows.loc["zone->lock held (ms)", "mainline"] == pytest.approx(held)
    assert (
        rows.loc["zone->lock acquisitions", "owned"]
        > rows.loc["zone->lock acquisitions", "mainline"]
    )
