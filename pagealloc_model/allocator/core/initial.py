"""The start image: free pages, per-CPU lists and block types put into an empty state."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.buddy import __add_to_free_list, change_pageblock_range
from pagealloc_model.allocator.core.counters import count_free
from pagealloc_model.allocator.core.offsets import pcp_at
from pagealloc_model.allocator.core.page_lists import list_add_tail
from pagealloc_model.allocator.core.pcp import order_to_pindex
from pagealloc_model.allocator.core.state import State
from pagealloc_model.allocator.core.superpageblocks import count_taints
from pagealloc_model.base.jit import entry

LISTED = np.dtype(
    [
        ("pfn", np.int32),
        ("zone", np.int8),
        ("order", np.int8),
        ("migratetype", np.int8),
        ("cpu", np.int16),
    ]
)
"""A page on a per-CPU list of a type; records of one list come head first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StartImage:
    """Where every page is when a replay begins.

    Attributes:
        free: bool, one per page frame: in the buddy.
        movable: bool, one per page frame: allocated and migratable (T10.9).
        block_types: int8, migratetype of each pageblock, -1 where there is no memory.
        listed: `LISTED` records.
        pcp_high: int64, shape (zones, cpus): pcp->high; 0 leaves the machine's.
        allocated_pfn: int32, first pages of allocations: those that the recording frees later, and
            others of known order.
        allocated_order: int8, their orders.
        origin: plain lines on what this image was made from and how exact it is.
    """

    free: np.ndarray
    movable: np.ndarray
    block_types: np.ndarray
    listed: np.ndarray
    pcp_high: np.ndarray
    allocated_pfn: np.ndarray
    allocated_order: np.ndarray
    origin: tuple[str, ...] = ()

    @cached_property
    def movable_pfns(self) -> np.ndarray:
        """No kernel function: return the page frames that are `movable`, intp."""
        return np.flatnonzero(self.movable)

    def buddies(
        self, pageblock_order: int, max_order: int, barred: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """No kernel function: return the free buddies' first pages (int32) and orders (int8).

        Args:
            pageblock_order: S1.2.
            max_order: S1.1.
            barred: `LISTED` records of pages that are free too, since no list takes them.
        """
        if len(barred):
            free = self.free.copy()
            for page in barred:
                first = int(page["pfn"])
                free[first : first + (1 << int(page["order"]))] = True
            return _narrow(maximal_buddies(free, self.block_types, pageblock_order, max_order))
        key = pageblock_order, max_order
        if key not in self._buddies:
            made = maximal_buddies(self.free, self.block_types, *key)
            self._buddies[key] = _narrow(made)
        return self._buddies[key]

    @cached_property
    def _buddies(self) -> dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]:
        """No kernel function: return the store of buddies made before.

        Replays of one image need not cut them again.
        """
        return {}


