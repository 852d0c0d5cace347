"""Every choice of a recording judged alone: what the model would have done from the true state.

The loop applies recorded moves one after the other. Before a move that embodies a choice of the
kernel, the model's own functions say what they would choose; their choice changes nothing.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.choices import recorded_steps as rec
from pagealloc_model.allocator.choices import true_state as true
from pagealloc_model.allocator.choices import tuning_words as tuning
from pagealloc_model.allocator.choices.judged_allocations import pop
from pagealloc_model.allocator.choices.judged_buddy import remove
from pagealloc_model.allocator.choices.judged_frees import drain_one, push
from pagealloc_model.allocator.choices.judged_zones import (
    follow_free,
    judge_zone,
    moved_free_pages,
    read_zone,
)
from pagealloc_model.allocator.choices.true_state import zone_notes_at
from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.offsets import pcp_at, zone_at
from pagealloc_model.allocator.core.watermark import start_kswapd, stop_kswapd
from pagealloc_model.base.jit import entry, inner


@inner
def pass_tick(st: np.ndarray, cpu: int, operation: int) -> None:
    """A CPU's vmstat tick may come from now on, or has come, for all its pagesets (S4.8)."""
    for zone in range(st[at.NR_ZONES]):
        if st[zone_at(zone) + at.ZONE_MANAGED] == 0:
            continue
        if operation == rec.TICK_OPENS:
            tuning.tick_opens(st, pcp_at(st, zone, cpu))
        else:
            tuning.tick_is_over(st, pcp_at(st, zone, cpu), zone)


@inner
def asks_zones(pages: np.ndarray, steps: np.ndarray, number: int) -> bool:
    """Whether a request walks zones before this step: one served by a removal did so before it."""
    operation = int(steps[number]["operation"])
    if operation == rec.REMOVE:
        first = int(steps[number]["flags"]) & rec.RUN_FIRST
        return first != 0 and int(steps[number]["flags"]) & rec.USED_AT_ONCE != 0
    if operation == rec.POP:
        return int(pages[int(steps[number]["pfn"])]["where"]) != at.ALLOCATED
    return operation == rec.FAILED


@inner
def visit_zones(st: np.ndarray, steps: np.ndarray, number: int) -> None:
    """A request walks its node's zones down to the one that served it, noting those below high."""
    zone = int(steps[number]["zone"])
    types = st[at.ZONE_TYPES]
    lowest = max(zone, 0)
    first = lowest // types * types
    for each in range(first + int(steps[number]["highest"]), lowest - 1, -1):
        if st[zone_at(each) + at.ZONE_MANAGED]:
            tuning.visit(st, each, int(steps[number]["order"]), int(steps[number]["highest"]))


@inner
def pass_snapshot(st: np.ndarray, steps: np.ndarray, number: int) -> None:
    """A snapshot of one pageset begins or has been read, or one of a zone's free pages."""
    if int(steps[number]["operation"]) == rec.FREE_READ:
        read_zone(st, steps, number)
        return
    pcp = pcp_at(st, int(steps[number]["zone"]), int(steps[number]["cpu"]))
    high = int(steps[number]["pages"])
    if int(steps[number]["operation"]) == rec.SNAPSHOT:
        tuning.begin_snapshot(st, pcp)
    else:
        tuning.end_snapshot(st, pcp, int(steps[number]["objects"]), high)


@inner
def note_reclaim(st: np.ndarray) -> None:
    """Events tell when kswapd runs: the worlds agree on it (S10.2)."""
    for zone in range(st[at.NR_ZONES]):
        active = st[zone_at(zone) + at.ZONE_RECLAIM_ACTIVE]
        st[zone_notes_at(st, zone) + true.ZONE_NOTE_RECLAIM_ACTIVE] = active


@entry
def resync(
    pages: np.ndarray,
    blocks: np.ndarray,
    st: np.ndarray,
    track: np.ndarray,
    steps: np.ndarray,
    tally: np.ndarray,
    misses: np.ndarray,
    low: int,
    high: int,
) -> None:
    """Apply `steps[low:high]`, judging each choice.

    Args:
        pages: `layout.PAGE` records.
        blocks: `layout.BLOCK` records.
        st: int64 state with the notes and repair counts of `true_state` behind it.
        track: `true_state.TRACK` records, one per page frame.
        steps: `recorded_steps.STEP` records in time order; a push's migratetype is written.
        tally: int64, shape (choices, slots, OUTCOMES); added to.
        misses: int64, shape (choices, MISSES_KEPT + 1, MISS_COLUMNS); added to.
        low: first step.
        high: one past the last step.
    """
    for number in range(low, high):
        operation = int(steps[number]["operation"])
        cpu = int(steps[number]["cpu"])
        st[at.EVENT_CPU] = cpu
        if asks_zones(pages, steps, number):
            if operation != rec.FAILED:
                judge_zone(pages, blocks, st, steps, tally, misses, number)
            visit_zones(st, steps, number)
        if operation == rec.POP:
            pop(pages, st, track, steps, tally, misses, number)
        elif operation == rec.PUSH:
            push(pages, blocks, st, track, steps, tally, misses, number)
        elif operation == rec.REMOVE:
            remove(pages, blocks, st, track, steps, tally, misses, number)
        elif operation == rec.DRAIN:
            drain_one(pages, blocks, st, track, steps, tally, misses, number)
        elif operation >= rec.SNAPSHOT and operation <= rec.FREE_READ:
            pass_snapshot(st, steps, number)
        elif operation == rec.TICK_OPENS or operation == rec.TICK_OVER:
            pass_tick(st, cpu, operation)
        elif operation == rec.RECLAIM_STARTS:
            node = int(steps[number]["objects"])
            stop_kswapd(st, node)
            start_kswapd(st, node, int(steps[number]["zone"]))
            note_reclaim(st)
        elif operation == rec.RECLAIM_STOPS:
            stop_kswapd(st, int(steps[number]["objects"]))
            note_reclaim(st)
        if (operation >= rec.POP and operation <= rec.DRAIN) or operation == rec.ISOLATED:
            zone = int(steps[number]["zone"])
            follow_free(st, zone, cpu, moved_free_pages(pages, steps, number))
        if operation >= rec.POP and operation <= rec.DRAIN:
            tuning.follow_snapshot(st, pcp_at(st, int(steps[number]["zone"]), cpu))
