"""Demand of an elastic replay: recorded failures are tried, and what replaced them may be absorbed.

A recording that failed to get a large page shows the smaller ones its task took instead. A replay
that finds the large one must not take those as well (T10.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.objects import REQUEST, OpenFailures, link_replacements
from pagealloc_model.allocator.state import slab_objects
from pagealloc_model.base.arrays import Column, NewArray, parts, working_directory
from pagealloc_model.measured.stream import begun_and_ended
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.demand.event_order import joined
from pagealloc_model.recording.recorded_machine import recorded_machine
from pagealloc_model.recording.snapshot import Snapshot
from pagealloc_model.recording.trace.columns import Event, Trace

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording


_ORDERS_BETWEEN = 4
"""Failures of lower and lower order that one request may have behind it."""
_SPREAD = 0x9E3779B1
"""Odd constant whose multiples are spread over 32 bits: draws by rank."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _TriedFailures:
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
) -> _TriedFailures:
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
        return _TriedFailures(objects=objects, leads=leads, frees=np.zeros(0, at.EVENT))
    asked = _numbered(requests, events, objects, new_array)
    together = joined(objects, new_array(tried, objects.dtype), new_array)
    _fill_tried(together[len(objects) :], requests)
    links = OpenFailures()
    for part in parts(len(asked)):
        slots, failures = links.of(asked[part])
        link_replacements(asked[part], slots, failures, leads)
    lives = _Lives(events, together, asked, requests, time_ns, new_array)
    frees = lives.frees(leads, len(objects), seed)
    return _TriedFailures(objects=together, leads=leads, frees=frees)


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
        """Frees of the failures' objects, in time order."""
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
        """Frees after lifetimes of recorded successes of the same order and class; 0: never."""
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


GFP_RECLAIMABLE = 0x10
RCU_NS = 100_000_000
"""Time after a reclaim in which RCU frees what its shrinkers let go."""
_RCU_TASKS = "rcu"
_LONG_AGO = -(1 << 62)
_FRAMES = 1 << 36
"""Page frames that can be: 256 TiB."""
_ASKED = 1
"""Of a page frame: a slab was allocated there at some time."""


def slab_frees(trace: Trace) -> np.ndarray:
    """Rows of frees that give back what was allocated as a slab of a reclaimable cache."""
    return np.concatenate([np.zeros(0, np.int64), *_slab_frees_by_part(trace)])


def _slab_frees_by_part(trace: Trace) -> Iterator[np.ndarray]:
    """Those of one part of the trace after the other."""
    known = np.zeros(0, np.int8)
    for part in parts(len(trace)):
        pfn = trace.pfn[part]
        is_wanted = (trace.event[part] <= Event.FREE) & (pfn >= 0) & (pfn < _FRAMES)
        is_asked = is_wanted & (trace.gfp[part] & np.uint32(GFP_RECLAIMABLE) != 0)
        is_asked &= trace.event[part] == Event.ALLOC
        asked = pfn[is_asked]
        if len(asked) and int(asked.max()) >= len(known):
            more = np.zeros(int(asked.max()) + 1, np.int8)
            more[: len(known)] = known
            known = more
        known[asked] |= _ASKED
        is_wanted &= pfn < len(known)
        rows = np.flatnonzero(is_wanted)
        rows = rows[known[pfn[rows]] != 0]
        if not len(rows):
            yield rows
            continue
        rows = rows[np.argsort(pfn[rows], kind="stable")]
        held = np.where(is_asked[rows], (trace.order[part][rows] + 1) * 2, 0).astype(np.int8)
        begins = np.diff(pfn[rows], prepend=-1) != 0
        before = np.concatenate([held[:1], held[:-1]])
        before[begins] = known[pfn[rows[begins]]] & ~_ASKED
        ends = np.append(begins[1:], True)
        known[pfn[rows[ends]]] = held[ends] | _ASKED
        is_slab = trace.event[part][rows] == Event.FREE
        is_slab &= before == (trace.order[part][rows] + 1) * 2
        yield np.sort(rows[is_slab]) + part.start


