"""Files of events: the formats that are read, told apart by what they begin with."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from pagealloc_model.base.files import first_bytes, is_given, opened
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.recording.trace.formats import TRACING_MAGIC
from pagealloc_model.recording.trace.perf_file import (
    FOREIGN_MAGIC,
    MAGIC,
    has_samples,
    open_perf_file,
)

if TYPE_CHECKING:
    from pagealloc_model.recording.trace.columns import Trace

_STORE_MAGIC = b"ARROW1"
EVENT_FILE = "perf.data"
STORE_FILE = "events.arrow"
TRACE_DAT = "trace.dat"
_PACKED = ("", ".gz", ".xz", ".zst")
EVENT_FILES = (
    *(f"{EVENT_FILE}{suffix}" for suffix in _PACKED),
    STORE_FILE,
    *(f"{TRACE_DAT}{suffix}" for suffix in _PACKED),
)
PER_CPU = "per_cpu"
"""A directory that was copied out of tracefs has it."""


def read_events(
    path: Path,
    directory: Path | None = None,
    progress: Report | None = None,
    *,
    main_chains: bool = False,
    needs_pages: bool = True,
) -> Trace:
    """The events of one file, or of a directory copied out of tracefs.

    perf.data, trace.dat and the columnar form of either are known by their magic numbers, text of
    `trace-cmd report` and of tracefs by its first lines; all else is taken for `perf script` text.
    All but a columnar form may be packed by gzip, xz or zstd.

    Args:
        path: the file or directory.
        directory: of files for what grows with the number of events, where the file is a
            perf.data or holds pages of the ring buffer; None: in memory.
        progress: called with the share done, 0 to 1.
        main_chains: make tables of those page-allocator events that carry call chains, too.
        needs_pages: refuse a file without page-allocator events; a columnar form has them.

    Raises:
        RecordingError: the file cannot be read as any of these.
    """
    if _is_copy_of_tracefs(path):
        from pagealloc_model.recording.trace.trace_dat import read_tracefs_copy

        return read_tracefs_copy(path, directory, progress, needs_pages=needs_pages)
    if is_store(path):
        from pagealloc_model.recording.trace.store import read_store

        return read_store(path, main_chains=main_chains)
    begins = first_bytes(path, 1 << 12)
    if begins.startswith((MAGIC, FOREIGN_MAGIC)):
        from pagealloc_model.recording.trace.perf_data import read_perf_data

        return read_perf_data(
            path, directory, progress, main_chains=main_chains, needs_pages=needs_pages
        )
    if begins.startswith(TRACING_MAGIC):
        from pagealloc_model.recording.trace.trace_dat import read_trace_dat

        return read_trace_dat(path, directory, progress, needs_pages=needs_pages)
    from pagealloc_model.recording.trace.trace_text import (
        is_trace_text,
        read_perf_script,
        read_trace_text,
        refuse_foreign,
    )

    if is_trace_text(begins):
        return read_trace_text(path, progress, needs_pages=needs_pages)
    refuse_foreign(path)
    return read_perf_script(path, progress, needs_pages=needs_pages)


def _is_copy_of_tracefs(path: Path) -> bool:
    folder = path / PER_CPU
    return folder.is_dir() and not folder.is_symlink()


def is_store(path: Path) -> bool:
    """The file begins as the columnar form does."""
    return first_bytes(path, len(_STORE_MAGIC)) == _STORE_MAGIC


def event_file_of(directory: Path) -> Path | None:
    """The event file of a recording, the directory itself if it is a copy of tracefs, else None."""
    if _is_copy_of_tracefs(directory):
        return directory
    files = (directory / name for name in EVENT_FILES)
    return next((file for file in files if is_given(file)), None)


def digest_of(event_file: Path) -> str:
    """SHA-256 of an event file in hexadecimal; of a directory that of its files and their names."""
    if not event_file.is_dir() or event_file.is_symlink():
        with opened(event_file) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256()
    for path in event_files_of(event_file):
        digest.update(f"{path.relative_to(event_file)} {path.lstat().st_size}\n".encode())
        with opened(path, below=event_file) as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    return digest.hexdigest()


def event_files_of(event_file: Path) -> list[Path]:
    """The event file, or the plain files of a copy of tracefs; links are not entered."""
    paths = event_file.rglob("*") if event_file.is_dir() else [event_file]
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def has_events(event_file: Path) -> bool:
    """Any event was recorded, as the headers of a perf.data's records tell; no other is read."""
    if first_bytes(event_file, len(MAGIC)) != MAGIC:
        return len(read_events(event_file)) > 0
    return has_samples(open_perf_file(event_file))


def size_of(event_file: Path) -> int:
    """Bytes of an event file, of all files of a directory; 0 where there is none."""
    return sum(file.lstat().st_size for file in event_files_of(event_file))
