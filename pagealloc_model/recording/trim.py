"""Cut a recording to a time window, and make it fit to be shown to others."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.version import __version__
from pagealloc_model.recording.anonymise import REMOVED, anonymise_meta, anonymise_trace
from pagealloc_model.recording.event_files import read_events
from pagealloc_model.recording.lock_profile import PROFILE_FILE
from pagealloc_model.recording.recording import (
    KALLSYMS_FILE,
    KPAGEFLAGS_FILE,
    META_FILE,
    PAGE_OWNER_FILES,
    SNAPSHOT_DIRECTORY,
    STORE_FILE,
    Recording,
    open_recording,
)
from pagealloc_model.recording.trace.columns import Trace
from pagealloc_model.recording.trace.side_tables import Window, events_between

_NEVER = np.iinfo(np.int64).max
_SECOND = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class TrimResult:
    """What a cut holds.

    Attributes:
        path: the new recording.
        window: the time kept.
        snapshots: snapshots kept.
        size: bytes of all its files.
        removed: what was left out, one plain phrase each.
    """

    path: Path
    window: Window
    snapshots: int
    size: int
    removed: tuple[str, ...]


def trim_recording(
    source: Path,
    destination: str | Path,
    *,
    start_s: float | None = None,
    seconds: float | None = None,
    events: int | None = None,
    anonymise: bool = False,
    compress: bool = True,
    keep_names: Collection[str] = (),
) -> TrimResult:
    """Write the part of a recording that lies in a window as one of its own.

    Snapshots inside the window are kept, with the last before and the first after it. The page
    flags and the page owners were read at the start, so they are kept only from there.

    Args:
        source: whatever `open_recording` opens; not changed. The events of the cut are columns.
        destination: the new recording's directory, which must not exist.
        start_s: start of the window, seconds after the first page-allocator event; None: there.
        seconds: length of the window; None: to the end.
        events: end after this many page-allocator events instead.
        anonymise: remove what names the machine or its programs, see `anonymise`.
        compress: write compressed columns.
        keep_names: command names that anonymising keeps besides the usual ones.

    Raises:
        UsageError: the window is impossible or empty, or the destination exists.
        RecordingError: the source is damaged.
    """
    destination = Path(destination)
    _check_arguments(destination, start_s, seconds, events)
    recording = open_recording(source)
    trace = read_events(recording.event_file, main_chains=True)
    window = _window(trace.time_ns, recording.name, start_s, seconds, events)
    command = (
        f"trim_recording({recording.name!r}, {destination.name!r}, start_s={start_s}, "
        f"seconds={seconds}, events={events}, anonymise={anonymise}, compress={compress}, "
        f"keep_names={tuple(keep_names)})"
    )
    cut = events_between(trace, window)
    if anonymise:
        cut = anonymise_trace(cut, keep_names)
    return _Cut(recording, cut, window, anonymise, command).write(destination, compress)


class _Cut:
    """Writes one cut, first under a temporary name."""

    def __init__(
        self, recording: Recording, trace: Trace, window: Window, anonymise: bool, command: str
    ) -> None:
        self._recording = recording
        self._trace = trace
        self._window = window
        self._anonymise = anonymise
        self._command = command
        self._removed = [*(REMOVED if anonymise else ())]
        self._snapshots = 0

    def write(self, destination: Path, compress: bool) -> TrimResult:
        from pagealloc_model.recording.trace.store import write_store

        destination.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{destination.name}-", dir=destination.parent))
        try:
            partial.chmod(0o755)
            write_store(self._trace, partial / STORE_FILE, source=None, compress=compress)
            self._copy_snapshots(partial)
            self._copy_start_state(partial)
            self._write_meta(partial / META_FILE)
            partial.rename(destination)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        return TrimResult(
            path=destination,
            window=self._window,
            snapshots=self._snapshots,
            size=sum(file.stat().st_size for file in destination.rglob("*") if file.is_file()),
            removed=tuple(self._removed),
        )

    def _copy_snapshots(self, destination: Path) -> None:
        for directory in self._kept_snapshots():
            shutil.copytree(directory, destination / SNAPSHOT_DIRECTORY / directory.name)
            self._snapshots += 1

    def _kept_snapshots(self) -> Iterator[Path]:
        """Directories of the snapshots in the window, the last before it and the first after."""
        snapshots = self._recording.snapshots
        if not snapshots:
            return
        if self._trace.clock != "monotonic":
            self._removed.append("snapshots, whose clock is not that of the events")
            return
        times = np.array([snapshot.time_ns for snapshot in snapshots])
        first = max(int(np.searchsorted(times, self._window.begin_ns, "right")) - 1, 0)
        last = min(int(np.searchsorted(times, self._window.end_ns)), len(times) - 1)
        for snapshot in snapshots[first : last + 1]:
            yield snapshot.directory
        if last + 1 - first < len(times):
            self._removed.append("snapshots outside the window")

    def _copy_start_state(self, destination: Path) -> None:
        """Copy what was read just before recording: pages only if the cut begins there."""
        self._copy_profile(destination)
        symbols = self._recording.path / KALLSYMS_FILE
        if symbols.is_file():
            if self._anonymise:
                self._removed.append(f"{KALLSYMS_FILE}, which tells this boot's addresses")
            else:
                _recompress(symbols, destination / KALLSYMS_FILE)
        for name in (KPAGEFLAGS_FILE, *PAGE_OWNER_FILES):
            file = self._recording.path / name
            if not (self._recording.path.is_dir() and file.is_file()):
                continue
            if not self._window.from_start:
                self._removed.append(f"{name}, which is true only at the recording's start")
            elif self._anonymise and name in PAGE_OWNER_FILES:
                self._removed.append(f"{name}, which names programs")
            else:
                _recompress(file, destination / name)

    def _copy_profile(self, destination: Path) -> None:
        profile = self._recording.path / PROFILE_FILE
        if not (self._recording.path.is_dir() and profile.is_file()):
            return
        if self._window.from_start and self._window.to_end:
            shutil.copyfile(profile, destination / PROFILE_FILE)
        else:
            self._removed.append(f"{PROFILE_FILE}, which is of the whole recording")

    def _write_meta(self, path: Path) -> None:
        meta = dict(self._recording.meta)
        if self._anonymise:
            meta = anonymise_meta(meta)
        meta.setdefault("bundle_version", 1)
        for key, outer, limit in (
            ("start_ns", max, self._window.begin_ns),
            ("end_ns", min, self._window.end_ns),
        ):
            if isinstance(meta.get(key), int) and not self._is_whole(key):
                meta[key] = outer(meta[key], limit)
        meta["provenance"] = self._provenance(meta.get("provenance"))
        path.write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")

    def _is_whole(self, key: str) -> bool:
        return self._window.from_start if key == "start_ns" else self._window.to_end

    def _provenance(self, earlier: object) -> dict[str, Any]:
        window = self._window
        provenance: dict[str, Any] = {
            "source": self._recording.name,
            "source_sha256": self._recording.sha256,
            "window_ns": [window.begin_ns, window.end_ns],
            "window_starts_at_recording_start": window.from_start,
            "window_reaches_recording_end": window.to_end,
            "page_allocator_events": window.events,
            "command": self._command,
            "made_by": f"pagealloc_model {__version__}",
            "anonymised": self._anonymise,
            "removed": list(self._removed),
        }
        if earlier is not None:
            provenance["earlier"] = earlier
        return provenance


def _check_arguments(
    destination: Path, start_s: float | None, seconds: float | None, events: int | None
) -> None:
    if destination.exists():
        raise UsageError(f"{destination} exists; give the name of a new directory")
    if seconds is not None and events is not None:
        raise UsageError("a cut ends after seconds or after events, not both; give one")
    if start_s is not None and not 0 <= start_s < _NEVER / _SECOND:
        raise UsageError(f"start {start_s} s is before the recording; give 0 or more seconds")
    if seconds is not None and not 0 < seconds < _NEVER / _SECOND:
        raise UsageError(f"a window of {seconds} s holds nothing; give more than 0 seconds")
    if events is not None and events <= 0:
        raise UsageError(f"a window of {events} events holds nothing; give 1 or more")


def _window(
    times: np.ndarray, name: str, start_s: float | None, seconds: float | None, events: int | None
) -> Window:
    if not len(times):
        raise UsageError(f"{name} holds no page-allocator events, so there is nothing to cut")
    first, last = int(times[0]), int(times[-1])
    begin = first + round((start_s or 0) * _SECOND)
    end = last + 1 if seconds is None else min(begin + round(seconds * _SECOND), last + 1)
    skipped = int(np.searchsorted(times, begin))
    if events is not None and skipped + events <= len(times):
        end = int(times[skipped + events - 1]) + 1
    kept = int(np.searchsorted(times, end)) - skipped
    if kept <= 0:
        raise UsageError(
            f"no events from {begin - first} ns to {end - first} ns after the first; "
            f"{name} lasts {(last - first) / _SECOND:.3f} s"
        )
    return Window(
        begin_ns=begin,
        end_ns=end,
        from_start=begin == first,
        to_end=end > last,
        events=kept,
    )


def _recompress(source: Path, destination: Path) -> None:
    """Copy a gzip file at the best compression, without its time; a damaged one as it is."""
    try:
        content = gzip.decompress(source.read_bytes())
    except (EOFError, zlib.error, gzip.BadGzipFile):
        shutil.copyfile(source, destination)
    else:
        destination.write_bytes(gzip.compress(content, compresslevel=9, mtime=0))
