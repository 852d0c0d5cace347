"""What this machine has for recording, exporting and computing, and what each lack costs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.make.checks import Check, recording_checks, require_recordable
from pagealloc_model.recording.make.events import ESSENTIAL_EVENTS, event_arguments
from pagealloc_model.recording.make.host import Host
from pagealloc_model.recording.make.perf_failures import explain_failure, why_unusable
from pagealloc_model.recording.make.perf_python.module import perf_python_state
from pagealloc_model.recording.make.perf_tool import find_perf, record_arguments

_BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
)
_GIB = 1 << 30
_LITTLE_MEMORY = 2 * _GIB
_LITTLE_DISK = 1 * _GIB
_TRIAL_BUFFER = 1 << 20
_TRIAL_TIMEOUT_S = 60


def examine(host: Host, directory: Path) -> list[Check]:
    """All checks, with a short trial recording where nothing stands in its way.

    Args:
        host: the machine.
        directory: where recordings would go.
    """
    checks = list(recording_checks(host))
    if not any(check.blocks for check in checks):
        checks.append(_trial(host))
    return [*checks, *_other_checks(host, directory)]


def require_trial(host: Host, buffer_bytes: int) -> None:
    """Refuse a machine that cannot be recorded; a short trial recording tells.

    Args:
        host: the machine.
        buffer_bytes: ring buffer of each CPU.

    Raises:
        UsageError: it cannot; the text says why and what to do.
    """
    require_recordable(host)
    check = _trial(host, buffer_bytes)
    if check.blocks:
        raise UsageError(f"cannot record: {check.found}; {check.todo}")


def _trial(host: Host, buffer_bytes: int = _TRIAL_BUFFER) -> Check:
    """Record two events for an instant: only perf itself knows whether it may."""
    with tempfile.TemporaryDirectory() as place:
        output = Path(place) / "perf.data"
        arguments = record_arguments(
            find_perf(),
            output=str(output),
            events=event_arguments(ESSENTIAL_EVENTS, host),
            buffer_bytes=buffer_bytes,
        )
        try:
            tried = subprocess.run(
                [*arguments, "--", "true"],
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=_TRIAL_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            found = f"perf record took over {_TRIAL_TIMEOUT_S} s"
            return _impossible(found, "try the same perf record by hand")
        why = why_unusable(output)
    if tried.returncode or why:
        found, _, todo = explain_failure(tried.stderr, tried.returncode, why).rpartition("; ")
        return _impossible(found, todo)
    return Check(name="recording", found="a trial recording works")


def _impossible(found: str, todo: str) -> Check:
    cost = "nothing can be recorded"
    return Check(name="recording", found=found, cost=cost, todo=todo, blocks=True)


def _other_checks(host: Host, directory: Path) -> Iterator[Check]:
    """What matters to working with recordings rather than to making them."""
    yield _browser()
    yield _perf_module()
    yield Check(name="CPUs", found=str(host.cpus))
    yield _room(
        "memory",
        host.available_memory,
        _LITTLE_MEMORY,
        "long recordings do not fit",
        "cut them with pagealloc trim",
    )
    yield _room(
        "disk",
        shutil.disk_usage(directory).free,
        _LITTLE_DISK,
        "a busy machine writes tens of megabytes a second",
        "record to another disk with -o",
    )


def _browser() -> Check:
    named = os.environ.get("BROWSER_PATH")
    for name in (*([named] if named else []), *_BROWSERS):
        path = shutil.which(name)
        if path:
            return Check(name="browser", found=path)
    return Check(
        name="browser",
        found="no Chromium or Chrome",
        cost="figures are exported as HTML only, and browser tests are skipped",
        todo="install chromium, or set BROWSER_PATH",
    )


def _perf_module() -> Check:
    state = perf_python_state()
    if not state.lacking:
        return Check(name="perf module", found=state.line)
    found, _, todo = state.lacking.partition("; ")
    return Check(
        name="perf module",
        found=found,
        cost="events cannot be read live from Python; recordings do not need it",
        todo=todo,
    )


def _room(name: str, free: int, little: int, cost: str, todo: str) -> Check:
    found = f"{free / _GIB:.1f} GiB free"
    if free >= little:
        return Check(name=name, found=found)
    return Check(name=name, found=found, cost=cost, todo=todo)