def _narrow(buddies: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """No kernel function: return page frames as int32 and orders as int8."""
    pfns, orders = buddies
    return pfns.astype(np.int32), orders.astype(np.int8)


BOTH_FREE = 0x0101
"""Two bools that are true."""


def maximal_buddies(
    free: np.ndarray, block_types: np.ndarray, pageblock_order: int, max_order: int
) -> tuple[np.ndarray, np.ndarray]:
    """No kernel function: cut free pages into the buddies that merging leaves (S5.3, S5.4).

    Args:
        free: bool per page frame; length a multiple of the pageblock's pages.
        block_types: migratetype per pageblock; HIGHATOMIC and above merge with their like only.
        pageblock_order: S1.2.
        max_order: S1.1.

    Returns:
        First page frames (int64) and orders (int8), ascending by page frame.
    """
    firsts, orders = [], []
    level = np.ascontiguousarray(free)
    for order in range(max_order + 1):
        paired = len(level) // 2 * 2
        # A pair of free buddies, looked at as one number.
        above = level[:paired].view(np.uint16) == BOTH_FREE
        if order == max_order:
            above[:] = False
        elif order >= pageblock_order:
            step = 1 << (order - pageblock_order)
            types = block_types[::step][:paired].reshape(-1, 2)
            mergeable = (types < at.PCP_TYPES).all(axis=1) | (types[:, 0] == types[:, 1])
            above &= mergeable
        whole = level.copy()
        whole[:paired].view(np.uint16)[above] = 0
        numbers = np.flatnonzero(whole)
        firsts.append(numbers << order)
        orders.append(np.full(len(numbers), order, np.int8))
        level = above
    pfns = np.concatenate(firsts)
    sizes = np.concatenate(orders)
    ascending = np.argsort(pfns, kind="stable")
    return pfns[ascending], sizes[ascending]


@entry
def place_buddies(m: at.MachineArrays, pfns: np.ndarray, orders: np.ndarray) -> None:
    """No kernel function: append free buddies to their lists' tails, in the order given.

    The lists are those of their blocks. Blocks of one buddy share a type, as merging would have
    retagged them (S5.3).
    """
    block_order = m.st[at.PAGEBLOCK_ORDER]
    if m.st[at.SUPERPAGEBLOCKS]:
        count_taints(m)
    for index in range(len(pfns)):
        pfn = int(pfns[index])
        order = int(orders[index])
        block = pfn >> block_order
        zone = int(m.blocks[block]["zone"]) - 1
        if zone < 0:
            continue
        migratetype = int(m.blocks[block]["migratetype"])
        if order > block_order and m.st[at.RULE_LISTS_MATCH_BLOCKS]:
            change_pageblock_range(m, pfn, order, migratetype)
        __add_to_free_list(m, zone, pfn, order, migratetype, True)
        count_free(m, zone, migratetype, 1 << order)


@entry
def place_allocations(
    m: at.MachineArrays,
    movable_pfns: np.ndarray,
    movable: np.ndarray,
    firsts: np.ndarray,
    orders: np.ndarray,
) -> None:
    """No kernel function: mark pages in use, and allocations that will be freed.

    An allocation is movable if its first page is. Threads that prepare states do this side by side.
    """
    for index in range(len(movable_pfns)):
        pfn = int(movable_pfns[index])
        m.pages[pfn]["where"] = at.ALLOCATED
        m.pages[pfn]["tag"] = 1
    for index in range(len(firsts)):
        first = int(firsts[index])
        order = int(orders[index])
        for pfn in range(first, first + (1 << order)):
            m.pages[pfn]["where"] = at.NOWHERE
        m.pages[first]["where"] = at.ALLOCATED
        m.pages[first]["order"] = order
        m.pages[first]["tag"] = int(movable[first])


@entry
def place_listed(m: at.MachineArrays, listed: np.ndarray) -> None:
    """No kernel function: append pages to the tails of per-CPU lists, in the order given."""
    block_order = m.st[at.PAGEBLOCK_ORDER]
    for index in range(len(listed)):
        pfn = int(listed[index]["pfn"])
        order = int(listed[index]["order"])
        cpu = int(listed[index]["cpu"])
        zone = int(listed[index]["zone"])
        lst = order_to_pindex(m, order, int(listed[index]["migratetype"]))
        if m.st[at.OWNERSHIP]:
            lst = 3 * order + int(listed[index]["migratetype"])
        pcp = pcp_at(m, zone, cpu)
        m.pages[pfn]["order"] = order
        m.pages[pfn]["where"] = at.ON_PCP
        m.pages[pfn]["tag"] = m.blocks[pfn >> block_order]["migratetype"]
        list_add_tail(m.pages, m.st, pcp + at.PCP_LISTS + lst * at.LIST_WORDS, pfn)
        m.st[pcp + at.PCP_COUNT] += 1 << order


def install(state: State, image: StartImage) -> None:
    """No kernel function: put an image into a fresh state.

    Pages of orders that the state's policy bars from per-CPU lists become free buddies.
    """
    machine = state.machine
    state.blocks["zone"][image.block_types < 0] = 0
    state.blocks["migratetype"] = np.maximum(image.block_types, 0)
    note_isolated_blocks(state)
    place_allocations(
        state.arrays(),
        image.movable_pfns,
        image.movable,
        image.allocated_pfn,
        image.allocated_order,
    )
    costly, thp = state.st[at.POLICY_COSTLY_ORDER], state.st[at.THP_LISTS]
    order = image.listed["order"]
    eligible = (order <= costly) | ((order == state.st[at.HUGE_ORDER]) & bool(thp))
    if state.st[at.OWNERSHIP]:
        eligible &= order <= machine.pageblock_order
    barred = image.listed[~eligible]
    pfns, orders = image.buddies(machine.pageblock_order, machine.max_order, barred)
    place_buddies(state.arrays(), pfns, orders)
    place_listed(state.arrays(), np.ascontiguousarray(image.listed[eligible]))
    for zone, cpu in np.argwhere(image.pcp_high > 0):
        state.pcp_region(int(zone), int(cpu))[at.PCP_HIGH] = image.pcp_high[zone, cpu]
    block_pages = 1 << machine.pageblock_order
    reserved = state.block_counts()[:, at.HIGHATOMIC] * block_pages
    for zone in range(len(machine.zones)):
        state.zone_region(zone)[at.ZONE_RESERVED_HIGHATOMIC] = reserved[zone]


def note_isolated_blocks(state: State) -> None:
    """No kernel function: note which zones have an isolated block (S5.6).

    Block types are set by then.
    """
    counts = state.block_counts()
    for zone in range(len(state.machine.zones)):
        isolated = state.st[at.ISOLATE] >= 0 and counts[zone, state.st[at.ISOLATE]] > 0
        state.zone_region(zone)[at.ZONE_HAS_ISOLATED] = isolated
