"""What anonymous faults ask for under another set of enabled orders (S10.13), slow and readable.

Trees of requests in place of recorded ones: a request that fails is replaced by its children.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

HUGE = 9
RANGE = 1 << HUGE


@dataclass
class Unit:
    """A recorded request of class ANON that was served; names are in order of time."""

    name: int
    task: int
    order: int
    freed: tuple[int, int] | None  # by which unmapping, as the task's how-many-th; None: not whole
    lead: int | None = None  # the failure it came in place of
    at: int = -1  # its place among what its task freed; if not whole, that of its neighbour

    @property
    def rank(self) -> int:
        """Its place among what its task freed."""
        assert self.freed is not None
        return self.freed[1]


@dataclass
class Ask:
    """A request to be tried; the children come in its place if it fails."""

    order: int
    first: int  # name of the first unit or failure in it
    kind: str = "made"
    children: list[Ask] = field(default_factory=list)
    offset: int = 0
    apart: bool = False  # it comes in place of something else than the range's own

    def outline(self) -> tuple[object, ...]:
        """Order, first name, kind, and the same of its children."""
        return (
            self.order,
            self.first,
            self.kind,
            tuple(sorted(c.outline() for c in self.children)),
        )


def enabled_below(mask: int, order: int) -> list[int]:
    """Enabled orders up to one, largest first."""
    return [each for each in range(order, 0, -1) if mask >> each & 1]


def split(unit: Unit, mask: int, touched: int, offset: int) -> list[Ask]:
    """Down: what is asked for in the range of a unit."""
    orders = enabled_below(mask, unit.order)
    if unit.order == 0 or orders == [unit.order]:
        return [Ask(unit.order, unit.name, "unit", offset=offset)]
    least = max((1 << unit.order) - touched, 0) if unit.order == HUGE else 0

    def asks(left: Sequence[int], begin: int, end: int) -> list[Ask]:
        order = left[0] if left else 0
        found = []
        for place in range(begin, end, 1 << order):
            if place + (1 << order) > least:
                children = asks(left[1:], place, place + (1 << order)) if order else []
                kind = "made"
                found.append(Ask(order, unit.name, kind, children, offset + place))
        return found

    return asks(orders, 0, 1 << unit.order)


def parts_of(units: list[Unit], differs: Callable[[int], bool]) -> list[list[Unit]]:
    """Units cut in front of each place where something differs."""
    cuts = [0, *(place for place in range(1, len(units)) if differs(place)), len(units)]
    return [units[a:b] for a, b in pairwise(cuts)]


def cut(units: list[Unit]) -> Iterator[tuple[list[Unit], bool]]:
    """Parts in which nothing else was freed between, and whether they are out of order."""
    if len(units) == 1:
        yield units, False
        return
    ranks = [unit.rank for unit in units]
    taken = set(ranks)
    gaps = [rank for rank in range(min(ranks), max(ranks)) if rank not in taken]
    ways: list[Callable[[int], bool]] = [
        lambda at: any(
            min(ranks[at - 1 : at + 1]) < gap < max(ranks[at - 1 : at + 1]) for gap in gaps
        ),
        lambda at: not gaps and min(ranks[:at]) > max(ranks[at:]),
        lambda at: not gaps and max(ranks[:at]) < min(ranks[at:]),
    ]
    for differs in ways:
        parts = parts_of(units, differs)
        if len(parts) > 1:
            for part in parts:
                yield from cut(part)
            return
    yield units, True


def blocks(units: list[Unit]) -> list[tuple[list[Unit], bool]]:
    """Blocks of one task's units, with their members as they were asked for."""
    whole = [unit for unit in units if unit.freed is not None]
    for unit in whole:
        unit.at = unit.rank
    found: list[tuple[list[Unit], bool]] = []
    for unmapped in parts_of(whole, lambda at: whole[at].freed[0] != whole[at - 1].freed[0]):  # type: ignore[index]
        before: list[Unit] | None = None
        for part, mixed in cut(unmapped) if unmapped else ():
            if not mixed and before and before[-1].rank + 1 == part[0].rank:
                before += part
                continue
            found.append((part, mixed))
            before = None if mixed else part
    home: dict[int, list[Unit]] = {unit.name: own for own, _ in found for unit in own}
    turns = (("before", False), ("behind", False), ("before", True))
    for side, makes in turns:
        step = -1 if side == "before" else 1
        for place in range(len(units))[::-step]:
            unit, other = units[place], place + step
            if unit.name in home:
                continue
            if 0 <= other < len(units) and unit.lead is not None:
                near = units[other]
                if near.lead == unit.lead and near.name in home:
                    home[unit.name] = home[near.name]
                    index = [each.name for each in home[near.name]].index(near.name)
                    home[near.name].insert(index + (side == "before"), unit)
                    unit.at = near.at
                    continue
            if makes:
                home[unit.name] = [unit]
                found.append((home[unit.name], False))
    return found


