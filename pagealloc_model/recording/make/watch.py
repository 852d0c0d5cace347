"""The time while a recording runs: snapshots, rates, and what may end it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path

from pagealloc_model.recording.make.live import LiveRates
from pagealloc_model.recording.make.options import RecordOptions
from pagealloc_model.recording.make.perf_process import PerfProcess
from pagealloc_model.recording.make.stop_signals import StopSignals
from pagealloc_model.recording.make.workspace import Workspace

_LONGEST_WAIT_S = 0.2
_FLUSH_S = 1.0
_NEVER = float("inf")


class End(Enum):
    """What ended a recording."""

    COMMAND = "command"
    SECONDS = "seconds"
    SIGNAL = "signal"
    DISK = "disk nearly full"
    PERF = "perf"


class Watch:
    """Waits for the end of a recording, and does what is due meanwhile.

    Args:
        options: how long, and how often.
        perf: the running perf.
        command: the running command, if any.
        signals: what the user may stop it with.
        workspace: where it is written.
        event_file: the perf.data in it.
        take_snapshot: takes one; raises OSError where there is no room for it.
        live: makes the lines with rates.
        say: takes them.
    """

    def __init__(
        self,
        options: RecordOptions,
        perf: PerfProcess,
        command: subprocess.Popen[bytes] | None,
        signals: StopSignals,
        workspace: Workspace,
        event_file: Path,
        take_snapshot: Callable[[], None],
        live: LiveRates,
        say: Callable[[str], None],
    ) -> None:
        self._options = options
        self._perf = perf
        self._command = command
        self._signals = signals
        self._workspace = workspace
        self._event_file = event_file
        self._take_snapshot = take_snapshot
        self._live = live
        self._say = say
        self._written = self._recent = 0
        begin = time.monotonic()
        self._deadline = begin + (options.seconds or _NEVER)
        self._snapshot_due = begin + options.interval_s
        self._flush_due = begin + _FLUSH_S
        self._live_due = begin + (options.live_s or _NEVER)

    def until_end(self) -> End:
        """Wait; returns what ended the recording."""
        while True:
            now = time.monotonic()
            end = self._ended(now) or self._do_what_is_due(now)
            if end is not None:
                return end
            wake = min(self._snapshot_due, self._live_due, self._deadline, now + _LONGEST_WAIT_S)
            self._signals.wait(wake - time.monotonic())

    def _ended(self, now: float) -> End | None:
        if self._signals.stopping():
            return End.SIGNAL
        if self._perf.ended:
            return End.PERF
        if self._command is not None and self._command.poll() is not None:
            return End.COMMAND
        if now >= self._deadline:
            return End.SECONDS
        return End.DISK if self._workspace.nearly_full(self._recent) else None

    def _do_what_is_due(self, now: float) -> End | None:
        if now >= self._snapshot_due:
            try:
                self._take_snapshot()
            except OSError:
                return End.DISK
            # Reading takes zone locks: at most half of the time, however short the interval.
            done = time.monotonic()
            self._snapshot_due = max(self._snapshot_due + self._options.interval_s, 2 * done - now)
        if now >= self._flush_due:
            self._flush()
            self._flush_due = now + _FLUSH_S
        if now >= self._live_due:
            self._say(self._live.line())
            self._live_due += self._options.live_s or _NEVER
        return None

    def _flush(self) -> None:
        """Have perf write what it holds, and note how much it wrote since the last time."""
        self._perf.flush()
        written = self._event_file.stat().st_size
        self._written, self._recent = written, written - self._written
