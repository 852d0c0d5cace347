"""What the page cache asks for under another largest order (S10.14), slow and readable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass
class Request:
    """A recorded request, in order of time."""

    name: int
    task: int
    order: int
    time_ns: int
    kind: str  # "ahead", "write", or "other": of no file
    bits: int
    page: tuple[int, int] | None = None  # file and index
    lead: int | None = None  # the failure it came in place of
    failed: bool = False


@dataclass(frozen=True)
class Kernel:
    """What differs by version."""

    order_kept: bool  # 6.17 and later
    has_order_1: bool  # not 6.1


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


def lowered(request: Request, largest: int) -> list[Ask]:
    """Down: one recorded folio above the largest order."""
    below = [largest] if request.kind == "ahead" else list(range(largest, 0, -1))

    def asks(pages: int, ladder: Sequence[int]) -> list[Ask]:
        if not ladder or ladder[0] == 0:
            return [Ask(0, request.name) for _ in range(pages)]
        size = 1 << ladder[0]
        below = [asks(size, ladder[1:]) for _ in range(pages // size)]
        return [Ask(ladder[0], request.name, each) for each in below]

    return asks(1 << request.order, below)


def could_grow(request: Request) -> bool:
    """Reading ahead of a single page of a known file."""
    is_served = not request.failed and request.lead is None
    is_single = request.kind == "ahead" and request.order == 0
    return is_served and is_single and request.page is not None


def follows(before: Request, request: Request) -> bool:
    """Whether a task reads the next page of the same file."""
    assert before.page and request.page
    is_next = request.page == (before.page[0], before.page[1] + 1)
    return is_next and request.bits == before.bits


def windows(requests: Sequence[Request]) -> list[tuple[list[Request], int | None]]:
    """Windows, each with the number of the one that it goes on from, if any."""
    by_task: dict[int, list[Request]] = {}
    for each in requests:
        if could_grow(each):
            by_task.setdefault(each.task, []).append(each)
    times = sorted(
        after.time_ns - before.time_ns
        for own in by_task.values()
        for before, after in pairwise(own)
        if follows(before, after)
    )
    longest = 4 * times[len(times) // 2] if times else 0
    found: list[tuple[list[Request], int | None]] = []
    for own in by_task.values():
        last: Request | None = None
        for each in own:
            goes_on = last is not None and follows(last, each)
            is_near = last is not None and each.time_ns - last.time_ns <= longest
            if goes_on and is_near and len(found[-1][0]) < 32:
                found[-1][0].append(each)
            else:
                found.append(([each], len(found) - 1 if goes_on else None))
            last = each
    return found


def orders(first: int, pages: int, order: int, kernel: Kernel) -> list[int]:
    """Orders of the folios of a window from an index on."""
    index, end, found = first, first + pages, []
    while index < end:
        own = order
        while index % (1 << own) or index + (1 << own) > end:
            own -= 1
        if own == 1 and not kernel.has_order_1:
            own = 0
        found.append(own)
        index += 1 << own
    return found


def asked(requests: Sequence[Request], largest: int, kernel: Kernel) -> list[tuple[object, ...]]:
    """Outlines of all trees of requests that were served, in the order in which they come."""
    asks: list[Ask] = []
    grown: set[int] = set()
    window_orders: list[int] = []
    found = windows(requests)
    for own, before in found:
        pages, order = len(own), 0 if kernel.order_kept else 2
        if before is not None:
            order = window_orders[before] + 2
        order = min(order, largest, pages.bit_length() - 1)
        if not kernel.order_kept and pages < 4:
            order = 0
        window_orders.append(order)
        place = 0
        assert own[0].page
        for size in orders(own[0].page[1], pages, order, kernel):
            if size:
                inside = own[place : place + (1 << size)]
                grown |= {each.name for each in inside}
                children = [Ask(0, each.name, unit=True) for each in inside]
                asks.append(Ask(size, inside[0].name, children))
            place += 1 << size
    for each in requests:
        if each.failed or each.name in grown:
            continue
        if each.kind != "other" and each.order > largest:
            asks += lowered(each, largest)
        else:
            asks.append(Ask(each.order, each.name, unit=True))
    return [ask.outline() for ask in sorted(asks, key=lambda ask: ask.first)]
