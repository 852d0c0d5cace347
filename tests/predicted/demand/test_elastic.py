"""Demand of an elastic replay: page classes, and what reclaim, compaction and reads made of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.objects import ROW
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.demand.demand import resolve_demand
from pagealloc_model.predicted.demand.elastic import (
    RCU_NS,
    ElasticRows,
    page_classes,
    slab_frees,
    slab_survivors,
)
from pagealloc_model.predicted.replay import replay
from pagealloc_model.predicted.start.elastic import with_cached_pages
from pagealloc_model.recording.trace.columns import Trace
from tests.predicted.demand.test_demand import PAGE, Script, told
from tests.small_recordings import END_PFN, TimedEvents, shipped_recording, small_machine

HIGHUSER_MOVABLE = 0x100CCA
ZERO, NORETRY, WRITE, COMP, NOMEMALLOC, RECLAIMABLE = 0x100, 0x10000, 0x1000, 0x40000, 0x80000, 0x10
FS = 0x80
THP = HIGHUSER_MOVABLE | COMP | NOMEMALLOC


@pytest.mark.parametrize(
    ("gfp", "order", "expected"),
    [
        (HIGHUSER_MOVABLE | ZERO, 0, pr.ANON),
        (HIGHUSER_MOVABLE | NORETRY, 2, pr.FILE),
        (HIGHUSER_MOVABLE | WRITE, 0, pr.FILE),
        (HIGHUSER_MOVABLE & ~FS, 0, pr.FILE),
        (THP | NORETRY, 9, pr.ANON),
        (0xCC0, 0, pr.KERNEL),
        (0xCC0 | RECLAIMABLE, 1, pr.RECLAIMABLE),
    ],
)
def test_the_gfp_word_tells_the_class_of_pages(gfp: int, order: int, expected: int) -> None:
    found = page_classes(np.array([gfp], np.uint32), np.array([order], np.int8))
    assert found.tolist() == [expected]


def test_requests_of_kernel_threads_are_marked(tmp_path: Path) -> None:
    """S8.2: they are never throttled."""
    names = ("kworker/0:1", "khugepaged", "make")
    events = TimedEvents()
    for pid, name in enumerate(names):
        events.on(0, pid=pid + 7, comm=name).alloc(PAGE + pid)
    trace = events.trace(tmp_path)
    rows = np.zeros(len(names), ROW)
    rows["pid"] = trace.pid
    ElasticRows(trace).mark(rows, np.arange(len(names)))
    assert (rows["bits"] & at.KERNEL_THREAD > 0).tolist() == [True, True, False]


# Frees of slab pages that recorded reclaim caused (T10.16)


MOVABLE = "GFP_HIGHUSER_MOVABLE"
OF_FILE = "GFP_HIGHUSER_MOVABLE|__GFP_NORETRY"
SLAB = "GFP_KERNEL|__GFP_COMP|__GFP_RECLAIMABLE"
TASK, KSWAPD, SOFTIRQ, RCU = range(4)


def recorded(tmp_path: Path, freers: list[int], late_ns: int = 0) -> Trace:
    """Slabs, each freed by another, after kswapd has freed a page; `late_ns` after that."""
    events = TimedEvents()
    for number in range(len(freers)):
        events.on(0, pid=7).alloc(PAGE + number, gfp=SLAB)
    events.alloc(PAGE - 1)
    events.on(1, pid=40, comm="kswapd0").free(PAGE - 1)
    for number, freer in enumerate(freers):
        pid, comm = {KSWAPD: (40, "kswapd0"), RCU: (12, "rcu_preempt")}.get(freer, (7, "make"))
        events.on(1, pid=pid, comm=comm).free(PAGE + number)
    trace = events.trace(tmp_path)
    in_interrupt = np.zeros(len(trace), np.int8)
    in_interrupt[len(freers) + 2 :] = np.array(freers) == SOFTIRQ
    time_ns = trace.time_ns.copy()
    time_ns[len(freers) + 2 :] += late_ns
    return replace(trace, in_interrupt=in_interrupt, time_ns=time_ns)


def test_slabs_are_known_by_their_requests(tmp_path: Path) -> None:
    trace = recorded(tmp_path, [TASK, SOFTIRQ])
    assert slab_frees(trace).tolist() == [4, 5]


@pytest.mark.parametrize(
    ("freers", "late_ns", "expected"),
    [
        ([TASK, KSWAPD, SOFTIRQ, RCU], 0, [False, True, True, True]),
        ([SOFTIRQ, RCU], RCU_NS, [False, False]),
    ],
)
def test_what_rcu_frees_soon_after_reclaim_is_reclaims(
    tmp_path: Path, freers: list[int], late_ns: int, expected: list[bool]
) -> None:
    trace = recorded(tmp_path, freers, late_ns)
    rows = np.arange(len(trace) - len(freers), len(trace))
    assert ElasticRows(trace).freed_by_reclaim(rows).tolist() == expected


def test_nothing_is_reclaims_where_there_was_none(tmp_path: Path) -> None:
    trace = Script(f"@0:7 a0:{SLAB} @0:rcu_preempt f0").trace(tmp_path)
    assert ElasticRows(trace).freed_by_reclaim(np.array([1])).tolist() == [False]


@pytest.mark.parametrize(
    ("scanned", "expected"), [(0, None), (24, 0), (32, 250), (2400, 990), (3, 0)]
)
def test_survivors_are_slabs_whose_objects_were_scanned_in_vain(
    tmp_path: Path, scanned: int, expected: int | None
) -> None:
    """Three slabs of eight objects went."""
    trace = recorded(tmp_path, [KSWAPD, SOFTIRQ, RCU, TASK])
    ends = (0, None), (1, {"slabs_scanned": 100}), (1 << 60, {"slabs_scanned": 100 + scanned})
    snapshots = [SimpleNamespace(time_ns=time_ns, vmstat=vmstat) for time_ns, vmstat in ends]
    assert slab_survivors(trace, snapshots, 8) == expected


# What filemap events say of the page cache (T10.15), and pages that recorded compaction moved,
# which stay in use in an elastic replay (T10.14)


ELASTIC = Assumptions(reclaim="elastic")


class Files(Script):
    """Script with files and moves.

    pN:INDEX, pN:INDEX/INODE: a page of a file is read into page N, which kswapd takes by gN:INDEX;
    qINDEX:LAST: pages of file 7 are read; mN: another task's compaction moves page N away; kN:
    kswapd frees page N.
    """

    def _play(self, word: str, first: int) -> None:
        kind, (number, _, tail) = word[0], word[1:].partition(":")
        if kind not in "pgqmk":
            super()._play(word, first)
            return
        self._is_interrupt = False
        index, _, inode = tail.partition("/")
        of_file = f"s_dev=1 i_ino={inode or 7}"
        if kind == "p":
            pfn = first + int(number)
            self.on(0, pid=1).alloc(pfn, gfp=MOVABLE, migratetype=1)
            self.event("filemap:mm_filemap_add_to_page_cache", f"{of_file} {pfn=} {index=!s}")
        elif kind == "g":
            pfn = first + int(number)
            self.on(1, pid=40, comm="kswapd0")
            self.event("filemap:mm_filemap_delete_from_page_cache", f"{of_file} {pfn=} {index=!s}")
            self.free(pfn)
        elif kind == "k":
            self.on(1, pid=40, comm="kswapd0").free(first + int(number))
            self.on(0, pid=1)
        elif kind == "q":
            body = f"{of_file} index={number} last_index={tail}"
            self.on(0, pid=1).event("filemap:mm_filemap_get_pages", body)
        else:
            self.on(1, pid=7).event("compaction:mm_compaction_begin", "zone_start=0")
            super()._play(f"f{number}", first)
            self.event("compaction:mm_compaction_end", "status=5")
            self.on(0, pid=1)


AGAIN = "p0:3 g0:3 p9:3 @0:1 f9"
"""A page is read, reclaimed, and read again elsewhere in memory."""


@pytest.mark.parametrize(
    ("script", "events", "counts"),
    [
        (AGAIN, "A0 F0 U0+1 F0", {}),
        # A page of another file is not the same, nor is one that its owner gave up.
        ("p0:3 g0:3 p9:3/8 @0:1 f9", "A0 F0 A1 F1", {}),
        ("p0:3 @0:1 f0 p9:3", "A0 F0 A1", {}),
        # A page of the start is known by its removal.
        ("g0:3 p9:3", "F0 U0+1", {}),
        # A read uses each page once.
        ("p0:0 p1:1 p2:2 q1:2", "A0 A1 A2 U1 U2", {}),
        ("a0 a1 m0", "A0 A1", {"stayed_pages": 1}),
        # Where it is freed at last, the same object is freed: of two, the one that moved last.
        (
            "a0 a1 a2048 @0:2 f2048 m0 m1 f2048",
            "A0 A1 A2 F2 F1",
            {"hidden_allocations": 0, "moved_frees": 1},
        ),
        # A free that was missed is no move: it is known by the next request for the page.
        ("a0 a0 m1", "A0 F0 A1", {"missed_frees": 1}),
        ("a0 a2048 f2048 m0 m2048", "A0 A1 F1", {"hidden_allocations": 0}),
        # Other sizes are not taken for it; an unused target never seen before becomes free.
        ("a0 a2048^2 @0:2 f2048^2 m0 f2048^2", "A0 A1^2 F1^2 h2^2 F2^2", {"hidden_allocations": 1}),
        ("a0 m2048^3", "A0 F1^3", {}),
    ],
)
def test_uses_and_moves_are_told(
    tmp_path: Path, script: str, events: str, counts: dict[str, int]
) -> None:
    demand = resolve_demand(Files(script).trace(tmp_path), small_machine(), ELASTIC)
    assert told(demand) == events
    assert {name: getattr(demand, name) for name in counts} == counts
    uses = demand.events[demand.events["operation"] == at.USE]
    assert (uses["bits"] >> pr.CLASS_SHIFT == pr.FILE).all()


@pytest.mark.parametrize(
    ("script", "events"),
    [
        # A task frees what it had asked for, not what moved last.
        (f"@0:3 a0:{MOVABLE} @0:4 a1:{MOVABLE} m0 m1 @0:3 f2048", "F0"),
        # Reclaim frees no anonymous page, and a task its own before those of files.
        (f"a0:{OF_FILE} a1:{MOVABLE} m0 m1 k2048", "F0"),
        (f"@0:3 a0:{MOVABLE} @0:4 a1:{OF_FILE} m0 m1 @0:3 f2048 f2049", "F0 F1"),
        # Others' come last, and are none that reclaim could have freed.
        (f"a0:{OF_FILE} @0:3 a1:{MOVABLE} m0 m1 @0:5 f2048", "F0"),
        (f"@0:3 a0:{MOVABLE} a1 m0 @0:5 f2048", "F0"),
        (f"@0:3 a0:{MOVABLE} a1 m0 k2048", "F4"),
    ],
)
def test_frees_of_moved_pages_are_told_by_owner(tmp_path: Path, script: str, events: str) -> None:
    """Pages 2048 and 2049 were seen before, so that they came unseen since."""
    seen = "@0:2 a2048 a2049 f2048 f2049"
    trace = Files(f"{script.partition(' m')[0]} {seen} m{script.partition(' m')[2]}").trace(
        tmp_path
    )
    demand = resolve_demand(trace, small_machine(), ELASTIC)
    assert told(demand).split("F3 ")[1].removeprefix("h4 ") == events


def test_kernel_memory_that_reclaim_freed_goes_when_it_went(tmp_path: Path) -> None:
    """No LRU list has it, so that the model's reclaim does not take it (T10.10, S10.8)."""
    words = f"a0:{MOVABLE} a1:GFP_KERNEL a2:{SLAB} k0 k1 k2"
    demand = resolve_demand(Files(words).trace(tmp_path), small_machine(), ELASTIC)
    frees = demand.events[demand.events["operation"] == at.FREE]
    by_reclaim = frees["bits"] & pr.FREED_BY_RECLAIM == pr.FREED_BY_RECLAIM
    assert by_reclaim.tolist() == [True, False, False]


