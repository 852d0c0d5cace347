"""Demand of an elastic replay: recorded failures are tried, and what replaced them may be absorbed.

A recording that failed to get a large page shows the smaller ones its task took instead. A replay
that finds the large one must not take those as well (T10.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.objects import REQUEST, OpenFailures, link_replacements
from pagealloc_model.base.arrays import Column, NewArray, filled, parts, working_directory
from pagealloc_model.base.jit import entry
from pagealloc_model.measured.folios import GFP_RECLAIMABLE, huge_attempts, page_classes
from pagealloc_model.measured.stream import begun_and_ended
from pagealloc_model.predicted.demand.event_order import joined, new_events
from pagealloc_model.recording.snapshot import Snapshot
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import Event, Trace

if TYPE_CHECKING:
    pass


_SPREAD = 0x9E3779B1
"""Odd constant whose multiples are spread over 32 bits: draws by rank."""


def tried_failures(
    requests: np.ndarray,
    time_ns: np.ndarray,
    events: np.ndarray,
    objects: np.ndarray,
    seed: int,
    new_array: NewArray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Give every failure that could succeed an object; finds what came in its place.

    Atomic requests are left out: one that failed stays a failure. A success lives until the last
    that came in its place is freed; one that nothing replaced lives as long as a recorded success
    of its order and class, drawn by its rank.

    Args:
        requests: `REQUEST_SEEN` records in time order; may be left out where none could have
            succeeded.
        time_ns: the trace's column, which they point into.
        events: `layout.EVENT` records made of them; failures get their object's number here.
        objects: `objects.OBJECT` records.
        seed: of the draws.
        new_array: makes what is as long as objects or requests.

    Returns:
        `objects.OBJECT` records, those of the failures last; int32 by object, the failure it came
        in place of, -1 for none; `layout.EVENT` records, when failures' objects are freed if they
        succeed.
    """
    tried = sum(int(np.count_nonzero(requests["tried"][part])) for part in parts(len(requests)))
    first = len(objects)
    leads = filled(new_array, first + tried, -1, np.int32)
    if not tried:
        return objects, leads, np.zeros(0, at.EVENT)
    asked = new_array(len(requests), REQUEST)
    successes = _in_turn(
        part.start + np.flatnonzero(objects["kind"][part] == resolved.RECORDED)
        for part in parts(first)
    )
    failures = _in_turn(
        part.start + np.flatnonzero(events["operation"][part] == at.RECORDED_FAILURE)
        for part in parts(len(events))
    )
    together, end = joined(objects, new_array(tried, objects.dtype), new_array), first
    links = OpenFailures()
    for part in parts(len(requests)):
        seen = requests[part]
        is_tried, failed = seen["tried"] == 1, seen["failed"] == 1
        begin, end = end, end + int(is_tried.sum())
        numbers = np.full(len(seen), -1, np.int32)
        numbers[is_tried] = np.arange(begin, end)
        numbers[~failed] = successes(int((~failed).sum()))
        events["object"][failures(int(failed.sum()))] = numbers[failed]
        own = np.zeros(len(seen), REQUEST)
        for name in ("task", "kind", "order", "failed", "attempt"):
            own[name] = seen[name]
        own["object"] = numbers
        asked[part] = own
        added = np.zeros(end - begin, objects.dtype)
        added["order"], added["kind"] = seen["order"][is_tried], resolved.TRIED
        together[begin:end] = added
        link_replacements(own, *links.of(own), leads)
    frees = _frees_of_tried(
        events, together, first, asked, requests, time_ns, leads, seed, new_array
    )
    return together, leads, frees


def _in_turn(pieces: Iterator[np.ndarray]) -> Callable[[int], np.ndarray]:
    """A function that returns the next so many of numbers which come in pieces."""
    waiting = np.zeros(0, np.int64)

    def take(count: int) -> np.ndarray:
        nonlocal waiting
        while len(waiting) < count:
            waiting = np.concatenate([waiting, next(pieces)])
        numbers, waiting = np.split(waiting, [count])
        return numbers

    return take


