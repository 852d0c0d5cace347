"""Recordings made of others' events: in columnar form, or of a bare trace and copies of /proc."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pagealloc_model.base.errors import RecordingError, UsageError
from pagealloc_model.base.files import (
    copy_file,
    given,
    json_of,
    new_directory,
    refuse_unless_file,
    text_of,
    written_whole,
)
from pagealloc_model.base.progress_bar import Report, part_of
from pagealloc_model.recording import recording as recordings
from pagealloc_model.recording.event_files import STORE_FILE, is_store, read_events, size_of
from pagealloc_model.recording.machine import beyond_page_frames
from pagealloc_model.recording.proc.counts import READ_TIMES_FILE, format_read_times
from pagealloc_model.recording.snapshot import SNAPSHOT_FILES, Snapshot
from pagealloc_model.recording.state_instant import STATE_DIRECTORY, state_files_of
from pagealloc_model.recording.trace.columns import Trace

_OWN_READER, _PERF_SCRIPT = "own", "perf-script"
_READING = 0.7
"""Share of the work done once the events are read."""


@dataclass(frozen=True, kw_only=True)
class ImportResult:
    """The result of an import: a recording or an event file, its events, and its bytes.

    `source_size` is that of the event file it was made from; files of the source that do not come
    along are `left_out`.
    """

    path: Path
    event_file: Path
    events: int
    size: int
    source_size: int
    left_out: tuple[str, ...]


def import_recording(
    source: str | Path,
    destination: str | Path,
    *,
    compress: bool = True,
    reader: str = _OWN_READER,
    progress: Report | None = None,
) -> ImportResult:
    """Write a recording with its events in columnar form; all else in it is copied.

    Memory does not grow with the number of events: what does is kept in unnamed files beside the
    destination until the end, about 100 bytes an event, and 8 bytes a text in side tables.

    Args:
        source: whatever `open_recording` opens; not changed.
        destination: a new directory, or a new file NAME.arrow for the events alone.
        compress: write columns compressed. They are smaller than perf's own records, and are
            unpacked to memory on first use. Others take 30 bytes an event, and are used where they
            lie: of a recording larger than memory, only what is looked at is read.
        reader: "own", or "perf-script" or "perf-session" for perf's Python bindings.
        progress: called with the share done, 0 to 1.

    Raises:
        RecordingError: the source cannot be read.
        UsageError: the destination exists or cannot be written, or perf's Python is not there.
    """
    recording = recordings.open_recording(source)
    destination = Path(destination)
    if destination.exists():
        raise UsageError(f"{destination} exists; give a new name with -o")
    alone = destination.suffix == ".arrow"
    beside = [recordings.META_FILE] if recording.meta else []
    beside += recordings.state_files(recording.path)
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        new = written_whole(destination) if alone else new_directory(destination, private=True)
        with new as partial:
            store = partial if alone else partial / STORE_FILE
            trace = write_events(
                recording, store, compress=compress, reader=reader, progress=progress
            )
            for name in () if alone else beside:
                copy_file(recording.path / name, partial / name)
            for file in () if alone else state_files_of(recording.path):
                (partial / STATE_DIRECTORY).mkdir(exist_ok=True)
                copy_file(file, partial / STATE_DIRECTORY / file.name)
            for snapshot in () if alone else recording.snapshots:
                snapshot.copy_to(partial / recordings.SNAPSHOT_DIRECTORY / snapshot.directory.name)
    except OSError as error:
        raise UsageError(f"{destination}: cannot be written ({error.strerror or error})") from None
    event_file = destination if alone else destination / STORE_FILE
    if recording.snapshots:
        beside.insert(1 if recording.meta else 0, recordings.SNAPSHOT_DIRECTORY)
    return ImportResult(
        path=destination,
        event_file=event_file,
        events=len(trace),
        size=event_file.stat().st_size,
        source_size=size_of(recording.event_file),
        left_out=tuple(beside) if alone else (),
    )


def write_events(
    recording: recordings.Recording,
    path: Path,
    *,
    compress: bool,
    reader: str = _OWN_READER,
    progress: Report | None = None,
) -> Trace:
    """Write a recording's events in columnar form, and return them as they were read.

    Working files lie beside `path`; the other arguments are those of `import_recording`.
    """
    # Imported here, so that the command line's help needs no pyarrow.
    from pagealloc_model.recording.trace.store import StoreSource, store_source, write_store

    event_file = recording.event_file
    if not event_file.is_dir() and is_store(event_file):
        source = store_source(event_file)
    else:
        source = StoreSource(event_file.name, size_of(event_file), recording.sha256)
    if reader == _OWN_READER:
        trace = read_events(event_file, path.parent, part_of(progress, 0, _READING))
    else:
        from pagealloc_model.recording.record import perf_python

        if reader == _PERF_SCRIPT:
            trace = perf_python.read_with_perf_script(event_file)
        else:
            trace = perf_python.read_with_perf_session(event_file)
    report = part_of(progress, _READING, 1)
    write_store(trace, path, source=source, compress=compress, progress=report)
    return trace


_BEFORE = "before"
_GAP_NS = 1000
_LONGEST_WAY_NS = 60 * 10**9
_TIMES = ("kpageflags_at_ns", "page_owner_at_ns", "start_ns", "end_ns")
_PAGE_FILES = (recordings.KPAGEFLAGS_FILE, *recordings.PAGE_OWNER_FILES, recordings.KALLSYMS_FILE)
_NO_STATE = (
    "give --snapshot DIR, made by pagealloc snapshot, or at least --zoneinfo FILE, a copy of "
    "/proc/zoneinfo"
)


class Attached(NamedTuple):
    """Events and snapshots of the new recording, and what it lacks and what each lack costs."""

    events: int
    snapshots: int
    lacks: tuple[str, ...]


def attach_state(
    trace: str | Path,
    destination: Path,
    *,
    snapshots: Path | None = None,
    files: Mapping[str, Path] = MappingProxyType({}),
    read: str = _BEFORE,
    release: str = "",
    progress: Report | None = None,
) -> Attached:
    """Make a recording of a trace of any format and copies of the machine's state files.

    Events are written in columnar form. Snapshots with times are moved to the clock of the events
    where both are known; copies without a time are put just before the first event, or just behind
    the last.

    Args:
        trace: an event file, or a recording.
        destination: a new directory.
        snapshots: a directory that `pagealloc snapshot` or `pagealloc record` made, or one with
            copies of the state files in it; None: there is none.
        files: single copies by name, such as zoneinfo; they win over a directory's without times.
        read: "before" or "behind" the trace, when single copies were made.
        release: the kernel's, where neither trace nor directory names it.
        progress: called with the share done, 0 to 1.

    Raises:
        RecordingError: a file cannot be read.
        UsageError: there is no zoneinfo at all, snapshots and events are of different times, or
            the destination cannot be written.
    """
    source = recordings.open_recording(trace)
    copies: dict[str, Path] = {}
    if snapshots is not None and not (snapshots / recordings.SNAPSHOT_DIRECTORY).is_dir():
        if not snapshots.is_dir():
            raise UsageError(f"{snapshots}: is no directory; {_NO_STATE}")
        there = [name for name in SNAPSHOT_FILES if (snapshots / name).exists()]
        if not there:
            raise UsageError(f"{snapshots}: has no copy of a state file; {_NO_STATE}")
        copies = {name: snapshots / name for name in there}
    copies |= {name: given(path) for name, path in files.items()}
    for path in copies.values():
        refuse_unless_file(path)
    with new_directory(destination, private=True) as partial:
        events = write_events(source, partial / STORE_FILE, compress=True, progress=progress)
        lacks = []
        meta = _meta_of(source, snapshots, release, events)
        timed = () if snapshots is None else recordings.snapshots_of(snapshots)[0]
        if timed:
            lacks += _copy_snapshots(timed, partial, meta, events)
        if copies:
            names = ", ".join(sorted(copies))
            if "zoneinfo" not in copies and not timed:
                raise UsageError(f"no zoneinfo among {names}; {_NO_STATE}")
            first, last = events.span_ns
            time_ns = first - _GAP_NS if read == _BEFORE else last + _GAP_NS
            directory = partial / recordings.SNAPSHOT_DIRECTORY / f"{max(time_ns, 0):020d}"
            directory.mkdir(parents=True)
            for name, path in copies.items():
                copy_file(path, directory / name)
            lacks.append(
                f"{names} without a time, taken to be of the moment {read} the trace: "
                "what was allocated and freed in between is not known"
            )
        if not (timed or copies):
            raise UsageError(f"{source.path}: no state of the machine to attach; {_NO_STATE}")
        for name in () if snapshots is None else recordings.state_files(snapshots):
            if name in _PAGE_FILES:
                copy_file(snapshots / name, partial / name)
        meta["attached"] = {"trace": source.event_file.name, "sha256": source.sha256}
        recordings.write_meta(partial, meta)
        new = recordings.open_recording(partial)
        lacks += new.missing

        def named(line: str) -> str:
            """A line with the names that the user gave, not those of unfinished files."""
            for name, path in copies.items():
                line = line.replace(str(directory / name), str(path))
            return line.replace(str(partial), str(destination))

        lacks = [named(line) for line in lacks]
        _refuse_without_zoneinfo(new.snapshots, named)
        zoneinfos = [each.zoneinfo for each in new.snapshots if each.zoneinfo is not None]
        if too_far := next(filter(None, map(beyond_page_frames, zoneinfos)), ""):
            lacks.append(too_far)
        if not any(snapshot.has("pagetypeinfo") for snapshot in new.snapshots):
            lacks.append("no pagetypeinfo at all: a replay's start is estimated, and marked so")
        if len(new.snapshots) < 2:
            lacks.append("a single snapshot: nothing measured to compare a prediction's state with")
        if not meta.get("sysctl"):
            lacks.append("no sysctls: the kernel's defaults are taken")
        lacks += events.notes
        meta["attached"]["lacks"] = lacks
        recordings.write_meta(partial, meta)
    return Attached(len(events), len(timed) + bool(copies), tuple(lacks))


def _refuse_without_zoneinfo(snapshots: Sequence[Snapshot], named: Callable[[str], str]) -> None:
    """Refuse state files of which none says what zones there are, and say why.

    Raises:
        UsageError: no snapshot has a zoneinfo that can be used.
    """
    if not any(snapshot.zoneinfo is not None for snapshot in snapshots):
        problems = (snapshot.problems.get("zoneinfo") for snapshot in snapshots)
        why = next(filter(None, problems), "")
        raise UsageError(named(why) if why else f"no copy of zoneinfo can be used; {_NO_STATE}")


def _meta_of(
    source: recordings.Recording, snapshots: Path | None, release: str, trace: Trace
) -> dict[str, Any]:
    """meta.json of the state's directory, else of the source, else what the trace says."""
    meta: dict[str, Any] = {"bundle_version": recordings.RECORDING_VERSION, **source.meta}
    if snapshots is not None and (path := snapshots / recordings.META_FILE).is_file():
        todo = "restore the file, or take the snapshots anew"
        content = json_of(text_of(path, "utf-8", todo=todo), path, todo=todo)
        if not isinstance(content, dict):
            raise RecordingError(path, "is not a JSON object", todo=todo)
        meta = {"bundle_version": recordings.RECORDING_VERSION, **content}
    if release or (trace.release and "uname" not in meta):
        meta["uname"] = ["Linux", "", release or trace.release, "", ""]
    if trace.nr_cpus and "nr_cpus" not in meta:
        meta["nr_cpus"] = trace.nr_cpus
    if "uname" not in meta:
        raise UsageError(
            f"{source.path}: neither the trace nor the snapshots name the kernel; give --release, "
            "what uname -r printed there"
        )
    return meta