def _slabs_freed_by_rcu(
    trace: Trace, freed_in_reclaim: Callable[[np.ndarray], np.ndarray]
) -> Iterator[np.ndarray]:
    """Which frees of slabs RCU made soon after reclaim, whose shrinkers are then taken to be why.

    Most reclaimable caches give their objects back after a grace period, in a softirq or in a task
    of RCU's. No event tells whether a shrinker or a file's removal had let them go.
    """
    tasks = [pid for pid, name in trace.comms.items() if name.startswith(_RCU_TASKS)]
    last_ns = _LONG_AGO
    begin = 0
    for part, slabs in zip(parts(len(trace)), _slab_frees_by_part(trace), strict=True):
        # those of the part's last nanosecond count, too
        end = int(np.searchsorted(trace.time_ns, trace.time_ns[part.stop - 1], side="right"))
        freed = np.flatnonzero(trace.event[begin:end] == Event.FREE) + begin
        times = trace.time_ns[freed[freed_in_reclaim(freed)]]
        reclaimed_ns = np.concatenate([np.full(1, last_ns), times])
        begin, last_ns = end, int(reclaimed_ns[-1])
        by_rcu = (trace.in_interrupt[slabs] > 0) | np.isin(trace.pid[slabs], tasks)
        freed_ns = trace.time_ns[slabs]
        last = np.searchsorted(reclaimed_ns, freed_ns, side="right") - 1
        yield slabs[by_rcu & (freed_ns - reclaimed_ns[last] <= RCU_NS)]


ADD = "filemap:mm_filemap_add_to_page_cache"
DELETE = "filemap:mm_filemap_delete_from_page_cache"
READ = "filemap:mm_filemap_get_pages"
READ_BITS = (
    at.GFP_DIRECT_RECLAIM
    | at.GFP_KSWAPD_RECLAIM
    | pr.GFP_IO
    | pr.GFP_NORETRY
    | pr.FILE << pr.CLASS_SHIFT
)
"""Of a read that the recording does not have: reading ahead (S10.7)."""
_FIELDS = {"pfn", "index", "i_ino", "s_dev"}
"""Read of an event; perf's text has other words for them."""
_ROW_BITS = 36
_INDEX_BITS = 40


@dataclass(frozen=True, kw_only=True, eq=False)
class _FileUses:
    """What filemap events say of the page cache.

    Attributes:
        alias: int32 by object: the object whose file's pages it holds again, or itself.
        is_file: bool by object: it is in the page cache.
        uses: `layout.EVENT` records, reads of files' pages; zone not set. An object below 0 is
            minus one less the number of a page that was in the page cache throughout.
        unplaced: how many such pages there are.
    """

    alias: np.ndarray
    is_file: np.ndarray
    uses: np.ndarray = field(default_factory=lambda: np.zeros(0, at.EVENT))
    unplaced: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class _Entries:
    """Folios that entered the page cache: file and index as one number, when, which object."""

    page: np.ndarray
    row: np.ndarray
    number: np.ndarray


def file_uses(
    trace: Trace,
    alloc_rows: np.ndarray,
    events: np.ndarray,
    objects: np.ndarray,
    new_array: NewArray,
) -> _FileUses | None:
    """Uses of files' pages; None where no page was seen to enter the page cache.

    Args:
        trace: the recording's events.
        alloc_rows: int32, rows in the trace of the allocations that made the objects of kind
            RECORDED, one each, in order.
        events: `layout.EVENT` records.
        objects: `objects.OBJECT` records.
        new_array: makes what is as long as objects.
    """
    if not _is_recorded(trace):
        return None
    files = _Files(trace)
    entries = _entries(trace, files, alloc_rows, objects)
    reclaimed = new_array(len(objects), np.bool_)
    is_file, alias = new_array(len(objects), np.bool_), new_array(len(objects), np.int32)
    for part in parts(len(objects)):
        reclaimed[part], is_file[part] = False, False
        alias[part] = np.arange(part.start, part.stop)
    for part in parts(len(events)):
        bits = events["bits"][part] & np.uint32(pr.FREED_BY_RECLAIM)
        by_reclaim = bits == np.uint32(pr.FREED_BY_RECLAIM)
        by_reclaim &= events["operation"][part] == at.FREE
        reclaimed[events["object"][part][by_reclaim]] = True
    same = entries.page[1:] == entries.page[:-1]
    same &= reclaimed[entries.number[:-1]]
    orders = objects["order"][entries.number]
    same &= orders[1:] == orders[:-1]
    begins = np.append(True, ~same)[: len(entries.page)]
    root = np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))
    alias[entries.number] = entries.number[root]
    is_file[entries.number] = True
    uses, unplaced = _uses(trace, files, entries, objects, alias)
    return _FileUses(alias=alias, is_file=is_file, uses=uses, unplaced=unplaced)