def _frees_of_tried(
    events: np.ndarray,
    objects: np.ndarray,
    first: int,
    asked: np.ndarray,
    requests: np.ndarray,
    time_ns: np.ndarray,
    leads: np.ndarray,
    seed: int,
    new_array: NewArray,
) -> np.ndarray:
    """Frees of the objects from `first` on, in time order."""
    count = len(objects)
    begun_ns, group = filled(new_array, count, 0, np.int64), new_array(count, np.int16)
    for part in parts(count):
        group[part] = objects["order"][part].astype(np.int16) * 4
    for part in parts(len(asked)):
        has_object = asked["object"][part] >= 0
        numbers = asked["object"][part][has_object]
        begun_ns[numbers] = time_ns[requests["row"][part][has_object]]
        group[numbers] += asked["kind"][part][has_object]
    last = _last_frees(events, objects, new_array)
    # successes by order and class, and where each group begins
    groups = 4 * (int(group.max()) // 4 + 1)
    sizes = np.zeros(groups, np.int64)
    for part in parts(count):
        is_made = objects["kind"][part] == resolved.RECORDED
        sizes += np.bincount(group[part][is_made], minlength=groups)
    begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    alike, ends = new_array(int(begins[-1]), np.int32), begins[:-1].copy()
    for part in parts(count):
        made = np.flatnonzero(objects["kind"][part] == resolved.RECORDED)
        of = group[part][made]
        for each in np.unique(of):
            own = made[of == each] + part.start
            alike[ends[each] : ends[each] + len(own)] = own
            ends[each] += len(own)
    # of each failure: the last free of what came in its place, whether anything did, and whether
    # some of that is never freed
    freed_last = filled(new_array, count, -1, np.int64)
    replaced, never = (filled(new_array, count, 0, np.bool_) for _ in range(2))
    for part in parts(count):
        is_member = (leads[part] >= 0) & (objects["kind"][part] == resolved.RECORDED)
        members = np.flatnonzero(is_member) + part.start
        outermost = leads[members].astype(np.int64)
        while (known := outermost >= 0).any():
            replaced[outermost[known]] = True
            np.maximum.at(freed_last, outermost[known], last[members[known]])
            never[outermost[known & (last[members] < 0)]] = True
            outermost[known] = leads[outermost[known]]
    frees = new_array(count - first, at.EVENT)
    kept = lone_before = 0
    for part in parts(len(frees)):
        tried = np.arange(part.start, part.stop) + first
        freed = np.where(never[tried], -1, freed_last[tried])
        lone = np.flatnonzero(~replaced[tried])
        own = np.zeros(len(tried), at.EVENT)
        own[freed >= 0] = events[freed[freed >= 0]]
        # what nothing replaced is freed after the lifetime of one of its group
        of = group[tried[lone]]
        among = begins[of + 1] - begins[of]
        some = np.flatnonzero(among)
        ranks = (some + lone_before + seed + 1) * _SPREAD % (1 << 32) % among[some]
        drawn = alike[begins[of[some]] + ranks]
        some, drawn = some[last[drawn] >= 0], drawn[last[drawn] >= 0]
        own[lone[some]] = events[last[drawn]]
        lifetime = events["time_ns"][last[drawn]] - begun_ns[drawn]
        own["time_ns"][lone[some]] = begun_ns[tried[lone[some]]] + np.maximum(lifetime, 1)
        lone_before += len(lone)
        own["operation"], own["object"], own["offset"] = at.FREE, tried, 0
        own["order"] = objects["order"][tried]
        is_freed = freed >= 0
        is_freed[lone] = True
        own = own[is_freed & (own["time_ns"] > 0)]
        frees[kept : kept + len(own)] = own
        kept += len(own)
    return frees[:kept][np.argsort(frees["time_ns"][:kept], kind="stable")]


def _last_frees(events: np.ndarray, objects: np.ndarray, new_array: NewArray) -> np.ndarray:
    """int64 by object: its last free among the events; -1 if some of it is never freed.

    What reclaim frees in the recording counts as not freed.
    """
    pages = filled(new_array, len(objects), 0, np.int32)
    last = filled(new_array, len(objects), -1, np.int64)
    for part in parts(len(events)):
        is_free = (events["operation"][part] == at.FREE) & ~_by_reclaim(events[part])
        frees = np.flatnonzero(is_free)
        numbers = events["object"][part][frees]
        np.add.at(pages, numbers, np.int32(1) << events["order"][part][frees].astype(np.int32))
        last[numbers] = frees + part.start
    for part in parts(len(objects)):
        last[part][pages[part] < np.int32(1) << objects["order"][part].astype(np.int32)] = -1
    return last


def _by_reclaim(events: np.ndarray) -> np.ndarray:
    """Mask of events that recorded reclaim caused."""
    return events["bits"] & np.uint32(pr.FREED_BY_RECLAIM) == np.uint32(pr.FREED_BY_RECLAIM)


RCU_NS = 100_000_000
"""Time after a reclaim in which RCU frees what its shrinkers let go."""
_RCU_TASKS = "rcu"
_LONG_AGO = -(1 << 62)
_FRAMES = 1 << 36
"""Page frames that can be: 256 TiB."""
ALLOC, FREE = 0, 1
"""Values of `Event`."""


@entry
def _mark_slab_frees(
    event: np.ndarray,
    pfn: np.ndarray,
    order: np.ndarray,
    gfp: np.ndarray,
    held: np.ndarray,
    is_slab: np.ndarray,
) -> None:
    """Mark frees of slabs; `held` has by page frame one more than the order of the slab there."""
    for row in range(len(event)):
        page = pfn[row]
        if event[row] > FREE or page < 0 or page >= len(held):
            continue
        size = int(order[row]) + 1
        is_slab[row] = event[row] == FREE and held[page] == size
        held[page] = size if event[row] == ALLOC and int(gfp[row]) & GFP_RECLAIMABLE else 0


def slab_frees(trace: Trace) -> np.ndarray:
    """Rows of frees that give back what was allocated as a slab of a reclaimable cache."""
    return np.concatenate([np.zeros(0, np.int64), *_slab_frees_by_part(trace)])


def _slab_frees_by_part(trace: Trace, *, kernel: bool = False) -> Iterator[np.ndarray]:
    """Rows of frees of slabs; with `kernel`, of all that no LRU list has (T10.10)."""
    held = np.zeros(0, np.int8)
    for part in parts(len(trace)):
        event, pfn, gfp = trace.event[part], trace.pfn[part], trace.gfp[part]
        if kernel:
            classes = page_classes(gfp, trace.order[part])
            gfp = np.where(classes <= pr.RECLAIMABLE, np.uint32(GFP_RECLAIMABLE), np.uint32(0))
        is_asked = (event == Event.ALLOC) & (gfp & np.uint32(GFP_RECLAIMABLE) != 0)
        last = int(pfn[is_asked & (pfn < _FRAMES)].max(initial=-1))
        held = np.concatenate([held, np.zeros(max(last + 1 - len(held), 0), np.int8)])
        is_slab = np.zeros(len(event), bool)
        _mark_slab_frees(event, pfn, trace.order[part], gfp, held, is_slab)
        yield np.flatnonzero(is_slab) + part.start


def _slabs_freed_by_rcu(
    trace: Trace, freed_in_reclaim: Callable[[np.ndarray], np.ndarray]
) -> Iterator[np.ndarray]:
    """Frees of slabs that RCU made soon after reclaim, whose shrinkers are then taken to be why.

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


READ_BITS = (
    at.GFP_DIRECT_RECLAIM
    | at.GFP_KSWAPD_RECLAIM
    | pr.GFP_IO
    | pr.GFP_NORETRY
    | pr.FILE << pr.CLASS_SHIFT
)
"""Of a read that the recording does not have: reading ahead (S10.7)."""
_ROW_BITS = 36
_INDEX_BITS = 40


def file_uses(
    trace: Trace,
    alloc_rows: np.ndarray,
    events: np.ndarray,
    objects: np.ndarray,
    new_array: NewArray,
) -> tuple[np.ndarray, int] | None:
    """Make reads of what had been read before uses of it, and name its frees after it, in place.

    Args:
        trace: the recording's events.
        alloc_rows: int32, rows in the trace of the allocations that made the objects of kind
            RECORDED, one each, in order.
        events: `layout.EVENT` records, changed.
        objects: `objects.OBJECT` records.
        new_array: makes what is as long as objects.

    Returns:
        `layout.EVENT` records, other reads of files' pages, zone not set, and how many pages were
        in the page cache throughout: page k of these is object -1 - k. None where no page was seen
        to enter the page cache.
    """
    if not _is_recorded(trace):
        return None
    tables = [trace.tables[name] for name in tp.FILEMAP if name in trace.tables]
    names = [
        np.stack([np.asarray(table[name], np.int64) for name in ("s_dev", "i_ino")], axis=1)
        for table in tables
    ]
    _, number = np.unique(np.concatenate(names), axis=0, return_inverse=True)
    ends = np.cumsum([len(each) for each in names])[:-1]
    numbers = np.split(number.reshape(-1).astype(np.int64), ends)
    # file and first index of each event as one number
    pages = {
        id(table): (file << _INDEX_BITS) + np.asarray(table["index"], np.int64)
        for table, file in zip(tables, numbers, strict=True)
    }
    page, row, number = _entries(trace, pages, alloc_rows, objects)
    reclaimed, is_file = (filled(new_array, len(objects), 0, np.bool_) for _ in range(2))
    alias = new_array(len(objects), np.int32)
    for part in parts(len(objects)):
        alias[part] = np.arange(part.start, part.stop)
    for part in parts(len(events)):
        by_reclaim = _by_reclaim(events[part]) & (events["operation"][part] == at.FREE)
        reclaimed[events["object"][part][by_reclaim]] = True
    orders = objects["order"][number]
    same = (page[1:] == page[:-1]) & reclaimed[number[:-1]] & (orders[1:] == orders[:-1])
    begins = np.append(True, ~same)[: len(page)]
    root = np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))
    alias[number] = number[root]
    is_file[number] = True
    reads = trace.tables.get(tp.FILEMAP_GET_PAGES)
    uses, unplaced = np.zeros(0, at.EVENT), 0
    if reads is not None and len(reads["row"]):
        first = pages[id(reads)]
        uses, unplaced = _uses(reads, first, page, row, number, objects, alias)
    for part in parts(len(events)):
        own = events[part]
        known = own["object"] >= 0
        held = np.where(known, own["object"], 0)
        is_read = known & (own["operation"] == at.ALLOC)
        cached = is_read & is_file[held]
        bits = own["bits"][cached] & np.uint32((1 << pr.CLASS_SHIFT) - 1)
        own["bits"][cached] = bits | np.uint32(pr.FILE << pr.CLASS_SHIFT)
        again = is_read & (alias[held] != held)
        own["object"][known] = alias[held[known]]
        own["operation"][again] = at.USE
        own["offset"][again] = 1
    return uses, unplaced


def _is_recorded(trace: Trace) -> bool:
    """True if a page was seen to enter the page cache, with its file and place in it."""
    adds = trace.tables.get(tp.FILEMAP_ADD)
    # perf's text has other words for these
    fields = {"pfn", "index", "i_ino", "s_dev"}
    return adds is not None and len(adds["row"]) > 0 and set(adds) >= fields


def _entries(
    trace: Trace, pages: Mapping[int, np.ndarray], alloc_rows: np.ndarray, objects: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Folios of known objects that entered the page cache, by page, then by time.

    Returns:
        File and index as one number, row in the trace, and object of each.
    """
    adds, deletes = trace.tables[tp.FILEMAP_ADD], trace.tables.get(tp.FILEMAP_DELETE)
    made = np.flatnonzero(objects["kind"] == resolved.RECORDED)
    allocated = _key(objects["pfn"][made], alloc_rows)
    number, known = _holder(allocated, made, adds)
    entries = [
        (pages[id(adds)][known], np.asarray(adds["row"], np.int64)[known] + 1, number[known])
    ]
    at_start = np.flatnonzero(objects["kind"] == resolved.AT_START)
    if deletes is not None and len(deletes["row"]) and len(at_start):
        at_start = at_start[np.argsort(objects["pfn"][at_start], kind="stable")]
        _, is_later = _holder(allocated, made, deletes)
        pfn = np.asarray(deletes["pfn"], np.int64)
        place = np.searchsorted(objects["pfn"][at_start], pfn)
        number = at_start[np.minimum(place, len(at_start) - 1)]
        known = ~is_later & (objects["pfn"][number] == pfn)
        before = np.zeros(known.sum(), np.int64)
        entries.append((pages[id(deletes)][known], before, number[known]))
    page, row, number = (np.concatenate(column) for column in zip(*entries, strict=True))
    ranked = np.lexsort((row, page))
    return page[ranked], row[ranked], number[ranked]


def _key(page: np.ndarray, row: np.ndarray) -> np.ndarray:
    return (np.asarray(page, np.int64) << _ROW_BITS) + np.asarray(row, np.int64)


def _latest(
    held: np.ndarray, wanted: np.ndarray, side: Literal["left", "right"] = "right"
) -> tuple[np.ndarray, np.ndarray]:
    """Place of the last key up to each wanted one, and whether that is of the same page."""
    if not len(held):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), bool)
    order = np.argsort(held, kind="stable")
    place = np.searchsorted(held[order], wanted, side=side) - 1
    latest = order[np.maximum(place, 0)]
    return latest, (place >= 0) & (held[latest] >> _ROW_BITS == wanted >> _ROW_BITS)


