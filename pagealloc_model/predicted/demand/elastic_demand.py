"""Demand of an elastic replay: recorded failures are tried, and what replaced them may be absorbed.

A recording that failed to get a large page shows the smaller ones its task took instead. A replay
that finds the large one must not take those as well (T10.4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import objects as resolved
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.replacements import REQUEST, OpenFailures, link_replacements
from pagealloc_model.base.column_space import NewArray
from pagealloc_model.base.working_arrays import parts
from pagealloc_model.predicted.demand.event_order import joined

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
    requests: np.ndarray,
    time_ns: np.ndarray,
    events: np.ndarray,
    objects: np.ndarray,
    seed: int,
    new_array: NewArray,
) -> TriedFailures:
    """Give every failure that could succeed an object; finds what came in its place.

    Atomic requests are left out: one that failed stays a failure. A success lives until the last
    that came in its place is freed; one that nothing replaced lives as long as a recorded success
    of its order and class, drawn by its rank.

    Args:
        requests: `elastic_rows.REQUEST_SEEN` records in time order; may be left out where none
            could have succeeded.
        time_ns: the trace's column, which they point into.
        events: `layout.EVENT` records made of them; failures get their object's number here.
        objects: `objects.OBJECT` records.
        seed: of the draws.
        new_array: makes what is as long as objects or requests.
    """
    tried = sum(int(np.count_nonzero(requests["tried"][part])) for part in parts(len(requests)))
    leads = new_array(len(objects) + tried, np.int32)
    for part in parts(len(leads)):
        leads[part] = -1
    if not tried:
        return TriedFailures(objects=objects, leads=leads, frees=np.zeros(0, at.EVENT))
    asked = _numbered(requests, events, objects, new_array)
    together = joined(objects, new_array(tried, objects.dtype), new_array)
    _fill_tried(together[len(objects) :], requests)
    links = OpenFailures()
    for part in parts(len(asked)):
        slots, failures = links.of(asked[part])
        link_replacements(asked[part], slots, failures, leads)
    lives = _Lives(events, together, asked, requests, time_ns, new_array)
    frees = lives.frees(leads, len(objects), seed)
    return TriedFailures(objects=together, leads=leads, frees=frees)


def _numbered(
    requests: np.ndarray, events: np.ndarray, objects: np.ndarray, new_array: NewArray
) -> np.ndarray:
    """Return `REQUEST` records with objects' numbers; events of failures get theirs, too."""
    asked = new_array(len(requests), REQUEST)
    made = _Numbers(objects, resolved.RECORDED)
    failures = (
        part.start + np.flatnonzero(events["operation"][part] == at.RECORDED_FAILURE)
        for part in parts(len(events))
    )
    following = len(objects)
    pending = np.zeros(0, np.int64)
    for part in parts(len(requests)):
        seen = requests[part]
        is_tried, failed = seen["tried"] == 1, seen["failed"] == 1
        numbers = np.full(len(seen), -1, np.int32)
        numbers[is_tried] = following + np.arange(is_tried.sum())
        following += int(is_tried.sum())
        numbers[~failed] = made.next(int((~failed).sum()))
        while len(pending) < int(failed.sum()):
            pending = np.concatenate([pending, next(failures)])
        places, pending = np.split(pending, [int(failed.sum())])
        events["object"][places] = numbers[failed]
        own = np.zeros(len(seen), REQUEST)
        for name in ("task", "kind", "order", "failed"):
            own[name] = seen[name]
        own["object"] = numbers
        asked[part] = own
    return asked


class _Numbers:
    """Numbers of the objects of a kind, ascending, some at a time."""

    def __init__(self, objects: np.ndarray, kind: int) -> None:
        self._parts = (
            part.start + np.flatnonzero(objects["kind"][part] == kind)
            for part in parts(len(objects))
        )
        self._waiting = np.zeros(0, np.int64)

    def next(self, count: int) -> np.ndarray:
        """The next so many."""
        while len(self._waiting) < count:
            self._waiting = np.concatenate([self._waiting, next(self._parts)])
        numbers, self._waiting = np.split(self._waiting, [count])
        return numbers


def _fill_tried(added: np.ndarray, requests: np.ndarray) -> None:
    """Fill in the objects of failures."""
    end = 0
    for part in parts(len(requests)):
        orders = requests["order"][part][requests["tried"][part] == 1]
        own = np.zeros(len(orders), added.dtype)
        own["order"] = orders
        own["kind"] = resolved.TRIED
        added[end : end + len(own)] = own
        end += len(own)


