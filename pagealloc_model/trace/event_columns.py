"""Growing columns for the main events, and their time order."""

from __future__ import annotations

import numpy as np

from pagealloc_model.trace.columns import COLUMN_TYPES


class EventColumns:
    """The nine columns of a Trace while they are being filled, in file order.

    Args:
        capacity: rows to have room for at first; memory is only used as rows are filled.
    """

    def __init__(self, capacity: int) -> None:
        self.rows = 0
        self._columns = {
            name: np.empty(max(capacity, 1024), dtype) for name, dtype in COLUMN_TYPES.items()
        }

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The columns in the order of `COLUMN_TYPES`, at full capacity."""
        return tuple(self._columns.values())

    def grow(self) -> None:
        """Double the capacity, keeping the rows filled so far."""
        for name, column in self._columns.items():
            wider = np.empty(2 * len(column), column.dtype)
            wider[: self.rows] = column[: self.rows]
            self._columns[name] = wider

    def filled(self, name: str) -> np.ndarray:
        """One column's rows so far, in file order."""
        return self._columns[name][: self.rows]

    def time_order(self) -> np.ndarray | None:
        """Row numbers in time order, ties in file order; None if the rows are in order."""
        time_ns = self.filled("time_ns")
        if np.all(time_ns[1:] >= time_ns[:-1]):
            return None
        return np.argsort(time_ns, kind="stable")

    def ordered(self, order: np.ndarray | None) -> dict[str, np.ndarray]:
        """All columns, rearranged by `order`."""
        filled = {name: self.filled(name) for name in self._columns}
        if order is None:
            return filled
        from pagealloc_model.trace.record_walk import gather_rows

        gathered = {name: np.empty_like(column) for name, column in filled.items()}
        gather_rows(order, tuple(filled.values()), tuple(gathered.values()))
        return gathered
