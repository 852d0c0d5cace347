"""Open a perf.data of either layout: everything but its records."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from pagealloc_model.base.compressed import chunks_of, first_bytes, is_compressed
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.trace.perf_file import (
    FOREIGN_MAGIC,
    HEADER_SIZE,
    MAGIC,
    PIPE_HEADER_SIZE,
    RECORD_AGAIN,
    EventAttr,
    Feature,
    PerfFile,
    Section,
)
from pagealloc_model.recording.trace.perf_header import FileHeader
from pagealloc_model.recording.trace.perf_pipe import PipeHeader
from pagealloc_model.recording.trace.perf_file import RECORD_HEADER_SIZE
from pagealloc_model.recording.trace.tracing_data import TracingData, parse_tracing_data

_MOST_FEATURES = 1 << 28
"""Bytes of everything behind the records."""


def open_perf_file(path: str | Path) -> PerfFile:
    """Open a perf.data file, plain or compressed, and read everything but its records.

    Both layouts are known: that of a file, and that of a pipe (`perf record -o -`).

    Raises:
        RecordingError: not a perf.data file, of the other byte order, cut short, never finished,
            or without format data.
    """
    path = Path(path)
    content = _map(path)
    _check_magic(path, content)
    piped = content[8:16].tobytes() == struct.pack("<Q", PIPE_HEADER_SIZE)
    header = PipeHeader(path, content) if piped else FileHeader(path, content)
    features = header.features()
    attrs = _with_described_ids(header.attrs(), content, features.get(Feature.EVENT_DESC))
    return PerfFile(
        path=path,
        content=content,
        records=header.records,
        attrs=attrs,
        features=features,
        tracing=_tracing_data(path, content, features.get(Feature.TRACING_DATA)),
        piped=piped,
    )


def _map(path: Path) -> np.ndarray:
    if path.is_dir():
        raise RecordingError(
            path, "is a directory of perf data files", todo="record without --threads"
        )
    try:
        size = path.stat().st_size
    except OSError as error:
        raise RecordingError(
            path, f"cannot be read ({error.strerror})", todo="check the path and its permissions"
        ) from None
    content = mapped(path, _unpacked_perf_data) if size else np.zeros(0, np.uint8)
    if len(content) < PIPE_HEADER_SIZE:
        raise RecordingError(path, "is too short for a perf.data file", todo=RECORD_AGAIN)
    return content


def _check_magic(path: Path, content: np.ndarray) -> None:
    magic = content[:8].tobytes()
    if magic == FOREIGN_MAGIC:
        raise RecordingError(
            path,
            "was recorded on a machine of the other byte order",
            offset=0,
            todo="only little-endian recordings can be read",
        )
    if magic != MAGIC:
        raise RecordingError(
            path, "is not a perf.data file", offset=0, todo="give the output of perf record"
        )


def _tracing_data(path: Path, content: np.ndarray, section: Section | None) -> TracingData:
    if section is None:
        raise RecordingError(
            path,
            "has no tracepoint format data",
            todo="record tracepoints, such as -e kmem:mm_page_alloc",
        )
    data = content[section.offset : section.offset + section.size].tobytes()
    try:
        tracing = parse_tracing_data(data)
    except ValueError as error:
        raise RecordingError(path, str(error), offset=section.offset, todo=RECORD_AGAIN) from None
    if tracing.big_endian:
        raise RecordingError(
            path,
            "format data say the records are big-endian",
            offset=section.offset,
            todo="only little-endian recordings can be read",
        )
    return tracing


def _with_described_ids(
    attrs: tuple[EventAttr, ...], content: np.ndarray, section: Section | None
) -> tuple[EventAttr, ...]:
    """Take ids from the event description where an attribute lists none itself."""
    if section is None or all(attr.ids for attr in attrs):
        return attrs
    data = content[section.offset : section.offset + section.size].tobytes()
    described = described_ids(data)
    if len(described) != len(attrs):
        return attrs
    return tuple(
        attr if attr.ids else replace(attr, ids=ids)
        for attr, ids in zip(attrs, described, strict=True)
    )


def described_ids(data: bytes) -> list[tuple[int, ...]]:
    """The ids of each event in an event description section, [] if it is malformed."""
    try:
        count, attr_size = struct.unpack_from("<II", data)
        position = 8
        described = []
        for _ in range(count):
            position += attr_size
            id_count, name_size = struct.unpack_from("<II", data, position)
            position += 8 + name_size
            described.append(struct.unpack_from(f"<{id_count}Q", data, position))
            position += 8 * id_count
    except (struct.error, OverflowError, MemoryError):
        return []
    return described


def mapped(path: Path, unpack: Callable[[Path], np.ndarray]) -> np.ndarray:
    """A file's plain content, uint8; nothing is copied to memory.

    Args:
        path: the file.
        unpack: makes the content of a packed one.

    Raises:
        RecordingError: the file cannot be read, is a damaged archive, or does not fit on the
            disk once it is unpacked.
    """
    if is_compressed(path):
        return unpack(path)
    return np.memmap(path, np.uint8, mode="r").view(np.ndarray)


def _most_bytes(path: Path) -> int | None:
    """Bytes that a packed perf.data can have by its header, None for a pipe's, which says none."""
    head = first_bytes(path, HEADER_SIZE).ljust(HEADER_SIZE, b"\0")
    _check_magic(path, np.frombuffer(head, np.uint8))
    size, _, _, _, start, length = struct.unpack_from("<6Q", head, 8)
    if size == PIPE_HEADER_SIZE:
        if struct.unpack_from("<IHH", head, PIPE_HEADER_SIZE)[2] < RECORD_HEADER_SIZE:
            what = "its first record has no length"
            raise RecordingError(path, what, offset=PIPE_HEADER_SIZE, todo=RECORD_AGAIN)
        return None
    if size < HEADER_SIZE:
        raise RecordingError(path, f"has a header of {size} bytes", offset=8, todo=RECORD_AGAIN)
    return int(start) + int(length) + _MOST_FEATURES


def _unpacked_perf_data(path: Path) -> np.ndarray:
    return unpacked(path, _most_bytes(path))


def unpacked(path: Path, most: int | None = None) -> np.ndarray:
    """The content of a packed file, uint8, in an unnamed one.

    Args:
        path: the file.
        most: bytes that it can have by its header, None if that does not say.

    Raises:
        RecordingError: it is damaged, goes on behind `most`, or does not fit on the disk.
    """
    with tempfile.TemporaryFile(prefix="pagealloc-") as file:
        for chunk in chunks_of(path):
            try:
                file.write(chunk)
                file.flush()
            except OSError as error:
                raise RecordingError(
                    path,
                    f"cannot be unpacked to {tempfile.gettempdir()} ({error.strerror})",
                    todo="make room there, or set TMPDIR to a directory that has more",
                ) from None
            if most is not None and file.tell() > most:
                what = f"goes on {_MOST_FEATURES} bytes behind the records that its header tells of"
                raise RecordingError(path, what, todo=RECORD_AGAIN)
        if not file.tell():
            return np.zeros(0, np.uint8)
        return np.memmap(file, np.uint8, mode="r").view(np.ndarray)  # type: ignore[call-overload]
