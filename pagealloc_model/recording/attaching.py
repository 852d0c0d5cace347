"""`attach_state`: a recording made of a bare trace and whatever /proc copies there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagealloc_model.base.errors import RecordingError, UsageError
from pagealloc_model.base.files import (
    copy_file,
    given,
    json_of,
    new_directory,
    refuse_unless_file,
    text_of,
)
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.recording.event_files import STORE_FILE
from pagealloc_model.recording.importing import write_events
from pagealloc_model.recording.proc.counts import READ_TIMES_FILE, format_read_times
from pagealloc_model.recording.recording import (
    KALLSYMS_FILE,
    KPAGEFLAGS_FILE,
    META_FILE,
    PAGE_OWNER_FILES,
    RECORDING_VERSION,
    SNAPSHOT_DIRECTORY,
    Recording,
    open_recording,
    snapshots_of,
    state_files,
    write_meta,
)
from pagealloc_model.recording.snapshot import SNAPSHOT_FILES, Snapshot

if TYPE_CHECKING:
    from pagealloc_model.recording.trace.columns import Trace

_BEFORE = "before"
_GAP_NS = 1000
_LONGEST_WAY_NS = 60 * 10**9
_TIMES = ("kpageflags_at_ns", "page_owner_at_ns", "start_ns", "end_ns")
_PAGE_FILES = (KPAGEFLAGS_FILE, *PAGE_OWNER_FILES, KALLSYMS_FILE)
_NO_STATE = (
    "give --snapshot DIR, made by pagealloc snapshot, or at least --zoneinfo FILE, a copy of "
    "/proc/zoneinfo"
)


@dataclass(frozen=True, kw_only=True)
class StateFiles:
    """What there is of the machine's state beside a trace.

    Attributes:
        snapshots: a directory that `pagealloc snapshot` or `pagealloc record` made, or one with
            copies of the state files in it; None: there is none.
        files: single copies by name, such as zoneinfo; they win over a directory's without times.
        read: "before" or "behind" the trace, when single copies were made.
        release: the kernel's, where neither trace nor directory names it.
    """

    snapshots: Path | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    read: str = _BEFORE
    release: str = ""


@dataclass(frozen=True, kw_only=True)
class Attached:
    """What came of it.

    Attributes:
        path: the recording.
        events: page-allocator events in it.
        snapshots: snapshots in it.
        lacks: what is missing and what that costs, one line each.
    """

    path: Path
    events: int
    snapshots: int
    lacks: tuple[str, ...]


def attach_state(
    trace: str | Path, state: StateFiles, destination: Path, progress: Report | None = None
) -> Attached:
    """Make a recording of a trace of any format and copies of the machine's state files.

    Events are written in columnar form. Snapshots with times are moved to the clock of the events
    where both are known; copies without a time are put just before the first event, or just behind
    the last.

    Args:
        trace: an event file, or a recording.
        state: what else there is.
        destination: a new directory.
        progress: called with the share done, 0 to 1.

    Raises:
        RecordingError: a file cannot be read.
        UsageError: there is no zoneinfo at all, snapshots and events are of different times, or
            the destination cannot be written.
    """
    source = open_recording(trace)
    given_directory = state.snapshots
    files: dict[str, Path] = {}
    if given_directory is not None and not (given_directory / SNAPSHOT_DIRECTORY).is_dir():
        if not given_directory.is_dir():
            raise UsageError(f"{given_directory}: is no directory; {_NO_STATE}")
        files = {name: given_directory / name for name in SNAPSHOT_FILES}
        files = {name: path for name, path in files.items() if path.exists()}
        if not files:
            raise UsageError(f"{given_directory}: has no copy of a state file; {_NO_STATE}")
    files |= {name: given(path) for name, path in state.files.items()}
    for path in files.values():
        refuse_unless_file(path)
    with new_directory(destination, private=True) as partial:
        events = write_events(source, partial / STORE_FILE, compress=True, progress=progress)
        lacks = []
        meta = _meta_of(source, state, events)
        snapshots = () if given_directory is None else snapshots_of(given_directory)[0]
        if snapshots:
            lacks += _copy_snapshots(snapshots, partial, meta, events)
        if files:
            lacks.append(_copy_files(files, partial, events, state.read))
        if not (snapshots or files):
            raise UsageError(f"{source.path}: no state of the machine to attach; {_NO_STATE}")
        if given_directory is not None:
            for name in state_files(given_directory):
                if name in _PAGE_FILES:
                    copy_file(given_directory / name, partial / name)
        meta["attached"] = {"trace": source.event_file.name, "sha256": source.sha256}
        write_meta(partial, meta)
        lacks += _lacks(open_recording(partial), events, meta)
        meta["attached"]["lacks"] = lacks
        write_meta(partial, meta)
    return Attached(
        path=destination,
        events=len(events),
        snapshots=len(snapshots) + bool(files),
        lacks=tuple(lacks),
    )


def _meta_of(source: Recording, state: StateFiles, trace: Trace) -> dict[str, Any]:
    """meta.json of the state's directory, else of the source, else what the trace says."""
    meta: dict[str, Any] = {"bundle_version": RECORDING_VERSION}
    if state.snapshots is not None and (state.snapshots / META_FILE).is_file():
        path = state.snapshots / META_FILE
        todo = "restore the file, or take the snapshots anew"
        content = json_of(text_of(path, "utf-8", todo=todo), path, todo=todo)
        if not isinstance(content, dict):
            raise RecordingError(path, "is not a JSON object", todo=todo)
        meta |= content
    elif source.meta:
        meta |= source.meta
    release = state.release or trace.release
    if release and (state.release or "uname" not in meta):
        meta["uname"] = ["Linux", "", release, "", ""]
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
        directory = destination / SNAPSHOT_DIRECTORY / f"{time_ns:020d}"
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


def _copy_files(files: Mapping[str, Path], destination: Path, trace: Trace, read: str) -> str:
    """Copy files without a time to where they are said to belong; returns what that costs."""
    names = ", ".join(sorted(files))
    if "zoneinfo" not in files and not (destination / SNAPSHOT_DIRECTORY).is_dir():
        raise UsageError(f"no zoneinfo among {names}; {_NO_STATE}")
    first, last = trace.span_ns
    time_ns = first - _GAP_NS if read == _BEFORE else last + _GAP_NS
    directory = destination / SNAPSHOT_DIRECTORY / f"{max(time_ns, 0):020d}"
    directory.mkdir(parents=True)
    for name, path in files.items():
        copy_file(path, directory / name)
    return (
        f"{names} without a time, taken to be of the moment {read} the trace: "
        "what was allocated and freed in between is not known"
    )


def _lacks(recording: Recording, trace: Trace, meta: Mapping[str, Any]) -> list[str]:
    """What the new recording lacks, and what each lack costs."""
    lacks = list(recording.missing)
    snapshots = recording.snapshots
    if not any(snapshot.zoneinfo is not None for snapshot in snapshots):
        raise UsageError(f"no copy of zoneinfo can be used; {_NO_STATE}")
    if not any(snapshot.has("pagetypeinfo") for snapshot in snapshots):
        lacks.append("no pagetypeinfo at all: a replay's start is estimated, and marked so")
    if len(snapshots) < 2:
        lacks.append("a single snapshot: nothing measured to compare a prediction's state with")
    if not meta.get("sysctl"):
        lacks.append("no sysctls: the kernel's defaults are taken")
    return [*lacks, *trace.notes]
