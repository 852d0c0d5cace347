"""Kernels that turn recorded allocations and frees into rows for matching, in passes of a part.

They allocate nothing and know nothing of files: columns and working space in, rows out.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.base.jit import entry, inner
from pagealloc_model.measured.by_cpu import CPUS

ALLOC, FREE, FREE_BATCHED = 0, 1, 2
"""Values of `Event`."""
GFP_KERNEL = 0xCC0
GFP_ACCOUNT = 0x400000

PAGES = 1 << 16
"""Beginnings of the lists in which a page's latest events are looked up."""

FILLED, OUTSIDE, TWICE, STRANGE_CPU, ODD_TYPE = 0, 1, 2, 3, 4
COUNTS = 5
"""Rows filled; events left out as outside all zones, and as recorded twice; rows in the trace of
the first event of a CPU, and of the first request of a type, that the machine does not have."""

_MIX = np.uint64(0x9E3779B97F4A7C15)
NOBODY = -1
"""Key of a place that no task has."""


@entry
def find_batches(
    time_ns: np.ndarray,
    cpu: np.ndarray,
    event: np.ndarray,
    pfn: np.ndarray,
    longest_ns: int,
    heads: np.ndarray,
    before: np.ndarray,
    partner: np.ndarray,
    goes_on: np.ndarray,
    next_free: np.ndarray,
) -> None:
    """Find the frees that folio batches announced, and the batches that went on after a page (T3).

    Args:
        time_ns: int64, columns of a window of the trace, as are the next three.
        cpu: int16.
        event: uint8.
        pfn: int64.
        longest_ns: a page is put on its list no later after its free.
        heads: int32, `PAGES` long, zeros: working space.
        before: int32, as long as the window: working space.
        partner: int32, as long: filled with the other row of a free and what puts its page on a
            list, -1 for all others.
        goes_on: int8, as long, zeros: set to 1 where the batch of a put page had announced the
            next one before.
        next_free: int32, `CPUS` long, filled with -1: working space.
    """
    for row in range(len(event)):
        partner[row] = -1
        kind = event[row]
        if kind != FREE and kind != FREE_BATCHED:
            continue
        page = pfn[row]
        place = page & (PAGES - 1)
        if kind == FREE_BATCHED:
            earlier = int(heads[place]) - 1
            while earlier >= 0 and time_ns[row] - time_ns[earlier] <= longest_ns:
                if pfn[earlier] == page and cpu[earlier] == cpu[row]:
                    if event[earlier] == FREE:
                        partner[row] = earlier
                        partner[earlier] = row
                    break
                earlier = int(before[earlier]) - 1
        before[row] = heads[place]
        heads[place] = row + 1
    for row in range(len(event) - 1, -1, -1):
        if event[row] == FREE_BATCHED and partner[row] >= 0:
            here = int(cpu[row]) & (CPUS - 1)
            goes_on[row] = 0 <= next_free[here] < row
            next_free[here] = partner[row]


@inner
def is_again(
    time_ns: np.ndarray,
    cpu: np.ndarray,
    pid: np.ndarray,
    event: np.ndarray,
    pfn: np.ndarray,
    order: np.ndarray,
    gfp: np.ndarray,
    row: int,
    earlier: int,
) -> bool:
    """Return whether an event is an earlier one once more, of the same nanosecond."""
    return (
        time_ns[row] == time_ns[earlier]
        and pfn[row] >= 0
        and pfn[row] == pfn[earlier]
        and event[row] == event[earlier]
        and order[row] == order[earlier]
        and pid[row] == pid[earlier]
        and gfp[row] == gfp[earlier]
        and cpu[row] == cpu[earlier]
    )


@inner
def is_inside(page: int, order: int, max_order: int, zones: np.ndarray) -> bool:
    """Return whether pages are an aligned run, no larger than a buddy, inside one zone."""
    if order < 0 or order > max_order or page & ((1 << order) - 1):
        return False
    for zone in range(zones.shape[1]):
        if page >= zones[0, zone] and page + (1 << order) <= zones[1, zone]:
            return True
    return False


