"""How well assumed vmstat ticks explain the `high` of later snapshots: per-CPU words alone."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import recorded_steps as rec
from pagealloc_model.allocator import true_state as true
from pagealloc_model.allocator import tuning_words as tuning
from pagealloc_model.allocator.offsets import pcp_at, zone_at
from pagealloc_model.allocator.pcp import list_index, overflow_of_free, refill_size
from pagealloc_model.allocator.true_state import notes_at
from pagealloc_model.jit import entry, inner


@inner
def follow(st: np.ndarray, steps: np.ndarray, number: int) -> None:
    """Let a recorded move change the words of its pageset, sizes as recorded."""
    operation = int(steps[number]["operation"])
    order = int(steps[number]["order"])
    zone = int(steps[number]["zone"])
    flags = int(steps[number]["flags"])
    if flags & rec.NESTED or list_index(st, order, 0) < 0:
        return
    pcp = pcp_at(st, zone, int(steps[number]["cpu"]))
    size = 1 << order
    if operation == rec.POP:
        st[pcp + at.PCP_FREE_COUNT] >>= 1
        st[pcp + at.PCP_COUNT] -= size
    elif operation == rec.DRAIN:
        st[pcp + at.PCP_COUNT] -= size
    elif operation == rec.REMOVE:
        if flags & rec.RUN_FIRST and flags & rec.USED_AT_ONCE:
            refill_size(st, pcp, zone, order)
        st[pcp + at.PCP_COUNT] += size
    elif operation == rec.PUSH and int(steps[number]["fate"]) != rec.REMOVE:
        overflow_of_free(st, pcp, zone, order)
    tuning.note_high(st, pcp)


@entry
def count_misfits(
    st: np.ndarray, steps: np.ndarray, tick_steps: np.ndarray, misfits: np.ndarray
) -> None:
    """Count, CPU by CPU, the snapshots whose `high` the words never come to.

    Args:
        st: int64 state with the notes of `true_state`; changed.
        steps: in time order, with the snapshots' steps.
        tick_steps: int64, shape (ticks, 2): number of the step a tick comes before, and its CPU;
            in order.
        misfits: int64, one per CPU; added to.
    """
    due = 0
    for number in range(len(steps)):
        while due < len(tick_steps) and tick_steps[due, 0] <= number:
            for zone in range(st[at.NR_ZONES]):
                if st[zone_at(zone) + at.ZONE_MANAGED]:
                    tuning.tick_seen(st, pcp_at(st, zone, tick_steps[due, 1]))
            due += 1
        operation = int(steps[number]["operation"])
        if operation >= rec.POP and operation <= rec.DRAIN:
            follow(st, steps, number)
        elif operation == rec.SNAPSHOT or operation == rec.SNAPSHOT_END:
            pcp = pcp_at(st, int(steps[number]["zone"]), int(steps[number]["cpu"]))
            high = int(steps[number]["pages"])
            if operation == rec.SNAPSHOT:
                tuning.read_snapshot(st, pcp, int(steps[number]["objects"]), high)
            else:
                if st[notes_at(st, pcp) + true.NOTE_HIGH_READ] == high:
                    misfits[int(steps[number]["cpu"])] += 1
                tuning.end_snapshot(st, pcp, high)
