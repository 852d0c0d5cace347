"""Cut the records of a perf.data file to a time window."""

from __future__ import annotations

import struct
from collections.abc import Collection
from pathlib import Path

import numpy as np

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.anonymise import anonymise_features, anonymise_records
from pagealloc_model.recording.recording import EVENT_FILE, Recording
from pagealloc_model.recording.trace.perf_data import (
    COMM,
    COMPRESSION_LEVEL,
    FIRST_USER_TYPE,
    FORK,
    ID_INDEX,
    LOST,
    LOST_SAMPLES,
    SAMPLE,
    RecordTable,
    read_record_table,
    write_perf_data,
)
from pagealloc_model.recording.trace.perf_file import WORD_SLACK, Feature, open_perf_file
from pagealloc_model.recording.trace.side_tables import Window

_EXIT = 4
_THREAD_MAP = 73
_KEPT_USER_TYPES = (ID_INDEX, _THREAD_MAP, 74, 78, 79, 82)
_ANONYMOUS_TYPES = (SAMPLE, LOST, LOST_SAMPLES, COMM, FORK, _EXIT)


class PerfDataCut:
    """The records of a perf.data file.

    Attributes:
        times: times of the page-allocator events, int64, ascending.

    Raises:
        RecordingError: the file is damaged, or no perf.data.
    """

    def __init__(self, recording: Recording) -> None:
        self._file = open_perf_file(recording.event_file)
        self._table = table = read_record_table(self._file)
        is_main = np.array([event is not None for event in table.layouts.events])
        self.times = np.sort(table.time_ns[(table.type == SAMPLE) & is_main[table.attr]])

    @property
    def clock(self) -> str:
        """The clock of all times."""
        return self._file.clock

    def write(
        self, directory: Path, window: Window, keep_names: Collection[str] | None, compress: bool
    ) -> None:
        """Write a perf.data of the records in a window; see `trim.CutEvents`.

        Raises:
            RecordingError: names cannot be removed, because a sample is damaged.
        """
        anonymise = keep_names is not None
        records = self._table.joined(_chosen(self._table, window, anonymise))
        if keep_names is not None:
            try:
                anonymise_records(records, self._file, keep_names)
            except ValueError as error:
                raise RecordingError(self._file.path, str(error), todo="record again") from None
        made_by_perf = records.type >= FIRST_USER_TYPE
        plain = records.joined(np.flatnonzero(made_by_perf))
        rest = records.joined(np.flatnonzero(~made_by_perf))
        write_perf_data(
            directory / EVENT_FILE,
            attrs=self._file.attrs,
            features=self._features(records, anonymise),
            plain_records=plain.data[:-WORD_SLACK].tobytes(),
            records=memoryview(rest.data[:-WORD_SLACK]),
            compress=compress,
            level=COMPRESSION_LEVEL,
        )

    def _features(self, records: RecordTable, anonymise: bool) -> dict[int, bytes]:
        if anonymise:
            features = anonymise_features(self._file)
        else:
            numbers = self._file.features
            features = {n: data for n in numbers if (data := self._file.feature(n)) is not None}
        if Feature.SAMPLE_TIME in features:
            times = records.time_ns[records.type == SAMPLE]
            features[Feature.SAMPLE_TIME] = struct.pack("<QQ", times.min(), times.max())
        return features


def _chosen(table: RecordTable, window: Window, anonymise: bool) -> np.ndarray:
    """Indices of the records to keep, ascending.

    Names and memory maps from before the window are kept, since they hold in it.
    """
    kind, time_ns = table.type, table.time_ns
    before_end = (time_ns < window.end_ns) | window.to_end
    after_begin = (time_ns >= window.begin_ns) | window.from_start
    is_counted = np.isin(kind, (SAMPLE, LOST))
    kept = before_end & (after_begin | ~is_counted) & (kind < FIRST_USER_TYPE)
    kept &= (kind != LOST_SAMPLES) | (window.from_start and window.to_end)
    kept |= np.isin(kind, _KEPT_USER_TYPES)
    if anonymise:
        kept &= np.isin(kind, _ANONYMOUS_TYPES + _KEPT_USER_TYPES) & (kind != _THREAD_MAP)
    return np.flatnonzero(kept)
