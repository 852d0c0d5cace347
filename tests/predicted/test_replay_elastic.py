"""An elastic replay of a shipped recording: sound, repeatable, beside what the kernel did."""

from __future__ import annotations

from functools import cache

import pytest
from pagealloc_model.notebooks.studies.others.policy_pairs import pressure_counters

import pagealloc_model as pm
from pagealloc_model.base.errors import PolicyError
from pagealloc_model.measured.costs import recorded_kswapd_ns
from pagealloc_model.policy import ElasticAssumptions
from tests.allocator.invariants import broken_invariants, broken_pieces
from tests.small_recordings import LITERAL, shipped_recording


def replayed_anew(**elastic: int) -> pm.Replay:
    own = ElasticAssumptions(**elastic)
    assumed = pm.Assumptions(reclaim="elastic", elastic=own)
    return pm.replay(shipped_recording("highatomic_stock"), assumptions=assumed)


replayed = cache(replayed_anew)


@pytest.mark.parametrize("ownership", ["off", "pcp_buddy"])
def test_the_state_is_sound_at_the_end(stock: pm.Recording, ownership: str) -> None:
    policy = pm.Policy(pageblock_ownership=ownership)
    replay = pm.replay(stock, policy, assumptions=pm.Assumptions(reclaim="elastic"))
    assert replay.final is not None
    assert (replay.refill_phases["refills"].fillna(0).sum() > 0) == (ownership == "pcp_buddy")
    assert broken_invariants(replay.final) == []
    assert broken_pieces(replay.final, replay.places) == []
    assert replay.divergence["dropped_frees"] > 0


def test_counters_stand_beside_the_kernels(stock: pm.Recording) -> None:
    table = pressure_counters(replayed(), stock.measure()).set_index("name")
    assert table.loc["pgsteal_kswapd", "predicted"] > 0
    assert table.loc["pgscan_kswapd", "measured"] > 0
    assert {"compact_stall", "thp_fault_fallback", "allocstall_movable"} <= set(table.index)


def test_a_slow_kswapd_leaves_more_to_direct_reclaim(stock: pm.Recording) -> None:
    cost = recorded_kswapd_ns(stock.trace)["kswapd_free_ns"]
    changes = [
        pressure_counters(replay, stock.measure()).set_index("name")["predicted"]
        for replay in (replayed(), replayed(kswapd_free_ns=cost))
    ]
    assert changes[1]["pgsteal_direct"] > changes[0]["pgsteal_direct"]
    assert changes[1]["pgsteal_kswapd"] < changes[0]["pgsteal_kswapd"]


def test_a_literal_replay_has_no_counters_of_its_own(stock: pm.Recording) -> None:
    with pytest.raises(pm.UsageError, match="reclaim='elastic'"):
        pressure_counters(pm.replay(stock, assumptions=LITERAL), stock.measure())


def test_outcomes_are_known(stock: pm.Recording) -> None:
    table = replayed().outcomes.set_index("order")
    assert table.loc[0, "asked"] == table.loc[0, "succeeded"] + table.loc[0, "failed"]
    assert table["stalled"].sum() > 0


def test_policies_are_compared_in_what_only_it_knows(stock: pm.Recording) -> None:
    assumed = replayed().assumptions
    never = pm.replay(stock, pm.Policy(thp_defrag="never"), assumptions=assumed)
    rows = pm.compare(replayed(), never).rows.set_index(["metric", "scope"])
    assert rows.loc[("thp_success", "all"), "base"] > 0
    assert rows.loc[("thp_success", "all"), "patch"] <= 1
    assert rows.loc[("reclaim_scanned", "all"), "base"] > 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("file_dirty_per_mille", 1001), ("anon_scan_percent", -1), ("reclaim_scan_ns", 1.5)],
)
def test_shares_and_times_are_checked(name: str, value: object) -> None:
    with pytest.raises(PolicyError, match=name):
        pm.Assumptions(elastic=ElasticAssumptions(**{name: value}))  # type: ignore[arg-type]


# kswapd goes on as and where the recorded one did at that time, if a replay is asked for it


def test_what_is_taken_over_from_the_recorded_kernel_is_marked(stock: pm.Recording) -> None:
    assert replayed().imposed == ()
    assert replayed(kswapd_as_recorded=True).imposed == ("kswapd's pace and CPU",)
    assert replayed(lru_as_recorded=True).imposed == ("order of reclaim at the start",)
