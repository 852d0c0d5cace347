"""Read a trace.dat, as trace-cmd writes it, into a Trace."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np

from pagealloc_model.base.column_space import NewArray, in_memory
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.progress_bar import Report, part_of
from pagealloc_model.recording.trace.columns import Trace
from pagealloc_model.recording.trace.perf_open import mapped, unpacked
from pagealloc_model.recording.trace.record_stream import WORD_SLACK
from pagealloc_model.recording.trace.ring_buffer import (
    RingBuffer,
    chosen_clock,
    page_layout,
    read_ring_buffer,
    seen_threads,
)
from pagealloc_model.recording.trace.trace_dat_file import (
    Buffer,
    Option,
    TraceDat,
    open_trace_dat,
)
from pagealloc_model.recording.trace.tracepoint_format import TracepointFormat, parse_format

_UNPACKING = 0.5
_CPU = re.compile(r"^CPU: (\d{1,5})$", re.MULTILINE)
_INSTANCE = re.compile(r"^Buffer: (.*)$", re.MULTILINE)


def read_trace_dat(
    path: str | Path, new_array: NewArray | None = None, progress: Report | None = None
) -> Trace:
    """Read the page-allocator events, and all other tracepoints, of a trace.dat (T1 to T8).

    The file may be of version 6 or 7, plain or compressed by zlib or zstd, the whole packed by
    gzip, xz or zstd. Of several buffers the one that holds most is read, and a note names the
    others. Fields are found through the recording's own format data.

    Args:
        path: the file.
        new_array: makes the arrays that grow with the number of events, all but texts; None: in
            memory.
        progress: called with the share done, 0 to 1.

    Raises:
        RecordingError: the file is damaged, of a layout that is not supported, of a clock that
            tells no times, or holds no kmem:mm_page_alloc.
    """
    path = Path(path)
    file = open_trace_dat(path, mapped(path, unpacked))
    buffer = max(file.buffers, key=lambda each: each.size, default=None)
    if buffer is None or not buffer.size:
        raise RecordingError(path, "holds no events", todo="record again, with -e kmem:...")
    source = _ring_buffer(file, buffer, new_array or in_memory, part_of(progress, 0, _UNPACKING))
    return read_ring_buffer(source, new_array, part_of(progress, _UNPACKING, 1))


def _ring_buffer(
    file: TraceDat, buffer: Buffer, new_array: NewArray, progress: Report | None
) -> RingBuffer:
    try:
        layout = page_layout(file.header_page.decode("latin-1"))
        formats = tuple(
            parse_format(system, text.decode("latin-1")) for system, text in file.event_texts
        )
    except ValueError as error:
        raise RecordingError(file.path, str(error), todo="record again") from None
    layout = replace(layout, page_size=max(layout.page_size, buffer.page_size))
    data, starts, sizes = _pages(file, buffer, new_array, progress)
    cpus = np.array([each.cpu for each in buffer.cpus], np.int64)
    counts = np.array(sizes, np.int64) // layout.page_size
    positions = [
        start + layout.page_size * np.arange(count, dtype=np.int64)
        for start, count in zip(starts, counts.tolist(), strict=True)
    ]
    for each, size in zip(buffer.cpus, sizes, strict=True):
        if size % layout.page_size or not 0 <= each.cpu < 1 << 15:
            raise file.damaged(each.offset, f"the pages of CPU {each.cpu} are no whole pages")
    others = [each for each in file.buffers if each is not buffer and each.size]
    count = file.option(Option.CPUCOUNT)
    uname = file.text_option(Option.UNAME).split(" ")
    return RingBuffer(
        path=file.path,
        data=data,
        positions=np.concatenate([*positions, np.zeros(0, np.int64)]).astype(np.int64),
        cpus=np.repeat(cpus, counts),
        layout=layout,
        formats=_used_once(file, formats),
        comms=seen_threads(file.cmdlines.decode("utf-8", "replace")),
        clock=_clock(file, buffer),
        release=uname[2] if len(uname) > 3 else "",
        nr_cpus=struct.unpack("<I", count)[0] if count and len(count) == 4 else len(buffer.cpus),
        stats=_stats(file, buffer),
        notes=tuple(_notes(file, buffer, others)),
        unpacked=buffer.packed,
        ticks=_ticks(file),
    )


def _pages(
    file: TraceDat, buffer: Buffer, new_array: NewArray, progress: Report | None
) -> tuple[np.ndarray, list[int], list[int]]:
    """What holds the pages, where each CPU's start in it, and how many bytes they are."""
    if not buffer.packed:
        for each in buffer.cpus:
            next(file.chunks(each, packed=False))
        return (
            file.content,
            [each.offset for each in buffer.cpus],
            [each.size for each in buffer.cpus],
        )
    sizes = [file.unpacked_size(each) for each in buffer.cpus]
    data = new_array(sum(sizes) + WORD_SLACK, np.uint8)
    starts, filled = [], 0
    for each, size in zip(buffer.cpus, sizes, strict=True):
        starts.append(filled)
        for chunk in file.chunks(each, packed=True):
            data[filled : filled + len(chunk)] = chunk
            filled += len(chunk)
            if progress is not None:
                progress(filled / sum(sizes))
        assert filled == starts[-1] + size
    data[filled:] = 0
    data.flags.writeable = False
    return data, starts, sizes


def _used_once(file: TraceDat, formats: tuple[TracepointFormat, ...]) -> tuple:
    """The formats, each number once: a file may describe a tracepoint twice, but not two as one."""
    known: dict[int, TracepointFormat] = {}
    for each in formats:
        if each.id in known and known[each.id].event_name != each.event_name:
            raise RecordingError(
                file.path,
                f"{each.event_name} and {known[each.id].event_name} have the same number",
                todo="record again",
            )
        known[each.id] = each
    return tuple(known.values())


def _clock(file: TraceDat, buffer: Buffer) -> str:
    return chosen_clock(buffer.clock) or chosen_clock(file.text_option(Option.TRACECLOCK))


def _stats(file: TraceDat, buffer: Buffer) -> dict[int, str]:
    """The statistics of the buffer's CPUs; those of an instance follow a line with its name."""
    stats, instance = {}, ""
    for number, data in file.options:
        if number != Option.CPUSTAT:
            continue
        text = data.split(b"\0", 1)[0].decode("utf-8", "replace")
        if match := _INSTANCE.search(text):
            instance = match[1].strip()
        if (cpu := _CPU.search(text)) and instance == buffer.name:
            stats[int(cpu[1])] = text
    return stats


def _notes(file: TraceDat, buffer: Buffer, others: list[Buffer]) -> list[str]:
    notes = []
    if others:
        names = ", ".join(each.name or "the top buffer" for each in others)
        notes.append(
            f"of several buffers {buffer.name or 'the top one'} is read; left out: {names}"
        )
    if file.option(Option.TIME_SHIFT) is not None:
        notes.append("times are the guest's own: the shift to its host's clock is not applied")
    return notes


def _ticks(file: TraceDat) -> tuple[int, int]:
    """Multiplier and shift that make nanoseconds of times, applied as trace-cmd does."""
    data = file.option(Option.TSC2NSEC)
    if data is None or len(data) < 16:
        return (1, 0)
    mult, shift = struct.unpack_from("<II", data)
    if shift > 32:
        raise RecordingError(
            file.path, f"shifts its counter by {shift} bits", todo="record with -C mono"
        )
    return (mult, shift) if mult else (1, 0)
