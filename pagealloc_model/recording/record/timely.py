"""A reader that its machine's load does not starve: real time, memory kept, writes put off."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

from pagealloc_model.recording.record.host import CAP_SYS_NICE, Host
from pagealloc_model.recording.record.snapshots import StateFiles

PRIORITY = 20
"""Of perf, which must empty its buffers; the reader comes next."""
_CAP_IPC_LOCK = 14
_PRESENT_AND_LATER = 1 | 2 | 4
"""mlockall(2): MCL_CURRENT, MCL_FUTURE and MCL_ONFAULT, so that only what is used is kept."""
_LIBC = ctypes.CDLL(None)


def next_instant(begin_s: float, interval_s: float, after_s: float) -> float:
    """The first instant of a reader after a time, s: those that it missed are not made up for."""
    return begin_s + interval_s * (math.floor((after_s - begin_s) / interval_s) + 1)


@contextlib.contextmanager
def real_time(host: Host) -> Iterator[None]:
    """Go before all ordinary tasks, and keep this process's pages, as far as it is permitted.

    Under load an ordinary reader waits for a CPU, and under pressure for its own pages, so that its
    instants are those at which the load rests. Threads and processes that are started meanwhile
    are ordinary ones.
    """
    with contextlib.ExitStack() as undo:
        if host.has_capability(CAP_SYS_NICE):
            # A control group may keep real time to itself.
            with contextlib.suppress(OSError):
                before = os.sched_getscheduler(0), os.sched_getparam(0)
                policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
                os.sched_setscheduler(0, policy, os.sched_param(PRIORITY - 1))
                undo.callback(os.sched_setscheduler, 0, *before)
        if host.has_capability(_CAP_IPC_LOCK) and not _LIBC.mlockall(_PRESENT_AND_LATER):
            undo.callback(_LIBC.munlockall)
        yield


class Writer:
    """Writes snapshots in a thread of its own: a full disk queue or pressure holds up no read.

    Attributes:
        failed: the error that ended its work, None so far.
    """

    def __init__(self, recording: Path) -> None:
        self.failed: OSError | None = None
        self._recording = recording
        self._queue: SimpleQueue[StateFiles | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def put(self, state: StateFiles) -> None:
        """Write a snapshot soon."""
        self._queue.put(state)

    def close(self) -> None:
        """Wait until all are written, or one could not be."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (state := self._queue.get()) is not None:
            try:
                state.write(self._recording)
            except OSError as error:
                self.failed = error
                return
