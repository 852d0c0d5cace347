"""A recording's events for other tools: Parquet tables, or text as `perf script` prints it."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.base.arrays import parts
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.files import (
    file_name_of,
    is_given,
    new_directory,
    new_file,
    written_whole,
)
from pagealloc_model.base.text import escaped
from pagealloc_model.recording.page_frames import NO_HOLES
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, EVENT_NAMES, Event, Trace
from pagealloc_model.recording.trace.formats import gfp_names
from pagealloc_model.recording.trace.side_tables import CHAIN_COLUMNS, FIELD_SUFFIX, KEY_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

    from pagealloc_model.recording.recording import Recording

PARQUET, TEXT = "parquet", "text"
FORMATS = (PARQUET, TEXT)
EVENTS_TABLE, LOSSES_TABLE = "events", "losses"
_NAMES = {kind: name for name, kind in EVENT_NAMES.items()}
_EXTFRAG = _NAMES[Event.EXTFRAG]
_GFP_FIELDS = ("gfp_flags", "gfp_mask")


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The file or directory of an export; rows by table, or lines of events under "events"."""

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
    trace = recording.trace.with_frames(NO_HOLES)
    if to == PARQUET:
        return _write_parquet(trace, destination)
    if to == TEXT:
        return _write_text(trace, destination)
    raise UsageError(f"{to}: no format to export to; {' and '.join(FORMATS)} are")


def _write_parquet(trace: Trace, destination: Path) -> Exported:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = pa.array([_NAMES[kind] for kind in Event])

    def events(part: slice) -> pa.Table:
        columns = {name: getattr(trace, name)[part] for name in COLUMN_TYPES}
        codes = pa.array(columns["event"].astype(np.int8))
        columns["event"] = pa.DictionaryArray.from_arrays(codes, kinds)
        threads, inverse = np.unique(columns["pid"], return_inverse=True)
        names = pa.array([trace.comms.get(tid, "") for tid in threads.tolist()], pa.string())
        codes = pa.array(inverse.astype(np.int32))
        return pa.table({**columns, "comm": pa.DictionaryArray.from_arrays(codes, names)})

    def rows_of(table: Mapping[str, np.ndarray], part: slice) -> pa.Table:
        return pa.table(
            {
                name: pa.array(column[part], pa.string() if column.dtype == object else None)
                for name, column in table.items()
                if name not in CHAIN_COLUMNS
            }
        )

    lost = {name: getattr(trace.losses, name) for name in ("cpu", "start_ns", "end_ns", "count")}
    rows = {EVENTS_TABLE: len(trace), LOSSES_TABLE: len(trace.losses.count)}
    tables = {LOSSES_TABLE: lost}
    for event, table in trace.tables.items():
        name = file_name_of(event)
        name = f"%{name}" if name in (EVENTS_TABLE, LOSSES_TABLE) else name
        tables[name], rows[name] = table, len(table["time_ns"])
    with new_directory(destination, private=True) as directory:
        for name, count in rows.items():
            piece = events if name == EVENTS_TABLE else partial(rows_of, tables[name])
            schema = piece(slice(0)).schema
            with (
                new_file(directory, f"{name}.parquet") as file,
                pq.ParquetWriter(file, schema, compression="zstd") as writer,
            ):
                for part in parts(count):
                    writer.write_table(piece(part))
    return Exported(path=destination, rows=rows)


def _write_text(trace: Trace, destination: Path) -> Exported:
    if is_given(destination):
        raise UsageError(f"{destination} exists; give a new name with -o")
    bits = trace.gfp_bits
    gfp = cache(lambda word: gfp_names(word, bits))
    streams = [_main_lines(trace, gfp), _loss_lines(trace)]
    streams += [
        _table_lines(trace, name, table, gfp)
        for name, table in trace.tables.items()
        if name != _EXTFRAG
    ]
    merged, lines = heapq.merge(*streams, key=lambda line: line[:2]), 0
    release = _word_in_text(trace.release)
    try:
        with (
            written_whole(destination) as unfinished,
            new_file(unfinished.parent, unfinished.name) as file,
        ):
            head = f"# os release : {release}\n" if release else ""
            file.write(f"{head}# nrcpus online : {trace.nr_cpus}\n".encode())
            while pending := [line for *_, line in islice(merged, 1 << 14)]:
                file.write("".join(pending).encode())
                lines += len(pending)
    except OSError as error:
        raise UsageError(f"{destination}: cannot be written ({error.strerror})") from None
    return Exported(path=destination, rows={EVENTS_TABLE: lines})