def _is_recorded(trace: Trace) -> bool:
    """Whether a page was seen to enter the page cache, with its file and place in it."""
    adds = trace.tables.get(ADD)
    return adds is not None and len(adds["row"]) > 0 and set(adds) >= _FIELDS


def with_file_uses(events: np.ndarray, found: _FileUses) -> None:
    """Make reads of what had been read before uses of it, and name its frees after it, in place.

    Args:
        events: `layout.EVENT` records.
        found: what `file_uses` found.
    """
    for part in parts(len(events)):
        own = events[part]
        known = own["object"] >= 0
        numbers = np.where(known, own["object"], 0)
        is_read = known & (own["operation"] == at.ALLOC)
        cached = is_read & found.is_file[numbers]
        bits = own["bits"][cached] & np.uint32((1 << pr.CLASS_SHIFT) - 1)
        own["bits"][cached] = bits | np.uint32(pr.FILE << pr.CLASS_SHIFT)
        again = is_read & (found.alias[numbers] != numbers)
        own["object"][known] = found.alias[numbers[known]]
        own["operation"][again] = at.USE
        own["offset"][again] = 1


class _Files:
    """Numbers of a recording's files, from device and inode."""

    def __init__(self, trace: Trace) -> None:
        tables = [trace.tables[name] for name in (ADD, DELETE, READ) if name in trace.tables]
        named = np.concatenate([_named(table) for table in tables])
        self._files = np.unique(named, axis=0)

    def page(self, table: Mapping[str, np.ndarray]) -> np.ndarray:
        """int64: file and first index of each event."""
        named = _named(table)
        order = np.concatenate([self._files, named])
        _, inverse = np.unique(order, axis=0, return_inverse=True)
        number = inverse.reshape(-1)[len(self._files) :]
        return (number.astype(np.int64) << _INDEX_BITS) + np.asarray(table["index"], np.int64)


