"""Allocator events CPU by CPU: what transactions are read off (T1.4, T11)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from weakref import WeakValueDictionary

import numpy as np

from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import Trace

DAEMONS = KSWAPD, KCOMPACTD = "kswapd", "kcompactd"


class Probe(IntEnum):
    """Events that are no main rows of a trace; they share `Stream.kind` with `Event`."""

    BULK_ALLOC = 10
    BULK_ALLOC_RETURN = 11
    BULK_FREE = 12
    FREE_ONE = 13
    DRAIN_ZONE = 14
    REFILLED = 15
    CONTENDED = 16
    LOCKED = 17
    UNLOCKED = 18


PROBE_EVENTS = {
    "pa:pcp_bulk_alloc": Probe.BULK_ALLOC,
    "pa:pcp_bulk_alloc_ret": Probe.BULK_ALLOC_RETURN,
    "pa:pcp_bulk_free": Probe.BULK_FREE,
    "pa:free_one": Probe.FREE_ONE,
    "pa:drain_zone": Probe.DRAIN_ZONE,
}
_TRACEPOINTS = {
    tp.PAGE_PCPU_REFILL: Probe.REFILLED,
    tp.ZONE_LOCK_CONTENDED: Probe.CONTENDED,
    tp.ZONE_LOCKED: Probe.LOCKED,
    tp.ZONE_LOCK_UNLOCK: Probe.UNLOCKED,
}
_NUMBERED = (Probe.CONTENDED, Probe.LOCKED, Probe.UNLOCKED)

_MAIN = ("cpu", "time_ns", "pid", "pfn", "order", "migratetype", "percpu_refill")

_VALUES = {
    Probe.BULK_ALLOC: "count",
    Probe.BULK_ALLOC_RETURN: "got",
    Probe.BULK_FREE: "pindex",
    Probe.DRAIN_ZONE: "cpu_field",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Stream:
    """Kmem, probe and lock events sorted by CPU, then time; all columns have one length.

    Attributes:
        cpu: int16.
        time_ns: int64.
        kind: int8, values of `Event` and `Probe`.
        pid: int32 thread id.
        pfn: int64; -1 for probes that name no page.
        order: int8; -1 for probes that name none.
        migratetype: int8, as in the trace; of BULK_ALLOC and REFILLED the list's.
        percpu_refill: int8, as in the trace.
        zone_address: uint64, the probes' zone pointer, 0 elsewhere.
        value: int64, by kind as `_VALUES` says; of lock events the row of their table, else 0.
    """

    cpu: np.ndarray
    time_ns: np.ndarray
    kind: np.ndarray
    pid: np.ndarray
    pfn: np.ndarray
    order: np.ndarray
    migratetype: np.ndarray
    percpu_refill: np.ndarray
    zone_address: np.ndarray
    value: np.ndarray

    def __len__(self) -> int:
        return len(self.kind)

    def take(self, index: np.ndarray | slice) -> Stream:
        """The rows of an index, mask or slice, in its order."""

        def taken(column: np.ndarray) -> np.ndarray:
            if isinstance(index, slice) or column.strides != (0,) or not len(column):
                return column[index]
            # one value that stands for all rows goes on doing so
            count = int(np.count_nonzero(index)) if index.dtype == bool else len(index)
            return np.broadcast_to(column[0], count)

        return Stream(**{field.name: taken(getattr(self, field.name)) for field in fields(self)})

    def is_kind(self, *kinds: IntEnum) -> np.ndarray:
        """Mask of the rows of some kinds."""
        mask = self.kind == kinds[0]
        for kind in kinds[1:]:
            mask |= self.kind == kind
        return mask

    def rows_of(self, *kinds: IntEnum) -> np.ndarray:
        """int64 rows of some kinds, ascending."""
        return np.flatnonzero(self.is_kind(*kinds))

    def is_same_page(self, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Mask of rows that are of the same CPU and page as others."""
        return (self.pfn[rows] == self.pfn[others]) & (self.cpu[rows] == self.cpu[others])

    def latest(self, rows: np.ndarray, *kinds: IntEnum) -> np.ndarray:
        """Return the latest row of some kinds up to each of `rows`; -1 where there is none."""
        candidates = np.concatenate([[-1], self.rows_of(*kinds)])
        return candidates[np.searchsorted(candidates, rows, "right") - 1]


