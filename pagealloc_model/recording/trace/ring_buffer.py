"""Pages of the kernel's trace ring buffer as a Trace."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pagealloc_model.base.arrays import Column, parts
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.files import opened, refuse_unless_file, text_of, unreadable
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.base.text import count_of
from pagealloc_model.recording.trace import layout as at
from pagealloc_model.recording.trace.columns import NAMED, Event, Losses, ThreadNames, Trace
from pagealloc_model.recording.trace.formats import (
    TracepointFormat,
    gfp_bits_from_print_fmt,
    parse_format,
)
from pagealloc_model.recording.trace.layout import event_row
from pagealloc_model.recording.trace.perf_file import WORD_SLACK, with_slack
from pagealloc_model.recording.trace.side_tables import Collected

RECORD_WITH = "trace-cmd record -C mono -e kmem:mm_page_alloc -e kmem:mm_page_free"
_ALLOC = "kmem:mm_page_alloc"

_NO_TIMES = ("counter", "uptime", "x86-tsc")
"""Clocks whose values are no nanoseconds, or do not order events."""
_COUNTS_LOST = re.compile(r"^(?:overrun|commit overrun|dropped events): (\d{1,18})$", re.MULTILINE)
NO_TICKS = (1, 0)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_SMALL_EVENT_SIZE = 32
_ROWS_AT_A_TIME = 1 << 20
_PAGES_AT_A_TIME = 1 << 14
_WALKING = 0.8


class PageLayout(NamedTuple):
    """Where the parts of a page lie: offsets of its time, used bytes and first event, its size."""

    timestamp: int
    commit: int
    data: int
    page_size: int


def page_layout(text: str) -> PageLayout:
    """Parse `events/header_page`; a ValueError says what is wrong with it."""
    page = parse_format("", f"name: header_page\nID: 0\n{text}")
    fields, names = {part.name: part for part in page.fields}, PageLayout._fields[:3]
    if missing := [name for name in names if name not in fields]:
        raise ValueError(f"header_page has no {missing[0]}")
    timestamp, commit, data = (fields[name] for name in names)
    if timestamp.size != 8 or commit.size != 8 or not data.end:
        raise ValueError("pages of the ring buffer are not those of a 64-bit kernel")
    return PageLayout(timestamp.offset, commit.offset, data.offset, data.end)


@dataclass(frozen=True, kw_only=True, eq=False)
class RingBuffer:
    """The pages of all CPUs, and what is needed to read them.

    Attributes:
        data: uint8, read-only, holds the pages somewhere; int64 `positions` say where each
            starts, and `cpus` of which CPU it is.
        cmdlines: text of `saved_cmdlines`.
        clock: tracefs's name, such as "mono"; "" if unknown.
        stats: CPU -> text of its per_cpu/cpuN/stats after recording, where it is there.
        ticks: multiplier and shift that make nanoseconds of the pages' times.
        unpacked: `data` was unpacked from the file, so that offsets are none of the file.
    """

    path: Path
    data: np.ndarray
    positions: np.ndarray
    cpus: np.ndarray
    layout: PageLayout
    formats: tuple[TracepointFormat, ...]
    cmdlines: str = ""
    clock: str = ""
    release: str = ""
    nr_cpus: int = 0
    stats: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    ticks: tuple[int, int] = NO_TICKS
    unpacked: bool = False


def read_ring_buffer(
    source: RingBuffer, directory: Path | None = None, progress: Report | None = None
) -> Trace:
    """The page-allocator events, and all other tracepoints, of ring-buffer pages (T1 to T8).

    Losses are those that the kernel marked in the pages, each between two events of its CPU, and
    what its statistics count beyond these. Where a page does not say how many events are missing
    before it, one is counted.
    """
    path, clock = source.path, source.clock
    if clock in _NO_TIMES and source.ticks == NO_TICKS:
        what = f"was recorded with the clock {clock}, whose values are no times"
        todo = "record with trace_clock mono (trace-cmd record -C mono)"
        raise RecordingError(path, what, todo=todo)
    formats = [tracepoint for tracepoint in source.formats if tracepoint.system != "ftrace"]
    table, type_offset, gfp_bits = _laid_out(path, formats)
    rows_of_type = np.full(1 << 16, -1, np.int32)
    for row, tracepoint in enumerate(formats):
        if tracepoint.id < len(rows_of_type):
            rows_of_type[tracepoint.id] = row
    described = ((*source.layout, type_offset), rows_of_type, table)
    collected, last_ns, losses = _walked(source, described, directory, progress)
    if source.ticks != NO_TICKS:
        starts, ends = losses[:, at.LOSS_START], losses[:, at.LOSS_END]
        times_of = (collected.columns["time_ns"].values, collected.notes.values[:, at.NOTE_TIME])
        for times in (last_ns, starts, ends, *times_of):
            for part in parts(len(times)):
                known = times[part] >= 0
                times[part][known] = nanoseconds(times[part][known], *source.ticks)
    if not np.any(collected.columns["event"].values == Event.ALLOC):
        what, todo = f"holds no {_ALLOC} event of its own buffer", f"record with {RECORD_WITH}"
        raise RecordingError(path, what, todo=todo)
    threads = (line.partition(" ") for line in source.cmdlines.splitlines())
    names = {int(n): name for n, _, name in threads if n.isdecimal() and len(n) < 10}
    thread_names = ThreadNames.of((0, thread, NAMED, name) for thread, name in names.items())
    notes, uncounted = list(source.notes), int((losses[:, at.LOSS_COUNT] < 0).sum())
    if uncounted:
        notes.append(
            f"in {count_of(uncounted, 'place')} events were lost and the kernel did "
            "not say how many; each counts as one at least"
        )
    if clock and clock != "mono":
        notes.append(
            f"times are of tracefs's clock {clock}, snapshots of CLOCK_MONOTONIC: they agree "
            "only as far as these clocks do; record with trace_clock mono"
        )
    all_losses = _all_losses(source, collected.columns["time_ns"].values, last_ns, losses)
    return collected.trace(
        formats,
        table[:, at.CALLCHAIN],
        comms=thread_names.last(),
        thread_names=thread_names,
        gfp_bits=gfp_bits,
        gfp_from_format=True,
        losses=all_losses,
        source=str(path),
        release=source.release,
        nr_cpus=source.nr_cpus,
        clock="monotonic" if clock == "mono" else clock,
        notes=tuple(notes),
    )


def _laid_out(
    path: Path, formats: list[TracepointFormat]
) -> tuple[np.ndarray, int, dict[str, int]]:
    """The layout table, the offset of a tracepoint's number in raw data, and the gfp bits."""
    types = [tracepoint.field("common_type") for tracepoint in formats]
    offsets = {number.offset for number in types if number}
    alloc = next((tracepoint for tracepoint in formats if tracepoint.event_name == _ALLOC), None)
    try:
        table = np.array([event_row(tracepoint) for tracepoint in formats])
        if None in types:
            raise ValueError(f"{formats[types.index(None)].event_name} has no common_type")
        if alloc is None:
            what, todo = f"has no format data of {_ALLOC}", f"record with {RECORD_WITH}"
            raise RecordingError(path, what, todo=todo)
        if len(offsets) != 1:
            raise ValueError("tracepoints disagree on where common_type is")
        return table, offsets.pop(), gfp_bits_from_print_fmt(alloc.print_fmt)
    except ValueError as error:
        todo = "this kernel's events are not supported"
        raise RecordingError(path, str(error), todo=todo) from None


