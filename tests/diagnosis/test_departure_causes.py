"""What tells one cause of a departure from another, on events made by hand.

That causes add up to all departures is tested on a recording, in test_page_for_page.py.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.diagnosis import departure_causes
from pagealloc_model.predicted.demand.event_order import new_events
from tests.event_text import EventText


def pages_seen(events: EventText, directory: Path, *scans: tuple[int, int, int]) -> Any:
    """What the events say of pages; scans of compaction are (time, page frame, order)."""
    taken = new_events(at.ISOLATE_FREE, len(scans), object=np.arange(len(scans)))
    objects = np.zeros(len(scans), resolved.OBJECT)
    for number, (time_ns, pfn, order) in enumerate(scans):
        taken["time_ns"][number], taken["order"][number] = time_ns, order
        objects["pfn"][number] = pfn
    demand = SimpleNamespace(events=taken, objects=objects)
    found = SimpleNamespace(prepared=SimpleNamespace(demand=demand))
    return departure_causes._PagesSeen(events.trace(directory), cast("Any", found), None)


def test_the_next_event_of_a_page_says_where_the_kernel_has_it(tmp_path: Path) -> None:
    events = EventText()
    events.alloc(1)
    events.free(16)
    events.locked(24, order=3)
    events.drained(40)
    events.fallback(50, found=3, owned=0)
    events.alloc(50, order=1)
    seen = pages_seen(events, tmp_path)
    assert [seen.place(pfn, 1) for pfn in (16, 24, 31, 40, 51)] == [
        "in use",
        "free",
        "free",
        "per-CPU",
        "per-CPU",
    ]
    assert seen.place(99, 1) == ""
    assert seen.rows(50).tolist() == [5]


def test_a_drain_without_event_is_seen_by_the_refill_behind_it(tmp_path: Path) -> None:
    events = EventText()
    for pfn in (1, 2):
        events.free(pfn)
    events.drained(2)
    events.locked(1, 2)
    seen = pages_seen(events, tmp_path)
    assert seen.freed_past_lists(1, 3) == 0
    assert seen.freed_past_lists(2, 4) == -1


def test_a_preempted_request_has_its_page_before_its_event(tmp_path: Path) -> None:
    events = EventText()
    events.on(cpu=0, pid=5).alloc(9)
    events.on(cpu=0, pid=5).alloc(10)
    events.on(cpu=1, pid=7).alloc(8)
    events.on(cpu=1, pid=7).alloc(11)
    events.on(cpu=0, pid=5).free(9)
    seen = pages_seen(events, tmp_path)
    assert seen.is_taken_before(8, 0)
    assert not seen.is_taken_before(11, 0)
    assert not seen.is_taken_before(10, 0)
    assert not seen.is_taken_before(9, 1)


def test_a_scan_of_compaction_has_a_page_until_its_next_event(tmp_path: Path) -> None:
    events = EventText()
    events.free(8)
    events.alloc(1)
    events.free(9)
    events.alloc(2)
    seen = pages_seen(events, tmp_path, (1_000_000_500, 8, 1))
    assert seen.is_isolated(8, 1)
    assert not seen.is_isolated(8, 0)
    assert not seen.is_isolated(9, 3)


def test_another_cpu_is_amid_its_refill_or_drain(tmp_path: Path) -> None:
    events = EventText()
    events.on(cpu=1, pid=7).drained(1)
    events.on(cpu=0, pid=5).alloc(9)
    events.on(cpu=1, pid=7).drained(2)
    events.on(cpu=0, pid=5).alloc(10)
    events.on(cpu=1, pid=7).free(3)
    seen = pages_seen(events, tmp_path)
    assert departure_causes._is_amid_transaction(seen, 1)
    assert not departure_causes._is_amid_transaction(seen, 3)
