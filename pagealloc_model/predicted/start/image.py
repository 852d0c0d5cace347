"""The state that a replay begins with, from page flags, owners, counts and first touches (T10.6).

Without page flags free pages are placed at random so that all counts are met; an empty start has
every managed page free. Per-CPU lists are chosen so that the model meets the start snapshot.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from functools import partial

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator.state import (
    LISTED,
    StartImage,
    State,
    install,
    make_state,
    maximal_buddies,
)
from pagealloc_model.base.arrays import parts, working_arrays
from pagealloc_model.base.text import count_of
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.predicted.demand.event_order import joined, new_events
from pagealloc_model.predicted.demand.rows import GFP_KERNEL, highest_type_by_gfp
from pagealloc_model.predicted.growth import grown_demand
from pagealloc_model.predicted.start.evidence import (
    NOT_MEMORY,
    PageEvidence,
    StartCounts,
    StartFiles,
    assign_block_types,
    blocks_seen,
    first_taken_types,
    frame_count,
    gather_evidence,
    memory_blocks,
    page_mask,
    pageset_values,
    with_estimated_blocks,
)
from pagealloc_model.predicted.start.placement import (
    NEVER,
    first_touches,
    listed_pages,
    listed_records,
    misplaced,
    place_where_flags_are_old,
    place_zone,
    refilled_lists,
    settle_list_types,
    take_off,
    taken_first,
    wanted_buddies,
)
from pagealloc_model.recording.machine import Machine, Zone
from pagealloc_model.recording.snapshot import Snapshot


def _meet_free_totals(
    machine: Machine,
    counts: StartCounts,
    free: np.ndarray,
    touched: np.ndarray,
    spare: list[np.ndarray],
    on_lists: np.ndarray,
    block_types: np.ndarray,
) -> list[str]:
    """Move untouched pages in or out of the buddy until each zone's total fits; say how much.

    Pages are added where kpageflags shows no flag, hence no known user, then where it shows page
    cache or anonymous memory.
    """
    lines = []
    for index, zone in enumerate(machine.zones):
        if not zone.managed:
            continue
        span = slice(zone.start_pfn, zone.end_pfn)
        wanted = int(counts.free_pages[index]) - int(on_lists[index])
        before = int(free[span].sum())
        if before > wanted:
            table = None
            if counts.free_buddies is not None:
                table, _ = wanted_buddies(machine, counts, index, int(on_lists[index]))
            _take_buddies(machine, free, touched, zone, before - wanted, block_types, table)
        for kind in spare:
            missing = max(wanted - int(free[span].sum()), 0)
            free[np.flatnonzero(kind[span] & ~free[span])[:missing] + zone.start_pfn] = True
        lines.append(
            f"{machine.zone_title(index)}: {int(free[span].sum())} pages free in the buddy, "
            f"{on_lists[index]} on per-CPU lists; the start snapshot asks for {wanted} in the "
            f"buddy, page flags and first touches alone gave {before}"
        )
    return lines


def _take_buddies(
    machine: Machine,
    free: np.ndarray,
    touched: np.ndarray,
    zone: Zone,
    surplus: int,
    block_types: np.ndarray,
    wanted: np.ndarray | None,
) -> None:
    """Mark about `surplus` untouched free pages of a zone allocated.

    First whole buddies of which a list has more than the snapshot's table (of one that was
    touched elsewhere, the rest of it), then the largest ones, then single pages.
    """
    block_order = machine.pageblock_order
    # buddies may begin before a zone, or end behind it
    size = 1 << max(machine.max_order, block_order)
    span = slice(zone.start_pfn // size * size, -(-zone.end_pfn // size) * size)
    types = block_types[span.start >> block_order : span.stop >> block_order]
    pfns, orders = maximal_buddies(free[span], types, block_order, machine.max_order)
    touches = np.flatnonzero(touched[span])
    ends = pfns + (1 << orders.astype(np.int64))
    used = np.searchsorted(touches, ends) - np.searchsorted(touches, pfns)
    pfns += span.start
    inside = (pfns >= zone.start_pfn) & (pfns < zone.end_pfn)
    pfns, orders, used = pfns[inside], orders[inside].astype(np.int64), used[inside]
    types = block_types[pfns >> block_order]

    def take(firsts: np.ndarray, order: int) -> int:
        """Mark untouched pages of buddies allocated, up to the surplus; returns how many."""
        pages = (firsts.astype(np.int64)[:, None] + np.arange(1 << order)).ravel()
        pages = pages[~touched[pages]][:surplus]
        free[pages] = False
        return len(pages)

    by_use = np.argsort(used, kind="stable")
    for order in range(machine.max_order + 1) if wanted is not None else ():
        for migratetype in range(at.PCP_TYPES):
            alike = by_use[(orders[by_use] == order) & (types[by_use] == migratetype)]
            room = max(len(alike) - int(wanted[order, migratetype]), 0)
            surplus -= take(pfns[alike[:room]], order)
    for order in range(machine.max_order, -1, -1):
        unused = (orders == order) & (used == 0) & free[pfns] & (types < at.PCP_TYPES)
        surplus -= take(pfns[unused][: surplus >> order], order)
    span = slice(zone.start_pfn, zone.end_pfn)
    single = np.flatnonzero(free[span] & ~touched[span]) + zone.start_pfn
    single = single[block_types[single >> block_order] < at.PCP_TYPES]
    free[single[:surplus]] = False


def _make_start_image(
    machine: Machine,
    demand: Demand,
    counts: StartCounts,
    files: StartFiles,
    evidence: PageEvidence,
    listed_counts: np.ndarray,
    pcp_high: np.ndarray,
    seed: int,
) -> StartImage:
    """Combine the sources (T10.6, T12.5, T12.7).

    Pages first seen freed were allocated at the start; pages first seen allocated were free, or,
    where kpageflags shows no flag on them, on the list of the CPU that took them.
    """
    random = np.random.default_rng(seed)
    refilled = refilled_lists(machine, demand, evidence, counts.time_ns)
    listed, sums = listed_pages(machine, demand, evidence, listed_counts, refilled, counts, random)
    totals, length = sums.sum(axis=0), len(evidence.free)
    on_lists = page_mask(length, listed)
    on_movable_lists = page_mask(length, listed[listed["migratetype"] == at.MOVABLE])
    free = evidence.free & ~on_lists
    block_types = assign_block_types(machine, counts, evidence, free, on_movable_lists, seed=seed)
    settled = evidence.touched | on_lists
    spare = [kind & ~settled for kind in (evidence.plain, evidence.migratable & ~evidence.owned)]
    lines = _meet_free_totals(
        machine, counts, free, evidence.touched | evidence.owned, spare, totals, block_types
    )
    lines += place_where_flags_are_old(
        machine, counts, evidence, on_lists, totals, free, block_types, seed=seed
    )
    settle_list_types(listed, block_types, machine.pageblock_order, refilled[0])
    # allocations live at the start: those freed later, those owned
    at_start = demand.objects[demand.at_start]
    at_start = at_start[evidence.inside[at_start["pfn"]]]
    pfn, order = at_start["pfn"].astype(np.int32), at_start["order"].astype(np.int8)
    sources, owner = [], files.page_owner
    if files.page_flags is not None:
        when = "just before the first event"
        if files.page_flags_at_ns is not None:
            seconds = (demand.first_ns - files.page_flags_at_ns) / 1e9
            when = f"{seconds:.3f} s before the first event"
        sources.append(
            f"kpageflags: every page's place as it was {when}; what changed in between is known "
            "only for pages that events touch"
        )
    if owner is not None:
        inside = owner.pfn + (np.int64(1) << owner.order.astype(np.int64)) <= length
        first, orders = owner.pfn[inside], owner.order[inside]
        size = np.int64(1) << orders.astype(np.int64)
        before = np.concatenate([[0], np.cumsum(evidence.owned, dtype=np.int32)])
        whole = before[first + size] - before[first] == size
        pfn = np.concatenate([pfn, first[whole].astype(np.int32)])
        order = np.concatenate([order, orders[whole]])
        sources.append(
            f"page_owner: orders and movability of {count_of(len(owner), 'allocation')}, "
            f"{count_of(owner.pages, 'page')}, as recorded"
        )
    named, shown, guessed = sums.sum(axis=1).tolist()
    lines.append(
        f"per-CPU lists: of {named + shown + guessed} pages, {named} are known by the CPU that "
        f"takes them first, {shown} by their flags; {guessed} are guessed"
    )
    if counts.blocks is None:
        lines.append("no pagetypeinfo: pageblocks of unknown type are taken for Movable")
    else:
        exact = int((evidence.block_types >= 0).sum())
        lines.append(
            f"pageblocks: {exact} of {sum(map(len, evidence.memory_blocks))} have their recorded "
            "type, the others are chosen so that the counts by type are met"
        )
    if counts.free_buddies is not None:
        off = misplaced(machine, counts, totals, free, block_types)
        zones = ", ".join(
            f"{machine.zone_title(index)} {100 * off[index]:.2f} %"
            for index, zone in enumerate(machine.zones)
            if zone.managed
        )
        lines.append(
            "free pages in another cell of order and type than the start snapshot's free lists, "
            f"carried back to the first event, ask for: {zones}"
        )
    # What a Movable block has handed out since flags were read is taken to move (T10.9).
    in_movable_blocks = np.repeat(block_types == at.MOVABLE, 1 << machine.pageblock_order)
    movable = evidence.migratable | (evidence.buddy & in_movable_blocks)
    return StartImage(
        free=free,
        movable=movable & ~free & ~on_lists,
        block_types=block_types,
        listed=listed,
        pcp_high=pcp_high,
        allocated_pfn=pfn,
        allocated_order=order,
        origin=(*sources, *lines),
    )


def _seeded_image(
    machine: Machine,
    demand: Demand,
    counts: StartCounts,
    listed_counts: np.ndarray,
    pcp_high: np.ndarray,
    seed: int,
) -> StartImage:
    """A start image that meets all counts, its pages placed at random where nothing is known.

    Pages that the recording frees first are allocated. Pages that it allocates first are on the
    lists of the CPU that takes them, up to that CPU's count, and free as far as the counts allow.
    """
    random = np.random.default_rng(seed)
    length, order = frame_count(machine), machine.pageblock_order
    held, fresh = (
        page_mask(length, demand.objects[numbers]) for numbers in (demand.at_start, demand.fresh)
    )
    evidence = first_taken_types(machine, demand)
    counts, estimated = with_estimated_blocks(machine, counts, evidence)
    blocks = memory_blocks(machine, counts, blocks_seen(machine, demand, StartFiles()))
    inside = np.zeros(length, bool)
    inside.reshape(-1, 1 << order)[np.concatenate(blocks)] = True
    never = np.full((len(machine.zones), machine.nr_cpus), NEVER, np.int64)
    touches = first_touches(demand, ~inside)
    named = [
        taken_first(machine, index, touches, listed_counts[index], never[index])
        for index in range(len(machine.zones))
    ]
    usable = ~held & ~page_mask(length, np.concatenate(named))
    free = np.zeros(length, bool)
    block_types = np.full(length >> order, -1, np.int8)
    lines = [
        *estimated,
        "no kpageflags: free pages are placed at random so that the start's counts are met",
    ]
    fillers = []
    for index, zone in enumerate(machine.zones):
        if not zone.managed:
            continue
        lines += place_zone(
            machine,
            counts,
            index,
            int(listed_counts[index].sum()),
            usable=usable,
            preferred=fresh,
            blocks=blocks[index],
            evidence=evidence,
            free=free,
            block_types=block_types,
            random=random,
        )
        # what each CPU's count lacks are pages neither free nor known to be in use
        missing = listed_counts[index].copy()
        take_off(missing, named[index])
        wanted = np.maximum(missing, 0)
        pages = ((blocks[index] << order)[:, None] + np.arange(1 << order)).ravel()
        pages = pages[(pages >= zone.start_pfn) & (pages < zone.end_pfn)]
        pages = random.permutation(pages[usable[pages] & ~free[pages]])[: int(wanted.sum())]
        cpus = np.repeat(np.arange(machine.nr_cpus), wanted)[: len(pages)]
        fillers.append(listed_records(index, pages, cpus, -1))
    records = np.concatenate([*named, *fillers])
    settle_list_types(records, block_types, order, never)
    on_a_list = page_mask(length, records)
    elsewhere = int((fresh & ~free & ~on_a_list).sum())
    lines.append(
        f"first touches: {elsewhere} of {int(fresh.sum())} pages that the recording takes first "
        "are not free at these places in the start; other pages stand for them"
    )
    in_movable = np.repeat(block_types == at.MOVABLE, 1 << order)
    at_start = demand.objects[demand.at_start]
    at_start = at_start[inside[at_start["pfn"]]]
    return StartImage(
        free=free,
        movable=in_movable & ~free & ~on_a_list,
        block_types=block_types,
        listed=records,
        pcp_high=pcp_high,
        allocated_pfn=at_start["pfn"].astype(np.int32),
        allocated_order=at_start["order"].astype(np.int8),
        origin=tuple(lines),
    )


ROUNDS = 6
CLOSE_ENOUGH = 64
"""Pages, about one batch: differences below it end the search.

