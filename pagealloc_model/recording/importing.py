"""`import_recording`: a recording with its events in columnar form, which opens at once."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.files import copy_file
from pagealloc_model.base.progress_bar import Report, part_of
from pagealloc_model.recording.event_files import STORE_FILE, is_store, read_events, size_of
from pagealloc_model.recording.recording import (
    META_FILE,
    SNAPSHOT_DIRECTORY,
    Recording,
    open_recording,
    state_files,
)

if TYPE_CHECKING:
    from pagealloc_model.recording.trace.columns import Trace

_STORE_SUFFIX = ".arrow"
_OWN_READER, _PERF_SCRIPT = "own", "perf-script"
_READING = 0.7
"""Share of the work done once the events are read."""


@dataclass(frozen=True, kw_only=True)
class ImportResult:
    """What an import made.

    Attributes:
        path: the new recording, or the event file alone.
        event_file: the events in columnar form.
        events: page-allocator events in it.
        size: its bytes.
        source_size: bytes of the event file it was made from.
        left_out: files of the source that do not come along.
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
    recording = open_recording(source)
    destination = Path(destination)
    if destination.exists():
        raise UsageError(f"{destination} exists; give a new name with -o")
    alone = destination.suffix == _STORE_SUFFIX
    beside = [META_FILE] if recording.meta else []
    beside += state_files(recording.path)
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{destination.name}-", dir=destination.parent))
    except OSError as error:
        raise UsageError(f"{destination}: cannot be made ({error.strerror})") from None
    try:
        store = partial / STORE_FILE
        trace = write_events(recording, store, compress=compress, reader=reader, progress=progress)
        if alone:
            store.rename(destination)
        else:
            for name in beside:
                copy_file(recording.path / name, partial / name)
            for snapshot in recording.snapshots:
                snapshot.copy_to(partial / SNAPSHOT_DIRECTORY / snapshot.directory.name)
            partial.rename(destination)
    except OSError as error:
        raise UsageError(f"{destination}: cannot be written ({error.strerror or error})") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    event_file = destination if alone else destination / STORE_FILE
    if recording.snapshots:
        beside.insert(1 if recording.meta else 0, SNAPSHOT_DIRECTORY)
    return ImportResult(
        path=destination,
        event_file=event_file,
        events=len(trace),
        size=event_file.stat().st_size,
        source_size=size_of(recording.event_file),
        left_out=tuple(beside) if alone else (),
    )


def write_events(
    recording: Recording,
    path: Path,
    *,
    compress: bool,
    reader: str = _OWN_READER,
    progress: Report | None = None,
) -> Trace:
    """Write a recording's events in columnar form, and return them as they were read.

    Working files lie beside `path`; the other arguments are those of `import_recording`.

    Raises:
        RecordingError: the events cannot be read.
    """
    # Imported here, so that the command line's help needs no pyarrow.
    from pagealloc_model.recording.trace.store import StoreSource, store_source, write_store

    event_file = recording.event_file
    if not event_file.is_dir() and is_store(event_file):
        source = store_source(event_file)
    else:
        size = size_of(event_file)
        source = StoreSource(file=event_file.name, size=size, sha256=recording.sha256)
    if reader == _OWN_READER:
        trace = read_events(event_file, path.parent, part_of(progress, 0, _READING))
    else:
        from pagealloc_model.recording.record import perf_python

        by_script = reader == _PERF_SCRIPT
        read = (
            perf_python.read_with_perf_script if by_script else perf_python.read_with_perf_session
        )
        trace = read(event_file)
    report = part_of(progress, _READING, 1)
    write_store(trace, path, source=source, compress=compress, progress=report)
    return trace
