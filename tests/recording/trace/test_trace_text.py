"""Text of events, of perf script and of ftrace: fields it may carry, losses, what is refused."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.recording import open_recording
from pagealloc_model.recording.trace.columns import Event, Trace
from pagealloc_model.recording.trace.trace_text import read_perf_script

ALLOC = "kmem:mm_page_alloc: page=0x126dac pfn=0x126dac order=2 migratetype=1"
FREE = "kmem:mm_page_free: page=0x1c4c87 pfn=0x1c4c87 order=3"


TRACED_ALLOC = (
    "mm_page_alloc: page=0x12 pfn=0x12 order=2 migratetype=1 gfp_flags=GFP_KERNEL|__GFP_COMP"
)
TRACED_FREE = "mm_page_free:         page=00000000ecd1cdbe pfn=0x12 order=2"


def read(tmp_path: Path, *lines: str) -> Trace:
    path = tmp_path / "events.txt"
    path.write_text("\n".join(lines) + "\n")
    return open_recording(path).trace


def test_default_fields(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        "# os release : 6.18.44-fc",
        "# nrcpus online : 2",
        f"   perf 11914 [001]  5937.598961:   {ALLOC} gfp_flags=GFP_KERNEL|__GFP_COMP",
        f" kworker/0:1-ev  7154 [000]  5937.700001:  {FREE}",
        "  swapper 0 [000] 5937.800000: kmem:mm_page_free_batched: page=0x5 pfn=0x5 order=0",
        "  bash 8413 [001] 5937.900000: kmem:mm_page_alloc_zone_locked: page=0x108bbc pfn=0x108bbc "
        "order=0 migratetype=2 percpu_refill=1 ffffffff8161aa92 rmqueue+0x562 ([kernel.kallsyms])",
        "  bash 8413 [001] 5938.000000: kmem:mm_page_pcpu_drain: page=0x7 pfn=0x7 order=1 "
        "migratetype=0",
        "  bash 8413 [001] 5938.100000: kmem:mm_page_alloc_extfrag: page=0x131c00 pfn=0x131c00 "
        "alloc_order=2 fallback_order=8 pageblock_order=9 alloc_migratetype=0 "
        "fallback_migratetype=1 fragmenting=1 change_ownership=1",
    )
    assert trace.event.tolist() == [0, 1, 2, 3, 4, 5]
    assert trace.time_ns[0] == 5937598961000
    assert trace.cpu.tolist() == [1, 0, 0, 1, 1, 1]
    assert trace.pid.tolist() == [11914, 7154, 0, 8413, 8413, 8413]
    assert trace.comms[7154] == "kworker/0:1-ev"
    assert trace.order.tolist() == [2, 3, 0, 0, 1, 2]
    assert trace.migratetype.tolist() == [1, -1, -1, 2, 0, 0]
    assert trace.percpu_refill.tolist() == [-1, -1, -1, 1, -1, -1]
    assert trace.gfp[0] == 0xCC0 | 0x40000
    assert (trace.release, trace.nr_cpus) == ("6.18.44-fc", 2)
    extfrag = trace.tables["kmem:mm_page_alloc_extfrag"]
    assert extfrag["fallback_order"].tolist() == [8] and extfrag["row"].tolist() == [5]
    assert "fragmenting" not in extfrag


@pytest.mark.parametrize(
    ("head", "thread", "comm"),
    [
        ("a b 12 c  77/83 [003]", 83, "a b 12 c"),
        ("churn 83 [003]", 83, "churn"),
        ("83 [003]", 83, None),
        *((f"a 7 [003] {mode}  ", 7, "a") for mode in ("K", "U ", "Sp")),
        ("[003]", -1, None),
    ],
)
def test_heads(tmp_path: Path, head: str, thread: int, comm: str | None) -> None:
    trace = read(tmp_path, f"{head} 1.123456789:   1  {FREE}")
    assert trace.time_ns.tolist() == [1123456789]
    assert (trace.cpu[0], trace.pid[0]) == (3, thread)
    assert trace.comms.get(thread) == comm


def test_failed_allocations(tmp_path: Path) -> None:
    """Known by a null page, or where perf cannot format the event by all ones."""
    line = "t 1 [0] 1.000000: kmem:mm_page_alloc: page={} pfn=0x0 order=9 migratetype=1 "
    trace = read(
        tmp_path,
        *(line.format(page) + "gfp_flags=GFP_KERNEL" for page in ("(nil)", "(null)", "0xffee")),
        "t 1 [0] 1.000000: kmem:mm_page_alloc: [FAILED TO PARSE] pfn=0xffffffffffffffff "
        "order=0x1 gfp_flags=0x140dca migratetype=0x1",
    )
    assert trace.pfn.tolist() == [-1, -1, 0, -1]
    assert (trace.order[3], trace.gfp[3]) == (1, 0x140DCA)


def test_side_tables_hold_what_the_text_shows(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        f"t 1 [0] 1.000000: {FREE}",
        "t 1 [0] 1.100000: pa:drain_zone: (ffffffff811a70c9) cpu=2 zone=0xff1100013fffb540",
        "t 1 [0] 1.200000: vmscan:mm_vmscan_direct_reclaim_begin: order=0 gfp_flags=GFP_NOFS",
        "t 1 [0] 1.300000: lock:contention_begin: 0xff110000004e2ec8 (flags=SPIN|READ)",
        "        ffffffff8161f42b native_queued_spin_lock_slowpath+0x2b ([kernel.kallsyms])",
        "",
        f"t 1 [0] 1.400000: {FREE}",
    )
    drain = trace.tables["pa:drain_zone"]
    assert drain["cpu"].tolist() == [0] and drain["cpu_field"].tolist() == [2]
    assert drain["zone"].tolist() == [0xFF1100013FFFB540] and drain["row"].tolist() == [1]
    reclaim = trace.tables["vmscan:mm_vmscan_direct_reclaim_begin"]
    assert reclaim["gfp_flags"].tolist() == [0xC40]
    contention = trace.tables["lock:contention_begin"]
    assert contention["lock_addr"].tolist() == [0xFF110000004E2EC8]
    assert contention["flags"].tolist() == [3]


def test_losses_are_kept(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        f"t 1 [2] 1.000000: {FREE}",
        f"t 1 [1] 1.500000: {FREE}",
        "t 1 [2] 2.000000: PERF_RECORD_LOST lost 34171",
        "t 1 [2] 2.100000: PERF_RECORD_COMM: x:1/1",
    )
    losses = trace.losses
    assert losses.total == 34171
    assert (losses.cpu[0], losses.start_ns[0], losses.end_ns[0]) == (2, 10**9, 2 * 10**9)


def test_lines_out_of_order_are_sorted_stably(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        f"t 1 [0] 2.000000: {FREE}",
        "t 1 [0] 1.000000: kmem:mm_page_free: page=0x1 pfn=0x1 order=0",
        "t 1 [0] 1.000000: kmem:mm_page_free: page=0x2 pfn=0x2 order=0",
    )
    assert trace.pfn.tolist() == [1, 2, 0x1C4C87]


def test_names_whose_bits_vary_are_dropped_with_a_warning(tmp_path: Path) -> None:
    line = f"t 1 [0] 1.000000: {ALLOC} gfp_flags=GFP_NOIO|__GFP_NOLOCKDEP|0x4000000"
    with pytest.warns(UserWarning, match="0x4000000, __GFP_NOLOCKDEP"):
        trace = read(tmp_path, line)
    assert trace.gfp.tolist() == [0xC00]


@pytest.mark.parametrize(("release", "word"), [("6.1.12", 0xA20), ("6.12.1", 0x820)])
def test_atomic_follows_the_release(tmp_path: Path, release: str, word: int) -> None:
    line = f"t 1 [0] 1.000000: {ALLOC} gfp_flags=GFP_ATOMIC"
    assert read(tmp_path, f"# os release : {release}", line).gfp.tolist() == [word]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"t 1 1.000000: {FREE}", r"line 1 has no \[cpu\]; add cpu to perf script's -F"),
        (f"t 1 [0] {FREE}", "line 1 has no time; add time to perf script's -F"),
        ("t 1 [0] 1.000000: page=0x1 pfn=0x1", "line 1 names no event; add event"),
        ("t 1 [0] 1.000000: kmem:mm_page_free:", "line 1 has no pfn; add trace"),
        ("t 1 [0] 1.000000: kmem:mm_page_free: page=0x1 pfn=0x1 order=x", "is not a number"),
        ("t 1 [0] 1.000000: kmem:mm_page_free: page=0x1 pfn=0x1 order=300", "out of any kernel's"),
        ("t 1 [0] 1.000000: kmem:mm_page_free: page=0x1 pfn=0x1 order=63", "out of any kernel's"),
        ("hello world", "line 1 is not perf script output"),
        ("\n".join(f"t 1 [0] 0.00000{n}: {FREE}" for n in (0, 9, 5)), "differences of times"),
        (
            "\n".join(f"t 1 [0] 0.00000{n % 7 + 1}: {FREE}" for n in range(0, 900, 3)),
            "differences of times",
        ),
        ("", "holds no page-allocator event"),
        (
            "t 1 [0] 1.000000: sched:sched_switch: prev_pid=1",
            "only sched_switch; record with -e km",
        ),
        ("t 1 [0] 1.000000: 25000 cpu-clock: ffff81 f+0x1", "only other events; record with -e k"),
        (f"-5972 [006] .... 7971.248176: {ALLOC[5:]}", "no task name: it was cut off; give the te"),
    ],
)
def test_unusable_text_is_one_clear_error(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(RecordingError, match=message):
        read(tmp_path, line)


@pytest.mark.parametrize(
    "pack", [gzip.compress, lzma.compress, zstandard.ZstdCompressor().compress]
)
def test_archives_are_read_in_place(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "events.txt.packed"
    packed = pack(f"t 1 [0] 1.000000: {FREE}\r\n".encode() * 1000)
    path.write_bytes(packed)
    assert len(read_perf_script(path)) == 1000
    assert len(open_recording(path).trace) == 1000
    path.write_bytes(packed[:-9])
    with pytest.raises(RecordingError, match="not an intact compressed file"):
        read_perf_script(path)


def test_call_chains_are_passed_over(tmp_path: Path) -> None:
    event = f"t 1 [0] 1.000000: {FREE}"
    frames = ("\tffffffff82201d7e", "\tffffffff82201d7e rmqueue ([kernel])", "\trmqueue")
    assert len(read(tmp_path, event, *frames, "", event)) == 2


def test_a_loss_begins_before_all_events_that_may_have_come_after_it(tmp_path: Path) -> None:
    """Those of up to four contexts got their time before the record of the loss got its own."""
    lines = [f"t 1 [2] {second}.000000: {FREE}" for second in range(1, 8)]
    other = f"t 1 [1] 6.500000: {FREE}"
    losses = read(tmp_path, *lines, other, "t 1 [2] 7.000001: PERF_RECORD_LOST lost 3").losses
    assert (losses.start_ns[0], losses.end_ns[0]) == (3_000_000_000, 7_000_001_000)


def test_lines_of_tracefs(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        "# tracer: nop",
        "# entries-in-buffer/entries-written: 4/4   #P:16",
        f"          <idle>-0       [003] d.h2.  5937.598961: {TRACED_ALLOC}",
        f" kworker/0:1-e-v-7154    (   7154) [000] ..s..  5937.700001: {TRACED_FREE}",
        "##### CPU 2 buffer started ####",
        f"           <...>-9       [002] .....  5937.800000: {TRACED_FREE}",
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
        f"  task-7  [000] 12.000000001: {TRACED_ALLOC}",
        f"  task-7  [001] d..1.   12.000000005: {TRACED_FREE}",
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
        f"  t-1 [000] ..... 1.000001: {TRACED_ALLOC}",
        f"  t-1 [001] ..... 1.000002: {TRACED_FREE}",
        "CPU:0 [LOST 12 EVENTS]",
        "CPU:1 [3 EVENTS DROPPED]",
        f"  t-1 [001] ..... 1.000004: {TRACED_ALLOC}",
        f"  t-1 [000] ..... 1.000005: {TRACED_FREE}",
        "CPU:1 [EVENTS DROPPED]",
    )
    losses = trace.losses
    assert losses.cpu.tolist() == [1, 0, 1, -1] and losses.count.tolist() == [3, 12, 1, 40]
    assert (losses.start_ns // 1000).tolist() == [1000002, 1000001, 1000004, 1000001]
    assert (losses.end_ns // 1000).tolist() == [1000004, 1000005, 1000005, 1000002]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (f"  t-1 [000]64670027081675: {TRACED_ALLOC}", "line 3 .*clock that gives no seconds"),
        (f"  t-1 [000] d..1. 64675: {TRACED_ALLOC}", "clock that gives no seconds; .*-C mono"),
        (TRACED_ALLOC, "line 3 has no task, CPU and time; .*options/context-info"),
        (f"  t-1  0d..1. 12us!: {TRACED_ALLOC}", "line 3 is no text of ftrace"),
        (
            f"# nop latency trace v1.1.5 on 6.1\n  t-1  0d..1. 12us!: {TRACED_ALLOC}",
            "line 4 is in the latency format.*options/latency-format",
        ),
        ("  t-1 [000] 1.000000: mm_page_free: page=0x1", "line 3 has no pfn"),
        (f"  t-1 [99999] 1.000000: {TRACED_ALLOC}", "line 3 has a CPU"),
    ],
)
def test_lines_that_are_refused(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(RecordingError, match=problem):
        read(tmp_path, "cpus=2", f"  t-1 [000] 1.000000: {TRACED_ALLOC}", line)


def test_text_without_events_of_the_page_allocator(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"no page-allocator event.*trace-cmd report"):
        read(tmp_path, "# tracer: nop", "# comment")


def test_a_cut_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "events.txt"
    lines = ("cpus=1", f"  t-1 [000] 1.000000: {TRACED_ALLOC}", "  t-1 [000] 1.000001: mm_page_fr")
    path.write_text("\n".join(lines))
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


FLAG_COLUMNS = ("irqs-off/BH-disabled", "need-resched", "hardirq/softirq", "preempt-depth")


def header(*columns: str) -> list[str]:
    """What a tracer writes of the flags' columns."""
    lines = ["# tracer: nop", "#"]
    lines += [f"#   {'|' * place}/ _---=> {name}" for place, name in enumerate(columns)]
    return [
        *lines,
        "#   ||| /     delay",
        "#           TASK-PID     CPU#  ||||  TIMESTAMP  FUNCTION",
    ]


