"""Where two states differ, in words."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.state import State

SCRATCH = (
    *range(at.WORK, at.WORK + at.WORK_UNITS),
    *(at.LIST_PROBES, at.REFILL_PROBES, at.REFILL_PROBES_MOST),
)
"""Words that mean nothing between two operations, or that the kernel's code does not count."""

ZONE_FIELDS = {
    at.ZONE_BOOST: "watermark_boost",
    at.ZONE_FREE: "NR_FREE_PAGES",
    at.ZONE_FREE_HIGHATOMIC: "nr_free_highatomic",
    at.ZONE_RESERVED_HIGHATOMIC: "nr_reserved_highatomic",
    at.ZONE_BELOW_HIGH: "ZONE_BELOW_HIGH",
    at.ZONE_RECLAIM_ACTIVE: "ZONE_RECLAIM_ACTIVE",
    at.ZONE_BOOSTED: "ZONE_BOOSTED_WATERMARK",
    at.ZONE_FREE_CMA: "NR_FREE_CMA_PAGES",
    at.ZONE_FREE_UNFOLDED: "pages that CPUs hold back",
    at.ZONE_THRESHOLD: "stat_threshold",
    at.ZONE_REMEMBERED_BOOST: "boost that kswapd has seen",
}
PCP_FIELDS = {
    at.PCP_COUNT: "count",
    at.PCP_HIGH: "high",
    at.PCP_ALLOC_FACTOR: "alloc_factor",
    at.PCP_FREE_COUNT: "free_count",
    at.PCP_PREV_FREE_HIGH_ORDER: "flags",
    at.PCP_EXPIRE: "expire",
    at.PCP_FREE_DELTA: "vm_stat_diff",
}
LIST_LOCK_WORDS = (
    at.PCP_LOCK_HOLDER,
    at.PCP_LOCKS,
    at.PCP_LOCK_HANDOVERS,
    at.PCP_DRAIN_LOCKS,
)
LISTED_MAX = 12
"""Pages of a list that are spelled out."""


def states_agree(model: State, kernel: State) -> bool:
    """Whether the model's state and the kernel's, its pages stored, are the same."""
    return not len(differing_words(model, kernel)) and not len(differing_pages(model, kernel))


def differing_words(model: State, kernel: State) -> np.ndarray:
    """Offsets into `st` that differ."""
    found = np.flatnonzero(model.st != kernel.st)
    return found[~np.isin(found, [*SCRATCH, *_words_of_list_locks(model)])]


def _words_of_list_locks(model: State) -> np.ndarray:
    """Offsets of what is counted at each pcp->lock: to the shim all locks are free."""
    st = model.st
    sets = np.arange(int(st[at.NR_ZONES] * st[at.NR_CPUS])) * at.PCP_STRIDE + st[at.PCP_BASE]
    of_cpus = st[at.CPU_BASE] + np.arange(int(st[at.NR_CPUS]) * at.CPU_STRIDE)
    return np.concatenate([(sets[:, None] + LIST_LOCK_WORDS).ravel(), of_cpus])


def differing_pages(model: State, kernel: State) -> np.ndarray:
    """Free pages, in the buddy or on a per-CPU list, whose record differs."""
    mine, theirs = model.pages, kernel.pages
    free = (mine["where"] == at.BUDDY) | (mine["where"] == at.ON_PCP)
    differs = free & (mine["where"] != theirs["where"])
    differs |= ~free & (theirs["where"] != 0)
    for name in ("next", "prev", "order"):
        differs |= free & (mine[name] != theirs[name])
    tagged = mine["where"] == at.BUDDY
    if not model.st[at.RULE_LISTS_MATCH_BLOCKS]:
        tagged = free
    differs |= tagged & (mine["tag"] != theirs["tag"])
    return np.flatnonzero(differs)


def differences(model: State, kernel: State) -> list[str]:
    """One line for each thing that differs."""
    lines = [
        line
        for zone in range(len(model.machine.zones))
        for line in _zone_lines(model, kernel, zone)
    ]
    types = np.flatnonzero(model.blocks["migratetype"] != kernel.blocks["migratetype"])
    lines += [
        f"type of pageblock {block}: model {model.blocks[block]['migratetype']}, "
        f"kernel {kernel.blocks[block]['migratetype']}"
        for block in types
    ]
    if not lines:
        lines = [
            f"word {word} of the state: model {model.st[word]}, kernel {kernel.st[word]}"
            for word in differing_words(model, kernel)[:LISTED_MAX]
        ]
    if not lines:
        lines = [f"page {pfn}" for pfn in differing_pages(model, kernel)[:LISTED_MAX]]
    return lines


def _zone_lines(model: State, kernel: State, zone: int) -> list[str]:
    title = model.machine.zone_title(zone)
    mine, theirs = model.zone_region(zone), kernel.zone_region(zone)
    lines = [
        f"{title}: {name}: model {mine[word]}, kernel {theirs[word]}"
        for word, name in ZONE_FIELDS.items()
        if mine[word] != theirs[word]
    ]
    for order in range(model.machine.max_order + 1):
        for number, name in enumerate(model.machine.migratetypes):
            first = at.ZONE_LISTS + (order * at.MIGRATETYPES + number) * at.LIST_WORDS
            words = slice(first, first + at.LIST_WORDS)
            lines += _list_lines(
                f"{title}: free list of order {order}, {name}",
                (model, mine[words]),
                (kernel, theirs[words]),
            )
    for cpu in range(model.machine.nr_cpus):
        lines += _page_set_lines(model, kernel, zone, cpu)
    return lines


def _page_set_lines(model: State, kernel: State, zone: int, cpu: int) -> list[str]:
    title = f"{model.machine.zone_title(zone)}, CPU {cpu}"
    mine, theirs = model.pcp_region(zone, cpu), kernel.pcp_region(zone, cpu)
    lines = [
        f"{title}: pcp->{name}: model {mine[word]}, kernel {theirs[word]}"
        for word, name in PCP_FIELDS.items()
        if mine[word] != theirs[word]
    ]
    for index, first in enumerate(range(at.PCP_LISTS, at.PCP_SITES, at.LIST_WORDS)):
        words = slice(first, first + at.LIST_WORDS)
        lines += _list_lines(
            f"{title}: per-CPU list {index}", (model, mine[words]), (kernel, theirs[words])
        )
    return lines


def _list_lines(
    title: str, model: tuple[State, np.ndarray], kernel: tuple[State, np.ndarray]
) -> list[str]:
    mine, theirs = (state.list_pages(words) for state, words in (model, kernel))
    if mine == theirs:
        return []
    return [f"{title}: model {_spelled(mine)}, kernel {_spelled(theirs)}"]


def _spelled(pages: list[int]) -> str:
    more = f" and {len(pages) - LISTED_MAX} more" if len(pages) > LISTED_MAX else ""
    return f"[{' '.join(map(str, pages[:LISTED_MAX]))}{more}]"
