"""Demand of anonymous faults under another set of enabled orders (S10.13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.state import thp_reclaim_bits
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.policy import Policy
from pagealloc_model.predicted.demand.demand import Demand

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
    events, mask = demand.events, policy.huge_anon_orders or 0
    is_anon = (events["bits"] >> np.uint32(pr.CLASS_SHIFT) & np.uint32(3)) == pr.ANON
    is_anon &= (events["object"] >= 0) & (events["bits"] & np.uint32(at.IN_INTERRUPT) == 0)
    is_failure = (events["operation"] == at.RECORDED_FAILURE) & is_anon & (events["order"] > 0)
    is_disabled = np.zeros(16, bool)
    is_disabled[[order for order in range(16) if not mask >> order & 1]] = True
    dropped = np.flatnonzero(is_failure & is_disabled[events["order"].astype(np.int64)])
    leads = np.full(len(demand.objects), -1, np.int32)
    leads[: len(demand.leads)] = demand.leads
    is_dropped = np.zeros(len(demand.objects), bool)
    is_dropped[events["object"][dropped]] = True
    while (stale := (leads >= 0) & is_dropped[leads]).any():
        leads[stale] = leads[leads[stale]]
    units = np.flatnonzero((events["operation"] == at.ALLOC) & is_anon)
    units = units[np.argsort(tasks[units], kind="stable")]
    asked = is_anon & (events["order"] > 0) & (events["operation"] != at.FREE)
    bits = _folio_bits(policy, elastic, events["bits"][asked])
    made = _Made(demand, leads, mask, bits, elastic.base_pages_per_huge)
    for begin, end in pairwise(_run_edges(demand, tasks, units, leads, mask)):
        made.add_run(units[begin:end], whole=end - begin > 1)
    return made.demand(dropped, is_dropped)


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


def _frees(demand: Demand) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By object: its last free's row, -1 if some of it is never freed; whether whole; its rank.

    Ranks are the free's number among those of its CPU, the CPU in the upper bits.
    """
    events, objects = demand.events, demand.objects
    by_reclaim = events["bits"] & np.uint32(pr.FREED_BY_RECLAIM) == np.uint32(pr.FREED_BY_RECLAIM)
    rows = np.flatnonzero((events["operation"] == at.FREE) & (events["object"] >= 0) & ~by_reclaim)
    number = events["object"][rows]
    pages = np.bincount(number, 1 << events["order"][rows].astype(np.int64), len(objects))
    last, rank = (np.full(len(objects), -1, np.int64) for _ in range(2))
    last[number] = rows
    last[pages < 1 << objects["order"].astype(np.int64)] = -1
    whole = (np.bincount(number, minlength=len(objects)) == 1) & (last >= 0)
    by_cpu = np.argsort(events["cpu"][rows], kind="stable")
    cpu = events["cpu"][rows][by_cpu].astype(np.int64)
    rank[number[by_cpu]] = (cpu << 40) + np.arange(len(rows)) - np.searchsorted(cpu, cpu)
    return last, whole, rank


def _run_edges(
    demand: Demand, tasks: np.ndarray, units: np.ndarray, leads: np.ndarray, mask: int
) -> list[int]:
    """Where runs begin among units in order of task and time, and where the last one ends."""
    _, whole, rank = _frees(demand)
    number = demand.events["object"][units]
    joins = whole[number]
    joins &= (demand.events["order"][units] != pr.THP_ORDER) | bool(mask >> pr.THP_ORDER & 1)
    follows = joins[1:] & joins[:-1] & (rank[number[1:]] == rank[number[:-1]] + 1)
    recorded = np.full(len(demand.objects), -1, np.int32)
    recorded[: len(demand.leads)] = demand.leads
    before = recorded[number]
    follows |= before[1:] >= 0
    follows &= (before[1:] == before[:-1]) & (leads[number[1:]] == leads[number[:-1]])
    follows &= tasks[units][1:] == tasks[units][:-1]
    return [0, *(np.flatnonzero(~follows) + 1).tolist(), len(units)] if len(units) else [0]


@dataclass
class _Ask:
    """A request at the top: its object, order, row and place there, and the row of its free."""

    number: int
    order: int
    row: int
    place: int
    freed: int


