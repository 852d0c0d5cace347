"""Evidence of the start: counts of snapshots, page flags, owners, first touches (T10.6).

Pageblocks get the types that this evidence speaks for, fitted to the counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator.state import maximal_buddies
from pagealloc_model.base.arrays import parts
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.jit import entry
from pagealloc_model.base.memo import Memo
from pagealloc_model.predicted.demand.compaction import recorded_compaction
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.predicted.growth import SECTION_ORDER
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.proc import pages as flags
from pagealloc_model.recording.proc.pages import PageOwner
from pagealloc_model.recording.snapshot import Snapshot
from pagealloc_model.recording.trace.columns import Event, Trace


@dataclass(frozen=True, kw_only=True, eq=False)
class StartCounts:
    """Counts of the state files at the start, as arrays.

    Attributes:
        free_buddies: int64, shape (zones, orders, migratetypes): of the snapshot whose free pages
            are nearer to `free_pages`, zone by zone; None without pagetypeinfo.
        other_buddies: the same of the other snapshot of the start.
        blocks: int64, shape (zones, migratetypes), of the same snapshots; None without
            pagetypeinfo.
        free_pages: int64, shape (zones,): free pages, those on per-CPU lists included.
        time_ns: when the start snapshot was taken.
    """

    free_buddies: np.ndarray | None
    other_buddies: np.ndarray | None
    blocks: np.ndarray | None
    free_pages: np.ndarray
    time_ns: int


def start_counts(
    machine: Machine, snapshot: Snapshot, trace: Trace, early: Snapshot | None = None
) -> StartCounts:
    """The start snapshot's counts, its free pages carried back to the first event.

    Setting a recording up allocates the ring buffers, so a snapshot from before the first event
    is off by them; the first one taken during the recording is not, and what was allocated,
    freed and taken by compaction until then is known. Free lists are those of the snapshot that is
    nearer in pages.

    Args:
        machine: zones and migratetypes.
        snapshot: the start snapshot; its zoneinfo is there.
        trace: the recording's events.
        early: the last one before the first event, if another one.

    Raises:
        UsageError: the snapshot has a zone that the machine has not.
    """
    totals = _free_pages(machine, snapshot)
    until = int(np.searchsorted(trace.time_ns, snapshot.time_ns))
    for part in parts(until):
        event, pfn = trace.event[part], trace.pfn[part]
        sizes = np.where(event == Event.FREE, 1, np.where(event == Event.ALLOC, -1, 0))
        sizes = sizes * (1 << trace.order[part].astype(np.int64))
        for index, zone in enumerate(machine.zones):
            inside = (pfn >= zone.start_pfn) & (pfn < zone.end_pfn)
            totals[index] -= int(sizes[inside].sum())
    taken = recorded_compaction(trace, machine).taken
    taken = taken[taken[:, 0] < snapshot.time_ns]
    np.add.at(totals, taken[:, 1], taken[:, 2])
    buddies, blocks = _typed_counts(machine, snapshot)
    others = buddies
    if early is not None and early.pagetypeinfo is not None:
        others, early_blocks = _typed_counts(machine, early)
        is_nearer = np.abs(_free_pages(machine, early) - totals) < np.abs(
            _free_pages(machine, snapshot) - totals
        )
        if buddies is None or blocks is None:
            buddies, blocks = others, early_blocks
        else:
            nearer = is_nearer[:, None, None]
            buddies, others = np.where(nearer, others, buddies), np.where(nearer, buddies, others)
            blocks = np.where(is_nearer[:, None], early_blocks, blocks)
    return StartCounts(
        free_buddies=buddies,
        other_buddies=others,
        blocks=blocks,
        free_pages=totals,
        time_ns=snapshot.time_ns,
    )


def _free_pages(machine: Machine, snapshot: Snapshot) -> np.ndarray:
    """Free pages by zone with those on per-CPU lists, int64, shape (zones,)."""
    totals = np.zeros(len(machine.zones), np.int64)
    for each in snapshot.zoneinfo.zones if snapshot.zoneinfo else ():
        index = machine.zone_index(each.node, each.name)
        if index < 0:
            raise UsageError(
                f"{snapshot.directory}: zone {each.name} of node {each.node} is not in the "
                "snapshot before the first event; take out the snapshot that is not of this "
                "recording"
            )
        totals[index] = each.free + sum(pageset.count for pageset in each.pagesets)
    return totals


def _typed_counts(
    machine: Machine, snapshot: Snapshot
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Free buddies and blocks by zone and type, None for what no file says.

    Only root may read pagetypeinfo: where there is buddyinfo alone, all buddies count as Movable.
    Where the kernel stopped counting a list, buddyinfo, which counts all types together, says how
    much it left out.
    """
    tables = snapshot.pagetypeinfo
    counted = snapshot.buddyinfo.zones if snapshot.buddyinfo else ()
    buddies = np.zeros((len(machine.zones), at.ORDERS, at.MIGRATETYPES), np.int64)
    if tables is None:
        for each in counted:
            zone = machine.zone_index(each.node, each.zone)
            buddies[zone, : len(each.free_buddies), at.MOVABLE] = each.free_buddies
        return buddies if snapshot.buddyinfo else None, None
    blocks = np.zeros((len(machine.zones), at.MIGRATETYPES), np.int64)
    capped = np.zeros(buddies.shape, bool)
    types = list(tables.migratetypes)
    for row in tables.free_lists:
        cell = machine.zone_index(row.node, row.zone), slice(len(row.buddies))
        buddies[(*cell, types.index(row.migratetype))] = row.buddies
        capped[(*cell, types.index(row.migratetype))] = row.lower_bound
    for row in tables.pageblocks:
        blocks[machine.zone_index(row.node, row.zone), : len(row.blocks)] = row.blocks
    for each in counted:
        zone = machine.zone_index(each.node, each.zone)
        for order in np.flatnonzero(capped[zone].any(axis=1)):
            left_out = each.free_buddies[order] - int(buddies[zone, order].sum())
            buddies[zone, order, np.argmax(capped[zone, order])] += max(left_out, 0)
    return buddies, blocks


