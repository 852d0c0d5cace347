"""A recording's events for other tools: Parquet tables, or text as `perf script` prints it."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.files import new_directory
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, EVENT_NAMES, Event, Trace
from pagealloc_model.recording.trace.formats import gfp_names
from pagealloc_model.recording.trace.side_tables import CHAIN_COLUMNS, FIELD_SUFFIX, KEY_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

    from pagealloc_model.recording.recording import Recording

PARQUET, TEXT = "parquet", "text"
FORMATS = (PARQUET, TEXT)
EVENTS_TABLE, LOSSES_TABLE = "events", "losses"
_ROWS_AT_A_TIME = 1 << 20
_LINES_AT_A_TIME = 1 << 14
_NAMES = {kind: name for name, kind in EVENT_NAMES.items()}
_EXTFRAG = _NAMES[Event.EXTFRAG]
_GFP_FIELDS = ("gfp_flags", "gfp_mask")
_BLANK = re.compile(r"\s+")


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What an export wrote.

    Attributes:
        path: the file or directory.
        rows: rows by table, or lines of events under "events".
    """

    path: Path
    rows: Mapping[str, int]


def export_recording(recording: Recording, destination: Path, to: str) -> Exported:
    """Write a recording's events in a format that other tools open.

    Parquet: a directory with `events.parquet`, all columns of the trace with names of events and
    threads; `SYSTEM.EVENT.parquet` for each other tracepoint; `losses.parquet`. Text: what
    `perf script --ns` prints, which `open_recording` reads again; it has no call chains, does not
    say what happened in interrupts, and names of gfp bits stand for these.

    Args:
        recording: whose events, from where it begins.
        destination: a new directory for Parquet, a new file for text.
        to: one of `FORMATS`.

    Raises:
        RecordingError: the events cannot be read.
        UsageError: another format, or the destination exists or cannot be written.
    """
    trace = recording.trace
    if to == PARQUET:
        return _write_parquet(trace, destination)
    if to == TEXT:
        return _write_text(trace, destination)
    raise UsageError(f"{to}: no format to export to; {' and '.join(FORMATS)} are")


def _write_parquet(trace: Trace, destination: Path) -> Exported:
    import pyarrow as pa

    names = dict(trace.comms)
    kinds = pa.array([_NAMES[kind] for kind in Event])
    rows = {EVENTS_TABLE: len(trace)}
    losses = trace.losses

    def events(part: slice) -> pa.Table:
        columns = {name: getattr(trace, name)[part] for name in COLUMN_TYPES}
        columns["event"] = pa.DictionaryArray.from_arrays(
            pa.array(columns["event"].astype(np.int8)), kinds
        )
        threads, inverse = np.unique(columns["pid"], return_inverse=True)
        columns["comm"] = pa.DictionaryArray.from_arrays(
            pa.array(inverse.astype(np.int32)),
            pa.array([names.get(thread, "") for thread in threads.tolist()], pa.string()),
        )
        return pa.table(columns)

    def lost(part: slice) -> pa.Table:
        columns = ("cpu", "start_ns", "end_ns", "count")
        return pa.table({name: getattr(losses, name)[part] for name in columns})

    with new_directory(destination, private=True) as partial:
        _write_table(partial / f"{EVENTS_TABLE}.parquet", events, len(trace))
        _write_table(partial / f"{LOSSES_TABLE}.parquet", lost, len(losses.count))
        rows[LOSSES_TABLE] = len(losses.count)
        for event, table in trace.tables.items():
            name = event.replace(":", ".")
            rows[name] = len(table["time_ns"])
            _write_table(partial / f"{name}.parquet", _rows_of(table), rows[name])
    return Exported(path=destination, rows=rows)


def _rows_of(table: Mapping[str, np.ndarray]) -> Callable[[slice], pa.Table]:
    import pyarrow as pa

    def rows(part: slice) -> pa.Table:
        return pa.table(
            {
                name: pa.array(column[part], pa.string() if column.dtype == object else None)
                for name, column in table.items()
                if name not in CHAIN_COLUMNS
            }
        )

    return rows


def _write_table(path: Path, piece: Callable[[slice], pa.Table], rows: int) -> None:
    import pyarrow.parquet as pq

    first = piece(slice(0, 0))
    with pq.ParquetWriter(path, first.schema, compression="zstd") as writer:
        for begin in range(0, rows, _ROWS_AT_A_TIME):
            writer.write_table(piece(slice(begin, min(begin + _ROWS_AT_A_TIME, rows))))