def _holder(
    allocated: np.ndarray, made: np.ndarray, table: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The object last allocated at each event's page before it, and whether there is one."""
    latest, known = _latest(allocated, _key(table["pfn"], table["row"]), "left")
    return made[latest] if len(made) else latest, known


def _uses(
    reads: Mapping[str, np.ndarray],
    first: np.ndarray,
    entry_page: np.ndarray,
    entry_row: np.ndarray,
    entry_number: np.ndarray,
    objects: np.ndarray,
    alias: np.ndarray,
) -> tuple[np.ndarray, int]:
    """Reads as events, one for each object that a read touches; pages that never entered."""
    lengths = np.asarray(reads["last_index"], np.int64) - np.asarray(reads["index"], np.int64) + 1
    read, within = _spread(np.maximum(lengths, 1))
    entry, offset = _spread(np.int64(1) << objects["order"][entry_number].astype(np.int64))
    names, inverse = np.unique(
        np.concatenate([entry_page[entry] + offset, first[read] + within]), return_inverse=True
    )
    inverse = inverse.reshape(-1)
    entered, wanted = inverse[: len(entry)], inverse[len(entry) :]
    row = np.asarray(reads["row"], np.int64)[read] + 1
    latest, known = _latest(_key(entered, entry_row[entry]), _key(wanted, row))
    numbers = np.zeros(len(read), np.int64)
    numbers[known] = alias[entry_number[entry[latest[known]]]]
    ever = np.zeros(len(names), bool)
    ever[entered] = True
    stayed = ~known & ~ever[wanted]
    missing, among = np.unique(wanted[stayed], return_inverse=True)
    numbers[stayed] = -1 - among.reshape(-1)
    is_use = known | stayed
    touching, number = np.unique(np.stack([read[is_use], numbers[is_use]], axis=1), axis=0).T
    uses = new_events(
        at.USE,
        len(number),
        time_ns=np.asarray(reads["time_ns"])[touching],
        cpu=np.asarray(reads["cpu"])[touching],
        object=number,
        order=np.where(number >= 0, objects["order"][np.maximum(number, 0)], 0),
        migratetype=at.MOVABLE,
        bits=READ_BITS,
    )
    return uses[np.argsort(uses["time_ns"], kind="stable")], len(missing)


def _spread(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each number as often as its length says, and 0, 1, 2, ... of each."""
    number = np.repeat(np.arange(len(lengths)), lengths)
    return number, np.arange(len(number)) - np.repeat(np.cumsum(lengths) - lengths, lengths)


KSWAPD_NAME = "kswapd"
KERNEL_THREADS = (
    KSWAPD_NAME,
    "kcompactd",
    "khugepaged",
    "kthreadd",
    "kworker/",
    "ksoftirqd/",
    "jbd2/",
)
"""What names of kernel threads that allocate begin with; of others a recording does not tell."""


REQUEST_SEEN = np.dtype(
    [
        ("row", np.int32),
        ("task", np.int32),
        ("kind", np.int8),
        ("order", np.int8),
        ("failed", np.int8),
        ("tried", np.int8),
        ("attempt", np.int8),
    ],
    align=True,
)
"""A recorded request: its row of the trace, its task, the class of its pages, its order, whether it
failed and is one that could have succeeded, which attempt at a huge page it is."""


class ElasticRows:
    """Marks rows with page classes and with frees of reclaim and compaction.

    Attributes:
        any_by_compaction: whether a row marked so far is a free by compaction.
    """

    def __init__(self, trace: Trace) -> None:
        """Find when tasks of a trace reclaimed and compacted."""
        self._trace = trace
        self.any_by_compaction = False
        self._kswapds = _tasks_named(trace, KSWAPD_NAME)
        self._kernel_threads = _tasks_named(trace, KERNEL_THREADS)
        self._reclaims = _intervals(trace, *tp.DIRECT_RECLAIM)
        self._compactions = _intervals(trace, *tp.COMPACTION)
        self._any_failed = any(
            (
                (trace.pfn[part] == -1)
                & (trace.event[part] == Event.ALLOC)
                & (trace.order[part] > 0)
            ).any()
            for part in parts(len(trace))
        )
        self._any_file = _is_recorded(trace)
        self._any_reclaim = len(self._kswapds) > 0 or len(self._reclaims[0]) > 0

    def _rows(self, found: Callable[[], Iterator[np.ndarray]]) -> np.ndarray:
        rows = Column(np.int64, working_directory(len(self._trace)))
        for part in found() if self._any_reclaim else ():
            rows.append(part)
        return rows.values

    @cached_property
    def _by_rcu(self) -> np.ndarray:
        return self._rows(lambda: _slabs_freed_by_rcu(self._trace, self._freed_in_reclaim))

    @cached_property
    def _kernels(self) -> np.ndarray:
        return self._rows(lambda: _slab_frees_by_part(self._trace, kernel=True))

    def mark(self, rows: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Add to rows what an elastic replay reads.

        Returns:
            `REQUEST_SEEN` records in time order, none where no request of the trace failed; int32,
            rows of the trace of the allocations, none where no file is known.
        """
        gfp = self._trace.gfp[kept]
        is_request = rows["is_free"] == 0
        classes = page_classes(gfp, rows["order"]) << np.uint32(pr.CLASS_SHIFT)
        pid = rows["pid"].astype(np.int64)
        by_thread = np.isin(pid, self._kernel_threads) * np.uint32(at.KERNEL_THREAD)
        more = (gfp & np.uint32(pr.ELASTIC_BITS)) | classes | by_thread
        rows["bits"] |= np.where(is_request, more, np.uint32(0))
        by_reclaim = self._freed_in_reclaim(kept) & ~self._are(self._kernels, kept)
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
        asked = rows[is_request] if self._any_failed else rows[:0]
        bits, failed = asked["bits"], asked["pfn"] < 0
        is_atomic = bits & np.uint32(at.GFP_HIGH | at.GFP_DIRECT_RECLAIM) == at.GFP_HIGH
        seen = np.zeros(len(asked), REQUEST_SEEN)
        seen["row"], seen["task"], seen["order"] = asked["row"], asked["pid"], asked["order"]
        seen["kind"] = bits >> np.uint32(pr.CLASS_SHIFT)
        seen["attempt"] = huge_attempts(bits, asked["order"], seen["kind"])
        seen["failed"] = failed
        seen["tried"] = failed & (asked["order"] > 0) & ~is_atomic
        made = is_request & (rows["pfn"] >= 0)
        return seen, rows["row"][made] if self._any_file else rows["row"][:0]

    def freed_by_reclaim(self, kept: np.ndarray) -> np.ndarray:
        """Mask of events about pages that recorded reclaim freed.

        Slabs are among them that RCU freed for it (T10.16).
        """
        return self._freed_in_reclaim(kept) | self._are(self._by_rcu, kept)

    def _are(self, rows: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """Mask of those of `kept` that are among some sorted rows."""
        if not len(kept) or not len(rows):
            return np.zeros(len(kept), bool)
        near = slice(*np.searchsorted(rows, [kept.min(), kept.max() + 1]))
        return np.isin(kept, rows[near])

    def _freed_in_reclaim(self, kept: np.ndarray) -> np.ndarray:
        if not len(self._kswapds) and not len(self._reclaims[0]):
            return np.zeros(len(kept), bool)
        pid = self._trace.pid[kept].astype(np.int64)
        by_kswapd = np.isin(pid, self._kswapds)
        return self._frees(kept) & (by_kswapd | _inside(self._reclaims, pid, kept))

    def _frees(self, kept: np.ndarray) -> np.ndarray:
        """Mask of frees, but for what interrupts of a task do in its name."""
        trace = self._trace
        return (trace.event[kept] == Event.FREE) & (trace.in_interrupt[kept] <= 0)


def _tasks_named(trace: Trace, beginning: str | tuple[str, ...]) -> np.ndarray:
    """Thread ids, int64, of the tasks whose names begin so."""
    return np.array([t for t, name in trace.comms.items() if name.startswith(beginning)], np.int64)


def _inside(
    intervals: tuple[np.ndarray, np.ndarray], pid: np.ndarray, row: np.ndarray
) -> np.ndarray:
    """Mask of events that lie within intervals of their task."""
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
