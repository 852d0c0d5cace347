"""Memory as a run finds it, and the runner of demand that nobody recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.lru import place_on_lists
from pagealloc_model.allocator.state import (
    State,
    make_state,
    maximal_buddies,
    place_buddies,
    with_pressure,
)
from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.loads.demand import EVENT, Demand
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import AUTO, DEMAND_FIELDS, Assumptions, Policy
from pagealloc_model.predicted import tables
from pagealloc_model.predicted.carrier import Carrier, ModelCarrier
from pagealloc_model.predicted.lock_times import LockModel, LockTimes, list_visits, queued
from pagealloc_model.predicted.reclaim_mode import check_mode
from pagealloc_model.predicted.runner import STEP_EVENTS, Runner
from pagealloc_model.predicted.tables import Prediction, TransactionCounts
from pagealloc_model.recording.machine import Machine


@dataclass(frozen=True, kw_only=True, eq=False)
class Memory:
    """Contents of memory at first; the rest of what is managed is in use and cannot be moved.

    Attributes:
        block_types: int8 by pageblock, its migratetype; HighAtomic ones count as reserved.
        free: bool by page frame.
        movable: bool by page frame: in use, and can be moved.
        listed: page frames on the inactive LRU lists, in the order that they came there.
        is_file: bool, which of these are of files; the others are anonymous.
        objects: numbers of objects that the demand reads, and where they are, page frames.
    """

    block_types: np.ndarray
    free: np.ndarray
    movable: np.ndarray
    listed: np.ndarray | None = None
    is_file: np.ndarray | None = None
    objects: tuple[np.ndarray, np.ndarray] | None = None

    def put_into(self, state: State, places: np.ndarray) -> None:
        """Put it into a fresh state, and write the places (int32 by object) of what is there."""
        machine = state.machine
        state.blocks["migratetype"] = self.block_types
        for zone in range(len(machine.zones)):
            own = (self.block_types == at.HIGHATOMIC) & (state.blocks["zone"] == zone + 1)
            reserved = np.count_nonzero(own) << machine.pageblock_order
            state.zone_region(zone)[at.ZONE_RESERVED_HIGHATOMIC] = reserved
        pfns, orders = maximal_buddies(
            self.free, self.block_types, machine.pageblock_order, machine.max_order
        )
        place_buddies(state.arrays(), pfns.astype(np.int32), orders.astype(np.int8))
        state.pages["where"][managed_pages(machine) & ~self.free] = at.ALLOCATED
        state.pages["tag"][self.movable] = 1
        if self.listed is not None:
            lists = np.where(self.is_file, pr.INACTIVE_FILE, pr.INACTIVE_ANON).astype(np.int8)
            place_on_lists(state.arrays(), self.listed.astype(np.int32), lists)
        if self.objects is not None:
            numbers, pfns = self.objects
            state.folios["object"][pfns] = numbers + 1
            places[numbers] = pfns


def free_everything(state: State) -> None:
    """Put all managed pages of a fresh state into the buddy, in the largest buddies, Movable."""
    order = state.machine.max_order
    for first, end in managed_spans(state.machine):
        pfns = np.arange(first, end, 1 << order, dtype=np.int32)
        place_buddies(state.arrays(), pfns, np.full(len(pfns), order, np.int8))


def managed_spans(machine: Machine) -> list[tuple[int, int]]:
    """First page and end of each zone's managed pages: whole largest buddies, from its start on."""
    step = 1 << machine.max_order
    spans = []
    for zone in machine.zones:
        first = -(-zone.start_pfn // step) * step
        end = first + min(zone.managed, zone.end_pfn - first) // step * step
        if end > first:
            spans.append((first, end))
    return spans


def managed_pages(machine: Machine) -> np.ndarray:
    """Return, as bool by page frame of all pageblocks, whether the allocator manages it."""
    blocks = -(-machine.end_pfn >> machine.pageblock_order)
    managed = np.zeros(blocks << machine.pageblock_order, bool)
    for first, end in managed_spans(machine):
        managed[first:end] = True
    return managed


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockUse:
    """Pages of each pageblock that lies in a zone, int64, one entry a block.

    Attributes:
        first_pfn: where it begins.
        migratetype: int8, of the block.
        buddy: free in the buddy.
        free: in the buddy or on a per-CPU list.
        movable: allocated pages that can be moved.
        reclaimable: those asked for as reclaimable since the start; 0 in a literal run.
        unmovable: the rest.
    """

    first_pfn: np.ndarray
    migratetype: np.ndarray
    buddy: np.ndarray
    free: np.ndarray
    movable: np.ndarray
    reclaimable: np.ndarray
    unmovable: np.ndarray

    @property
    def fixed(self) -> np.ndarray:
        """int64: pages that cannot be moved."""
        return self.reclaimable + self.unmovable

    @property
    def mixed(self) -> np.ndarray:
        """bool: pages that can be moved lie beside pages that cannot."""
        return (self.movable > 0) & (self.fixed > 0)


def block_use(state: State) -> BlockUse:
    """Count pages by pageblock, ascending by address, of a run or a replay between events."""
    in_zone = state.blocks["zone"] > 0
    where = state.pages["where"]
    allocated = where == at.ALLOCATED
    is_movable = allocated & (state.pages["tag"] == 1)
    is_reclaimable = np.zeros(0, bool)
    if state.is_elastic:
        is_reclaimable = allocated & ~is_movable & (state.folios["kind"] == pr.RECLAIMABLE)
    buddy, listed, movable, reclaimable = (
        _pages_of(state, marked)[in_zone]
        for marked in (where == at.BUDDY, where == at.ON_PCP, is_movable, is_reclaimable)
    )
    whole = 1 << state.machine.pageblock_order
    return BlockUse(
        first_pfn=np.flatnonzero(in_zone) << state.machine.pageblock_order,
        migratetype=state.blocks["migratetype"][in_zone],
        buddy=buddy,
        free=buddy + listed,
        movable=movable,
        reclaimable=reclaimable,
        unmovable=np.maximum(whole - buddy - listed - movable - reclaimable, 0),
    )


def _pages_of(state: State, heads: np.ndarray) -> np.ndarray:
    """Return pages by block of what begins at the marked page frames, int64."""
    block_order = state.machine.pageblock_order
    pfns = np.flatnonzero(heads)
    orders = state.pages["order"][pfns].astype(np.int64)
    sizes = np.int64(1) << np.minimum(orders, block_order)
    pages = np.bincount(pfns >> block_order, sizes, len(state.blocks)).astype(np.int64)
    larger = orders > block_order
    for pfn, order in zip(pfns[larger].tolist(), orders[larger].tolist(), strict=True):
        first = pfn >> block_order
        pages[first : first + (1 << order - block_order)] = 1 << block_order
    return pages


def buddies(state: State) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Free buddies: page frames, orders and the migratetypes of their lists, by page frame."""
    pfns = np.flatnonzero(state.pages["where"] == at.BUDDY)
    pages = state.pages[pfns]
    return pfns, pages["order"], pages["tag"]


SAMPLES = 128
"""A run without instants is sampled about so often, evenly over its events, and at its end."""


Begin = Callable[[np.ndarray, np.ndarray], Carrier]
"""Given objects' places, to be written, and their leads, returns who takes events."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Run(Prediction):
    """A prediction for demand that nobody recorded; holds in its set-up are not in the log.

    Attributes:
        demand: requests, and the machine that they are made of.
        events: how many were taken.
        seen: results of `look` at each sample.
    """

    demand: Demand
    events: int
    seen: tuple[Any, ...]
    _sites: np.ndarray = field(repr=False)
    _sizes: TransactionCounts = field(repr=False)

    @property
    def failed(self) -> int:
        """Requests that found no page."""
        return int(self.final.st[at.COUNT_FAILED])

    @property
    def orphan_frees(self) -> int:
        """Frees of what had found no page."""
        return int(self.final.st[at.COUNT_ORPHAN_FREE])

    @property
    def in_base_pages(self) -> int:
        """Requests that were served in single pages, for want of a buddy."""
        return int(self.final.st[at.COUNT_IN_BASE_PAGES])

    @property
    def unlogged(self) -> int:
        """Holds that did not fit the log, and are in no table of holds."""
        return int(self.final.st[at.LOG_DROPPED])

    @cached_property
    def transactions(self) -> pd.DataFrame:
        """Histogram of zone->lock holds by zone, CPU, site, cause and objects."""
        return self._sizes.transactions

    @cached_property
    def visits(self) -> np.ndarray:
        """`lock_visits.VISIT` records: allocations and frees at lists that others may drain."""
        return list_visits(self.log, self.demand, self.places, self.machine, self.policy)

    def lock_times(self, model: LockModel | None = None) -> LockTimes:
        """The holds with their times; of a run that kept them."""
        return queued(self.log, self.machine, (model or LockModel()).of(self.policy), self.visits)

    @cached_property
    def counts(self) -> pd.DataFrame:
        """Counters since the start, one row a sample, by its time.

        Returns:
            refills, refill_pages that they got, refill_probes (free lists that they looked at,
            S6.7), blocks_reserved and blocks_unreserved (S7); of an elastic run also those of
            vmstat under the kernel's names, allocstall of all zones, requests_failed,
            failed_order_0 and so on, and compact_direct_migrate_scanned and
            compact_direct_free_scanned, what the daemon's leave of the total.
        """
        index = pd.Index(self.samples.time_ns, name="time_ns")
        own = ("refills", "refill_pages", "refill_probes", "blocks_reserved", "blocks_unreserved")
        table = pd.DataFrame(dict(zip(own, self._sites.T, strict=True)), index=index)
        if not self.final.is_elastic:
            return table
        words = self.samples.counters
        first, stalls = pr.COUNTERS, pr.ALLOCSTALL
        for number, name in enumerate(pr.COUNTER_NAMES):
            table[name] = words[:, first + number]
        table["allocstall"] = words[:, stalls : stalls + len(self.machine.zone_types)].sum(axis=1)
        for side in ("migrate_scanned", "free_scanned"):
            direct = table[f"compact_{side}"] - table[f"compact_daemon_{side}"]
            table[f"compact_direct_{side}"] = direct
        table["requests_failed"] = words[:, pr.DEMAND_FAILED]
        outcomes = tables.outcome_counts(words).sum(axis=1)
        for order in range(self.machine.max_order + 1):
            table[f"failed_order_{order}"] = outcomes[:, order, 0] - outcomes[:, order, 1]
        return table

    @cached_property
    def free(self) -> pd.DataFrame:
        """Free memory and the highatomic reserve, one row a sample, by its time.

        Returns:
            free_pages; free_blocks, whole free huge buddies in pageblocks; reserved_blocks,
            pageblocks of the reserve; whole_blocks, its free huge buddies in pageblocks;
            partly_used, its other free pages, which lie in partly used blocks.
        """
        order, buddies = self.machine.pageblock_order, self.samples.free_buddies
        sizes = buddies.sum(axis=1) << np.arange(buddies.shape[2])[None, :, None]
        reserve, everything = sizes[..., at.HIGHATOMIC], sizes.sum(axis=2)
        return pd.DataFrame(
            {
                "free_pages": everything.sum(axis=1),
                "free_blocks": everything[:, order:].sum(axis=1) >> order,
                "reserved_blocks": self.samples.blocks[:, :, at.HIGHATOMIC].sum(axis=1),
                "whole_blocks": reserve[:, order:].sum(axis=1) >> order,
                "partly_used": reserve[:, :order].sum(axis=1),
            },
            index=pd.Index(self.samples.time_ns, name="time_ns"),
        )


def forget_counts(state: State) -> None:
    """Begin anew to count holds of zone->lock and pcp->lock, fallbacks and what ownership does."""
    for zone, cpu in np.ndindex(len(state.machine.zones), state.machine.nr_cpus):
        words = state.pcp_region(zone, cpu)
        words[at.PCP_LOCKS : at.PCP_LOCKS + len(tables.LOCK_COLUMNS)] = 0
        words[at.PCP_SITES : at.PCP_SITES + at.SITES * at.SITE_WORDS] = 0
    state.st[at.FALLBACKS : at.FALLBACKS + prod(at.FALLBACK_SHAPE)] = 0
    state.st[[at.REFILL_PROBES, at.REFILL_PROBES_MOST]] = 0
    if state.st[at.OWNERSHIP]:
        state.owned_sets()[..., at.SET_PHASES :] = 0


def run(
    demand: Demand,
    policy: Policy | None = None,
    *,
    rules: KernelRules | str,
    assumptions: Assumptions | None = None,
    memory: Memory | Begin | None = None,
    at_ns: Sequence[int] = (),
    look: Callable[[State], Any] | None = None,
    keep_holds: bool = True,
    progress: Callable[[float], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> Run:
    """Replay demand that nobody recorded.

    Args:
        demand: requests, and the machine that they are made of.
        policy: the policy to run it under; None for the kernel's defaults.
        rules: a kernel generation, or the name of a preset.
        assumptions: ours; in an elastic mode the model decides what kswapd and direct reclaim do.
            Without one the run is literal, as no recorded kernel reclaimed.
        memory: what it holds at first; None: all of it is free.
        at_ns: instants to take a sample at, ascending: after the events before it and all that is
            due by then; the run ends with the last. None: see `SAMPLES`.
        look: called with the state at each sample.
        keep_holds: keep every hold of zone->lock; otherwise they are counted alone, so that what is
            kept does not grow with the demand.
        progress: called with the share done, 0 to 1.
        cancel: asked now and then; True ends the run with `Cancelled`.

    Raises:
        PolicyError: no preset of that name, or a policy that this mode of reclaim does not have.
        UsageError: the demand has no events.
        Cancelled: `cancel` said so.
    """
    chosen = KernelRules.preset(rules) if isinstance(rules, str) else rules
    policy, assumptions = policy or Policy(), assumptions or Assumptions()
    if assumptions.reclaim == AUTO:
        assumptions = replace(assumptions, reclaim="literal")
    check_mode(policy, assumptions, is_build=False)
    for name in DEMAND_FIELDS:
        if name in policy.given():
            raise PolicyError(f"policy {name}: only replays of recordings have it")
    if not demand.count:
        raise UsageError(f"{demand.name}: no events, so there is nothing to replay")
    places = np.full(demand.objects, -1, np.int32)
    leads = np.full_like(places, -1) if demand.leads is None else demand.leads
    if memory is not None and not isinstance(memory, Memory):
        carrier = memory(places, leads)
    else:
        start_ns = demand.start_ns
        if start_ns is None:
            start_ns = int(next(demand.parts(), np.zeros(1, EVENT))["time_ns"][0])
        state = make_state(demand.machine, chosen, policy, assumptions, start_ns=start_ns)
        if memory is None:
            free_everything(state)
        if assumptions.reclaim == "elastic":
            state = with_pressure(state, chosen, policy, assumptions, seed=demand.seed)
            carrier = ModelCarrier(state, leads)
        else:
            state.st[at.KSWAPD_RECORDED] = demand.kswapd_recorded
            state.st[at.DIRECT_RECLAIM_RECORDED] = demand.direct_reclaim_recorded
            carrier = ModelCarrier(state)
        if memory is not None:
            memory.put_into(state, places)
    state = carrier.state
    sizes = TransactionCounts(state.machine)
    runner = Runner(
        carrier,
        places,
        demand.is_counted,
        events=demand.count,
        sizes=sizes,
        keep_log=keep_holds,
        progress=progress,
        cancel=cancel,
    )
    beside: dict[int, tuple[np.ndarray, Any]] = {}

    def sample(time_ns: int) -> None:
        runner.sample(time_ns)
        sites = state.sites().sum(axis=(0, 1))
        own = (
            sites[at.SITE_REFILL, at.SITE_ACQUISITIONS],
            sites[at.SITE_REFILL, at.SITE_PAGES],
            state.st[at.REFILL_PROBES],
            sites[at.SITE_RESERVE, at.SITE_OBJECTS],
            sites[at.SITE_UNRESERVE, at.SITE_OBJECTS],
        )
        seen = look(state) if look is not None else None
        beside[time_ns] = (np.array(own, np.int64), seen)

    instants, step = list(at_ns), max(demand.count // SAMPLES, 1)
    due, set_up_end = step, demand.set_up[0][1] if demand.set_up else None
    for events in demand.parts():
        if at_ns and not instants:
            break
        times, position = events["time_ns"], 0
        while position < len(events) and (instants or not at_ns):
            goal, until = min(position + STEP_EVENTS, len(events)), -1
            if not at_ns:
                goal = min(goal, position + due - runner.done)
            elif times[-1] >= instants[0]:
                stop = int(np.searchsorted(times, instants[0]))
                goal, until = (stop, instants[0]) if stop <= goal else (goal, -1)
            if set_up_end is not None:
                ready = int(np.searchsorted(times, set_up_end))
                if position < ready:
                    goal, until = min(goal, ready), -1
                else:
                    forget_counts(state)
                    set_up_end = None
            runner.take(events, position, goal, until)
            position = goal
            if until >= 0:
                sample(instants.pop(0))
            elif not at_ns and (runner.done >= due or runner.done >= demand.count):
                sample(int(state.st[at.NOW]))
                due += step
    for instant in instants:
        runner.take(np.zeros(0, EVENT), 0, 0, instant)
        sample(instant)
    sites, seen = zip(*beside.values(), strict=True)
    return Run(
        demand=demand,
        policy=policy,
        rules=chosen,
        assumptions=assumptions,
        samples=runner.samples,
        log=runner.log,
        places=places,
        final=state,
        events=runner.done,
        seen=seen,
        _sites=np.stack(sites),
        _sizes=sizes,
    )
