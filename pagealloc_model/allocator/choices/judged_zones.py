"""Judging which zone serves a request, and what that rests on: free pages, boosts, lists.

The walk is the model's own (S3.1), from the true state; it takes nothing.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.choices import judging
from pagealloc_model.allocator.choices import recorded_steps as rec
from pagealloc_model.allocator.choices import true_state as true
from pagealloc_model.allocator.choices.judging import judge, leave_unjudged, tally_class
from pagealloc_model.allocator.choices.true_state import list_at, notes_at, zone_notes_at
from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.alloc_flags import fast_path_flags, slow_path_flags
from pagealloc_model.allocator.core.buddy import smallest_fit
from pagealloc_model.allocator.core.counters import seen_free
from pagealloc_model.allocator.core.fallback import choose_claim
from pagealloc_model.allocator.core.fallback_search import choose_steal
from pagealloc_model.allocator.core.offsets import pcp_at, zone_at, zonelist_at
from pagealloc_model.allocator.core.pcp import list_index
from pagealloc_model.allocator.core.request import drops_nofragment, is_busy, is_on_another_node
from pagealloc_model.allocator.core.watermark import (
    boost_watermark,
    mark_pages,
    pages_above_mark,
    passes_watermark,
)
from pagealloc_model.base.jit import inner

FAR = 1 << 40
"""More pages than any zone has."""


@inner
def follow_free(st: np.ndarray, zone: int, cpu: int, change: int) -> None:
    """Pages entered (or, negative, left) a zone's buddy: what watermark tests see from now on.

    They see what the CPUs have passed on (S1.10).
    """
    notes = zone_notes_at(st, zone)
    if not st[notes + true.ZONE_NOTE_FREE_KNOWN]:
        return
    st[notes + true.ZONE_NOTE_FREE] += change
    region = zone_at(zone)
    held = notes_at(st, pcp_at(st, zone, cpu)) + true.NOTE_FREE_HELD
    kept = st[held] + change
    if abs(kept) > st[region + at.ZONE_THRESHOLD]:
        kept = 0
    st[notes + true.ZONE_NOTE_FREE_HELD] += kept - st[held]
    st[held] = kept
    seen = st[notes + true.ZONE_NOTE_FREE] - st[notes + true.ZONE_NOTE_FREE_HELD]
    st[region + at.ZONE_FREE_UNFOLDED] = st[region + at.ZONE_FREE] - seen


@inner
def read_zone(st: np.ndarray, steps: np.ndarray, number: int) -> None:
    """A snapshot tells a zone's free pages, those on its HIGHATOMIC lists, and its boost."""
    zone = int(steps[number]["zone"])
    region = zone_at(zone)
    notes = zone_notes_at(st, zone)
    st[notes + true.ZONE_NOTE_FREE_KNOWN] = 1
    st[notes + true.ZONE_NOTE_FREE] = int(steps[number]["pages"])
    follow_free(st, zone, int(steps[number]["cpu"]), 0)
    st[region + at.ZONE_BOOST] = int(steps[number]["asked"])
    if int(steps[number]["objects"]) >= 0:
        st[region + at.ZONE_FREE_HIGHATOMIC] = int(steps[number]["objects"])


@inner
def moved_free_pages(pages: np.ndarray, steps: np.ndarray, number: int) -> int:
    """By how many pages a step just applied changed its zone's free pages."""
    operation = int(steps[number]["operation"])
    size = 1 << int(steps[number]["order"])
    if operation == rec.REMOVE:
        return -size
    if operation == rec.DRAIN:
        return size
    if operation == rec.ISOLATED:
        return -int(steps[number]["pages"])
    if operation == rec.PUSH and int(pages[int(steps[number]["pfn"])]["where"]) != at.ON_PCP:
        return size
    return 0


@inner
def note_boosts(st: np.ndarray, zone: int, tried: int) -> None:
    """The kernel fell back within blocks: each that it looked into raised the boost (S6.3)."""
    for _ in range(tried):
        boost_watermark(st, zone)


@inner
def has_page(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    zone: int,
    cpu: int,
    order: int,
    migratetype: int,
    flags: int,
) -> bool:
    """Whether a zone that passes its mark has a page for the request (S3.2, S6.2, S7.3)."""
    index = list_index(st, order, migratetype)
    if index >= 0 and st[list_at(pcp_at(st, zone, cpu), index) + at.HEAD] >= 0:
        return True
    if smallest_fit(st, zone, order, migratetype) >= 0:
        return True
    reserve_too = flags & (at.ALLOC_HIGHATOMIC | at.ALLOC_NON_BLOCK) != 0
    if reserve_too and smallest_fit(st, zone, order, at.HIGHATOMIC) >= 0:
        return True
    if flags & at.ALLOC_CMA and smallest_fit(st, zone, order, st[at.CMA]) >= 0:
        return True
    if choose_claim(pages, blocks, st, zone, order, migratetype, flags) >= 0:
        return True
    return not flags & at.ALLOC_NOFRAGMENT and choose_steal(st, zone, order, migratetype) >= 0