def allocator_stream(trace: Trace, *, with_probes: bool, with_lock_events: bool = False) -> Stream:
    """The trace's main rows by CPU and time; while somebody holds a stream, all get the same one.

    Args:
        trace: the events.
        with_probes: merge the kprobes' events.
        with_lock_events: merge the refill and zone-lock tracepoints (T8).
    """
    wanted = (PROBE_EVENTS if with_probes else {}) | (_TRACEPOINTS if with_lock_events else {})
    others = {name: probe for name, probe in wanted.items() if name in trace.tables}
    of_trace = trace.remembered("allocator streams", WeakValueDictionary[tuple[str, ...], Stream])
    stream = of_trace.get(tuple(others))
    if stream is None:
        by_cpu = np.argsort(trace.cpu, kind="stable")
        columns = {name: getattr(trace, name)[by_cpu] for name in _MAIN}
        stream = Stream(
            kind=trace.event[by_cpu].astype(np.int8),
            **columns,
            zone_address=np.broadcast_to(np.uint64(0), len(trace)),
            value=np.broadcast_to(np.int64(0), len(trace)),
        )
        if others:
            parts = [stream, *(_probe_rows(trace, *other) for other in others.items())]
            names = [field.name for field in fields(Stream)]
            rows = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
            stream = Stream(**rows).take(np.lexsort((rows["time_ns"], rows["cpu"])))
        of_trace[tuple(others)] = stream
    return stream


def _probe_rows(trace: Trace, name: str, probe: Probe) -> Stream:
    table = trace.tables[name]
    rows = len(table["time_ns"])

    def column(field: str, missing: int, dtype: type) -> np.ndarray:
        return table[field].astype(dtype) if field in table else np.full(rows, missing, dtype)

    return Stream(
        cpu=table["cpu"],
        time_ns=table["time_ns"],
        kind=np.full(rows, probe, np.int8),
        pid=table["pid"],
        pfn=column("pfn", -1, np.int64),
        order=column("order", -1, np.int8),
        migratetype=column("migratetype" if probe == Probe.REFILLED else "mt", -1, np.int8),
        percpu_refill=np.full(rows, -1, np.int8),
        zone_address=column("zone", 0, np.uint64),
        value=(
            np.arange(rows) if probe in _NUMBERED else column(_VALUES.get(probe, ""), 0, np.int64)
        ),
    )


CPUS = 1 << 16
"""CPUs that an int16 can number; working space by CPU is as long."""


def begun_and_ended(
    trace: Trace,
    begin_name: str,
    end_name: str,
    keys: tuple[str, ...] = ("pid",),
    chosen: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Rows of beginnings and of the ends that follow them, and ns between (T10.10); int64.

    By keys and then by time, without beginnings whose end was not seen; None where either event was
    not recorded.

    Args:
        trace: the recording's events.
        begin_name: table of the beginnings.
        end_name: of the ends.
        keys: columns that both have in common, the last first; by default the task.
        chosen: rows of the beginnings; by default all.
    """
    begins, ends = trace.tables.get(begin_name), trace.tables.get(end_name)
    if begins is None or ends is None:
        return None
    rows = np.arange(len(begins["time_ns"])) if chosen is None else chosen
    time_ns, *columns = (
        np.concatenate([np.asarray(begins[name])[rows], ends[name]]) for name in ("time_ns", *keys)
    )
    row = np.concatenate([rows, np.arange(len(ends["time_ns"]))])
    is_end = np.arange(len(row)) >= len(rows)
    ranked = np.lexsort((is_end, time_ns, *columns))
    before, after = ranked[:-1], ranked[1:]
    pairs = ~is_end[before] & is_end[after]
    for column in columns:
        pairs &= column[before] == column[after]
    before, after = before[pairs], after[pairs]
    return row[before], row[after], time_ns[after] - time_ns[before]
