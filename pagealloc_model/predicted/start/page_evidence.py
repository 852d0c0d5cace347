"""What is known of each page frame at the start: page flags, owners, first touches (T10.6)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import objects as resolved
from pagealloc_model.base.working_arrays import parts
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.predicted.start.start_counts import StartCounts
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.proc import pages as flags
from pagealloc_model.recording.proc.pages import PageOwner

NOT_MEMORY = flags.NOPAGE | flags.RESERVED | flags.HWPOISON | flags.OFFLINE
MIGRATABLE = flags.LRU | flags.MMAP | flags.ANON
KERNEL_ONLY = flags.SLAB | flags.PGTABLE
NO_MEMORY = -1
"""Type of a block in a hole or not yet initialised: the kernel does not count it."""
UNKNOWN_TYPE = -2
"""Type of a block that page_owner says nothing about."""

_FLAG_OF_TYPE = {
    at.UNMOVABLE: flags.PGTABLE,
    at.MOVABLE: flags.LRU,
    at.RECLAIMABLE: flags.SLAB,
}


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
        """Whether any file says which pages were free."""
        return self.page_flags is not None or self.page_owner is not None


@dataclass(frozen=True, kw_only=True, eq=False)
class PageEvidence:
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

    @cached_property
    def owned_before(self) -> np.ndarray:
        """How many pages before each page frame are `owned`, one element more than frames."""
        return np.concatenate([[0], np.cumsum(self.owned, dtype=np.int32)])


def object_pages(objects: np.ndarray) -> list[np.ndarray]:
    """Page frames of objects with `pfn` and `order`, one array per order that occurs."""
    found = []
    for order in np.unique(objects["order"]):
        first = objects["pfn"][objects["order"] == order].astype(np.int64)
        found.append((first[:, None] + np.arange(1 << int(order))).ravel())
    return found


def frame_count(machine: Machine) -> int:
    """Page frames of the machine, filled up to a whole pageblock."""
    return -(-machine.end_pfn >> machine.pageblock_order) << machine.pageblock_order


def gather_evidence(
    machine: Machine, demand: Demand, counts: StartCounts, files: StartFiles
) -> PageEvidence:
    """Combine page flags, owners and first touches.

    Pages first seen freed were allocated at the start, pages first seen allocated were free.

    Args:
        machine: zones and geometry.
        demand: only first touches are read.
        counts: how many blocks hold memory.
        files: at least one of them is there.
    """
    length = frame_count(machine)
    owner = files.page_owner
    owned = np.zeros(length, bool)
    owners_words = np.zeros(length, np.uint64)
    block_types = np.full(length >> machine.pageblock_order, UNKNOWN_TYPE, np.int8)
    if owner is not None:
        _mark_owned(machine, owner, owned, owners_words, block_types)
    words = _flag_words(machine, files.page_flags, owners_words, owned)
    memory = (words & NOT_MEMORY) == 0
    buddy = memory & ((words & flags.BUDDY) != 0) & ~owned
    free, touched = buddy.copy(), np.zeros(length, bool)
    for objects, is_free in ((demand.fresh, True), (demand.at_start, False)):
        for pages in object_pages(demand.objects[objects]):
            free[pages] = is_free
            touched[pages] = True
    blocks = memory_blocks(machine, counts, free, words, touched)
    in_memory = np.zeros(len(block_types), bool)
    in_memory[np.concatenate(blocks)] = True
    block_types[~in_memory] = NO_MEMORY
    inside = np.repeat(in_memory, 1 << machine.pageblock_order)
    free &= inside
    plain = inside & memory & (words == 0) & ~owned & ~touched
    return PageEvidence(
        words=words,
        buddy=buddy,
        touched=touched,
        free=free,
        taken=(
            first_seen_allocated(demand.objects, length) if files.heeds_parts else free & touched
        ),
        plain=plain,
        migratable=memory & ((words & MIGRATABLE) != 0),
        owned=owned & ~touched,
        inside=inside,
        block_types=block_types,
        memory_blocks=blocks,
    )


def first_seen_allocated(objects: np.ndarray, length: int) -> np.ndarray:
    """Which page frames' first event is an allocation (bool).

    Args:
        objects: `objects.OBJECT` records, numbered as they were first seen.
        length: number of page frames.
    """
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


def _mark_owned(
    machine: Machine,
    owner: PageOwner,
    owned: np.ndarray,
    words: np.ndarray,
    block_types: np.ndarray,
) -> None:
    """Set what page_owner says: allocated pages, flags of their type, types of their blocks."""
    types = owner.types_as(machine.migratetypes, owner.migratetype)
    exact = owner.types_as(machine.migratetypes, owner.block_migratetype)
    inside = owner.pfn + (np.int64(1) << owner.order.astype(np.int64)) <= len(owned)
    for migratetype, flag in _FLAG_OF_TYPE.items():
        mine = inside & (types == migratetype)
        for order in np.unique(owner.order[mine]):
            first = owner.pfn[mine & (owner.order == order)]
            pages = (first[:, None] + np.arange(1 << int(order))).ravel()
            owned[pages] = True
            words[pages] = flag
    known = inside & (exact >= 0)
    block_types[owner.pfn[known] >> machine.pageblock_order] = exact[known]


def _flag_words(
    machine: Machine, page_flags: np.ndarray | None, owners_words: np.ndarray, owned: np.ndarray
) -> np.ndarray:
    """Flag words by page frame; without page flags, what no allocation owns is free."""
    if page_flags is None:
        words = np.full(len(owned), flags.NOPAGE, np.uint64)
        for zone in machine.zones:
            if zone.managed:
                words[zone.start_pfn : zone.end_pfn] = flags.BUDDY
        return np.where(owned, owners_words, words)
    words = np.full(len(owned), flags.NOPAGE, np.uint64)
    known = min(len(page_flags), len(words))
    words[:known] = page_flags[:known]
    return np.where(owned & (words == 0), owners_words, words)


def memory_blocks(
    machine: Machine,
    counts: StartCounts,
    free: np.ndarray,
    words: np.ndarray,
    touched: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """Per zone, the numbers of the pageblocks that hold memory, ascending.

    Args:
        machine: zones and geometry.
        counts: blocks by zone; without pagetypeinfo, blocks that show a free or flagged page.
        free: bool per page frame.
        words: kpageflags words per page frame.
        touched: bool per page frame: some event is about it.
    """
    order = machine.pageblock_order
    shown = count_per_block((free & ~touched) | (words & ~flags.NOPAGE != 0), order) > 0
    used = shown | (count_per_block(touched, order) > 0)
    found = []
    for index, zone in enumerate(machine.zones):
        blocks = np.arange(zone.start_pfn >> order, -(-zone.end_pfn >> order))
        if not zone.managed:
            blocks = blocks[:0]
        elif counts.blocks is None:
            blocks = blocks[used[blocks]]
        else:
            wanted = int(counts.blocks[index].sum())
            blocks = _blocks_with_memory(blocks, shown[blocks], used[blocks], wanted)
        found.append(blocks)
    return tuple(found)


def _blocks_with_memory(
    blocks: np.ndarray, shown: np.ndarray, used: np.ndarray, wanted: int
) -> np.ndarray:
    """The blocks the kernel counts: those that show it, those events touch, the lowest others.

    Flags alone do not tell a block of plain kernel pages from a hole or from memory whose
    initialisation was deferred, which lies at the zone's end. What does not fit the count had no
    memory yet.
    """
    others = np.concatenate([blocks[used & ~shown], blocks[~used]])
    return np.sort(np.concatenate([blocks[shown], others[: max(wanted - int(shown.sum()), 0)]]))


def count_per_block(mask: np.ndarray, pageblock_order: int) -> np.ndarray:
    """Return for each pageblock how many of its pages a mask names, int64."""
    return mask.reshape(-1, 1 << pageblock_order).sum(axis=1).astype(np.int64)
