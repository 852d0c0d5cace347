"""What holds of an elastic replay's state between two events: LRU lists, pages held, pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr

if TYPE_CHECKING:
    from pagealloc_model.allocator.core.state import State


def broken_pressure_invariants(state: State, seen: np.ndarray) -> list[str]:
    """No kernel function: return one line for each invariant that does not hold.

    Args:
        state: an elastic replay's, no request in progress.
        seen: int8 by page frame, how often it lies on a free or per-CPU list.
    """
    return [
        *_check_lru(state),
        *_check_slabs(state),
        *_check_held(state, seen),
        *_check_idle(state),
    ]


def broken_pieces(state: State, places: np.ndarray) -> list[str]:
    """No kernel function: return where objects and the pages said to be theirs disagree.

    Args:
        state: an elastic replay's.
        places: int32, each object's newest piece.
    """
    lines = []
    found = 0
    allocated = state.pages["where"] == at.ALLOCATED
    owners = np.where(allocated, state.folios["object"], 0).tolist()
    siblings = state.folios["sibling"].tolist()
    numbers = np.flatnonzero(places >= 0)
    for number, first in zip(numbers.tolist(), places[numbers].tolist(), strict=True):
        pfn = first
        while pfn >= 0:
            found += 1
            if owners[pfn] != number + 1:
                lines.append(f"page {pfn} is no piece of object {number}, which names it")
                break
            pfn = siblings[pfn] - 1
    owned = int((allocated & (state.folios["object"] > 0)).sum())
    if owned != found:
        lines.append(f"{owned} pages belong to objects, {found} are named by them")
    return lines


def _linked(state: State, pfn: int) -> Iterator[int]:
    """No kernel function: return the pages linked from one on."""
    following = np.ascontiguousarray(state.pages["next"]) if pfn >= 0 else state.pages["next"]
    for _ in range(len(following) + 1):
        if pfn < 0:
            return
        yield pfn
        pfn = int(following[pfn])


def _words(state: State, region: int, index: int, stride: int) -> np.ndarray:
    """No kernel function: return one node's, zone's or compactor's words."""
    start = int(state.st[int(state.st[at.PRESSURE_BASE]) + region]) + index * stride
    return state.st[start : start + stride]


def _check_lru(state: State) -> list[str]:
    """No kernel function: return what is wrong with the LRU lists, one line each."""
    lines = []
    zones = len(state.machine.zones)
    by_zone = np.zeros((zones, pr.LRU_LISTS), np.int64)
    linked = 0
    for node in range(len(state.machine.nodes)):
        words = _words(state, pr.NODES_BASE, node, pr.NODE_WORDS)
        for lst in range(pr.LRU_LISTS):
            lists = words[pr.NODE_LISTS :].reshape(-1)[lst * at.LIST_WORDS :]
            pfns = np.array(list(_linked(state, int(lists[at.HEAD]))), np.int64)
            name = f"node {node} LRU list {lst}"
            linked += len(pfns)
            if len(pfns) != lists[at.ENTRIES]:
                lines.append(f"{name}: {len(pfns)} linked, {lists[at.ENTRIES]} counted")
            wrong = state.folios["place"][pfns] != lst + 1
            wrong |= state.pages["where"][pfns] != at.ALLOCATED
            if wrong.any():
                lines.append(f"{name}: page {pfns[wrong][0]} is not marked as on it")
            sizes = np.int64(1) << state.pages["order"][pfns].astype(np.int64)
            if sizes.sum() != words[pr.NODE_PAGES + lst]:
                lines.append(f"{name}: {sizes.sum()} pages, {words[pr.NODE_PAGES + lst]} counted")
            zone = state.blocks["zone"][pfns >> state.machine.pageblock_order].astype(int) - 1
            np.add.at(by_zone[:, lst], zone, sizes)
    for zone in range(zones):
        counted = _words(state, pr.ZONES_BASE, zone, pr.ZONE_WORDS)[: pr.LRU_LISTS]
        if (by_zone[zone] != counted).any():
            lines.append(f"zone {zone}: pages on LRU lists miscounted")
    marked = (state.folios["place"] > 0) & (state.pages["where"] == at.ALLOCATED)
    if marked.sum() != linked:
        lines.append(f"{marked.sum()} pages are marked as on LRU lists, {linked} are on them")
    return lines


def _check_slabs(state: State) -> list[str]:
    """No kernel function: return what is wrong with the lists of slabs, one line each."""
    lines = []
    linked = 0
    for node in range(len(state.machine.nodes)):
        words = _words(state, pr.NODES_BASE, node, pr.NODE_WORDS)
        slabs = words[pr.SLAB_LIST :]
        pfns = np.array(list(_linked(state, int(slabs[at.HEAD]))), np.int64)
        linked += len(pfns)
        if len(pfns) != slabs[at.ENTRIES]:
            lines.append(f"node {node}: {len(pfns)} slabs linked, {slabs[at.ENTRIES]} counted")
        wrong = (state.folios["slab"][pfns] <= 0) | (state.pages["where"][pfns] != at.ALLOCATED)
        if wrong.any():
            lines.append(f"node {node}: page {pfns[wrong][0]} is not marked as a slab in use")
        if words[pr.SLAB_FREEABLE] != state.folios["slab"][pfns].sum():
            lines.append(f"node {node}: objects of slabs miscounted")
    marked = int((state.folios["slab"] != 0).sum())
    return lines if marked == linked else [*lines, f"{marked} slabs marked, {linked} on lists"]


def _check_held(state: State, seen: np.ndarray) -> list[str]:
    """No kernel function: return what is wrong with pages held, one line each."""
    lines = []
    held = 0
    for number in range(1 + len(state.machine.nodes)):
        words = _words(state, pr.COMPACTORS_BASE, number, pr.COMPACTOR_WORDS)
        mine = 0
        for order in range(at.ORDERS):
            for pfn in _linked(state, int(words[pr.RUN_TARGETS + order])):
                mine += 1 << order
                if state.pages["where"][pfn] != pr.HELD or state.pages["order"][pfn] != order:
                    lines.append(f"compactor {number}: page {pfn} is not marked as held")
                if seen[pfn : pfn + (1 << order)].any():
                    lines.append(f"compactor {number}: page {pfn} is free as well")
        if mine != words[pr.RUN_HELD]:
            lines.append(f"compactor {number}: {mine} pages held, {words[pr.RUN_HELD]} counted")
        held += mine
    heads = state.pages["where"] == pr.HELD
    marked = int((np.int64(1) << state.pages["order"][heads].astype(np.int64)).sum())
    if marked != held:
        lines.append(f"{marked} pages are marked as held by compaction, {held} are")
    return lines


def _check_idle(state: State) -> list[str]:
    """No kernel function: return what is under way though nothing should be, one line each."""
    base = int(state.st[at.PRESSURE_BASE])
    waiting = state.st[base + pr.QUEUE_HEAD]
    return [f"page {waiting} waits to be freed"] if waiting >= 0 else []
