"""Demand of folios under other orders: of anonymous faults (S10.13), of the page cache (S10.14)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.state import thp_reclaim_bits
from pagealloc_model.base.errors import PolicyError
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy
from pagealloc_model.predicted.demand.demand import Demand

_BASE = 16
"""Places in the order of events at one row, from one request of a split unit to the next."""
_RECLAIM = at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM
_WINDOW = 32
"""Pages of a window of reading ahead, at most: 128 KiB (S10.14)."""


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
    asked = is_anon & (events["order"] > 0) & (events["operation"] != at.FREE)
    bits = _folio_bits(policy, elastic, events["bits"][asked])
    made = _Made(demand, leads, mask, bits, elastic.base_pages_per_huge)
    for begin, end in pairwise(_run_edges(demand, tasks, units, leads, mask)):
        made.add_run(units[begin:end], whole=end - begin > 1)
    counts = {
        "faults_split": len(made.cut),
        "groups_of_faults": made.groups,
        "runs_taken_to_begin_aligned": made.runs,
    }
    return made.demand(left, counts)


def with_page_cache_orders(
    demand: Demand,
    tasks: np.ndarray,
    largest: int,
    rules: KernelRules,
    places: tuple[np.ndarray, np.ndarray],
) -> Demand:
    """The demand of an elastic replay with page-cache requests up to an order (S10.14).

    Args:
        demand: as recorded.
        tasks: int64, the thread of each event.
        largest: order, `policy.page_cache_max_order`.
        rules: the kernel's.
        places: by object, its file, -1 where unknown, and its index there.

    Raises:
        PolicyError: nothing would change, as no event tells what could be larger.
    """
    events, is_file = demand.events, _are_of(demand.events, pr.FILE)
    left = _LeftOut.of(demand, is_file, np.arange(16) > largest)
    made = _Made(demand, left.leads, 0, None, 1 << pr.THP_ORDER)
    is_served = is_file & (events["operation"] == at.ALLOC)
    is_write = (events["bits"] & np.uint32(at.GFP_WRITE)) != 0
    for row in np.flatnonzero(is_served & (events["order"] > largest)).tolist():
        below = list(range(largest, 0, -1)) if is_write[row] else [largest] * (largest > 0)
        made.split(row, below, 1 << pr.THP_ORDER)
    is_ahead = is_served & ~is_write & (events["bits"] & np.uint32(pr.GFP_NORETRY) != 0)
    is_ahead &= (events["order"] == 0) & (left.leads[events["object"]] < 0)
    rows = np.flatnonzero(is_ahead & (places[0][events["object"]] >= 0))
    counts = {"reads_left": int(is_ahead.sum() - len(rows)) if largest else 0}
    if largest and (places[0] < 0).all() and not (is_file & (events["order"] > largest)).any():
        raise PolicyError(
            f"policy page_cache_max_order={largest}: no request is above it, and only filemap "
            "events tell what could be larger; record with --events 'default,filemap:mm_filemap_*'"
        )
    if largest:
        rows = rows[np.argsort(tasks[rows], kind="stable")]
        counts |= _add_windows(made, rows, tasks[rows], largest, rules, places)
    is_cut = made.are_cut() | (left.leads != made.all_leads()[: len(left.leads)])
    is_use = (events["operation"] == at.USE) & (events["object"] >= 0)
    counts |= {
        "page_cache_split": len(made.cut),
        "page_cache_joined": made.groups,
        "writes_left": int((is_served & is_write & (events["order"] < largest)).sum()),
        "uses_left_out": int(is_cut[events["object"][is_use]].sum()),
    }
    return made.demand(left, counts)


def _add_windows(
    made: _Made,
    rows: np.ndarray,
    tasks: np.ndarray,
    largest: int,
    rules: KernelRules,
    places: tuple[np.ndarray, np.ndarray],
) -> dict[str, int]:
    """Cut windows of single pages, by task, into folios; returns counts of what was assumed."""
    asked = made.old.events[rows]
    file, index = (of_object[asked["object"]] for of_object in places)
    gaps = np.diff(asked["time_ns"])
    adjacent = (np.diff(file) == 0) & (np.diff(index) == 1) & (np.diff(tasks) == 0)
    adjacent &= asked["bits"][1:] == asked["bits"][:-1]
    times = np.sort(gaps[adjacent])
    follows = adjacent & (gaps <= 4 * times[len(times) // 2]) if len(times) else adjacent
    edges = [0, *(np.flatnonzero(~follows) + 1).tolist(), len(rows)] if len(rows) else [0]
    counts = dict.fromkeys(("windows", "windows_cut"), 0)
    order, first = 0, 0 if rules.readahead_order_kept else 2
    for run, run_end in pairwise(edges):
        counts["windows_cut"] += (run_end - run - 1) // _WINDOW
        for begin in range(run, run_end, _WINDOW):
            pages = min(run_end - begin, _WINDOW)
            goes_on = begin > 0 and adjacent[begin - 1]
            order = min(order + 2 if goes_on else first, largest, pages.bit_length() - 1)
            if not rules.readahead_order_kept and pages < 4:
                order = 0
            part = rows[begin : begin + pages]
            made.add_window(part, int(index[begin]), order, rules.order_1_folios)
            counts["windows"] += 1
    return counts


def _are_of(events: np.ndarray, kind: int) -> np.ndarray:
    """Mask of events of known objects of a class, outside interrupts."""
    mask = (events["bits"] >> np.uint32(pr.CLASS_SHIFT) & np.uint32(3)) == kind
    return mask & (events["object"] >= 0) & (events["bits"] & np.uint32(at.IN_INTERRUPT) == 0)


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
    """Requests made anew, as columns; `bits` None: those of folios are as recorded."""

    old: Demand
    leads: np.ndarray
    mask: int
    bits: int | None
    touched: int
    orders: list[int] = field(default_factory=list)
    new_leads: list[int] = field(default_factory=list)
    asks: list[tuple[int, int, int]] = field(default_factory=list)
    frees: list[tuple[int, int]] = field(default_factory=list)
    cut: list[int] = field(default_factory=list)
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
        orders = self.orders_up_to(order)
        if order == 0 or orders == [order]:
            return [_Ask(number, order, row, at.ORDERS * _BASE, int(self.last[number]))]
        return self.split(row, orders, self.touched)

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
                made.append(self._group(waiting, order, lead))
                waiting, held = [], 0
            elif held > size:
                made += waiting
                waiting, held = [], 0
        return made + waiting

    def _group(self, asks: Sequence[_Ask], order: int, lead: int) -> _Ask:
        """Ask for an order in front of the first of some requests, which it stands for."""
        first, ends = asks[0], [one.freed for one in asks]
        freed = max(ends) if min(ends) >= 0 else -1
        number = self._new(order, lead, first.row, first.place - 1, freed)
        for one in asks:
            self._link(one.number, number)
        self.groups += 1
        return _Ask(number, order, first.row, first.place - 1, freed)

    def add_window(self, rows: np.ndarray, index: int, order: int, order_1: bool) -> None:
        """Cut a window of single pages, from an index on, into folios of at most an order."""
        numbers = self.old.events["object"][rows]
        place = 0
        while order and place < len(rows):
            own = order
            while (index + place) % (1 << own) or place + (1 << own) > len(rows):
                own -= 1
            own -= own == 1 and not order_1
            if own:
                part = range(place, place + (1 << own))
                pages = [(int(numbers[each]), int(rows[each])) for each in part]
                self._group(
                    [_Ask(n, 0, row, at.ORDERS * _BASE, int(self.last[n])) for n, row in pages],
                    own,
                    -1,
                )
            place += 1 << own

    def _link(self, number: int, lead: int) -> None:
        known = len(self.old.objects)
        if number < known:
            self.relinked[number] = lead
        else:
            self.new_leads[number - known] = lead

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
        if self.bits is None:
            last_try = ~is_folio & (requests["bits"] & np.uint32(at.GFP_WRITE) != 0)
            requests["bits"] &= np.where(last_try, ~np.uint32(pr.GFP_NORETRY), ~np.uint32(0))
        else:
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
