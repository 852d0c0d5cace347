"""What must hold in any state: places, counts, merges, block types.

Where free lists need not match block types (6.1), less holds: a buddy's list is its own affair,
buddies of at least pageblock order may stay unmerged, and more may count as reserved than is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.superpageblocks import FIRST_TAINTED, RANGES, TAINTS
from pagealloc_model.allocator.ownership.ownership_invariants import broken_ownership
from pagealloc_model.allocator.pressure.pressure_invariants import broken_pressure_invariants

if TYPE_CHECKING:
    from pagealloc_model.allocator.core.state import State


def broken_invariants(state: State) -> list[str]:
    """No kernel function: return one line for each broken invariant, none for a sound state.

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
    if (seen > 1).any():
        lines.append(f"page {int(np.argmax(seen > 1))} is in two places")
    heads = np.flatnonzero(state.pages["where"] == at.ALLOCATED)
    for order in range(state.machine.max_order + 1):
        first = heads[state.pages["order"][heads] == order]
        span = (first[:, None] + np.arange(1 << order)).ravel()
        if (seen[span] > 0).any():
            lines.append(f"an allocation of order {order} overlaps free pages")
    lines += _check_deltas(state)
    lines += _check_merges(state)
    lines += _check_reserves(state)
    lines += broken_ownership(state)
    lines += _check_superpageblocks(state)
    if state.is_elastic:
        lines += broken_pressure_invariants(state, seen)
    return lines


def _lists_match_blocks(state: State) -> bool:
    """No kernel function: return whether lists must match block types."""
    return bool(state.st[at.RULE_LISTS_MATCH_BLOCKS])


def _check_free_lists(state: State, zone: int, seen: np.ndarray) -> list[str]:
    """No kernel function: return what is wrong with a zone's free lists, one line each."""
    lines = []
    region = state.zone_region(zone)
    total = highatomic = cma = 0
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
                matches = block["migratetype"] == migratetype or not _lists_match_blocks(state)
                if not matches or block["zone"] != zone + 1:
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
    """No kernel function: return what is wrong with a pageset, one line each."""
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


def _check_deltas(state: State) -> list[str]:
    """No kernel function: return where counters lag behind by other than what CPUs hold back."""
    lines = []
    for zone in range(len(state.machine.zones)):
        region = state.zone_region(zone)
        regions = [state.pcp_region(zone, cpu) for cpu in range(state.machine.nr_cpus)]
        for unfolded, delta in (
            (at.ZONE_FREE_UNFOLDED, at.PCP_FREE_DELTA),
            (at.ZONE_FREE_CMA_UNFOLDED, at.PCP_FREE_CMA_DELTA),
        ):
            held = sum(int(each[delta]) for each in regions)
            if held != region[unfolded]:
                lines.append(
                    f"zone {zone}: CPUs hold {held} pages back, {region[unfolded]} counted"
                )
    return lines


def _check_merges(state: State) -> list[str]:
    """No kernel function: return neighbours that should have merged, one line each.

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
    mine, other = heads >> machine.pageblock_order, buddies >> machine.pageblock_order
    alike = (types[mine] == types[other]) | (
        (types[mine] < at.PCP_TYPES) & (types[other] < at.PCP_TYPES)
    )
    unmerged = both & alike & (zones[mine] == zones[other]) & (heads < buddies)
    whole = unmerged & (orders[heads] >= machine.pageblock_order)
    if (
        not _lists_match_blocks(state)
        or whole.sum() <= state.sites()[:, :, at.SITE_UNRESERVE, at.SITE_OBJECTS].sum()
    ):
        unmerged &= ~whole
    return [
        f"free buddies at page {pfn} and its partner have not merged" for pfn in heads[unmerged][:5]
    ]


def _check_reserves(state: State) -> list[str]:
    """No kernel function: return what is wrong with the highatomic reserves, one line each."""
    lines = []
    tagged = state.block_counts()[:, at.HIGHATOMIC] << state.machine.pageblock_order
    for zone, pages in enumerate(tagged):
        reserved = state.zone_region(zone)[at.ZONE_RESERVED_HIGHATOMIC]
        if reserved < pages or (reserved > pages and _lists_match_blocks(state)):
            lines.append(f"zone {zone}: {reserved} pages reserved, {pages} in highatomic blocks")
    return lines


def _check_superpageblocks(state: State) -> list[str]:
    """No kernel function: return one line for each list or count that breaks S14.1 or S14.2."""
    base = int(state.st[at.SUPERPAGEBLOCKS])
    if not base:
        return []
    ranges, first = int(state.st[base + RANGES]), int(state.st[base + TAINTS])
    zones = len(state.machine.zones)
    counts = state.st[first : first + zones * ranges].reshape(zones, ranges)
    shift = int(state.st[at.POLICY_SUPERPAGEBLOCK_ORDER])
    blocks = np.arange(len(state.blocks)) << state.machine.pageblock_order >> shift
    tainting = np.isin(state.blocks["migratetype"], (at.UNMOVABLE, at.RECLAIMABLE, at.HIGHATOMIC))
    lines = []
    for zone in range(zones):
        own = blocks[tainting & (state.blocks["zone"] == zone + 1)]
        if (np.bincount(own, minlength=ranges) != counts[zone]).any():
            lines.append(f"zone {zone}: tainting blocks miscounted")
        words = state.zone_region(zone)[at.ZONE_LISTS :].reshape(-1, at.LIST_WORDS)
        kept = state.st[base + FIRST_TAINTED :][zone * len(words) : (zone + 1) * len(words)]
        for number, (listed, boundary) in enumerate(zip(words, kept, strict=True)):
            pfns = state.list_pages(listed)
            is_tainted = [bool(counts[zone, pfn >> shift]) for pfn in pfns]
            expected = pfns[is_tainted.index(True)] if any(is_tainted) else -1
            if is_tainted != sorted(is_tainted) or boundary != expected:
                name = f"zone {zone} order {number // at.MIGRATETYPES}"
                lines.append(f"{name} type {number % at.MIGRATETYPES}: parts are mixed up")
    return lines
