"""The /proc side of a recording alone, for those who trace with tools of their own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.make.host import Host
from pagealloc_model.recording.make.meta import machine_meta
from pagealloc_model.recording.make.snapshots import (
    copy_page_flags,
    copy_page_owners,
    take_snapshot,
)
from pagealloc_model.recording.recording import META_FILE, SNAPSHOT_DIRECTORY

CLOCKS_KEY = "clocks_ns"
"""Key of meta.json: tracefs's name of a clock -> its time when CLOCK_MONOTONIC was `monotonic`."""
_CLOCKS = {
    "boot": time.CLOCK_BOOTTIME,
    "mono_raw": time.CLOCK_MONOTONIC_RAW,
    "tai": time.CLOCK_TAI,
}


@dataclass(frozen=True, kw_only=True)
class StateCopy:
    """What `copy_state` wrote.

    Attributes:
        path: the directory.
        snapshots: taken in this call.
        unreadable: state files that this user or kernel does not give.
        page_flags: kpageflags are among it now.
    """

    path: Path
    snapshots: int
    unreadable: tuple[str, ...]
    page_flags: bool


def copy_state(
    directory: Path,
    host: Host,
    *,
    seconds: float = 0.0,
    interval_s: float = 1.0,
    check: Callable[[], None] = lambda: None,
) -> StateCopy:
    """Copy the machine's state files into a directory, which `attach` joins with a trace.

    A directory that an earlier call made gets further snapshots. The first call also writes
    meta.json and, where they can be read, page_owner and the page flags: call it just before
    tracing begins. Root alone may read pagetypeinfo and kpageflags.

    Args:
        directory: new, or made by an earlier call.
        host: the machine.
        seconds: take snapshots for this long; 0: one.
        interval_s: between two.
        check: called between parts; may raise to end early.

    Raises:
        UsageError: the directory is something else, or cannot be written.
    """
    meta_file = directory / META_FILE
    is_new = not meta_file.exists()
    if is_new and directory.is_dir() and any(directory.iterdir()):
        raise UsageError(f"{directory}: has other files; name a new directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if is_new:
            meta = machine_meta(host) | {CLOCKS_KEY: _clocks()}
            for key, copy in (
                ("page_owner_at_ns", copy_page_owners),
                ("kpageflags_at_ns", copy_page_flags),
            ):
                time_ns = copy(directory, host, check)
                if time_ns is not None:
                    meta[key] = time_ns
            meta_file.write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
        count, end = 1, time.monotonic() + seconds
        last = take_snapshot(directory, host)
        while time.monotonic() + interval_s <= end:
            time.sleep(interval_s)
            check()
            last = take_snapshot(directory, host)
            count += 1
    except OSError as error:
        raise UsageError(f"{directory}: cannot be written ({error.strerror})") from None
    files = directory / SNAPSHOT_DIRECTORY / f"{last:020d}"
    names = ("zoneinfo", "vmstat", "buddyinfo", "pagetypeinfo")
    return StateCopy(
        path=directory,
        snapshots=count,
        unreadable=tuple(name for name in names if not (files / name).exists()),
        page_flags="kpageflags_at_ns" in json.loads(meta_file.read_text(encoding="utf-8")),
    )


def _clocks() -> dict[str, int]:
    """The machine's clocks at one instant, ns, so that a trace by any of them can be placed."""
    clocks = {name: time.clock_gettime_ns(number) for name, number in _CLOCKS.items()}
    return {"monotonic": time.monotonic_ns(), **clocks}
