"""Tables of lists' locks and of pageblock ownership."""

from __future__ import annotations

import numpy as np
import pytest

import pagealloc_model as pm
from tests.small_recordings import shipped_recording, shipped_replay

OWNED = pm.Policy(pageblock_ownership="pcp_buddy")


@pytest.fixture(scope="module")
def replays() -> tuple[pm.Replay, pm.Replay]:
    return shipped_replay("xfree"), pm.replay(shipped_recording("xfree"), OWNED)


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
        shipped_recording("xfree"), OWNED.changed_by(pm.Policy.parse(["ownership.recovers=0"]))
    )
    text = " ".join(pm.compare(replays[1], changed).to_text().split())
    assert "ownership.recovers: 1 -> 0" in text
