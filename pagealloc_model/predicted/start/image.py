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
from pagealloc_model.predicted.demand.event_order import joined
from pagealloc_model.predicted.demand.rows import GFP_KERNEL, highest_type_by_gfp
from pagealloc_model.predicted.growth import grown_demand
from pagealloc_model.predicted.start.evidence import (
    NOT_MEMORY,
    PageEvidence,
    StartCounts,
    StartFiles,
    assign_block_types,
    frame_count,
    gather_evidence,
    memory_blocks,
    object_pages,
    pageset_values,
    with_estimated_blocks,
)
from pagealloc_model.predicted.start.lists import (
    NEVER,
    Lists,
    first_touches,
    listed_pages,
    refilled_lists,
    settle_list_types,
    taken_first,
)
from pagealloc_model.predicted.start.placement import (
    misplaced,
    place_where_flags_are_old,
    place_zone,
    placement_line,
    put_placement,
    wanted_buddies,
)
from pagealloc_model.recording.machine import Machine, Zone
from pagealloc_model.recording.proc import pages as flags
from pagealloc_model.recording.proc.pages import PageOwner
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

    Buddies are taken from the lists of which the image has more than the snapshot, small ones
    first, then where that is not enough large ones; pages are added where kpageflags shows no
    flag, hence no known user, then where it shows page cache or anonymous memory.
    """
    lines = []
    for index, zone in enumerate(machine.zones):
        if not zone.managed:
            continue
        span = slice(zone.start_pfn, zone.end_pfn)
        wanted = int(counts.free_pages[index]) - int(on_lists[index])
        found = int(free[span].sum())
        if found > wanted:
            table = None
            if counts.free_buddies is not None:
                table, _ = wanted_buddies(machine, counts, index, int(on_lists[index]))
            _take_buddies(machine, free, touched, zone, found - wanted, block_types, table)
        elif found < wanted:
            for kind in spare:
                missing = wanted - int(free[span].sum())
                pages = np.flatnonzero(kind[span] & ~free[span])[:missing] + zone.start_pfn
                free[pages] = True
        placed = int(free[span].sum())
        lines.append(
            f"{machine.zone_title(index)}: {placed} pages free in the buddy, {on_lists[index]} "
            f"on per-CPU lists; the start snapshot asks for {wanted} in the buddy, page flags and "
            f"first touches alone gave {found}"
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
    touched elsewhere, the rest of it), then the largest ones, as a few of them hardly change the
    distribution, then single pages.
    """
    span = _whole_buddies(machine, zone)
    types = block_types[
        span.start >> machine.pageblock_order : span.stop >> machine.pageblock_order
    ]
    pfns, orders = maximal_buddies(free[span], types, machine.pageblock_order, machine.max_order)
    touches = np.flatnonzero(touched[span])
    ends = pfns + (1 << orders.astype(np.int64))
    used = np.searchsorted(touches, ends) - np.searchsorted(touches, pfns)
    pfns += span.start
    inside = (pfns >= zone.start_pfn) & (pfns < zone.end_pfn)
    pfns, orders, used = pfns[inside], orders[inside].astype(np.int64), used[inside]
    types = block_types[pfns >> machine.pageblock_order]
    by_use = np.argsort(used, kind="stable")
    for order in range(machine.max_order + 1) if wanted is not None else ():
        for migratetype in range(at.PCP_TYPES):
            alike = by_use[(orders[by_use] == order) & (types[by_use] == migratetype)]
            room = max(len(alike) - int(wanted[order, migratetype]), 0)
            surplus -= _clear(free, touched, pfns[alike[:room]], order, surplus)
    for order in range(machine.max_order, -1, -1):
        unused = (orders == order) & (used == 0) & free[pfns] & (types < at.PCP_TYPES)
        whole = pfns[unused][: surplus >> order]
        surplus -= _clear(free, touched, whole, order, surplus)
    span = slice(zone.start_pfn, zone.end_pfn)
    single = np.flatnonzero(free[span] & ~touched[span]) + zone.start_pfn
    single = single[block_types[single >> machine.pageblock_order] < at.PCP_TYPES]
    free[single[:surplus]] = False


