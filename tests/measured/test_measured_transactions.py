"""Transactions read off events: with the kernel's own boundaries, and inferred from runs."""

from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.measured.stream import allocator_stream
from pagealloc_model.measured.transactions import (
    CAUSES,
    SITES,
    RunRules,
    Transactions,
    inferred_transactions,
    probed_transactions,
)
from pagealloc_model.recording.proc.zoneinfo import parse_zoneinfo
from pagealloc_model.recording.zone_map import ZoneMap
from tests.event_text import EventText
from tests.recording.proc.samples_of import sample

ZONES = ZoneMap.of(parse_zoneinfo(sample("6.1", "zoneinfo")))
DMA32, NORMAL = 0x10000, 0x120000
Row = tuple[str, str, int, int, int]


def rows(transactions: Transactions) -> list[Row]:
    """Site, cause, cpu, objects and pages of each, in time order."""
    return [
        (SITES[site], CAUSES[cause], int(cpu), int(objects), int(pages))
        for site, cause, cpu, objects, pages in zip(
            transactions.site,
            transactions.cause,
            transactions.cpu,
            transactions.objects,
            transactions.pages,
            strict=True,
        )
    ]


@pytest.fixture
def text() -> EventText:
    return EventText()


def inferred(text: EventText, directory: Path, **rules: int) -> list[Row]:
    trace = text.trace(directory)
    stream = allocator_stream(trace, with_probes=False)
    return rows(inferred_transactions(stream, ZONES, trace.comms, RunRules(**rules)))


def probed(text: EventText, directory: Path) -> tuple[Transactions, tuple[str, ...]]:
    trace = text.trace(directory)
    return probed_transactions(allocator_stream(trace, with_probes=True), ZONES, trace.comms)


def test_a_refill_is_a_run_ended_by_another_event(text: EventText, tmp_path: Path) -> None:
    text.locked(*range(DMA32, DMA32 + 63))
    text.alloc(DMA32)
    text.locked(DMA32 + 99, DMA32 + 100)
    text.alloc(DMA32 + 99)
    assert inferred(text, tmp_path) == [("refill", "", 0, 63, 63), ("refill", "", 0, 2, 2)]


def test_runs_of_two_cpus_do_not_mix(text: EventText, tmp_path: Path) -> None:
    for page in range(4):
        text.on(0).locked(DMA32 + page)
        text.on(1).locked(DMA32 + 64 + page)
    assert inferred(text, tmp_path) == [("refill", "", 0, 4, 4), ("refill", "", 1, 4, 4)]


def test_order_list_and_zone_end_a_run(text: EventText, tmp_path: Path) -> None:
    text.locked(DMA32, DMA32 + 1)
    text.locked(DMA32 + 2, DMA32 + 4, order=1)
    text.locked(DMA32 + 6, DMA32 + 8, order=1, migratetype=1)
    text.locked(NORMAL, NORMAL + 2, order=1, migratetype=1)
    assert [row[3:] for row in inferred(text, tmp_path)] == [(2, 2), (2, 4), (2, 4), (2, 4)]


def test_one_refill_cannot_exceed_its_rule(text: EventText, tmp_path: Path) -> None:
    text.locked(*range(DMA32, DMA32 + 10 * 8, 8), order=3)
    assert [row[3] for row in inferred(text, tmp_path)] == [7, 3]


def test_single_removals_are_direct_if_used_at_once(text: EventText, tmp_path: Path) -> None:
    text.locked(DMA32)
    text.alloc(DMA32)
    text.locked(DMA32 + 16, order=4, refill=0)
    text.alloc(DMA32 + 16, order=4)
    text.locked(DMA32 + 512, order=9)
    text.alloc(DMA32 + 512, order=9)
    text.locked(DMA32 + 1024, order=1, migratetype=3, refill=0)
    text.alloc(DMA32 + 1024, order=1)
    text.free(DMA32 + 16, order=4)
    assert inferred(text, tmp_path) == [
        ("buddy_alloc", "", 0, 1, 1),
        ("buddy_alloc", "", 0, 1, 16),
        ("refill", "", 0, 1, 512),
        ("buddy_alloc", "", 0, 1, 2),
        ("direct_free", "", 0, 1, 16),
    ]


def test_fallbacks_count_once(text: EventText, tmp_path: Path) -> None:
    text.locked(DMA32)
    text.fallback(DMA32, found=5, owned=1)
    text.fallback(DMA32 + 70, found=9, owned=1)
    text.fallback(DMA32 + 90, found=0, owned=0)
    assert inferred(text, tmp_path) == [("refill", "", 0, 3, 3)]
    assert inferred(text, tmp_path, every_removal_announced=True) == [("refill", "", 0, 1, 1)]


def test_drain_causes(text: EventText, tmp_path: Path) -> None:
    text.on(1)
    text.free(DMA32 + 7)
    text.on(0)
    text.free(DMA32)
    text.drained(DMA32, DMA32 + 1)
    text.on(1, pid=11, comm="kworker/1:0-mm_")
    text.drained(DMA32 + 2, DMA32 + 3, DMA32 + 4)
    text.on(0, pid=12)
    text.drained(DMA32 + 5)
    text.on(0, pid=10)
    text.free(DMA32 + 99)
    text.drained(DMA32 + 7)
    assert inferred(text, tmp_path) == [
        ("drain", "commit", 0, 2, 2),
        ("drain", "decay", 1, 3, 3),
        ("drain", "", 0, 1, 1),
        ("drain", "drain_all", 0, 1, 1),
    ]


def test_batched_drains_are_cut_into_holds(text: EventText, tmp_path: Path) -> None:
    text.free(DMA32)
    text.drained(*range(DMA32, DMA32 + 130))
    assert [row[3] for row in inferred(text, tmp_path)] == [130]
    assert [row[3] for row in inferred(text, tmp_path, free_batched=True)] == [63, 63, 4]


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
    text.event("pa:pcp_bulk_alloc", "zone=0xff20 order=0 count=63 mt=1 flags=0x1")
    text.event("pa:pcp_bulk_alloc_ret", "got=0")
    text.event("pa:pcp_bulk_alloc", "zone=0xff10 order=0 count=63 mt=1 flags=0x1")
    text.locked(DMA32)
    text.event("pa:pcp_bulk_alloc_ret", "got=1")
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
        found = inferred_transactions(stream, ZONES, {}, RunRules(free_batched=batched))
        taken = np.isin(found.site, [SITES.index("refill"), SITES.index("buddy_alloc")])
        assert found.objects[taken].sum() == np.count_nonzero(trace.event == 3)
        drained = found.site == SITES.index("drain")
        assert found.pages[drained].sum() == np.count_nonzero(trace.event == 4)
