"""All records of a perf.data in one buffer, listed: what choosing and rewriting them needs."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from pagealloc_model.recording.trace.attr_layouts import AttrLayouts, attr_layouts
from pagealloc_model.recording.trace.perf_file import PerfFile, Section
from pagealloc_model.recording.trace.record_stream import (
    COMPRESSED,
    COMPRESSED2,
    WORD_SLACK,
    DecompressedRecords,
    RecordBuffer,
    compressed_payload,
    walk_file,
)
from pagealloc_model.recording.trace.record_trailer import TrailerReader

SAMPLE = 9
FIRST_USER_TYPE = 64
"""Record types from here on are made by perf itself and carry no trailer."""

_ROWS_AT_A_TIME = 1 << 18


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordTable:
    """Records in the file's order, those outside compressed ones first.

    Attributes:
        data: uint8, the records' bytes, with WORD_SLACK bytes behind the last.
        type: int64, PERF_RECORD_ number.
        position: int64, start of each record in `data`.
        size: int64, bytes.
        time_ns: int64, -1 where the record has no time, 0 where perf made it up.
        attr: int64, index of a sample's attribute, -1 for other records.
        layouts: how the samples are laid out.
    """

    data: np.ndarray
    type: np.ndarray
    position: np.ndarray
    size: np.ndarray
    time_ns: np.ndarray
    attr: np.ndarray
    layouts: AttrLayouts

    def __len__(self) -> int:
        return len(self.type)

    def record(self, index: int) -> bytes:
        """The bytes of one record."""
        start = int(self.position[index])
        return self.data[start : start + int(self.size[index])].tobytes()

    def joined(self, chosen: np.ndarray) -> RecordTable:
        """The chosen records (indices, ascending) in a buffer of their own."""
        size = self.size[chosen]
        position = np.cumsum(size) - size
        data = np.zeros(int(size.sum()) + WORD_SLACK, np.uint8)
        breaks = np.flatnonzero(np.diff(chosen) != 1) + 1
        for run in np.split(np.arange(len(chosen)), breaks):
            if len(run):
                first, last = chosen[run[0]], chosen[run[-1]]
                source = slice(int(self.position[first]), int(self.position[last] + size[run[-1]]))
                length = source.stop - source.start
                start = int(position[run[0]])
                data[start : start + length] = self.data[source]
        return RecordTable(
            data=data,
            type=self.type[chosen],
            position=position,
            size=size,
            time_ns=self.time_ns[chosen],
            attr=self.attr[chosen],
            layouts=self.layouts,
        )


def read_record_table(file: PerfFile) -> RecordTable:
    """List all records of a file; compressed ones are replaced by what they hold.

    Raises:
        RecordingError: the file is damaged or cannot be laid out.
    """
    return _TableReader(file).read()


class _TableReader:
    def __init__(self, file: PerfFile) -> None:
        from pagealloc_model.recording.trace import record_walk

        self._walk = record_walk
        self._file = file
        self._layouts = attr_layouts(file)
        self._trailers = TrailerReader(file.attrs)
        self._pieces: list[np.ndarray] = []
        self._indexes: list[np.ndarray] = []
        self._payloads: list[Section] = []
        self._filled = 0

    def read(self) -> RecordTable:
        walk_file(self._file, self._take_file)
        decompressed = DecompressedRecords(self._file, self._take_decompressed)
        decompressed.add(self._payloads)
        decompressed.finish()
        walk = self._walk
        index = np.concatenate(self._indexes)
        columns = {
            name: np.ascontiguousarray(index[:, column])
            for name, column in (
                ("type", walk.INDEX_TYPE),
                ("position", walk.INDEX_POSITION),
                ("size", walk.INDEX_SIZE),
                ("time_ns", walk.INDEX_TIME),
                ("attr", walk.INDEX_ATTR),
            )
        }
        data = np.concatenate([*self._pieces, np.zeros(WORD_SLACK, np.uint8)])
        return RecordTable(data=data, layouts=self._layouts, **columns)

    def _take_file(self, buffer: RecordBuffer) -> int:
        walk = self._walk
        index, end = self._index(buffer)
        is_compressed = np.isin(index[:, walk.INDEX_TYPE], (COMPRESSED, COMPRESSED2))
        columns = (walk.INDEX_TYPE, walk.INDEX_POSITION, walk.INDEX_SIZE)
        self._payloads += [
            compressed_payload(self._file, kind, buffer.offset + position, size)
            for kind, position, size in index[is_compressed][:, columns].tolist()
        ]
        for run in _runs(index[~is_compressed], walk.INDEX_POSITION, walk.INDEX_SIZE):
            self._keep(buffer, run)
        return end

    def _take_decompressed(self, buffer: RecordBuffer) -> int:
        index, end = self._index(buffer)
        self._keep(buffer, index)
        return end

    def _index(self, buffer: RecordBuffer) -> tuple[np.ndarray, int]:
        """List a buffer's whole records; also returns where the last one ends."""
        walk, layouts = self._walk, self._layouts
        state = np.zeros(walk.STATE_SLOTS, np.int64)
        state[walk.POSITION] = buffer.start
        pieces = []
        while True:
            state[walk.ROWS] = 0
            rows = np.empty((_ROWS_AT_A_TIME, walk.INDEX_WIDTH), np.int64)
            walk.index_records(
                buffer.data,
                buffer.end,
                layouts.table,
                layouts.id_keys,
                layouts.id_rows,
                layouts.id_offset,
                rows,
                state,
            )
            pieces.append(rows[: state[walk.ROWS]].copy())
            status, position = int(state[walk.STATUS]), int(state[walk.POSITION])
            if status in walk.STATUS_TEXTS:
                raise buffer.damaged(self._file.path, position, walk.STATUS_TEXTS[status])
            if status == walk.RUNNING:
                break
        if buffer.last and position != buffer.end and not buffer.decompressed:
            raise buffer.damaged(self._file.path, position, "the last record is cut short")
        return np.concatenate(pieces), position

    def _keep(self, buffer: RecordBuffer, index: np.ndarray) -> None:
        """Copy records that lie end to end, and list them at their new place."""
        if not len(index):
            return
        walk = self._walk
        index = index.copy()
        start = int(index[0, walk.INDEX_POSITION])
        end = int(index[-1, walk.INDEX_POSITION] + index[-1, walk.INDEX_SIZE])
        piece = buffer.data[start:end].copy()
        self._read_times(piece, index, start)
        index[:, walk.INDEX_POSITION] += self._filled - start
        self._pieces.append(piece)
        self._indexes.append(index)
        self._filled += end - start

    def _read_times(self, piece: np.ndarray, index: np.ndarray, start: int) -> None:
        """Fill in the times of the kernel's records other than samples, from their trailers."""
        walk = self._walk
        kinds = index[:, walk.INDEX_TYPE]
        for row in np.flatnonzero((kinds != SAMPLE) & (kinds < FIRST_USER_TYPE)):
            position = int(index[row, walk.INDEX_POSITION]) - start
            record = piece[position : position + int(index[row, walk.INDEX_SIZE])].tobytes()
            try:
                time_ns = self._trailers.read(record).time_ns
            except struct.error:
                continue
            index[row, walk.INDEX_TIME] = -1 if time_ns is None else time_ns


def _runs(index: np.ndarray, position: int, size: int) -> list[np.ndarray]:
    """Split an index where records do not lie end to end."""
    ends = index[:, position] + index[:, size]
    return np.split(index, np.flatnonzero(index[1:, position] != ends[:-1]) + 1)
