"""Every choice of a recording judged alone: what the model would have done from the true state.

The loop applies recorded moves one after the other. Before a move that embodies a choice of the
kernel, the model's own functions say what they would choose; their choice changes nothing.
"""

from __future__ import annotations

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.choices import true_state as true
from pagealloc_model.allocator.choices import tuning_words as tuning
from pagealloc_model.allocator.choices.judged_pcp import drain_one, pop, push
from pagealloc_model.allocator.choices.judged_zones import (
    follow_free,
    judge_zone,
    moved_free_pages,
    read_zone,
    remove,
)
from pagealloc_model.allocator.choices.judging import Judged
from pagealloc_model.allocator.choices.true_state import zone_notes_at
from pagealloc_model.allocator.layout import pcp_at, zone_at
from pagealloc_model.allocator.watermark import start_kswapd, stop_kswapd
from pagealloc_model.base.jit import entry, inner


@inner
def pass_tick(m: at.Arrays, cpu: int, operation: int) -> None:
    """No kernel function: note that a CPU's vmstat tick may come, or has come (S4.8)."""
    for zone in range(m.st[at.NR_ZONES]):
        if m.st[zone_at(zone) + at.ZONE_MANAGED] == 0:
            continue
        if operation == true.TICK_OPENS:
            tuning.tick_opens(m, pcp_at(m, zone, cpu))
        else:
            tuning.tick_is_over(m, pcp_at(m, zone, cpu), zone)


@inner
def asks_zones(m: at.Arrays, j: Judged, number: int) -> bool:
    """No kernel function: return whether a request walks zones before this step."""
    operation = int(j.steps[number]["operation"])
    if operation == true.REMOVE:
        first = int(j.steps[number]["flags"]) & true.RUN_FIRST
        return first != 0 and int(j.steps[number]["flags"]) & true.USED_AT_ONCE != 0
    if operation == true.POP:
        return int(m.pages[int(j.steps[number]["pfn"])]["where"]) != at.ALLOCATED
    return operation == true.FAILED


@inner
def visit_zones(m: at.Arrays, j: Judged, number: int) -> None:
    """No kernel function: walk a request's zones to the one that served it."""
    zone = int(j.steps[number]["zone"])
    types = m.st[at.ZONE_TYPES]
    lowest = max(zone, 0)
    first = lowest // types * types
    for each in range(first + int(j.steps[number]["highest"]), lowest - 1, -1):
        if m.st[zone_at(each) + at.ZONE_MANAGED]:
            tuning.visit(m, each, int(j.steps[number]["order"]), int(j.steps[number]["highest"]))


@inner
def pass_snapshot(m: at.Arrays, j: Judged, number: int) -> None:
    """No kernel function: take up the begin or end of a snapshot of a pageset or of free pages."""
    if int(j.steps[number]["operation"]) == true.FREE_READ:
        read_zone(m, j, number)
        return
    pcp = pcp_at(m, int(j.steps[number]["zone"]), int(j.steps[number]["cpu"]))
    high = int(j.steps[number]["pages"])
    if int(j.steps[number]["operation"]) == true.SNAPSHOT:
        tuning.begin_snapshot(m, pcp)
    else:
        tuning.end_snapshot(m, pcp, int(j.steps[number]["objects"]), high)


@inner
def note_reclaim(m: at.Arrays) -> None:
    """No kernel function: note when kswapd runs, in both worlds, as events tell (S10.2)."""
    for zone in range(m.st[at.NR_ZONES]):
        active = m.st[zone_at(zone) + at.ZONE_RECLAIM_ACTIVE]
        m.st[zone_notes_at(m, zone) + true.ZONE_NOTE_RECLAIM_ACTIVE] = active


@entry
def resync(m: at.Arrays, j: Judged, low: int, high: int) -> int:
    """No kernel function: apply `steps[low:high]`, judging each choice.

    Args:
        m: the machine; behind its words are the notes and repair counts of `true_state`.
        j: what is judged; written.
        low: first step.
        high: one past the last step.

    Returns:
        `high`, or the step at which a list was found corrupt: `st[CORRUPT_AT]` says where.
    """
    for number in range(low, high):
        operation = int(j.steps[number]["operation"])
        cpu = int(j.steps[number]["cpu"])
        m.st[at.EVENT_CPU] = cpu
        if asks_zones(m, j, number):
            if operation != true.FAILED:
                judge_zone(m, j, number)
            visit_zones(m, j, number)
        if operation == true.POP:
            pop(m, j, number)
        elif operation == true.PUSH:
            push(m, j, number)
        elif operation == true.REMOVE:
            remove(m, j, number)
        elif operation == true.DRAIN:
            drain_one(m, j, number)
        elif operation >= true.SNAPSHOT and operation <= true.FREE_READ:
            pass_snapshot(m, j, number)
        elif operation == true.TICK_OPENS or operation == true.TICK_OVER:
            pass_tick(m, cpu, operation)
        elif operation == true.RECLAIM_STARTS:
            node = int(j.steps[number]["objects"])
            stop_kswapd(m, node)
            start_kswapd(m, node, int(j.steps[number]["zone"]))
            note_reclaim(m)
        elif operation == true.RECLAIM_STOPS:
            stop_kswapd(m, int(j.steps[number]["objects"]))
            note_reclaim(m)
        if (operation >= true.POP and operation <= true.DRAIN) or operation == true.ISOLATED:
            zone = int(j.steps[number]["zone"])
            follow_free(m, zone, cpu, moved_free_pages(m, j, number))
        if operation >= true.POP and operation <= true.DRAIN:
            tuning.follow_snapshot(m, pcp_at(m, int(j.steps[number]["zone"]), cpu))
        if m.st[at.CORRUPT_AT]:
            return number
    return high
