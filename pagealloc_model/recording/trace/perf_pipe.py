"""The pipe layout of a perf.data: what a file's header holds comes as records among the others."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.trace.perf_file import (
    PIPE_HEADER_SIZE,
    RECORD_AGAIN,
    SMALLEST_ATTR,
    EventAttr,
    Feature,
    Section,
    parse_attr,
)
from pagealloc_model.recording.trace.perf_file import RECORD_HEADER_SIZE

HEADER_ATTR = 64
TRACING_DATA = 66
HEADER_FEATURE = 80

_FIRST_EVENTS = (9, 71, 81, 83)
"""SAMPLE, AUXTRACE and the compressed records: perf describes the events before any of them."""


class PipeHeader:
    """Attributes, features and format data from the records that precede the first event.

    Args:
        path: the file, for errors.
        content: its bytes.

    Raises:
        RecordingError: a record is damaged, or the file ends before its events are described.
    """

    def __init__(self, path: Path, content: np.ndarray) -> None:
        self._path = path
        self._content = content
        self._attrs: list[EventAttr] = []
        self._features: dict[int, Section] = {}
        self.records = Section(PIPE_HEADER_SIZE, len(content) - PIPE_HEADER_SIZE)
        self._read()

    def attrs(self) -> tuple[EventAttr, ...]:
        """All attributes with their ids."""
        return tuple(self._attrs)

    def features(self) -> dict[int, Section]:
        """Where each feature, the format data among them, lies."""
        return dict(self._features)

    def _read(self) -> None:
        position, end = PIPE_HEADER_SIZE, len(self._content)
        while position + RECORD_HEADER_SIZE <= end:
            kind, _, size = struct.unpack("<IHH", self._bytes(position, RECORD_HEADER_SIZE))
            if size < RECORD_HEADER_SIZE:
                raise self._bad("a record has an impossible size", position)
            if kind in _FIRST_EVENTS or position + size > end:
                break
            position = self._take(kind, position, size)
        if not self._attrs or Feature.TRACING_DATA not in self._features:
            raise self._bad("cut short: it ends before its events are described", end)

    def _take(self, kind: int, position: int, size: int) -> int:
        """Take in one record; returns where the next one starts."""
        after = position + size
        try:
            if kind == HEADER_ATTR:
                self._attrs.append(self._attr(self._bytes(position, size)[RECORD_HEADER_SIZE:]))
            elif kind == HEADER_FEATURE and size > 16:
                (number,) = struct.unpack("<Q", self._bytes(position + 8, 8))
                self._features[number] = Section(position + 16, size - 16)
            elif kind == TRACING_DATA:
                (data_size,) = struct.unpack("<I", self._bytes(position + 8, 4))
                if after + data_size > len(self._content):
                    raise ValueError("cut short: it ends inside the format data")
                self._features[Feature.TRACING_DATA] = Section(after, data_size)
                after += data_size + -data_size % 8
        except (ValueError, struct.error) as error:
            raise self._bad(str(error), position) from None
        return after

    def _attr(self, body: bytes) -> EventAttr:
        (attr_size,) = struct.unpack_from("<I", body, 4)
        attr_size = attr_size or SMALLEST_ATTR
        if not SMALLEST_ATTR <= attr_size <= len(body) or (len(body) - attr_size) % 8:
            raise ValueError(f"attribute size {attr_size} is impossible")
        ids = np.frombuffer(body[attr_size:], "<u8").tolist()
        return parse_attr(body[:attr_size], tuple(ids))

    def _bytes(self, offset: int, size: int) -> bytes:
        return self._content[offset : offset + size].tobytes()

    def _bad(self, what: str, offset: int) -> RecordingError:
        return RecordingError(self._path, what, offset=offset, todo=RECORD_AGAIN)
