"""When threads were named, as the recording tells it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

NAMED = -1
"""Stands for the parent where a thread was named, not forked."""

_IDLE = {0: "swapper"}


@dataclass(frozen=True, kw_only=True, eq=False)
class ThreadNames:
    """Namings of threads, one row each, in the order of the source.

    Attributes:
        time_ns: int64, 0 for names that held when the recording began.
        tid: int64, the thread.
        parent: int64, the thread it was forked from, whose name it takes over, or NAMED.
        name: object, str; "" where it was forked.
    """

    time_ns: np.ndarray
    tid: np.ndarray
    parent: np.ndarray
    name: np.ndarray

    @staticmethod
    def of(rows: Iterable[tuple[int, int, int, str]]) -> ThreadNames:
        """From rows of time, thread, parent and name."""
        times, tids, parents, names = list(zip(*rows, strict=True)) or ((), (), (), ())
        return ThreadNames(
            time_ns=np.array(times, np.int64),
            tid=np.array(tids, np.int64),
            parent=np.array(parents, np.int64),
            name=np.array(names, object),
        )

    @staticmethod
    def none() -> ThreadNames:
        """Of a source that does not say."""
        return ThreadNames.of(())

    def __len__(self) -> int:
        return len(self.time_ns)

    def last(self) -> dict[int, str]:
        """Thread id -> last command name; a forked thread starts with its parent's."""
        comms = dict(_IDLE)
        order = np.argsort(self.time_ns, kind="stable")
        columns = (column[order].tolist() for column in (self.tid, self.parent, self.name))
        for tid, parent, name in zip(*columns, strict=True):
            if parent == NAMED:
                comms[tid] = name
            elif parent in comms:
                comms[tid] = comms[parent]
        return comms
