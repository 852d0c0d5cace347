"""Records set aside while a file is walked: all that are not samples of the main events."""

from __future__ import annotations

import numpy as np

from pagealloc_model.base.column_space import NewArray, in_memory

# Columns of a note: what the record is, where it was, and where its copy and its parts are.
NOTE_ATTR = 0
NOTE_TYPE = 1
NOTE_SOURCE = 2
NOTE_POSITION = 3
NOTE_SIZE = 4
NOTE_BEFORE = 5
NOTE_RAW = 6
NOTE_RAW_SIZE = 7
NOTE_TIME = 8
NOTE_CPU = 9
NOTE_PID = 10
NOTE_CHAIN = 11
NOTE_CHAIN_SIZE = 12
NOTE_WIDTH = 13

LARGEST_RECORD = 0xFFFF

_FIRST_ROWS = 1 << 12
_FIRST_BYTES = 1 << 20


class RecordNotes:
    """Notes and copies of the records they are about, both growing.

    Attributes:
        count: notes so far.
        filled: bytes copied so far.
        rows: int64 (capacity, NOTE_WIDTH). NOTE_ATTR is -1 for records that are not samples;
            NOTE_SOURCE is an offset in the file or in the decompressed stream, the other places
            are in `copies`; NOTE_BEFORE counts the main rows before the record in the file.
        copies: uint8, the records end to end; compressed records are not copied.

    Args:
        new_array: makes the arrays.
    """

    def __init__(self, new_array: NewArray = in_memory) -> None:
        self.count = 0
        self.filled = 0
        self._new_array = new_array
        self.rows = new_array((_FIRST_ROWS, NOTE_WIDTH), np.int64)
        self.copies = new_array(_FIRST_BYTES, np.uint8)

    @property
    def filled_rows(self) -> np.ndarray:
        """The notes so far."""
        return self.rows[: self.count]

    def grow(self) -> None:
        """Double the room for notes and for copies."""
        rows = self._new_array((2 * len(self.rows), NOTE_WIDTH), np.int64)
        rows[: self.count] = self.filled_rows
        copies = self._new_array(2 * len(self.copies), np.uint8)
        copies[: self.filled] = self.copies[: self.filled]
        self.rows, self.copies = rows, copies

    def record(self, note: np.ndarray) -> bytes:
        """The bytes of the record that a note is about."""
        start = int(note[NOTE_POSITION])
        return self.copies[start : start + int(note[NOTE_SIZE])].tobytes()