@inner
def walked_to(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    zonelist: int,
    cpu: int,
    order: int,
    migratetype: int,
    highest_type: int,
    flags: int,
) -> tuple[int, int]:
    """The zone that a walk with these flags ends at (S3.1), -1 if none; the closest test's margin.

    The margin is the least distance of a test's two sides, pages.
    """
    position = zonelist
    margin = FAR
    skips_busy = st[at.SKIPS_BUSY_NODES] != 0
    skipped = False
    while True:
        zone = st[position]
        position += 1
        if zone < 0:
            if skipped:
                skips_busy = False
                skipped = False
            elif drops_nofragment(st, flags):
                flags &= ~at.ALLOC_NOFRAGMENT
            else:
                return -1, margin
            position = zonelist
            continue
        if drops_nofragment(st, flags) and is_on_another_node(st, zone, st[zonelist]):
            flags &= ~at.ALLOC_NOFRAGMENT
            position = zonelist
            continue
        if skips_busy and is_busy(st, zone):
            skipped = True
            continue
        mark = flags & at.WMARK_MASK
        wanted = mark_pages(st, zone, mark)
        free = seen_free(st, zone)
        left = pages_above_mark(st, zone, order, wanted, highest_type, flags, free)
        margin = min(margin, abs(left))
        if passes_watermark(st, zone, order, mark, highest_type, flags) and has_page(
            pages, blocks, st, zone, cpu, order, migratetype, flags
        ):
            return zone, margin


@inner
def predicted_zone(
    pages: np.ndarray, blocks: np.ndarray, st: np.ndarray, steps: np.ndarray, number: int
) -> tuple[int, int]:
    """The zone that serves a request by the rules, and the margin of its closest test.

    A walk that ends without a zone is followed by that of the slow path, and that by one on all
    reserves: a served request for which marks leave no zone was allowed to pass them.
    """
    cpu = int(steps[number]["cpu"])
    order = int(steps[number]["order"])
    gfp = int(steps[number]["gfp"])
    migratetype = (gfp >> 3) & 3
    highest = int(steps[number]["highest"])
    zonelist = zonelist_at(st, cpu, highest, gfp & at.GFP_READ_BITS)
    flags = fast_path_flags(st, zonelist, migratetype, gfp)
    zone, margin = walked_to(pages, blocks, st, zonelist, cpu, order, migratetype, highest, flags)
    if zone >= 0:
        return zone, margin
    flags = slow_path_flags(st, gfp, order, flags)
    zone, closer = walked_to(pages, blocks, st, zonelist, cpu, order, migratetype, highest, flags)
    return zone, min(margin, closer)


@inner
def class_slot(steps: np.ndarray, number: int, margin: int) -> int:
    """Slot of a request's class: order, type, atomic or not, margin."""
    order = int(steps[number]["order"])
    gfp = int(steps[number]["gfp"])
    size = 0 if order == 0 else 1 if order <= 3 else 2
    atomic = 1 if gfp & at.GFP_HIGH and not gfp & at.GFP_DIRECT_RECLAIM else 0
    bucket = 0
    for limit in judging.MARGINS:
        if margin >= limit:
            bucket += 1
    slot = (size * at.PCP_TYPES + ((gfp >> 3) & 3)) * 2 + atomic
    return judging.TYPE_SLOTS + judging.TIME_BINS + slot * (len(judging.MARGINS) + 1) + bucket


@inner
def judge_zone(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    steps: np.ndarray,
    tally: np.ndarray,
    misses: np.ndarray,
    number: int,
) -> None:
    """A request was served from a zone: the one that the rules name (S3.1)?"""
    actual = int(steps[number]["zone"])
    highest = int(steps[number]["highest"])
    gfp = int(steps[number]["gfp"])
    cpu = int(steps[number]["cpu"])
    if not st[zone_notes_at(st, actual) + true.ZONE_NOTE_FREE_KNOWN]:
        leave_unjudged(tally, steps, number, judging.ZONE)
        return
    preferred = st[zonelist_at(st, cpu, highest, gfp & at.GFP_READ_BITS)]
    zone, margin = predicted_zone(pages, blocks, st, steps, number)
    pcp = pcp_at(st, actual, cpu)
    null_hit = preferred == actual
    hit = zone == actual
    judge(st, tally, misses, steps, number, judging.ZONE, pcp, hit, null_hit, zone, actual)
    tally_class(tally, class_slot(steps, number, margin), hit, null_hit)
