"""Reads the state of this very machine, which goes on meanwhile, through /proc/kcore."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pagealloc_model.base.errors import PageallocError, UsageError
from pagealloc_model.recording.proc.counts import parse_pagetypeinfo
from pagealloc_model.recording.record.host import Host, read_or_none
from pagealloc_model.recording.record.kernel_memory import KernelMemory, Place
from pagealloc_model.recording.state_file import MachineState, write_state

if TYPE_CHECKING:
    from pagealloc_model.recording.record.carried_state import MovingReading

_TRY_NS = 2_000_000_000
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEEP = 1 << 30


class LiveState:
    """Reads this machine's state into files.

    A state is exact if nothing was allocated or freed while it was read. That is so if perf counted
    no event meanwhile, and lists and counters agree; else it is read again, for two seconds. A
    first reading tells which places to read, so that those that follow take no longer than copying
    these; it does not count. Memory of its own the reader takes then, and keeps. Of a machine that
    never holds still the pages are read once more, piece after piece, and the events meanwhile
    tell what became of each (`carried_state`).
    """

    def __init__(self, host: Host) -> None:
        """Open the kernel's memory; why that fails is said at the first reading."""
        self._memory: KernelMemory | None = None
        self._why = ""
        try:
            memory = KernelMemory.of_this_machine()
            text = read_or_none(host.proc / "pagetypeinfo")
            self._pageblock_order = parse_pagetypeinfo(text).pageblock_order if text else 9
            self._memory = memory
        except PageallocError as error:
            self._why = str(error)

    def __call__(self, file: Path) -> MovingReading | None:
        """Read the state into a file, or what the events are to make one of.

        Raises:
            UsageError: the memory cannot be read.
        """
        if self._memory is None:
            raise UsageError(self._why)
        _keep_memory()
        _, places = _reading(self._memory, self._pageblock_order, ())
        attempts, give_up = 0, time.monotonic_ns() + _TRY_NS
        while attempts < 1 or time.monotonic_ns() < give_up:
            attempts += 1
            state, places = _reading(self._memory, self._pageblock_order, places)
            if state is not None:
                write_state(file, state)
                return None
        from pagealloc_model.recording.record.moving_state import read_while_it_goes_on

        return read_while_it_goes_on(self._memory, self._pageblock_order)


def _reading(
    memory: KernelMemory, pageblock_order: int, places: tuple[Place, ...]
) -> tuple[MachineState | None, tuple[Place, ...]]:
    """A state, None where the machine went on, and the places that it is read from."""
    # its compiled parts are not loaded where no state can be read
    from pagealloc_model.recording.record.machine_state import event_counts, read_machine_state

    kept = memory.kept_from(places)
    if places and bool((event_counts(memory) != event_counts(kept)).any()):
        return None, places
    try:
        state = read_machine_state(kept, pageblock_order)
        is_sound = not state.contradiction()
    except UsageError:  # a list without an end
        is_sound = False
    read = tuple(kept.kept or ())
    return (state if is_sound and len(read) == len(places) else None), read


def _keep_memory() -> None:
    """Let this process keep memory that it frees: taking it anew would be events of its own."""
    try:
        adjust = ctypes.CDLL(None).mallopt
    except AttributeError:  # a C library other than glibc
        return
    for threshold in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
        adjust(threshold, _KEEP)
