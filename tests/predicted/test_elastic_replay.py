"""An elastic replay of a shipped recording: sound, repeatable, beside what the kernel did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pagealloc_model.notebooks.studies.pressure_pair import pressure_counters

import pagealloc_model as pm
from pagealloc_model.allocator.invariants import broken_invariants, broken_pieces
from pagealloc_model.measured.costs import recorded_kswapd_ns
from pagealloc_model.policy import ElasticAssumptions


@pytest.fixture(scope="module")
def stock(shipped: Callable[[str], Path]) -> pm.Recording:
    return pm.open(str(shipped("highatomic_stock")))


def replayed(recording: pm.Recording, *, seed: int = 0, **elastic: int) -> pm.Replay:
    assumed = pm.Assumptions(reclaim="elastic", elastic=ElasticAssumptions(**elastic))
    return pm.replay(recording, assumptions=assumed, seed=seed)


@pytest.mark.parametrize("ownership", ["off", "pcp_buddy"])
def test_the_state_is_sound_at_the_end(stock: pm.Recording, ownership: str) -> None:
    policy = pm.Policy(pageblock_ownership=ownership)
    replay = pm.replay(stock, policy, assumptions=pm.Assumptions(reclaim="elastic"))
    assert replay.final is not None
    assert (replay.refill_phases["refills"].fillna(0).sum() > 0) == (ownership == "pcp_buddy")
    assert broken_invariants(replay.final) == []
    assert broken_pieces(replay.final, replay.places) == []
    assert replay.divergence["dropped_frees"] > 0


def test_the_same_seed_gives_the_same_tables(stock: pm.Recording) -> None:
    first, second = replayed(stock), replayed(stock)
    pd.testing.assert_frame_equal(first.vmstat, second.vmstat)
    np.testing.assert_array_equal(first.places, second.places)


def test_counters_stand_beside_the_kernels(stock: pm.Recording) -> None:
    table = pressure_counters(replayed(stock), stock.measure()).set_index("name")
    assert table.loc["pgsteal_kswapd", "predicted"] > 0
    assert table.loc["pgscan_kswapd", "measured"] > 0
    assert {"compact_stall", "thp_fault_fallback", "allocstall_movable"} <= set(table.index)


def test_a_slow_kswapd_leaves_more_to_direct_reclaim(stock: pm.Recording) -> None:
    cost = recorded_kswapd_ns(stock.trace)["kswapd_free_ns"]
    changes = [
        pressure_counters(replay, stock.measure()).set_index("name")["predicted"]
        for replay in (replayed(stock), replayed(stock, kswapd_free_ns=cost))
    ]
    assert changes[1]["pgsteal_direct"] > changes[0]["pgsteal_direct"]
    assert changes[1]["pgsteal_kswapd"] < changes[0]["pgsteal_kswapd"]


def test_a_literal_replay_has_no_counters_of_its_own(stock: pm.Recording) -> None:
    with pytest.raises(pm.UsageError, match="reclaim='elastic'"):
        pressure_counters(pm.replay(stock), stock.measure())


def test_outcomes_are_known(stock: pm.Recording) -> None:
    table = replayed(stock).outcomes.set_index("order")
    assert table.loc[0, "asked"] == table.loc[0, "succeeded"] + table.loc[0, "failed"]
    assert table["stalled"].sum() > 0


def test_policies_are_compared_in_what_only_it_knows(stock: pm.Recording) -> None:
    assumed = pm.Assumptions(reclaim="elastic")
    never = pm.replay(stock, pm.Policy(thp_defrag="never"), assumptions=assumed)
    rows = pm.compare(replayed(stock), never).rows.set_index(["metric", "scope"])
    assert rows.loc[("thp_success", "all"), "base"] > 0
    assert rows.loc[("thp_success", "all"), "patch"] <= 1
    assert rows.loc[("reclaim_scanned", "all"), "base"] > 0
