"""What must hold of owned pageblocks in any state (S12.2, S12.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import ownership_layout as own

if TYPE_CHECKING:
    from pagealloc_model.allocator.core.state import State


def owners(state: State) -> np.ndarray:
    """No kernel function: return a view of who owns each pageblock, its CPU plus one or 0."""
    first = int(state.st[state.st[at.OWNERSHIP] + own.OWNERS])
    return state.st[first : first + len(state.blocks)]


def block_words(state: State) -> np.ndarray:
    """No kernel function: return a view of all pageblocks' words, shape (blocks, BLOCK_WORDS)."""
    first = int(state.st[state.st[at.OWNERSHIP] + own.BLOCKS])
    words = state.st[first : first + len(state.blocks) * own.BLOCK_WORDS]
    return words.reshape(len(state.blocks), own.BLOCK_WORDS)


def set_words(state: State) -> np.ndarray:
    """No kernel function: return a view of all CPUs' parts, shape (zones, cpus, SET_STRIDE)."""
    first = int(state.st[state.st[at.OWNERSHIP] + own.SETS])
    shape = (len(state.machine.zones), state.machine.nr_cpus, own.SET_STRIDE)
    return state.st[first : first + np.prod(shape)].reshape(shape)


def recorded_blocks(state: State, zone: int, cpu: int) -> list[int]:
    """No kernel function: return a CPU's recorded blocks of a zone, oldest first."""
    found = []
    block = int(set_words(state)[zone, cpu, own.SET_RECORDED + at.HEAD])
    while block >= 0 and len(found) <= len(state.blocks):
        found.append(block)
        block = int(block_words(state)[block, own.BLOCK_NEXT])
    return found


def broken_ownership(state: State) -> list[str]:
    """No kernel function: return one line for each invariant of ownership that does not hold."""
    if not state.st[at.OWNERSHIP]:
        return []
    owner = owners(state)
    lines = []
    if (owner < 0).any() or (owner > state.machine.nr_cpus).any():
        return ["a block's owner is no CPU"]
    owned = np.flatnonzero(owner)
    strange = owned[state.blocks["migratetype"][owned] >= at.PCP_TYPES]
    lines += [f"block {block} is owned, of a type that has no lists" for block in strange[:5]]
    outside = owned[state.blocks["zone"][owned] == 0]
    lines += [f"block {block} is owned and of no zone" for block in outside[:5]]
    lines += _check_recorded(state, owner)
    lines += _check_whole_blocks(state, owner)
    lines += _check_listed(state, owner)
    return lines


def _check_recorded(state: State, owner: np.ndarray) -> list[str]:
    """No kernel function: return recorded blocks that are not on the right list.

    That is the one list of their owner and zone.
    """
    lines = []
    words = block_words(state)
    seen = np.zeros(len(owner), np.int64)
    for zone in range(len(state.machine.zones)):
        for cpu in range(state.machine.nr_cpus):
            blocks = recorded_blocks(state, zone, cpu)
            entries = set_words(state)[zone, cpu, own.SET_RECORDED + at.ENTRIES]
            if len(blocks) != entries:
                lines.append(f"zone {zone} cpu {cpu}: {len(blocks)} recorded, {entries} counted")
            for block in blocks:
                seen[block] += 1
                if owner[block] != cpu + 1 or state.blocks[block]["zone"] != zone + 1:
                    lines.append(f"block {block} is recorded by CPU {cpu}, which does not own it")
    if (seen != words[:, own.BLOCK_IS_RECORDED]).any():
        wrong = int(np.argmax(seen != words[:, own.BLOCK_IS_RECORDED]))
        lines.append(f"block {wrong} is on {seen[wrong]} lists of recorded blocks")
    return lines


def _check_whole_blocks(state: State, owner: np.ndarray) -> list[str]:
    """No kernel function: return blocks that are free as a whole but have an owner."""
    order = state.machine.pageblock_order
    pages = state.pages
    whole = np.flatnonzero((pages["where"] == at.BUDDY) & (pages["order"] >= order))
    lines = []
    for pfn in whole:
        first = int(pfn) >> order
        count = 1 << (int(pages["order"][pfn]) - order)
        if owner[first : first + count].any():
            lines.append(f"the free buddy at page {pfn} covers an owned block")
    return lines[:5]


def _check_listed(state: State, owner: np.ndarray) -> list[str]:
    """No kernel function: return mergeable pages of owned blocks that are on other lists.

    They belong on their owner's.
    """
    lines = []
    order = state.machine.pageblock_order
    for zone in range(len(state.machine.zones)):
        for cpu in range(state.machine.nr_cpus):
            region = state.pcp_region(zone, cpu)[at.PCP_LISTS : at.PCP_SITES]
            for index, words in enumerate(region.reshape(-1, at.LIST_WORDS)):
                for pfn in state.list_pages(words):
                    page = state.pages[pfn]
                    if int(page["order"]) != index // 3:
                        lines.append(
                            f"zone {zone} cpu {cpu}: page {pfn} is on another order's list"
                        )
                    holder = int(owner[pfn >> order])
                    if page["flags"] & at.MERGEABLE and holder not in (0, cpu + 1):
                        lines.append(f"mergeable page {pfn} is on CPU {cpu}, not on its owner's")
    return lines