def _copy_snapshots(
    snapshots: Sequence[Snapshot], destination: Path, meta: dict[str, Any], trace: Trace
) -> Iterator[str]:
    """Copy snapshots on the clock of the events; yield what is not certain about that."""
    shift, clocks = 0, meta.get("clocks_ns") or {}
    if trace.clock == "monotonic":
        doubt = ""
    elif trace.clock in clocks and "monotonic" in clocks:
        shift = int(clocks[trace.clock]) - int(clocks["monotonic"])
        doubt = (
            f"events have the clock {trace.clock}: snapshots were moved to it by the difference "
            "when they were begun; it may have drifted since"
        )
    else:
        doubt = (
            f"events have {'the clock ' + trace.clock if trace.clock else 'an unknown clock'}, "
            "snapshots CLOCK_MONOTONIC: where they lie among the events is not certain"
        )
    first, last = trace.span_ns
    times = [snapshot.time_ns + shift for snapshot in snapshots]
    nearest = min(max(first - time_ns, time_ns - last, 0) for time_ns in times)
    if nearest > _LONGEST_WAY_NS:
        raise UsageError(
            f"{snapshots[0].directory.parents[1]}: its snapshots are {nearest / 1e9:.0f} s away "
            f"from the nearest event, which has the clock {trace.clock or 'unknown'}: take them "
            "while tracing, with trace_clock mono, or give their files without times (--zoneinfo)"
        )
    for snapshot, time_ns in zip(snapshots, times, strict=True):
        directory = destination / recordings.SNAPSHOT_DIRECTORY / f"{time_ns:020d}"
        snapshot.copy_to(directory)
        if shift and snapshot.read_ns:
            spans = snapshot.read_ns.items()
            moved = {name: (begin + shift, end + shift) for name, (begin, end) in spans}
            text = format_read_times(moved)
            (directory / READ_TIMES_FILE).write_text(text, encoding="ascii")
    for key in _TIMES:
        if isinstance(meta.get(key), int):
            meta[key] += shift
    if doubt:
        yield doubt
