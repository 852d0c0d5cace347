"""What a reader takes from records that are not samples: command names and losses."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pagealloc_model.recording.trace.columns import Losses
from pagealloc_model.recording.trace.perf_file import EventAttr
from pagealloc_model.recording.trace.record_trailer import TrailerReader
from pagealloc_model.recording.trace.thread_names import NAMED, ThreadNames

LOST = 2
COMM = 3
FORK = 7
LOST_SAMPLES = 13
ID_INDEX = 69

_MISC_DROPPED_BY_FILTER = 1 << 15


@dataclass(frozen=True)
class _Loss:
    cpu: int
    time_ns: int
    rows_before: int
    count: int


class SideRecords:
    """Collects COMM, FORK, LOST, LOST_SAMPLES and ID_INDEX records."""

    def __init__(self, attrs: Sequence[EventAttr]) -> None:
        self._trailers = TrailerReader(attrs)
        self._names: list[tuple[int, int, int, str]] = []
        self._losses: list[_Loss] = []
        self._lost_samples: list[tuple[int | None, int]] = []
        self._cpu_of_id: dict[int, int] = {}

    def add(self, record_type: int, record: bytes, rows_before: int) -> None:
        """Take one record; `rows_before` is the number of main rows before it in the file.

        Raises:
            ValueError: the record is too short for what it must hold.
        """
        try:
            if record_type in (COMM, FORK):
                self._add_name(record_type, record)
            elif record_type == ID_INDEX:
                self._add_id_index(record)
            elif record_type == LOST:
                self._add_lost(record, rows_before)
            elif record_type == LOST_SAMPLES:
                self._add_lost_samples(record)
        except struct.error:
            raise ValueError(f"a record of type {record_type} is too short") from None

    def thread_names(self) -> ThreadNames:
        """When threads were named, in file order."""
        return ThreadNames.of(self._names)

    def losses(self, time_ns: np.ndarray, cpu: np.ndarray) -> Losses:
        """All losses, each counted once.

        LOST_SAMPLES count per event what LOST counts per buffer, and also what was lost after
        the last LOST record: only that remainder is added.

        Args:
            time_ns: times of the main rows, in file order.
            cpu: their CPUs.
        """
        unreported = self._unreported(time_ns)
        losses = [*self._losses, *unreported]
        if not losses:
            return Losses.none()
        starts = _last_times_before(losses, time_ns, cpu)
        return Losses(
            cpu=np.array([loss.cpu for loss in losses], np.int16),
            start_ns=np.array(starts, np.int64),
            end_ns=np.array([loss.time_ns for loss in losses], np.int64),
            count=np.array([loss.count for loss in losses], np.int64),
            event=("",) * len(losses),
            at_end=len(unreported),
        )

    def _unreported(self, time_ns: np.ndarray) -> list[_Loss]:
        cpus = [self._cpu_of_id.get(number, -1) for number, _ in self._lost_samples]
        known = -1 not in cpus and all(loss.cpu >= 0 for loss in self._losses)
        remaining: dict[int, int] = {}
        for cpu, (_, count) in zip(cpus, self._lost_samples, strict=True):
            key = cpu if known else -1
            remaining[key] = remaining.get(key, 0) + count
        for loss in self._losses:
            key = loss.cpu if known else -1
            remaining[key] = remaining.get(key, 0) - loss.count
        end = int(time_ns.max()) if len(time_ns) else 0
        return [
            _Loss(cpu, end, len(time_ns), count) for cpu, count in remaining.items() if count > 0
        ]

    def _add_name(self, record_type: int, record: bytes) -> None:
        trailer = self._trailers.read(record)
        if record_type == FORK:
            _, _, tid, parent, time_ns = struct.unpack_from("<IIIIq", record, 8)
            self._names.append((time_ns, tid, parent, ""))
            return
        (tid,) = struct.unpack_from("<I", record, 12)
        text = record[16 : len(record) - trailer.size].split(b"\0", 1)[0]
        self._names.append((trailer.time_ns or 0, tid, NAMED, text.decode("utf-8", "replace")))

    def _add_id_index(self, record: bytes) -> None:
        (count,) = struct.unpack_from("<Q", record, 8)
        if count > len(record) // 32:
            raise ValueError("an id index is longer than its record")
        for entry in range(count):
            number, _, cpu, _ = struct.unpack_from("<QQQQ", record, 16 + 32 * entry)
            if cpu <= np.iinfo(np.int16).max:
                self._cpu_of_id[number] = cpu

    def _add_lost(self, record: bytes, rows_before: int) -> None:
        _, count = struct.unpack_from("<QQ", record, 8)
        trailer = self._trailers.read(record)
        cpu = -1 if trailer.cpu is None else trailer.cpu
        self._losses.append(_Loss(cpu, trailer.time_ns or 0, rows_before, _checked(count)))

    def _add_lost_samples(self, record: bytes) -> None:
        misc, _, count = struct.unpack_from("<HHQ", record, 4)
        if not misc & _MISC_DROPPED_BY_FILTER:
            self._lost_samples.append((self._trailers.read(record).id, _checked(count)))


def _checked(count: int) -> int:
    if count > np.iinfo(np.int64).max >> 20:
        raise ValueError(f"a record says that {count} events were lost")
    return int(count)


def _last_times_before(losses: list[_Loss], time_ns: np.ndarray, cpu: np.ndarray) -> list[int]:
    """Time of the CPU's last main event before each loss in the file, else the first of all."""
    first_ns = int(time_ns.min()) if len(time_ns) else np.iinfo(np.int64).max
    rows = {number: np.flatnonzero(cpu == number) for number in {loss.cpu for loss in losses}}
    starts = []
    for loss in losses:
        before = int(np.searchsorted(rows[loss.cpu], loss.rows_before))
        last_ns = int(time_ns[rows[loss.cpu][before - 1]]) if before else first_ns
        starts.append(min(last_ns, loss.time_ns))
    return starts