def test_a_page_in_the_cache_throughout_gets_a_place_of_the_start(tmp_path: Path) -> None:
    """Two such pages, room for one: the uses of the other are left out."""
    demand = resolve_demand(Files("p0:0 q5:6 q5:5").trace(tmp_path), small_machine(), ELASTIC)
    assert demand.unplaced_pages == 2
    lru = np.zeros(END_PFN, np.int8)
    lru[0x1900] = pr.INACTIVE_FILE + 1
    placed = with_cached_pages(demand, lru, seed=0)
    assert placed.objects[-1]["pfn"] == 0x1900
    assert told(placed) == "A0 U1 U1"
    assert len(placed.leads) == len(placed.objects)


NO_USES = replace(ELASTIC, elastic=ElasticAssumptions(file_uses=False))


@pytest.mark.parametrize(
    ("script", "assumptions", "events"),
    [
        (AGAIN, NO_USES, "A0 F0 A1 F1"),
        (AGAIN, Assumptions(), "A0 F0 A1 F1"),
        # The first event after what is moved away is the free that takes its place.
        ("a0 m0", Assumptions(), "A0 F0"),
    ],
)
def test_a_literal_replay_keeps_what_was_recorded(
    tmp_path: Path, script: str, assumptions: Assumptions, events: str
) -> None:
    demand = resolve_demand(Files(script).trace(tmp_path), small_machine(), assumptions)
    assert told(demand) == events
    assert demand.stayed_pages == 0


