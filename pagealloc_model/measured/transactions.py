"""Transactions of the zone lock: refills, drains, direct allocations and frees, one row each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

import numpy as np

from pagealloc_model.measured.stream import Probe, Stream
from pagealloc_model.recording.trace.columns import Event

SITES = ("refill", "drain", "buddy_alloc", "direct_free", "empty_refill")
"""What transactions are; an empty refill took the lock and found no page."""
CAUSES = ("", "commit", "decay", "drain_all")
UNKNOWN_ORDER = -1

_KWORKER_FREE_NS = 1_000_000
"""A kworker's drain this long after its last free is not that free's: it is a decay (S4.8)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Transactions:
    """One row per hold of zone->lock; all columns have one length.

    Attributes:
        time_ns: int64, when it began.
        zone: int8, code of a `ZoneMap`.
        cpu: int16, the CPU that ran it.
        site: int8, index into `SITES`.
        cause: int8, index into `CAUSES`.
        objects: int64, buddies moved; -1 where unknown.
        pages: int64, base pages moved; -1 where unknown.
        order: int8, `UNKNOWN_ORDER` for drains, which mix orders.
        migratetype: int8, number of the list; -1 for drains and frees.
    """

    time_ns: np.ndarray
    zone: np.ndarray
    cpu: np.ndarray
    site: np.ndarray
    cause: np.ndarray
    objects: np.ndarray
    pages: np.ndarray
    order: np.ndarray
    migratetype: np.ndarray

    def __len__(self) -> int:
        return len(self.time_ns)

    @staticmethod
    def joined(parts: Iterable[Transactions]) -> Transactions:
        """All parts in time order."""
        columns = [part._columns() for part in parts]
        together = {name: np.concatenate([each[name] for each in columns]) for name in columns[0]}
        order = np.argsort(together["time_ns"], kind="stable")
        return Transactions(**{name: column[order] for name, column in together.items()})

    def _columns(self) -> dict[str, np.ndarray]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def single_page_transactions(
    stream: Stream, rows: np.ndarray, zone: np.ndarray, site: str
) -> Transactions:
    """Rows of the stream that each are a whole transaction of one object."""
    picked = stream.take(rows)
    count = len(picked)
    return Transactions(
        time_ns=picked.time_ns,
        zone=zone,
        cpu=picked.cpu,
        site=np.full(count, SITES.index(site), np.int8),
        cause=np.zeros(count, np.int8),
        objects=np.ones(count, np.int64),
        pages=np.int64(1) << picked.order.astype(np.int64),
        order=picked.order,
        migratetype=picked.migratetype,
    )


def drain_causes(stream: Stream, first: np.ndarray, comms: Mapping[int, str]) -> np.ndarray:
    """Why each drain happened, as an index into `CAUSES`; "" where nothing says so (T11).

    The nearest earlier free or whole-zone drain of the same CPU and task is the cause: a free
    overflowed the list (commit), or all lists are drained (drain_all). A kworker without a free
    just before is the periodic decay.

    Args:
        stream: events by CPU and time.
        first: int64, stream index of each drain's first event.
        comms: command names by thread id.
    """
    nearest = stream.latest(first, Event.FREE, Event.FREE_BATCHED, Probe.DRAIN_ZONE)
    same_task = (
        (nearest >= 0)
        & (stream.cpu[nearest] == stream.cpu[first])
        & (stream.pid[nearest] == stream.pid[first])
    )
    whole_zone = same_task & (stream.kind[nearest] == Probe.DRAIN_ZONE)
    recent = stream.time_ns[first] - stream.time_ns[nearest] < _KWORKER_FREE_NS
    workers = [pid for pid, comm in comms.items() if comm.startswith("kworker")]
    worker = np.isin(stream.pid[first], np.array(workers, np.int32))
    from_list_start = (stream.kind[first] != Probe.BULK_FREE) | (stream.value[first] == 0)
    decay = worker & ~(same_task & recent) & ~whole_zone & from_list_start
    return np.select(
        [whole_zone, decay, same_task],
        [CAUSES.index("drain_all"), CAUSES.index("decay"), CAUSES.index("commit")],
        0,
    ).astype(np.int8)