_Lines = Iterator[tuple[int, int, str]]
"""Lines with the number of main rows before each, and a time to order those of one place by."""


_BLANK_OF_NAME, _ANY_BLANK, _UNSAFE_IN_WORD = r"^\s+|\s+$|^:", r"\s", r"[\s,()]|^[\d-]"
_EVENT_NAME = re.compile(r"[\w-]+:[\w-]+")


def _name_in_text(name: str) -> str:
    """A thread's name so that its line can be told from any other; spaces stay where they can."""
    ambiguous = not {*":[/"}.isdisjoint(name)
    return escaped(name, _ANY_BLANK if ambiguous and " " in name else _BLANK_OF_NAME)


def _word_in_text(text: str) -> str:
    return escaped(text, _UNSAFE_IN_WORD)


def _event_in_text(name: str) -> str:
    """An event's name of the form SYSTEM:EVENT, odd characters replaced."""
    if _EVENT_NAME.fullmatch(name):
        return name
    system, _, event = name.rpartition(":")
    return ":".join(re.sub(r"[^\w-]", "_", part) or "-" for part in (system, event))


def _head(trace: Trace, thread: int, cpu: int, time_ns: int) -> str:
    comm = _name_in_text(trace.comms.get(thread, "")) or f":{thread}"
    return f"{comm:>16} {thread:6d} [{cpu:03d}] {time_ns // 10**9}.{time_ns % 10**9:09d}: "


def _main_lines(trace: Trace, gfp: Callable[[int], str]) -> _Lines:
    extfrag, fallbacks = trace.tables.get(_EXTFRAG), count()
    for part in parts(len(trace)):
        columns = (getattr(trace, name)[part].tolist() for name in COLUMN_TYPES)
        for row, values in enumerate(zip(*columns, strict=True), part.start):
            time_ns, cpu, pid, kind, pfn, order, word, migratetype, refill, _ = values
            body = f"page={hex(pfn) if pfn >= 0 else '(nil)'} pfn={max(pfn, 0):#x}"
            if kind == Event.EXTFRAG and extfrag is not None:
                body = _fields(extfrag, next(fallbacks), gfp)
            elif kind == Event.EXTFRAG:
                body += f" alloc_order={order} alloc_migratetype={migratetype}"
            else:
                body += f" order={order}"
                body += f" migratetype={migratetype}" if migratetype >= 0 else ""
                body += f" gfp_flags={gfp(word)}" if kind == Event.ALLOC else ""
                body += f" percpu_refill={refill}" if refill >= 0 else ""
            head = _head(trace, pid, cpu, time_ns)
            yield row, time_ns, f"{head}{_NAMES[Event(kind)]}: {body}\n"


def _table_lines(
    trace: Trace, name: str, table: Mapping[str, np.ndarray], gfp: Callable[[int], str]
) -> _Lines:
    event = _event_in_text(name)
    for index in range(len(table["time_ns"])):
        time_ns, cpu, pid, row = (int(table[column][index]) for column in KEY_COLUMNS)
        line = f"{_head(trace, pid, cpu, time_ns)}{event}: {_fields(table, index, gfp)}\n"
        # Of events at one place the earlier come first; main row `row` follows them all.
        yield row, min(time_ns, int(trace.time_ns[min(row, len(trace) - 1)])) - 1, line


def _fields(table: Mapping[str, np.ndarray], index: int, gfp: Callable[[int], str]) -> str:
    words = []
    for column, values in table.items():
        if column in KEY_COLUMNS + CHAIN_COLUMNS:
            continue
        value = values[index]
        if isinstance(value, str):
            shown = _word_in_text(value) or "-"
        elif column in _GFP_FIELDS:
            shown = gfp(int(value))
        else:
            shown = hex(int(value)) if column.endswith(("addr", "pfn")) else str(int(value))
        field = re.sub(r"\W", "_", column.removesuffix(FIELD_SUFFIX))
        words.append(f"{field}={shown}")
    return " ".join(words)


def _loss_lines(trace: Trace) -> _Lines:
    losses = trace.losses
    for index in np.argsort(losses.end_ns, kind="stable").tolist():
        end_ns, cpu = int(losses.end_ns[index]), max(int(losses.cpu[index]), 0)
        line = f"PERF_RECORD_LOST lost {int(losses.count[index])}\n"
        yield int(np.searchsorted(trace.time_ns, end_ns)), -1, _head(trace, 0, cpu, end_ns) + line