@pytest.mark.parametrize(
    ("columns", "flags", "contexts"),
    [
        (FLAG_COLUMNS, "..h1", [1]),
        ((*FLAG_COLUMNS, "migrate-disable"), "..s1.", [1]),
        (
            (*FLAG_COLUMNS[:2], "need-resched-lazy", *FLAG_COLUMNS[2:], "preempt-lazy-depth"),
            "d.hh1.",
            [1],
        ),
        (
            (*FLAG_COLUMNS[:2], "need-resched-lazy", *FLAG_COLUMNS[2:], "preempt-lazy-depth"),
            "d.h.1.",
            [0],
        ),
        ((), "..h1.", [1]),
        ((), "d..h1..", [-1]),
        (("cannot", "be", "understood", "at all"), "..h1", [-1]),
        (FLAG_COLUMNS, "..h1.", [-1]),
    ],
)
def test_the_header_says_which_flag_is_the_context(
    tmp_path: Path, columns: tuple[str, ...], flags: str, contexts: list[int]
) -> None:
    lines = header(*columns) if columns else []
    trace = read(tmp_path, *lines, f"  t-1  [000] {flags}  1.000000: {TRACED_ALLOC}")
    assert trace.in_interrupt.tolist() == contexts
    assert any("which flag is hardirq" in note for note in trace.notes) == (contexts == [-1])