@inner
def is_among(value: int, others: np.ndarray) -> bool:
    """Return whether a few numbers have one among them."""
    found = False
    for other in range(len(others)):
        found |= others[other] == value
    return found


@entry
def fill_rows(
    time_ns: np.ndarray,
    cpu: np.ndarray,
    pid: np.ndarray,
    event: np.ndarray,
    pfn: np.ndarray,
    order: np.ndarray,
    gfp: np.ndarray,
    migratetype: np.ndarray,
    in_interrupt: np.ndarray,
    window: int,
    low: int,
    high: int,
    machine: np.ndarray,
    zones: np.ndarray,
    zone_of_gfp: np.ndarray,
    realtime: np.ndarray,
    partner: np.ndarray,
    goes_on: np.ndarray,
    last_put: np.ndarray,
    last_event: np.ndarray,
    rows: np.ndarray,
    kept: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Fill in what each allocation and free of a part says by itself.

    Args:
        time_ns: int64, the trace's, as are the next eight.
        cpu: int16.
        pid: int32.
        event: uint8.
        pfn: int64.
        order: int8.
        gfp: uint32.
        migratetype: int8.
        in_interrupt: int8.
        window: first row of what `find_batches` looked at.
        low: the part's first row.
        high: one past its last row.
        machine: int64: CPUs, largest order, bits of gfp words that are read, type of allocations
            that the recording does not show.
        zones: int64, shape (2, zones): first page and end of each populated zone.
        zone_of_gfp: int8, 16 long: highest zone type by the low gfp nibble.
        realtime: int32, thread ids of realtime tasks.
        partner: of `find_batches`.
        goes_on: likewise.
        last_put: int32, `CPUS` long, filled with -1: working space.
        last_event: int64, `CPUS` long, filled with -1 before the first part: each CPU's last
            allocation or free.
        rows: `objects.ROW` records, room for the part's; `task_request` stays as it is.
        kept: int64, as long: filled with each row's place in the trace.
        counts: int64, `COUNTS` long: OUTSIDE and TWICE are added to, the others are set.
    """
    nr_cpus, max_order, read_bits, hidden_type = machine[0], machine[1], machine[2], machine[3]
    counts[FILLED], counts[STRANGE_CPU], counts[ODD_TYPE] = 0, -1, -1
    filled = 0
    for row in range(window, low):
        if event[row] == FREE_BATCHED and partner[row - window] >= 0:
            last_put[int(cpu[row]) & (CPUS - 1)] = row - window
    for row in range(low, high):
        kind = event[row]
        here = int(cpu[row]) & (CPUS - 1)
        if kind > FREE:
            if kind == FREE_BATCHED and partner[row - window] >= 0:
                last_put[here] = row - window
            continue
        earlier = last_event[here]
        last_event[here] = row
        if earlier >= 0 and is_again(time_ns, cpu, pid, event, pfn, order, gfp, row, earlier):
            counts[TWICE] += 1
            continue
        size = int(order[row])
        failed = pfn[row] == -1 and kind == ALLOC and 0 <= size <= max_order
        if not failed and not is_inside(pfn[row], size, max_order, zones):
            counts[OUTSIDE] += 1
            continue
        if counts[STRANGE_CPU] < 0 and (cpu[row] < 0 or cpu[row] >= nr_cpus):
            counts[STRANGE_CPU] = row
        word = int(gfp[row])
        if word & at.GFP_DIRECT_RECLAIM and is_among(pid[row], realtime):
            word |= at.GFP_HIGH
        wanted_type = int(migratetype[row])
        bits = word & read_bits
        if kind == FREE:
            wanted_type, bits = hidden_type, GFP_KERNEL & at.GFP_READ_BITS
        elif counts[ODD_TYPE] < 0 and (wanted_type < 0 or wanted_type >= at.PCP_TYPES):
            counts[ODD_TYPE] = row
        put = int(last_put[here])
        if partner[row - window] >= 0:
            bits |= at.FREED_IN_BATCH
        elif put >= 0 and goes_on[put] and pid[window + put] == pid[row]:
            bits |= at.INTERRUPTS_HOLDER
        if in_interrupt[row] > 0:
            bits |= at.IN_INTERRUPT
        rows[filled]["row"] = row
        rows[filled]["pid"] = pid[row]
        rows[filled]["pfn"] = pfn[row]
        rows[filled]["bits"] = bits
        rows[filled]["cpu"] = cpu[row]
        rows[filled]["is_free"] = kind == FREE
        rows[filled]["order"] = size
        rows[filled]["migratetype"] = wanted_type
        rows[filled]["zone"] = zone_of_gfp[word & 15]
        rows[filled]["failed_charge"] = 0
        kept[filled] = row
        filled += 1
    counts[FILLED] = filled


@inner
def place_of(key: int, keys: np.ndarray) -> int:
    """Return where a task is in a table with room, or would be."""
    mask = len(keys) - 1
    place = int((np.uint64(key) * _MIX) >> np.uint64(32)) & mask
    while keys[place] != NOBODY and keys[place] != key:
        place = (place + 1) & mask
    return place


@entry
def move_tasks(
    keys: np.ndarray, codes: np.ndarray, wider_keys: np.ndarray, wider_codes: np.ndarray
) -> None:
    """Enter all tasks of a table into a wider one.

    Args:
        keys: int64, task and CPU; NOBODY in places that are not used.
        codes: int32, as long.
        wider_keys: int64, a power of two long, filled with NOBODY.
        wider_codes: int32, as long.
    """
    for place in range(len(keys)):
        if keys[place] != NOBODY:
            there = place_of(keys[place], wider_keys)
            wider_keys[there] = keys[place]
            wider_codes[there] = codes[place]


@entry
def link_requests(
    rows: np.ndarray,
    low: int,
    high: int,
    gfp: np.ndarray,
    keys: np.ndarray,
    codes: np.ndarray,
    tasks: np.ndarray,
    last_request: np.ndarray,
    last_row: np.ndarray,
) -> int:
    """Fill in the last requests of tasks, and mark frees that stand for a failed charge (T2).

    Such a free precedes the failure of the same request on its CPU.

    Args:
        rows: `objects.ROW` records, filled up to `high`.
        low: first row to look at.
        high: one past the last.
        gfp: uint32, the trace's.
        keys: int64, a power of two long: a table of tasks by CPU, NOBODY where none is.
        codes: int32, as long: their codes, numbered as they are first seen.
        tasks: int64, 1 long: how many there are.
        last_request: int32, at least half as long as `keys`: the row of the trace of each one's
            last allocation, -1 for none.
        last_row: int64 by CPU: its last row, -1 for none that is here.

    Returns:
        The row to go on with: `high`, or less if the table has become half full.
    """
    for row in range(low, high):
        here = int(rows[row]["cpu"])
        key = (int(rows[row]["pid"]) << 16) | here
        place = place_of(key, keys)
        if keys[place] == NOBODY:
            if 2 * tasks[0] >= len(keys):
                return row
            keys[place] = key
            codes[place] = tasks[0]
            tasks[0] += 1
        code = int(codes[place])
        rows[row]["task_request"] = last_request[code]
        free = last_row[here]
        last_row[here] = row
        if int(rows[row]["is_free"]) == 1:
            continue
        number = int(rows[row]["row"])
        last_request[code] = number
        if free < 0 or int(rows[row]["pfn"]) != -1 or int(rows[free]["is_free"]) != 1:
            continue
        same = rows[free]["pid"] == rows[row]["pid"] and rows[free]["order"] == rows[row]["order"]
        if same and int(gfp[number]) & GFP_ACCOUNT:
            rows[free]["failed_charge"] = 1
            rows[free]["migratetype"] = rows[row]["migratetype"]
            rows[free]["zone"] = rows[row]["zone"]
            rows[free]["bits"] = int(rows[row]["bits"]) & (0xFFFFFFFF ^ at.REQUEST_RECLAIMED)
    return high
