"""What the oracle says happened: the tracepoints under zone->lock, and each hold of the lock."""

from __future__ import annotations

Event = tuple[str | int | bool, ...]
"""One of
("zone_locked", pfn, order, migratetype)                                        T4
("drain", pfn, order, migratetype)                                              T5
("extfrag", pfn, alloc_order, fallback_order, alloc_migratetype,
            fallback_migratetype, change_ownership)                             T6
("hold", site, cause, objects)                                                  S11.1
"""


class EventLog:
    """Events in the order they happen; a hold is written when the lock is released.

    A hold's objects are pages objects moved (a huge page is one), or pageblocks converted for
    sites reserve and unreserve. Holds that achieve nothing are logged with 0 objects.
    """

    def __init__(self) -> None:
        self.entries: list[Event] = []

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