def without_strays(units: list[Unit], found: list[tuple[list[Unit], bool]]) -> None:
    """Take from failures what lies elsewhere than the first whole unit in their place."""
    home = {unit.name: number for number, (own, _) in enumerate(found) for unit in own}
    seen: dict[int, tuple[int, int]] = {}
    for unit in units:
        if unit.lead is None or unit.freed is None:
            continue
        block, rank = seen.setdefault(unit.lead, (home[unit.name], unit.rank))
        if home[unit.name] == block or unit.rank == rank + 1:
            seen[unit.lead] = home[unit.name], unit.rank
        else:
            unit.lead = None


def next_multiple(offset: int, order: int) -> int:
    """The next multiple of 2^order."""
    while offset % (1 << order):
        offset += 1
    return offset


class Asked:
    """Everything that is asked for; `failures` has the orders of recorded failures."""

    def __init__(
        self, units: list[Unit], failures: dict[int, int], mask: int, touched: int
    ) -> None:
        """Build the trees; failures are by no unit of another task."""
        self.failures, self.mask, self.touched = failures, mask, touched
        self.on = {(unit.task, unit.order) for unit in units if unit.order}
        self.on |= {(u.task, failures[u.lead]) for u in units if u.lead is not None}
        self.nodes = {
            name: Ask(order, name, "failure")
            for name, order in failures.items()
            if mask >> order & 1
        }
        self.tops: list[Ask] = []
        self.grouped: set[int] = set()
        self.first: dict[int, int] = {}
        scattered: list[tuple[list[Unit], list[int]]] = []
        for task in sorted({unit.task for unit in units}):
            own = [unit for unit in units if unit.task == task]
            found = blocks(own)
            without_strays(own, found)
            for unit in own:
                if unit.lead is not None:
                    self.first.setdefault(unit.lead, unit.name)
            for members, mixed in found:
                scattered += self.pieces(own, members, mixed)
        known = [part for part in scattered if part[1]]
        pages = sum(1 << unit.order for part, _ in known for unit in part)
        mapped = sum(RANGE * len(refused) for _, refused in known)
        for part, refused in scattered:
            self.spread(part, refused, pages or 1, mapped or 1)
        self.tops += [node for name, node in self.nodes.items() if name not in self.grouped]

    def refused(self, unit: Unit) -> int | None:
        """The refused huge page that a unit came in place of."""
        return unit.lead if unit.lead is not None and self.failures[unit.lead] == HUGE else None

    def pieces(
        self, task: list[Unit], members: list[Unit], mixed: bool
    ) -> list[tuple[list[Unit], list[int]]]:
        """Cut a block; returns parts out of order, with what was refused in them."""
        if mixed:
            members = sorted(members, key=lambda unit: (unit.at, unit.name))

        def kind(unit: Unit) -> object:
            if unit.order == HUGE:
                return ("huge", unit.name)
            return None if mixed else self.refused(unit)

        parts = parts_of(members, lambda at: kind(members[at]) != kind(members[at - 1]))
        found = []
        for number, part in enumerate(parts):
            label = kind(part[0])
            if label is None and mixed:
                begins = [u.name for u in part]
                earlier = {self.refused(u) for u in task if u.name < min(begins)}
                leads = [self.refused(u) for u in part]
                new = [each for each in leads if each is not None and each not in earlier]
                found.append((part, list(dict.fromkeys(new))))
                continue
            offsets, end = self.in_order(part)
            if label is None:
                base = 0 if number + 1 == len(parts) else -end % RANGE
                self.range_of(part, [base + each for each in offsets], None, 0)
            else:
                refused = label if isinstance(label, int) else None
                self.range_of(part, offsets, refused, RANGE)
        return found

    def in_order(self, part: list[Unit]) -> tuple[list[int], int]:
        """Offsets of units one behind the other, and where they end."""
        offsets, end, before, inner = [], 0, None, 0
        for unit in part:
            lead = unit.lead if unit.lead in self.nodes else None
            if lead != before:
                end = next_multiple(end, inner)
                inner = 0 if lead is None or self.failures[lead] == HUGE else self.failures[lead]
                end, before = next_multiple(end, inner), lead
            offsets.append(next_multiple(end, unit.order))
            end = offsets[-1] + (1 << unit.order)
        return offsets, next_multiple(end, inner)

    def spread(self, part: list[Unit], refused: list[int], touched: int, mapped: int) -> None:
        """Units touched out of order."""
        pages = sum(1 << unit.order for unit in part)
        if refused:
            extent = next_multiple(max(pages, RANGE * len(refused)), HUGE)
        else:
            extent = pages
            if all(unit.order == 0 for unit in part):
                extent = max(pages, pages * mapped // touched)
            extent = min(
                next(1 << n for n in range(40) if 1 << n >= extent), next_multiple(extent, HUGE)
            )
        offsets, before = [], 0
        for unit in part:
            offsets.append(before * extent // pages // (1 << unit.order) * (1 << unit.order))
            before += 1 << unit.order
        if not refused:
            self.range_of(part, offsets, None, extent)
            return
        ranges: dict[int, list[tuple[int, int, Unit]]] = {each: [] for each in refused}
        for number, (unit, offset) in enumerate(zip(part, offsets, strict=True)):
            own = refused[min(offset // RANGE, len(refused) - 1)]
            if own > unit.name:
                earlier = [each for each in refused if each < unit.name]
                own = max(earlier) if earlier else refused[0]
            unit.lead = own
            ranges[own].append((offset % RANGE, number, unit))
        for lead, members in ranges.items():
            members.sort(key=lambda each: each[:2])
            self.range_of([u for *_, u in members], [o for o, *_ in members], lead, RANGE)

    def range_of(
        self, part: list[Unit], offsets: list[int], refused: int | None, mapped: int
    ) -> None:
        """Up: group what lies in one range."""
        if not part:
            return
        task = part[0].task
        lead = refused if refused in self.nodes else None
        asks: list[Ask] = []
        inner: dict[int, list[Ask]] = {}
        for unit, offset in zip(part, offsets, strict=True):
            own = split(unit, self.mask, self.touched, offset)
            nearest = unit.lead if unit.lead in self.nodes else None
            if nearest == lead:
                asks += own
            else:
                assert nearest is not None
                inner.setdefault(nearest, []).extend(own)
        for failure, own in inner.items():
            order = self.failures[failure]
            begin = own[0].offset // (1 << order) * (1 << order)
            own = self.groups(task, own, order - 1, begin + (1 << order))
            node = self.nodes[failure]
            if lead is None and self.first[failure] in {unit.name for unit in part}:
                node.offset = begin
                node.children += own
                asks.append(node)
                self.grouped.add(failure)
            else:
                node.children += own
                for ask in own:
                    ask.apart = True
                asks += own
        asks.sort(key=lambda ask: ask.offset)
        most = HUGE if lead is None else self.failures[lead] - 1
        asks = [ask for ask in self.groups(task, asks, most, mapped) if not ask.apart]
        if lead is None:
            self.tops += asks
        else:
            self.nodes[lead].children += asks

    def groups(self, task: int, asks: list[Ask], most: int, mapped: int) -> list[Ask]:
        """Requests with those of larger orders in front of them."""
        for order in sorted(enabled_below(self.mask, most)):
            if (task, order) in self.on:
                continue
            made: list[Ask] = []
            for begin in sorted({ask.offset >> order << order for ask in asks}):
                own = [ask for ask in asks if ask.offset >> order << order == begin]
                fills = sum(1 << ask.order for ask in own) == 1 << order
                fits = all(ask.order < order and not ask.apart for ask in own)
                if fits and (fills or begin + (1 << order) <= mapped):
                    made.append(Ask(order, min(a.first for a in own), "made", own, begin))
                else:
                    made += own
            asks = made
        return asks