def test_what_an_interrupt_frees_meanwhile_is_freed(tmp_path: Path) -> None:
    trace = Files("a0 a1 m0 m1").trace(tmp_path)
    in_interrupt = np.zeros(len(trace), np.int8)
    in_interrupt[3] = 1
    demand = resolve_demand(replace(trace, in_interrupt=in_interrupt), small_machine(), ELASTIC)
    freed = demand.events[demand.events["operation"] == at.FREE]
    assert freed["object"].tolist() == [1]


def test_recorded_moves_free_no_memory() -> None:
    """On a guest whose kernel compacted, nearly every page freed by it was moved."""
    recording = shipped_recording("highatomic_gate3")
    counted = replay(recording, assumptions=ELASTIC).divergence
    migrated = recording.trace.tables["compaction:mm_compaction_migratepages"]["nr_migrated"].sum()
    assert counted["stayed_pages"] >= 0.99 * int(migrated)


FIRST = "GFP_TRANSHUGE_LIGHT|__GFP_DIRECT_RECLAIM|__GFP_NORETRY|__GFP_THISNODE"
SECOND = "GFP_TRANSHUGE_LIGHT|__GFP_DIRECT_RECLAIM"
ONLY = "GFP_TRANSHUGE_LIGHT|__GFP_THISNODE"


@pytest.mark.parametrize(
    ("script", "leads"),
    [
        # Objects: what was served, in order, then what failed.
        (f"x^9:{FIRST} a0^9:{SECOND} a512:{MOVABLE}", "1: 0>2"),
        (f"x^9:{FIRST} x^9:{SECOND} a0:{MOVABLE}", "2: 0>2 2>1"),
        (f"x^9:{ONLY} x^9:{ONLY} a0:{MOVABLE}", "1: 0>2"),
    ],
)
def test_attempts_at_a_huge_page_are_told_by_their_bits(
    tmp_path: Path, script: str, leads: str
) -> None:
    """S8.5, T10.4: the second one is of the fault of the first."""
    demand = resolve_demand(Script(script).trace(tmp_path), small_machine(), ELASTIC)
    found = [f"{number}>{lead}" for number, lead in enumerate(demand.leads.tolist()) if lead >= 0]
    assert f"{len(found)}: {' '.join(found)}" == leads
