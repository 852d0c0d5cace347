"""The start image of a recording: page flags, owners, the snapshots' counts and first touches."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.initial import StartImage
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.predicted.start.block_types import assign_block_types
from pagealloc_model.predicted.start.old_flags import misplaced, place_where_flags_are_old
from pagealloc_model.predicted.start.page_evidence import PageEvidence, StartFiles, object_pages
from pagealloc_model.predicted.start.start_counts import StartCounts
from pagealloc_model.predicted.start.start_lists import (
    Lists,
    listed_pages,
    refilled_lists,
    settle_list_types,
)
from pagealloc_model.predicted.start.start_totals import meet_free_totals
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.proc.pages import PageOwner

NS = 1e9


def make_start_image(
    machine: Machine,
    demand: Demand,
    counts: StartCounts,
    files: StartFiles,
    evidence: PageEvidence,
    listed_counts: np.ndarray,
    pcp_high: np.ndarray,
    *,
    seed: int = 0,
) -> StartImage:
    """Combine the sources (T10.6, T12.5, T12.7).

    Pages first seen freed were allocated at the start; pages first seen allocated were free, in
    the buddy or, where kpageflags shows no flag on them, on the per-CPU list of the CPU that
    took them. Block types are page_owner's, or follow flags so that the snapshot's counts are met.

    Args:
        machine: zones and CPUs.
        demand: the recording's demand; only first touches are read.
        counts: what the image should meet.
        files: what describes single pages; without any, see `seeded_image`.
        evidence: what `gather_evidence` makes of them.
        listed_counts: int64, shape (zones, cpus): pages on each CPU's lists.
        pcp_high: int64, shape (zones, cpus): pcp->high of each CPU's lists.
        seed: for choices that nothing settles.
    """
    random = np.random.default_rng(seed)
    refilled = refilled_lists(machine, demand, evidence, counts.time_ns)
    lists = listed_pages(machine, demand, evidence, listed_counts, refilled, random)
    listed = lists.records
    free = evidence.free.copy()
    on_lists, on_movable_lists = np.zeros(len(free), bool), np.zeros(len(free), bool)
    for pages in object_pages(listed):
        on_lists[pages] = True
    for pages in object_pages(listed[listed["migratetype"] == at.MOVABLE]):
        on_movable_lists[pages] = True
    free &= ~on_lists
    block_types = assign_block_types(machine, counts, evidence, free, on_movable_lists, seed=seed)
    settled = evidence.touched | on_lists
    spare = [kind & ~settled for kind in (evidence.plain, evidence.migratable & ~evidence.owned)]
    totals = lists.named + lists.shown + lists.guessed
    lines = meet_free_totals(
        machine, counts, free, evidence.touched | evidence.owned, spare, totals, block_types
    )
    lines += place_where_flags_are_old(
        machine, counts, evidence, on_lists, totals, free, block_types, seed=seed
    )
    settle_list_types(listed, block_types, machine.pageblock_order, refilled.reached_ns)
    pfn, order = _allocations(demand, files.page_owner, evidence)
    return StartImage(
        free=free,
        movable=_movable(machine, evidence, block_types) & ~free & ~on_lists,
        block_types=block_types,
        listed=listed,
        pcp_high=pcp_high,
        allocated_pfn=pfn,
        allocated_order=order,
        origin=(
            *_sources(demand, files),
            *lines,
            *_how_exact(machine, counts, evidence, lists, free, block_types),
        ),
    )


def _movable(machine: Machine, evidence: PageEvidence, block_types: np.ndarray) -> np.ndarray:
    """Whether each page moves if it is in use; so do those taken since flags were read (T10.9).

    Flags show these as free. What a Movable block has handed out since is taken to move.
    """
    in_movable_blocks = np.repeat(block_types == at.MOVABLE, 1 << machine.pageblock_order)
    return evidence.migratable | (evidence.buddy & in_movable_blocks)


def _allocations(
    demand: Demand, owner: PageOwner | None, evidence: PageEvidence
) -> tuple[np.ndarray, np.ndarray]:
    """First pages and orders of allocations live at the start: those freed later, those owned."""
    at_start = demand.objects[demand.at_start]
    at_start = at_start[evidence.inside[at_start["pfn"]]]
    pfn, order = at_start["pfn"].astype(np.int32), at_start["order"].astype(np.int8)
    if owner is None:
        return pfn, order
    inside = owner.pfn + (np.int64(1) << owner.order.astype(np.int64)) <= len(evidence.owned)
    first, size = owner.pfn[inside], np.int64(1) << owner.order[inside].astype(np.int64)
    before = evidence.owned_before
    whole = before[first + size] - before[first] == size
    return (
        np.concatenate([pfn, first[whole].astype(np.int32)]),
        np.concatenate([order, owner.order[inside][whole]]),
    )


def _sources(demand: Demand, files: StartFiles) -> list[str]:
    """What the image was made from, one line each."""
    lines = []
    if files.page_flags is not None:
        when = "just before the first event"
        if files.page_flags_at_ns is not None:
            when = f"{(demand.first_ns - files.page_flags_at_ns) / NS:.3f} s before the first event"
        lines.append(
            f"kpageflags: every page's place as it was {when}; what changed in between is known "
            "only for pages that events touch"
        )
    owner = files.page_owner
    if owner is not None:
        orders = (
            f"orders and movability of {count_of(len(owner), 'allocation')}, "
            f"{count_of(owner.pages, 'page')}"
        )
        lines.append(f"page_owner: {orders}, as recorded")
    return lines


def _how_exact(
    machine: Machine,
    counts: StartCounts,
    evidence: PageEvidence,
    lists: Lists,
    free: np.ndarray,
    block_types: np.ndarray,
) -> list[str]:
    """How far the image is from the counts, and what of it is a guess, one line each."""
    named, shown, guessed = (int(each.sum()) for each in (lists.named, lists.shown, lists.guessed))
    lines = [
        f"per-CPU lists: of {named + shown + guessed} pages, {named} are known by the CPU that "
        f"takes them first, {shown} by their flags; {guessed} are guessed"
    ]
    exact = int((evidence.block_types >= 0).sum())
    with_memory = sum(len(blocks) for blocks in evidence.memory_blocks)
    if counts.blocks is None:
        lines.append("no pagetypeinfo: pageblocks of unknown type are taken for Movable")
    else:
        lines.append(
            f"pageblocks: {exact} of {with_memory} have their recorded type, the others are chosen "
            "so that the counts by type are met"
        )
    if counts.free_buddies is not None:
        listed = lists.named + lists.shown + lists.guessed
        off = misplaced(machine, counts, listed, free, block_types)
        zones = ", ".join(
            f"{machine.zone_title(index)} {100 * off[index]:.2f} %"
            for index, zone in enumerate(machine.zones)
            if zone.managed
        )
        lines.append(
            "free pages in another cell of order and type than the start snapshot's free lists, "
            f"carried back to the first event, ask for: {zones}"
        )
    return lines
