"""A running `perf record` that is told when to begin and when to end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.make.host import CAP_SYS_NICE, Host
from pagealloc_model.recording.make.perf_failures import explain_failure

_PR_SET_PDEATHSIG = 1
_PRIORITY = 20
_FILES = 1 << 20
_POLL_S = 0.1
_ANSWERS = 4096
_LIBC = ctypes.CDLL(None)


class PerfProcess:
    """Perf in a process group of its own, so that Ctrl-C reaches only us.

    It ends by itself, with a whole perf.data, if we are killed. With the right to, it runs at
    real-time priority, so that a busy machine does not keep it from emptying the buffers.

    Args:
        arguments: makes the command line from the descriptors for orders and answers.
        log: file for what perf writes to stderr.
        host: the machine.
    """

    def __init__(
        self, arguments: Callable[[tuple[int, int]], list[str]], log: Path, host: Host
    ) -> None:
        self._log = log
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self.arguments = arguments((orders, answers))
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                self.arguments,
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                pass_fds=(orders, answers),
                process_group=0,
                preexec_fn=_prepare,
            )
        os.close(orders)
        os.close(answers)
        os.set_blocking(self._orders, False)
        if host.has_capability(CAP_SYS_NICE):
            self._raise_priority()

    @property
    def ended(self) -> bool:
        """Whether perf is gone."""
        return self._process.poll() is not None

    def ask(self, order: str, interrupted: Callable[[], bool] = lambda: False) -> None:
        """Give an order ("enable", "disable") and wait until it is carried out.

        Raises:
            UsageError: perf ended instead; the text says why.
            KeyboardInterrupt: `interrupted` became true while waiting.
        """
        try:
            os.write(self._orders, f"{order}\n".encode())
        except BrokenPipeError:
            self._process.wait()
        while not select.select([self._answers], [], [], _POLL_S)[0]:
            if self.ended:
                raise UsageError(f"nothing was recorded: {self.failure()}")
            if interrupted():
                raise KeyboardInterrupt
        if not os.read(self._answers, _ANSWERS):
            self._process.wait()
            raise UsageError(f"nothing was recorded: {self.failure()}")

    def flush(self) -> None:
        """Let perf write out what its buffers hold; by itself it waits until one is half full."""
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            if select.select([self._answers], [], [], 0)[0]:
                os.read(self._answers, _ANSWERS)
            os.write(self._orders, b"ping\n")

    def stop(self) -> None:
        """Let perf write out what it holds, and wait for its end."""
        if not self.ended:
            self._process.send_signal(signal.SIGINT)
        self._process.wait()

    def failure(self, seen: str = "") -> str:
        """Why perf ended or, with what is `seen` to be wrong with its file, failed: one line."""
        log = self._log.read_text(encoding="utf-8", errors="replace")
        return explain_failure(log, self._process.wait(), seen)

    def close(self) -> None:
        """End perf if it still runs, whatever becomes of its file."""
        if not self.ended:
            self._process.kill()
            self._process.wait()
        os.close(self._orders)
        os.close(self._answers)

    def _raise_priority(self) -> None:
        with contextlib.suppress(OSError):  # a control group may keep real time to itself
            os.sched_setscheduler(self._process.pid, os.SCHED_FIFO, os.sched_param(_PRIORITY))


def _prepare() -> None:
    """In the new process: end with our own, and allow a file for each event on each CPU."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, _FILES))
