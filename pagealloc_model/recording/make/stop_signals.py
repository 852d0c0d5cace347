"""Signals that end a recording, turned into a request to finish it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from types import FrameType, TracebackType
from typing import Any

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """While entered, a stop signal is only noted, and ends a wait; so does a child's end.

    Only the main thread can enter it.

    Attributes:
        requested: the first stop signal that came, None so far.
    """

    def __init__(self) -> None:
        self.requested: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in _STOPPING:
            self._before[number] = signal.signal(number, self._note)
        self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, _wake_only)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._read)
        os.close(self._write)

    def stopping(self) -> bool:
        """Whether a stop was requested."""
        return self.requested is not None

    def check(self) -> None:
        """Give up what has not begun to record yet.

        Raises:
            KeyboardInterrupt: a stop was requested.
        """
        if self.stopping():
            raise KeyboardInterrupt

    def wait(self, seconds: float) -> None:
        """Wait, but not beyond a signal."""
        if select.select([self._read], [], [], max(seconds, 0))[0]:
            with contextlib.suppress(BlockingIOError):
                os.read(self._read, 4096)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested is None:
            self.requested = signal.Signals(number)


def _wake_only(number: int, frame: FrameType | None) -> None:
    """A handler of its own, since an ignored signal would not end a wait."""
