"""What must hold in any state: places, counts, merges, block types.

Where free lists need not match block types (6.1), less holds: a buddy's list is its own affair,
buddies of at least pageblock order may stay unmerged, and more may count as reserved than is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr

if TYPE_CHECKING:
    from pagealloc_model.allocator.state import State


def broken_pieces(state: State, places: np.ndarray) -> list[str]:
    """Return where objects and the pages said to be theirs disagree."""
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
    """Return the pages linked from one on."""
    following = np.ascontiguousarray(state.pages["next"]) if pfn >= 0 else state.pages["next"]
    for _ in range(len(following) + 1):
        if pfn < 0:
            return
        yield pfn
        pfn = int(following[pfn])


def _words(state: State, region: int, index: int, stride: int) -> np.ndarray:
    """Return one node's, zone's or compactor's words."""
    start = int(state.st[int(state.st[at.PRESSURE_BASE]) + region]) + index * stride
    return state.st[start : start + stride]


def _check_lru(state: State) -> list[str]:
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
    lines = []
    held = 0
    for number in range(1 + len(state.machine.nodes)):
        words = _words(state, pr.COMPACTORS_BASE, number, pr.COMPACTOR_WORDS)
        own = 0
        for order in range(at.ORDERS):
            for pfn in _linked(state, int(words[pr.RUN_TARGETS + order])):
                own += 1 << order
                if state.pages["where"][pfn] != pr.HELD or state.pages["order"][pfn] != order:
                    lines.append(f"compactor {number}: page {pfn} is not marked as held")
                if seen[pfn : pfn + (1 << order)].any():
                    lines.append(f"compactor {number}: page {pfn} is free as well")
        if own != words[pr.RUN_HELD]:
            lines.append(f"compactor {number}: {own} pages held, {words[pr.RUN_HELD]} counted")
        held += own
    heads = state.pages["where"] == pr.HELD
    marked = int((np.int64(1) << state.pages["order"][heads].astype(np.int64)).sum())
    if marked != held:
        lines.append(f"{marked} pages are marked as held by compaction, {held} are")
    return lines


def owners(state: State) -> np.ndarray:
    """Return a view of who owns each pageblock, its CPU plus one or 0."""
    first = int(state.st[state.st[at.OWNERSHIP] + at.OWNERS])
    return state.st[first : first + len(state.blocks)]


def _check_ownership(state: State) -> list[str]:
    if not state.st[at.OWNERSHIP]:
        return []
    order, pages, lines = state.machine.pageblock_order, state.pages, []
    count = len(state.blocks)
    base = int(state.st[at.OWNERSHIP])
    owner = owners(state)
    words = state.st[int(state.st[base + at.OWNED_BLOCKS]) :][: count * at.OWNED_BLOCK_WORDS]
    words = words.reshape(count, at.OWNED_BLOCK_WORDS)
    if (owner < 0).any() or (owner > state.machine.nr_cpus).any():
        return ["a block's owner is no CPU"]
    owned = np.flatnonzero(owner)
    strange = owned[state.blocks["migratetype"][owned] >= at.PCP_TYPES]
    lines += [f"block {block} is owned, of a type that has no lists" for block in strange[:5]]
    outside = owned[state.blocks["zone"][owned] == 0]
    lines += [f"block {block} is owned and of no zone" for block in outside[:5]]
    whole = np.flatnonzero((pages["where"] == at.BUDDY) & (pages["order"] >= order))
    ends = [(int(pfn) >> order, 1 << (int(pages["order"][pfn]) - order)) for pfn in whole]
    covering = [
        pfn
        for pfn, (first, blocks) in zip(whole, ends, strict=True)
        if owner[first : first + blocks].any()
    ]
    lines += [f"the free buddy at page {pfn} covers an owned block" for pfn in covering[:5]]
    seen = np.zeros(count, np.int64)
    for zone, cpu in np.ndindex(len(state.machine.zones), state.machine.nr_cpus):
        recorded: list[int] = []
        list_words = state.owned_sets()[zone, cpu, at.SET_RECORDED :]
        block = int(list_words[at.HEAD])
        while block >= 0 and len(recorded) <= count:
            recorded.append(block)
            seen[block] += 1
            if owner[block] != cpu + 1 or state.blocks[block]["zone"] != zone + 1:
                lines.append(f"block {block} is recorded by CPU {cpu}, which does not own it")
            block = int(words[block, at.BLOCK_NEXT])
        entries = list_words[at.ENTRIES]
        if len(recorded) != entries:
            lines.append(f"zone {zone} cpu {cpu}: {len(recorded)} recorded, {entries} counted")
        region = state.pcp_region(zone, cpu)[at.PCP_LISTS : at.PCP_SITES]
        for index, listed in enumerate(region.reshape(-1, at.LIST_WORDS)):
            for pfn in state.list_pages(listed):
                if int(pages["order"][pfn]) != index // 3:
                    lines.append(f"zone {zone} cpu {cpu}: page {pfn} is on another order's list")
                holder = int(owner[pfn >> order])
                if pages["flags"][pfn] & at.MERGEABLE and holder not in (0, cpu + 1):
                    lines.append(f"mergeable page {pfn} is on CPU {cpu}, not on its owner's")
    wrong = np.flatnonzero(seen != words[:, at.BLOCK_IS_RECORDED])
    lines += [f"block {each} is on {seen[each]} lists of recorded blocks" for each in wrong[:1]]
    return lines


