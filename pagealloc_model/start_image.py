"""The start image of a recording: what kpageflags, the first snapshot and first touches say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.initial import LISTED, StartImage, maximal_buddies
from pagealloc_model.block_types import assign_block_types, in_used_blocks
from pagealloc_model.demand import Demand
from pagealloc_model.errors import UsageError
from pagealloc_model.machine import PMD_ORDER, Machine, Zone
from pagealloc_model.proc import kpageflags as flags
from pagealloc_model.seeded_placement import seeded_page_flags
from pagealloc_model.snapshot import Snapshot
from pagealloc_model.trace.columns import Event, Trace

NOT_MEMORY = flags.NOPAGE | flags.RESERVED | flags.HWPOISON | flags.OFFLINE
NEVER = np.iinfo(np.int64).max
MIGRATABLE = flags.LRU | flags.MMAP | flags.ANON


@dataclass(frozen=True, kw_only=True, eq=False)
class StartCounts:
    """What the state files say about the start, as arrays.

    Attributes:
        free_buddies: int64, shape (zones, orders, migratetypes); None without pagetypeinfo.
        blocks: int64, shape (zones, migratetypes); None without pagetypeinfo.
        free_pages: int64, shape (zones,): free pages, those on per-CPU lists included.
        time_ns: when the start snapshot was taken.
    """

    free_buddies: np.ndarray | None
    blocks: np.ndarray | None
    free_pages: np.ndarray
    time_ns: int


def start_counts(machine: Machine, snapshot: Snapshot, trace: Trace) -> StartCounts:
    """The start snapshot's counts, its free pages carried back to the first event.

    Setting a recording up allocates the ring buffers, so a snapshot from before the first event
    is off by them; the first one taken during the recording is not, and what was allocated and
    freed until then is known.

    Args:
        machine: zones and migratetypes.
        snapshot: the start snapshot; its zoneinfo is there.
        trace: the recording's events.

    Raises:
        UsageError: the snapshot has a zone that the machine has not.
    """
    nr_zones = len(machine.zones)
    totals = np.zeros(nr_zones, np.int64)
    until = int(np.searchsorted(trace.time_ns, snapshot.time_ns))
    event = trace.event[:until]
    sizes = np.where(event == Event.FREE, 1, np.where(event == Event.ALLOC, -1, 0))
    sizes = sizes * (1 << trace.order[:until].astype(np.int64))
    pfn = trace.pfn[:until]
    for each in snapshot.zoneinfo.zones:
        index = machine.zone_index(each.node, each.name)
        if index < 0:
            raise UsageError(
                f"{snapshot.directory}: zone {each.name} of node {each.node} is not in the "
                "snapshot before the first event; take out the snapshot that is not of this "
                "recording"
            )
        zone = machine.zones[index]
        inside = (pfn >= zone.start_pfn) & (pfn < zone.end_pfn)
        listed = sum(pageset.count for pageset in each.pagesets)
        totals[index] = each.free + listed - int(sizes[inside].sum())
    tables = snapshot.pagetypeinfo
    if tables is None:
        return StartCounts(
            free_buddies=None, blocks=None, free_pages=totals, time_ns=snapshot.time_ns
        )
    buddies = np.zeros((nr_zones, at.ORDERS, at.MIGRATETYPES), np.int64)
    blocks = np.zeros((nr_zones, at.MIGRATETYPES), np.int64)
    types = list(tables.migratetypes)
    for row in tables.free_lists:
        zone = machine.zone_index(row.node, row.zone)
        buddies[zone, : len(row.buddies), types.index(row.migratetype)] = row.buddies
    for row in tables.pageblocks:
        blocks[machine.zone_index(row.node, row.zone), : len(row.blocks)] = row.blocks
    return StartCounts(
        free_buddies=buddies, blocks=blocks, free_pages=totals, time_ns=snapshot.time_ns
    )


def make_start_image(
    machine: Machine,
    demand: Demand,
    counts: StartCounts,
    page_flags: np.ndarray | None,
    listed_counts: np.ndarray,
    *,
    seed: int = 0,
) -> StartImage:
    """Combine the three sources (T10.6, T12.5).

    Pages first seen freed were allocated at the start; pages first seen allocated were free, in
    the buddy or, where kpageflags shows no flag on them, on the per-CPU list of the CPU that
    took them. Block types follow flags and are chosen so that they meet the snapshot's counts.

    Args:
        machine: zones and CPUs.
        demand: the recording's demand; only first touches are read.
        counts: what the image should meet.
        page_flags: kpageflags words, None if the recording has none.
        listed_counts: int64, shape (zones, cpus): pages on each CPU's lists.
        seed: for choices that nothing settles.
    """
    block_pages = 1 << machine.pageblock_order
    length = -(-machine.end_pfn // block_pages) * block_pages
    if page_flags is None:
        page_flags = seeded_page_flags(machine, demand, counts, seed)
        origin = ["no kpageflags: free pages are placed at random so that the start's counts fit"]
    else:
        origin = []
    words = np.full(length, flags.NOPAGE, np.uint64)
    known = min(len(page_flags), length)
    words[:known] = page_flags[:known]
    memory = (words & NOT_MEMORY) == 0
    buddy = memory & ((words & flags.BUDDY) != 0)
    free = buddy.copy()
    touched = np.zeros(length, bool)
    fresh = demand.objects[demand.fresh]
    at_start = demand.objects[demand.at_start]
    for pages in object_pages(fresh):
        free[pages] = True
        touched[pages] = True
    for pages in object_pages(at_start):
        free[pages] = False
        touched[pages] = True
    plain = memory & (words == 0) & in_used_blocks(free, words, machine.pageblock_order)
    first_refills = _first_refills(machine, demand, buddy, counts.time_ns)
    random = np.random.default_rng(seed)
    listed = _listed_pages(
        machine, demand, buddy, plain, touched, listed_counts, first_refills, random
    )
    for pages in object_pages(listed):
        free[pages] = False
    migratable = memory & ((words & MIGRATABLE) != 0)
    on_lists = np.zeros(length, bool)
    for pages in object_pages(listed):
        on_lists[pages] = True
    spare = [kind & ~touched & ~on_lists for kind in (plain, migratable)]
    block_types = assign_block_types(machine, counts, free, words, touched, seed=seed)
    origin += _meet_free_totals(machine, counts, free, touched, spare, listed, block_types)
    _settle_list_types(listed, block_types, machine.pageblock_order, first_refills)
    return StartImage(
        free=free,
        movable=migratable & ~free & ~on_lists,
        block_types=block_types,
        listed=listed,
        allocated_pfn=at_start["pfn"].astype(np.int32),
        allocated_order=at_start["order"].astype(np.int8),
        origin=tuple(origin),
    )


def object_pages(objects: np.ndarray) -> list[np.ndarray]:
    """Page frames of objects with `pfn` and `order`, one array per order that occurs."""
    found = []
    for order in np.unique(objects["order"]):
        first = objects["pfn"][objects["order"] == order].astype(np.int64)
        found.append((first[:, None] + np.arange(1 << int(order))).ravel())
    return found


def _listed_pages(
    machine: Machine,
    demand: Demand,
    buddy: np.ndarray,
    plain: np.ndarray,
    touched: np.ndarray,
    listed_counts: np.ndarray,
    first_refills: np.ndarray,
    random: np.random.Generator,
) -> np.ndarray:
    """Pages on per-CPU lists, head first: first touches by that CPU, then unused plain pages.

    Where these do not suffice, free ones follow: the lists have grown since the flags were read.
    """
    allocations = demand.events[demand.events["operation"] == at.ALLOC]
    fresh = demand.objects["fresh"][allocations["object"]] == 1
    allocations = allocations[fresh]
    pfn = demand.objects["pfn"][allocations["object"]].astype(np.int64)
    order = allocations["order"].astype(np.int64)
    eligible = ((order <= 3) | (order == PMD_ORDER)) & ~buddy[pfn]
    movable = (order == 0) & (allocations["migratetype"] == at.MOVABLE)
    pieces = []
    for index, zone in enumerate(machine.zones):
        if not zone.managed:
            continue
        span = slice(zone.start_pfn, zone.end_pfn)
        unknown, unused = (
            np.flatnonzero(pages[span] & ~touched[span]) + zone.start_pfn
            for pages in (plain, buddy)
        )
        spare = np.concatenate([random.permutation(unknown), unused])
        used = 0
        for cpu in range(machine.nr_cpus):
            wanted = int(listed_counts[index, cpu])
            late = movable & (allocations["time_ns"] > first_refills[index, cpu])
            mine = (
                eligible
                & ~late
                & (allocations["cpu"] == cpu)
                & (pfn >= zone.start_pfn)
                & (pfn < zone.end_pfn)
            )
            first = np.flatnonzero(mine)
            first = first[np.cumsum(1 << order[first]) <= wanted]
            missing = wanted - int((1 << order[first]).sum())
            cold = spare[used : used + missing]
            used += len(cold)
            records = np.zeros(len(first) + len(cold), LISTED)
            records["pfn"] = np.concatenate([pfn[first], cold])
            records["order"][: len(first)] = order[first]
            records["migratetype"][: len(first)] = allocations["migratetype"][first]
            records["migratetype"][len(first) :] = -1
            records["zone"] = index
            records["cpu"] = cpu
            pieces.append(records)
    return np.concatenate(pieces) if pieces else np.zeros(0, LISTED)


def _first_refills(
    machine: Machine, demand: Demand, buddy: np.ndarray, until_ns: int
) -> np.ndarray:
    """When each CPU's list of Movable pages was first refilled, hence had been empty.

    Until the start snapshot, a refill explains a first touch of a page that kpageflags shows in
    the buddy. Lists of other types are not judged: setting the recording up refills those after
    kpageflags was read.

    Returns:
        int64, shape (zones, cpus); NEVER where there was none by `until_ns`.
    """
    events = demand.events
    early = events[(events["operation"] == at.ALLOC) & (events["time_ns"] < until_ns)]
    early = early[(early["order"] == 0) & (early["migratetype"] == at.MOVABLE)]
    pfn = demand.objects["pfn"][early["object"]].astype(np.int64)
    refilled = (demand.objects["fresh"][early["object"]] == 1) & buddy[pfn]
    first = np.full((len(machine.zones), machine.nr_cpus), NEVER, np.int64)
    for index, zone in enumerate(machine.zones):
        mine = early[refilled & (pfn >= zone.start_pfn) & (pfn < zone.end_pfn)]
        np.minimum.at(first[index], mine["cpu"], mine["time_ns"])
    return first


def _settle_list_types(
    listed: np.ndarray, block_types: np.ndarray, pageblock_order: int, first_refills: np.ndarray
) -> None:
    """Give pages whose list no request named a list: that of their block's type (S4.6).

    A list of Movable pages that was empty early on cannot have held them; another did.
    """
    unnamed = np.flatnonzero(listed["migratetype"] < 0)
    types = block_types[listed["pfn"][unnamed] >> pageblock_order].astype(np.int64)
    types[types >= at.PCP_TYPES] = at.MOVABLE
    was_empty = first_refills[listed["zone"][unnamed], listed["cpu"][unnamed]] < NEVER
    types[was_empty & (types == at.MOVABLE)] = at.UNMOVABLE
    listed["migratetype"][unnamed] = types


def _meet_free_totals(
    machine: Machine,
    counts: StartCounts,
    free: np.ndarray,
    touched: np.ndarray,
    spare: list[np.ndarray],
    listed: np.ndarray,
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
        mine = listed[listed["zone"] == index]
        on_lists = int((1 << mine["order"].astype(np.int64)).sum())
        wanted = int(counts.free_pages[index]) - on_lists
        found = int(free[span].sum())
        if found > wanted:
            table = None if counts.free_buddies is None else counts.free_buddies[index]
            _take_buddies(machine, free, touched, zone, found - wanted, block_types, table)
        elif found < wanted:
            for kind in spare:
                missing = wanted - int(free[span].sum())
                pages = np.flatnonzero(kind[span] & ~free[span])[:missing] + zone.start_pfn
                free[pages] = True
        placed = int(free[span].sum())
        lines.append(
            f"{machine.zone_title(index)}: {placed} pages free in the buddy, {on_lists} on "
            f"per-CPU lists; the start snapshot asks for {wanted} in the buddy, page flags alone "
            f"gave {found}"
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
    pfns, orders = maximal_buddies(free, block_types, machine.pageblock_order, machine.max_order)
    inside = (pfns >= zone.start_pfn) & (pfns < zone.end_pfn)
    pfns, orders = pfns[inside], orders[inside].astype(np.int64)
    types = block_types[pfns >> machine.pageblock_order]
    touched_before = np.concatenate([[0], np.cumsum(touched)])
    used = touched_before[pfns + (1 << orders)] - touched_before[pfns]
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


def _clear(
    free: np.ndarray, touched: np.ndarray, firsts: np.ndarray, order: int, limit: int
) -> int:
    """Mark untouched pages of buddies allocated, up to a limit; returns how many."""
    span = (firsts.astype(np.int64)[:, None] + np.arange(1 << order)).ravel()
    span = span[~touched[span]][:limit]
    free[span] = False
    return len(span)