def with_estimated_blocks(
    machine: Machine, counts: StartCounts, evidence: np.ndarray
) -> tuple[StartCounts, tuple[str, ...]]:
    """The counts with pageblocks by type where no pagetypeinfo counted them.

    A zone has as many as hold its managed pages. A block from which requests of one type take most
    of the pages that they are first to take is of that type; all others are Movable.

    Returns:
        The counts, and a line that says so, none where they were counted.
    """
    if counts.blocks is not None:
        return counts, ()
    order = machine.pageblock_order
    blocks = np.zeros((len(machine.zones), at.MIGRATETYPES), np.int64)
    for index, zone in enumerate(machine.zones):
        if not zone.managed:
            continue
        seen = evidence[:, zone.start_pfn >> order : -(-zone.end_pfn >> order)]
        types = np.argmax(seen, axis=0)[seen.any(axis=0)]
        total = min(
            -(-zone.managed >> order), -(-zone.end_pfn >> order) - (zone.start_pfn >> order)
        )
        blocks[index] = np.bincount(types, minlength=at.MIGRATETYPES)[: at.MIGRATETYPES]
        blocks[index, at.MOVABLE] += max(total - int(blocks[index].sum()), 0)
    note = (
        "ESTIMATED START: no pagetypeinfo, so pageblocks are as many as hold each zone's pages, "
        "of the type that first takes pages of theirs, else Movable"
    )
    return replace(counts, blocks=blocks), (note,)


def pageset_values(machine: Machine, snapshot: Snapshot | None, field: str) -> np.ndarray:
    """One value of every pageset, int64, shape (zones, cpus); 0 where there is none."""
    values = np.zeros((len(machine.zones), machine.nr_cpus), np.int64)
    shown = machine if snapshot is None else snapshot.zoneinfo
    for zone in shown.zones if shown else ():
        for pageset in zone.pagesets:
            if pageset.cpu < machine.nr_cpus:
                index = machine.zone_index(zone.node, zone.name)
                values[index, pageset.cpu] = getattr(pageset, field)
    return values


NOT_MEMORY = flags.NOPAGE | flags.RESERVED | flags.HWPOISON | flags.OFFLINE
MIGRATABLE = flags.LRU | flags.MMAP | flags.ANON
KERNEL_ONLY = flags.SLAB | flags.PGTABLE
NO_MEMORY = -1
"""Type of a block in a hole or not yet initialised: the kernel does not count it."""
UNKNOWN_TYPE = -2
"""Type of a block that page_owner says nothing about."""

