"""Each zone's free pages at every snapshot, as all snapshots and the moves between them agree.

A snapshot names the figure but not the instant, within some tenths of a second, at which it was
read. Counted moves give the figure at every instant up to one constant; each read bounds that
constant, and the reads together bound it closely. Where they contradict each other, something
unseen took or gave pages, and the constant changes there, by no more than they demand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator.choices import recorded_steps as rec
from pagealloc_model.allocator.core import layout as at


@dataclass(frozen=True, kw_only=True)
class FreeRead:
    """A figure that a snapshot names.

    Attributes:
        begun: row of the trace at which the snapshot begins.
        read: row at which it has been read.
        pages: free pages of the zone and by how much they may be off (S1.10), one pair for each
            file that names them.
    """

    begun: int
    read: int
    pages: tuple[tuple[int, int], ...]


def free_pages_moved(moves: np.ndarray, isolated: np.ndarray, st: np.ndarray) -> np.ndarray:
    """By how many pages each of a zone's moves changes its free pages, as (row, pages).

    Args:
        moves: `STEP` records of one zone.
        isolated: ISOLATED steps of that zone.
        st: a state's words, for the orders that per-CPU lists take.

    Returns:
        int64, shape (moves and isolations, 2), in order of rows.
    """
    operation = moves["operation"]
    order = moves["order"].astype(np.int64)
    listed = order <= st[at.POLICY_COSTLY_ORDER]
    listed |= (order == st[at.HUGE_ORDER]) & (st[at.THP_LISTS] != 0)
    past_lists = ~listed | (moves["fate"] == rec.REMOVE)
    past_lists |= moves["flags"] & (rec.NESTED | rec.DIRECT) != 0
    change = np.zeros(len(moves), np.int64)
    gained = (operation == rec.DRAIN) | ((operation == rec.PUSH) & past_lists)
    change[gained] = 1 << order[gained]
    lost = operation == rec.REMOVE
    change[lost] = -(1 << order[lost])
    rows = np.concatenate([moves["row"], isolated["row"]]).astype(np.int64)
    pages = np.concatenate([change, -isolated["pages"].astype(np.int64)])
    by_row = np.argsort(rows, kind="stable")
    return np.column_stack([rows[by_row], pages[by_row]])


def agreed_free_pages(moved: np.ndarray, reads: list[FreeRead]) -> list[int]:
    """The zone's free pages when each snapshot begins.

    Args:
        moved: from `free_pages_moved`.
        reads: in order of time.
    """
    counted = np.concatenate([[0], np.cumsum(moved[:, 1])])
    bounds = []
    starts = []
    for read in reads:
        first = int(np.searchsorted(moved[:, 0], read.begun))
        last = int(np.searchsorted(moved[:, 0], read.read))
        window = counted[first : last + 1]
        starts.append(int(counted[first]))
        bounds.append(
            (
                max(pages - lag - int(window.max()) for pages, lag in read.pages),
                min(pages + lag - int(window.min()) for pages, lag in read.pages),
            )
        )
    constants: list[int] = []
    while len(constants) < len(reads):
        low, high = bounds[len(constants)]
        alike = 1
        for each_low, each_high in bounds[len(constants) + 1 :]:
            if max(low, each_low) > min(high, each_high):
                break
            low, high = max(low, each_low), min(high, each_high)
            alike += 1
        nearest = constants[-1] if constants else (low + high) // 2
        constants += [min(max(nearest, low), high)] * alike
    return [start + constant for start, constant in zip(starts, constants, strict=True)]