@dataclass
class _Made:
    """Requests made anew, as columns."""

    old: Demand
    leads: np.ndarray
    mask: int
    bits: int
    touched: int
    orders: list[int] = field(default_factory=list)
    new_leads: list[int] = field(default_factory=list)
    asks: list[tuple[int, int, int]] = field(default_factory=list)
    frees: list[tuple[int, int]] = field(default_factory=list)
    split: list[int] = field(default_factory=list)
    relinked: dict[int, int] = field(default_factory=dict)
    groups: int = 0
    runs: int = 0

    def __post_init__(self) -> None:
        """Look up when objects are freed."""
        self.last = _frees(self.old)[0]

    def orders_up_to(self, order: int) -> list[int]:
        """Enabled orders up to one, largest first."""
        return [each for each in range(order, 0, -1) if self.mask >> each & 1]

    def add_run(self, units: np.ndarray, *, whole: bool) -> None:
        """Take up the units of a run, which are rows of events."""
        events = self.old.events
        asks = [ask for row in units.tolist() for ask in self._unit(row)]
        lead = int(self.leads[events["object"][units[0]]])
        limit = int(self.old.objects["order"][lead]) if lead >= 0 else at.ORDERS
        if not whole and len(asks) < 2:
            return
        before = self.groups
        for order in reversed(self.orders_up_to(min(limit - 1, pr.THP_ORDER))):
            asks = self._grouped(asks, order, lead)
        self.runs += self.groups > before

    def _new(self, order: int, lead: int, row: int, place: int, freed: int) -> int:
        number = len(self.old.objects) + len(self.orders)
        self.orders.append(order)
        self.new_leads.append(lead)
        self.asks.append((row, place, number))
        if freed >= 0:
            self.frees.append((freed, number))
        return number

    def _unit(self, row: int) -> list[_Ask]:
        event = self.old.events[row]
        number, order = int(event["object"]), int(event["order"])
        freed, orders = int(self.last[number]), self.orders_up_to(order)
        if order == 0 or orders == [order]:
            return [_Ask(number, order, row, at.ORDERS * _BASE, freed)]
        self.split.append(row)
        pages = 1 << order
        least = max(pages - self.touched, 0) if order == pr.THP_ORDER else 0
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
                    found.append(_Ask(made, own, row, place, freed))
                if own:
                    ask(left[1:], offset, offset + (1 << own), made, depth + 1)

        ask(orders, 0, pages, lead, 0)
        return found

    def _grouped(self, asks: list[_Ask], order: int, lead: int) -> list[_Ask]:
        size, place = 1 << order, 0
        made: list[_Ask] = []
        waiting: list[_Ask] = []
        held = 0
        for each in asks:
            if place % size == 0:
                made += waiting
                waiting, held = [], 0
            waiting.append(each)
            place += 1 << each.order
            held += 1 << each.order
            if held == size and place % size == 0 and len(waiting) > 1:
                first = waiting[0]
                ends = [one.freed for one in waiting]
                freed = max(ends) if min(ends) >= 0 else -1
                own_place = first.place - 1
                number = self._new(order, lead, first.row, own_place, freed)
                for one in waiting:
                    self._link(one.number, number)
                made.append(_Ask(number, order, first.row, own_place, freed))
                self.groups += 1
                waiting, held = [], 0
            elif held > size:
                made += waiting
                waiting, held = [], 0
        return made + waiting

    def _link(self, number: int, lead: int) -> None:
        known = len(self.old.objects)
        if number < known:
            self.relinked[number] = lead
        else:
            self.new_leads[number - known] = lead

    def demand(self, dropped: np.ndarray, is_dropped: np.ndarray) -> Demand:
        """The old demand with what was made in it."""
        events, known = self.old.events, len(self.old.objects)
        is_split = np.zeros(known, bool)
        is_split[events["object"][self.split]] = True
        stays = np.ones(len(events), bool)
        stays[dropped] = stays[self.split] = False
        is_free = (events["operation"] == at.FREE) & (events["object"] >= 0)
        stays[is_free] &= ~(is_split | is_dropped)[events["object"][is_free]]
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
        leads = np.concatenate([self.leads, np.array(self.new_leads, np.int32)])
        if self.relinked:
            leads[list(self.relinked)] = list(self.relinked.values())
        return replace(
            self.old,
            recorded=events,
            events=together[np.lexsort((place, row))],
            objects=np.concatenate([self.old.objects, objects]),
            leads=leads.astype(np.int32),
            by_orders={
                "faults_split": len(self.split),
                "groups_of_faults": self.groups,
                "runs_taken_to_begin_aligned": self.runs,
                "failures_left_out": len(dropped),
            },
        )
