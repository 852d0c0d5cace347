"""Cut a recording to a time window, and make it fit to be shown to others."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pagealloc_model.base.errors import RecordingError, UsageError
from pagealloc_model.base.files import MOST_COPIED, chunks_of, copy_file, is_compressed
from pagealloc_model.base.version import __version__
from pagealloc_model.recording.anonymise import (
    ANONYMOUS,
    REMOVED,
    LeftOut,
    anonymise_flags,
    anonymise_meta,
    anonymise_profile,
    anonymise_snapshot,
    anonymise_trace,
    functions_of_chains,
)
from pagealloc_model.recording.event_files import read_events
from pagealloc_model.recording.lock_profile import PROFILE_FILE
from pagealloc_model.recording.proc.pages import read_kpageflags
from pagealloc_model.recording.recording import (
    KALLSYMS_FILE,
    META_FILE,
    PAGE_OWNER_FILES,
    SNAPSHOT_DIRECTORY,
    STORE_FILE,
    Recording,
    most_words,
    open_recording,
    state_files,
)
from pagealloc_model.recording.snapshot import Snapshot
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
        removed: what was left out, one plain phrase each; of a recording made anonymous with
            names, which the recording itself does not have.
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
    keep_functions: bool = False,
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
        keep_functions: anonymising keeps the names of the kernel's functions in call chains.

    Raises:
        UsageError: the window is impossible or empty, or the destination exists.
        RecordingError: the source is damaged.
    """
    destination = Path(destination)
    _check_arguments(destination, start_s, seconds, events)
    recording = open_recording(source)
    trace = read_events(recording.event_file, main_chains=True)
    window = _window(trace.time_ns, recording.name, start_s, seconds, events)
    names = ("", "") if anonymise else (recording.name, destination.name)
    kept = () if anonymise else tuple(keep_names)
    command = (
        f"trim_recording({names[0]!r}, {names[1]!r}, start_s={start_s}, "
        f"seconds={seconds}, events={events}, anonymise={anonymise}, compress={compress}, "
        f"keep_names={kept}{', keep_functions=True' if keep_functions else ''})"
    )
    left_out = LeftOut() if anonymise else None
    cut = events_between(trace, window)
    functions = None
    if left_out is not None:
        chains, symbols = cut.callchains, recording.kernel_symbols if keep_functions else None
        cut = anonymise_trace(cut, keep_names, left_out)
        if symbols is not None:
            functions = functions_of_chains(chains, cut.callchains, symbols)
    return _Cut(recording, cut, window, left_out, command, functions).write(destination, compress)