def _walked(
    source: RingBuffer,
    described: tuple[tuple[int, ...], np.ndarray, np.ndarray],
    directory: Path | None,
    progress: Report | None,
) -> tuple[Collected, np.ndarray, np.ndarray]:
    """The events of all pages, each CPU's last time, and losses, see `walk_pages`."""
    from pagealloc_model.recording.trace.walk import walk_pages

    page_size, positions = source.layout.page_size, source.positions
    most = page_size // at.SMALLEST_EVENT + 1
    room = (max(_ROWS_AT_A_TIME, most), most, 2 * page_size)
    expected = len(positions) * page_size // _SMALL_EVENT_SIZE if directory is None else 0
    collected = Collected(expected + room[0], directory)
    last_ns = np.full(int(source.cpus.max(initial=0)) + 1, -1, np.int64)
    losses = np.zeros((len(positions), at.LOSS_WIDTH), np.int64)
    state = np.zeros(at.STATE_SLOTS, np.int64)

    def walk(data: np.ndarray, positions: np.ndarray, cpus: np.ndarray, offset: int) -> None:
        """Walk pages of one buffer; `offset` is that of data[0] in the source's data."""
        for first in range(0, len(positions), _PAGES_AT_A_TIME):
            part = slice(first, first + _PAGES_AT_A_TIME)
            arguments = (data, positions[part], cpus[part], *described, last_ns, losses)
            state[at.PAGE] = 0
            if what := collected.walk(walk_pages, arguments, room, state):
                position = offset + int(state[at.POSITION])
                where: dict[str, int] = {"offset": position}
                if source.unpacked:
                    what, where = f"{what}, at byte {position} of the unpacked pages", {}
                raise RecordingError(source.path, what, todo="record again", **where)
            if progress is not None:
                progress(_WALKING * min(part.stop / len(source.positions), 1))

    # In the order of their times, so that rows are nearly in order and stay so in bounded room.
    stamps = positions[:, None] + source.layout.timestamp + np.arange(8)
    order = np.argsort(source.data[stamps].view("<i8").ravel(), kind="stable")
    ends = positions[order] + page_size + WORD_SLACK
    inside = order[ends <= len(source.data)]
    walk(source.data, positions[inside], source.cpus[inside], 0)
    for page in order[ends > len(source.data)].tolist():  # at the very end of a file
        position = int(positions[page])
        tail = with_slack(source.data[position : position + page_size])
        walk(tail, np.zeros(1, np.int64), source.cpus[page : page + 1], position)
    return collected, last_ns, losses[: int(state[at.LOSSES])]


