"""Cut a recording to a time window, and make it fit to be shown to others."""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pagealloc_model.base import files
from pagealloc_model.base.errors import RecordingError, UsageError
from pagealloc_model.base.version import __version__
from pagealloc_model.recording import anonymise as anonymous
from pagealloc_model.recording import recording as recordings
from pagealloc_model.recording.event_files import read_events
from pagealloc_model.recording.lock_profile import PROFILE_FILE, read_lock_profile
from pagealloc_model.recording.proc import counts
from pagealloc_model.recording.proc.pages import read_page_owner
from pagealloc_model.recording.trace.side_tables import Window, events_between

_NEVER = np.iinfo(np.int64).max
_SECOND = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class TrimResult:
    """The new recording, the time and number of snapshots kept, and bytes of all its files.

    `removed` is what was left out, one plain phrase each; of a recording made anonymous with names,
    which the recording itself does not have.
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
    from pagealloc_model.recording.trace.store import write_store

    destination = Path(destination)
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
    recording = recordings.open_recording(source)
    trace = read_events(recording.event_file, main_chains=True)
    window = _window(trace.time_ns, recording.name, start_s, seconds, events)
    cut = events_between(trace, window)
    names = ("", "") if anonymise else (recording.name, destination.name)
    kept_names = () if anonymise else tuple(keep_names)
    command = (
        f"trim_recording({names[0]!r}, {names[1]!r}, start_s={start_s}, "
        f"seconds={seconds}, events={events}, anonymise={anonymise}, compress={compress}, "
        f"keep_names={kept_names}{', keep_functions=True' if keep_functions else ''})"
    )
    left_out: anonymous.LeftOut = defaultdict(dict)
    removed = [*(anonymous.REMOVED if anonymise else ())]
    functions = None
    if anonymise:
        chains, symbols = cut.callchains, recording.kernel_symbols if keep_functions else None
        cut = anonymous.anonymise_trace(cut, keep_names, left_out)
        if symbols is not None:
            functions = anonymous.functions_of_chains(chains, cut.callchains, symbols)
    with files.new_directory(destination, private=True) as partial:
        write_store(cut, partial / recordings.STORE_FILE, source=None, compress=compress)
        others: set[str] = set()
        # Those in the window, the last before it and the first after.
        times = [snapshot.time_ns for snapshot in recording.snapshots]
        first = max(int(np.searchsorted(times, window.begin_ns, "right")) - 1, 0)
        snapshots = recording.snapshots[first : int(np.searchsorted(times, window.end_ns)) + 1]
        if times and cut.clock != "monotonic":
            removed.append("snapshots, whose clock is not that of the events")
            snapshots = ()
        elif len(snapshots) < len(times):
            removed.append("snapshots outside the window")
        for snapshot in snapshots:
            place = partial / recordings.SNAPSHOT_DIRECTORY / f"{snapshot.time_ns:020d}"
            if anonymise:
                anonymous.anonymise_snapshot(snapshot, place, left_out)
            else:
                others |= {*snapshot.copy_to(place)}
        if others:
            removed.append(f"other files of snapshots: {', '.join(sorted(others))}")
        for name in recordings.state_files(recording.path):
            why = _copy_state_file(recording, name, partial, window, anonymise, functions)
            removed += [f"{name}, which {why}"] if why else []
        meta = dict(recording.meta)
        if anonymise:
            meta = anonymous.anonymise_meta(meta, left_out)
            if recording.frames.holes:
                meta[recordings.WITHOUT_HOLES] = recording.frames.holes
        meta.setdefault("bundle_version", 1)
        if not window.from_start:
            meta.pop("kswapd_slept", None)
            if isinstance(meta.get("start_ns"), int):
                meta["start_ns"] = max(meta["start_ns"], window.begin_ns)
        if isinstance(meta.get("end_ns"), int) and not window.to_end:
            meta["end_ns"] = min(meta["end_ns"], window.end_ns)
        earlier = meta.get("provenance")
        counted = [f"{kind}: {len(names):,}" for kind, names in left_out.items()]
        meta["provenance"] = {
            "source": anonymous.ANONYMOUS if anonymise else recording.name,
            "source_sha256": recording.sha256,
            "window_ns": [window.begin_ns, window.end_ns],
            "window_starts_at_recording_start": window.from_start,
            "window_reaches_recording_end": window.to_end,
            "page_allocator_events": window.events,
            "command": command,
            "made_by": f"pagealloc_model {__version__}",
            "anonymised": anonymise,
            "removed": [*removed, *counted],
        } | ({} if earlier is None else {"earlier": earlier})
        recordings.write_meta(partial, meta)
    if anonymise:
        destination.chmod(0o755)  # to be shown
    named = [f"{kind}: {', '.join(names)}" for kind, names in left_out.items()]
    return TrimResult(
        path=destination,
        window=window,
        snapshots=len(snapshots),
        size=sum(file.stat().st_size for file in destination.rglob("*") if file.is_file()),
        removed=(*removed, *named),
    )


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
    count = int(np.searchsorted(times, end)) - skipped
    if count <= 0:
        raise UsageError(
            f"no events from {begin - first} ns to {end - first} ns after the first; "
            f"{name} lasts {(last - first) / _SECOND:.3f} s"
        )
    return Window(
        begin_ns=begin, end_ns=end, from_start=begin == first, to_end=end > last, events=count
    )


def _is_understood(recording: recordings.Recording, name: str, anonymise: bool) -> bool:
    """Whether a state file is what its name says: any other bytes might be a program's.

    An anonymous profile is written anew, of the lines that are some.
    """
    source = recording.path / name
    try:
        if name == PROFILE_FILE and anonymise:
            anonymous.anonymise_profile(source)
        elif name == PROFILE_FILE:
            read_lock_profile(source, recording.meta.get("profile") or {})
        elif name == recordings.KALLSYMS_FILE:
            counts.read_kallsyms(source)
        elif name in recordings.PAGE_OWNER_FILES:
            read_page_owner(source)
        else:
            recording.kpageflags  # noqa: B018
    except RecordingError:
        return False
    return True


def _copy_state_file(
    recording: recordings.Recording,
    name: str,
    directory: Path,
    window: Window,
    anonymise: bool,
    functions: bytes | None,
) -> str:
    """Copy what was read just before recording, or say why not; pages only of a cut from there.

    Anonymous, it is without what is not known to be harmless.
    """
    source, copy = recording.path / name, directory / name
    if name == PROFILE_FILE and not (window.from_start and window.to_end):
        return "is of the whole recording"
    if name not in (PROFILE_FILE, recordings.KALLSYMS_FILE) and not window.from_start:
        return "is true only at the recording's start"
    if not _is_understood(recording, name, anonymise):
        return "cannot be read"
    if not anonymise:
        # A packed file is copied at the best compression, without its time; any other as it is.
        try:
            if name == PROFILE_FILE or not files.is_compressed(source):
                raise RecordingError(source, "is not packed")
            with copy.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
                for chunk in files.chunks_of(source, most=files.MOST_COPIED):
                    packed.write(chunk)
        except RecordingError:
            copy.unlink(missing_ok=True)
            files.copy_file(source, copy)
    elif name == recordings.KALLSYMS_FILE:
        if functions is None:
            return "tells this boot's addresses"
        copy.write_bytes(functions)
    elif name in recordings.PAGE_OWNER_FILES:
        return "names programs"
    elif name == PROFILE_FILE:
        copy.write_text(anonymous.anonymise_profile(source), encoding="ascii")
    else:
        assert recording.kpageflags is not None
        words = (recording.kpageflags & anonymous.PAGE_FLAGS).astype("<u8")
        copy.write_bytes(gzip.compress(words.tobytes(), compresslevel=9, mtime=0))
    return ""
