"""Lines that perf's own Python is to write, from the calls that perf makes."""

from __future__ import annotations

import json

import pytest

from pagealloc_model.recording.record import emit_events

ATTR = b"\x02\x00"
Fields = dict[str, object]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is written, by a script that has just begun."""
    for name, value in (("_numbers", {}), ("_fields", []), ("_comms", {}), ("_gfp", {})):
        monkeypatch.setattr(emit_events, name, value)
    lines: list[str] = []
    monkeypatch.setattr(emit_events, "_write", lines.append)
    return lines


def call(name: str, fields: Fields, *, time: int, tid: int = 7, comm: str = "make") -> None:
    """As perf calls for one event."""
    sample = {
        "ev_name": name,
        "attr": ATTR,
        "sample": {"tid": tid, "time": time, "cpu": 1},
    }
    common = {"common_comm": comm, "common_pid": tid}
    emit_events.trace_unhandled(name, None, common | fields, sample)


def lines_of(written: list[str]) -> list[list[object]]:
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in written)
    return [json.loads(line) for line in written]


def test_an_event_s_fields_are_told_once_before_its_first(written: list[str]) -> None:
    call("kmem:mm_page_alloc", {"pfn": 5, "order": 0}, time=10)
    call("kmem:mm_page_free", {"pfn": 5}, time=20)
    call("kmem:mm_page_alloc", {"order": 3, "pfn": 8}, time=30)
    assert lines_of(written) == [
        ["event", 0, "kmem:mm_page_alloc", ["pfn", "order"], ATTR.hex()],
        ["name", 7, "make"],
        [0, 10, 1, 7, [5, 0]],
        ["event", 1, "kmem:mm_page_free", ["pfn"], ATTR.hex()],
        [1, 20, 1, 7, [5]],
        [0, 30, 1, 7, [8, 3]],
    ]


def test_a_thread_s_name_is_told_where_it_changes(written: list[str]) -> None:
    """Threads below zero come from perf as numbers of 32 bits."""
    for tid, comm in ((7, "make"), (8, "make"), (7, "cc1"), (7, "cc1"), ((1 << 32) - 1, "perf")):
        call("kmem:mm_page_free", {}, time=1, tid=tid, comm=comm)
    named = [line[1:] for line in lines_of(written) if line[0] == "name"]
    assert named == [[7, "make"], [8, "make"], [7, "cc1"], [-1, "perf"]]


def test_bytes_are_text_up_to_their_first_zero(written: list[str]) -> None:
    call("a:b", {"short": b"zone\0rest", "long": bytearray(b"\xff\0")}, time=1)
    assert lines_of(written)[-1] == [0, 1, 1, 7, ["zone", "\ufffd"]]


def test_flags_of_allocations_are_told_at_the_end(written: list[str]) -> None:
    event, field = "kmem__mm_page_alloc", "gfp_flags"
    emit_events.define_flag_value(event, field, "1024", "__GFP_DIRECT_RECLAIM")
    emit_events.define_flag_value(event, field, "0", "none")
    emit_events.define_flag_value(event, "migratetype", "1", "MOVABLE")
    emit_events.define_flag_value("kmem__kmalloc", field, "2048", "GFP_OTHER")
    emit_events.trace_end()
    assert lines_of(written) == [["gfp", {"__GFP_DIRECT_RECLAIM": 1024}], ["end"]]
