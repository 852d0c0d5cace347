"""Recordings that perf makes of this machine while it works a little."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

KMEM = tuple(
    f"kmem:mm_page_{name}"
    for name in (
        "alloc",
        "free",
        "free_batched",
        "alloc_zone_locked",
        "pcpu_drain",
        "alloc_extfrag",
    )
)
LOCKS = ("lock:contention_begin/call-graph=fp,max-stack=12/", "lock:contention_end")
MONOTONIC = ("-a", "-k", "CLOCK_MONOTONIC", "--kernel-callchains")
WORK = ("sh", "-c", "ls -R /etc >/dev/null; for i in 1 2 3 4; do ls / >/dev/null; done")


def event_options(*names: str) -> list[str]:
    """The words that name events to perf."""
    return [word for name in names for word in ("-e", name)]


def record_file(perf: str, path: Path, *options: str) -> Path:
    """Record the work to a file."""
    return _checked([perf, "record", "-q", "-o", str(path), *options, "--", *WORK], path)


def record_pipe(perf: str, path: Path, *options: str) -> Path:
    """Record the work through a pipe, as in `perf record -o - | cat > FILE`."""
    with path.open("wb") as file:
        return _checked([perf, "record", "-q", "-o", "-", *options, "--", *WORK], path, file)


def _checked(command: list[str], path: Path, output: object = subprocess.DEVNULL) -> Path:
    done = subprocess.run(
        command, stdout=output, stderr=subprocess.PIPE, text=True, check=False, timeout=60
    )  # type: ignore[call-overload]
    if done.returncode or not path.stat().st_size:
        pytest.skip(f"perf record does not work here: {done.stderr.strip()[:80]}")
    return path