OTHER_LINES = (
    "  t-1  [000] ..h1  1.000000: <stack trace>",
    " => trace_event_raw_event_mm_page_alloc",
    "  t-1  [000] ....  1.000000: <user stack trace>",
    " =>  <00007f10>",
    "  t-1  [000] ....  1.000000: sys_mmap(addr: 0, len: 0x2000, prot: 3)",
    "  t-1  [000] ....  1.000000: sys_mmap -> 0x7efde5368000",
    "  t-1  [000] ....  1.000000: alloc_pages_mpol_noprof <-vma_alloc_folio_noprof",
    "  t-1  [000] ....  1.000000: tracing_mark_write.llvm.8232: B|992|ion_alloc",
    "CPU 2 is empty",
    "##### CPU 1 buffer started ####",
    "something that nobody foresaw",
)


@pytest.mark.parametrize("line", OTHER_LINES)
def test_a_line_of_another_kind_refuses_nothing(tmp_path: Path, line: str) -> None:
    event = f"  t-1  [000] ....  1.000000: {TRACED_ALLOC}"
    trace = read(tmp_path, event, line, event)
    assert len(trace) == 2


def test_lines_passed_over_are_counted(tmp_path: Path) -> None:
    event = f"  t-1  [000] ....  1.000000: {TRACED_ALLOC}"
    trace = read(tmp_path, event, *OTHER_LINES)
    assert "5 lines passed over: no event that is used" in trace.notes


