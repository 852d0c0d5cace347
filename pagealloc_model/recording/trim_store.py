"""Cut the columnar form of a recording to a time window."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np

from pagealloc_model.recording.anonymise_trace import anonymise_trace
from pagealloc_model.recording.recording import STORE_FILE, Recording
from pagealloc_model.recording.trace.time_window import Window, events_between


class StoreCut:
    """The columns of a store.

    Raises:
        RecordingError: the store is damaged.
    """

    def __init__(self, recording: Recording) -> None:
        self._trace = recording.trace

    @property
    def times(self) -> np.ndarray:
        """Times of the page-allocator events, int64, ascending."""
        return self._trace.time_ns

    @property
    def clock(self) -> str:
        """The clock of all times."""
        return self._trace.clock

    def write(
        self, directory: Path, window: Window, keep_names: Collection[str] | None, compress: bool
    ) -> None:
        """Write a store of the events in a window; see `trim.CutEvents`."""
        from pagealloc_model.recording.trace.store_write import write_store

        cut = events_between(self._trace, window)
        if keep_names is not None:
            cut = anonymise_trace(cut, keep_names)
        write_store(cut, directory / STORE_FILE, source=None, compress=compress)