The limit is settled first: lists that overflow end within one drain of it, however they began, so
a count that near to it says nothing more.
"""


def calibrated_image(
    machine: Machine,
    demand: Demand,
    counts: StartCounts,
    files: StartFiles,
    start: Snapshot | None,
    *,
    rules: KernelRules,
    policy: Policy,
    assumptions: Assumptions,
    seed: int,
) -> StartImage:
    """The start image whose replay comes closest to the start snapshot's per-CPU lists."""
    # whoever only describes a recording need not wait for the event loop
    from pagealloc_model.allocator.events import advance

    listed, high = (pageset_values(machine, None, name) for name in ("count", "high"))
    make = partial(_seeded_image, machine, demand, counts)
    if files.known:
        evidence = gather_evidence(machine, demand, counts, files)
        make = partial(_make_start_image, machine, demand, counts, files, evidence)
    image = make(listed, high, seed)
    if start is None:
        return image
    wanted, limits = (pageset_values(machine, start, name) for name in ("count", "high"))
    best, best_gap = image, np.inf
    for _ in range(ROUNDS):
        grown = grown_demand(machine, demand, image.block_types)
        state = start_state(machine, grown, image, rules, policy, assumptions)
        places, position = grown.starting_places(), 0
        stop = bisect_left(grown.events["time_ns"], start.time_ns)
        while position < stop:
            position = advance(state.arrays(places), grown.events, position, stop, -1)
            state.st[at.LOG_ROWS] = 0
        words = state.pcp_words(at.PCP_COUNT, 2)
        gap, limit_gap = words[:, :, 0] - wanted, words[:, :, 1] - limits
        if np.abs(gap).sum() < best_gap:
            best, best_gap = image, np.abs(gap).sum()
        if np.abs(gap).max() < CLOSE_ENOUGH and np.abs(limit_gap).max() < CLOSE_ENOUGH:
            break
        limited = np.abs(limit_gap) >= CLOSE_ENOUGH
        # the most that one overflow drains (S4.6)
        batch = state.pcp_words(at.PCP_BATCH, 1)[:, :, 0]
        drained_at_once = batch << state.st[at.POLICY_PCP_BATCH_SCALE_MAX]
        silent = limited | (np.maximum(np.abs(gap), limits - wanted) < drained_at_once)
        before = listed, high
        listed = np.where(silent, listed, np.maximum(listed - gap, 0))
        high = np.where(limited, np.maximum(high - limit_gap, 0), high)
        if np.array_equal(before, (listed, high)):
            break
        image = make(listed, high, seed)
    off = (
        f"off by {count_of(int(best_gap), 'page')} at the start snapshot, after replaying what "
        "precedes it"
    )
    return replace(best, origin=(*best.origin, f"per-CPU counts: {off}"))


