"""Demand that nobody recorded: requests for memory, reads and frees, as events of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.state import thp_reclaim_bits
from pagealloc_model.recording.machine import Machine

EVENT = at.EVENT
RECLAIM = at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM
_WAITS = RECLAIM | pr.GFP_IO | pr.GFP_FS


class Operation(IntEnum):
    """Values of `operation` of `EVENT` records."""

    ALLOC = at.ALLOC
    FREE = at.FREE
    USE = at.USE
    TICK = at.TICK
    DRAIN_ALL = at.DRAIN_ALL
    KSWAPD_START = at.KSWAPD_START
    CPU_DIES = at.CPU_DIES
    CPU_RETURNS = at.CPU_RETURNS
    TRY = at.RECORDED_FAILURE
    HIDDEN_ALLOC = at.HIDDEN_ALLOC
    SET_PCP_HIGH = at.SET_PCP_HIGH
    GROW = at.GROW


class Migratetype(IntEnum):
    """Types of requests, pageblocks and free lists (S2.2)."""

    UNMOVABLE = at.UNMOVABLE
    MOVABLE = at.MOVABLE
    RECLAIMABLE = at.RECLAIMABLE
    HIGHATOMIC = at.HIGHATOMIC


class Kind(IntEnum):
    """Kinds of memory that requests are for."""

    KERNEL = pr.KERNEL
    SLAB = pr.RECLAIMABLE
    ANON = pr.ANON
    FILE = pr.FILE


def kind_of(bits: np.ndarray) -> np.ndarray:
    """Return the `Kind` of requests by their `bits`."""
    return bits >> pr.CLASS_SHIFT


class Gfp(IntEnum):
    """Bits of a request that decide (S2.3), with the kind of memory that it is for.

    HUGE lacks the bits that say how a fault may reclaim: see `huge_gfp`. RECLAIM and USER are of
    literal runs, which need no more.
    """

    KERNEL = _WAITS | pr.KERNEL << pr.CLASS_SHIFT
    SLAB = _WAITS | pr.RECLAIMABLE << pr.CLASS_SHIFT
    ANON = _WAITS | pr.ANON << pr.CLASS_SHIFT
    FILE = _WAITS & ~pr.GFP_FS | pr.GFP_NORETRY | pr.FILE << pr.CLASS_SHIFT
    FILE_FS = _WAITS | pr.GFP_NORETRY | pr.FILE << pr.CLASS_SHIFT
    HUGE = pr.GFP_IO | at.GFP_NOMEMALLOC | pr.ANON << pr.CLASS_SHIFT
    ATOMIC = at.GFP_HIGH | at.GFP_KSWAPD_RECLAIM
    RECLAIM = RECLAIM
    USER = 0x100CCA & at.GFP_READ_BITS
    FREED_IN_BATCH = at.FREED_IN_BATCH
    HIGH = at.GFP_HIGH


def huge_gfp(defrag: str, *, madvised: bool = True, local_first: bool = False) -> int:
    """Bits of a fault for a huge page (S8.5) under a setting of transparent_hugepage/defrag.

    Args:
        defrag: the setting.
        madvised: the memory is madvised.
        local_first: a page of the own node alone is asked for first.
    """
    local = at.GFP_THISNODE | pr.GFP_NORETRY if local_first else 0
    return Gfp.HUGE | thp_reclaim_bits(defrag, madvised) | local


@dataclass(frozen=True, kw_only=True, eq=False)
class Demand:
    """Requests to a machine, made part by part so that they need never be in memory as a whole.

    Attributes:
        parts: called for the parts from the first on: `EVENT` records in time order.
        count: events of all parts.
        objects: numbers of objects that they use; one is used again once it is freed.
        leads: int32 by object, the huge page that it comes in place of, -1 for none.
        start_ns: when the machine begins to run; None for the time of the first event.
        lines: assumptions, one line each.
        kswapd_recorded: kswapd's runs are events, not the model's to decide.
        direct_reclaim_recorded: direct reclaim is marked on the requests it runs for.
        set_up: from and to, ns, of spans that only make memory ready: nothing in them is counted.
    """

    name: str
    machine: Machine
    parts: Callable[[], Iterator[np.ndarray]]
    count: int
    objects: int
    leads: np.ndarray | None = None
    start_ns: int | None = None
    lines: tuple[str, ...] = ()
    seed: int = 0
    kswapd_recorded: bool = False
    direct_reclaim_recorded: bool = False
    set_up: tuple[tuple[int, int], ...] = ()

    def is_counted(self, times: np.ndarray) -> np.ndarray:
        """Which times, int64, lie in no span of set-up: bool, of the same shape."""
        counted = np.ones(len(times), bool)
        for begin, end in self.set_up:
            counted &= (times < begin) | (times >= end)
        return counted

    @cached_property
    def events(self) -> np.ndarray:
        """All events in one array."""
        parts = list(self.parts())
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


class Requests:
    """Requests, reads and frees, collected in any order; `objects` is the next one's number."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.objects = 0
        self._parts: list[np.ndarray] = []
        self._leads: list[np.ndarray] = []

    def ask(
        self,
        times: np.ndarray,
        freed_at: np.ndarray | None = None,
        *,
        gfp: int,
        migratetype: np.ndarray | int = at.MOVABLE,
        order: np.ndarray | int = 0,
        cpu: np.ndarray | int = 0,
        zone: str = "Normal",
        operation: int = at.ALLOC,
        leads: np.ndarray | int = -1,
        freed_by: np.ndarray | int | None = None,
    ) -> np.ndarray:
        """Ask for an object at each time, and free it; returns the objects' numbers (int64).

        Args:
            times: int64, ns.
            freed_at: int64, ns, or floats with inf where only reclaim frees; None for all of them.
            gfp: bits, see `Gfp`.
            migratetype: of the request.
            order: of the request.
            cpu: that asks.
            zone: the highest that the request may use.
            operation: `Operation.TRY` for a huge page that others come in place of if it fails.
            leads: number of that huge page.
            freed_by: the CPU that frees; None for the one that asks.
        """
        numbers, zone_type = self.reserve_objects(len(times), leads), self.machine.type_index(zone)
        requests = plain_events(
            operation,
            times,
            cpu,
            numbers,
            bits=gfp,
            migratetype=migratetype,
            order=order,
            zone=zone_type,
        )
        self._parts.append(requests)
        if freed_at is not None:
            ends = np.isfinite(freed_at)
            freed = requests[ends]
            freed["operation"] = at.FREE
            freed["bits"] = 0
            freed["time_ns"] = freed_at[ends]
            if freed_by is not None:
                freed["cpu"] = freed_by
            self._parts.append(freed)
        return numbers

    def free(
        self,
        times: np.ndarray,
        objects: np.ndarray,
        *,
        order: int = 0,
        offset: np.ndarray | int = 0,
        cpu: np.ndarray | int = 0,
    ) -> None:
        """Free pieces of an order of objects, `offset` pages from where they begin."""
        self._parts.append(plain_events(at.FREE, times, cpu, objects, order=order, offset=offset))

    def read(self, times: np.ndarray, objects: np.ndarray, *, cpu: np.ndarray | int = 0) -> None:
        """Read pages of files; one that is not in the page cache is read anew (S10.7)."""
        about = dict(bits=Gfp.FILE, migratetype=at.MOVABLE, zone=self.machine.type_index("Normal"))
        self._parts.append(plain_events(at.USE, times, cpu, objects, **about))

    def add(self, events: np.ndarray) -> None:
        """Add `EVENT` records that are there already."""
        self._parts.append(events)

    def reserve_objects(self, count: int, leads: np.ndarray | int = -1) -> np.ndarray:
        """Numbers of objects that memory holds at first, or that are asked for later."""
        numbers = self.objects + np.arange(count)
        self.objects += count
        self._leads.append(np.broadcast_to(np.asarray(leads, np.int32), count))
        return numbers

    def demand(self, name: str, **about: object) -> Demand:
        """All of them in time order, those of one time in the order in which they were added."""
        events = in_time_order(np.concatenate(self._parts))
        leads = np.concatenate(self._leads)
        return Demand(
            name=name,
            machine=self.machine,
            parts=lambda: iter([events]),
            count=len(events),
            objects=self.objects,
            leads=leads if (leads >= 0).any() else None,
            **about,  # type: ignore[arg-type]
        )


def in_time_order(events: np.ndarray) -> np.ndarray:
    """Events sorted by time; those of one time stay in order."""
    # records are taken by number: a mask copies them field by field
    return events.take(np.argsort(events["time_ns"], kind="stable"))


def plain_events(
    operation: int,
    times: np.ndarray,
    cpu: np.ndarray | int,
    objects: np.ndarray | int = -1,
    **columns: np.ndarray | int,
) -> np.ndarray:
    """`EVENT` records of one operation, other columns zero; -1 where no object is concerned."""
    events = np.zeros(len(times), EVENT)
    columns = dict(operation=operation, time_ns=times, object=objects, cpu=cpu) | columns
    for name, values in columns.items():
        events[name] = values
    return events
