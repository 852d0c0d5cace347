"""Side tables of `perf script` text: `key=value` fields of tracepoints to columns."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from pagealloc_model.recording.trace.event_tables import FIELD_SUFFIX, KEY_COLUMNS

_FIELD = re.compile(r"(\w+)=(0x[0-9a-fA-F]+|-?\d+|[^\s,()]+)")
_LOCK = re.compile(r"^\s*(0x[0-9a-fA-F]+) ")
_DERIVED = frozenset({"page", "pageblock_order", "fragmenting"})
_CONTENTION_FLAGS = {"SPIN": 1, "READ": 2, "WRITE": 4, "RT": 8, "PERCPU": 16, "MUTEX": 32}
_GFP_FIELDS = ("gfp_flags", "gfp_mask")
_INTEGER = re.compile(r"0x[0-9a-fA-F]{1,16}|-?(?:0|[1-9]\d{0,18})")
_LARGEST_SIGNED = 2**63 - 1


class TableRows:
    """Rows of one tracepoint.

    Args:
        gfp_word: decodes gfp names.
    """

    def __init__(self, gfp_word: Callable[[str], int]) -> None:
        self._gfp_word = gfp_word
        self._fixed: list[tuple[int, int, int, int]] = []
        self._fields: list[dict[str, str]] = []

    def add(self, time_ns: int, cpu: int, thread: int, row: int, body: str) -> None:
        """Take one event.

        Args:
            time_ns: its time.
            cpu: the CPU that recorded it.
            thread: thread id, -1 if unknown.
            row: main rows read before it.
            body: the event's text.
        """
        fields = {name: value for name, value in _FIELD.findall(body) if name not in _DERIVED}
        lock = _LOCK.match(body)
        if lock:
            fields["lock_addr"] = lock[1]
        for name in _GFP_FIELDS:
            if name in fields:
                fields[name] = str(self._gfp_word(fields[name]))
        self._fixed.append((time_ns, cpu, thread, row))
        self._fields.append(fields)

    def finish(self, main_times: np.ndarray) -> dict[str, np.ndarray]:
        """Columns in time order; fields absent from some row are left out.

        Args:
            main_times: int64, sorted times of the trace's main rows.
        """
        fixed = np.array(self._fixed, np.int64).reshape(-1, 4)
        order = np.argsort(fixed[:, 0], kind="stable")
        times, rows = fixed[order, 0], fixed[order, 3]
        low = np.searchsorted(main_times, times, "left")
        high = np.searchsorted(main_times, times, "right")
        columns = {
            "time_ns": times,
            "cpu": fixed[order, 1].astype(np.int16),
            "pid": fixed[order, 2].astype(np.int32),
            "row": np.clip(rows, low, high),
        }
        shared = [name for name in self._fields[0] if all(name in row for row in self._fields)]
        for name in shared:
            column = name + FIELD_SUFFIX if name in KEY_COLUMNS else name
            columns[column] = _column([row[name] for row in self._fields])[order]
        return columns


def _column(values: list[str]) -> np.ndarray:
    """Numbers where all values are, contention flags as their bits, else text."""
    if all(_INTEGER.fullmatch(value) for value in values):
        numbers = [int(value, 0) for value in values]
        if min(numbers) >= -_LARGEST_SIGNED and max(numbers) <= _LARGEST_SIGNED:
            return np.array(numbers, np.int64)
        if min(numbers) >= 0:
            return np.array(numbers, np.uint64)
    if all(set(value.split("|")) <= _CONTENTION_FLAGS.keys() for value in values):
        return np.array([_contention_bits(value) for value in values], np.int64)
    return np.array(values, object)


def _contention_bits(text: str) -> int:
    return sum(_CONTENTION_FLAGS[name] for name in text.split("|"))
