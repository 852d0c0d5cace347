"""Copies of the machine's own state files, on the clock of the events (T12)."""

from __future__ import annotations

import gzip
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from pagealloc_model.recording.make.host import Host
from pagealloc_model.recording.proc.read_times import READ_TIMES_FILE, format_read_times
from pagealloc_model.recording.recording import KALLSYMS_FILE, KPAGEFLAGS_FILE, SNAPSHOT_DIRECTORY

_READ_ORDER = ("zoneinfo", "vmstat", "buddyinfo", "pagetypeinfo")
"""Those that take microseconds first, so that they describe one instant; pagetypeinfo walks every
free list, which took 30 to 60 ms on a machine with 19 GiB free."""
_CHUNK = 1 << 20
_FASTEST = 1


def take_snapshot(recording: Path, host: Host) -> int:
    """Copy the state files into a new directory of the recording; unreadable ones are left.

    All are read before anything is written, so that writing does not show in them. Each file's own
    time of reading is kept beside them: a busy machine changes much between the first and the last.

    Returns:
        Its time: CLOCK_MONOTONIC in ns at the start of the read.

    Raises:
        OSError: it cannot be written; nothing of it is left.
    """
    time_ns = time.monotonic_ns()
    contents: dict[str, bytes] = {}
    read_ns: dict[str, tuple[int, int]] = {}
    for name in _READ_ORDER:
        before = time.monotonic_ns()
        content = _read(host.proc / name)
        if content is not None:
            contents[name] = content
            read_ns[name] = (before, time.monotonic_ns())
    directory = recording / SNAPSHOT_DIRECTORY / f"{time_ns:020d}"
    try:
        directory.mkdir(parents=True)
        for name, content in contents.items():
            (directory / name).write_bytes(content)
        (directory / READ_TIMES_FILE).write_text(format_read_times(read_ns), encoding="ascii")
    except OSError:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    return time_ns


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def copy_page_flags(recording: Path, host: Host, check: Callable[[], None]) -> int | None:
    """Copy /proc/kpageflags (T12.5); returns its time in ns, None where it cannot be read.

    Args:
        recording: where to.
        host: the machine.
        check: called between parts; may raise to give up.
    """
    return _compress(host.proc / "kpageflags", recording / KPAGEFLAGS_FILE, check)


def copy_page_owners(recording: Path, host: Host, check: Callable[[], None]) -> int | None:
    """Copy debugfs's page_owner (T12.7); returns its time in ns, None where there is none."""
    return _compress(host.debugfs / "page_owner", recording / "page_owner.txt.gz", check)


def copy_kernel_symbols(recording: Path, host: Host, check: Callable[[], None]) -> None:
    """Copy /proc/kallsyms, which names the functions of call chains, unless it hides addresses."""
    source = host.proc / "kallsyms"
    try:
        with source.open("rb") as file:
            hidden = not file.readline().split()[0].strip(b"0")
    except (OSError, IndexError):
        return
    if not hidden:
        _compress(source, recording / KALLSYMS_FILE, check)


def _compress(source: Path, destination: Path, check: Callable[[], None]) -> int | None:
    try:
        file = source.open("rb", buffering=0)
    except OSError:
        return None
    time_ns = time.monotonic_ns()
    with (
        file,
        destination.open("wb") as plain,
        gzip.GzipFile("", "wb", _FASTEST, plain, mtime=0) as packed,
    ):
        while chunk := file.read(_CHUNK):
            packed.write(chunk)
            check()
    return time_ns
