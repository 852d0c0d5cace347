"""Pages on per-CPU lists at the start: first touches, unflagged pages, and what must be guessed.

A page on such a list shows no flag (T12.5), like a plain kernel allocation. Where such pages lie
tells the two apart: kernel allocations do not lie in blocks of page cache and anonymous memory, and
a whole unflagged block is a freed huge page rather than one request of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import LISTED, maximal_buddies
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.predicted.start.evidence import KERNEL_ONLY, PageEvidence, page_mask
from pagealloc_model.recording.machine import PMD_ORDER, Machine

NEVER = np.iinfo(np.int64).max
LARGEST_LISTED = 3
"""Orders up to this have per-CPU lists, and so has that of a huge page (S1.9)."""
LARGEST_REFILL = 5
"""A refill brings at most the batch shifted by this (PCP_BATCH_SCALE_MAX, S4.4)."""


_Found = TypeVar("_Found")
_found: WeakKeyDictionary[PageEvidence, dict[str, Any]] = WeakKeyDictionary()
"""What follows from evidence alone: calibrating makes many images from the same."""


def _of_evidence(evidence: PageEvidence, name: str, find: Callable[[], _Found]) -> _Found:
    known = _found.setdefault(evidence, {})
    if name not in known:
        known[name] = find()
    found: _Found = known[name]
    return found


def refilled_lists(
    machine: Machine, demand: Demand, evidence: PageEvidence, until_ns: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Judge every CPU's lists by its first touches, up to the start snapshot, of buddies' pages.

    Such a page came by a refill since the flags were read, and a refill finds the list empty: when
    the page is taken from the head, nothing older lies below. What does lie there is the rest of
    that refill, unless it was made in the recording, as is certain once more pages are taken for
    the first time than one refill brings.

    Returns:
        int64, shape (zones, cpus): when the list of single Movable pages was used up down to such a
        page, NEVER where it was not; bool, shape (zones, cpus, types): the list may hold the rest
        of a refill; bool, shape (zones, cpus): the first huge page that the CPU took, of those free
        at the start, was in the buddy: its list of huge pages was empty.
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
    one_refill = np.array(batches, np.int64)[:, None, None] << LARGEST_REFILL
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
    random: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose the pages on every CPU's lists so that its count is met.

    First come the pages that the CPU itself takes first, then the unflagged ones of Movable
    blocks, shared among CPUs by what each still lacks, then unflagged ones of other blocks and,
    where these do not suffice, free ones: the lists have grown since the flags were read.

    Args:
        machine: zones and CPUs.
        demand: only first touches are read.
        evidence: flags of every page.
        listed_counts: int64, shape (zones, cpus): pages on each CPU's lists.
        refilled: from `refilled_lists`.
        random: draws what nothing settles.

    Returns:
        `LISTED` records, head first for each list; int64, shape (3, zones): pages that the first
        touches of their CPU name, those that page flags show to be on some list, and those chosen
        so that the counts are met.
    """
    touches = _of_evidence(
        evidence, "touches", lambda: first_touches(demand, evidence.buddy | ~evidence.inside)
    )
    reached_ns, rest, no_huge = refilled
    sums = np.zeros((3, len(machine.zones)), np.int64)
    pieces = [np.zeros(0, LISTED)]
    for index, zone in enumerate(machine.zones):
        if not zone.managed:
            continue
        missing = listed_counts[index].copy()
        named = taken_first(machine, index, touches, missing, reached_ns[index])
        take_off(missing, named)
        shown = _shown_pages(
            machine, evidence, index, missing, reached_ns[index], no_huge[index], random
        )
        take_off(missing, shown)
        guessed = _guessed_pages(machine, evidence, index, missing, shown, rest[index], random)
        for number, records in enumerate((named, shown, guessed)):
            sums[number, index] = (np.int64(1) << records["order"].astype(np.int64)).sum()
            pieces.append(records)
    return np.concatenate(pieces), sums


def take_off(missing: np.ndarray, records: np.ndarray) -> None:
    """Subtract pages of `LISTED` records from what each CPU lacks, in place."""
    np.subtract.at(missing, records["cpu"], np.int64(1) << records["order"].astype(np.int64))


def first_touches(demand: Demand, buddy: np.ndarray) -> np.ndarray:
    """Pages first seen allocated, of a listed order and in no buddy when the flags were read.

    Returns:
        `LISTED` records with `time_ns`, in time order.
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
        listed = np.zeros(len(own), LISTED)
        for name in LISTED.names or ():
            listed[name] = own[name]
        listed["zone"] = index
        records.append(listed)
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

    Whole blocks first, from the zone's end down, as what the kernel takes at boot lies at its
    beginning, to no CPU whose list of huge pages was empty; then maximal runs, in the largest
    pieces that have a list. Single pages go to no CPU whose list of them was empty.
    """
    whole, pfns, orders = _of_evidence(
        evidence, f"runs of {zone}", lambda: _movable_runs(machine, evidence, zone)
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
    records = np.zeros(len(owners) + int(taken.sum()), LISTED)
    records["pfn"] = np.concatenate([whole[: len(owners)], pfns[taken]])
    records["order"][: len(owners)] = machine.pageblock_order
    records["order"][len(owners) :] = orders[taken]
    records["cpu"] = np.concatenate([np.array(owners, np.int64), takers[taken]])
    records["migratetype"] = at.MOVABLE
    records["zone"] = zone
    return records


def _movable_runs(
    machine: Machine, evidence: PageEvidence, zone: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unflagged whole blocks, last first; unflagged runs of Movable blocks, and their orders.

    Huge pages are freed where other Movable blocks are; what the kernel took at boot, in as large
    pieces, lies among its own. So the nearest block before or after that is not wholly unflagged
    must be Movable.
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
    """Whether each block with memory holds nothing but free pages and what can be migrated."""
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
    """Which CPU gets each piece, -1: none, in proportion to the pages each CPU lacks."""
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

    Where lists hold the rest of a refill, each as good as any other, they share what lacks evenly.
    Otherwise the list is not known: `migratetype` is -1.
    """
    plain, unused_movable, unused_other = _of_evidence(
        evidence, f"spare of {zone}", lambda: _spare_pages(machine, evidence, zone)
    )
    unknown = plain[~page_mask(len(evidence.plain), shown)[plain]]
    wanted = np.maximum(missing, 0)
    shares = wanted * rest[:, at.MOVABLE] // np.maximum(rest.sum(axis=1), 1)
    movable_pages = unused_movable[: int(shares.sum())]
    rest_movable = unused_movable[len(movable_pages) :]
    # Unknown pages carry no flag, unused ones that of the buddy: no page is in two of these.
    other = np.concatenate([random.permutation(unknown), unused_other, rest_movable])
    other = other[: int((wanted - shares).sum())]
    records = np.zeros(len(movable_pages) + len(other), LISTED)
    records["pfn"] = np.concatenate([movable_pages, other])
    cpus = np.arange(machine.nr_cpus)
    records["cpu"][: len(movable_pages)] = np.repeat(cpus, shares)[: len(movable_pages)]
    records["cpu"][len(movable_pages) :] = np.repeat(cpus, wanted - shares)[: len(other)]
    records["migratetype"] = -1
    records["migratetype"][: len(movable_pages)] = at.MOVABLE
    records["zone"] = zone
    return records


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
