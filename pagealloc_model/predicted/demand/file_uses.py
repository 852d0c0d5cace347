"""Uses of files' pages, where filemap events were recorded: demand of an elastic replay (T10.15).

The page that one allocation brought into the page cache and the page that another one brought there
after reclaim had taken the first are one object, which is used; it need not be read again while a
replay still holds it. Other reads are uses, too: they show which pages the workload goes on needing
although the recorded kernel never had to read them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import objects as resolved
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.base.column_space import NewArray
from pagealloc_model.base.working_arrays import parts
from pagealloc_model.recording.trace.columns import Trace

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
class FileUses:
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
) -> FileUses | None:
    """Uses of files' pages; None where no page was seen to enter the page cache.

    Args:
        trace: the recording's events.
        alloc_rows: int32, rows in the trace of the allocations that made the objects of kind
            RECORDED, one each, in order.
        events: `layout.EVENT` records.
        objects: `objects.OBJECT` records.
        new_array: makes what is as long as objects.
    """
    if not is_recorded(trace):
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
    return FileUses(alias=alias, is_file=is_file, uses=uses, unplaced=unplaced)


def is_recorded(trace: Trace) -> bool:
    """Whether a page was seen to enter the page cache, with its file and place in it."""
    adds = trace.tables.get(ADD)
    return adds is not None and len(adds["row"]) > 0 and set(adds) >= _FIELDS


def with_file_uses(events: np.ndarray, found: FileUses) -> None:
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
