"""Raw pages of the kernel's trace ring buffer, copied out of tracefs with what describes them.

The directory has tracefs's own layout: `per_cpu/cpuN/trace_pipe_raw`, whole pages as they were
read; `events/header_page`; `events/SYSTEM/NAME/format` of the recorded tracepoints; and, where they
were copied too, `per_cpu/cpuN/stats`, `trace_clock`, `saved_cmdlines`, and `osrelease` (a copy of
/proc/sys/kernel/osrelease).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pagealloc_model.base.column_space import NewArray, in_memory
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.given_file import refuse_unless_file, text_of, unreadable
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.recording.trace.columns import Trace
from pagealloc_model.recording.trace.record_stream import WORD_SLACK
from pagealloc_model.recording.trace.ring_buffer import (
    RingBuffer,
    chosen_clock,
    page_layout,
    read_ring_buffer,
    seen_threads,
)
from pagealloc_model.recording.trace.tracepoint_format import TracepointFormat, parse_format

PAGES = "trace_pipe_raw"
_COPY = "copy it from /sys/kernel/tracing as docs/how_to_record.md shows"


def read_tracefs_copy(
    directory: Path, new_array: NewArray | None = None, progress: Report | None = None
) -> Trace:
    """Read the page-allocator events, and all other tracepoints, of raw pages (T1 to T8).

    Args:
        directory: the copy.
        new_array: makes the arrays that grow with the number of events, all but texts; None: in
            memory.
        progress: called with the share done, 0 to 1.

    Raises:
        RecordingError: pages or formats are missing or damaged, or the clock gives no times.
    """
    files = {
        int(path.parent.name[3:]): path
        for path in directory.glob(f"per_cpu/cpu*/{PAGES}")
        if path.parent.name[3:].isdecimal() and len(path.parent.name) < 9
    }
    if not files:
        raise RecordingError(directory, f"has no per_cpu/cpuN/{PAGES}", todo=_COPY)
    try:
        layout = page_layout(_text(directory / "events/header_page", needed=True))
        formats = tuple(_formats(directory))
    except ValueError as error:
        raise RecordingError(directory, str(error), todo=_COPY) from None
    data, starts = _joined(files, layout.page_size, new_array or in_memory)
    counts = np.diff(starts) // layout.page_size
    clock = chosen_clock(_text(directory / "trace_clock"))
    return read_ring_buffer(
        RingBuffer(
            path=directory,
            data=data,
            positions=np.arange(int(counts.sum()), dtype=np.int64) * layout.page_size,
            cpus=np.repeat(np.array(sorted(files), np.int64), counts),
            layout=layout,
            formats=formats,
            comms=seen_threads(_text(directory / "saved_cmdlines")),
            clock=clock,
            release=_text(directory / "osrelease").strip(),
            nr_cpus=len(files),
            stats={cpu: _text(path.with_name("stats")) for cpu, path in files.items()},
            notes=() if clock else ("no trace_clock: which clock the times are of is unknown",),
            unpacked=True,
        ),
        new_array,
        progress,
    )


def _joined(
    files: dict[int, Path], page_size: int, new_array: NewArray
) -> tuple[np.ndarray, np.ndarray]:
    """All files end to end, and where each starts, in the order of CPUs; the last is the end."""
    sizes = []
    for _, path in sorted(files.items()):
        refuse_unless_file(path)
        sizes.append(path.stat().st_size)
        if sizes[-1] % page_size:
            raise RecordingError(
                path,
                f"is no whole number of pages of {page_size} bytes",
                offset=sizes[-1] - sizes[-1] % page_size,
                todo="copy it with reads of that size: dd bs=... iflag=fullblock",
            )
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    data = new_array(int(starts[-1]) + WORD_SLACK, np.uint8)
    data[starts[-1] :] = 0
    for (_, path), start, size in zip(sorted(files.items()), starts.tolist(), sizes, strict=False):
        try:
            if size:
                data[start : start + size] = np.memmap(path, np.uint8, mode="r", shape=(size,))
        except OSError as error:
            raise unreadable(path, error) from None
    data.flags.writeable = False
    return data, starts


def _formats(directory: Path) -> list[TracepointFormat]:
    return [
        parse_format(path.parents[1].name, _text(path))
        for path in sorted(directory.glob("events/*/*/format"))
    ]


def _text(path: Path, *, needed: bool = False) -> str:
    """A small file's text, "" without it."""
    if not needed and not path.is_file():
        return ""
    return text_of(path, "utf-8", todo=_COPY)
