"""Stalls by task and order, of traces that have these events alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pagealloc_model.cli.main import main
from pagealloc_model.measured.task_stalls import stalls_by_task
from pagealloc_model.recording.event_files import read_events
from tests import synthetic_perf_data as perf
from tests.trace_dat_writer import Pages, event, page, tracepoint_texts, write_trace_dat

COMPACTED = Path(__file__).parents[1] / "recording/trace/samples/compaction.data.xz"
COMPACTED_NS = (12022, 1959344, 67392229, 12674, 2184204, 387212)
"""Spans of each zone, by `perf script --ns`."""
GFP = "gfp_flags=GFP_KERNEL"
TRACE = f"""\
# tracer: nop
#
          task-7     [002] .....  1.000100: mm_vmscan_direct_reclaim_begin: order=0 {GFP}
          task-7     [002] .....  1.000300: mm_vmscan_direct_reclaim_end: nr_reclaimed=64
          task-7     [002] .....  2.000000: mm_vmscan_direct_reclaim_begin: order=3 {GFP}
         other-8     [001] .....  2.000100: mm_compaction_try_to_compact_pages: order=9 {GFP} prio=1
         other-8     [001] .....  2.000200: mm_compaction_begin: zone_start=0x1 mode=async
     kcompactd0-9    [000] .....  2.000300: mm_compaction_begin: zone_start=0x1 mode=sync
          task-7     [002] .....  2.000900: mm_vmscan_direct_reclaim_end: nr_reclaimed=9
          task-7     [002] .....  3.000000: mm_vmscan_direct_reclaim_begin: order=0 {GFP}
          task-7     [002] .....  3.000100: mm_vmscan_direct_reclaim_end: nr_reclaimed=1
     kcompactd0-9    [000] .....  3.000300: mm_compaction_end: zone_start=0x1 mode=sync status=1
         other-8     [001] .....  3.500200: mm_compaction_end: zone_start=0x1 mode=async status=1
         third-6     [001] .....  4.000000: mm_vmscan_direct_reclaim_begin: order=0 {GFP}
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.txt"
    path.write_text(TRACE)
    return path


def test_stalls_are_summed_by_task_cause_and_order(trace: Path) -> None:
    """Kcompactd's run, and a stall whose end was not seen, are left out."""
    table = stalls_by_task(read_events(trace, needs_pages=False))
    rows = table[["task", "cause", "order", "stalls", "total_ns", "median_ns", "longest_ns"]]
    assert rows.values.tolist() == [
        ["other", "direct compaction", 9, 1, 1_500_000_000, 1_500_000_000, 1_500_000_000],
        ["task", "direct reclaim", 3, 1, 900_000, 900_000, 900_000],
        ["task", "direct reclaim", 0, 2, 300_000, 150_000, 200_000],
    ]


def test_the_order_of_compaction_is_not_known_without_its_event(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("".join(line for line in TRACE.splitlines(True) if "try_to" not in line))
    table = stalls_by_task(read_events(path, needs_pages=False))
    assert table["order"].isna().tolist() == [True, False, False]


BEGIN = perf.Tracepoint(
    "vmscan:mm_vmscan_direct_reclaim_begin",
    601,
    (("int order", 4, True), ("unsigned long gfp_flags", 8, False)),
)
END = perf.Tracepoint(
    "vmscan:mm_vmscan_direct_reclaim_end", 602, (("unsigned long nr_reclaimed", 8, False),)
)


def test_a_trace_dat_with_these_events_alone_will_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = ((0, BEGIN.raw(7, order=2)), (9000, END.raw(7, nr_reclaimed=3)))
    pages = Pages(
        cpus={0: page(1000, *(event(delta, raw) for delta, raw in events))},
        event_texts=tracepoint_texts(BEGIN, END),
    )
    path = write_trace_dat(tmp_path / "trace.dat", pages)
    (row,) = stalls_by_task(read_events(path, needs_pages=False)).itertuples()
    assert (row.task, row.pid, row.order, row.total_ns) == ("task", 7, 2, 9000)
    assert main(["stalls", str(path)]) == 0
    assert "1 stall of 1 task, 0.0 ms in all" in capsys.readouterr().out


def test_a_perf_data_recorded_while_a_task_compacted_all_memory(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Twice, of a 6.18: `perf record -a` while a shell wrote to vm.compact_memory.

    The kernel names no order then.
    """
    table = stalls_by_task(read_events(COMPACTED, needs_pages=False))
    (row,) = table.itertuples()
    assert (row.task, row.cause, row.stalls) == ("sh", "direct compaction", 6)
    assert row.total_ns == sum(COMPACTED_NS) and row.longest_ns == max(COMPACTED_NS)
    assert main(["stalls", str(COMPACTED)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("6 stalls of 1 task, 71.9 ms in all")
    assert re.search(r"sh 4086 +direct compaction +NA +6 ", printed)


def test_a_perf_data_with_these_events_alone_will_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin, end = perf.attr_of(BEGIN, [1]), perf.attr_of(END, [2])
    records = [
        perf.sample(begin, BEGIN.raw(order=2), number=1, time=1000),
        perf.sample(end, END.raw(nr_reclaimed=3), number=2, time=6000),
    ]
    path = perf.write(tmp_path / "perf.data", [begin, end], records, (BEGIN, END))
    (row,) = stalls_by_task(read_events(path, needs_pages=False)).itertuples()
    assert (row.pid, row.order, row.total_ns) == (77, 2, 5000)
    assert main(["info", str(path)]) == 2
    assert "has no kmem:mm_page_alloc events" in capsys.readouterr().err
