"""The closed loop: a task that stalls asks for nothing meanwhile, and comes later from then on.

Each task's events keep their order and the task's own time between them (S10.10). Tasks wait in a
heap by the time of their next event; what a request loses in the model moves all that its task does
afterwards.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.events import (
    KSWAPD,
    PROACTIVE,
    TICK,
    begin_tick,
    earliest,
    log_is_nearly_full,
    look_ahead,
    take_event,
)
from pagealloc_model.allocator.kcompactd import kcompactd
from pagealloc_model.allocator.kswapd import step_kswapd
from pagealloc_model.allocator.pcp import refresh_cpu_vm_stats
from pagealloc_model.allocator.pressure_layout import node_pressure_at, value_of
from pagealloc_model.base.jit import cold, entry, inner

TASK = np.dtype(
    [
        ("next", np.int64),
        ("end", np.int64),
        ("due_ns", np.int64),
        ("lag_ns", np.int64),
        ("since_ns", np.int64),
        ("behind", np.int32),
        ("moves", np.int8),
    ],
    align=True,
)
"""A task: its events are `order[next:end]`; `due_ns` is when the next one comes, `lag_ns` what the
task has lost so far, `since_ns` when the event before it was over, FOR_EVER once the next one found
its CPU held or waited. `behind` is the next task that waits for the same allocation, -1 for none.
`moves`: it can be delayed, as interrupts and the machine's own events cannot."""

STALL = np.dtype([(name, np.int64) for name in ("event", "cpu", "begin_ns", "ns", "compaction_ns")])
"""A request that stalled: its event, when it asked, and for how long; of that, in compaction.
A step of kswapd or kcompactd that counts as memory stall (S10.11) has no event; what a task ran
beside a hold of its CPU is `BESIDE` it."""

HOLD = np.dtype([("begin_ns", np.int64), ("end_ns", np.int64)])
"""From when to when the last stalls that overlap or meet hold a CPU (S10.10)."""

NOBODY, BESIDE = -1, -2
FOR_EVER = (1 << 62) - 1
"""A time beyond all events: until then tasks go on, and nothing else once they are done."""
WAITING, STALLS, LAST_NS, TASKS, UNTIL_NS = 0, 1, 2, 3, 4
"""Words: tasks in the heap; rows of `stalls`; when the last event so far was over; tasks, with
those that one waiting event each has become; when the recording's last event came."""
WORDS = 5


class ClosedLoop(NamedTuple):
    """What a closed loop has besides the machine.

    Attributes:
        order: int64, positions of events, task by task, in each task's order.
        own_ns: int64, as long: the event's recorded time less what its task had lost by then.
        running_ns: int64, as long: its CPU time since the event before; of no length if unknown.
        tasks: `TASK` records; `words[TASKS]` of them, and room for one more for each free and use
            in those that cannot be delayed.
        heap: int32, room for each task: those whose next event is known, the earliest first.
        words: int64, WORDS long.
        is_made: int8 by object: its allocation has come, or it was there at the start.
        waiters: int32 by object: the task that waited last for its allocation, -1 for none.
        imposed_ns: int64 by event: what its task loses there, in place of what the model says; of
            no length where the model decides.
        done_ns: int64 by event: when it was over; of no length where nobody asks.
        stalls: room for `STALL` records.
        holds: `HOLD` records by CPU; of no length where no stall holds up others.
        lock_ps: int64, costs of a hold of zone->lock, ps: of itself, an object, a split, a merge,
            an insert, a scanned page; and of a hand-over. Of no length where nobody waits for it.
        free_ns: int64 by zone, when its lock is free.
    """

    order: np.ndarray
    own_ns: np.ndarray
    running_ns: np.ndarray
    tasks: np.ndarray
    heap: np.ndarray
    words: np.ndarray
    is_made: np.ndarray
    waiters: np.ndarray
    imposed_ns: np.ndarray
    done_ns: np.ndarray
    stalls: np.ndarray
    holds: np.ndarray
    lock_ps: np.ndarray
    free_ns: np.ndarray


