"""The part at the end of records that are not samples: when, where and for which event."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pagealloc_model.recording.trace.perf_file import AttrFlag, EventAttr
from pagealloc_model.recording.trace.sample_layout import (
    RECORD_HEADER_SIZE,
    id_place,
    trailer_offsets,
)


@dataclass(frozen=True)
class Trailer:
    """The sample_id_all part of one record.

    Attributes:
        size: its bytes, 0 where records carry none.
        time_ns: None where absent.
        cpu: None where absent or impossible.
        id: the sample id, None where absent, 0 in records that perf made up.
    """

    size: int
    time_ns: int | None
    cpu: int | None
    id: int | None


class TrailerReader:
    """Reads trailers by the layout of the attribute that each record belongs to."""

    def __init__(self, attrs: Sequence[EventAttr]) -> None:
        self._attr_of_id = {number: attr for attr in attrs for number in attr.ids}
        self._first = attrs[0]
        self._place = id_place(attrs[0].sample_type)

    def read(self, record: bytes) -> Trailer:
        """The trailer of one record; an unknown id follows the first attribute.

        Raises:
            struct.error: the record is too short.
        """
        number = None
        if self._place is not None and self._first.flags & AttrFlag.SAMPLE_ID_ALL:
            start = len(record) - self._place.from_end
            if start < RECORD_HEADER_SIZE:
                raise struct.error("too short")
            (number,) = struct.unpack_from("<Q", record, start)
        attr = self._first if number is None else self._attr_of_id.get(number, self._first)
        if not attr.flags & AttrFlag.SAMPLE_ID_ALL:
            return Trailer(0, None, None, None)
        parts = trailer_offsets(attr.sample_type)
        start = len(record) - parts["end"]
        if start < RECORD_HEADER_SIZE:
            raise struct.error("too short")
        time_ns, cpu = None, None
        if "time" in parts:
            (time_ns,) = struct.unpack_from("<q", record, start + parts["time"])
        if "cpu" in parts:
            (cpu,) = struct.unpack_from("<I", record, start + parts["cpu"])
            cpu = cpu if cpu <= np.iinfo(np.int16).max else None
        return Trailer(parts["end"], time_ns, cpu, number)
