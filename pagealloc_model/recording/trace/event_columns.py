"""Growing columns for the main events, and their time order."""

from __future__ import annotations

import numpy as np

from pagealloc_model.base.column_space import NewArray, in_memory
from pagealloc_model.recording.trace.columns import COLUMN_TYPES
from pagealloc_model.recording.trace.time_order import time_order


class EventColumns:
    """The ten columns of a Trace while they are being filled, in file order.

    Args:
        capacity: rows to have room for at first; memory is only used as rows are filled.
        new_array: makes the columns.
    """

    def __init__(self, capacity: int, new_array: NewArray = in_memory) -> None:
        self.rows = 0
        self._new_array = new_array
        self._columns = {
            name: new_array(max(capacity, 1024), dtype) for name, dtype in COLUMN_TYPES.items()
        }

    def room(self, rows: int) -> tuple[np.ndarray, ...]:
        """The columns in the order of `COLUMN_TYPES`, with room for so many rows at most."""
        return tuple(column[: self.rows + rows] for column in self._columns.values())

    def grow_if_full(self, wanted: int = 1) -> None:
        """Double the capacity if there is no room for `wanted` rows, keeping the filled ones."""
        for name, column in self._columns.items():
            if self.rows + wanted > len(column):
                wider = self._new_array(2 * len(column) + wanted, column.dtype)
                wider[: self.rows] = column[: self.rows]
                self._columns[name] = wider

    def filled(self, name: str) -> np.ndarray:
        """One column's rows so far, in file order."""
        return self._columns[name][: self.rows]

    def time_order(self) -> np.ndarray | None:
        """Row numbers in time order, ties in file order; None if the rows are in order."""
        time_ns = self.filled("time_ns")
        if self._new_array is not in_memory:
            return time_order(time_ns, self._new_array)
        in_order = bool(np.all(time_ns[1:] >= time_ns[:-1]))
        return None if in_order else np.argsort(time_ns, kind="stable")

    def ordered(self, order: np.ndarray | None) -> dict[str, np.ndarray]:
        """All columns, rearranged by `order`; what was filled is gone.

        A column takes the place of the last one with items of its size: memory used for the
        first time costs more than the copy.
        """
        if order is None:
            return {name: self.filled(name) for name in self._columns}
        spare: dict[int, np.ndarray] = {}
        gathered = {}
        for name in list(self._columns):
            column = self._columns.pop(name)
            target = spare.pop(column.itemsize, None)
            if target is None:
                target = self._new_array(self.rows, column.dtype)
            target = target.view(column.dtype)[: self.rows]
            np.take(column[: self.rows], order, out=target, mode="clip")
            gathered[name] = target
            spare[column.itemsize] = column
        return gathered
