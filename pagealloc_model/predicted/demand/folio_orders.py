"""Demand of folios of anonymous faults under other orders (S10.13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.state import thp_reclaim_bits
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.policy import Policy
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.predicted.demand.mappings import Mappings, last_frees

PMD_PAGES = 1 << pr.THP_ORDER
_BASE = 16
"""Places in the order of events at one row, from one request of a split unit to the next."""
_RECLAIM = at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM


def with_anon_orders(
    demand: Demand, tasks: np.ndarray, policy: Policy, elastic: ElasticAssumptions
) -> Demand:
    """The demand of an elastic replay with faults for `policy.huge_anon_orders`.

    Args:
        demand: as recorded.
        tasks: int64, the thread of each event.
        policy: as in effect.
        elastic: whose `base_pages_per_huge` and `thp_madvised` count.
    """
    mask = policy.huge_anon_orders or 0
    is_anon = _are_of(demand.events, pr.ANON)
    is_disabled = np.array([not mask >> order & 1 for order in range(16)])
    left = _LeftOut.of(demand, is_anon, is_disabled)
    events, leads = demand.events, left.leads
    units = np.flatnonzero((events["operation"] == at.ALLOC) & is_anon)
    units = units[np.argsort(tasks[units], kind="stable")]
    mappings = Mappings(demand, tasks, units)
    leads[mappings.number[mappings.strayed]] = -1
    asked = is_anon & (events["order"] > 0) & (events["operation"] != at.FREE)
    bits = _folio_bits(policy, elastic, events["bits"][asked])
    pairs = np.unique(np.stack([tasks[asked], events["order"][asked].astype(np.int64)]), axis=1)
    was_on = frozenset(zip(*pairs.tolist(), strict=True))
    made = _Made(demand, leads, mask, bits, elastic.base_pages_per_huge)
    faults = _Faults(made, mappings, left.is_dropped, was_on)
    faults.add_all()
    counts = {
        "faults_split": len(made.cut),
        "groups_of_faults": made.groups,
        "runs_taken_to_begin_aligned": faults.runs,
        "ranges_touched_out_of_order": faults.out_of_order,
    }
    return made.demand(left, counts)


def _are_of(events: np.ndarray, kind: int) -> np.ndarray:
    """Mask of events of known objects of a class."""
    mask = (events["bits"] >> np.uint32(pr.CLASS_SHIFT) & np.uint32(3)) == kind
    return mask & (events["object"] >= 0)


@dataclass(frozen=True)
class _LeftOut:
    """Recorded failures of orders that are not asked for: rows, their objects, leads without."""

    rows: np.ndarray
    is_dropped: np.ndarray
    leads: np.ndarray

    @classmethod
    def of(cls, demand: Demand, is_kind: np.ndarray, is_disabled: np.ndarray) -> _LeftOut:
        """Those among events of a kind, by which orders are disabled."""
        events = demand.events
        is_failure = (events["operation"] == at.RECORDED_FAILURE) & is_kind & (events["order"] > 0)
        rows = np.flatnonzero(is_failure & is_disabled[events["order"].astype(np.int64)])
        leads = np.full(len(demand.objects), -1, np.int32)
        leads[: len(demand.leads)] = demand.leads
        is_dropped = np.zeros(len(demand.objects), bool)
        is_dropped[events["object"][rows]] = True
        while (stale := (leads >= 0) & is_dropped[leads]).any():
            leads[stale] = leads[leads[stale]]
        return cls(rows, is_dropped, leads)


def _folio_bits(policy: Policy, elastic: ElasticAssumptions, recorded: np.ndarray) -> int:
    """Bits of requests above order 0: by policy, else those that most recorded ones have."""
    if policy.thp_defrag:
        return at.GFP_NOMEMALLOC | thp_reclaim_bits(policy.thp_defrag, elastic.thp_madvised)
    recorded = recorded[recorded & np.uint32(at.GFP_NOMEMALLOC) != 0]
    if not len(recorded):
        return at.GFP_NOMEMALLOC
    found, counts = np.unique(recorded & np.uint32(_RECLAIM | pr.GFP_NORETRY), return_counts=True)
    dropped = pr.GFP_NORETRY if elastic.thp_madvised else 0
    return at.GFP_NOMEMALLOC | int(found[counts.argmax()]) & ~dropped


def _aligned(offset: int, order: int) -> int:
    """The next multiple of 2^order."""
    return -(-offset >> order) << order


@dataclass
class _Ask:
    """A request at the top: its object, order, row and place there, the row of its free, offset."""

    number: int
    order: int
    row: int
    place: int
    freed: int
    offset: int = 0


@dataclass
class _Made:
    """Requests made anew, as columns; those of folios have `bits`."""

    old: Demand
    leads: np.ndarray
    mask: int
    bits: int
    touched: int
    orders: list[int] = field(default_factory=list)
    new_leads: list[int] = field(default_factory=list)
    asks: list[tuple[int, int, int]] = field(default_factory=list)
    frees: list[tuple[int, int]] = field(default_factory=list)
    cut: list[int] = field(default_factory=list)
    relinked: dict[int, int] = field(default_factory=dict)
    groups: int = 0

    def __post_init__(self) -> None:
        """Look up when objects are freed."""
        self.last = last_frees(self.old)[0]

    def orders_up_to(self, order: int) -> list[int]:
        """Enabled orders up to one, largest first."""
        return [each for each in range(order, 0, -1) if self.mask >> each & 1]

    def _new(self, order: int, lead: int, row: int, place: int, freed: int) -> int:
        number = len(self.old.objects) + len(self.orders)
        self.orders.append(order)
        self.new_leads.append(lead)
        self.asks.append((row, place, number))
        if freed >= 0:
            self.frees.append((freed, number))
        return number

    def split(self, row: int, orders: list[int], touched: int) -> list[_Ask]:
        """Ask for a unit anew, by orders in turn; of a huge page for the last pages touched."""
        event = self.old.events[row]
        number, order = int(event["object"]), int(event["order"])
        freed = int(self.last[number])
        self.cut.append(row)
        pages = 1 << order
        least = max(pages - touched, 0) if order == pr.THP_ORDER else 0
        found: list[_Ask] = []
        lead = int(self.leads[number])

        def ask(left: Sequence[int], begin: int, end: int, lead: int, depth: int) -> None:
            own = left[0] if left else 0
            for offset in range(begin, end, 1 << own):
                if offset + (1 << own) <= least:
                    continue
                place = (offset * (at.ORDERS + 1) + depth + at.ORDERS) * _BASE
                made = self._new(own, lead, row, place, freed)
                if depth == 0:
                    found.append(_Ask(made, own, row, place, freed, offset))
                if own:
                    ask(left[1:], offset, offset + (1 << own), made, depth + 1)

        ask(orders, 0, pages, lead, 0)
        return found

    def group(self, asks: Sequence[_Ask], order: int, lead: int) -> _Ask:
        """Ask for an order in front of the first of some requests, which it stands for."""
        first = min(asks, key=lambda ask: (ask.row, ask.place))
        ends = [one.freed for one in asks]
        freed = max(ends) if min(ends) >= 0 else -1
        number = self._new(order, lead, first.row, first.place - 1, freed)
        for one in asks:
            self._link(one.number, number)
        self.groups += 1
        begin = asks[0].offset >> order << order
        return _Ask(number, order, first.row, first.place - 1, freed, begin)

    def _link(self, number: int, lead: int) -> None:
        known = len(self.old.objects)
        if number < known:
            self.relinked[number] = lead
        else:
            self.new_leads[number - known] = lead

    def lead(self, number: int) -> int:
        """What a request comes in place of, -1 for nothing."""
        known = len(self.old.objects)
        own = self.leads[number] if number < known else self.new_leads[number - known]
        return int(self.relinked.get(number, own))

    def are_cut(self) -> np.ndarray:
        """Mask of the recorded objects that are asked for anew."""
        mask = np.zeros(len(self.old.objects), bool)
        mask[self.old.events["object"][self.cut]] = True
        return mask

    def all_leads(self) -> np.ndarray:
        """int32, by object, those made too."""
        leads = np.concatenate([self.leads, np.array(self.new_leads, np.int32)])
        leads[list(self.relinked)] = list(self.relinked.values())
        return leads

    def demand(self, left_out: _LeftOut, counts: dict[str, int]) -> Demand:
        """The old demand with what was made in it."""
        events, known = self.old.events, len(self.old.objects)
        stays = np.ones(len(events), bool)
        stays[left_out.rows] = stays[self.cut] = False
        is_gone = np.isin(events["operation"], (at.FREE, at.USE)) & (events["object"] >= 0)
        stays[is_gone] &= ~(self.are_cut() | left_out.is_dropped)[events["object"][is_gone]]
        orders = np.array(self.orders, np.int8)
        asks = np.array(self.asks, np.int64).reshape(-1, 3)
        requests = events[asks[:, 0]].copy()
        requests["object"], requests["offset"] = asks[:, 2], 0
        requests["order"] = orders[asks[:, 2] - known]
        is_folio = requests["order"] > 0
        requests["operation"] = np.where(is_folio, at.RECORDED_FAILURE, at.ALLOC)
        others = np.uint32(at.GFP_NOMEMALLOC | pr.GFP_NORETRY | at.GFP_THISNODE | _RECLAIM)
        asked_with = np.where(is_folio, np.uint32(self.bits), np.uint32(_RECLAIM))
        requests["bits"] = (requests["bits"] & ~others) | asked_with
        freed = np.array(self.frees, np.int64).reshape(-1, 2)
        frees = events[freed[:, 0]].copy()
        frees["object"], frees["offset"] = freed[:, 1], 0
        frees["order"] = orders[freed[:, 1] - known]
        left = np.flatnonzero(stays)
        together = np.concatenate([requests, events[left], frees])
        last = np.int64(1) << 40
        row = np.concatenate([asks[:, 0], left, freed[:, 0]])
        place = np.concatenate(
            [asks[:, 1], np.full(len(left), at.ORDERS * _BASE), last + np.arange(len(freed))]
        )
        objects = np.zeros(len(orders), self.old.objects.dtype)
        objects["order"], objects["kind"], objects["pfn"] = orders, resolved.TRIED, -1
        counts["failures_left_out"] = len(left_out.rows)
        before = self.old.by_orders
        return replace(
            self.old,
            recorded=self.old.recorded if before else events,
            events=together[np.lexsort((place, row))],
            objects=np.concatenate([self.old.objects, objects]),
            leads=self.all_leads(),
            by_orders={**before, **{name: before.get(name, 0) + n for name, n in counts.items()}},
        )


@dataclass
class _Faults:
    """Requests of anonymous faults, by mapping."""

    made: _Made
    mappings: Mappings
    is_dropped: np.ndarray
    was_on: frozenset[tuple[int, int]]
    runs: int = 0
    out_of_order: int = 0
    task: int = -1

    def __post_init__(self) -> None:
        """Look up orders of units, rows of failures and the huge page that each unit replaced."""
        events, lead = self.made.old.events, self.mappings.lead
        self.order = events["order"][self.mappings.units].astype(np.int64)
        failed = (events["operation"] == at.RECORDED_FAILURE) & (events["object"] >= 0)
        rows = np.flatnonzero(failed)
        self.failed_at = dict(zip(events["object"][rows].tolist(), rows.tolist(), strict=True))
        near, places = np.unique(self.made.leads[self.mappings.number], return_index=True)
        self.begun = dict(zip(near.tolist(), places.tolist(), strict=True))
        outer = lead.copy()
        for _ in range(at.ORDERS):
            above = np.where(outer >= 0, self.mappings.recorded[outer], -1)
            outer = np.where(above >= 0, above, outer)
        is_huge = self.made.old.objects["order"][outer] == pr.THP_ORDER
        self.huge = np.where((outer >= 0) & is_huge, outer, -1)

    def add_all(self) -> None:
        """Take up every mapping: between huge pages, served or refused, and in their ranges."""
        scattered: list[tuple[np.ndarray, list[int]]] = []
        for places, mixed in self.mappings.blocks():
            key = np.where(self.order[places] == pr.THP_ORDER, -2 - places, self.huge[places])
            if mixed:
                key[key >= 0] = -1
            cuts = np.flatnonzero(np.diff(key)) + 1
            for place, part in zip([0, *cuts.tolist()], np.split(places, cuts), strict=True):
                failure = int(key[place])
                dense, end = self._dense(part)
                if failure != -1:
                    lead = -1 if failure < 0 or self.is_dropped[failure] else failure
                    self._range(part, dense, lead, PMD_PAGES)
                elif mixed:
                    huge = self.huge[part]
                    huge = huge[(huge >= 0) & ~np.isin(huge, self.huge[: part.min()])]
                    scattered.append((part, list(dict.fromkeys(huge.tolist()))))
                else:
                    is_last = place + len(part) == len(places)
                    self._range(part, dense + (0 if is_last else -end % PMD_PAGES), -1, 0)
        known = [
            (int((1 << self.order[part]).sum()), len(found) * PMD_PAGES)
            for part, found in scattered
            if found
        ]
        share = [max(sum(each), 1) for each in zip(*known, strict=True)] or [1, 1]
        for part, found in scattered:
            self._scattered(part, found, share)

    def _dense(self, part: np.ndarray) -> tuple[np.ndarray, int]:
        """Offsets of units one behind the other, and their end."""
        found, end, inner, before = [], 0, 0, -1
        for place in part.tolist():
            failure, order = (
                int(self.made.leads[self.mappings.number[place]]),
                int(self.order[place]),
            )
            if failure != before:
                end, before = _aligned(end, inner), failure
                inner = int(self.made.old.objects["order"][failure]) % pr.THP_ORDER * (failure >= 0)
                end = _aligned(end, inner)
            found.append(_aligned(end, order))
            end = found[-1] + (1 << order)
        return np.array(found, np.int64), _aligned(end, inner)

    def _scattered(self, part: np.ndarray, found: Sequence[int], share: Sequence[int]) -> None:
        """Units touched out of order, spread evenly over their ranges."""
        self.out_of_order += 1
        size = 1 << self.order[part]
        extent = pages = int(size.sum())
        if found:
            extent = _aligned(max(pages, len(found) * PMD_PAGES), pr.THP_ORDER)
        else:
            if pages == len(part):
                extent = max(pages, pages * share[1] // share[0])
            extent = min(1 << (extent - 1).bit_length(), _aligned(extent, pr.THP_ORDER))
        offsets = (np.cumsum(size) - size) * extent // pages >> self.order[part] << self.order[part]
        if not found:
            self._range(part, offsets, -1, extent)
            return
        begun = np.array([self.failed_at[each] for each in found])
        slot = np.minimum(offsets // PMD_PAGES, len(found) - 1)
        rows = self.mappings.units[part]
        early = begun[slot] > rows
        slot[early] = [int(np.argmax(np.where(begun < row, begun, -1))) for row in rows[early]]
        for place, failure in enumerate(found):
            own = slot == place
            if not own.any():
                continue
            lead = -1 if self.is_dropped[failure] else failure
            self.made.leads[self.mappings.number[part[own]]] = lead
            order = np.argsort(offsets[own] % PMD_PAGES, kind="stable")
            self._range(part[own][order], (offsets[own] % PMD_PAGES)[order], lead, PMD_PAGES)

    def _unit(self, row: int, begin: int) -> list[_Ask]:
        event, made = self.made.old.events[row], self.made
        number, order = int(event["object"]), int(event["order"])
        orders = made.orders_up_to(order)
        if order == 0 or orders == [order]:
            last = int(made.last[number])
            return [_Ask(number, order, row, at.ORDERS * _BASE, last, begin)]
        return [
            replace(ask, offset=begin + ask.offset) for ask in made.split(row, orders, made.touched)
        ]

    def _range(self, part: np.ndarray, offsets: np.ndarray, lead: int, known: int) -> None:
        """Group the units of a range, by address, of which so many pages are surely mapped."""
        self.task = int(self.mappings.task[part[0]])
        asks: list[_Ask] = []
        inner: dict[int, list[_Ask]] = {}
        for place, offset in zip(part.tolist(), offsets.tolist(), strict=True):
            own = self._unit(int(self.mappings.units[place]), offset)
            failure = int(self.made.leads[self.mappings.number[place]])
            (asks if failure == lead else inner.setdefault(failure, [])).extend(own)
        for failure, own in inner.items():
            order = int(self.made.old.objects["order"][failure])
            begin = own[0].offset >> order << order
            own = self._grouped_up_to(own, order - 1, failure, begin + (1 << order))
            row, ends = self.failed_at.get(failure, -1), [each.freed for each in own]
            is_here = self.begun.get(failure, -1) in part
            if row >= 0 and is_here and self.made.leads[failure] == lead:
                freed = max(ends) if min(ends) >= 0 else -1
                asks.append(_Ask(failure, order, row, at.ORDERS * _BASE, freed, begin))
            else:
                asks += own
        asks.sort(key=lambda ask: ask.offset)
        before, limit = (
            self.made.groups,
            int(self.made.old.objects["order"][lead]) if lead >= 0 else at.ORDERS,
        )
        self._grouped_up_to(asks, min(limit - 1, pr.THP_ORDER), lead, known)
        self.runs += self.made.groups > before and not known

    def _grouped_up_to(self, asks: list[_Ask], most: int, lead: int, known: int) -> list[_Ask]:
        for order in reversed(self.made.orders_up_to(most)):
            if (self.task, order) in self.was_on:
                continue
            asks = self._grouped(asks, order, lead, known)
        return asks

    def _grouped(self, asks: list[_Ask], order: int, lead: int, known: int) -> list[_Ask]:
        made: list[_Ask] = []
        for key, members in groupby(asks, lambda ask: ask.offset >> order):
            own = list(members)
            is_whole = sum(1 << each.order for each in own) == 1 << order
            is_whole |= key + 1 << order <= known
            if not is_whole or any(
                each.order >= order or self.made.lead(each.number) != lead for each in own
            ):
                made += own
                continue
            made.append(self.made.group(own, order, lead))
        return made
