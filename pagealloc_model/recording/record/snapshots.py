"""Copies of the kernel's state files while a machine is recorded, or alone."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagealloc_model.base.errors import RecordingError, UsageError
from pagealloc_model.recording import recording as recordings
from pagealloc_model.recording.proc.counts import (
    CPU_TIMES_FILE,
    PRESSURE_FILE,
    READ_TIMES_FILE,
    cpu_lines,
    format_read_times,
)
from pagealloc_model.recording.proc.zoneinfo import parse_zoneinfo
from pagealloc_model.recording.record.host import Host, machine_meta, read_or_none
from pagealloc_model.recording.record.ownership import (
    calling_user,
    give_to,
    make_where_none_may_exchange,
)
from pagealloc_model.recording.snapshot import FOLIO_STATS_FILE

_PATHS = {PRESSURE_FILE: "pressure/memory"}
"""Where a file lies below /proc that is not kept under its own name."""
_READ_ORDER = ("zoneinfo", "vmstat", "buddyinfo", PRESSURE_FILE, CPU_TIMES_FILE, "pagetypeinfo")
"""Those that take microseconds first, so that they describe one instant; pagetypeinfo walks every
free list, which took 30 to 60 ms on a machine with 19 GiB free."""


@dataclass(frozen=True, kw_only=True)
class StateFiles:
    """State files as they were read, not written yet.

    Attributes:
        time_ns: CLOCK_MONOTONIC at the start of the read.
        contents: by name.
        read_ns: CLOCK_MONOTONIC before and after each file's own read: a busy machine changes much
            between the first and the last.
    """

    time_ns: int
    contents: Mapping[str, bytes]
    read_ns: Mapping[str, tuple[int, int]]

    def write(self, recording: Path) -> None:
        """Write them into a new directory of the recording; none is left of an OSError."""
        directory = recording / recordings.SNAPSHOT_DIRECTORY / f"{self.time_ns:020d}"
        try:
            directory.mkdir(parents=True)
            for name, content in self.contents.items():
                (directory / name).write_bytes(content)
            times = format_read_times(self.read_ns)
            (directory / READ_TIMES_FILE).write_text(times, encoding="ascii")
        except OSError:
            shutil.rmtree(directory, ignore_errors=True)
            raise


def read_state_files(host: Host) -> StateFiles:
    """Read the state files; unreadable ones are left out. Writing them does not show in them."""
    time_ns = time.monotonic_ns()
    contents: dict[str, bytes] = {}
    read_ns: dict[str, tuple[int, int]] = {}
    for name in _READ_ORDER:
        before = time.monotonic_ns()
        with contextlib.suppress(OSError):
            contents[name] = (host.proc / _PATHS.get(name, name)).read_bytes()
            read_ns[name] = (before, time.monotonic_ns())
    if CPU_TIMES_FILE in contents:
        contents[CPU_TIMES_FILE] = cpu_lines(contents[CPU_TIMES_FILE])
    if stats := folio_stats(host):
        contents[FOLIO_STATS_FILE] = stats.encode("ascii")
    return StateFiles(time_ns=time_ns, contents=contents, read_ns=read_ns)


def take_snapshot(recording: Path, host: Host) -> int:
    """Copy the state files into a new directory of the recording; returns when, in ns."""
    state = read_state_files(host)
    state.write(recording)
    return state.time_ns


_FOLIO_STATS = (
    *("anon_fault_alloc", "anon_fault_fallback", "anon_fault_fallback_charge"),
    *("nr_anon", "shmem_alloc", "shmem_fallback", "split", "split_failed"),
)


def folio_stats(host: Host) -> str:
    """Counters of each size of folio as `hugepages-64kB/anon_fault_alloc 12`, a line each.

    From `/sys/kernel/mm/transparent_hugepage/hugepages-*/stats`; "" where the kernel has none.
    """
    lines = []
    for size in sorted(host.sysfs.glob("kernel/mm/transparent_hugepage/hugepages-*")):
        for name in _FOLIO_STATS:
            if (value := read_or_none(size / "stats" / name)) and value.strip().isdecimal():
                lines.append(f"{size.name}/{name} {value.strip()}\n")
    return "".join(lines)


def copy_pages(recording: Path, host: Host, check: Callable[[], None]) -> dict[str, Any]:
    """Copy debugfs's page_owner (T12.7) and /proc/kpageflags (T12.5) as far as they can be read.

    Of kpageflags without what `PageFrames` leaves out. Returns their times in ns, for meta.json.
    """
    holes = ()
    with contextlib.suppress(OSError, RecordingError):
        path = host.proc / "zoneinfo"
        holes = parse_zoneinfo(path.read_text(encoding="ascii"), path).frames.holes
    times = {
        "page_owner_at_ns": _compress(
            host.debugfs / "page_owner", recording / "page_owner.txt.gz", check
        ),
        "kpageflags_at_ns": _compress(
            host.proc / "kpageflags", recording / recordings.KPAGEFLAGS_FILE, check, holes
        ),
    }
    known = {key: time_ns for key, time_ns in times.items() if time_ns is not None}
    return known | ({recordings.WITHOUT_HOLES: holes} if holes else {})


def copy_kernel_symbols(recording: Path, host: Host, check: Callable[[], None]) -> None:
    """Copy /proc/kallsyms, which names the functions of call chains, unless it hides addresses."""
    source = host.proc / "kallsyms"
    try:
        with source.open("rb") as file:
            hidden = not file.readline().split()[0].strip(b"0")
    except (OSError, IndexError):
        return
    if not hidden:
        _compress(source, recording / recordings.KALLSYMS_FILE, check)


_NEVER = 1 << 60


def _compress(
    source: Path,
    destination: Path,
    check: Callable[[], None],
    holes: tuple[tuple[int, int], ...] = (),
) -> int | None:
    """Pack a file but for words of page frames in holes; when it was read, None if it cannot be."""
    try:
        file = source.open("rb", buffering=0)
    except OSError:
        return None
    time_ns = time.monotonic_ns()
    with (
        file,
        destination.open("wb") as plain,
        gzip.GzipFile("", "wb", 1, plain, mtime=0) as packed,
    ):
        place = 0
        for begin, end in ((8 * begin, 8 * end) for begin, end in (*holes, (_NEVER, _NEVER))):
            while chunk := file.read(min(1 << 20, begin - place)):
                packed.write(chunk)
                place += len(chunk)
                check()
            if end < _NEVER:
                place = file.seek(end)
    return time_ns


_CLOCKS = {"boot": time.CLOCK_BOOTTIME, "mono_raw": time.CLOCK_MONOTONIC_RAW, "tai": time.CLOCK_TAI}


def copy_state(
    directory: Path,
    host: Host,
    *,
    seconds: float = 0.0,
    interval_s: float = 1.0,
    check: Callable[[], None] = lambda: None,
) -> tuple[int, tuple[str, ...], bool]:
    """Copy the machine's state files into a directory, which `attach` joins with a trace.

    A directory that an earlier call made gets further snapshots; it is for this user alone, or for
    the one who called sudo. The first call also writes
    meta.json and, where they can be read, page_owner and the page flags: call it just before
    tracing begins. Root alone may read pagetypeinfo and kpageflags.

    Args:
        directory: new, or made by an earlier call.
        host: the machine.
        seconds: take snapshots for this long; 0: one.
        interval_s: between two.
        check: called between parts; may raise to end early.

    Returns:
        Snapshots taken, state files that this user or kernel does not give, and whether the
        directory has page flags now.

    Raises:
        UsageError: the directory is something else, cannot be written, or others could exchange
            what root writes there; or the interval is not above 0.
    """
    if not interval_s > 0:
        raise UsageError(f"{interval_s}: no time between snapshots; give seconds above 0")
    is_new = not (directory / recordings.META_FILE).exists()
    if is_new and directory.is_dir() and any(directory.iterdir()):
        raise UsageError(f"{directory}: has other files; name a new directory")
    try:
        make_where_none_may_exchange(directory, 0o700)
        try:
            if is_new:
                directory.chmod(0o700)
                # The machine's clocks at one instant, so that a trace by any of them can be placed.
                clocks = {name: time.clock_gettime_ns(number) for name, number in _CLOCKS.items()}
                clocks = {"monotonic": time.monotonic_ns(), **clocks}
                meta = machine_meta(host) | {"clocks_ns": clocks}
                recordings.write_meta(directory, meta | copy_pages(directory, host, check))
            count, end = 1, time.monotonic() + seconds
            last = take_snapshot(directory, host)
            while time.monotonic() + interval_s <= end:
                time.sleep(interval_s)
                check()
                last = take_snapshot(directory, host)
                count += 1
        finally:
            if owner := calling_user(os.environ, host.user):
                give_to(directory, owner)
    except OSError as error:
        raise UsageError(f"{directory}: cannot be written ({error.strerror})") from None
    files = directory / recordings.SNAPSHOT_DIRECTORY / f"{last:020d}"
    needed = (name for name in _READ_ORDER if name not in (PRESSURE_FILE, CPU_TIMES_FILE))
    unreadable = tuple(name for name in needed if not (files / name).exists())
    return count, unreadable, (directory / recordings.KPAGEFLAGS_FILE).exists()