def _whole_buddies(machine: Machine, zone: Zone) -> slice:
    """The page frames of a zone, and those that share a largest buddy with them."""
    size = 1 << max(machine.max_order, machine.pageblock_order)
    return slice(zone.start_pfn // size * size, -(-zone.end_pfn // size) * size)


def _clear(
    free: np.ndarray, touched: np.ndarray, firsts: np.ndarray, order: int, limit: int
) -> int:
    """Mark untouched pages of buddies allocated, up to a limit; returns how many."""
    span = (firsts.astype(np.int64)[:, None] + np.arange(1 << order)).ravel()
    span = span[~touched[span]][:limit]
    free[span] = False
    return len(span)


def _make_start_image(
    machine: Machine,
    demand: Demand,
    counts: StartCounts,
    files: StartFiles,
    evidence: PageEvidence,
    listed_counts: np.ndarray,
    pcp_high: np.ndarray,
    *,
    seed: int = 0,
) -> StartImage:
    """Combine the sources (T10.6, T12.5, T12.7).

    Pages first seen freed were allocated at the start; pages first seen allocated were free, in
    the buddy or, where kpageflags shows no flag on them, on the per-CPU list of the CPU that
    took them. Block types are page_owner's, or follow flags so that the snapshot's counts are met.
    """
    random = np.random.default_rng(seed)
    refilled = refilled_lists(machine, demand, evidence, counts.time_ns)
    lists = listed_pages(machine, demand, evidence, listed_counts, refilled, random)
    listed = lists.records
    free = evidence.free.copy()
    on_lists, on_movable_lists = np.zeros(len(free), bool), np.zeros(len(free), bool)
    for pages in object_pages(listed):
        on_lists[pages] = True
    for pages in object_pages(listed[listed["migratetype"] == at.MOVABLE]):
        on_movable_lists[pages] = True
    free &= ~on_lists
    block_types = assign_block_types(machine, counts, evidence, free, on_movable_lists, seed=seed)
    settled = evidence.touched | on_lists
    spare = [kind & ~settled for kind in (evidence.plain, evidence.migratable & ~evidence.owned)]
    totals = lists.named + lists.shown + lists.guessed
    lines = _meet_free_totals(
        machine, counts, free, evidence.touched | evidence.owned, spare, totals, block_types
    )
    lines += place_where_flags_are_old(
        machine, counts, evidence, on_lists, totals, free, block_types, seed=seed
    )
    settle_list_types(listed, block_types, machine.pageblock_order, refilled.reached_ns)
    pfn, order = _allocations(demand, files.page_owner, evidence)
    return StartImage(
        free=free,
        movable=_movable(machine, evidence, block_types) & ~free & ~on_lists,
        block_types=block_types,
        listed=listed,
        pcp_high=pcp_high,
        allocated_pfn=pfn,
        allocated_order=order,
        origin=(
            *_sources(demand, files),
            *lines,
            *_how_exact(machine, counts, evidence, lists, free, block_types),
        ),
    )


def _movable(machine: Machine, evidence: PageEvidence, block_types: np.ndarray) -> np.ndarray:
    """Whether each page moves if it is in use; so do those taken since flags were read (T10.9).

    Flags show these as free. What a Movable block has handed out since is taken to move.
    """
    in_movable_blocks = np.repeat(block_types == at.MOVABLE, 1 << machine.pageblock_order)
    return evidence.migratable | (evidence.buddy & in_movable_blocks)


def _allocations(
    demand: Demand, owner: PageOwner | None, evidence: PageEvidence
) -> tuple[np.ndarray, np.ndarray]:
    """First pages and orders of allocations live at the start: those freed later, those owned."""
    at_start = demand.objects[demand.at_start]
    at_start = at_start[evidence.inside[at_start["pfn"]]]
    pfn, order = at_start["pfn"].astype(np.int32), at_start["order"].astype(np.int8)
    if owner is None:
        return pfn, order
    inside = owner.pfn + (np.int64(1) << owner.order.astype(np.int64)) <= len(evidence.owned)
    first, size = owner.pfn[inside], np.int64(1) << owner.order[inside].astype(np.int64)
    before = evidence.owned_before
    whole = before[first + size] - before[first] == size
    return (
        np.concatenate([pfn, first[whole].astype(np.int32)]),
        np.concatenate([order, owner.order[inside][whole]]),
    )


def _sources(demand: Demand, files: StartFiles) -> list[str]:
    """What the image was made from, one line each."""
    lines = []
    if files.page_flags is not None:
        when = "just before the first event"
        if files.page_flags_at_ns is not None:
            when = (
                f"{(demand.first_ns - files.page_flags_at_ns) / 1e9:.3f} s before the first event"
            )
        lines.append(
            f"kpageflags: every page's place as it was {when}; what changed in between is known "
            "only for pages that events touch"
        )
    owner = files.page_owner
    if owner is not None:
        orders = (
            f"orders and movability of {count_of(len(owner), 'allocation')}, "
            f"{count_of(owner.pages, 'page')}"
        )
        lines.append(f"page_owner: {orders}, as recorded")
    return lines


def _how_exact(
    machine: Machine,
    counts: StartCounts,
    evidence: PageEvidence,
    lists: Lists,
    free: np.ndarray,
    block_types: np.ndarray,
) -> list[str]:
    """How far the image is from the counts, and what of it is a guess, one line each."""
    named, shown, guessed = (int(each.sum()) for each in (lists.named, lists.shown, lists.guessed))
    lines = [
        f"per-CPU lists: of {named + shown + guessed} pages, {named} are known by the CPU that "
        f"takes them first, {shown} by their flags; {guessed} are guessed"
    ]
    exact = int((evidence.block_types >= 0).sum())
    with_memory = sum(len(blocks) for blocks in evidence.memory_blocks)
    if counts.blocks is None:
        lines.append("no pagetypeinfo: pageblocks of unknown type are taken for Movable")
    else:
        lines.append(
            f"pageblocks: {exact} of {with_memory} have their recorded type, the others are chosen "
            "so that the counts by type are met"
        )
    if counts.free_buddies is not None:
        listed = lists.named + lists.shown + lists.guessed
        off = misplaced(machine, counts, listed, free, block_types)
        zones = ", ".join(
            f"{machine.zone_title(index)} {100 * off[index]:.2f} %"
            for index, zone in enumerate(machine.zones)
            if zone.managed
        )
        lines.append(
            "free pages in another cell of order and type than the start snapshot's free lists, "
            f"carried back to the first event, ask for: {zones}"
        )
    return lines


def _seeded_image(
    machine: Machine,
    demand: Demand,
    counts: StartCounts,
    listed_counts: np.ndarray,
    pcp_high: np.ndarray,
    *,
    seed: int = 0,
) -> StartImage:
    """A start image that meets all counts, its pages placed at random where nothing is known.

    Pages that the recording frees first are allocated. Pages that it allocates first are on the
    lists of the CPU that takes them, up to that CPU's count, and free as far as the counts leave
    room for that. The kernel counts blocks with memory only; those that no event touches are taken
    to lie at a zone's beginning.
    """
    random = np.random.default_rng(seed)
    length = frame_count(machine)
    masks = {}
    for name, objects in (("held", demand.at_start), ("fresh", demand.fresh)):
        masks[name] = np.zeros(length, bool)
        for pages in object_pages(demand.objects[objects]):
            masks[name][pages] = True
    held, fresh = masks["held"], masks["fresh"]
    evidence = _type_evidence(machine, demand, length)
    counts, estimated = with_estimated_blocks(machine, counts, evidence)
    nothing = np.zeros(length, bool)
    blocks = memory_blocks(machine, counts, nothing, np.full(length, flags.NOPAGE), held | fresh)
    inside = nothing.copy()
    inside.reshape(-1, 1 << machine.pageblock_order)[np.concatenate(blocks)] = True
    named = _named(machine, demand, listed_counts, ~inside)
    usable = ~held
    for pages in object_pages(named):
        usable[pages] = False
    free = np.zeros(length, bool)
    block_types = np.full(length >> machine.pageblock_order, -1, np.int8)
    lines = [
        *estimated,
        "no kpageflags: free pages are placed at random so that the start's counts are met",
    ]
    listed = [named]
    for index, zone in enumerate(machine.zones):
        if not zone.managed:
            continue
        on_lists = int(listed_counts[index].sum())
        wanted, note = wanted_buddies(machine, counts, index, on_lists)
        placed = place_zone(
            machine, index, usable, fresh, blocks[index], evidence, wanted, counts, random
        )
        put_placement(machine, index, placed, free, block_types)
        left_over = _left_over(machine, index, usable & ~free, blocks[index])
        listed.append(_filling_up(machine, index, named, listed_counts, left_over, random))
        lines += [note, placement_line(machine, wanted, placed, counts, index)]
    records = np.concatenate(listed)
    never = np.full((len(machine.zones), machine.nr_cpus), NEVER, np.int64)
    settle_list_types(records, block_types, machine.pageblock_order, never)
    on_a_list = np.zeros(length, bool)
    for pages in object_pages(records):
        on_a_list[pages] = True
    elsewhere = int((fresh & ~free & ~on_a_list).sum())
    lines.append(
        f"first touches: {elsewhere} of {int(fresh.sum())} pages that the recording takes first "
        "are not free at these places in the start; other pages stand for them"
    )
    in_movable = np.repeat(block_types == at.MOVABLE, 1 << machine.pageblock_order)
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


def _named(
    machine: Machine, demand: Demand, listed_counts: np.ndarray, no_memory: np.ndarray
) -> np.ndarray:
    """Pages that a CPU takes first, up to the pages its lists held."""
    touches = first_touches(demand, no_memory)
    pieces = [np.zeros(0, LISTED)]
    for index, zone in enumerate(machine.zones):
        inside = (touches["pfn"] >= zone.start_pfn) & (touches["pfn"] < zone.end_pfn)
        mine = touches[inside]
        mine["zone"] = index
        for cpu in range(machine.nr_cpus):
            wanted = int(listed_counts[index, cpu])
            pieces.append(taken_first(mine[mine["cpu"] == cpu], NEVER, wanted))
    return np.concatenate(pieces)


def _type_evidence(machine: Machine, demand: Demand, length: int) -> np.ndarray:
    """Pages that requests of each type take first, int64, shape (migratetypes, blocks)."""
    order = machine.pageblock_order
    table = np.zeros((at.MIGRATETYPES, length >> order), np.int64)
    events = demand.first_allocations
    block = demand.objects["pfn"][events["object"]].astype(np.int64) >> order
    np.add.at(table, (events["migratetype"].astype(np.int64), block), 1)
    return table


def _left_over(machine: Machine, index: int, unused: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """Pages of a zone's memory that are neither free nor known to be in use."""
    zone = machine.zones[index]
    order = machine.pageblock_order
    pages = ((blocks << order)[:, None] + np.arange(1 << order)).ravel()
    pages = pages[(pages >= zone.start_pfn) & (pages < zone.end_pfn)]
    return pages[unused[pages]]


def _filling_up(
    machine: Machine,
    index: int,
    named: np.ndarray,
    listed_counts: np.ndarray,
    pages: np.ndarray,
    random: np.random.Generator,
) -> np.ndarray:
    """Single pages that make up what each CPU's count lacks."""
    mine = named[named["zone"] == index]
    missing = listed_counts[index].copy()
    np.subtract.at(missing, mine["cpu"], np.int64(1) << mine["order"].astype(np.int64))
    wanted = np.maximum(missing, 0)
    pages = random.permutation(pages)[: int(wanted.sum())]
    records = np.zeros(len(pages), LISTED)
    records["pfn"] = pages
    records["cpu"] = np.repeat(np.arange(machine.nr_cpus), wanted)[: len(pages)]
    records["migratetype"] = -1
    records["zone"] = index
    return records


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
    """The start image whose replay comes closest to the start snapshot's per-CPU lists.

    Args:
        machine: its pagesets hold the lists of the snapshot before the first event.
        demand: what was asked for and freed; only what precedes the start snapshot is replayed.
        counts: what the image should meet.
        files: what describes single pages.
        start: the start snapshot; None if none was taken during the recording, then the earlier
            counts and limits stand.
        rules: the recorded kernel's.
        policy: the recorded one.
        assumptions: ours.
        seed: for choices that nothing settles.
    """
    listed = pageset_values(machine, None, "count")
    high = pageset_values(machine, None, "high")
    evidence = gather_evidence(machine, demand, counts, files) if files.known else None
    make = partial(_made, machine, demand, counts, files, evidence, seed=seed)
    image = make(listed, high)
    if start is None:
        return image
    wanted, limits = (pageset_values(machine, start, name) for name in ("count", "high"))
    best, best_gap = image, np.inf
    for _ in range(ROUNDS):
        grown = grown_demand(machine, demand, image.block_types)
        state = start_state(machine, grown, image, rules, policy, assumptions)
        _advance(state, grown, bisect_left(grown.events["time_ns"], start.time_ns))
        words = state.pcp_words(at.PCP_COUNT, 2)
        gap, limit_gap = words[:, :, 0] - wanted, words[:, :, 1] - limits
        if np.abs(gap).sum() < best_gap:
            best, best_gap = image, np.abs(gap).sum()
        if np.abs(gap).max() < CLOSE_ENOUGH and np.abs(limit_gap).max() < CLOSE_ENOUGH:
            break
        limited = np.abs(limit_gap) >= CLOSE_ENOUGH
        silent = limited | (np.maximum(np.abs(gap), limits - wanted) < _drained_at_once(state))
        before = listed, high
        listed = np.where(silent, listed, np.maximum(listed - gap, 0))
        high = np.where(limited, np.maximum(high - limit_gap, 0), high)
        if np.array_equal(before, (listed, high)):
            break
        image = make(listed, high)
    off = (
        f"off by {count_of(int(best_gap), 'page')} at the start snapshot, after replaying what "
        "precedes it"
    )
    return replace(best, origin=(*best.origin, f"per-CPU counts: {off}"))


def _drained_at_once(state: State) -> np.ndarray:
    """The most that one overflow drains, pages, shape (zones, cpus) (S4.6)."""
    return state.pcp_words(at.PCP_BATCH, 1)[:, :, 0] << state.st[at.POLICY_PCP_BATCH_SCALE_MAX]


def _made(
    machine: Machine,
    demand: Demand,
    counts: StartCounts,
    files: StartFiles,
    evidence: PageEvidence | None,
    listed: np.ndarray,
    high: np.ndarray,
    *,
    seed: int,
) -> StartImage:
    if evidence is not None:
        return _make_start_image(machine, demand, counts, files, evidence, listed, high, seed=seed)
    return _seeded_image(machine, demand, counts, listed, high, seed=seed)


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


def _advance(state: State, demand: Demand, stop: int) -> None:
    # whoever only describes a recording need not wait for the event loop
    from pagealloc_model.allocator.events import advance

    places = demand.starting_places()
    position = 0
    while position < stop:
        position = advance(
            state.arrays(places),
            demand.events,
            position,
            stop,
            -1,
        )
        state.st[at.LOG_ROWS] = 0


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
    """A start image in which each zone's managed pages are free, Movable, in the largest buddies.

    Args:
        machine: zones; of a zone with holes, the lowest page frames are taken.
        page_flags: kpageflags words that say where holes are, None if unknown.
    """
    length = frame_count(machine)
    memory = np.zeros(length, bool)
    for zone in machine.zones:
        if zone.managed:
            memory[zone.start_pfn : zone.end_pfn] = True
    if page_flags is not None:
        known = min(len(page_flags), length)
        memory[:known] &= (page_flags[:known] & NOT_MEMORY) == 0
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
    """The demand with what lived at the start allocated first of all (T10.2).

    Args:
        machine: zones.
        demand: the recording's.
        assumptions: type of allocations that were not seen.
    """
    numbers = demand.at_start
    new_array = working_arrays(len(demand.events))
    created = np.zeros(len(numbers), at.EVENT)
    created["time_ns"] = demand.first_ns
    created["operation"] = at.HIDDEN_ALLOC
    created["object"] = numbers
    created["order"] = demand.objects["order"][numbers]
    cpus = _cpu_of_first_free(demand, numbers)
    in_turn = np.arange(len(numbers)) % machine.nr_cpus  # of those that reclaim alone frees
    created["cpu"] = np.where(cpus < 0, in_turn, cpus)
    created["migratetype"] = assumptions.hidden_migratetype
    created["bits"] = GFP_KERNEL & at.GFP_READ_BITS
    created["zone"] = highest_type_by_gfp(machine)[GFP_KERNEL & 15]
    objects = joined(demand.objects, demand.objects[:0], new_array)
    objects["kind"][numbers] = resolved.HIDDEN
    return replace(demand, events=joined(created, demand.events, new_array), objects=objects)


def _cpu_of_first_free(demand: Demand, numbers: np.ndarray) -> np.ndarray:
    """int16: the CPU that was the first to free a part of each of some objects (ascending)."""
    cpus = np.full(len(numbers), -1, np.int16)
    for part in parts(len(demand.events)):
        events = demand.events[part]
        frees = events[events["operation"] == at.FREE]
        place = np.searchsorted(numbers, frees["object"])
        place = np.minimum(place, len(numbers) - 1)
        is_one = numbers[place] == frees["object"] if len(numbers) else np.zeros(len(frees), bool)
        place, frees = place[is_one][::-1], frees[is_one][::-1]
        unknown = cpus[place] < 0
        cpus[place[unknown]] = frees["cpu"][unknown]
    return cpus
