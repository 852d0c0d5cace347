"""Free buddies placed so that the start snapshot's counts are met, and pages on per-CPU lists.

A page on such a list shows no flag (T12.5), like a plain kernel allocation. Where such pages lie
tells the two apart: kernel allocations do not lie in blocks of page cache and anonymous memory, and
a whole unflagged block is a freed huge page rather than one request of the kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import LISTED, maximal_buddies
from pagealloc_model.policy.policy import PCP_BATCH_SCALE_MAX
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.predicted.start.evidence import (
    KERNEL_ONLY,
    PageEvidence,
    StartCounts,
    page_mask,
)
from pagealloc_model.recording.machine import PMD_ORDER, Machine
from pagealloc_model.recording.proc import pages as flags

_SIZES = np.int64(1) << np.arange(at.ORDERS)


def place_exactly(
    usable: np.ndarray,
    preferred: np.ndarray,
    memory: np.ndarray,
    evidence: np.ndarray,
    wanted: np.ndarray,
    blocks: np.ndarray,
    pageblock_order: int,
    max_order: int,
    random: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Choose free pages whose maximal buddies are those wanted, from the largest order down.

    A node is an aligned run of pages. An open node holds a page that is not free, so that no two
    free halves can merge; each open node therefore gives room to one free half at most.

    Args:
        usable: bool per page frame: may be free.
        preferred: per page frame: how much speaks for its being free.
        memory: bool per pageblock: has memory.
        evidence: int64, shape (migratetypes, blocks): how much speaks for each type.
        wanted: int64, shape (orders, migratetypes).
        blocks: int64 by migratetype: pageblocks.
        pageblock_order: of a pageblock.
        max_order: of the largest buddy; the arrays begin and end at a multiple of it.
        random: decides what nothing else does.

    Returns:
        bool per page frame: free; int8 per pageblock: its type, -1 where there is no memory; int64,
        shape (orders, migratetypes): buddies that found no room at their order and were put into
        halves.
    """
    wanted, unmet = wanted.copy(), np.zeros_like(wanted)
    free, preferred = np.zeros(len(usable), bool), preferred.astype(np.int8)

    def score_of(nodes: np.ndarray, order: int) -> np.ndarray:
        """Weight of nodes, given by their number; -1 where one cannot be free."""
        fits = usable.reshape(-1, 1 << order)[nodes].all(axis=-1)
        known = preferred.reshape(-1, 1 << order)[nodes].sum(axis=-1, dtype=np.int64)
        return np.where(fits, known + random.random(nodes.shape), -1.0)

    def place(starts: np.ndarray, score: np.ndarray, order: int, kinds: np.ndarray) -> np.ndarray:
        """Free the best nodes, one for each kind; what finds no room is placed as halves."""
        able = np.flatnonzero(score >= 0) if len(kinds) else np.zeros(0, np.int64)
        chosen = starts[able[np.argsort(-score[able], kind="stable")[: len(kinds)]]]
        free.reshape(-1, 1 << order)[chosen >> order] = True
        missing = np.bincount(kinds[len(chosen) :], minlength=at.MIGRATETYPES)
        unmet[order] += missing
        if order > 0:
            wanted[order - 1] += 2 * missing
        return chosen

    def better_halves(parents: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
        """The better half of each open node, and how much speaks for it."""
        lower = parents >> order
        halves = np.stack([lower, lower + 1])
        score = score_of(halves, order)
        best = score.argmax(axis=0), np.arange(len(parents))
        return halves[best] << order, score[best]

    types = np.full(len(memory), -1, np.int8)
    left = blocks.astype(np.int64).copy()
    parents = np.arange(0, len(usable), 1 << max_order)
    for order in range(max_order, pageblock_order - 1, -1):
        if order == max_order:
            starts, children = parents, parents
            score = score_of(parents >> order, order)
        else:
            starts, score = better_halves(parents, order)
            children = np.concatenate([parents, parents + (1 << order)])
        kinds = np.repeat(np.arange(at.MIGRATETYPES), wanted[order])
        chosen = place(starts, score, order, kinds)
        kinds, width = kinds[: len(chosen)], 1 << (order - pageblock_order)
        of_blocks = ((chosen >> pageblock_order)[:, None] + np.arange(width)).ravel()
        types[of_blocks] = np.repeat(kinds, width)
        left -= np.bincount(kinds, minlength=at.MIGRATETYPES) * width
        parents = np.setdiff1d(children, chosen, assume_unique=True)
    open_blocks = parents[memory[parents >> pageblock_order]] >> pageblock_order
    room = usable.reshape(-1, 1 << pageblock_order).sum(axis=1)[open_blocks]
    needed = (wanted[:pageblock_order] * _SIZES[:pageblock_order, None]).sum(axis=0)
    types[open_blocks] = _dealt_types(evidence[:, open_blocks], room, left, needed, random)
    for migratetype in range(at.MIGRATETYPES):
        parents = open_blocks[types[open_blocks] == migratetype] << pageblock_order
        for order in range(pageblock_order - 1, -1, -1):
            kinds = np.full(int(wanted[order, migratetype]), migratetype)
            chosen = place(*better_halves(parents, order), order, kinds)
            children = np.concatenate([parents, parents + (1 << order)])
            parents = np.setdiff1d(children, chosen, assume_unique=True)
    return free, types, unmet


def _dealt_types(
    evidence: np.ndarray,
    room: np.ndarray,
    left: np.ndarray,
    needed: np.ndarray,
    random: np.random.Generator,
) -> np.ndarray:
    """Types of blocks, int8: each type goes to the blocks for which most speaks; rest Movable.

    As few as possible of these, the last first, make way for blocks in which the type's free pages
    fit: what is full speaks most for a type, and yet has no room for the pages it has free.
    No page's use speaks for HighAtomic, whose pages are mostly free: it goes where there is room.
    """
    nr_blocks = evidence.shape[1]
    types = np.full(nr_blocks, at.MOVABLE, np.int8)
    dealt = np.zeros(nr_blocks, bool)
    for migratetype in np.argsort(left, kind="stable"):
        if migratetype == at.MOVABLE or left[migratetype] <= 0:
            continue
        score = evidence[migratetype] - evidence[at.MOVABLE] + random.random(nr_blocks)
        if migratetype >= at.PCP_TYPES:
            score = room + random.random(nr_blocks)
        ranked = np.argsort(-score, kind="stable")
        ranked = ranked[~dealt[ranked]]
        best, others = np.split(ranked, [int(left[migratetype])])
        others = others[np.argsort(-room[others], kind="stable")]
        most = min(len(best), len(others))
        kept = np.concatenate([[0], np.cumsum(room[best])])[len(best) - np.arange(most + 1)]
        total = kept + np.concatenate([[0], np.cumsum(room[others[:most]])])
        enough = np.flatnonzero(total >= int(needed[migratetype]))
        changed = int(enough[0]) if len(enough) else int(np.argmax(total))
        chosen = np.concatenate([best[: len(best) - changed], others[:changed]])
        types[chosen] = migratetype
        dealt[chosen] = True
    return types


def wanted_buddies(
    machine: Machine, counts: StartCounts, zone: int, on_lists: int
) -> tuple[np.ndarray, str]:
    """Free buddies at the first event, int64, shape (orders, migratetypes), and how they were had.

    What the snapshot's free lists have too few or too many is given to, or taken from, Movable
    buddies: those by which the other snapshot of the start differs, large ones first, then the
    largest. `on_lists` are pages on the zone's per-CPU lists.
    """
    name = machine.zone_title(zone)
    free_pages = int(counts.free_pages[zone]) - on_lists
    wanted = np.zeros((at.ORDERS, at.MIGRATETYPES), np.int64)
    if counts.free_buddies is None or counts.other_buddies is None:
        _change_by(wanted[:, at.MOVABLE], free_pages, machine.max_order)
        return wanted, f"{name}: {free_pages} free pages, their orders unknown: large ones"
    wanted = counts.free_buddies[zone].copy()
    movable = wanted[:, at.MOVABLE]
    missing = free_pages - int((wanted.sum(axis=1) * _SIZES).sum())
    difference = counts.other_buddies[zone, :, at.MOVABLE] - movable
    sign, left = 1 if missing >= 0 else -1, abs(missing)
    for order in range(len(movable) - 1, -1, -1):
        moved = min(max(sign * int(difference[order]), 0), left >> order)
        movable[order] += sign * moved
        left -= moved << order
    _change_by(movable, sign * left, machine.max_order)
    return wanted, (
        f"{name}: {free_pages} pages free in the buddy, {on_lists} on per-CPU lists; "
        f"{abs(missing)} pages {'more' if missing >= 0 else 'fewer'} in the buddy than the nearest "
        "snapshot's free lists show, put into or taken from Movable ones"
    )


def _change_by(buddies: np.ndarray, pages: int, max_order: int) -> None:
    """Add pages to, or take them from, buddies by order, the largest first; in place."""
    for order in range(max_order, -1, -1):
        if pages > 0:
            buddies[order] += pages >> order
            pages &= (1 << order) - 1
        elif pages < 0:
            taken = min(int(buddies[order]), -(pages >> order))
            buddies[order] -= taken
            pages += taken << order
            if pages > 0:
                _change_by(buddies, pages, max_order)
                return


def place_zone(
    machine: Machine,
    counts: StartCounts,
    index: int,
    on_lists: int,
    *,
    usable: np.ndarray,
    preferred: np.ndarray,
    blocks: np.ndarray,
    evidence: np.ndarray,
    free: np.ndarray,
    block_types: np.ndarray,
    random: np.random.Generator,
) -> list[str]:
    """Place one zone's free buddies by the counts; how they were had, and which counts are met."""
    wanted, note = wanted_buddies(machine, counts, index, on_lists)
    zone, order, step = machine.zones[index], machine.pageblock_order, 1 << machine.max_order
    first, last = zone.start_pfn // step * step, -(-zone.end_pfn // step) * step
    first_block = first >> order
    memory = np.zeros((last - first) >> order, bool)
    memory[blocks - first_block] = True

    def span_of(mask: np.ndarray) -> np.ndarray:
        part = mask[first:last]
        return np.concatenate([part, np.zeros(last - first - len(part), mask.dtype)])

    frames = np.arange(first, last)
    inside = (frames >= zone.start_pfn) & (frames < zone.end_pfn)
    inside &= np.repeat(memory, 1 << order) & span_of(usable)
    block_counts = memory.sum() * (np.arange(at.MIGRATETYPES) == at.MOVABLE)
    near = np.zeros((at.MIGRATETYPES, len(memory)), np.int64)
    known = evidence[:, first_block : last >> order]
    near[:, : known.shape[1]] = known
    placed, placed_types, unmet = place_exactly(
        inside,
        span_of(preferred),
        memory,
        near,
        wanted,
        block_counts if counts.blocks is None else counts.blocks[index],
        order,
        machine.max_order,
        random,
    )
    end = min(last, len(free))
    free[first:end] |= placed[: end - first]
    types = placed_types[: (end >> order) - first_block]
    block_types[first_block : end >> order][types >= 0] = types[types >= 0]
    off = []
    if unmet.any():
        split, lost = int((unmet.sum(axis=1) * _SIZES)[1:].sum()), int(unmet[0].sum())
        off.append(f"{split} pages found no room at their order, {lost} none at all")
    if counts.blocks is not None:
        types = placed_types[placed_types >= 0].astype(np.int64)
        by_type = np.bincount(types, minlength=at.MIGRATETYPES)
        others = int(np.abs(by_type - counts.blocks[index]).sum()) // 2
        if others:
            off.append(f"{others} pageblocks have another type than counted")
    name, total = machine.zone_title(index), int(wanted.sum())
    met = f"{name}: {total} free buddies by order and type, and blocks by type: all met"
    if off:
        met = f"{name}: of {total} free buddies by order and type, {'; '.join(off)}"
    return [note, met]


TOO_OLD = 0.01
"""Share of a zone's free pages in another cell of the table than in the snapshot."""


def place_where_flags_are_old(
    machine: Machine,
    counts: StartCounts,
    evidence: PageEvidence,
    on_lists: np.ndarray,
    listed_pages: np.ndarray,
    free: np.ndarray,
    block_types: np.ndarray,
    *,
    seed: int,
) -> list[str]:
    """Place a zone's free buddies by the counts if following its flags misses them; say so.

    A zone whose memory was mostly allocated or freed after the flags were read looks in the image
    as it did then: pages that flags or first touches show free come before others.
    """
    if counts.free_buddies is None:
        return []
    lines: list[str] = []
    random = np.random.default_rng(seed)
    shares = misplaced(machine, counts, listed_pages, free, block_types)
    if not (shares > TOO_OLD).any():
        return lines
    fresh = evidence.touched & evidence.free
    usable = ~on_lists & ~evidence.owned & (fresh | ~evidence.touched)
    usable &= (evidence.words & (KERNEL_ONLY | flags.HUGE | flags.RESERVED | flags.NOPAGE)) == 0
    weight = 2 * (fresh | evidence.taken).astype(np.int64) + evidence.free
    # pages that speak for each type of a block, shape (migratetypes, blocks)
    pages = 1 << machine.pageblock_order
    masks = (evidence.words & flags.SLAB != 0, evidence.plain, evidence.migratable | evidence.free)
    slab, plain, movable = (mask.reshape(-1, pages).sum(axis=1) for mask in masks)
    types = np.zeros((at.MIGRATETYPES, len(slab)), np.int64)
    types[at.UNMOVABLE], types[at.RECLAIMABLE], types[at.MOVABLE] = slab + plain, 2 * slab, movable
    for migratetype in range(at.MIGRATETYPES):
        types[migratetype][evidence.block_types == migratetype] += 4 * pages
    for index in np.flatnonzero(shares > TOO_OLD).tolist():
        zone = machine.zones[index]
        free[zone.start_pfn : zone.end_pfn] = False
        lines.append(
            f"{machine.zone_title(index)}: what page flags show is too old, "
            f"{100 * shares[index]:.0f} % of its free pages would stand in another cell of order "
            "and type than the counts ask for; placed by the counts instead"
        )
        lines += place_zone(
            machine,
            counts,
            index,
            int(listed_pages[index]),
            usable=usable,
            preferred=weight,
            blocks=evidence.memory_blocks[index],
            evidence=types,
            free=free,
            block_types=block_types,
            random=random,
        )
    return lines


def buddy_table(machine: Machine, free: np.ndarray, block_types: np.ndarray) -> np.ndarray:
    """Free buddies of an image, int64, shape (zones, orders, migratetypes)."""
    pfns, orders = maximal_buddies(free, block_types, machine.pageblock_order, machine.max_order)
    types = block_types[pfns >> machine.pageblock_order].astype(np.int64)
    table = np.zeros((len(machine.zones), at.ORDERS, at.MIGRATETYPES), np.int64)
    for index, zone in enumerate(machine.zones):
        inside = (pfns >= zone.start_pfn) & (pfns < zone.end_pfn) & (types >= 0)
        np.add.at(table[index], (orders[inside].astype(np.int64), types[inside]), 1)
    return table


def misplaced(
    machine: Machine,
    counts: StartCounts,
    listed_pages: np.ndarray,
    free: np.ndarray,
    block_types: np.ndarray,
) -> np.ndarray:
    """Share of each zone's free pages that are in another cell than counted, shape (zones,)."""
    table = buddy_table(machine, free, block_types)
    shares = np.zeros(len(machine.zones))
    for index, zone in enumerate(machine.zones):
        if zone.managed:
            wanted, _ = wanted_buddies(machine, counts, index, int(listed_pages[index]))
            off = int((np.abs(table[index] - wanted).sum(axis=1) * _SIZES).sum()) / 2
            shares[index] = off / max(int((wanted.sum(axis=1) * _SIZES).sum()), 1)
    return shares


NEVER = np.iinfo(np.int64).max
LARGEST_LISTED = 3
"""Orders up to this have per-CPU lists, and so has that of a huge page (S1.9)."""


def refilled_lists(
    machine: Machine, demand: Demand, evidence: PageEvidence, until_ns: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Judge every CPU's lists by its first touches, up to the start snapshot, of buddies' pages.

    Such a page came by a refill since the flags were read, and a refill finds the list empty:
    nothing older lies below, only the rest of that refill, unless it was made in the recording, as
    is certain once more pages are taken for the first time than one refill brings.

    Returns:
        int64, shape (zones, cpus): when the list of single Movable pages was used up down to such a
        page, NEVER where it was not; bool, shape (zones, cpus, types): the list may hold the rest
        of a refill; bool, shape (zones, cpus): the CPU's list of huge pages was empty, as the first
        one that it took was in the buddy.
    """
    early = demand.first_allocations
    huge = early[early["order"] == PMD_ORDER]
    early = early[(early["time_ns"] < until_ns) & (early["order"] == 0)]
    pfn = demand.objects["pfn"][early["object"]].astype(np.int64)
    shape = (len(machine.zones), machine.nr_cpus, at.PCP_TYPES)
    first, pages = np.full(shape, NEVER, np.int64), np.zeros(shape, np.int64)
    for index, zone in enumerate(machine.zones):
        inside = (pfn >= zone.start_pfn) & (pfn < zone.end_pfn)
        own, was_buddy = early[inside], evidence.buddy[pfn[inside]]
        where = (own["cpu"].astype(np.int64), own["migratetype"].astype(np.int64))
        of_buddies = tuple(each[was_buddy] for each in where)
        np.minimum.at(first[index], of_buddies, own["time_ns"][was_buddy])
        np.add.at(pages[index], where, own["time_ns"] >= first[index][where])
    batches = [max((each.batch for each in zone.pagesets), default=63) for zone in machine.zones]
    one_refill = np.array(batches, np.int64)[:, None, None] << PCP_BATCH_SCALE_MAX
    no_huge = np.zeros(shape[:2], bool)
    places = demand.objects["pfn"][huge["object"]].astype(np.int64)
    zones = machine.zones_of_pages(places)
    no_huge[zones[::-1], huge["cpu"][::-1]] = evidence.buddy[places[::-1]]
    return first[:, :, at.MOVABLE], (pages > 0) & (pages <= one_refill), no_huge


def listed_pages(
    machine: Machine,
    demand: Demand,
    evidence: PageEvidence,
    listed_counts: np.ndarray,
    refilled: tuple[np.ndarray, np.ndarray, np.ndarray],
    counts: StartCounts,
    random: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose the pages on every CPU's lists so that its count is met.

    First come huge pages that no counted buddy accounts for, the pages that the CPU itself takes
    first, then the unflagged ones of Movable blocks, shared among CPUs by what each still lacks,
    then unflagged ones of other blocks and, where these do not suffice, free ones: the lists have
    grown since the flags were read.
    `listed_counts` are int64, shape (zones, cpus); `refilled` is from `refilled_lists`.

    Returns:
        `LISTED` records, head first for each list; int64, shape (3, zones): pages that the first
        touches of their CPU name, those that page flags show to be on some list, and those chosen
        so that the counts are met.
    """
    touches = evidence.remembered(
        "touches", lambda: first_touches(demand, evidence.buddy | ~evidence.inside)
    )
    reached_ns, rest, no_huge = refilled
    sums = np.zeros((3, len(machine.zones)), np.int64)
    pieces = [np.zeros(0, LISTED)]
    for index, zone in enumerate(machine.zones):
        if not zone.managed:
            continue
        missing = listed_counts[index].copy()
        huge = _huge_on_lists(machine, demand, evidence, index, missing, counts)
        take_off(missing, huge)
        named = taken_first(machine, index, touches, missing, reached_ns[index])
        take_off(missing, named)
        named = np.concatenate([huge, named])
        shown = _shown_pages(
            machine, evidence, index, missing, reached_ns[index], no_huge[index], random
        )
        take_off(missing, shown)
        guessed = _guessed_pages(machine, evidence, index, missing, shown, rest[index], random)
        for number, records in enumerate((named, shown, guessed)):
            sums[number, index] = (np.int64(1) << records["order"].astype(np.int64)).sum()
            pieces.append(records)
    return np.concatenate(pieces), sums


def _huge_on_lists(
    machine: Machine,
    demand: Demand,
    evidence: PageEvidence,
    zone: int,
    listed: np.ndarray,
    counts: StartCounts,
) -> np.ndarray:
    """First huge pages of CPUs that no free buddy of the snapshot accounts for, as records.

    One whose other half of the next order was not free lay in a buddy of its own order or on a
    list. Where there are more such than the snapshot has buddies of that order, the others lay on
    lists of CPUs that hold as much: those taken first.
    """
    order = machine.pageblock_order
    if counts.free_buddies is None or order != PMD_ORDER or machine.max_order == order:
        return np.zeros(0, LISTED)
    touches = demand.first_allocations
    huge = touches[touches["order"] == order]
    pfn = demand.objects["pfn"][huge["object"]].astype(np.int64)
    inside = (machine.zones_of_pages(pfn) == zone) & evidence.buddy[pfn]
    halves = evidence.free.reshape(-1, 1 << order).all(axis=1)
    cpu, pfn = huge["cpu"][inside].astype(np.int64), pfn[inside]
    is_lone = ~halves[(pfn >> order) ^ 1]
    is_first = np.zeros(len(pfn), bool)
    is_first[np.unique(cpu, return_index=True)[1]] = True
    excess = int(is_lone.sum()) - int(counts.free_buddies[zone, order, at.MOVABLE])
    chosen = np.flatnonzero(is_lone & is_first & (listed[cpu] >= 1 << order))[: max(excess, 0)]
    return listed_records(zone, pfn[chosen], cpu[chosen], at.MOVABLE, order)


def listed_records(
    zone: int, pfn: np.ndarray, cpu: np.ndarray, migratetype: int | np.ndarray, order: Any = 0
) -> np.ndarray:
    """`LISTED` records of a zone's pages."""
    records = np.zeros(len(pfn), LISTED)
    columns = {"zone": zone, "pfn": pfn, "cpu": cpu, "migratetype": migratetype, "order": order}
    for name, values in columns.items():
        records[name] = values
    return records


def take_off(missing: np.ndarray, records: np.ndarray) -> None:
    """Subtract pages of `LISTED` records from what each CPU lacks, in place."""
    np.subtract.at(missing, records["cpu"], np.int64(1) << records["order"].astype(np.int64))


def first_touches(demand: Demand, buddy: np.ndarray) -> np.ndarray:
    """`LISTED` records with `time_ns`, in time order, of pages first seen allocated.

    They are of a listed order and in no buddy when the flags were read.
    """
    events = demand.first_allocations
    pfn = demand.objects["pfn"][events["object"]]
    listed = (events["order"] <= LARGEST_LISTED) | (events["order"] == PMD_ORDER)
    listed &= ~buddy[pfn]
    events, pfn = events[listed], pfn[listed]
    touches = np.zeros(len(events), [*LISTED.descr, ("time_ns", np.int64)])
    touches["pfn"] = pfn
    for name in ("order", "migratetype", "cpu", "time_ns"):
        touches[name] = events[name]
    return touches


def taken_first(
    machine: Machine,
    index: int,
    touches: np.ndarray,
    listed_counts: np.ndarray,
    reached_ns: np.ndarray,
) -> np.ndarray:
    """First touches that one zone's lists can have held, CPU after CPU, as `LISTED` records."""
    zone = machine.zones[index]
    touches = touches[(touches["pfn"] >= zone.start_pfn) & (touches["pfn"] < zone.end_pfn)]
    movable = (touches["order"] == 0) & (touches["migratetype"] == at.MOVABLE)
    records = [np.zeros(0, LISTED)]
    for cpu in range(machine.nr_cpus):
        refilled = movable & (touches["time_ns"] > reached_ns[cpu])
        own = touches[(touches["cpu"] == cpu) & ~refilled]
        own = own[np.cumsum(np.int64(1) << own["order"].astype(np.int64)) <= listed_counts[cpu]]
        columns = (own[name] for name in ("pfn", "cpu", "migratetype", "order"))
        records.append(listed_records(index, *columns))
    return np.concatenate(records)


def _shown_pages(
    machine: Machine,
    evidence: PageEvidence,
    zone: int,
    missing: np.ndarray,
    refills: np.ndarray,
    no_huge: np.ndarray,
    random: np.random.Generator,
) -> np.ndarray:
    """Unflagged pages of Movable blocks, shared among CPUs by how many pages each lacks.

    Whole blocks first, from the zone's end down, to no CPU whose list of huge pages was empty; then
    maximal runs, in the largest pieces that have a list, single pages to no CPU without any.
    """
    whole, pfns, orders = evidence.remembered(
        f"runs of {zone}", lambda: _movable_runs(machine, evidence, zone)
    )
    left = missing.copy()
    block_pages = 1 << machine.pageblock_order
    owners = []
    for _ in whole:
        cpu = int(np.argmax(np.where(no_huge, 0, left)))
        if no_huge[cpu] or left[cpu] < block_pages:
            break
        left[cpu] -= block_pages
        owners.append(cpu)
    shuffled = random.permutation(len(pfns))
    pfns, orders = pfns[shuffled], orders[shuffled]
    takers = _shared_out(orders, left, refills < NEVER)
    taken = takers >= 0
    pfn = np.concatenate([whole[: len(owners)], pfns[taken]])
    cpu = np.concatenate([np.array(owners, np.int64), takers[taken]])
    orders = np.concatenate([np.full(len(owners), machine.pageblock_order), orders[taken]])
    return listed_records(zone, pfn, cpu, at.MOVABLE, orders)


def _movable_runs(
    machine: Machine, evidence: PageEvidence, zone: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unflagged whole blocks, last first; unflagged runs of Movable blocks, and their orders.

    Huge pages are freed where other Movable blocks are, so the nearest block before or after that
    is not wholly unflagged must be Movable: what the kernel took at boot lies among its own.
    """
    order = machine.pageblock_order
    blocks = evidence.memory_blocks[zone]
    plain = evidence.plain.reshape(-1, 1 << order)[blocks]
    movable = _movable_blocks(machine, evidence, zone)
    full = plain.all(axis=1) & (machine.thp and order == PMD_ORDER)
    freed = np.zeros(len(full), bool)
    others = np.flatnonzero(~full)
    if len(others):
        after = np.searchsorted(others, np.arange(len(full)))
        freed = movable[others[np.minimum(after, len(others) - 1)]]
        freed |= movable[others[np.maximum(after - 1, 0)]]
    exact = evidence.block_types[blocks]
    freed = np.where(exact >= 0, exact == at.MOVABLE, freed)
    whole = (blocks[full & freed] << order)[::-1]
    runs = plain & (movable & ~full)[:, None]
    types = np.full(len(blocks), at.MOVABLE, np.int8)
    # Blocks are put side by side; runs of a listed order do not reach from one into the next.
    places, orders = maximal_buddies(runs.reshape(-1), types, order, LARGEST_LISTED)
    within = places & ((1 << order) - 1)
    return whole, (blocks[places >> order] << order) + within, orders


def _movable_blocks(machine: Machine, evidence: PageEvidence, zone: int) -> np.ndarray:
    """Mask of a zone's blocks that hold nothing but free pages and what can be migrated."""
    blocks, pages = evidence.memory_blocks[zone], 1 << machine.pageblock_order
    words, migratable, buddy = (
        each.reshape(-1, pages)[blocks]
        for each in (evidence.words, evidence.migratable, evidence.buddy)
    )
    kernel = ((words & KERNEL_ONLY) != 0).any(axis=1)
    movable = ~kernel & (2 * (migratable | buddy).sum(axis=1) >= pages)
    exact = evidence.block_types[blocks]
    return np.where(exact >= 0, exact == at.MOVABLE, movable)


def _shared_out(orders: np.ndarray, missing: np.ndarray, was_empty: np.ndarray) -> np.ndarray:
    """The CPU that gets each piece, -1: none, in proportion to the pages each CPU lacks."""
    takers = np.full(len(orders), -1, np.int64)
    lacking = np.maximum(missing, 0)
    share = min(1.0, int((np.int64(1) << orders.astype(np.int64)).sum()) / max(lacking.sum(), 1))
    room = (lacking * share).astype(np.int64)
    for cpu in np.argsort(room):
        open_pieces = takers < 0
        if was_empty[cpu]:
            open_pieces &= orders > 0
        numbers = np.flatnonzero(open_pieces)
        sizes = np.int64(1) << orders[numbers].astype(np.int64)
        before = np.cumsum(sizes) - sizes
        fits = (before < room[cpu]) & (before + sizes <= lacking[cpu])
        takers[numbers[fits]] = cpu
    return takers


def _guessed_pages(
    machine: Machine,
    evidence: PageEvidence,
    zone: int,
    missing: np.ndarray,
    shown: np.ndarray,
    rest: np.ndarray,
    random: np.random.Generator,
) -> np.ndarray:
    """Single pages that make up each CPU's count: other unflagged ones, then unused free ones.

    Lists with the rest of a refill share what lacks evenly; of the others `migratetype` is -1.
    """
    plain, unused_movable, unused_other = evidence.remembered(
        f"spare of {zone}", lambda: _spare_pages(machine, evidence, zone)
    )
    unknown = plain[~page_mask(len(evidence.plain), shown)[plain]]
    wanted = np.maximum(missing, 0)
    shares = wanted * rest[:, at.MOVABLE] // np.maximum(rest.sum(axis=1), 1)
    movable_pages = unused_movable[: int(shares.sum())]
    rest_movable = unused_movable[len(movable_pages) :]
    # Unknown pages carry no flag, unused ones that of the buddy: no page is in two of these.
    other = np.concatenate([random.permutation(unknown), unused_other, rest_movable])
    other = other[: int((wanted - shares).sum())]
    cpus = np.arange(machine.nr_cpus)
    parts = ((movable_pages, shares, at.MOVABLE), (other, wanted - shares, -1))
    return np.concatenate(
        [
            listed_records(zone, pages, np.repeat(cpus, counts)[: len(pages)], migratetype)
            for pages, counts, migratetype in parts
        ]
    )


def _spare_pages(
    machine: Machine, evidence: PageEvidence, zone: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unflagged pages of a zone, unused ones of its Movable blocks, and other unused ones."""
    span = slice(machine.zones[zone].start_pfn, machine.zones[zone].end_pfn)
    movable = np.zeros(len(evidence.plain), bool)
    blocks = evidence.memory_blocks[zone][_movable_blocks(machine, evidence, zone)]
    movable.reshape(-1, 1 << machine.pageblock_order)[blocks] = True
    plain = np.flatnonzero(evidence.plain[span]) + span.start
    unused = np.flatnonzero(evidence.buddy[span] & ~evidence.touched[span]) + span.start
    return plain, unused[movable[unused]], unused[~movable[unused]]


def settle_list_types(
    records: np.ndarray, block_types: np.ndarray, pageblock_order: int, refills: np.ndarray
) -> None:
    """Give pages whose list no request named a list: that of their block's type (S4.6).

    A list of Movable pages that was empty early on cannot have held them; another did.
    """
    unnamed = np.flatnonzero(records["migratetype"] < 0)
    types = block_types[records["pfn"][unnamed] >> pageblock_order].astype(np.int64)
    types[types >= at.PCP_TYPES] = at.MOVABLE
    was_empty = refills[records["zone"][unnamed], records["cpu"][unnamed]] < NEVER
    types[was_empty & (types == at.MOVABLE)] = at.UNMOVABLE
    records["migratetype"][unnamed] = types
