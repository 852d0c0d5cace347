"""Where the records of a perf.data lie, found without the reader under test."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

SAMPLE = 9
FINISHED_ROUND = 68
_TRACING_DATA = 66
_PIPE_HEADER = 16


class Place(NamedTuple):
    """A record's type and its bytes in the file, with data that follow it."""

    kind: int
    start: int
    end: int


def records_of(content: bytes) -> Iterator[Place]:
    """The whole records of an intact file of either layout, compressed ones as they are."""
    position, end = _PIPE_HEADER, len(content)
    if struct.unpack_from("<Q", content, 8)[0] != _PIPE_HEADER:
        position, size = struct.unpack_from("<QQ", content, 40)
        end = position + size
    while position + 8 <= end:
        kind, size = struct.unpack_from("<I2xH", content, position)
        if kind == _TRACING_DATA:
            size += -(-struct.unpack_from("<I", content, position + 8)[0] // 8) * 8
        if size < 8 or position + size > end:
            return
        yield Place(kind, position, position + size)
        position += size
