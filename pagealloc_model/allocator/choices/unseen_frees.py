"""Frees that no event shows, found by what happens to their pages next.

Recordings of real machines lack some frees of page tables and their like by RCU callbacks; perf
does not count them as lost.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.choices.recorded_steps import DRAIN, POP, PUSH, REMOVE
from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.pcp import list_index
from pagealloc_model.base.jit import entry


@entry
def find_unseen_frees(
    steps: np.ndarray,
    st: np.ndarray,
    live: np.ndarray,
    pushed: np.ndarray,
    anchors: np.ndarray,
    drained: np.ndarray,
    found: np.ndarray,
) -> int:
    """Allocated pages that are allocated or drained again: they were freed without an event.

    A page popped was pushed after the list's last visible operation, or with the unseen page
    popped just before; a page drained was pushed after the page drained just before it.

    Args:
        steps: in time order, fates noted.
        st: int64 state, for the number of lists.
        live: bool, one per page frame, all false.
        pushed: int32, one per page frame, filled with -1: the step that pushed it last.
        anchors: int32, one per pageset and list: the step after which an unseen push fell.
        drained: int32, one per CPU, filled with -1: the same for the last page drained.
        found: int32, shape (room, 2): filled with step and anchor.

    Returns:
        How many were found; those beyond the room are not kept.
    """
    count = 0
    for number in range(len(steps)):
        operation = int(steps[number]["operation"])
        if operation < POP or operation > DRAIN:
            continue
        pfn = int(steps[number]["pfn"])
        cpu = int(steps[number]["cpu"])
        order = int(steps[number]["order"])
        migratetype = int(steps[number]["migratetype"])
        if operation == PUSH:
            migratetype = int(steps[number]["found_type"])
        index = -1
        if 0 <= migratetype < at.PCP_TYPES:
            index = list_index(st, order, migratetype)
        place = (int(steps[number]["zone"]) * st[at.NR_CPUS] + cpu) * at.PCP_LISTS_MAX + index
        takes = operation in (POP, DRAIN)
        if takes and live[pfn] and index >= 0:
            anchor = anchors[place] if operation == POP else drained[cpu]
            if anchor >= 0:
                if count < len(found):
                    found[count, 0] = number
                    found[count, 1] = anchor
                count += 1
        elif operation == DRAIN:
            drained[cpu] = pushed[pfn]
        elif index >= 0 and operation != REMOVE:
            anchors[place] = number
            if operation == PUSH:
                pushed[pfn] = number
        for page in range(pfn, pfn + (1 << order)):
            live[page] = operation == POP
    return min(count, len(found))
