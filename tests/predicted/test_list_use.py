"""Tables on per-CPU lists' locks and pageblock ownership, and how broken up memory is."""

from __future__ import annotations

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at

OWNED = pm.Policy(pageblock_ownership="pcp_buddy")


@pytest.fixture(scope="module")
def replays() -> tuple[pm.Replay, pm.Replay]:
    recording = pm.open("xfree")
    return pm.replay(recording), pm.replay(recording, OWNED)


def test_what_is_never_owned_is_unknown_not_zero(replays: tuple[pm.Replay, pm.Replay]) -> None:
    base, owned = replays
    assert base.refill_phases["pages"].isna().all()
    assert base.list_use["remote_frees"].isna().all()
    assert base.list_use["lock_acquisitions"].notna().all()
    assert owned.refill_phases.notna().all(axis=None)
    assert owned.list_use.notna().all(axis=None)


def test_phases_add_up_to_the_refills_of_zone_lock(replays: tuple[pm.Replay, pm.Replay]) -> None:
    owned = replays[1]
    refills = owned.transactions_full[owned.transactions_full["site"] == "refill"]
    last = owned.refill_phases[
        owned.refill_phases["time_ns"] == owned.refill_phases["time_ns"].max()
    ]
    assert last["pages"].sum() == refills["pages"].sum() > 0
    assert last["objects"].sum() == refills["objects"].sum()


def test_a_comparison_has_the_locks_of_lists(replays: tuple[pm.Replay, pm.Replay]) -> None:
    comparison = pm.compare(*replays)
    rows = comparison.rows.set_index("metric")
    assert rows.loc["pcp_lock_acquisitions", "base"] > 0
    assert np.isnan(rows.loc["remote_frees", "base"])
    assert rows.loc["remote_frees", "patch"] > 0
    assert rows.loc["pcp_lock_hand_overs", "patch"] > rows.loc["pcp_lock_hand_overs", "base"]
    assert "pageblock_ownership: as recorded -> pcp_buddy" in " ".join(comparison.to_text().split())


def test_options_that_differ_are_named_with_their_defaults(
    replays: tuple[pm.Replay, pm.Replay],
) -> None:
    changed = pm.replay(
        pm.open("xfree"), OWNED.changed_by(pm.Policy.parse(["ownership.recovers=0"]))
    )
    text = " ".join(pm.compare(replays[1], changed).to_text().split())
    assert "ownership.recovers: 1 -> 0" in text


def test_a_folio_batch_takes_a_list_lock_once(replays: tuple[pm.Replay, pm.Replay]) -> None:
    base = replays[0]
    events = base.demand.events
    frees = events["operation"] == at.FREE
    batched = frees & (events["bits"] & at.FREED_IN_BATCH > 0)
    assert 0 < batched.sum() < frees.sum()
    taken = base.list_use["lock_acquisitions"].iloc[-3:].sum()
    assert taken < len(events) - batched.sum() // 2


def test_phases_of_refills() -> None:
    scenario = pm.synthetic.scenario("purgers", gib=1, nr_cpus=4, pages=512, rounds=2)
    run = pm.synthetic.run(scenario, OWNED, rules="7.2")
    assert run.list_use["remote_frees"].max() > 0
    assert set(run.refill_phases["phase"]) == {"recover", "claim", "chunk", "classic"}
