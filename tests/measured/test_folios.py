"""Requests for folios by class and order, as events and the kernel's own counters show them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pagealloc_model.measured import measured as tables
from pagealloc_model.measured.folios import (
    counted_folios,
    fault_shares,
    folio_table,
    page_classes,
    recorded_falls,
    recorded_folios,
)
from pagealloc_model.recording.snapshot import Snapshot
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Event, Trace

HIGHUSER_MOVABLE = 0x100CCA
NORETRY, COMP, NOMEMALLOC, THISNODE = 0x10000, 0x40000, 0x80000, 0x200000
FOLIO = HIGHUSER_MOVABLE | COMP | NOMEMALLOC
READ = HIGHUSER_MOVABLE | COMP | NORETRY
Asked = tuple[int, int, int, bool]  # task, gfp, order, whether it was served


def trace_of(*asked: Asked) -> Trace:
    columns = {name: np.zeros(len(asked), kind) for name, kind in COLUMN_TYPES.items()}
    columns["time_ns"] = np.arange(len(asked), dtype=np.int64)
    columns["event"][:] = Event.ALLOC
    for row, (task, gfp, order, served) in enumerate(asked):
        columns["pid"][row], columns["gfp"][row], columns["order"][row] = task, gfp, order
        columns["pfn"][row] = 1024 * row if served else -1
    return Trace(**columns)


def rows_of(table: pd.DataFrame) -> dict[tuple[str, int], tuple[object, ...]]:
    values = table[["asked", "at_once", "after_work", "failed"]].to_numpy(object).tolist()
    return dict(
        zip(zip(table["class"], table["order"], strict=True), map(tuple, values), strict=True)
    )


@pytest.mark.parametrize("order", range(1, 10))
def test_a_folio_of_a_fault_is_anonymous_whatever_its_order(order: int) -> None:
    gfp = np.array([FOLIO, FOLIO | NORETRY, READ], np.uint32)
    assert page_classes(gfp, np.full(3, order)).tolist() == [2, 2, 3]


def test_requests_count_by_class_order_and_how_they_were_served() -> None:
    trace = trace_of(
        (1, FOLIO, 4, True),
        (1, FOLIO | NORETRY, 4, True),
        (1, FOLIO, 4, False),
        (1, HIGHUSER_MOVABLE, 0, True),
        (2, READ, 4, True),
        (2, 0xCC0, 4, True),
    )
    table = recorded_folios(trace, np.array([1]), known=True)
    assert rows_of(table) == {
        ("anon", 0): (1, 1, 0, 0),
        ("anon", 4): (3, 1, 1, 1),
        ("file", 4): (1, 1, 0, 0),
    }
    unknown = recorded_folios(trace, np.array([1]), known=False)
    assert unknown["at_once"].isna().all() and unknown["failed"].tolist() == [0, 1, 0]


def test_a_local_attempt_in_vain_is_no_request_of_its_own() -> None:
    trace = trace_of((1, FOLIO | THISNODE, 9, False), (1, FOLIO, 9, True), (1, FOLIO, 9, False))
    assert rows_of(recorded_folios(trace, np.zeros(0, int), known=True))["anon", 9] == (2, 1, 0, 1)


def test_an_order_that_no_kernel_has_is_no_request() -> None:
    trace = trace_of((1, FOLIO, 40, False), (1, FOLIO, 15, True), (1, FOLIO, 0, True))
    folios = recorded_folios(trace, np.zeros(0, int), known=True)
    assert rows_of(folios) == {("anon", 0): (1, 1, 0, 0)}
    assert recorded_falls(trace).empty


def test_a_failure_fell_back_to_what_its_task_was_served_with_next() -> None:
    trace = trace_of(
        (1, FOLIO | THISNODE, 9, False),
        (1, FOLIO, 9, False),
        (2, FOLIO, 3, True),  # another task's
        (1, FOLIO, 4, False),
        (1, HIGHUSER_MOVABLE, 0, True),
        (3, FOLIO, 9, False),
        (3, FOLIO, 4, True),
        (4, READ, 2, False),
    )
    falls = recorded_falls(trace).set_index(["class", "order", "to"])["count"].to_dict()
    assert falls == {
        ("anon", 4, 0): 1,
        ("anon", 9, 0): 1,
        ("anon", 9, 4): 1,
        ("file", 2, -1): 1,
    }
    assert recorded_falls(trace_of((1, FOLIO, 4, True))).empty


def test_a_table_leaves_out_what_nobody_asked_for() -> None:
    assert folio_table(np.zeros((4, 11, 5), np.int64)).empty


def test_the_kernels_counters_give_shares_by_order(tmp_path: Path) -> None:
    snapshots = []
    for time_ns, served, failed in ((1, 5, 1), (2, 8, 2)):
        directory = tmp_path / "snapshots" / f"{time_ns:020d}"
        directory.mkdir(parents=True)
        (directory / "hugepages_stats").write_text(
            f"hugepages-64kB/anon_fault_alloc {served}\n"
            f"hugepages-64kB/anon_fault_fallback {failed}\n"
            "hugepages-2048kB/anon_fault_alloc 7\n"
        )
        snapshots.append(Snapshot(time_ns=time_ns, directory=directory))
    table = counted_folios(snapshots)
    assert set(table["order"]) == {4, 9}
    assert fault_shares(table) == {4: 0.75}


def test_compaction_is_work_as_reclaim_is() -> None:
    trace = trace_of((1, FOLIO, 4, True), (1, FOLIO, 4, True))
    begins = {"time_ns": np.zeros(1, np.int64), "pid": np.ones(1, np.int32)}
    trace.tables[tp.COMPACTION_BEGIN] = begins
    assert tables._stalled(trace, tp.COMPACTION_BEGIN).tolist() == [1]
