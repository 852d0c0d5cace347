"""Page-allocator events of this machine, live, without a recording."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.make.host import Host, read_or_none
from pagealloc_model.recording.make.perf_python.buffers import LiveBuffers
from pagealloc_model.recording.make.perf_python.event_rows import EventRows
from pagealloc_model.recording.make.perf_python.module import load_perf_module
from pagealloc_model.recording.make.perf_tool import default_buffer
from pagealloc_model.recording.trace.columns import EVENT_NAMES, Losses, Trace
from pagealloc_model.recording.trace.formats import (
    TracepointFormat,
    gfp_bits_from_print_fmt,
    parse_format,
)

_ALLOC = "kmem:mm_page_alloc"
_FORK = 7
_AT_A_TIME = 4096
_WAIT_MS = 50
_LATE_LOSSES_MS = 20


def live(
    seconds: float = 5.0,
    events: Sequence[str] = tuple(EVENT_NAMES),
    *,
    buffer_bytes: int | None = None,
    host: Host | None = None,
) -> Trace:
    """Sample tracepoints of this machine through perf's Python module.

    Every event of every CPU is asked for, and Python takes some 100,000 a second: what a buffer
    could not hold meanwhile is in `losses`. The trace starts once all CPUs are watched and ends
    where all of them were read. Its clock is perf's own, which snapshots do not use.

    Args:
        seconds: how long.
        events: names of tracepoints, the six of the page allocator by default.
        buffer_bytes: ring buffer of each CPU, a power of two; None: what `pagealloc record` takes.
        host: the machine, for tests.

    Raises:
        UsageError: perf's module is not there, or this user or kernel does not permit it; the
            text says what to do.
    """
    host = host or Host()
    perf = load_perf_module()
    formats = {name: _format(host, name) for name in dict.fromkeys((*events, _ALLOC))}
    rows = EventRows()
    for name in events:
        rows.declare(name, formats[name].column_fields)
    buffers = LiveBuffers(perf, tuple(events), buffer_bytes or default_buffer(host))
    sampling = _Sampling(perf, buffers, rows, [formats[name] for name in events])
    sampling.run(seconds)
    main, tables = rows.columns()
    return Trace(
        **main,
        comms=sampling.comms,
        gfp_bits=_gfp_bits(formats[_ALLOC]),
        gfp_from_format=True,
        tables=tables,
        losses=sampling.losses(),
        source="live",
        release=host.release,
        nr_cpus=host.cpus,
        clock="perf",
    )


def _format(host: Host, name: str) -> TracepointFormat:
    """What the running kernel says of a tracepoint."""
    if host.tracefs is None:
        raise UsageError("tracefs cannot be read; run as root, with tracefs mounted")
    system, _, event = name.partition(":")
    text = read_or_none(host.tracefs / "events" / system / event / "format")
    if text is None:
        raise UsageError(f"this kernel has no tracepoint {name}, or does not show it to this user")
    try:
        return parse_format(system, text)
    except ValueError as error:
        raise UsageError(f"this kernel's {name} is not supported: {error}") from None


def _gfp_bits(alloc: TracepointFormat) -> dict[str, int]:
    try:
        return gfp_bits_from_print_fmt(alloc.print_fmt)
    except ValueError as error:
        raise UsageError(f"this kernel's {_ALLOC} is not supported: {error}") from None


class _Sampling:
    """Takes events out of the buffers, and remembers names and losses."""

    def __init__(
        self,
        perf: ModuleType,
        buffers: LiveBuffers,
        rows: EventRows,
        formats: Sequence[TracepointFormat],
    ) -> None:
        self._perf = perf
        self._buffers = buffers
        self._rows = rows
        self._kinds = {
            each.id: (each.event_name, tuple(field.name for field in each.column_fields))
            for each in formats
        }
        self.comms = _thread_names()
        self._last_ns = 0
        self._from_ns = 0
        self._until_ns = np.iinfo(np.int64).max
        self._last_on: dict[int, int] = {}
        self._losses: list[tuple[int, int, int, int]] = []

    def run(self, seconds: float) -> None:
        """Sample for that long."""
        self._from_ns = np.iinfo(np.int64).max
        self._read_all()
        self._from_ns = self._last_ns
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._buffers.wait(_WAIT_MS)
            self._read_all()
        self._until_ns = self._last_ns
        self._read_rest()
        # A loss is only reported with the next event, so give every CPU time for one.
        time.sleep(_LATE_LOSSES_MS / 1000)
        self._read_rest()
        self.comms.update(_thread_names())

    def losses(self) -> Losses:
        """What the buffers could not hold."""
        rows = [row for row in self._losses if row[2] > self._from_ns and row[1] <= self._until_ns]
        columns = np.array(rows, np.int64).reshape(-1, 4)
        return Losses(
            cpu=columns[:, 0].astype(np.int16),
            start_ns=columns[:, 1].copy(),
            end_ns=columns[:, 2].copy(),
            count=columns[:, 3].copy(),
            event=("",) * len(rows),
        )

    def _read_all(self) -> None:
        for cpu in self._buffers.cpus:
            for event in self._buffers.read(cpu, _AT_A_TIME):
                self._take(cpu, event)

    def _read_rest(self) -> None:
        """Read each CPU up to the end of the trace, however far behind it is."""
        for cpu in self._buffers.cpus:
            while self._last_on.get(cpu, 0) <= self._until_ns:
                batch = list(self._buffers.read(cpu, _AT_A_TIME))
                if not batch:
                    break
                for event in batch:
                    self._take(cpu, event)

    def _take(self, cpu: int, event: Any) -> None:
        perf = self._perf
        if isinstance(event, perf.sample_event):
            time_ns = event.sample_time
            self._last_on[cpu] = time_ns
            self._last_ns = max(self._last_ns, time_ns)
            if self._from_ns < time_ns <= self._until_ns:
                name, fields = self._kinds[event.common_type]
                values = [getattr(event, field) for field in fields]
                self._rows.add(name, time_ns, cpu, event.sample_tid, values)
        elif isinstance(event, perf.lost_event):
            end_ns = event.sample_time
            start_ns = min(self._last_on.get(cpu, self._from_ns), end_ns)
            self._losses.append((cpu, start_ns, end_ns, event.lost))
        elif isinstance(event, perf.comm_event):
            self.comms[event.tid] = event.comm
        elif isinstance(event, perf.task_event) and event.type == _FORK:
            self._name_child(event.tid, event.ptid)

    def _name_child(self, tid: int, parent: int) -> None:
        """A forked thread starts with its parent's name."""
        if parent in self.comms:
            self.comms[tid] = self.comms[parent]


def _thread_names() -> dict[int, str]:
    """Names of all threads that are there now."""
    names = {0: "swapper"}
    for task in Path("/proc").glob("[0-9]*/task/[0-9]*"):
        name = read_or_none(task / "comm")
        if name:
            names[int(os.path.basename(task))] = name.rstrip("\n")
    return names
