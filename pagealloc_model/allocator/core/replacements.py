"""Which requests came in place of one that failed (T10.4)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.base.jit import entry

REQUEST = np.dtype(
    [
        ("task", np.int32),
        ("object", np.int32),
        ("kind", np.int8),
        ("order", np.int8),
        ("failed", np.int8),
    ],
    align=True,
)
"""A recorded request: its task, its object's number (-1: a failure that is not tried), the class of
its pages, its order, whether it failed."""


class OpenFailures:
    """Failures that the next requests may have come in place of, by task and class.

    Of a task's failures of one order that nothing came in place of yet, all are replaced by the
    same, so that the last stands for them.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._slots: dict[int, int] = {}
        self._words = np.zeros((64, at.ORDERS, 2), np.int32)

    def of(self, requests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """No kernel function: return rows of each request's task and class, and all rows.

        Args:
            requests: `REQUEST` records.

        Returns:
            int32, one for each; int32, shape (rows, orders, 2): one more than the object of the
            failure, 0 for none, and how many pages came in its place.
        """
        keys = requests["task"].astype(np.int64) * 4 + requests["kind"]
        names, inverse = np.unique(keys, return_inverse=True)
        known = self._slots
        slots = [known.setdefault(each, len(known)) for each in names.tolist()]
        if len(known) > len(self._words):
            more = np.zeros((2 * len(known), *self._words.shape[1:]), np.int32)
            more[: len(self._words)] = self._words
            self._words = more
        return np.array(slots, np.int32)[inverse], self._words


@entry
def link_replacements(
    requests: np.ndarray, slots: np.ndarray, failures: np.ndarray, leads: np.ndarray
) -> None:
    """No kernel function: find the requests that came in place of each failed one (T10.4).

    They are the same task's following ones of its class and of lower order, up to as many pages as
    were asked for, until it asks for that order again. Kernel memory is replaced by one request.
    The same request again, before any smaller one, is another try.

    Args:
        requests: `REQUEST` records by time.
        slots: as `OpenFailures.of` returns them.
        failures: likewise; changed.
        leads: int32 by object, -1 at first; the nearest failure that each one replaces.
    """
    for index in range(len(requests)):
        slot = int(slots[index])
        number = int(requests[index]["object"])
        size = int(requests[index]["order"])
        kind = int(requests[index]["kind"])
        failed = int(requests[index]["failed"]) == 1
        for order in range(at.ORDERS - 1, -1, -1):
            lead = int(failures[slot, order, 0]) - 1
            if lead < 0:
                continue
            found = int(failures[slot, order, 1])
            if size >= order and (size > order or not failed or found > 0):
                failures[slot, order, 0] = 0
                continue
            if number >= 0:
                leads[number] = lead
            if size < order and not failed:
                found += 1 << size
                if kind < pr.ANON:
                    found = 1 << order
                failures[slot, order, 1] = found
                if found >= 1 << order:
                    failures[slot, order, 0] = 0
        if failed and number >= 0:
            failures[slot, size, 0] = number + 1
            failures[slot, size, 1] = 0