def start_state(
    machine: Machine,
    demand: Demand,
    image: StartImage,
    rules: KernelRules,
    policy: Policy,
    assumptions: Assumptions,
) -> State:
    """A state ready for the first event of a demand."""
    state = make_state(machine, rules, policy, assumptions, start_ns=demand.first_ns)
    install(state, image)
    state.st[at.KSWAPD_RECORDED] = demand.kswapd_recorded
    state.st[at.DIRECT_RECLAIM_RECORDED] = demand.direct_reclaim_recorded
    state.st[at.DRAINS_RECORDED] = demand.drains_recorded
    state.st[at.RELEASES_RECORDED] = demand.releases_recorded
    if demand.ticks_recorded:
        state.st[at.NEXT_TICK] = state.st[at.TICK_BASE] = at.NEVER
    return state


def idle_machine(machine: Machine) -> Machine:
    """The machine before anything ran on it: per-CPU limits at their minimum, no boost."""
    zones = []
    for zone in machine.zones:
        pagesets = tuple(
            replace(each, count=0, high=each.high if each.high_min is None else each.high_min)
            for each in zone.pagesets
        )
        zones.append(replace(zone, boost=0, pagesets=pagesets))
    return replace(machine, zones=tuple(zones))


def empty_image(machine: Machine, page_flags: np.ndarray | None) -> StartImage:
    """A start image in which each zone's managed pages are free and Movable."""
    length = frame_count(machine)
    memory = np.ones(length, bool)
    if page_flags is not None:
        known = min(len(page_flags), length)
        memory[:known] = (page_flags[:known] & NOT_MEMORY) == 0
    free = np.zeros(length, bool)
    for zone in machine.zones:
        if zone.managed:
            pages = np.flatnonzero(memory[zone.start_pfn : zone.end_pfn])[: zone.managed]
            free[pages + zone.start_pfn] = True
    in_use = free.reshape(-1, 1 << machine.pageblock_order).any(axis=1)
    return StartImage(
        free=free,
        movable=np.zeros(length, bool),
        block_types=np.where(in_use, at.MOVABLE, -1).astype(np.int8),
        listed=np.zeros(0, LISTED),
        pcp_high=np.zeros((len(machine.zones), machine.nr_cpus), np.int64),
        allocated_pfn=np.zeros(0, np.int32),
        allocated_order=np.zeros(0, np.int8),
        origin=(
            f"empty: all {int(free.sum())} managed pages are free, whatever the recording says of "
            "its start; what it frees without having allocated it is allocated at the beginning",
        ),
    )