_FLAG_OF_TYPE = {at.UNMOVABLE: flags.PGTABLE, at.MOVABLE: flags.LRU, at.RECLAIMABLE: flags.SLAB}


@dataclass(frozen=True, kw_only=True, eq=False)
class StartFiles:
    """Files that describe single pages just before recording; None where not recorded.

    Attributes:
        page_flags: kpageflags words by page frame (T12.5).
        page_flags_at_ns: when they were read, on the recording's clock.
        page_owner: live allocations (T12.7).
        heeds_parts: pages first seen in a larger piece than was free at the start count as taken.
    """

    page_flags: np.ndarray | None = None
    page_flags_at_ns: int | None = None
    page_owner: PageOwner | None = None
    heeds_parts: bool = False

    @property
    def known(self) -> bool:
        """True if any file says which pages were free."""
        return self.page_flags is not None or self.page_owner is not None


@dataclass(frozen=True, kw_only=True, eq=False)
class PageEvidence(Memo):
    """One element per page frame, unless said otherwise; length a multiple of a pageblock.

    Attributes:
        words: uint64, kpageflags words; made up from owners where only those are known.
        buddy: bool, in a free buddy when the files were read.
        touched: bool, some event is about it.
        free: bool, free at the first event: in a buddy and not allocated then, or first seen
            allocated; those on per-CPU lists included as far as the events name them.
        taken: bool, first seen allocated, as pages of a larger piece too that others of its pages
            were seen in use before.
        plain: bool, memory without flag, owner or event: on a per-CPU list, or held by the kernel.
        migratable: bool, allocated memory that can be migrated (T10.9).
        owned: bool, page_owner knows its allocation and no event touches it.
        inside: bool, in a block that holds memory.
        block_types: int8, one per pageblock: exact types from page_owner, else UNKNOWN_TYPE.
        memory_blocks: per zone, numbers of the pageblocks that hold memory, ascending.
    """

    words: np.ndarray
    buddy: np.ndarray
    touched: np.ndarray
    free: np.ndarray
    taken: np.ndarray
    plain: np.ndarray
    migratable: np.ndarray
    owned: np.ndarray
    inside: np.ndarray
    block_types: np.ndarray
    memory_blocks: tuple[np.ndarray, ...]


