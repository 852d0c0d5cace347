"""An elastic replay of a shipped recording: sound, repeatable, beside what the kernel did."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from pagealloc_model.notebooks.studies.others.policy_pairs import pressure_counters
from pytest import MonkeyPatch

import pagealloc_model as pm
from pagealloc_model.allocator.invariants import broken_invariants, broken_pieces
from pagealloc_model.base.errors import PolicyError
from pagealloc_model.measured.costs import recorded_kswapd_ns
from pagealloc_model.policy import ElasticAssumptions
from pagealloc_model.policy.policy import policy_settings
from pagealloc_model.predicted import recorded_kswapd as module
from pagealloc_model.predicted.recorded_kswapd import (
    RUNS,
    SHRUNK,
    RecordedKswapd,
    recorded_kswapd,
)
from pagealloc_model.predicted.replay import ELASTIC_SETTINGS, check_mode, choose_reclaim
from pagealloc_model.recording.trace.columns import Trace
from tests.small_recordings import shipped_recording


@pytest.fixture(scope="module")
def stock() -> pm.Recording:
    return shipped_recording("highatomic_stock")


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
        pressure_counters(pm.replay(stock), stock.measure())


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


# Nothing that only one mode of reclaim has is silently left out in the other


ELASTIC = pm.Assumptions(reclaim="elastic")


@pytest.mark.parametrize("name", ELASTIC_SETTINGS)
def test_a_literal_replay_refuses_what_needs_the_models_own_reclaim(name: str) -> None:
    about = policy_settings()[name].metadata
    value = about["choices"][0] if about["kind"] == "choice" else about["maximum"]
    policy = pm.Policy.from_settings({name: bool(value) if about["kind"] == "bool" else value})
    with pytest.raises(PolicyError, match=f"policy {name}: a literal replay"):
        check_mode(policy, pm.Assumptions(), is_build=False)
    check_mode(policy, ELASTIC, is_build=False)


def test_a_kernel_build_keeps_its_reserve_to_itself_in_an_elastic_replay() -> None:
    check_mode(pm.Policy(compaction_proactiveness=60), ELASTIC, is_build=True)
    with pytest.raises(PolicyError, match="kcompactd_unreserves"):
        check_mode(pm.Policy(kcompactd_unreserves=True), ELASTIC, is_build=True)


@pytest.mark.parametrize(
    ("recording", "policy", "asked", "mode", "why"),
    [
        ("xfree", pm.Policy(pcp_batch=31), "", "literal", "reclaimed nothing"),
        ("xfree", pm.Policy(defrag_mode=1), "", "elastic", "defrag_mode acts through reclaim"),
        ("xfree", pm.Policy(min_free_kbytes=9000), "", "elastic", "min_free_kbytes acts"),
        ("highatomic_gate3", pm.Policy(), "", "elastic", "reclaimed 58,914 pages"),
        ("highatomic_gate3", pm.Policy(), "literal", "literal", "as asked for"),
    ],
)
def test_reclaim_is_chosen_by_policy_and_recording(
    recording: str, policy: pm.Policy, asked: str, mode: str, why: str
) -> None:
    chosen = choose_reclaim(shipped_recording(recording), policy, asked=asked)
    assert chosen.mode == mode
    assert why in chosen.why
    assert str(chosen).startswith(f"Reclaim is {mode} (")


@pytest.mark.parametrize(
    ("name", "value"),
    [("file_dirty_per_mille", 1001), ("anon_scan_percent", -1), ("reclaim_scan_ns", 1.5)],
)
def test_shares_and_times_are_checked(name: str, value: object) -> None:
    with pytest.raises(PolicyError, match=name):
        pm.Assumptions(elastic=ElasticAssumptions(**{name: value}))  # type: ignore[arg-type]


# kswapd goes on as and where the recorded one did at that time, if a replay is asked for it


def table(**columns: list[int]) -> dict[str, np.ndarray]:
    return {name: np.array(values, np.int64) for name, values in columns.items()}


def trace_with(stock: pm.Recording, *, clusters: dict[str, np.ndarray]) -> Trace:
    """Runs of one node begin at 100 and 1000, one of another at 500."""
    runs = table(time_ns=[100, 1000, 500], pid=[7, 7, 8], nid=[0, 0, 1])
    return replace(stock.trace, tables={RUNS: runs, SHRUNK: clusters})


def test_paces_worked_by_hand(stock: pm.Recording, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGES_OF_A_PACE", 30)
    clusters = table(
        time_ns=[50, 140, 200, 520, 1020, 1080, 1100],
        pid=[7, 7, 7, 8, 7, 7, 9],
        nr_reclaimed=[99, 20, 10, 30, 5, 27, 99],
        cpu=[1, 0, 0, 1, 0, 1, 0],
    )
    kswapd = recorded_kswapd(trace_with(stock, clusters=clusters))
    assert kswapd is not None
    # Node 0: from 100 on 100 ns for 30 pages, from 1000 on 20 + 60 for 5 + 27; node 1: 20 for 30.
    paces = {node: [each.tolist() for each in held] for node, held in kswapd.free_ns.items()}
    assert paces == {0: [[100, 1000], [100 // 30, 80 // 32]], 1: [[500], [20 // 30]]}
    # Node 0's begins on CPU 0 and is on CPU 1 after its cluster that ended at 1020.
    places = {node: [each.tolist() for each in held] for node, held in kswapd.cpus.items()}
    assert places == {0: [[100, 1020], [0, 1]], 1: [[500], [1]]}
    assert kswapd.changes_ns.tolist() == [100, 500, 1000, 1020]


def test_what_is_taken_over_from_the_recorded_kernel_is_marked(stock: pm.Recording) -> None:
    assert replayed().imposed == ()
    assert replayed(kswapd_as_recorded=True).imposed == ("kswapd's pace and CPU",)
    assert replayed(lru_as_recorded=True).imposed == ("order of reclaim at the start",)


def test_there_is_no_pace_without_runs_or_pages(stock: pm.Recording) -> None:
    none = table(time_ns=[120], pid=[7], nr_reclaimed=[0], cpu=[0])
    assert recorded_kswapd(trace_with(stock, clusters=none)) is None
    before = table(time_ns=[20], pid=[7], nr_reclaimed=[5], cpu=[0])
    assert recorded_kswapd(trace_with(stock, clusters=before)) is None
    assert recorded_kswapd(replace(stock.trace, tables={})) is None


def counted(replay: pm.Replay) -> np.ndarray:
    """What kswapd has freed, sample by sample."""
    table = replay.vmstat
    return table.loc[table["name"] == "pgsteal_kswapd", "value"].to_numpy()


PACES = "pagealloc_model.predicted.replay.recorded_kswapd"


def test_kswapd_frees_by_the_pace_of_the_time(
    stock: pm.Recording, monkeypatch: MonkeyPatch
) -> None:
    first, last = stock.trace.demand_span_ns
    slow, fast = 1_000_000, 500
    halves = np.array([first, (first + last) // 2 + 1]), np.array([slow, fast])
    paces = RecordedKswapd(free_ns={0: halves}, cpus={})
    monkeypatch.setattr(PACES, lambda trace: paces)
    paced = counted(replayed_anew(kswapd_as_recorded=True))
    throughout = counted(replayed(kswapd_free_ns=slow))
    half = len(paced) // 2 - 1
    np.testing.assert_array_equal(paced[:half], throughout[:half])
    assert paced[-1] - paced[half] > 2 * (throughout[-1] - throughout[half])


def test_one_pace_throughout_is_no_change(stock: pm.Recording, monkeypatch: MonkeyPatch) -> None:
    first, last = stock.trace.demand_span_ns
    paces = RecordedKswapd(
        free_ns={0: (np.linspace(first, last, 40).astype(np.int64), np.full(40, 20_000))},
        cpus={0: (np.array([first, last // 2 + first // 2]), np.array([0, 0]))},
    )
    monkeypatch.setattr(PACES, lambda trace: paces)
    paced = counted(replayed_anew(kswapd_as_recorded=True))
    np.testing.assert_array_equal(paced, counted(replayed(kswapd_free_ns=20_000)))


def test_what_kswapd_frees_goes_to_the_lists_of_the_cpu_that_it_is_on(
    stock: pm.Recording, monkeypatch: MonkeyPatch
) -> None:
    first, _ = stock.trace.demand_span_ns
    drains = {}
    for cpu in (0, 1):
        held = RecordedKswapd(
            free_ns={0: (np.array([first]), np.array([500]))},
            cpus={0: (np.array([first]), np.array([cpu])), 7: (np.array([first]), np.array([0]))},
        )
        monkeypatch.setattr(PACES, lambda trace, held=held: held)
        table = replayed_anew(kswapd_as_recorded=True).transactions
        pages = (table["objects"] * table["transactions"])[table["site"] == "drain"]
        drains[cpu] = pages.groupby(table["cpu"]).sum()
    assert drains[0][0] > drains[1][0]
    assert drains[1][1] > drains[0][1]
