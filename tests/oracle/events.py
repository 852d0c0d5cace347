"""What the oracle says happened: the tracepoints under zone->lock, and each hold of the lock."""

from __future__ import annotations

from dataclasses import dataclass

Event = tuple[str | int | bool, ...]
"""One of
("zone_locked", pfn, order, migratetype)                                        T4
("drain", pfn, order, migratetype)                                              T5
("extfrag", pfn, alloc_order, fallback_order, alloc_migratetype,
            fallback_migratetype, change_ownership)                             T6
("hold", site, cause, objects)                                                  S11.1
"""


@dataclass
class Work:
    """What is done under one hold of zone->lock, in units of its cost (S11.1).

    Attributes:
        splits: buddies cut in two, each of which lists the upper half.
        merges: buddies taken off a list to be merged.
        inserts: buddies listed after a free, or moved to another list.
        scanned: pages looked at in scans of a block.
    """

    splits: int = 0
    merges: int = 0
    inserts: int = 0
    scanned: int = 0


class EventLog:
    """Events in the order they happen; a hold is written when the lock is released.

    A hold's objects are pages objects moved (a huge page is one), or pageblocks converted for
    sites reserve and unreserve. Holds that achieve nothing are logged with 0 objects.

    Attributes:
        work: what the hold under way has done.
        work_of_holds: what each hold in `entries` did.
    """

    def __init__(self) -> None:
        self.entries: list[Event] = []
        self.work = Work()
        self.work_of_holds: list[Work] = []

    def zone_locked(self, pfn: int, order: int, migratetype: int) -> None:
        """A page left the free list of `migratetype` by smallest fit."""
        self.entries.append(("zone_locked", pfn, order, migratetype))

    def drain(self, pfn: int, order: int, migratetype: int) -> None:
        """A page went from a per-CPU list back into the buddy."""
        self.entries.append(("drain", pfn, order, migratetype))

    def extfrag(
        self,
        pfn: int,
        alloc_order: int,
        fallback_order: int,
        alloc_migratetype: int,
        fallback_migratetype: int,
        change_ownership: bool,
    ) -> None:
        """A claim (ownership changes) or a steal (it does not)."""
        self.entries.append(
            (
                "extfrag",
                pfn,
                alloc_order,
                fallback_order,
                alloc_migratetype,
                fallback_migratetype,
                change_ownership,
            )
        )

    def hold(self, site: str, cause: str, objects: int) -> None:
        """One hold of zone->lock ended."""
        self.entries.append(("hold", site, cause, objects))
        self.work_of_holds.append(self.work)
        self.work = Work()