class _Cut:
    """Writes one cut, first under a temporary name."""

    def __init__(
        self,
        recording: Recording,
        trace: Trace,
        window: Window,
        left_out: LeftOut | None,
        command: str,
        functions: bytes | None,
    ) -> None:
        self._recording = recording
        self._trace = trace
        self._window = window
        self._left_out = left_out
        self._command = command
        self._functions = functions
        self._removed = [*(REMOVED if left_out else ())]
        self._snapshots = 0

    def write(self, destination: Path, compress: bool) -> TrimResult:
        from pagealloc_model.recording.trace.store import write_store

        destination.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{destination.name}-", dir=destination.parent))
        try:
            write_store(self._trace, partial / STORE_FILE, source=None, compress=compress)
            self._copy_snapshots(partial)
            self._copy_start_state(partial)
            self._write_meta(partial / META_FILE)
            if self._left_out is not None:
                partial.chmod(0o755)  # to be shown
            partial.rename(destination)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        return TrimResult(
            path=destination,
            window=self._window,
            snapshots=self._snapshots,
            size=sum(file.stat().st_size for file in destination.rglob("*") if file.is_file()),
            removed=(*self._removed, *(self._left_out.named() if self._left_out else ())),
        )

    def _copy_snapshots(self, destination: Path) -> None:
        others = set()
        for snapshot in self._kept_snapshots():
            place = destination / SNAPSHOT_DIRECTORY / f"{snapshot.time_ns:020d}"
            if self._left_out is not None:
                anonymise_snapshot(snapshot, place, self._left_out)
            else:
                others |= {*snapshot.copy_to(place)}
            self._snapshots += 1
        if others:
            self._removed.append(f"other files of snapshots: {', '.join(sorted(others))}")

    def _kept_snapshots(self) -> Iterator[Snapshot]:
        """The snapshots in the window, the last before it and the first after."""
        snapshots = self._recording.snapshots
        if not snapshots:
            return
        if self._trace.clock != "monotonic":
            self._removed.append("snapshots, whose clock is not that of the events")
            return
        times = np.array([snapshot.time_ns for snapshot in snapshots])
        first = max(int(np.searchsorted(times, self._window.begin_ns, "right")) - 1, 0)
        last = min(int(np.searchsorted(times, self._window.end_ns)), len(times) - 1)
        yield from snapshots[first : last + 1]
        if last + 1 - first < len(times):
            self._removed.append("snapshots outside the window")

    def _copy_start_state(self, destination: Path) -> None:
        """Copy what was read just before recording: pages only if the cut begins there."""
        whole = self._window.from_start and self._window.to_end
        for name in state_files(self._recording.path):
            source, copy = self._recording.path / name, destination / name
            if name == PROFILE_FILE and not whole:
                self._removed.append(f"{name}, which is of the whole recording")
            elif name not in (PROFILE_FILE, KALLSYMS_FILE) and not self._window.from_start:
                self._removed.append(f"{name}, which is true only at the recording's start")
            elif self._left_out is not None:
                self._anonymise_file(source, copy)
            elif name == PROFILE_FILE:
                copy_file(source, copy)
            else:
                _recompress(source, copy)

    def _anonymise_file(self, source: Path, copy: Path) -> None:
        """Write a state file without what is not known to be harmless, or none at all."""
        if source.name == KALLSYMS_FILE:
            if self._functions is None:
                self._removed.append(f"{KALLSYMS_FILE}, which tells this boot's addresses")
            else:
                copy.write_bytes(self._functions)
        elif source.name in PAGE_OWNER_FILES:
            self._removed.append(f"{source.name}, which names programs")
        elif source.name == PROFILE_FILE:
            copy.write_text(anonymise_profile(source), encoding="ascii")
        else:
            try:
                flags = read_kpageflags(source, most_words(self._recording))
            except RecordingError:
                self._removed.append(f"{source.name}, which cannot be read")
            else:
                copy.write_bytes(anonymise_flags(flags))

    def _write_meta(self, path: Path) -> None:
        meta = dict(self._recording.meta)
        if self._left_out is not None:
            meta = anonymise_meta(meta, self._left_out)
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
        left_out = self._left_out
        provenance: dict[str, Any] = {
            "source": self._recording.name if left_out is None else ANONYMOUS,
            "source_sha256": self._recording.sha256,
            "window_ns": [window.begin_ns, window.end_ns],
            "window_starts_at_recording_start": window.from_start,
            "window_reaches_recording_end": window.to_end,
            "page_allocator_events": window.events,
            "command": self._command,
            "made_by": f"pagealloc_model {__version__}",
            "anonymised": left_out is not None,
            "removed": [*self._removed, *(left_out.counted() if left_out else ())],
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
    """Copy a packed file at the best compression, without its time; any other as it is."""
    try:
        if not is_compressed(source):
            raise RecordingError(source, "is not packed")
        with (
            destination.open("wb") as file,
            gzip.GzipFile("", "wb", 9, file, mtime=0) as packed,
        ):
            for chunk in chunks_of(source, most=MOST_COPIED):
                packed.write(chunk)
    except RecordingError:
        destination.unlink(missing_ok=True)
        copy_file(source, destination)
