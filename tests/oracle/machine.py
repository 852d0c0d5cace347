"""The machine that both sides run on, what it draws instead of chance, and the events it logs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from pagealloc_model.recording.machine import Machine, Zone

PMD_ORDER = 9  # order of a transparent huge page with 4 KiB base pages (S1.9)
PAGE_SIZE = 4096  # bytes per base page


class Migratetype(IntEnum):
    """Numbers of the types every kernel has (S1.3); CMA and ISOLATE come behind, by config."""

    UNMOVABLE = 0
    MOVABLE = 1
    RECLAIMABLE = 2
    HIGHATOMIC = 3


PCP_TYPES = 3
"""Types below this have per-CPU lists, may merge with one another and may fall back (S1.3)."""


def is_mergeable(migratetype: int) -> bool:
    """Whether blocks of this type may merge with, and change into, one another (S1.3)."""
    return migratetype < PCP_TYPES


class OracleZone(Zone):
    """One zone as found; all sizes in base pages."""

    def spans(self, pfn: int) -> bool:
        return self.start_pfn <= pfn < self.end_pfn


@dataclass(frozen=True, kw_only=True)
class OracleMachine(Machine):
    """Zones by node and, within a node, by type, with what is common to them."""

    zones: tuple[OracleZone, ...]
    free_high_batch: bool = True  # FREE_HIGH_BATCH on every CPU: cache slice over 3 batches (S4.6)

    @property
    def pages_per_block(self) -> int:
        return 1 << self.pageblock_order

    @property
    def has_several_nodes(self) -> bool:
        return len(self.nodes) > 1

    @property
    def nr_types(self) -> int:
        return len(self.zones) // len(self.nodes)

    def zone_type(self, zone: int) -> int:
        """Position of a zone among those of its node: 0 for the lowest type (S1.4)."""
        return zone % self.nr_types

    def zones_of(self, node: int) -> list[int]:
        return [index for index, zone in enumerate(self.zones) if zone.node == node]

    def node_of(self, cpu: int) -> int:
        return self.cpu_nodes[cpu] if self.cpu_nodes else self.nodes[0]

    def cpus_of(self, node: int) -> list[int]:
        """CPUs of a node; none for a node that is only memory."""
        return [cpu for cpu in range(self.nr_cpus) if self.node_of(cpu) == node]

    @property
    def cma(self) -> int | None:
        """Number of the type CMA, None on a machine without it (S1.3)."""
        return self.migratetypes.index("CMA") if "CMA" in self.migratetypes else None

    def is_isolate(self, migratetype: int) -> bool:
        return self.migratetypes[migratetype] == "Isolate"


MASK = (1 << 31) - 1
FACTOR = 0x45D9F3B


class Purpose(IntEnum):
    """What is drawn."""

    REFERENCED = 1
    DIRTY = 2
    MIGRATES = 3
    CONTENDS = 4


def mixed(value: int) -> int:
    value &= MASK
    for _ in range(2):
        value ^= value >> 16
        value = value * FACTOR & MASK
    return value ^ (value >> 16)


def draw(seed: int, key: int, purpose: Purpose, number: int) -> int:
    """The number-th draw of a key for a purpose, from 0 to 999."""
    return mixed(mixed(mixed(seed + key) + purpose) + number) % 1000


Event = tuple[str | int | bool, ...]
"""One of
("zone_locked", pfn, order, migratetype): a page left the list of a type by smallest fit        T4
("drain", pfn, order, migratetype): a page went from a per-CPU list back into the buddy         T5
("extfrag", pfn, alloc_order, fallback_order, alloc_migratetype, fallback_migratetype,
            change_ownership): a claim (ownership changes) or a steal (it does not)             T6
("hold", site, cause, objects): a hold of zone->lock ended                                   S11.1
"""


@dataclass
class Work:
    """What is done under one hold of zone->lock, in units of its cost (S11.1)."""

    splits: int = 0  # buddies cut in two, each of which lists the upper half
    merges: int = 0  # buddies taken off a list to be merged
    inserts: int = 0  # buddies listed after a free, or moved to another list
    scanned: int = 0  # pages looked at in scans of a block


class EventLog:
    """Events in the order they happen; a hold is written when the lock is released.

    A hold's objects are pages objects moved (a huge page is one), or pageblocks converted for
    sites reserve and unreserve. Holds that achieve nothing are logged with 0 objects.
    """

    def __init__(self) -> None:
        self.entries: list[Event] = []
        self.work = Work()  # what the hold under way has done
        self.work_of_holds: list[Work] = []  # what each hold in `entries` did
        # each hold's zone by index, objects and work; whoever reads them clears them
        self.queue: list[tuple[int, int, Work]] = []

    def note(self, *event: str | int | bool) -> None:
        self.entries.append(event)

    def hold(self, site: str, cause: str, objects: int, zone: int) -> None:
        self.note("hold", site, cause, objects)
        self.queue.append((zone, objects, self.work))
        self.work_of_holds.append(self.work)
        self.work = Work()
