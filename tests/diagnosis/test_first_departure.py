"""Where a prediction first departs from its recording."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.base import arrays
from pagealloc_model.diagnosis.first_departure import first_departures
from pagealloc_model.predicted.replay import Replay
from pagealloc_model.recording.trace.columns import Trace
from tests.small_recordings import shipped_recording


@pytest.fixture(scope="module")
def trace() -> Trace:
    return shipped_recording("kbuild").trace


@pytest.fixture(scope="module")
def predicted() -> Replay:
    return pm.replay(shipped_recording("kbuild"))


def test_until_the_first_other_page_the_pages_are_the_kernels(
    trace: Trace, predicted: Replay
) -> None:
    departures = first_departures(trace, predicted, predicted.transactions_full)
    assert [departure.what for departure in departures] == ["page"]
    events, objects = predicted.demand.events, predicted.demand.objects
    allocs = events[events["operation"] == at.ALLOC]
    same = objects["pfn"][allocs["object"]] == predicted.places[allocs["object"]]
    first = int(np.flatnonzero(~same)[0])
    assert same[:first].all()
    after = (int(allocs["time_ns"][first]) - int(trace.demand_span_ns[0])) / 1e9
    assert departures[0].time_s == after
    assert departures[0].measured == f"frame {objects['pfn'][allocs['object'][first]]}"
    assert departures[0].words().startswith(f"page: {after:.6f} s")


def refills_of_cpu_1(predicted: Replay) -> pd.DataFrame:
    table = predicted.transactions_full
    return table[(table["site"] == "refill") & (table["cpu"] == 1)].sort_values("time_ns")


def test_a_refill_of_another_size_is_the_first_departure(trace: Trace, predicted: Replay) -> None:
    measured = predicted.transactions_full.copy()
    rows = refills_of_cpu_1(predicted).index
    measured.loc[rows[2:], "pages"] += 1
    departures = {one.what: one for one in first_departures(trace, predicted, measured)}
    assert set(departures) == {"page", "refill on CPU 1"}
    departure = departures["refill on CPU 1"]
    time_ns = int(measured.loc[rows[2], "time_ns"])
    assert departure.time_s == (time_ns - int(trace.demand_span_ns[0])) / 1e9
    assert departure.measured == f"{measured.loc[rows[2], 'pages']} pages"
    assert departure.predicted == f"{measured.loc[rows[2], 'pages'] - 1} pages"
    assert departure.cause.startswith("the 2 before it")


def test_a_refill_that_never_came_is_a_departure(trace: Trace, predicted: Replay) -> None:
    last = refills_of_cpu_1(predicted).index[-1]
    departures = first_departures(trace, predicted, predicted.transactions_full.drop(index=last))
    (departure,) = [one for one in departures if one.what == "refill on CPU 1"]
    assert (departure.measured, departure.kernel_function) == ("none", "rmqueue_bulk")


def test_parts_of_the_events_show_the_same_departures(
    trace: Trace, predicted: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = first_departures(trace, predicted, predicted.transactions_full)
    monkeypatch.setattr(arrays, "ROWS_TOGETHER", 997)
    assert first_departures(trace, predicted, predicted.transactions_full) == whole