class _Lives:
    """How long objects live, as far as the frees of failures' objects rest on it."""

    def __init__(
        self,
        events: np.ndarray,
        objects: np.ndarray,
        asked: np.ndarray,
        requests: np.ndarray,
        time_ns: np.ndarray,
        new_array: NewArray,
    ) -> None:
        self._events, self._objects = events, objects
        self._new_array = new_array
        self._begun_ns = new_array(len(objects), np.int64)
        self._group = new_array(len(objects), np.int16)
        for part in parts(len(objects)):
            self._begun_ns[part] = 0
            self._group[part] = objects["order"][part].astype(np.int16) * 4
        for part in parts(len(asked)):
            has_object = asked["object"][part] >= 0
            numbers = asked["object"][part][has_object]
            self._begun_ns[numbers] = time_ns[requests["row"][part][has_object]]
            self._group[numbers] += asked["kind"][part][has_object]
        self._last = self._last_free()
        self._alike, self._begins = self._by_group()

    def _last_free(self) -> np.ndarray:
        """int64 by object: its last free among the events; -1 if some of it is never freed.

        What reclaim frees in the recording counts as not freed.
        """
        events, objects = self._events, self._objects
        pages = self._filled(0, np.int32)
        last = self._filled(-1, np.int64)
        for part in parts(len(events)):
            bits = events["bits"][part] & np.uint32(pr.FREED_BY_RECLAIM)
            by_reclaim = bits == np.uint32(pr.FREED_BY_RECLAIM)
            frees = np.flatnonzero((events["operation"][part] == at.FREE) & ~by_reclaim)
            numbers = events["object"][part][frees]
            np.add.at(pages, numbers, np.int32(1) << events["order"][part][frees].astype(np.int32))
            last[numbers] = frees + part.start
        for part in parts(len(objects)):
            last[part][pages[part] < np.int32(1) << objects["order"][part].astype(np.int32)] = -1
        return last

    def _filled(self, value: int, dtype: npt.DTypeLike) -> np.ndarray:
        made = self._new_array(len(self._objects), dtype)
        for part in parts(len(made)):
            made[part] = value
        return made

    def frees(self, leads: np.ndarray, first: int, seed: int) -> np.ndarray:
        """Frees of the failures' objects, in time order.

        Args:
            leads: int32 by object: the failure it came in place of.
            first: number of the first failure's object; the others follow.
            seed: of the draws.
        """
        events, objects, last = self._events, self._objects, self._last
        found = self._filled(-1, np.int64)
        replaced, never = self._filled(0, np.bool_), self._filled(0, np.bool_)
        for part in parts(len(objects)):
            is_member = (leads[part] >= 0) & (objects["kind"][part] == resolved.RECORDED)
            members = np.flatnonzero(is_member) + part.start
            outermost = leads[members].astype(np.int64)
            for _ in range(_ORDERS_BETWEEN):
                known = outermost >= 0
                replaced[outermost[known]] = True
                np.maximum.at(found, outermost[known], last[members[known]])
                never[outermost[known & (last[members] < 0)]] = True
                outermost[known] = leads[outermost[known]]
        frees = self._new_array(len(objects) - first, at.EVENT)
        kept = lone_before = 0
        for part in parts(len(frees)):
            tried = np.arange(part.start, part.stop) + first
            freed = np.where(never[tried], -1, found[tried])
            lone = ~replaced[tried]
            own = np.zeros(len(tried), at.EVENT)
            own[freed >= 0] = events[freed[freed >= 0]]
            own[lone] = self._drawn(tried[lone], lone_before, seed)
            lone_before += int(lone.sum())
            own["operation"] = at.FREE
            own["object"] = tried
            own["offset"] = 0
            own["order"] = objects["order"][tried]
            own = own[((freed >= 0) | lone) & (own["time_ns"] > 0)]
            frees[kept : kept + len(own)] = own
            kept += len(own)
        frees = frees[:kept]
        return frees[np.argsort(frees["time_ns"], kind="stable")]

    def _by_group(self) -> tuple[np.ndarray, np.ndarray]:
        """Successes by order and class, then number (int32), and where each group begins."""
        objects, groups = self._objects, 4 * (int(self._group.max()) // 4 + 1)
        counts = np.zeros(groups, np.int64)
        for part in parts(len(objects)):
            is_made = objects["kind"][part] == resolved.RECORDED
            counts += np.bincount(self._group[part][is_made], minlength=groups)
        begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        alike, ends = self._new_array(int(begins[-1]), np.int32), begins[:-1].copy()
        for part in parts(len(objects)):
            made = np.flatnonzero(objects["kind"][part] == resolved.RECORDED)
            group = self._group[part][made]
            for each in np.unique(group):
                own = made[group == each] + part.start
                alike[ends[each] : ends[each] + len(own)] = own
                ends[each] += len(own)
        return alike, begins

    def _drawn(self, tried: np.ndarray, before: int, seed: int) -> np.ndarray:
        """Frees after lifetimes of recorded successes of the same order and class; 0: never.

        Args:
            tried: objects of failures that nothing replaced.
            before: how many there are before these.
            seed: of the draws.
        """
        frees = np.zeros(len(tried), at.EVENT)
        group = self._group[tried]
        counts = self._begins[group + 1] - self._begins[group]
        mine = np.flatnonzero(counts)
        ranks = (mine + before + seed + 1) * _SPREAD % (1 << 32) % counts[mine]
        drawn = self._alike[self._begins[group[mine]] + ranks]
        last = self._last[drawn]
        mine, drawn, last = mine[last >= 0], drawn[last >= 0], last[last >= 0]
        frees[mine] = self._events[last]
        lifetime = self._events["time_ns"][last] - self._begun_ns[drawn]
        frees["time_ns"][mine] = self._begun_ns[tried[mine]] + np.maximum(lifetime, 1)
        return frees
