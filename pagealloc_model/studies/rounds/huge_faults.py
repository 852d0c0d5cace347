"""Faults for huge pages beside the rounds of a recording, or between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.base.errors import UsageError
from pagealloc_model.studies.workload.build_demand import ANON_BITS, HUGE_BITS

HOLD_NS = 500_000_000
"""What is still kept is freed so long after a burst's last fault."""


@dataclass(frozen=True, kw_only=True)
class HugeFaults:
    """How many huge pages are asked for in a round, when, and how long they are kept.

    What a fault may do to get one is the policy's `thp_defrag`; unless given, not reclaim.

    Attributes:
        per_round: faults in a round.
        beside: spread evenly over the round's demand; otherwise one after the other behind it.
        kept: a huge page is freed once so many later ones were asked for; all are at the end of
            their round.
        fault_us: time between two faults of a burst, us.
        touched: base pages asked for in place of one that is refused; None for as many as the
            assumptions' `base_pages_per_huge`, or for all where none are given.
    """

    per_round: int = 300
    beside: bool = True
    kept: int = 50
    fault_us: int = 200
    touched: int | None = None

    def __post_init__(self) -> None:
        """Refuse what is no load.

        Raises:
            UsageError: a count below 0, or no time between faults.
        """
        if min(self.per_round, self.kept, self.touched or 1) < 0 or self.fault_us < 1:
            raise UsageError(
                f"per_round={self.per_round}, kept={self.kept}, fault_us={self.fault_us}: write 0 "
                "or more faults, 0 or more kept, and 1 us or more"
            )

    def objects(self, order: int) -> int:
        """Return the number of objects of a round: huge pages, then base pages in their place."""
        return self.per_round * (1 + self.base_pages(order))

    def base_pages(self, order: int) -> int:
        """Return how many base pages come in place of a huge page of an order."""
        whole = 1 << order
        return whole if self.touched is None else min(self.touched, whole)

    def pause_ns(self) -> int:
        """Return the time that a round's demand is followed by, ns."""
        burst = 0 if self.beside else self.per_round * self.fault_us * 1000
        return burst + HOLD_NS


def fault_events(
    faults: HugeFaults, begin_ns: int, end_ns: int, *, cpu: int, zone: int, order: int
) -> tuple[np.ndarray, np.ndarray]:
    """A round's faults: each is tried, and base pages come in its place if it fails (S10.5).

    Args:
        faults: how many and when.
        begin_ns: when the round's demand begins.
        end_ns: when it ends.
        cpu: the CPU that faults.
        zone: highest zone type that requests may use.
        order: of a huge page.

    Returns:
        `layout.EVENT` records in time order, objects numbered from 0; int32 by object: the huge
        page that it comes in place of, -1 for none.
    """
    count, base_pages = faults.per_round, faults.base_pages(order)
    if faults.beside:
        step = (end_ns - begin_ns) // (count + 1)
        times = begin_ns + step * (1 + np.arange(count))
    else:
        step = faults.fault_us * 1000
        times = end_ns + step * np.arange(count)
    last = max(end_ns, int(times[-1]) if count else end_ns) + HOLD_NS // 2
    later = np.arange(count) + faults.kept + 1
    gone = (
        np.where(later < count, times[np.minimum(later, count - 1)] - 1, last) if count else times
    )
    within = 1 + np.arange(base_pages) * max(min(step, 200_000) // (2 * max(base_pages, 1)), 1)
    leads = np.concatenate([np.full(count, -1), np.repeat(np.arange(count), base_pages)])
    asked = _events(times, np.arange(count), HUGE_BITS, at.RECORDED_FAILURE, order)
    base_times = (times[:, None] + within).ravel()
    numbers = count + np.arange(count * base_pages)
    base = _events(base_times, numbers, ANON_BITS, at.ALLOC, 0)
    freed = _events(gone, np.arange(count), 0, at.FREE, order)
    base_freed = _events(np.repeat(gone, base_pages), numbers, 0, at.FREE, 0)
    events = np.concatenate([asked, base, freed, base_freed])
    events["cpu"] = cpu
    events["zone"] = zone
    return events[np.argsort(events["time_ns"], kind="stable")], leads.astype(np.int32)


def _events(
    times: np.ndarray, numbers: np.ndarray, bits: int, operation: int, order: int
) -> np.ndarray:
    events = np.zeros(len(times), at.EVENT)
    events["operation"] = operation
    events["time_ns"] = times
    events["object"] = numbers
    events["bits"] = bits
    events["migratetype"] = at.MOVABLE
    events["order"] = order
    return events
