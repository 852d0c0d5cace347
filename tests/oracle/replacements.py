"""What came in place of failed requests, by a task's own requests in turn (T10.4).

A request is looked at with all that its task asked for before it, cut into faults.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tests.oracle.lru import Kind
from tests.oracle.machine import PMD_ORDER
from tests.oracle.request import Bits

LOCAL_FIRST = Bits.THISNODE | Bits.DIRECT_RECLAIM


@dataclass(frozen=True)
class Asked:
    """A request of one task and class."""

    number: int  # of its object; -1 for a failure that is not tried
    order: int
    bits: Bits
    failed: bool


@dataclass
class Place:
    """What a failure left without pages; those that came in its place count in it."""

    order: int
    failure: int  # the last one there
    pages: int = 0
    refused: bool = True  # whether no more than failures came so far

    def is_full(self, kind: Kind) -> bool:
        return not self.refused and (kind < Kind.ANON or self.pages >= 1 << self.order)


@dataclass
class TaskHistory:
    """Requests of a task for one class of pages, and its places without pages, by order."""

    kind: Kind
    last: Asked | None = None
    standing: dict[int, Place] = field(default_factory=dict)
    waiting: list[Place] = field(default_factory=list)  # of huge pages, the oldest first

    def lead_of(self, asked: Asked) -> int:
        """Take up a request; returns the failure that it came in place of, -1 for none."""
        is_huge = self.kind is Kind.ANON and asked.order == PMD_ORDER
        before, self.last = self.last, asked
        lead = self._huge(asked, before) if is_huge else self._smaller(asked)
        if asked.failed and asked.number >= 0:
            self.standing[asked.order] = Place(asked.order, asked.number)
        return lead

    def _huge(self, asked: Asked, before: Asked | None) -> int:
        left = self.standing.pop(PMD_ORDER, None)
        outer = self._counted(asked, [each for each in self.standing if each > PMD_ORDER])
        for order in [each for each in self.standing if each < PMD_ORDER]:
            del self.standing[order]
        if left is not None and self._is_second(asked, before):
            return left.failure
        if left is not None and left.refused:
            self.waiting.append(left)
        return outer

    @staticmethod
    def _is_second(asked: Asked, before: Asked | None) -> bool:
        """Whether it is the second attempt of the fault whose first came just before."""
        return (
            before is not None
            and before.order == PMD_ORDER
            and before.failed
            and LOCAL_FIRST in before.bits
            and Bits.THISNODE not in asked.bits
        )

    def _smaller(self, asked: Asked) -> int:
        if self.waiting and asked.order < PMD_ORDER and PMD_ORDER not in self.standing:
            self.standing[PMD_ORDER] = self.waiting.pop(0)
        same = self.standing.get(asked.order)
        ended = {order for order in self.standing if order < asked.order}
        if same is not None and not (asked.failed and same.refused):
            ended.add(asked.order)
        for order in ended:
            del self.standing[order]
        lead = self._counted(asked, [each for each in self.standing if each > asked.order])
        return self.standing[asked.order].failure if asked.order in self.standing else lead

    def _counted(self, asked: Asked, orders: list[int]) -> int:
        """Let a request count in what stands of some orders; returns the smallest's failure."""
        lead = self.standing[min(orders)].failure if orders else -1
        for order in orders:
            place = self.standing[order]
            if not asked.failed:
                place.pages += 1 << asked.order
                place.refused = False
                if place.is_full(self.kind):
                    del self.standing[order]
        return lead


class Replacements:
    """All tasks' requests."""

    def __init__(self) -> None:
        self.histories: dict[tuple[int, Kind], TaskHistory] = {}
        self.leads: dict[int, int] = defaultdict(lambda: -1)

    def take(self, task: int, kind: Kind, asked: Asked) -> int:
        """Take up the next request; returns the failure that it came in place of, -1 for none."""
        history = self.histories.setdefault((task, kind), TaskHistory(kind))
        lead = history.lead_of(asked)
        if asked.number >= 0:
            self.leads[asked.number] = lead
        return lead