def pages_of(pfn: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Page frames, int64, of runs with first pages and orders; orders one after the other."""
    pages = [np.zeros(0, np.int64)]
    for each in np.unique(order):
        first = pfn[order == each].astype(np.int64)
        pages.append((first[:, None] + np.arange(1 << int(each))).ravel())
    return np.concatenate(pages)


def page_mask(length: int, objects: np.ndarray) -> np.ndarray:
    """Mask of page frames in one of some objects, which have `pfn` and `order`."""
    mask = np.zeros(length, bool)
    mask[pages_of(objects["pfn"], objects["order"])] = True
    return mask


def frame_count(machine: Machine) -> int:
    """Page frames of the machine, filled up to a whole pageblock."""
    return -(-machine.end_pfn >> machine.pageblock_order) << machine.pageblock_order


def gather_evidence(
    machine: Machine, demand: Demand, counts: StartCounts, files: StartFiles
) -> PageEvidence:
    """Combine page flags, owners and first touches.

    Pages first seen freed were allocated at the start, pages first seen allocated were free.
    Without page flags, what no allocation owns is free.
    """
    length, order = frame_count(machine), machine.pageblock_order
    owner = files.page_owner
    owned, owners_words = np.zeros(length, bool), np.zeros(length, np.uint64)
    block_types = np.full(length >> order, UNKNOWN_TYPE, np.int8)
    if owner is not None:
        types = owner.types_as(machine.migratetypes, owner.migratetype)
        exact = owner.types_as(machine.migratetypes, owner.block_migratetype)
        inside = owner.pfn + (np.int64(1) << owner.order.astype(np.int64)) <= length
        for migratetype, flag in _FLAG_OF_TYPE.items():
            of_type = inside & (types == migratetype)
            pages = pages_of(owner.pfn[of_type], owner.order[of_type])
            owned[pages], owners_words[pages] = True, flag
        known = inside & (exact >= 0)
        block_types[owner.pfn[known] >> order] = exact[known]
    words = np.full(length, flags.NOPAGE, np.uint64)
    if files.page_flags is None:
        for zone in machine.zones:
            if zone.managed:
                words[zone.start_pfn : zone.end_pfn] = flags.BUDDY
        words = np.where(owned, owners_words, words)
    else:
        end = min(len(files.page_flags), length)
        words[:end] = files.page_flags[:end]
        words = np.where(owned & (words == 0), owners_words, words)
    memory = (words & NOT_MEMORY) == 0
    buddy = memory & ((words & flags.BUDDY) != 0) & ~owned
    fresh, held = (
        page_mask(length, demand.objects[numbers]) for numbers in (demand.fresh, demand.at_start)
    )
    touched = fresh | held
    free = (buddy | fresh) & ~held
    blocks = memory_blocks(machine, counts, blocks_seen(machine, demand, files))
    in_memory = np.zeros(len(block_types), bool)
    in_memory[np.concatenate(blocks)] = True
    block_types[~in_memory] = NO_MEMORY
    inside = np.repeat(in_memory, 1 << order)
    free &= inside
    taken = free & touched
    if files.heeds_parts:
        taken = first_seen_allocated(demand.objects, length)
    return PageEvidence(
        words=words,
        buddy=buddy,
        touched=touched,
        free=free,
        taken=taken,
        plain=inside & memory & (words == 0) & ~owned & ~touched,
        migratable=memory & ((words & MIGRATABLE) != 0),
        owned=owned & ~touched,
        inside=inside,
        block_types=block_types,
        memory_blocks=blocks,
    )


def first_seen_allocated(objects: np.ndarray, length: int) -> np.ndarray:
    """Mask of the page frames whose first event is an allocation."""
    nobody = len(objects)
    first = np.full(length, nobody, np.int64)
    for part in parts(len(objects)):
        orders = objects["order"][part]
        for order in np.unique(orders):
            # The first object of a page is written last.
            numbers = np.flatnonzero(orders == order)[::-1] + part.start
            places = objects["pfn"][numbers].astype(np.int64)
            for page in range(1 << int(order)):
                is_first = numbers < first[places + page]
                first[places[is_first] + page] = numbers[is_first]
    seen = first < nobody
    taken = np.zeros(length, bool)
    taken[seen] = objects["kind"][first[seen]] == resolved.RECORDED
    return taken


@dataclass(frozen=True, kw_only=True, eq=False)
class BlocksSeen:
    """Pageblocks about which something is known, bool masks by their number.

    Attributes:
        shown: a file shows a page of it free or in use.
        touched: an event is about a page of it.
    """

    shown: np.ndarray
    touched: np.ndarray


def blocks_seen(machine: Machine, demand: Demand, files: StartFiles) -> BlocksSeen:
    """What events and files tell of pageblocks; no array here is as long as the page frames are."""
    shown = _blocks_shown(machine, files)
    touched = np.zeros(len(shown), bool)
    for numbers in (demand.fresh, demand.at_start):
        _mark_blocks(touched, demand.objects[numbers], machine.pageblock_order)
    return BlocksSeen(shown=shown, touched=touched)


def _blocks_shown(machine: Machine, files: StartFiles) -> np.ndarray:
    """Mask of the pageblocks of which a file shows a page free or in use.

    Without page flags, what no allocation owns is free.
    """
    length, order, owner = frame_count(machine), machine.pageblock_order, files.page_owner
    shown = np.zeros(length >> order, bool)
    if owner is not None:
        known = owner.types_as(machine.migratetypes, owner.migratetype)
        inside = owner.pfn + (np.int64(1) << owner.order.astype(np.int64)) <= length
        inside &= np.isin(known, list(_FLAG_OF_TYPE))
        _mark_blocks(shown, {"pfn": owner.pfn[inside], "order": owner.order[inside]}, order)
    if files.page_flags is not None and len(files.page_flags):
        flagged = (files.page_flags[:length] & ~flags.NOPAGE) != 0
        by_block = np.logical_or.reduceat(flagged, np.arange(0, len(flagged), 1 << order))
        shown[: len(by_block)] |= by_block
    elif owner is not None:
        for zone in machine.zones:
            if zone.managed:
                shown[zone.start_pfn >> order : -(-zone.end_pfn >> order)] = True
    return shown


SPAN_BEHIND = 4
"""Times what is known of a zone at the start: so far it may span."""


def with_known_span(
    machine: Machine, trace: Trace, snapshots: Iterable[Snapshot], files: StartFiles
) -> Machine:
    """The machine, no zone much longer than what is known of it.

    What files show and counts of pageblocks name ends somewhere (see `memory_blocks`). Memory that
    is initialised or plugged later lies behind that: as `SPAN_BEHIND` says, or up to the last
    section that an event touches. What a zone spans behind that needs no arrays.
    """
    order, shown = machine.pageblock_order, _blocks_shown(machine, files)
    counts = [_typed_counts(machine, each)[1] for each in snapshots]
    counted = [each.sum(axis=1) for each in counts if each is not None]
    ends = {}
    for index, zone in enumerate(machine.zones):
        first, last = zone.start_pfn >> order, -(-zone.end_pfn >> order)
        blocks = max((int(each[index]) for each in counted), default=0)
        if not counted and not files.known:
            blocks = -(-zone.managed >> order)
        blocks = max(blocks, int(np.flatnonzero(shown[first:last]).max(initial=0)) + 1)
        blocks *= SPAN_BEHIND
        if zone.managed and first + blocks < last:
            ends[index] = (first + blocks) << order
    if not ends:
        return machine
    for part in parts(len(trace)):
        wanted = trace.event[part] <= Event.FREE
        orders = np.clip(trace.order[part][wanted].astype(np.int64), 0, machine.max_order)
        pfn = trace.pfn[part][wanted]
        for index in ends:
            zone = machine.zones[index]
            inside = (pfn >= zone.start_pfn) & (pfn < zone.end_pfn)
            behind = pfn[inside] + (np.int64(1) << orders[inside])
            ends[index] = int(behind.max(initial=ends[index]))
    zones = list(machine.zones)
    for index, end in ends.items():
        end = min(-(-end >> SECTION_ORDER) << SECTION_ORDER, zones[index].end_pfn)
        zones[index] = replace(zones[index], spanned=end - zones[index].start_pfn)
    return replace(machine, zones=tuple(zones))


def _mark_blocks(
    mask: np.ndarray, runs: np.ndarray | dict[str, np.ndarray], pageblock_order: int
) -> None:
    """Mark the pageblocks with a page of some runs, which have `pfn` and `order`."""
    first, size = runs["pfn"].astype(np.int64), np.int64(1) << runs["order"].astype(np.int64)
    begins = np.bincount(first >> pageblock_order, minlength=len(mask))
    ends = np.bincount((first + size - 1) >> pageblock_order, minlength=len(mask))
    mask |= (np.cumsum(begins) - np.cumsum(ends) + ends > 0)[: len(mask)]


def first_taken_types(machine: Machine, demand: Demand) -> np.ndarray:
    """Pages that requests of each type take first, int64, shape (migratetypes, pageblocks)."""
    taken = np.zeros((at.MIGRATETYPES, frame_count(machine) >> machine.pageblock_order), np.int64)
    firsts = demand.first_allocations
    blocks = demand.objects["pfn"][firsts["object"]].astype(np.int64) >> machine.pageblock_order
    np.add.at(taken, (firsts["migratetype"].astype(np.int64), blocks), 1)
    return taken


def start_has_memory(
    machine: Machine, demand: Demand, counts: StartCounts, files: StartFiles
) -> np.ndarray:
    """Mask of the pageblocks that have memory at the start, found without a look at single pages.

    The start image's blocks of a known type are the same.
    """
    if not files.known:
        counts, _ = with_estimated_blocks(machine, counts, first_taken_types(machine, demand))
    has_memory = np.zeros(frame_count(machine) >> machine.pageblock_order, bool)
    has_memory[
        np.concatenate(memory_blocks(machine, counts, blocks_seen(machine, demand, files)))
    ] = True
    return has_memory


def memory_blocks(
    machine: Machine, counts: StartCounts, seen: BlocksSeen
) -> tuple[np.ndarray, ...]:
    """Per zone, the numbers of the pageblocks that hold memory, ascending.

    Those that show it, those that events touch, and the lowest others, up to what is counted.
    Flags alone do not tell a block of plain kernel pages from a hole or from memory whose
    initialisation was deferred, which lies at the zone's end. What does not fit the count had no
    memory yet. Without pagetypeinfo, blocks that show a free or flagged page.
    """
    order, shown = machine.pageblock_order, seen.shown
    used = shown | seen.touched
    by_zone = []
    for index, zone in enumerate(machine.zones):
        blocks = np.arange(zone.start_pfn >> order, -(-zone.end_pfn >> order))
        if not zone.managed:
            blocks = blocks[:0]
        elif counts.blocks is None:
            blocks = blocks[used[blocks]]
        else:
            sure = blocks[shown[blocks]]
            others = [blocks[used[blocks] & ~shown[blocks]], blocks[~used[blocks]]]
            room = max(int(counts.blocks[index].sum()) - len(sure), 0)
            blocks = np.sort(np.concatenate([sure, np.concatenate(others)[:room]]))
        by_zone.append(blocks)
    return tuple(by_zone)


def _count_per_block(mask: np.ndarray, pageblock_order: int) -> np.ndarray:
    """Return for each pageblock how many of its pages a mask names, int64."""
    return mask.reshape(-1, 1 << pageblock_order).sum(axis=1).astype(np.int64)


SWAPS = 4000
SUBSET_STARTS = 8


def assign_block_types(
    machine: Machine,
    counts: StartCounts,
    evidence: PageEvidence,
    free: np.ndarray,
    on_movable_lists: np.ndarray,
    *,
    seed: int,
) -> np.ndarray:
    """Give each pageblock a type so that the snapshot's counts are met.

    Blocks whose type page_owner names keep it. The others are ranked by evidence (slab pages speak
    for Reclaimable or Unmovable, migratable and free pages for Movable) and dealt out to the counts
    of pagetypeinfo; random swaps then bring free buddies by order and type closer to the snapshot's
    table. HighAtomic blocks, whose free pages ordinary requests leave alone, are those that add up
    to the table's row. Blocks of a buddy larger than a pageblock share a type, which merging saw to
    (S5.3): the most common one.

    Returns:
        int8, one type per pageblock; NO_MEMORY where the kernel counts none.
    """
    order = machine.pageblock_order
    types = evidence.block_types.copy()
    types[types < NO_MEMORY] = at.MOVABLE
    if counts.blocks is None:
        return types
    slab = _count_per_block((evidence.words & flags.SLAB) != 0, order)
    migratable = _count_per_block(evidence.migratable | on_movable_lists, order)
    kernel = _count_per_block(~free, order) - migratable - slab
    random = np.random.default_rng(seed)
    pfns, orders = maximal_buddies(free, types, order, machine.max_order)
    # free buddies of each block by order; blocks in larger ones
    shapes = np.zeros((len(types), order + 1), np.int64)
    small = orders <= order
    np.add.at(shapes, (pfns[small] >> order, orders[small].astype(np.int64)), 1)
    larger = pages_of(pfns[~small] >> order, orders[~small] - order)
    in_larger = np.zeros(len(types), bool)
    in_larger[larger] = True
    for zone in machine.zones:
        if zone.managed:
            types[zone.start_pfn >> order : -(-zone.end_pfn >> order)] = NO_MEMORY
    for index, blocks in enumerate(evidence.memory_blocks):
        exact = evidence.block_types[blocks]
        types[blocks] = np.maximum(exact, -1)
        types[blocks[(exact < 0) & in_larger[blocks]]] = at.MOVABLE
        known = blocks[types[blocks] >= 0]
        blocks = blocks[(exact < 0) & ~in_larger[blocks]]
        if not len(blocks):
            continue
        counted = np.bincount(exact[exact >= 0].astype(np.int64), minlength=at.MIGRATETYPES)
        wanted = np.maximum(counts.blocks[index] - counted[: at.MIGRATETYPES], 0)
        # free buddies by type and order that blocks of known type do not have
        target = np.zeros((at.MIGRATETYPES, order + 1), np.int64)
        if counts.free_buddies is not None:
            target += counts.free_buddies[index, : order + 1].T
            np.subtract.at(target, types[known].astype(np.int64), shapes[known])
        zone_types = np.full(len(blocks), at.MOVABLE, np.int8)
        if wanted[at.HIGHATOMIC] and counts.free_buddies is not None:
            reserved = min(int(wanted[at.HIGHATOMIC]), len(blocks))
            chosen = _best_subset(shapes[blocks], target[at.HIGHATOMIC], reserved, random)
            zone_types[chosen] = at.HIGHATOMIC
        scores = {
            at.RECLAIMABLE: slab[blocks] * 2 - migratable[blocks] - kernel[blocks],
            at.UNMOVABLE: slab[blocks] + kernel[blocks] - migratable[blocks],
        }
        for migratetype, score in scores.items():
            ranked = np.argsort(-score, kind="stable")
            ranked = ranked[zone_types[ranked] == at.MOVABLE]
            zone_types[ranked[: int(wanted[migratetype])]] = migratetype
        if counts.free_buddies is not None:
            _swap_towards(zone_types, shapes[blocks], target[: at.PCP_TYPES], random)
        types[blocks] = zone_types
    return types


def _best_subset(
    shapes: np.ndarray, target: np.ndarray, size: int, random: np.random.Generator
) -> np.ndarray:
    """The `size` blocks whose free buddies by order add up closest to `target`.

    Steepest descent over exchanges of one block, from several random beginnings.
    """
    best, best_cost = np.arange(size), np.inf
    for _ in range(SUBSET_STARTS):
        chosen = random.choice(len(shapes), size, replace=False)
        cost = np.inf
        while True:
            gap = shapes[chosen].sum(axis=0) - target
            trials = gap[None, None, :] - shapes[chosen][:, None, :] + shapes[None, :, :]
            costs = np.abs(trials).sum(axis=2)
            costs[:, chosen] = np.iinfo(np.int64).max
            out, into = np.unravel_index(int(np.argmin(costs)), costs.shape)
            if costs[out, into] >= cost:
                break
            cost = costs[out, into]
            chosen[out] = into
        if cost < best_cost:
            best, best_cost = chosen, cost
    return best


def _swap_towards(
    types: np.ndarray, shapes: np.ndarray, target: np.ndarray, random: np.random.Generator
) -> None:
    """Swap types of pairs of blocks while that brings free buddies by type and order closer."""
    gaps = -target
    ordinary = types < at.PCP_TYPES
    np.add.at(gaps, types[ordinary].astype(np.int64), shapes[ordinary])
    rare = np.flatnonzero(ordinary & (types != at.MOVABLE))
    partial = np.flatnonzero(ordinary & (shapes.any(axis=1) | (types != at.MOVABLE)))
    if not len(rare) or len(partial) < 2:
        return
    lefts = random.choice(rare, SWAPS)
    rights = random.choice(partial, SWAPS)
    pages = 1 << np.arange(shapes.shape[1])
    changes = (shapes[rights] - shapes[lefts]) * pages
    swap_closer(types, lefts, rights, changes, np.ascontiguousarray(gaps * pages))


@entry
def swap_closer(
    types: np.ndarray, lefts: np.ndarray, rights: np.ndarray, changes: np.ndarray, off: np.ndarray
) -> None:
    """Swap types of pairs where free pages by type and order come closer.

    Args:
        types: int8 per block of the zone, changed in place.
        lefts: int64: blocks.
        rights: int64, as long: others.
        changes: int64, shape (pairs, orders): pages that the left one's type gains by a swap.
        off: int64, shape (types, orders): pages that each type has too many; changed.
    """
    for pair in range(len(lefts)):
        a, b = int(types[lefts[pair]]), int(types[rights[pair]])
        if a == b:
            continue
        closer = 0
        for order in range(changes.shape[1]):
            change = changes[pair, order]
            closer += abs(off[a, order]) - abs(off[a, order] + change)
            closer += abs(off[b, order]) - abs(off[b, order] - change)
        if closer > 0:
            for order in range(changes.shape[1]):
                off[a, order] += changes[pair, order]
                off[b, order] -= changes[pair, order]
            types[lefts[pair]], types[rights[pair]] = b, a
