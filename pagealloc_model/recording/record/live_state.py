"""Reads the state of this very machine, which goes on meanwhile, through /proc/kcore."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path

import numpy as np

from pagealloc_model.base.errors import PageallocError, UsageError
from pagealloc_model.recording.proc.counts import parse_pagetypeinfo
from pagealloc_model.recording.record.host import Host, read_or_none
from pagealloc_model.recording.record.kernel_memory import KernelMemory
from pagealloc_model.recording.state_file import write_state

_TRY_NS = 5_000_000_000
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEEP = 1 << 30


class LiveState:
    """Reads this machine's state into files.

    A state is exact if nothing was allocated or freed while it was read. That is so if perf counted
    no event meanwhile, and lists and counters agree; else it is read again, for five seconds. Its
    own memory the reader takes at the first attempt and keeps.
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

    def __call__(self, file: Path) -> None:
        """Read the state into a file.

        Raises:
            UsageError: the memory cannot be read, or the machine did not hold still.
        """
        if self._memory is None:
            raise UsageError(self._why)
        # its compiled parts are not loaded where no state can be read
        from pagealloc_model.recording.record.machine_state import event_counts, read_machine_state

        _keep_memory()
        why, attempts, give_up = "", 0, time.monotonic_ns() + _TRY_NS
        while attempts < 2 or time.monotonic_ns() < give_up:
            attempts += 1
            try:
                state = read_machine_state(self._memory, self._pageblock_order)
            except UsageError as error:
                why = str(error)
                continue
            passed = event_counts(self._memory) - state.event_count
            why = state.contradiction()
            if passed.any():
                why = f"{int(np.abs(passed).sum())} events came while it was read"
            if not why:
                write_state(file, state)
                return
        raise UsageError(f"the machine did not hold still in {attempts} readings: {why}")


def _keep_memory() -> None:
    """Let this process keep memory that it frees: taking it anew would be events of its own."""
    try:
        adjust = ctypes.CDLL(None).mallopt
    except AttributeError:  # a C library other than glibc
        return
    for threshold in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
        adjust(threshold, _KEEP)
