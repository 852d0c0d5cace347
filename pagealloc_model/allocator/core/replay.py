"""The event loop: exact at any split of the events, so that a replay can be resumed anywhere."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.alloc_context import prepare_alloc_pages
from pagealloc_model.allocator.core.buddy import grow_zone
from pagealloc_model.allocator.core.highatomic import unreserve_highatomic_pageblock
from pagealloc_model.allocator.core.isolation import capture_page, isolate_free_page
from pagealloc_model.allocator.core.kswapd_runs import end_kswapd, start_kswapd
from pagealloc_model.allocator.core.list_locks import hold_drained, let_go_of_lists
from pagealloc_model.allocator.core.look_ahead import look_ahead
from pagealloc_model.allocator.core.object_chains import allocate_object, free_object
from pagealloc_model.allocator.core.offsets import cpu_at, zone_at
from pagealloc_model.allocator.core.pcp import set_pcp_high
from pagealloc_model.allocator.core.pcp_drain import (
    drain_all_pages,
    drain_pages_zone,
    refresh_cpu_vm_stats,
)
from pagealloc_model.allocator.core.reclaim import begin_reclaim
from pagealloc_model.allocator.core.request import fail_as_recorded
from pagealloc_model.allocator.core.zone_walk import begin_request
from pagealloc_model.allocator.ownership.ownership import disown_cpu
from pagealloc_model.base.jit import cold, entry, inner


@inner
def tick(m: at.MachineArrays) -> None:
    """No kernel function: run the decay tick that is due and set the next one (S4.8).

    The last CPU's comes first.
    """
    cpu = m.st[at.TICK_CPU]
    m.st[at.NOW] = m.st[at.NEXT_TICK]
    m.st[at.EVENT_CPU] = cpu
    refresh_cpu_vm_stats(m, cpu)
    cpu -= 1
    if cpu < 0:
        cpu = m.st[at.NR_CPUS] - 1
        m.st[at.TICK_BASE] += m.st[at.TICK_PERIOD]
    m.st[at.TICK_CPU] = cpu
    m.st[at.NEXT_TICK] = m.st[at.TICK_BASE] - cpu * m.st[at.TICK_STAGGER]


@inner
def take_cpu_offline(m: at.MachineArrays, dead: int) -> None:
    """page_alloc_cpu_dead(): return what a CPU's lists hold (S4.9, S12.8).

    The CPU may lose the blocks that it owns.
    """
    for zone in range(m.st[at.NR_ZONES]):
        drain_pages_zone(m, zone, dead)
    disown_cpu(m, dead)
    m.st[cpu_at(m, dead) + at.CPU_IS_DEAD] = 1


@inner
def log_is_nearly_full(m: at.MachineArrays) -> bool:
    """No kernel function: return whether the next event might not fit the log."""
    return m.st[at.LOG_ROWS] + at.LOG_MARGIN > m.log.shape[0]


@cold
def run_ticks(m: at.MachineArrays, until_ns: int) -> None:
    """No kernel function: run the decay ticks that are due, as long as the log has room."""
    while m.st[at.NEXT_TICK] <= until_ns and not log_is_nearly_full(m):
        tick(m)


@cold
def take_imposed_event(m: at.MachineArrays, events: np.ndarray, position: int) -> None:
    """No kernel function: take an event of which the recording told what the kernel decided."""
    operation = int(events[position]["operation"])
    cpu = int(events[position]["cpu"])
    zone = int(events[position]["zone"])
    offset = int(events[position]["offset"])
    if operation == at.ALLOC_IN_ZONE or operation == at.HIDDEN_ALLOC_IN_ZONE:
        m.st[at.COUNT_ALLOC if operation == at.ALLOC_IN_ZONE else at.COUNT_HIDDEN] += 1
        order = int(events[position]["order"])
        migratetype = int(events[position]["migratetype"])
        bits = int(events[position]["bits"])
        m.st[at.ONLY_ZONE] = offset + 1
        place = allocate_object(m, cpu, order, migratetype, zone, bits)
        m.st[at.ONLY_ZONE] = 0
        m.places[int(events[position]["object"])] = place
    elif operation == at.SET_BOOST:
        m.st[zone_at(zone) + at.ZONE_BOOST] = offset
    elif operation == at.DRAIN_ZONE:
        drain_pages_zone(m, zone, offset)
    elif operation == at.RELEASE_BLOCK:
        order = int(events[position]["order"])
        migratetype = int(events[position]["migratetype"])
        bits = int(events[position]["bits"])
        ac = prepare_alloc_pages(m, cpu, order, migratetype, zone, bits)
        m.st[at.RELEASES_RECORDED] = 0
        unreserve_highatomic_pageblock(m, ac, False)
        m.st[at.RELEASES_RECORDED] = 1


@cold
def take_rare_event(m: at.MachineArrays, events: np.ndarray, position: int) -> None:
    """No kernel function: take an event that is neither an allocation nor a free."""
    operation = int(events[position]["operation"])
    cpu = int(events[position]["cpu"])
    order = int(events[position]["order"])
    zone = int(events[position]["zone"])
    offset = int(events[position]["offset"])
    if operation == at.RECORDED_FAILURE:
        m.st[at.COUNT_RECORDED_FAILURE] += 1
        migratetype = int(events[position]["migratetype"])
        bits = int(events[position]["bits"])
        fail_as_recorded(m, prepare_alloc_pages(m, cpu, order, migratetype, zone, bits))
    elif operation == at.KSWAPD_START:
        end_kswapd(m, offset)
        start_kswapd(m, offset, zone)
    elif operation == at.KSWAPD_STOP:
        end_kswapd(m, offset)
    elif operation == at.SET_PCP_HIGH:
        set_pcp_high(m, zone, cpu, offset)
    elif operation == at.TICK:
        refresh_cpu_vm_stats(m, cpu)
    elif operation == at.RECLAIM_BEGIN:
        migratetype = int(events[position]["migratetype"])
        bits = int(events[position]["bits"])
        begin_reclaim(m, prepare_alloc_pages(m, cpu, order, migratetype, zone, bits))
    elif operation == at.GROW:
        grow_zone(m, zone, offset, order)
    elif operation == at.DRAIN_ALL:
        drain_all_pages(m)
    elif operation == at.CPU_DIES:
        take_cpu_offline(m, offset)
    elif operation == at.CPU_RETURNS:
        m.st[cpu_at(m, offset) + at.CPU_IS_DEAD] = 0
    elif operation == at.HOLD_DRAINED:
        hold_drained(m, cpu)
    elif operation == at.BEGIN_REQUEST:
        migratetype = int(events[position]["migratetype"])
        bits = int(events[position]["bits"])
        begin_request(m, prepare_alloc_pages(m, cpu, order, migratetype, zone, bits))
    else:
        take_imposed_event(m, events, position)


@entry
def advance(m: at.MachineArrays, events: np.ndarray, low: int, high: int, until_ns: int) -> int:
    """No kernel function: replay `events[low:high]`, then the ticks due before `until_ns`.

    Args:
        m: the machine; the log must be empty and LOG_ROWS 0.
        events: `layout.EVENT` records in time order.
        low: first event.
        high: one past the last event.
        until_ns: time up to which decay ticks are due; -1 for none beyond the events.

    Returns:
        The event to go on with: `high`, or less if the log ran full. Ticks may remain then too.
    """
    position = low
    while position < high:
        now = int(events[position]["time_ns"])
        if m.st[at.NEXT_TICK] <= now:
            run_ticks(m, now)
        if log_is_nearly_full(m):
            return position
        look_ahead(m, events, position, high)
        m.st[at.NOW] = now
        cpu = int(events[position]["cpu"])
        m.st[at.EVENT_CPU] = cpu
        operation = int(events[position]["operation"])
        bits = int(events[position]["bits"])
        in_batch = operation == at.FREE and bits & at.FREED_IN_BATCH != 0
        if in_batch:
            m.st[cpu_at(m, cpu) + at.CPU_LOCKED_SET] = 0
        elif not bits & at.INTERRUPTS_HOLDER:
            let_go_of_lists(m, cpu)
        number = int(events[position]["object"])
        order = int(events[position]["order"])
        if operation == at.FREE:
            place = int(m.places[number])
            if place == -1:
                m.st[at.COUNT_ORPHAN_FREE] += 1
            else:
                m.st[at.COUNT_FREE] += 1
                offset = int(events[position]["offset"])
                m.places[number] = free_object(m, cpu, place, offset, order, in_batch)
        elif operation == at.ALLOC or operation == at.HIDDEN_ALLOC:
            m.st[at.COUNT_HIDDEN if operation == at.HIDDEN_ALLOC else at.COUNT_ALLOC] += 1
            m.places[number] = allocate_object(
                m,
                cpu,
                order,
                int(events[position]["migratetype"]),
                int(events[position]["zone"]),
                bits,
            )
        elif operation == at.ISOLATE_FREE:
            zone = int(events[position]["zone"])
            wanted = int(events[position]["offset"])
            m.places[number] = isolate_free_page(m, zone, order, wanted)
        elif operation == at.CAPTURE:
            m.st[at.COUNT_ALLOC] += 1
            zone = int(events[position]["offset"])
            migratetype = int(events[position]["migratetype"])
            m.places[number] = capture_page(m, zone, order, migratetype)
        else:
            take_rare_event(m, events, position)
        position += 1
    if m.st[at.NEXT_TICK] <= until_ns:
        run_ticks(m, until_ns)
    return position
