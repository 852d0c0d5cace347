"""A run's process: watched while it makes a recording, and ended when it takes too much."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pagealloc_model.base.errors import PageallocError
from pagealloc_model.studies.experiments.inside import Answer

CONSOLE = "console"
CONSOLE_LINES = 8
_LOOK_S = 0.5

Cancel = Callable[[], bool]
"""Asked now and then; True ends a run."""


class RunFailedError(PageallocError):
    """A run left no recording that can be used.

    Args:
        why: one line.
        console: the last lines of what it printed.
    """

    def __init__(self, why: str, console: str = "") -> None:
        super().__init__(why)
        self.console = console


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What a run may take.

    Attributes:
        what: takes it, in words: "the guest".
        key: of the plan that sets the time: "guest.timeout_s".
        limit_s: the longest that it may take.
        most_bytes: that its folder may hold.
        grace_s: between a request to end and the end.
    """

    what: str
    key: str
    limit_s: float
    most_bytes: int
    grace_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Call:
    """A program to call.

    Attributes:
        words: of its command line.
        environment: variables that it has beside this process's.
    """

    words: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def make_recording(call: Call, folder: Path, bounds: Bounds, cancel: Cancel) -> None:
    """Call a program that leaves a recording and an answer in a run's folder.

    Args:
        call: the program.
        folder: of the run.
        bounds: of the run.
        cancel: ends it.

    Raises:
        RunFailedError: it left no recording that can be used, and why.
    """
    ended = _watched(call, folder, bounds, cancel)
    answer = Answer.read(folder)
    if answer is None:
        raise RunFailedError(ended or f"{bounds.what} ended before it was done", _end_of(folder))
    if answer.error:
        raise RunFailedError(ended or answer.error, _end_of(folder))


def started(call: Call, output: object) -> subprocess.Popen[bytes]:
    """A process in a group of its own, so that all that it starts can be ended with it."""
    return subprocess.Popen(
        call.words,
        env={**os.environ, **call.environment},
        stdin=subprocess.DEVNULL,
        stdout=output,  # type: ignore[arg-type]
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def end(process: subprocess.Popen[bytes], grace_s: float = 0.0) -> None:
    """End a process and all that it started.

    Args:
        process: as `started` returns it.
        grace_s: that it has to end by itself, after it was asked to.
    """
    if grace_s and process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _watched(call: Call, folder: Path, bounds: Bounds, cancel: Cancel) -> str:
    """Let a program run to its end; why it was ended before, "" if it was not."""
    give_up = time.monotonic() + bounds.limit_s
    most = bounds.most_bytes
    with (folder / CONSOLE).open("wb") as console:
        process = started(call, console)
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_S)
                    return ""
                if cancel():
                    return "interrupted"
                if time.monotonic() > give_up:
                    took = f"{bounds.what} took over {bounds.limit_s:g} s"
                    return f"{took}; raise {bounds.key}, or ask less"
                if folder_bytes(folder) > most:
                    return f"the run took over {most >> 20} MiB; raise limits.run, or ask less"
        finally:
            end(process, bounds.grace_s)


def folder_bytes(folder: Path) -> int:
    """What the files of a folder take; those that go away meanwhile are left out."""
    total = 0
    for inside, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(inside) / name).lstat().st_blocks * 512
    return total


def _end_of(folder: Path) -> str:
    """The last lines of a run's console."""
    try:
        text = (folder / CONSOLE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join([line for line in text.splitlines() if line.strip()][-CONSOLE_LINES:])
