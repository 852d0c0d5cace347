"""The command that says how long tasks stalled in direct reclaim and compaction."""

from __future__ import annotations

import argparse

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.table import Cell, Column, Table
from pagealloc_model.base.text import NOT_AVAILABLE, TERMINAL, count_of
from pagealloc_model.cli.arguments import Commands, add_command, add_json, json_text

SHOWN = 30
_NS_PER_MS = 1e6


def add_stalls(commands: Commands) -> None:
    """Add `pagealloc stalls`."""
    parser = add_command(
        commands,
        "stalls",
        run_stalls,
        "print how long tasks stalled in direct reclaim and compaction, by task and order",
        example="pagealloc stalls mixed_6.1",
        more="""
        A perf.data, trace.dat or text will do that has only mm_vmscan_direct_reclaim_begin and
        _end, or mm_compaction_begin and _end; with mm_compaction_try_to_compact_pages compaction
        has its order, too. kswapd and kcompactd are left out.""",
    )
    parser.add_argument("path", metavar="PATH", help="a recording, or its event file alone")
    parser.add_argument(
        "--top", type=int, metavar="N", default=SHOWN, help=f"rows to print (default: {SHOWN})"
    )
    add_json(parser)


def run_stalls(options: argparse.Namespace) -> int:
    """Print the largest totals."""
    import pandas as pd

    from pagealloc_model.measured.memory_stalls import SPANS
    from pagealloc_model.measured.task_stalls import stalls_by_task
    from pagealloc_model.recording.event_files import event_file_of, read_events
    from pagealloc_model.recording.recording import located
    from pagealloc_model.recording.trace import tracepoints as tp

    path = located(options.path)
    if path.is_dir():
        path = event_file_of(path) or path
    trace = read_events(path, needs_pages=False)
    if not any(begin in trace.tables and end in trace.tables for begin, end in SPANS.values()):
        raise UsageError(
            f"{options.path}: has no beginnings and ends of direct reclaim or compaction; record "
            f"with -e {' -e '.join(tp.DIRECT_RECLAIM)} -e 'compaction:mm_compaction_*'"
        )
    table = stalls_by_task(trace)
    if options.json:
        print(json_text({"source": str(options.path), "stalls": table}))
        return 0
    total = table["total_ns"].sum() / _NS_PER_MS
    stalls = count_of(int(table["stalls"].sum()), "stall")
    print(f"{stalls} of {count_of(table['pid'].nunique(), 'task')}, {total:,.1f} ms in all")
    if table.empty:
        return 0
    rows = [
        [
            f"{row.task or NOT_AVAILABLE} {row.pid}",
            row.cause,
            NOT_AVAILABLE if pd.isna(row.order) else str(row.order),
            row.stalls,
            *(
                Cell(shown=f"{ns / _NS_PER_MS:.3f}", number=ns)
                for ns in (row.total_ns, row.median_ns, row.longest_ns)
            ),
        ]
        for row in table.head(max(options.top, 0)).astype({"order": object}).itertuples()
    ]
    columns = [
        Column(title="task, pid", words=True),
        Column(title="cause", words=True),
        *("order", "stalls", "total ms", "median ms", "longest ms"),
    ]
    print(Table(columns, rows, grouped=False).to_text(TERMINAL))
    left = len(table) - len(rows)
    if left > 0:
        print(f"{count_of(left, 'further row')} (--top)")
    return 0
