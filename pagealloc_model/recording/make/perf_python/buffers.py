"""The ring buffers of a live recording, through either generation of perf's module."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from pagealloc_model.base.errors import UsageError

_STANDARD_ERROR = 2


class LiveBuffers:
    """Events of all CPUs, each CPU's in a buffer of its own; they are on from the start.

    Args:
        perf: perf's module.
        events: names of tracepoints.
        buffer_bytes: size of each buffer, a power of two.

    Raises:
        UsageError: the events cannot be opened.
    """

    def __init__(self, perf: ModuleType, events: Sequence[str], buffer_bytes: int) -> None:
        cpus, threads = perf.cpu_map(), perf.thread_map(-1)
        self.cpus = tuple(cpus)
        by_name = hasattr(perf, "parse_events")
        make = _by_name if by_name else _by_number
        try:
            self._events = make(perf, events, cpus, threads)
            self._events.open()
            with _without_chatter():
                self._events.mmap(buffer_bytes // os.sysconf("SC_PAGE_SIZE"))
            if by_name:
                self._events.enable()
        except OSError as error:
            raise UsageError(
                f"the events cannot be opened ({error.strerror or error}); "
                "see what is in the way with: pagealloc doctor"
            ) from None

    def wait(self, milliseconds: int) -> None:
        """Return when a buffer is half full, or after that time."""
        with contextlib.suppress(InterruptedError):
            self._events.poll(milliseconds)

    def read(self, cpu: int, most: int) -> Iterator[Any]:
        """Take events out of one CPU's buffer until it is empty.

        Args:
            cpu: its number.
            most: stop after so many, so that one busy CPU does not hold up the others.
        """
        for _ in range(most):
            event = self._events.read_on_cpu(cpu)
            if event is None:
                return
            yield event


def _by_name(perf: ModuleType, names: Sequence[str], cpus: Any, threads: Any) -> Any:
    """The newer generation parses names, as the perf command does."""
    events = perf.parse_events(",".join(names), cpus, threads)
    for each in events:
        each.tracking = False
    events.config()
    for each in events:
        # Without the id in it, samples of several events cannot be told apart.
        each.read_format = perf.FORMAT_ID
    return events


def _by_number(perf: ModuleType, names: Sequence[str], cpus: Any, threads: Any) -> Any:
    """The older generation wants every attribute spelled out; the first event reports tasks."""
    carried = perf.SAMPLE_TID | perf.SAMPLE_TIME | perf.SAMPLE_ID | perf.SAMPLE_CPU
    events = perf.evlist(cpus, threads)
    for index, name in enumerate(names):
        number = perf.tracepoint(*name.split(":", 1))
        if number < 0:
            raise UsageError(f"this kernel has no tracepoint {name}, or does not show it")
        events.add(
            perf.evsel(
                type=perf.TYPE_TRACEPOINT,
                config=number,
                freq=0,
                sample_period=1,
                sample_type=carried | perf.SAMPLE_RAW,
                read_format=perf.FORMAT_ID,
                sample_id_all=1,
                comm=index == 0,
                task=index == 0,
            )
        )
    return events


@contextlib.contextmanager
def _without_chatter() -> Iterator[None]:
    """Keep what perf's own library says about every mapping off standard error."""
    kept = os.dup(_STANDARD_ERROR)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, _STANDARD_ERROR)
        yield
    finally:
        os.dup2(kept, _STANDARD_ERROR)
        os.close(nowhere)
        os.close(kept)