def _write_text(trace: Trace, destination: Path) -> Exported:
    if destination.exists():
        raise UsageError(f"{destination} exists; give a new name with -o")
    partial = destination.with_name(f".{destination.name}.partial")
    lines = 0
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(f"# os release : {trace.release}\n# nrcpus online : {trace.nr_cpus}\n")
            pending = []
            for line in _lines(trace):
                pending.append(line)
                lines += 1
                if len(pending) == _LINES_AT_A_TIME:
                    file.write("".join(pending))
                    pending.clear()
            file.write("".join(pending))
        partial.rename(destination)
    except OSError as error:
        raise UsageError(f"{destination}: cannot be written ({error.strerror})") from None
    finally:
        partial.unlink(missing_ok=True)
    return Exported(path=destination, rows={EVENTS_TABLE: lines})


def _lines(trace: Trace) -> Iterator[str]:
    """All events and losses as lines, in order."""
    gfp = _GfpText(trace)
    streams = [_main_lines(trace, gfp), _loss_lines(trace)]
    streams += [
        _table_lines(trace, name, table, gfp)
        for name, table in trace.tables.items()
        if name != _EXTFRAG
    ]
    for *_, line in heapq.merge(*streams, key=lambda each: each[:2]):
        yield line


class _GfpText:
    """gfp words as the kernel prints them, each decoded once."""

    def __init__(self, trace: Trace) -> None:
        self._bits = trace.gfp_bits
        self._known: dict[int, str] = {}

    def __call__(self, word: int) -> str:
        if word not in self._known:
            self._known[word] = gfp_names(word, self._bits)
        return self._known[word]


def _head(trace: Trace, thread: int, cpu: int, time_ns: int) -> str:
    comm = trace.comms.get(thread) or f":{thread}"
    return f"{comm:>16} {thread:6d} [{cpu:03d}] {time_ns // 10**9}.{time_ns % 10**9:09d}: "


def _main_lines(trace: Trace, gfp: _GfpText) -> Iterator[tuple[int, int, str]]:
    extfrag = trace.tables.get(_EXTFRAG)
    fallbacks = 0
    for begin in range(0, len(trace), _ROWS_AT_A_TIME):
        part = slice(begin, begin + _ROWS_AT_A_TIME)
        columns = (getattr(trace, name)[part].tolist() for name in COLUMN_TYPES)
        for row, values in enumerate(zip(*columns, strict=True), begin):
            time_ns, cpu, pid, kind, pfn, order, word, migratetype, refill, _ = values
            page = f"page={hex(pfn) if pfn >= 0 else '(nil)'} pfn={max(pfn, 0):#x}"
            if kind == Event.EXTFRAG and extfrag is not None:
                body = _fields(extfrag, fallbacks, gfp)
                fallbacks += 1
            elif kind == Event.EXTFRAG:
                body = f"{page} alloc_order={order} alloc_migratetype={migratetype}"
            else:
                body = f"{page} order={order}"
                if migratetype >= 0:
                    body += f" migratetype={migratetype}"
                if kind == Event.ALLOC:
                    body += f" gfp_flags={gfp(word)}"
                if refill >= 0:
                    body += f" percpu_refill={refill}"
            head = _head(trace, pid, cpu, time_ns)
            yield row, time_ns, f"{head}{_NAMES[Event(kind)]}: {body}\n"


def _table_lines(
    trace: Trace, name: str, table: Mapping[str, np.ndarray], gfp: _GfpText
) -> Iterator[tuple[int, int, str]]:
    for index in range(len(table["time_ns"])):
        time_ns, cpu, pid, row = (int(table[column][index]) for column in KEY_COLUMNS)
        head = _head(trace, pid, cpu, time_ns)
        # Of events at one place the earlier come first; main row `row` follows them all.
        yield (
            row,
            min(time_ns, _time_of(trace, row)) - 1,
            f"{head}{name}: {_fields(table, index, gfp)}\n",
        )


def _time_of(trace: Trace, row: int) -> int:
    return int(trace.time_ns[min(row, len(trace) - 1)])


def _fields(table: Mapping[str, np.ndarray], index: int, gfp: _GfpText) -> str:
    words = []
    for column, values in table.items():
        if column in KEY_COLUMNS + CHAIN_COLUMNS:
            continue
        words.append(f"{column.removesuffix(FIELD_SUFFIX)}={_shown(column, values[index], gfp)}")
    return " ".join(words)


def _shown(column: str, value: Any, gfp: _GfpText) -> str:
    if column in _GFP_FIELDS and not isinstance(value, str):
        return gfp(int(value))
    if isinstance(value, str):
        return _BLANK.sub("_", value) or "-"
    return hex(int(value)) if column.endswith(("addr", "pfn")) else str(int(value))


def _loss_lines(trace: Trace) -> Iterator[tuple[int, int, str]]:
    losses = trace.losses
    order = np.argsort(losses.end_ns, kind="stable")
    for index in order.tolist():
        end_ns, cpu = int(losses.end_ns[index]), max(int(losses.cpu[index]), 0)
        row = int(np.searchsorted(trace.time_ns, end_ns))
        line = f"PERF_RECORD_LOST lost {int(losses.count[index])}\n"
        yield row, -1, _head(trace, 0, cpu, end_ns) + line
