"""What anonymous faults ask for under another set of enabled orders (S10.13), slow and readable.

Trees of requests in place of recorded ones: a request that fails is replaced by its children.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass
class Unit:
    """A recorded request of class ANON that was served."""

    name: int
    task: int
    order: int
    freed: tuple[int, int] | None  # by which CPU, as its how-many-th free; None: in parts or never
    lead: int | None = None  # the failure it came in place of
    left_out: int | None = None  # the same, if that order is not enabled


@dataclass
class Ask:
    """A request to be tried; the children come in its place if it fails."""

    order: int
    first: int  # name of the first unit in it
    children: list[Ask] = field(default_factory=list)
    unit: bool = False  # it is the recorded request itself

    def outline(self) -> tuple[object, ...]:
        """Order, first unit, whether recorded, and the same of its children."""
        return (self.order, self.first, self.unit, tuple(c.outline() for c in self.children))


def enabled_below(mask: int, order: int) -> list[int]:
    """Enabled orders up to one, largest first."""
    return [each for each in range(order, 0, -1) if mask >> each & 1]


def split(unit: Unit, mask: int, touched: int) -> list[Ask]:
    """Down: what is asked for in the range of a unit."""
    orders = enabled_below(mask, unit.order)
    if unit.order == 0 or orders == [unit.order]:
        return [Ask(unit.order, unit.name, unit=True)]
    least = max((1 << unit.order) - touched, 0) if unit.order == 9 else 0

    def asks(left: Sequence[int], begin: int, end: int) -> list[Ask]:
        order = left[0] if left else 0
        found = []
        for place in range(begin, end, 1 << order):
            if place + (1 << order) > least:
                children = asks(left[1:], place, place + (1 << order)) if order else []
                found.append(Ask(order, unit.name, children))
        return found

    return asks(orders, 0, 1 << unit.order)


def runs(units: Sequence[Unit]) -> Iterator[list[Unit]]:
    """Units that lay one behind the other, by task."""
    by_task: dict[int, list[Unit]] = {}
    for unit in units:
        by_task.setdefault(unit.task, []).append(unit)
    for own in by_task.values():
        run: list[Unit] = []
        for unit in own:
            last = run[-1] if run else None
            together = last is not None and unit.lead == last.lead
            together &= last is not None and unit.left_out == last.left_out
            if together and (unit.lead, unit.left_out) != (None, None):
                run.append(unit)
                continue
            follows = (
                together
                and last is not None
                and unit.freed is not None
                and last.freed is not None
                and unit.freed == (last.freed[0], last.freed[1] + 1)
            )
            if not follows and run:
                yield run
                run = []
            run.append(unit)
        if run:
            yield run


def asked(
    units: Sequence[Unit], failures: dict[int, int], mask: int, touched: int
) -> list[tuple[object, ...]]:
    """Outlines of all trees, by their first units; `failures` has orders of enabled failures."""
    found = []
    alone = [u for u in units if u.order == 9 and not mask >> 9 & 1]
    for unit in alone:
        unit.freed = None
    for run in runs(units):
        asks = [(ask, 1 << ask.order) for unit in run for ask in split(unit, mask, touched)]
        limit = 10 if run[0].lead is None else failures[run[0].lead]
        whole = run[0].freed is not None or len(run) > 1
        for order in sorted(enabled_below(mask, 9)):
            if order >= limit or not whole:
                break
            asks = grouped(asks, order)
        found += [ask.outline() for ask, _ in asks]
    return sorted(found, key=lambda outline: outline[1])


def grouped(asks: list[tuple[Ask, int]], order: int) -> list[tuple[Ask, int]]:
    """Groups of an order in a run of requests and their pages."""
    size, place, made, waiting = 1 << order, 0, [], []
    for ask, pages in asks:
        if place % size == 0:
            made += waiting
            waiting = []
        waiting.append((ask, pages))
        place += pages
        held = sum(each for _, each in waiting)
        if held == size and place % size == 0 and len(waiting) > 1:
            made.append((Ask(order, waiting[0][0].first, [each for each, _ in waiting]), size))
            waiting = []
        elif held > size:
            made += waiting
            waiting = []
    return made + waiting