@pytest.mark.parametrize(
    "line",
    [
        "PERF_RECORD_FINISHED_ROUND",
        "t 1 [000] 1.0000001: 250000 cpu-clock: ffffffff815ba304 snapshot_page+0x324 ([kernel])",
        "t 1 [000] 1.0000001: 250000          cpu-clock:      7f0d2fde7d03 [unknown] (/x.so)",
        "something that nobody foresaw",
    ],
)
def test_other_events_of_perf_script_refuse_nothing(tmp_path: Path, line: str) -> None:
    event = f"t 1 [0] 1.000000: {FREE}"
    assert len(read(tmp_path, event, line, event)) == 2


@pytest.mark.parametrize(
    ("gfp", "word"),
    [
        ("GFP_HIGHUSER_MOVABLE|__GFP_COMP|__GFP_ZERO|__GFP_CMA", 0x100DCA),
        ("GFP_KERNEL|__GFP_REPEAT|__GFP_NOTRACK", 0x4CC0),
        ("GFP_USER|GFP_ZERO|GFP_NOTRACK", 0x100DC0),
    ],
)
def test_a_flag_without_a_known_bit_is_named_and_dropped(
    tmp_path: Path, gfp: str, word: int
) -> None:
    line = f"  t-1  [000] ....  1.000000: {TRACED_ALLOC.replace('GFP_KERNEL', gfp)}"
    with pytest.warns(UserWarning, match=gfp.rpartition("|")[2]):
        assert read(tmp_path, line).gfp.tolist() == [word | 0x40000]


def test_a_tracer_without_times_is_named(tmp_path: Path) -> None:
    lines = ["# tracer: function_graph", "#", f" 0)   |  /* {TRACED_ALLOC} */"]
    with pytest.raises(RecordingError, match=r"tracer function_graph.*record with the nop tracer"):
        read(tmp_path, *lines)
