"""Transactions read off events: with the kernel's own boundaries, and inferred from runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.allocator.sites import CAUSES, MEASURED
from pagealloc_model.base import arrays
from pagealloc_model.measured.measured import outcomes_table
from pagealloc_model.measured.stream import allocator_stream
from pagealloc_model.measured.transactions import (
    RunRules,
    Transactions,
    inferred_transactions,
    probed_transactions,
)
from pagealloc_model.recording.proc.zoneinfo import parse_zoneinfo
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Event, Trace
from pagealloc_model.recording.zone_map import ZoneMap
from tests.event_text import EventText
from tests.predicted.demand.test_demand import Script
from tests.recording.proc.samples_of import sample

ZONES = ZoneMap.of(parse_zoneinfo(sample("6.1", "zoneinfo")))
DMA32, NORMAL = 0x10000, 0x120000
Row = tuple[str, str, int, int, int]


def rows(transactions: Transactions) -> list[Row]:
    """Site, cause, cpu, objects and pages of each, in time order."""
    columns = (getattr(transactions, name) for name in ("site", "cause", "cpu", "objects", "pages"))
    return [
        (MEASURED[site], CAUSES[cause], int(cpu), int(objects), int(pages))
        for site, cause, cpu, objects, pages in zip(*columns, strict=True)
    ]


@pytest.fixture
def text() -> EventText:
    return EventText()


def probed(text: EventText, directory: Path) -> tuple[Transactions, tuple[str, ...]]:
    trace = text.trace(directory)
    return probed_transactions(allocator_stream(trace, with_probes=True), ZONES, trace.comms)


FAR = NORMAL - DMA32


@pytest.mark.parametrize(
    ("script", "rules", "expected"),
    [
        # A refill is a run ended by another event; runs of two CPUs do not mix.
        ("L63 a0 l99 l100 a99", {}, "refill 0 63/63, refill 0 2/2"),
        ("@0 l0 @1 l64 @0 l1 @1 l65 @0 l2 @1 l66 @0 l3 @1 l67", {}, "refill 0 4/4, refill 1 4/4"),
        # No refill brings more than the batch of 63, doubled five times.
        ("L2017", {}, "refill 0 2016/2016, refill 0 1/1"),
        # Order, list and zone end a run.
        (
            f"l0 l1 l2^1 l4^1 l6^1:1 l8^1:1 l{FAR}^1:1 l{FAR + 2}^1:1",
            {},
            "refill 0 2/2, refill 0 2/4, refill 0 2/4, refill 0 2/4",
        ),
        # One refill cannot exceed its rule.
        (" ".join(f"l{8 * order}^3" for order in range(10)), {}, "refill 0 7/56, refill 0 3/24"),
        # Single removals are direct if used at once, but for huge pages.
        (
            "l0 a0 l16^4 a16^4 l512^9 a512^9 l1024^1:3 a1024^1 f16^4",
            {},
            "buddy_alloc 0 1/1, buddy_alloc 0 1/16, refill 0 1/512, buddy_alloc 0 1/2, "
            "direct_free 0 1/16",
        ),
        # Causes of drains: a free before, a kworker, nobody, and another CPU's pages.
        (
            "@1 f7 @0 f0 d0 d1 @1:kworker/1:0-mm_ d2 d3 d4 @0:12 d5 @0 f99 d7",
            {},
            "drain commit 0 2/2, drain decay 1 3/3, drain 0 1/1, drain drain_all 0 1/1",
        ),
        # Batched drains are cut into holds.
        ("f0 D130", {}, "drain commit 0 130/130"),
        (
            "f0 D130",
            {"free_batched": True},
            "drain commit 0 63/63, drain commit 0 63/63, drain commit 0 4/4",
        ),
    ],
)
def test_runs_of_events_are_transactions(
    tmp_path: Path, script: str, rules: dict[str, bool], expected: str
) -> None:
    trace = Script(script, DMA32).trace(tmp_path)
    stream = allocator_stream(trace, with_probes=False)
    transactions = rows(inferred_transactions(stream, ZONES, trace.comms, RunRules(**rules)))
    words = [
        f"{site} {cause}{' ' * bool(cause)}{cpu} {objects}/{pages}"
        for site, cause, cpu, objects, pages in transactions
    ]
    assert ", ".join(words) == expected


@pytest.mark.parametrize(("auto_tuned", "refills"), [(True, [32, 1]), (False, [1] * 33)])
def test_refills_of_a_list_with_a_batch_of_one_grow_where_the_kernel_tunes_them(
    tmp_path: Path, auto_tuned: bool, refills: list[int]
) -> None:
    """Zone DMA of a small machine has such lists (S4.4)."""
    trace = Script("L33", 16).trace(tmp_path)
    stream = allocator_stream(trace, with_probes=False)
    rules = RunRules(pcp_auto_tuned=auto_tuned)
    found = inferred_transactions(stream, ZONES, trace.comms, rules)
    assert [objects for *_, objects, _ in rows(found)] == refills


@pytest.mark.parametrize(("announced", "objects"), [(False, 3), (True, 1)])
def test_fallbacks_count_once(
    text: EventText, tmp_path: Path, announced: bool, objects: int
) -> None:
    text.locked(DMA32)
    text.fallback(DMA32, found=5, owned=1)
    text.fallback(DMA32 + 70, found=9, owned=1)
    text.fallback(DMA32 + 90, found=0, owned=0)
    stream = allocator_stream(text.trace(tmp_path), with_probes=False)
    rules = RunRules(every_removal_announced=announced)
    expected = [("refill", "", 0, objects, objects)]
    assert rows(inferred_transactions(stream, ZONES, {}, rules)) == expected


def test_kprobes_bound_refills(text: EventText, tmp_path: Path) -> None:
    text.event("pa:pcp_bulk_alloc", "zone=0xff10 order=1 count=31 mt=2 flags=0x1")
    text.locked(DMA32, order=1)
    text.on(1).locked(DMA32 + 64)
    text.alloc(DMA32 + 64)
    text.on(0).locked(DMA32 + 2, order=1)
    text.locked(DMA32 + 100)
    text.alloc(DMA32 + 100)
    text.event("pa:pcp_bulk_alloc_ret", "got=2")
    text.event("pa:free_one", f"zone=0xff20 pfn={NORMAL:#x} order=3")
    text.event("pa:pcp_bulk_alloc", "zone=0xff20 order=0 count=63 mt=0 flags=0x1")
    transactions, notes = probed(text, tmp_path)
    assert rows(transactions) == [
        ("refill", "", 0, 2, 4),
        ("buddy_alloc", "", 1, 1, 1),
        ("buddy_alloc", "", 0, 1, 1),
        ("direct_free", "", 0, 1, 8),
        ("refill", "", 0, -1, -1),
    ]
    assert transactions.zone.tolist() == [1, 1, 1, 2, 2]
    assert transactions.migratetype[0] == 2
    assert notes == ("1 refill has no recorded return: size unknown",)


def test_kprobes_show_a_refill_that_found_nothing(text: EventText, tmp_path: Path) -> None:
    for got in (0, 1):
        text.event("pa:pcp_bulk_alloc", "zone=0xff10 order=0 count=63 mt=1 flags=0x1")
        if got:
            text.locked(DMA32)
        text.event("pa:pcp_bulk_alloc_ret", f"got={got}")
    transactions, _ = probed(text, tmp_path)
    assert rows(transactions) == [("empty_refill", "", 0, 0, 0), ("refill", "", 0, 1, 1)]


def test_kprobes_of_nested_refills_match_like_brackets(text: EventText, tmp_path: Path) -> None:
    text.free(DMA32)
    text.event("pa:pcp_bulk_alloc", "zone=0xff10 order=0 count=63 mt=0 flags=0x1")
    text.event("pa:pcp_bulk_alloc", "zone=0xff20 order=1 count=31 mt=0 flags=0x1")
    text.event("pa:pcp_bulk_alloc_ret", "got=31")
    text.event("pa:pcp_bulk_alloc_ret", "got=63")
    transactions, _ = probed(text, tmp_path)
    assert rows(transactions) == [("refill", "", 0, 63, 63), ("refill", "", 0, 31, 62)]


def test_kprobes_bound_drains(text: EventText, tmp_path: Path) -> None:
    text.drained(DMA32 + 500)
    text.free(DMA32)
    text.event("pa:pcp_bulk_free", "zone=0xff10 count=2 pindex=0")
    text.drained(DMA32, DMA32 + 1)
    text.event("pa:pcp_bulk_free", "zone=0xff10 count=2 pindex=0")
    text.drained(DMA32 + 4, order=2)
    text.event("pa:drain_zone", "cpu=1 zone=0xff20")
    text.event("pa:pcp_bulk_free", "zone=0xff20 count=9 pindex=0")
    text.drained(NORMAL)
    text.on(1, pid=11, comm="kworker/1:0-mm_")
    text.event("pa:pcp_bulk_free", "zone=0xff20 count=9 pindex=0")
    text.drained(NORMAL + 1)
    transactions, notes = probed(text, tmp_path)
    assert rows(transactions) == [
        ("drain", "commit", 0, 2, 2),
        ("drain", "commit", 0, 1, 4),
        ("drain", "drain_all", 0, 1, 1),
        ("drain", "decay", 1, 1, 1),
    ]
    assert transactions.zone.tolist() == [1, 1, 2, 2]
    assert notes == ("1 drained object precedes the first call on a CPU: left out",)


def test_totals_do_not_depend_on_how_runs_are_cut(text: EventText, tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    page = DMA32
    for _ in range(2000):
        text.on(int(random.integers(3)))
        page += 1
        (text.locked, text.drained, text.alloc, text.free)[random.integers(4)](page)
    trace = text.trace(tmp_path)
    stream = allocator_stream(trace, with_probes=False)
    for batched in (False, True):
        transactions = inferred_transactions(stream, ZONES, {}, RunRules(free_batched=batched))
        taken = np.isin(
            transactions.site, [MEASURED.index("refill"), MEASURED.index("buddy_alloc")]
        )
        assert transactions.objects[taken].sum() == np.count_nonzero(trace.event == 3)
        drained = transactions.site == MEASURED.index("drain")
        assert transactions.pages[drained].sum() == np.count_nonzero(trace.event == 4)


# Events by CPU and the pages of drains, as kernels find them, against numpy's sorts


ROWS = 400
BEGINS = {"pid": np.array([1, 2, 3], np.int32), "time_ns": np.array([30, 90, 91])}


def random_trace(seed: int) -> Trace:
    """Runs of drains on a few CPUs, some of them numbered -1, between other events."""
    random = np.random.default_rng(seed)
    columns = {name: np.zeros(ROWS, kind) for name, kind in COLUMN_TYPES.items()}
    columns["time_ns"] = np.cumsum(random.integers(0, 3, ROWS))
    kinds = [event.value for event in Event]
    columns["event"] = np.repeat(random.choice(kinds, ROWS // 8), 8)
    columns["event"][random.random(ROWS) < 0.1] = Event.FREE
    columns["cpu"] = np.repeat(random.integers(-1, 3, ROWS // 4), 4)
    columns["pid"] = np.repeat(random.integers(1, 3, ROWS // 40), 40)
    columns["pfn"] = random.integers(-1, 12, ROWS)
    columns["order"] = random.integers(0, 2, ROWS)
    columns["migratetype"] = random.integers(0, 4, ROWS)
    columns["gfp"] = random.choice([0x400, 0x408, 0x20, 0], ROWS)
    typed = {name: columns[name].astype(kind) for name, kind in COLUMN_TYPES.items()}
    bits = {"__GFP_DIRECT_RECLAIM": 0x400, "__GFP_MOVABLE": 0x8, "__GFP_HIGH": 0x20}
    return Trace(
        **typed, gfp_bits=bits, tables={tp.DIRECT_RECLAIM_BEGIN: BEGINS}, comms={2: "kworker/0:1"}
    )


@pytest.mark.parametrize("seed", range(5))
def test_outcomes_of_parts_together_are_those_of_the_whole(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = random_trace(seed)
    whole = outcomes_table(trace, pmd_order=9, reclaim_recorded=True)
    allocs = trace.event == Event.ALLOC
    assert whole["asked"].sum() == allocs.sum()
    assert whole["failed"].sum() == (allocs & (trace.pfn < 0)).sum()
    for rows_together in (1, 7):
        monkeypatch.setattr(arrays, "ROWS_TOGETHER", rows_together)
        assert outcomes_table(trace, pmd_order=9, reclaim_recorded=True).equals(whole)


def test_reclaim_without_any_allocation_stalled_nothing() -> None:
    columns = {name: np.zeros(0, kind) for name, kind in COLUMN_TYPES.items()}
    begins = {"pid": np.ones(1, np.int32), "time_ns": np.zeros(1, np.int64)}
    trace = Trace(**columns, tables={tp.DIRECT_RECLAIM_BEGIN: begins})
    assert outcomes_table(trace, pmd_order=9, reclaim_recorded=True).empty
