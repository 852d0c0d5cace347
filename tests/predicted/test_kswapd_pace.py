"""kswapd goes on as fast as the recorded one did at that time, where a replay is asked for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.measured.recorded_costs import recorded_kswapd_ns
from pagealloc_model.policy import ElasticAssumptions
from pagealloc_model.predicted import kswapd_pace
from pagealloc_model.predicted.kswapd_pace import RUNS, SHRUNK, KswapdPace, recorded_kswapd_pace
from pagealloc_model.recording.trace.columns import Trace


@pytest.fixture(scope="module")
def stock(shipped: Callable[[str], Path]) -> pm.Recording:
    return pm.open(str(shipped("highatomic_stock")))


def table(**columns: list[int]) -> dict[str, np.ndarray]:
    return {name: np.array(values, np.int64) for name, values in columns.items()}


def trace_with(stock: pm.Recording, *, clusters: dict[str, np.ndarray]) -> Trace:
    """Runs of one node begin at 100 and 1000, one of another at 500."""
    runs = table(time_ns=[100, 1000, 500], pid=[7, 7, 8], nid=[0, 0, 1])
    return replace(stock.trace, tables={RUNS: runs, SHRUNK: clusters})


def test_paces_worked_by_hand(stock: pm.Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kswapd_pace, "PAGES_OF_A_PACE", 30)
    clusters = table(
        time_ns=[50, 140, 200, 520, 1020, 1080, 1100],
        pid=[7, 7, 7, 8, 7, 7, 9],
        nr_reclaimed=[99, 20, 10, 30, 5, 27, 99],
    )
    pace = recorded_kswapd_pace(trace_with(stock, clusters=clusters))
    assert pace is not None
    # From 100 on 100 ns for 30 pages, from 500 on 20 for 30, from 1000 on 20 + 60 for 5 + 27.
    assert pace.from_ns.tolist() == [100, 500, 1000]
    assert pace.free_ns.tolist() == [100 // 30, 20 // 30, 80 // 32]
    assert [pace.at(time) for time in (0, 100, 499, 1000, 9999)] == [3, 3, 3, 2, 2]


def test_few_pages_have_one_pace_which_is_that_of_the_whole_recording(stock: pm.Recording) -> None:
    clusters = table(time_ns=[120, 150, 1010], pid=[7, 7, 7], nr_reclaimed=[0, 32, 8])
    trace = trace_with(stock, clusters=clusters)
    pace = recorded_kswapd_pace(trace)
    assert pace is not None
    assert pace.free_ns.tolist() == [60 // 40]
    assert pace.free_ns[0] == recorded_kswapd_ns(trace)["kswapd_free_ns"]


def test_there_is_no_pace_without_runs_or_pages(stock: pm.Recording) -> None:
    none = table(time_ns=[120], pid=[7], nr_reclaimed=[0])
    assert recorded_kswapd_pace(trace_with(stock, clusters=none)) is None
    assert recorded_kswapd_pace(replace(stock.trace, tables={})) is None


def counted(stock: pm.Recording, **elastic: int | bool) -> np.ndarray:
    """What kswapd has freed, sample by sample."""
    assumed = pm.Assumptions(reclaim="elastic", elastic=ElasticAssumptions(**elastic))
    table = pm.replay(stock, assumptions=assumed).vmstat
    return table.loc[table["name"] == "pgsteal_kswapd", "value"].to_numpy()


def test_kswapd_frees_by_the_pace_of_the_time(
    stock: pm.Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pagealloc_model.predicted import replay as replay_module

    first, last = stock.trace.demand_span_ns
    slow, fast = 1_000_000, 500
    paces = KswapdPace(
        from_ns=np.array([first, (first + last) // 2 + 1]), free_ns=np.array([slow, fast])
    )
    monkeypatch.setattr(replay_module, "recorded_kswapd_pace", lambda trace: paces)
    paced = counted(stock, kswapd_as_recorded=True)
    throughout = counted(stock, kswapd_free_ns=slow)
    half = len(paced) // 2 - 1
    np.testing.assert_array_equal(paced[:half], throughout[:half])
    assert paced[-1] - paced[half] > 2 * (throughout[-1] - throughout[half])


def test_one_pace_throughout_is_no_change(
    stock: pm.Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pagealloc_model.predicted import replay as replay_module

    first, last = stock.trace.demand_span_ns
    paces = KswapdPace(
        from_ns=np.linspace(first, last, 40).astype(np.int64), free_ns=np.full(40, 20_000)
    )
    monkeypatch.setattr(replay_module, "recorded_kswapd_pace", lambda trace: paces)
    paced = counted(stock, kswapd_as_recorded=True)
    np.testing.assert_array_equal(paced, counted(stock, kswapd_free_ns=20_000))