def broken_invariants(state: State) -> list[str]:
    """Return one line for each broken invariant, none for a sound state.

    Checked: lists are linked consistently and counted right; every page is in one place; free
    pages equal the zone's counter; buddies that could merge have merged; a free buddy's list
    is that of its block's type, where the kernel keeps it so (S6.5).
    """
    lines: list[str] = []
    seen = np.zeros(len(state.pages), np.int8)
    for zone in range(len(state.machine.zones)):
        lines += _check_free_lists(state, zone, seen)
        for cpu in range(state.machine.nr_cpus):
            lines += _check_pageset(state, zone, cpu, seen)
    lines += _check_lockless(state, seen)
    if (seen > 1).any():
        lines.append(f"page {int(np.argmax(seen > 1))} is in two places")
    heads = np.flatnonzero(state.pages["where"] == at.ALLOCATED)
    for order in range(state.machine.max_order + 1):
        first = heads[state.pages["order"][heads] == order]
        span = (first[:, None] + np.arange(1 << order)).ravel()
        if (seen[span] > 0).any():
            lines.append(f"an allocation of order {order} overlaps free pages")
    lines += _check_counts(state)
    lines += _check_merges(state)
    lines += _check_ownership(state)
    if state.is_elastic:
        waiting = state.st[int(state.st[at.PRESSURE_BASE]) + pr.QUEUE_HEAD]
        lines += [f"page {waiting} waits to be freed"] if waiting >= 0 else []
        lines += [*_check_lru(state), *_check_slabs(state), *_check_held(state, seen)]
    return lines


def _check_free_lists(state: State, zone: int, seen: np.ndarray) -> list[str]:
    lines = []
    region = state.zone_region(zone)
    total = highatomic = cma = 0
    must_match = bool(state.st[at.RULE_LISTS_MATCH_BLOCKS])
    for order in range(state.machine.max_order + 1):
        for migratetype in range(at.MIGRATETYPES):
            start = at.ZONE_LISTS + (order * at.MIGRATETYPES + migratetype) * at.LIST_WORDS
            words = region[start : start + at.LIST_WORDS]
            pfns = state.list_pages(words)
            name = f"zone {zone} order {order} type {migratetype}"
            if len(pfns) != words[at.ENTRIES]:
                lines.append(f"{name}: {len(pfns)} linked, {words[at.ENTRIES]} counted")
            for pfn in pfns:
                record = state.pages[pfn]
                block = state.blocks[pfn >> state.machine.pageblock_order]
                if record["where"] != at.BUDDY or record["order"] != order:
                    lines.append(f"{name}: page {pfn} is not marked as its free buddy")
                matches = block["migratetype"] == migratetype
                if (must_match and not matches) or block["zone"] != zone + 1:
                    lines.append(f"{name}: page {pfn} lies in a block of another type or zone")
                if record["tag"] != migratetype:
                    lines.append(f"{name}: page {pfn} is marked as of another list")
                seen[pfn : pfn + (1 << order)] += 1
            total += len(pfns) << order if migratetype != state.st[at.ISOLATE] else 0
            highatomic += len(pfns) << order if migratetype == at.HIGHATOMIC else 0
            cma += len(pfns) << order if migratetype == state.st[at.CMA] else 0
    if total != region[at.ZONE_FREE]:
        lines.append(f"zone {zone}: {total} pages on free lists, {region[at.ZONE_FREE]} counted")
    if highatomic != region[at.ZONE_FREE_HIGHATOMIC]:
        lines.append(f"zone {zone}: free highatomic pages miscounted")
    if cma != region[at.ZONE_FREE_CMA]:
        lines.append(f"zone {zone}: free CMA pages miscounted")
    return lines


