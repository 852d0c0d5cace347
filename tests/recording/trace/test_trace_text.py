"""Text of ftrace: lines of trace-cmd and of tracefs, losses, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.recording import open_recording
from pagealloc_model.recording.trace.columns import Event, Trace

ALLOC = "mm_page_alloc: page=0x12 pfn=0x12 order=2 migratetype=1 gfp_flags=GFP_KERNEL|__GFP_COMP"
FREE = "mm_page_free:         page=00000000ecd1cdbe pfn=0x12 order=2"


def read(tmp_path: Path, *lines: str) -> Trace:
    path = tmp_path / "events.txt"
    path.write_text("\n".join(lines) + "\n")
    return open_recording(path).trace


def test_lines_of_tracefs(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        "# tracer: nop",
        "# entries-in-buffer/entries-written: 4/4   #P:16",
        f"          <idle>-0       [003] d.h2.  5937.598961: {ALLOC}",
        f" kworker/0:1-e-v-7154    (   7154) [000] ..s..  5937.700001: {FREE}",
        "##### CPU 2 buffer started ####",
        f"           <...>-9       [002] .....  5937.800000: {FREE}",
        "     a b-8413     [001] .....  5937.900000: contention_begin: 00000000ab (flags=SPIN)",
        " => some_function",
    )
    assert trace.event.tolist() == [Event.ALLOC, Event.FREE, Event.FREE]
    assert trace.time_ns.tolist() == [5937598961000, 5937700001000, 5937800000000]
    assert (trace.cpu.tolist(), trace.pid.tolist()) == ([3, 0, 2], [0, 7154, 9])
    assert trace.in_interrupt.tolist() == [1, 1, 0] and trace.nr_cpus == 16
    assert trace.comms[7154] == "kworker/0:1-e-v" and 9 not in trace.comms
    assert trace.gfp.tolist()[0] == 0x40CC0 and trace.tables["lock:contention_begin"]["row"] == [3]
    assert len(trace.notes) == 2 and "microsecond" in trace.notes[0]


def test_lines_of_trace_cmd(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        "cpus=2",
        f"  task-7  [000] 12.000000001: {ALLOC}",
        f"  task-7  [001] d..1.   12.000000005: {FREE}",
        "  task-7  [001] 12.000000009: mm_page_alloc:  page=(nil) pfn=0x0 order=9 migratetype=1 "
        "gfp_flags=GFP_TRANSHUGE",
    )
    assert trace.time_ns.tolist() == [12_000_000_001, 12_000_000_005, 12_000_000_009]
    assert trace.pfn.tolist() == [0x12, 0x12, -1] and trace.in_interrupt.tolist() == [-1, 0, -1]
    assert len(trace.notes) == 1 and "clock" in trace.notes[0]


def test_losses_lie_where_they_are_marked(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        "# tracer: nop",
        "# entries-in-buffer/entries-written: 4/60   #P:2",
        f"  t-1 [000] ..... 1.000001: {ALLOC}",
        f"  t-1 [001] ..... 1.000002: {FREE}",
        "CPU:0 [LOST 12 EVENTS]",
        "CPU:1 [3 EVENTS DROPPED]",
        f"  t-1 [001] ..... 1.000004: {ALLOC}",
        f"  t-1 [000] ..... 1.000005: {FREE}",
        "CPU:1 [EVENTS DROPPED]",
    )
    losses = trace.losses
    assert losses.cpu.tolist() == [1, 0, 1, -1] and losses.count.tolist() == [3, 12, 1, 40]
    assert (losses.start_ns // 1000).tolist() == [1000002, 1000001, 1000004, 1000001]
    assert (losses.end_ns // 1000).tolist() == [1000004, 1000005, 1000005, 1000002]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (f"  t-1 [000]64670027081675: {ALLOC}", "line 3 .*clock gives no seconds"),
        ("  t-1 [000] 1.000000: mm_page_free: page=0x1", "line 3 has no pfn"),
        (f"  t-1 [000] 1.000000: {ALLOC.replace('GFP_KERNEL', 'GFP_WRONG')}", "GFP_WRONG"),
        (f"  t-1 [99999] 1.000000: {ALLOC}", "line 3 has a CPU"),
        ("what is this", "line 3 is no text of ftrace"),
    ],
)
def test_lines_that_are_refused(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(RecordingError, match=problem):
        read(tmp_path, "cpus=2", f"  t-1 [000] 1.000000: {ALLOC}", line)


def test_text_without_events_of_the_page_allocator(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"no page-allocator event.*trace-cmd report"):
        read(tmp_path, "# tracer: nop", "# comment")


def test_a_cut_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "events.txt"
    path.write_text(f"cpus=1\n  t-1 [000] 1.000000: {ALLOC}\n  t-1 [000] 1.000001: mm_page_fr")
    trace = open_recording(path).trace
    assert len(trace) == 1 and "cut short in line 3" in trace.notes[0]


def test_lines_of_bpftrace(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        "Attaching 5 probes...",
        "b-7 [000] 12.000000009: mm_page_free: pfn=0x12 order=2",
        "Lost 30 events",
        "a-7 [001] 12.000000001: mm_page_alloc: pfn=0x12 order=2 migratetype=1 gfp_flags=0xcc0",
        "a-7 [001] 12.000000002: mm_page_alloc: pfn=0xffffffffffffffff order=9 migratetype=1 "
        "gfp_flags=0x20",
    )
    assert trace.time_ns.tolist() == [12_000_000_001, 12_000_000_002, 12_000_000_009]
    assert trace.pfn.tolist() == [0x12, -1, 0x12] and trace.gfp.tolist() == [0xCC0, 0x20, 0]
    losses = trace.losses
    assert (losses.cpu.tolist(), losses.count.tolist()) == ([-1], [30])
    assert losses.start_ns[0] == trace.time_ns[0] and losses.end_ns[0] == trace.time_ns[-1]