def _all_losses(
    source: RingBuffer, time_ns: np.ndarray, last_ns: np.ndarray, losses: np.ndarray
) -> Losses:
    first, last = int(time_ns.min()), int(time_ns.max())
    cpus, starts, ends, counts = losses.T
    starts = np.minimum(np.where(starts < 0, first, starts), ends)
    rows = np.stack([cpus, starts, np.maximum(ends, starts), np.maximum(counts, 1)], axis=1)
    at_end = []
    for cpu, text in sorted(source.stats.items()):
        marked = int(rows[cpus == cpu, at.LOSS_COUNT].sum())
        rest = sum(map(int, _COUNTS_LOST.findall(text))) - marked
        if rest > 0:
            since = int(last_ns[cpu]) if cpu < len(last_ns) and last_ns[cpu] >= 0 else first
            at_end.append((cpu, since, max(last, since), rest))
    at_end_rows = np.array(at_end, np.int64).reshape(-1, at.LOSS_WIDTH)
    return Losses.of(np.concatenate([rows, at_end_rows]), at_end=len(at_end))


def with_room_behind(data: Column) -> np.ndarray:
    """Unpacked pages, read-only, with zeros behind them, since words are read past their end."""
    pages = data.room(WORD_SLACK)
    pages[data.rows :] = 0
    pages.flags.writeable = False
    return pages


def chosen_clock(text: str) -> str:
    """The clock in brackets in the text of `trace_clock`, or the text itself, a single name."""
    match = re.search(r"\[([\w-]+)\]", text)
    return match[1] if match else text.strip() if re.fullmatch(r"\s*[\w-]+\s*", text) else ""


def nanoseconds(ticks: np.ndarray, mult: int, shift: int) -> np.ndarray:
    """Ticks of a counter as nanoseconds, int64: ticks * mult >> shift, in 96 bits."""
    high, low = ticks.astype(np.uint64) >> np.uint64(32), ticks.astype(np.uint64) & _LOW_HALF
    factor = np.uint64(mult)
    scaled = (low * factor >> np.uint64(shift)) + (high * factor << np.uint64(32 - shift))
    return scaled.view(np.int64)


PAGES = "trace_pipe_raw"
_COPY = "copy it from /sys/kernel/tracing as docs/how_to_record.md shows"


def read_tracefs_copy(
    copy: Path, directory: Path | None = None, progress: Report | None = None
) -> Trace:
    """Read the page-allocator events, and all other tracepoints, of raw pages (T1 to T8)."""

    def text(path: Path, *, needed: bool = False) -> str:
        return text_of(path, "utf-8", todo=_COPY) if needed or path.is_file() else ""

    files = {
        int(path.parent.name[3:]): path
        for path in copy.glob(f"per_cpu/cpu*/{PAGES}")
        if path.parent.name[3:].isdecimal() and len(path.parent.name) < 9
    }
    if not files:
        raise RecordingError(copy, f"has no per_cpu/cpuN/{PAGES}", todo=_COPY)
    try:
        layout = page_layout(text(copy / "events/header_page", needed=True))
        paths = sorted(copy.glob("events/*/*/format"))
        formats = tuple(parse_format(path.parents[1].name, text(path)) for path in paths)
    except ValueError as error:
        raise RecordingError(copy, str(error), todo=_COPY) from None
    data, counts = Column(np.uint8, directory), []
    for _, path in sorted(files.items()):
        refuse_unless_file(path)
        size = path.stat().st_size
        if beyond := size % layout.page_size:
            what = f"is no whole number of pages of {layout.page_size} bytes"
            todo = "copy it with reads of that size: dd bs=... iflag=fullblock"
            raise RecordingError(path, what, offset=size - beyond, todo=todo)
        counts.append(size // layout.page_size)
        try:
            if size:
                with opened(path, below=path.parents[2]) as file:
                    data.append(np.memmap(file, np.uint8, "r", shape=(size,)))
        except OSError as error:
            raise unreadable(path, error) from None
    clock = chosen_clock(text(copy / "trace_clock"))
    source = RingBuffer(
        path=copy,
        data=with_room_behind(data),
        positions=np.arange(sum(counts), dtype=np.int64) * layout.page_size,
        cpus=np.repeat(np.array(sorted(files), np.int64), counts),
        layout=layout,
        formats=formats,
        cmdlines=text(copy / "saved_cmdlines"),
        clock=clock,
        release=text(copy / "osrelease").strip(),
        nr_cpus=len(files),
        stats={cpu: text(path.with_name("stats")) for cpu, path in files.items()},
        notes=() if clock else ("no trace_clock: which clock the times are of is unknown",),
        unpacked=True,
    )
    return read_ring_buffer(source, directory, progress)
