"""What perf's complaints mean to a user: one line each, with what to do."""

from __future__ import annotations

import re
from pathlib import Path

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.trace.perf_file import open_perf_file

_KNOWN = (
    (
        r"No space left on device",
        "the disk is full",
        "free some space, or name another disk with -o",
    ),
    (
        r"Permission error mapping pages|perf_event_mlock_kb|failed to mmap with 1 ",
        "the ring buffers may not be locked in memory",
        "use a smaller --buffer, or raise /proc/sys/kernel/perf_event_mlock_kb",
    ),
    (
        r"failed to mmap|Cannot allocate memory",
        "there is no memory for the ring buffers",
        "use a smaller --buffer",
    ),
    (
        r"Too many open files|Too many events are opened",
        "too many events are opened",
        "raise the limit with ulimit -n, or record fewer with --events",
    ),
    (
        r"perf_event_paranoid|[Aa]ccess to performance monitoring|[Nn]o permission|not permitted"
        r"|Permission denied",
        "the kernel refuses perf",
        "run as root outside a container, or: sysctl kernel.perf_event_paranoid=-1",
    ),
    (
        r"unknown tracepoint|can't access trace events|invalid or unsupported event|syntax error",
        "perf cannot read an event",
        "leave it out with --events, or update perf",
    ),
    (r"[Uu]nknown option|unknown switch", "perf lacks an option", "update perf"),
)


def explain_failure(log: str, code: int, seen: str = "") -> str:
    """One line on why perf failed.

    Args:
        log: what it wrote to stderr.
        code: its exit code, negative for a signal.
        seen: what is wrong with its file, said where perf itself gives no known reason.
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for pattern, what, todo in _KNOWN:
        for line in lines:
            if re.search(pattern, line):
                return f"{what} (perf: {line[:100]}); {todo}"
    if seen:
        return f"perf.data {seen}; try the same perf record by hand"
    ended = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    said = f" saying: {lines[-1][:100]}" if lines else ""
    return f"perf {ended}{said}; try the same perf record by hand"


def why_unusable(event_file: Path) -> str:
    """What keeps a perf.data from being read, "" if nothing does.

    Only when perf closes its file does the header say how long the data are.
    """
    try:
        records = open_perf_file(event_file).records
    except RecordingError as error:
        return error.what
    return "" if records.size else "was not closed by perf"
