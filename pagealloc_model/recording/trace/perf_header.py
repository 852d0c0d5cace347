"""The file layout of a perf.data: a header that says where everything lies."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.trace.perf_file import (
    FEATURE_BITS,
    HEADER_SIZE,
    LARGEST_ATTR,
    PIPE_HEADER_SIZE,
    RECORD_AGAIN,
    SMALLEST_ATTR,
    EventAttr,
    Section,
    parse_attr,
)


class FileHeader:
    """The file header and the tables it points at, every reach checked against the file.

    Args:
        path: the file, for errors.
        content: its bytes.

    Raises:
        RecordingError: the header is damaged, cut short, or was never finished.
    """

    def __init__(self, path: Path, content: np.ndarray) -> None:
        self._path = path
        self._content = content
        (size,) = self._unpack("<Q", 8)
        if size < HEADER_SIZE:
            raise RecordingError(path, f"has a header of {size} bytes", offset=8, todo=RECORD_AGAIN)
        (self._entry_size,) = self._unpack("<Q", 16)
        self._attr_table = self._section(24)
        self.records = self._section(40)
        if not self.records.size and not any(self._bytes(72, FEATURE_BITS // 8)):
            raise RecordingError(
                path,
                "was never finished: perf was killed before it wrote what the events mean",
                offset=48,
                todo="record again, and end perf with Ctrl-C",
            )

    def attrs(self) -> tuple[EventAttr, ...]:
        """All attributes with the ids that their own sections list."""
        attr_size = self._entry_size - PIPE_HEADER_SIZE
        if not SMALLEST_ATTR <= attr_size <= LARGEST_ATTR:
            raise self._bad(f"attribute size {attr_size} is impossible", 16)
        table = self._attr_table
        if table.size == 0 or table.size % self._entry_size:
            raise self._bad("the attribute table has a broken size", 24)
        offsets = range(table.offset, table.offset + table.size, self._entry_size)
        lists = [self._section(offset + attr_size) for offset in offsets]
        if sum(ids.size for ids in lists) > len(self._content):
            raise self._bad("the id lists of the attributes overlap", 24)
        return tuple(
            self._attr(offset, attr_size, ids) for offset, ids in zip(offsets, lists, strict=True)
        )

    def features(self) -> dict[int, Section]:
        """Where each feature section lies; their table follows the records."""
        bits = int.from_bytes(self._bytes(72, FEATURE_BITS // 8), "little")
        numbers = [number for number in range(FEATURE_BITS) if bits >> number & 1]
        table = self.records.offset + self.records.size
        return {
            number: self._section(table + PIPE_HEADER_SIZE * index)
            for index, number in enumerate(numbers)
        }

    def _attr(self, offset: int, attr_size: int, ids: Section) -> EventAttr:
        if ids.size % 8:
            raise self._bad("the id list of an attribute has a broken size", offset)
        numbers = np.frombuffer(self._bytes(ids.offset, ids.size), "<u8").tolist()
        return parse_attr(self._bytes(offset, attr_size), tuple(numbers))

    def _section(self, offset: int) -> Section:
        start, size = self._unpack("<QQ", offset)
        if start + size > len(self._content):
            raise self._bad(
                f"cut short: a section ends at {start + size}, the file at {len(self._content)}",
                offset,
            )
        return Section(start, size)

    def _unpack(self, layout: str, offset: int) -> tuple[int, ...]:
        return struct.unpack(layout, self._bytes(offset, struct.calcsize(layout)))

    def _bytes(self, offset: int, size: int) -> bytes:
        if offset + size > len(self._content):
            raise self._bad("cut short", offset)
        return self._content[offset : offset + size].tobytes()

    def _bad(self, what: str, offset: int) -> RecordingError:
        return RecordingError(self._path, what, offset=offset, todo=RECORD_AGAIN)