def created_demand(machine: Machine, demand: Demand, assumptions: Assumptions) -> Demand:
    """The demand with all that lived at the start allocated first, by who frees it (T10.2)."""
    numbers = demand.at_start
    new_array = working_arrays(len(demand.events))
    cpus = np.full(len(demand.objects), -1, np.int16)
    for part in parts(len(demand.events)):
        events = demand.events[part]
        frees = events[events["operation"] == at.FREE][::-1]
        frees = frees[cpus[frees["object"]] < 0]
        cpus[frees["object"]] = frees["cpu"]
    in_turn = np.arange(len(numbers)) % machine.nr_cpus  # of those that reclaim alone frees
    created = new_events(
        at.HIDDEN_ALLOC,
        len(numbers),
        time_ns=demand.first_ns,
        object=numbers,
        order=demand.objects["order"][numbers],
        cpu=np.where(cpus[numbers] < 0, in_turn, cpus[numbers]),
        migratetype=assumptions.hidden_migratetype,
        bits=GFP_KERNEL & at.GFP_READ_BITS,
        zone=highest_type_by_gfp(machine)[GFP_KERNEL & 15],
    )
    objects = joined(demand.objects, demand.objects[:0], new_array)
    objects["kind"][numbers] = resolved.HIDDEN
    return replace(demand, events=joined(created, demand.events, new_array), objects=objects)
