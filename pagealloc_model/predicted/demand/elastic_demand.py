"""Demand of an elastic replay: recorded failures are tried, and what replaced them may be absorbed.

A recording that failed to get a large page shows the smaller ones its task took instead. A replay
that finds the large one must not take those as well (T10.4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import objects as resolved
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.chains import REQUEST, link_chains

_ORDERS_BETWEEN = 4
"""Failures of lower and lower order that one request may have behind it."""
_SPREAD = 0x9E3779B1
"""Odd constant whose multiples are spread over 32 bits: draws by rank."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TriedFailures:
    """Recorded failures as objects of their own.

    Attributes:
        objects: `objects.OBJECT` records, those of the failures last.
        leads: int32 by object: the failure it came in place of, -1 for none.
        frees: `layout.EVENT` records, when failures' objects are freed if they succeed.
    """

    objects: np.ndarray
    leads: np.ndarray
    frees: np.ndarray


def tried_failures(
    rows: np.ndarray, pids: np.ndarray, events: np.ndarray, objects: np.ndarray, seed: int
) -> TriedFailures:
    """Give every failure that could succeed an object; finds what came in its place.

    Atomic requests are left out: one that failed stays a failure. A success lives until the last
    that came in its place is freed; one that nothing replaced lives as long as a recorded success
    of its order and class, drawn by its rank.

    Args:
        rows: `objects.ROW` records.
        pids: each one's task.
        events: `layout.EVENT` records made of them; failures get their object's number here.
        objects: `objects.OBJECT` records.
        seed: of the draws.
    """
    asked = np.flatnonzero(rows["is_free"] == 0)
    failed = rows["pfn"][asked] < 0
    bits = rows["bits"][asked]
    is_atomic = (bits & np.uint32(at.GFP_HIGH) != 0) & (
        bits & np.uint32(at.GFP_DIRECT_RECLAIM) == 0
    )
    tried = failed & (rows["order"][asked] > 0) & ~is_atomic
    numbers = np.full(len(asked), -1, np.int32)
    numbers[tried] = len(objects) + np.arange(tried.sum())
    numbers[~failed] = np.flatnonzero(objects["kind"] == resolved.RECORDED)
    events["object"][events["operation"] == at.RECORDED_FAILURE] = numbers[failed]
    requests = np.zeros(len(asked), REQUEST)
    requests["task"] = pids[asked]
    requests["object"] = numbers
    requests["kind"] = bits >> np.uint32(pr.CLASS_SHIFT)
    requests["order"] = rows["order"][asked]
    requests["failed"] = failed
    together = np.zeros(len(objects) + int(tried.sum()), objects.dtype)
    together[: len(objects)] = objects
    together["order"][len(objects) :] = rows["order"][asked[tried]]
    together["kind"][len(objects) :] = resolved.TRIED
    leads = np.full(len(together), -1, np.int32)
    by_task = np.lexsort((np.arange(len(asked)), requests["kind"], requests["task"]))
    link_chains(requests[by_task], leads)
    frees = _frees(events, together, leads, requests, rows["time_ns"][asked], seed)
    return TriedFailures(objects=together, leads=leads, frees=frees)


def _frees(
    events: np.ndarray,
    objects: np.ndarray,
    leads: np.ndarray,
    requests: np.ndarray,
    asked_ns: np.ndarray,
    seed: int,
) -> np.ndarray:
    """Frees of the failures' objects, in time order."""
    tried = np.flatnonzero(objects["kind"] == resolved.TRIED)
    last = _last_free(events, objects)
    found = np.full(len(objects), -1, np.int64)
    members = np.flatnonzero((leads >= 0) & (objects["kind"] == resolved.RECORDED))
    outermost = leads[members].astype(np.int64)
    replaced = np.zeros(len(objects), bool)
    never = np.zeros(len(objects), bool)
    for _ in range(_ORDERS_BETWEEN):
        known = outermost >= 0
        replaced[outermost[known]] = True
        np.maximum.at(found, outermost[known], last[members[known]])
        never[outermost[known & (last[members] < 0)]] = True
        outermost[known] = leads[outermost[known]]
    found[never] = -1
    frees = np.zeros(len(tried), at.EVENT)
    chained = found[tried] >= 0
    frees[chained] = events[found[tried[chained]]]
    lone = ~replaced[tried]
    frees[lone] = _drawn_frees(events, last, objects, requests, asked_ns, tried[lone], seed)
    frees["operation"] = at.FREE
    frees["object"] = tried
    frees["offset"] = 0
    frees["order"] = objects["order"][tried]
    frees = frees[(chained | lone) & (frees["time_ns"] > 0)]
    return frees[np.argsort(frees["time_ns"], kind="stable")]


def _last_free(events: np.ndarray, objects: np.ndarray) -> np.ndarray:
    """int64 by object: its last free among the events; -1 if some of it is never freed.

    What reclaim frees in the recording counts as not freed.
    """
    by_reclaim = events["bits"] & np.uint32(pr.FREED_BY_RECLAIM) == pr.FREED_BY_RECLAIM
    frees = np.flatnonzero((events["operation"] == at.FREE) & ~by_reclaim)
    pages = np.zeros(len(objects), np.int64)
    np.add.at(pages, events["object"][frees], np.int64(1) << events["order"][frees])
    last = np.full(len(objects), -1, np.int64)
    last[events["object"][frees]] = frees
    last[pages < np.int64(1) << objects["order"].astype(np.int64)] = -1
    return last


def _drawn_frees(
    events: np.ndarray,
    last: np.ndarray,
    objects: np.ndarray,
    requests: np.ndarray,
    asked_ns: np.ndarray,
    tried: np.ndarray,
    seed: int,
) -> np.ndarray:
    """Frees after lifetimes of recorded successes of the same order and class; time 0: never."""
    frees = np.zeros(len(tried), at.EVENT)
    begun = np.zeros(len(objects), np.int64)
    kinds = np.zeros(len(objects), np.int8)
    has_object = requests["object"] >= 0
    begun[requests["object"][has_object]] = asked_ns[has_object]
    kinds[requests["object"][has_object]] = requests["kind"][has_object]
    succeeded = np.flatnonzero(objects["kind"] == resolved.RECORDED)
    group = objects["order"].astype(np.int64) * 4 + kinds
    for wanted in np.unique(group[tried]):
        alike = succeeded[group[succeeded] == wanted]
        if not len(alike):
            continue
        mine = np.flatnonzero(group[tried] == wanted)
        drawn = alike[((mine + seed + 1) * _SPREAD % (1 << 32)) % len(alike)]
        freed = last[drawn] >= 0
        mine, drawn = mine[freed], drawn[freed]
        frees[mine] = events[last[drawn]]
        lifetime = events["time_ns"][last[drawn]] - begun[drawn]
        frees["time_ns"][mine] = begun[tried[mine]] + np.maximum(lifetime, 1)
    return frees