@inner
def comes_before(c: ClosedLoop, task: int, other: int) -> bool:
    """No kernel function: return whether a task's next event is earlier, by recorded order too."""
    due, others = c.tasks[task]["due_ns"], c.tasks[other]["due_ns"]
    if due != others:
        return due < others
    return c.order[c.tasks[task]["next"]] < c.order[c.tasks[other]["next"]]


@inner
def sift_down(c: ClosedLoop, place: int) -> None:
    """No kernel function: move a task down the heap to where it belongs."""
    size = c.words[WAITING]
    task = int(c.heap[place])
    below = 2 * place + 1
    while below < size:
        if below + 1 < size and comes_before(c, int(c.heap[below + 1]), int(c.heap[below])):
            below += 1
        if not comes_before(c, int(c.heap[below]), task):
            break
        c.heap[place] = c.heap[below]
        place = below
        below = 2 * place + 1
    c.heap[place] = task


@cold
def push_task(c: ClosedLoop, task: int) -> None:
    """No kernel function: put a task into the heap."""
    place = c.words[WAITING]
    c.words[WAITING] = place + 1
    while place > 0 and comes_before(c, task, int(c.heap[(place - 1) // 2])):
        c.heap[place] = c.heap[(place - 1) // 2]
        place = (place - 1) // 2
    c.heap[place] = task


@cold
def pop_first(c: ClosedLoop) -> None:
    """No kernel function: take the earliest task out of the heap."""
    last = c.words[WAITING] - 1
    c.words[WAITING] = last
    if last > 0:
        c.heap[0] = c.heap[last]
        sift_down(c, 0)


@cold
def wake_waiters(c: ClosedLoop, number: int, done_ns: int, by_task: bool) -> None:
    """No kernel function: let tasks that waited for an object go on once it is allocated.

    What a task waits for another one moves all that it does afterwards. What it waits for an
    allocation that no event shows does not, as only our guess of its time is late.
    """
    task = int(c.waiters[number])
    c.waiters[number] = NOBODY
    while task != NOBODY:
        following = int(c.tasks[task]["behind"])
        wait = done_ns - c.tasks[task]["due_ns"]
        if wait > 0:
            c.tasks[task]["due_ns"] = done_ns
            if by_task and c.tasks[task]["moves"]:
                c.tasks[task]["lag_ns"] += wait
        push_task(c, task)
        task = following


@cold
def log_stall(m: at.Arrays, c: ClosedLoop, position: int, ns: int, compaction_ns: int) -> None:
    """No kernel function: keep what a request lost, or how long a daemon's step takes.

    It holds its CPU; a hold that it overlaps or meets goes on.
    """
    cpu, now = m.st[at.EVENT_CPU], m.st[at.NOW]
    if ns > 0 and len(c.holds) > 0:
        if now > c.holds[cpu]["end_ns"]:
            c.holds[cpu]["begin_ns"] = now
        c.holds[cpu]["end_ns"] = max(c.holds[cpu]["end_ns"], now + ns)
    row = c.words[STALLS]
    c.stalls[row]["event"] = position
    c.stalls[row]["cpu"] = cpu
    c.stalls[row]["begin_ns"] = now
    c.stalls[row]["ns"] = ns
    c.stalls[row]["compaction_ns"] = compaction_ns
    c.words[STALLS] = row + 1


@cold
def log_daemon(m: at.Arrays, c: ClosedLoop, what: int, node: int) -> None:
    """Part of balance_pgdat(): keep the step that kswapd or kcompactd is at (S10.11)."""
    words = node_pressure_at(m, node)
    ns = 0
    if what == KSWAPD:
        if m.st[words + pr.KSWAPD_PHASE] == pr.RUNNING:
            ns = m.st[words + pr.KSWAPD_DUE] - m.st[at.NOW]
        log_stall(m, c, NOBODY, ns, 0)
    elif what != PROACTIVE and m.st[words + pr.KCOMPACTD_RUN_ORDER] >= 0:
        if m.st[words + pr.KCOMPACTD_DUE] != at.NEVER:
            ns = m.st[words + pr.KCOMPACTD_DUE] - m.st[at.NOW]
        log_stall(m, c, NOBODY, ns, ns)


@cold
def share_cpu(c: ClosedLoop, task: int, cpu: int) -> bool:
    """No kernel function: let the earliest task's event come later if its CPU is held (S10.10).

    The task ran beside who stalls, and lost as much again; returns whether it did.
    """
    now, end = c.tasks[task]["due_ns"], c.holds[cpu]["end_ns"]
    since = max(c.holds[cpu]["begin_ns"], c.tasks[task]["since_ns"])
    c.tasks[task]["since_ns"] = FOR_EVER
    ran = min(c.running_ns[c.tasks[task]["next"]], now - since)
    late = min(ran, end - now)
    if late <= 0:
        return False
    row = c.words[STALLS]
    c.stalls[row]["event"], c.stalls[row]["cpu"] = BESIDE, cpu
    c.stalls[row]["begin_ns"], c.stalls[row]["ns"] = now - ran, ran
    c.stalls[row]["compaction_ns"] = 0
    c.words[STALLS] = row + 1
    c.tasks[task]["lag_ns"] += late
    c.tasks[task]["due_ns"] = now + late
    sift_down(c, 0)
    return True


@cold
def wait_for_locks(m: at.Arrays, c: ClosedLoop, row: int, now: int) -> int:
    """No kernel function: the time that the log's holds from a row on wait in all, ns (S10.10)."""
    waited = 0
    while row < m.st[at.LOG_ROWS]:
        if m.log[row, 0] < at.SITES:
            zone = m.log[row, 2]
            if c.free_ns[zone] > now:
                waited += c.free_ns[zone] + c.lock_ps[6] // 1000 - now
                now = c.free_ns[zone] + c.lock_ps[6] // 1000
            cost = c.lock_ps[0] + c.lock_ps[1] * m.log[row, 6]
            for unit in range(at.WORK_UNITS):
                cost += c.lock_ps[2 + unit] * m.log[row, at.LOG_WORK + unit]
            now += max((cost + 500) // 1000, 1)
            c.free_ns[zone] = now
        row += 1
    return waited


@inner
def go_on_with(c: ClosedLoop, task: int, done_ns: int) -> None:
    """No kernel function: let the earliest task, whose event is over, come to its next one."""
    position = c.tasks[task]["next"] + 1
    c.tasks[task]["next"] = position
    c.tasks[task]["since_ns"] = done_ns
    if position == c.tasks[task]["end"]:
        pop_first(c)
        return
    c.tasks[task]["due_ns"] = max(c.own_ns[position] + c.tasks[task]["lag_ns"], done_ns)
    sift_down(c, 0)


@cold
def wait_for(c: ClosedLoop, task: int, number: int) -> None:
    """No kernel function: let the earliest task's free or use wait for the allocation.

    What no task does holds up nothing behind it: such an event becomes a task of its own.
    """
    waiting = task
    if c.tasks[task]["moves"]:
        pop_first(c)
    else:
        waiting = c.words[TASKS]
        c.words[TASKS] = waiting + 1
        place = c.tasks[task]["next"]
        c.tasks[waiting]["next"], c.tasks[waiting]["end"] = place, place + 1
        c.tasks[waiting]["due_ns"] = c.tasks[task]["due_ns"]
        go_on_with(c, task, c.tasks[task]["due_ns"])
    c.tasks[waiting]["since_ns"] = FOR_EVER
    c.tasks[waiting]["behind"] = c.waiters[number]
    c.waiters[number] = waiting


@entry
def begin_closed(c: ClosedLoop) -> None:
    """No kernel function: put all tasks into the heap, each at its first event."""
    for task in range(c.words[TASKS]):
        if c.tasks[task]["next"] < c.tasks[task]["end"]:
            c.tasks[task]["due_ns"] = c.own_ns[c.tasks[task]["next"]]
            push_task(c, task)


@entry
def advance_closed(
    m: at.Arrays, events: np.ndarray, leads: np.ndarray, c: ClosedLoop, most: int, until_ns: int
) -> int:
    """No kernel function: replay at most so many events, none that is due after `until_ns`.

    Args:
        m: the machine; the log must be empty and LOG_ROWS 0.
        events: `layout.EVENT` records.
        leads: int32, the failure that each object came in place of, -1 for none.
        c: the tasks, begun; `words[STALLS]` must be 0.
        most: events.
        until_ns: time up to which tasks, ticks, kswapd and kcompactd go on; or FOR_EVER.

    Returns:
        Events replayed: less than `most` where nothing more is due, or a log ran full.
    """
    count = 0
    due, what, node = earliest(m)
    while count < most and not log_is_nearly_full(m) and c.words[STALLS] < len(c.stalls):
        task = int(c.heap[0]) if c.words[WAITING] > 0 else NOBODY
        if task == NOBODY and until_ns == FOR_EVER:
            break
        now = c.tasks[task]["due_ns"] if task != NOBODY else until_ns + 1
        ticking = -1
        may_wake = True
        row = m.st[at.LOG_ROWS]
        if due <= min(now, until_ns):
            if what == TICK:
                ticking = begin_tick(m)
            elif what == KSWAPD:
                step_kswapd(m, node)
            else:
                kcompactd(m, node, what == PROACTIVE)
            if what != TICK:
                log_daemon(m, c, what, node)
                if len(c.lock_ps) > 0:
                    wait_for_locks(m, c, row, m.st[at.NOW])
        elif now > until_ns:
            break
        else:
            position = c.order[c.tasks[task]["next"]]
            operation = int(events[position]["operation"])
            number = int(events[position]["object"])
            if len(c.holds) > 0 and c.tasks[task]["moves"] and c.tasks[task]["since_ns"] < now:
                cpu = int(events[position]["cpu"])
                if now < c.holds[cpu]["end_ns"] and share_cpu(c, task, cpu):
                    continue
            needs_page = operation == at.FREE or operation == at.USE
            if needs_page and number >= 0 and not c.is_made[number]:
                wait_for(c, task, number)
                continue
            look_ahead(m, events, position, len(events))
            before = value_of(m, pr.STALLED_NS)
            compacted = value_of(m, pr.COMPACTION_STALLED_NS)
            if operation == at.TICK:
                m.st[at.NOW] = now
                ticking = int(events[position]["cpu"])
                m.st[at.EVENT_CPU] = ticking
            else:
                may_wake = take_event(m, events, leads, position, now)
            lost = value_of(m, pr.STALLED_NS) - before
            queued = 0
            if lost == 0 and operation != at.TICK and len(c.lock_ps) > 0:
                queued = wait_for_locks(m, c, row, now)
            if len(c.imposed_ns) > 0:
                lost = c.imposed_ns[position]
            if lost > 0 and c.tasks[task]["moves"]:
                compacted = value_of(m, pr.COMPACTION_STALLED_NS) - compacted
                log_stall(m, c, position, lost, min(compacted, lost))
                c.tasks[task]["lag_ns"] += lost
                now += lost
            if queued > 0 and c.tasks[task]["moves"]:
                c.tasks[task]["lag_ns"] += queued
                now += queued
            if len(c.done_ns) > 0:
                c.done_ns[position] = now
            if number >= 0 and not c.is_made[number]:
                c.is_made[number] = 1
                if c.waiters[number] != NOBODY:
                    wake_waiters(c, number, now, c.tasks[task]["moves"] == 1)
            if events[position]["time_ns"] <= c.words[UNTIL_NS]:
                c.words[LAST_NS] = max(c.words[LAST_NS], now)
            go_on_with(c, task, now)
            count += 1
        if ticking >= 0:
            refresh_cpu_vm_stats(m, ticking)
        if may_wake:
            due, what, node = earliest(m)
    return count