def _check_pageset(state: State, zone: int, cpu: int, seen: np.ndarray) -> list[str]:
    lines = []
    region = state.pcp_region(zone, cpu)
    total = 0
    for words in region[at.PCP_LISTS : at.PCP_SITES].reshape(-1, at.LIST_WORDS):
        pfns = state.list_pages(words)
        if len(pfns) != words[at.ENTRIES]:
            lines.append(f"zone {zone} cpu {cpu}: per-CPU list miscounted")
        for pfn in pfns:
            order = int(state.pages[pfn]["order"])
            if state.pages[pfn]["where"] != at.ON_PCP:
                lines.append(f"zone {zone} cpu {cpu}: page {pfn} is not marked as listed")
            seen[pfn : pfn + (1 << order)] += 1
            total += 1 << order
    if total != region[at.PCP_COUNT]:
        lines.append(f"zone {zone} cpu {cpu}: {total} pages listed, {region[at.PCP_COUNT]} counted")
    return lines


def _check_lockless(state: State, seen: np.ndarray) -> list[str]:
    lists, lines = state.lockless_lists(), []
    for zone, cpu in np.ndindex(lists.shape[:2]):
        name, total = f"zone {zone} cpu {cpu}: lockless list", 0
        for pfn in _linked(state, int(lists[zone, cpu, at.LOCKLESS_HEAD])):
            order = int(state.pages[pfn]["order"])
            if state.pages[pfn]["where"] != at.ON_PCP or state.pages[pfn]["flags"] & at.MERGEABLE:
                lines.append(f"{name}: page {pfn} is not marked as listed and plain")
            seen[pfn : pfn + (1 << order)] += 1
            total += 1 << order
        if total != lists[zone, cpu, at.LOCKLESS_PAGES]:
            lines.append(f"{name}: {total} pages, {lists[zone, cpu, at.LOCKLESS_PAGES]} counted")
    return lines


def _check_counts(state: State) -> list[str]:
    """Return where counters, and reserves, are not what CPUs and blocks say."""
    lines = []
    tagged = state.block_counts()[:, at.HIGHATOMIC] << state.machine.pageblock_order
    matching = bool(state.st[at.RULE_LISTS_MATCH_BLOCKS])
    for zone, pages in enumerate(tagged):
        region = state.zone_region(zone)
        for unfolded, delta in (
            (at.ZONE_FREE_UNFOLDED, at.PCP_FREE_DELTA),
            (at.ZONE_FREE_CMA_UNFOLDED, at.PCP_FREE_CMA_DELTA),
        ):
            held = int(state.pcp_words(delta, 1)[zone].sum())
            if held != region[unfolded]:
                lines.append(
                    f"zone {zone}: CPUs hold {held} pages back, {region[unfolded]} counted"
                )
        reserved = region[at.ZONE_RESERVED_HIGHATOMIC]
        if reserved < pages or (reserved > pages and matching):
            lines.append(f"zone {zone}: {reserved} pages reserved, {pages} in highatomic blocks")
    return lines


def _check_merges(state: State) -> list[str]:
    """Return neighbours that should have merged, one line each.

    They are of the same order and zone, of types that let them merge. A whole block that the
    highatomic reserve gives back stays beside a free neighbour (S7.4), so there may be as many such
    pairs as blocks were given back.
    """
    machine = state.machine
    where, orders = state.pages["where"], state.pages["order"]
    heads = np.flatnonzero(where == at.BUDDY)
    heads = heads[orders[heads] < machine.max_order]
    buddies = heads ^ (1 << orders[heads].astype(np.int64))
    inside = buddies < len(where)
    heads, buddies = heads[inside], buddies[inside]
    both = (where[buddies] == at.BUDDY) & (orders[buddies] == orders[heads])
    types = state.blocks["migratetype"]
    zones = state.blocks["zone"]
    own, other = heads >> machine.pageblock_order, buddies >> machine.pageblock_order
    alike = (types[own] == types[other]) | (
        (types[own] < at.PCP_TYPES) & (types[other] < at.PCP_TYPES)
    )
    unmerged = both & alike & (zones[own] == zones[other]) & (heads < buddies)
    whole = unmerged & (orders[heads] >= machine.pageblock_order)
    if (
        not state.st[at.RULE_LISTS_MATCH_BLOCKS]
        or whole.sum() <= state.sites()[:, :, at.SITE_UNRESERVE, at.SITE_OBJECTS].sum()
    ):
        unmerged &= ~whole
    return [
        f"free buddies at page {pfn} and its partner have not merged" for pfn in heads[unmerged][:5]
    ]