def _named(table: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.stack([np.asarray(table[name], np.int64) for name in ("s_dev", "i_ino")], axis=1)


def _entries(trace: Trace, files: _Files, alloc_rows: np.ndarray, objects: np.ndarray) -> _Entries:
    """Folios of known objects that entered the page cache, by page, then by time."""
    adds = trace.tables[ADD]
    made = np.flatnonzero(objects["kind"] == resolved.RECORDED)
    allocated = _key(objects["pfn"][made], alloc_rows)
    number, known = _holder(allocated, made, adds)
    found = [(files.page(adds)[known], np.asarray(adds["row"], np.int64)[known] + 1, number[known])]
    deletes = trace.tables.get(DELETE)
    if deletes is not None and len(deletes["row"]):
        at_start = np.flatnonzero(objects["kind"] == resolved.AT_START)
        at_start = at_start[np.argsort(objects["pfn"][at_start], kind="stable")]
        _, is_later = _holder(allocated, made, deletes)
        pfn = np.asarray(deletes["pfn"], np.int64)
        place = np.searchsorted(objects["pfn"][at_start], pfn)
        place = np.minimum(place, max(len(at_start) - 1, 0))
        known = ~is_later & (len(at_start) > 0)
        if len(at_start):
            known &= objects["pfn"][at_start[place]] == pfn
            number = at_start[place]
            found.append(
                (files.page(deletes)[known], np.zeros(known.sum(), np.int64), number[known])
            )
    page, row, number = (np.concatenate(each) for each in zip(*found, strict=True))
    ranked = np.lexsort((row, page))
    return _Entries(page=page[ranked], row=row[ranked], number=number[ranked])


def _key(pfn: np.ndarray, row: np.ndarray) -> np.ndarray:
    return (np.asarray(pfn, np.int64) << _ROW_BITS) + np.asarray(row, np.int64)


def _holder(
    allocated: np.ndarray, made: np.ndarray, table: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The object last allocated at each event's page before it, and whether there is one."""
    order = np.argsort(allocated, kind="stable")
    place = np.searchsorted(allocated[order], _key(table["pfn"], table["row"])) - 1
    found = order[np.maximum(place, 0)] if len(order) else np.zeros(len(place), np.int64)
    known = place >= 0
    if len(order):
        known &= allocated[found] >> _ROW_BITS == np.asarray(table["pfn"], np.int64)
        return made[found], known
    return found, known


def _uses(
    trace: Trace, files: _Files, entries: _Entries, objects: np.ndarray, alias: np.ndarray
) -> tuple[np.ndarray, int]:
    """Reads as events, one for each object that a read touches; pages that never entered."""
    reads = trace.tables.get(READ)
    if reads is None or not len(reads["row"]):
        return np.zeros(0, at.EVENT), 0
    first = files.page(reads)
    lengths = np.asarray(reads["last_index"], np.int64) - np.asarray(reads["index"], np.int64) + 1
    lengths = np.maximum(lengths, 1)
    read = np.repeat(np.arange(len(first)), lengths)
    within = np.arange(len(read)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    page = first[read] + within
    row = np.asarray(reads["row"], np.int64)[read] + 1
    sizes = np.int64(1) << objects["order"][entries.number].astype(np.int64)
    covering = np.repeat(np.arange(len(sizes)), sizes)
    offset = np.arange(len(covering)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    pages = entries.page[covering] + offset
    rows = entries.row[covering]
    names, inverse = np.unique(np.concatenate([pages, page]), return_inverse=True)
    inverse = inverse.reshape(-1)
    held = (inverse[: len(pages)] << _ROW_BITS) + rows
    order = np.argsort(held, kind="stable")
    wanted = inverse[len(pages) :]
    place = np.searchsorted(held[order], (wanted << _ROW_BITS) + row, side="right") - 1
    found = order[np.maximum(place, 0)] if len(order) else np.zeros(len(place), np.int64)
    known = place >= 0
    if len(order):
        known &= held[found] >> _ROW_BITS == wanted
    numbers = np.zeros(len(read), np.int64)
    numbers[known] = alias[entries.number[covering[found[known]]]]
    ever = np.zeros(len(names), bool)
    ever[inverse[: len(pages)]] = True
    stayed = ~known & ~ever[wanted]
    missing, among = np.unique(wanted[stayed], return_inverse=True)
    numbers[stayed] = -1 - among.reshape(-1)
    wanted_uses = known | stayed
    pairs = np.unique(np.stack([read[wanted_uses], numbers[wanted_uses]], axis=1), axis=0)
    uses = np.zeros(len(pairs), at.EVENT)
    uses["operation"] = at.USE
    uses["time_ns"] = np.asarray(reads["time_ns"])[pairs[:, 0]]
    uses["cpu"] = np.asarray(reads["cpu"])[pairs[:, 0]]
    uses["object"] = pairs[:, 1]
    uses["order"] = np.where(pairs[:, 1] >= 0, objects["order"][np.maximum(pairs[:, 1], 0)], 0)
    uses["migratetype"] = at.MOVABLE
    uses["bits"] = READ_BITS
    return uses[np.argsort(uses["time_ns"], kind="stable")], len(missing)


GFP_MOVABLE = 0x8
GFP_COMP = 0x40000
KSWAPD_NAME = "kswapd"


def page_classes(gfp: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The class of the pages that each request asks for (S2.3, S2.4).

    Movable pages are anonymous, unless their request is one of the page cache: for reading ahead
    (NORETRY), for writing (WRITE), or without FS. Huge pages are anonymous.
    """

    def has(bits: int) -> np.ndarray:
        return (gfp & np.uint32(bits)) != 0

    is_thp = (order == pr.THP_ORDER) & has(GFP_COMP) & has(at.GFP_NOMEMALLOC)
    is_file = (has(pr.GFP_NORETRY | at.GFP_WRITE) | ~has(pr.GFP_FS)) & ~is_thp
    conditions = [has(GFP_MOVABLE) & is_file, has(GFP_MOVABLE), has(GFP_RECLAIMABLE)]
    choices = [pr.FILE, pr.ANON, pr.RECLAIMABLE]
    return np.select(conditions, choices, pr.KERNEL).astype(np.uint32)


REQUEST_SEEN = np.dtype(
    [
        ("row", np.int32),
        ("task", np.int32),
        ("kind", np.int8),
        ("order", np.int8),
        ("failed", np.int8),
        ("tried", np.int8),
    ],
    align=True,
)
"""A recorded request: its row of the trace, its task, the class of its pages, its order, whether it
failed and is one that could have succeeded."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ElasticRequests:
    """What an elastic replay wants to know of a part's requests.

    Attributes:
        seen: `REQUEST_SEEN` records, in time order; none where no request of the trace failed.
        alloc_rows: int32, rows of the trace of the allocations; none where no file is known.
    """

    seen: np.ndarray
    alloc_rows: np.ndarray


class ElasticRows:
    """Marks rows with page classes and with frees of reclaim and compaction; tells who asked.

    Attributes:
        any_by_compaction: whether a row marked so far is a free by compaction.
    """

    def __init__(self, trace: Trace) -> None:
        """Find when tasks of a trace reclaimed and compacted.

        Args:
            trace: the recording's events.
        """
        self._trace = trace
        self.any_by_compaction = False
        names = trace.comms.items()
        self._kswapds = np.array(
            [pid for pid, name in names if name.startswith(KSWAPD_NAME)], np.int64
        )
        self._reclaims = _intervals(trace, *_RECLAIM)
        self._compactions = _intervals(trace, *_COMPACTION)
        self._any_failed = _any_failed(trace)
        self._any_file = _is_recorded(trace)
        self._by_rcu = np.zeros(0, np.int64)
        if len(self._kswapds) or len(self._reclaims[0]):
            by_rcu = Column(np.int64, working_directory(len(trace)))
            for rows in _slabs_freed_by_rcu(trace, self._freed_in_reclaim):
                by_rcu.append(rows)
            self._by_rcu = by_rcu.values

    def mark(self, rows: np.ndarray, kept: np.ndarray) -> ElasticRequests:
        """Add to rows what an elastic replay reads.

        Args:
            rows: `objects.ROW` records, otherwise complete; their bits and types are written.
            kept: each one's row in the trace.
        """
        trace = self._trace
        gfp = trace.gfp[kept]
        is_request = rows["is_free"] == 0
        classes = page_classes(gfp, rows["order"]) << np.uint32(pr.CLASS_SHIFT)
        more = (gfp & np.uint32(pr.ELASTIC_BITS)) | classes
        rows["bits"] |= np.where(is_request, more, np.uint32(0))
        pid = rows["pid"].astype(np.int64)
        by_reclaim = self.freed_by_reclaim(kept)
        by_compaction = self._frees(kept) & _inside(self._compactions, pid, kept)
        for marked, bits in (
            (by_reclaim, pr.FREED_BY_RECLAIM),
            (by_compaction & ~by_reclaim, pr.FREED_BY_COMPACTION),
        ):
            rows["bits"][marked] |= np.uint32(bits)
            rows["migratetype"][marked] = at.MOVABLE
        # Parts are marked at the same time: only ever set, so that no other's is lost.
        if by_compaction.any():
            self.any_by_compaction = True
        made = is_request & (rows["pfn"] >= 0)
        return ElasticRequests(
            seen=_requests(rows[is_request]) if self._any_failed else _requests(rows[:0]),
            alloc_rows=rows["row"][made] if self._any_file else rows["row"][:0],
        )

    def freed_by_reclaim(self, kept: np.ndarray) -> np.ndarray:
        """Whether recorded reclaim freed what the events are about (bool, one per event).

        Slabs are among them that RCU freed for it (T10.16).

        Args:
            kept: int64, rows in the trace.
        """
        freed = self._freed_in_reclaim(kept)
        if len(kept) and len(self._by_rcu):
            near = slice(*np.searchsorted(self._by_rcu, [kept.min(), kept.max() + 1]))
            freed |= np.isin(kept, self._by_rcu[near])
        return freed

    def _freed_in_reclaim(self, kept: np.ndarray) -> np.ndarray:
        """Whether a task that reclaimed freed what the events are about (bool, one per event)."""
        if not len(self._kswapds) and not len(self._reclaims[0]):
            return np.zeros(len(kept), bool)
        pid = self._trace.pid[kept].astype(np.int64)
        by_kswapd = np.isin(pid, self._kswapds)
        return self._frees(kept) & (by_kswapd | _inside(self._reclaims, pid, kept))

    def _frees(self, kept: np.ndarray) -> np.ndarray:
        """Whether events are frees, but not of interrupts (bool, one per event).

        What interrupts of these tasks do is neither reclaim's nor compaction's.
        """
        trace = self._trace
        return (trace.event[kept] == Event.FREE) & (trace.in_interrupt[kept] <= 0)


def _requests(rows: np.ndarray) -> np.ndarray:
    """Return what is wanted of rows that are requests."""
    bits = rows["bits"]
    seen = np.zeros(len(rows), REQUEST_SEEN)
    is_atomic = (bits & np.uint32(at.GFP_HIGH) != 0) & (
        bits & np.uint32(at.GFP_DIRECT_RECLAIM) == 0
    )
    seen["row"], seen["task"], seen["order"] = rows["row"], rows["pid"], rows["order"]
    seen["kind"] = bits >> np.uint32(pr.CLASS_SHIFT)
    seen["failed"] = rows["pfn"] < 0
    seen["tried"] = (rows["pfn"] < 0) & (rows["order"] > 0) & ~is_atomic
    return seen


def _any_failed(trace: Trace) -> bool:
    """Return whether a request above order 0 failed."""
    return any(
        bool(
            (
                (trace.pfn[part] == -1)
                & (trace.event[part] == Event.ALLOC)
                & (trace.order[part] > 0)
            ).any()
        )
        for part in parts(len(trace))
    )


_RECLAIM = ("vmscan:mm_vmscan_direct_reclaim_begin", "vmscan:mm_vmscan_direct_reclaim_end")
_COMPACTION = ("compaction:mm_compaction_begin", "compaction:mm_compaction_end")


def _inside(
    intervals: tuple[np.ndarray, np.ndarray], pid: np.ndarray, row: np.ndarray
) -> np.ndarray:
    """Whether events lie within intervals of their task (bool, one per event)."""
    keys, ends = intervals
    if not len(keys):
        return np.zeros(len(row), bool)
    # Of two that begin at the same row, the earlier one is empty.
    place = np.searchsorted(keys, (pid << _ROW_BITS) + row, side="right") - 1
    return (place >= 0) & (keys[place] >> _ROW_BITS == pid) & (row < ends[place])


def _intervals(trace: Trace, begin_name: str, end_name: str) -> tuple[np.ndarray, np.ndarray]:
    """Task and row of each beginning as one sorted int64, and the rows of the ends (T10.10)."""
    pairs = begun_and_ended(trace, begin_name, end_name)
    if pairs is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    begins, ends = trace.tables[begin_name], trace.tables[end_name]
    pid, row = begins["pid"][pairs[0]].astype(np.int64), begins["row"][pairs[0]].astype(np.int64)
    return (pid << _ROW_BITS) + row, ends["row"][pairs[1]].astype(np.int64)


def with_recorded_survivors(assumptions: Assumptions, recording: Recording) -> Assumptions:
    """Assumptions with the share of slabs that outlived reclaim in a recording, if it shows any.

    What they are then used for on the same recording is no prediction of slabs freed there.

    Args:
        assumptions: of an elastic replay.
        recording: whose machine gives the objects of a slab.
    """
    objects = slab_objects(recorded_machine(recording).nr_cpus)
    found = slab_survivors(recording.whole_trace, recording.dated_snapshots, objects)
    if found is None:
        return assumptions
    elastic = replace(assumptions.elastic, slab_survivors_per_mille=found)
    return replace(assumptions, elastic=elastic)


def slab_survivors(trace: Trace, snapshots: Sequence[Snapshot], objects: int) -> int | None:
    """Share of slabs that shrinkers did not empty though they scanned as many objects (T10.16).

    Only slabs allocated within the recording are known, so that others freed count as survivors.
    """
    counted = [
        (each.time_ns, each.vmstat.get("slabs_scanned") or 0)
        for each in snapshots
        if each.vmstat is not None
    ]
    if not counted:
        return None
    (begin, before), (end, after) = counted[0], counted[-1]
    if after <= before:
        return None
    slabs = slab_frees(trace)
    within = (trace.time_ns[slabs] > begin) & (trace.time_ns[slabs] < end)
    by_reclaim = ElasticRows(trace).freed_by_reclaim(slabs[within])
    return max(0, 1000 - 1000 * int(np.count_nonzero(by_reclaim)) * objects // (after - before))
