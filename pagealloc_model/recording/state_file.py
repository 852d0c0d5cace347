"""The state of a machine's memory at one instant, as it was read out of the kernel: state files.

A state file is a zip archive of `about.json` and one numpy array, `NAME.npy`, for each array of
`MachineState`.
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.files import json_of, opened, unreadable, written_whole
from pagealloc_model.recording.machine import ZONE_TYPES_MAX
from pagealloc_model.recording.page_frames import END_OF_MEMORY, LARGEST_ORDER
from pagealloc_model.recording.proc.zoneinfo import NR_CPUS_MAX
from pagealloc_model.recording.trace import tracepoints as tp

STATE_VERSION = 1
STATE_SUFFIX = ".state"
_ABOUT = "about.json"
_MOST_ABOUT = 1 << 20
_UNPACKED, _TIMES_UNPACKED = 1 << 26, 256
"""What all arrays may take: 64 MiB, or 256 times the file's size; a guest's take 60 times it."""
_COMPRESSION_LEVEL = 4
_MOST_LOSSES, _LONGEST_LOSS = 64, 120
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
_TODO = "read the state again, or delete the file to go on without it"

ON_FREE_LIST, ON_PCP_LIST, ON_LRU_LIST = range(3)
"""Kinds of lists."""
COUNTED_EVENTS = tuple(
    name.partition(":")[2]
    for name in (
        *(tp.PAGE_ALLOC, tp.PAGE_FREE, tp.PAGE_FREE_BATCHED, tp.PAGE_PCPU_DRAIN),
        *(tp.PAGE_ALLOC_ZONE_LOCKED, tp.PAGE_ALLOC_EXTFRAG, tp.WORKQUEUE_EXECUTE_START),
    )
)
"""Tracepoints whose events are counted, to find the state's place among them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MachineState:
    """Every page of a machine, and what its allocator decides by, at one instant.

    Zones are numbered node by node: number = node's index * zone types + type. Page frames that the
    kernel has no `struct page` for have `page_flags` 0 and `page_refcount` -1.

    Attributes:
        about: how it was read: "source" (live, guest, dump), "release", names of "zones" (by zone
            type), "nodes" (their numbers), "flags" (bits of page_flags by name), "lru_lists",
            "zone_stat", "node_stat" (names of the kernel's counters), "events"; "read_ns", time
            that the reading took; "carried", if the machine went on meanwhile: the instant that
            pages were carried to, "events" that carried them, "own_pages" that the reader asked
            for meanwhile, "losses" (words and counts).
        page_flags: `flags` of each `struct page`, as the kernel has them.
        page_refcount: its reference count.
        page_order: order of the folio, or of the compound page, that begins there; else 0.
        list_kind: what each list is: on a free list, a per-CPU list or an LRU list.
        list_zone: the zone's number; of an LRU list, the node's index.
        list_cpu: the CPU of a per-CPU list, else -1.
        list_order: order of the list's pages; -1 for an LRU list.
        list_type: their migratetype; of an LRU list, its number in "lru_lists".
        list_length: entries.
        listed_pfn: first page frames of the entries of all lists, in the lists' order, head first.
        block_type: migratetype of each pageblock, -1 without memory.
        block_skip: 1 where compaction has marked the block to be skipped.
        pageset_count, pageset_high, pageset_high_min, pageset_high_max, pageset_batch,
            pageset_alloc_factor, pageset_free_count, pageset_expire, pageset_flags: fields of
            `struct per_cpu_pages`, -1 where the kernel has no such field.
        zone_start, zone_spanned, zone_present, zone_managed: page frames.
        zone_watermark: min, low, high and promo, without the boost.
        zone_boost, zone_reserved_highatomic, zone_free_highatomic, zone_drift_mark: pages.
        zone_lowmem_reserve: by highest zone type of a request.
        zone_stat: counters of "zone_stat", without what CPUs hold back.
        zone_stat_diff: what each CPU holds back of them.
        zone_stat_threshold: how much it may hold back.
        zone_compact_defer_shift, zone_compact_considered, zone_compact_order_failed: whether
            compaction is deferred.
        zone_compact_migrate_pfn: where asynchronous and synchronous compaction go on.
        zone_compact_free_pfn, zone_compact_init_migrate_pfn, zone_compact_init_free_pfn: the same
            of the free scanner, and where both began.
        node_kswapd_order, node_kswapd_highest, node_kswapd_failures: what kswapd is to do.
        node_kcompactd_order, node_kcompactd_highest, node_proactive_trigger: kcompactd.
        node_stat: counters of "node_stat", without what CPUs hold back.
        cpu_online: 1 for CPUs that are online.
        cpu_vmstat_expires: jiffy at which the CPU's next vmstat work is due, 0 if none is.
        jiffies, stat_interval: the jiffy of the instant, and jiffies from vmstat work to the next.
        event_count: events of each of "events" that perf has counted on each CPU so far; -1 where
            perf does not record it.
    """

    about: Mapping[str, Any]
    page_flags: np.ndarray
    page_refcount: np.ndarray
    page_order: np.ndarray
    list_kind: np.ndarray
    list_zone: np.ndarray
    list_cpu: np.ndarray
    list_order: np.ndarray
    list_type: np.ndarray
    list_length: np.ndarray
    listed_pfn: np.ndarray
    block_type: np.ndarray
    block_skip: np.ndarray
    pageset_count: np.ndarray
    pageset_high: np.ndarray
    pageset_high_min: np.ndarray
    pageset_high_max: np.ndarray
    pageset_batch: np.ndarray
    pageset_alloc_factor: np.ndarray
    pageset_free_count: np.ndarray
    pageset_expire: np.ndarray
    pageset_flags: np.ndarray
    zone_start: np.ndarray
    zone_spanned: np.ndarray
    zone_present: np.ndarray
    zone_managed: np.ndarray
    zone_watermark: np.ndarray
    zone_boost: np.ndarray
    zone_reserved_highatomic: np.ndarray
    zone_free_highatomic: np.ndarray
    zone_drift_mark: np.ndarray
    zone_lowmem_reserve: np.ndarray
    zone_stat: np.ndarray
    zone_stat_diff: np.ndarray
    zone_stat_threshold: np.ndarray
    zone_compact_defer_shift: np.ndarray
    zone_compact_considered: np.ndarray
    zone_compact_order_failed: np.ndarray
    zone_compact_migrate_pfn: np.ndarray
    zone_compact_free_pfn: np.ndarray
    zone_compact_init_migrate_pfn: np.ndarray
    zone_compact_init_free_pfn: np.ndarray
    node_kswapd_order: np.ndarray
    node_kswapd_highest: np.ndarray
    node_kswapd_failures: np.ndarray
    node_kcompactd_order: np.ndarray
    node_kcompactd_highest: np.ndarray
    node_proactive_trigger: np.ndarray
    node_stat: np.ndarray
    cpu_online: np.ndarray
    cpu_vmstat_expires: np.ndarray
    jiffies: np.ndarray
    stat_interval: np.ndarray
    event_count: np.ndarray

    @property
    def pageblock_order(self) -> int:
        """Order of a pageblock."""
        return int(self.about["pageblock_order"])

    def lists(self, kind: int) -> np.ndarray:
        """Numbers of the lists of a kind."""
        return np.flatnonzero(self.list_kind == kind)

    def pages_of(self, number: int) -> np.ndarray:
        """First page frames of a list's entries, head first."""
        end = int(self.list_length[: number + 1].sum())
        return self.listed_pfn[end - int(self.list_length[number]) : end]

    def list_of_entries(self, kind: int) -> tuple[np.ndarray, np.ndarray]:
        """First page frames of all entries of the lists of a kind, and each one's list number."""
        of_entry = np.repeat(np.arange(len(self.list_kind)), self.list_length)
        wanted = self.list_kind[of_entry] == kind
        return self.listed_pfn[wanted], of_entry[wanted]

    def pages_on_lists(self) -> tuple[np.ndarray, np.ndarray]:
        """Pages on free lists by zone, and on per-CPU lists by zone and CPU."""
        pages = self.list_length << np.maximum(self.list_order, 0).astype(np.int64)
        free, own = self.lists(ON_FREE_LIST), self.lists(ON_PCP_LIST)
        on_lists = np.zeros(len(self.zone_start), np.int64)
        np.add.at(on_lists, self.list_zone[free], pages[free])
        held = np.zeros(self.pageset_count.shape, np.int64)
        np.add.at(held, (self.list_zone[own], self.list_cpu[own]), pages[own])
        return on_lists, held

    def free_counted(self) -> np.ndarray:
        """Free pages by zone as the kernel counts them."""
        counter = list(self.about["zone_stat"]).index("NR_FREE_PAGES")
        return self.zone_stat[:, counter] + self.zone_stat_diff[:, :, counter].sum(axis=1)

    @property
    def uncertain(self) -> Mapping[str, int]:
        """What is not certain in it, in words, with how many; empty if it is exact."""
        return dict(self.about.get("carried", {}).get("losses", {}))

    @property
    def is_exact(self) -> bool:
        """False if it was read while its machine went on, and carried to its instant by events."""
        return "carried" not in self.about

    def carried_words(self) -> str:
        """How it was read, what of it is not certain, and how much; "exact" if nothing."""
        if self.is_exact:
            return "exact"
        carried = self.about["carried"]
        what = ", ".join(f"{count:,} {words}" for words, count in self.uncertain.items())
        return (
            f"the machine went on while it was read ({self.about['read_ns'] / 1e9:.2f} s, "
            f"{carried['events']:,} events, {carried['own_pages']:,} pages for the reader); "
            f"not certain: {what or 'nothing'}"
        )

    def contradiction(self) -> str:
        """What its lists and its counters say differently, "" if nothing.

        They differ while a list is being changed, and where a kernel went on while it was read.
        """
        on_lists, held = self.pages_on_lists()
        counted = self.free_counted()
        if bool((on_lists != counted).any()):
            return f"{on_lists.sum()} pages are on free lists, {counted.sum()} are counted"
        counts = np.maximum(self.pageset_count, 0)
        if bool((held != counts).any()):
            return f"{held.sum()} pages are on per-CPU lists, {counts.sum()} are counted"
        return ""


_SIDES = {
    "page_flags": ("uint64", "pages"),
    "page_refcount": ("int32", "pages"),
    "page_order": ("int8", "pages"),
    "list_kind": ("int8", "lists"),
    "list_zone": ("int16", "lists"),
    "list_cpu": ("int16", "lists"),
    "list_order": ("int8", "lists"),
    "list_type": ("int8", "lists"),
    "list_length": ("int64", "lists"),
    "listed_pfn": ("int32", "listed"),
    "block_type": ("int8", "blocks"),
    "block_skip": ("int8", "blocks"),
    "pageset_count": ("int64", "zones", "cpus"),
    "pageset_high": ("int64", "zones", "cpus"),
    "pageset_high_min": ("int64", "zones", "cpus"),
    "pageset_high_max": ("int64", "zones", "cpus"),
    "pageset_batch": ("int64", "zones", "cpus"),
    "pageset_alloc_factor": ("int64", "zones", "cpus"),
    "pageset_free_count": ("int64", "zones", "cpus"),
    "pageset_expire": ("int64", "zones", "cpus"),
    "pageset_flags": ("int64", "zones", "cpus"),
    "zone_start": ("int64", "zones"),
    "zone_spanned": ("int64", "zones"),
    "zone_present": ("int64", "zones"),
    "zone_managed": ("int64", "zones"),
    "zone_watermark": ("int64", "zones", "watermarks"),
    "zone_boost": ("int64", "zones"),
    "zone_reserved_highatomic": ("int64", "zones"),
    "zone_free_highatomic": ("int64", "zones"),
    "zone_drift_mark": ("int64", "zones"),
    "zone_lowmem_reserve": ("int64", "zones", "zone types"),
    "zone_stat": ("int64", "zones", "zone counters"),
    "zone_stat_diff": ("int64", "zones", "cpus", "zone counters"),
    "zone_stat_threshold": ("int64", "zones", "cpus"),
    "zone_compact_defer_shift": ("int64", "zones"),
    "zone_compact_considered": ("int64", "zones"),
    "zone_compact_order_failed": ("int64", "zones"),
    "zone_compact_migrate_pfn": ("int64", "zones", "modes"),
    "zone_compact_free_pfn": ("int64", "zones"),
    "zone_compact_init_migrate_pfn": ("int64", "zones"),
    "zone_compact_init_free_pfn": ("int64", "zones"),
    "node_kswapd_order": ("int64", "nodes"),
    "node_kswapd_highest": ("int64", "nodes"),
    "node_kswapd_failures": ("int64", "nodes"),
    "node_kcompactd_order": ("int64", "nodes"),
    "node_kcompactd_highest": ("int64", "nodes"),
    "node_proactive_trigger": ("int64", "nodes"),
    "node_stat": ("int64", "nodes", "node counters"),
    "cpu_online": ("int8", "cpus"),
    "cpu_vmstat_expires": ("int64", "cpus"),
    "jiffies": ("int64", "one"),
    "stat_interval": ("int64", "one"),
    "event_count": ("int64", "events", "cpus"),
}
"""Type of each array of `MachineState`, and what each of its dimensions counts."""
_MOST = {
    "pages": END_OF_MEMORY,
    "lists": 1 << 24,
    "listed": END_OF_MEMORY,
    "blocks": END_OF_MEMORY,
    "zones": 1 << 13,
    "cpus": NR_CPUS_MAX,
    "nodes": 1 << 10,
    "zone types": ZONE_TYPES_MAX,
    "watermarks": 8,
    "zone counters": 256,
    "node counters": 256,
    "modes": 8,
    "one": 1,
    "events": 64,
}


def write_state(path: Path, state: MachineState) -> None:
    """Write a state file; it appears whole or not at all."""
    with written_whole(path) as partial:
        packed = zipfile.ZipFile(
            partial, "w", zipfile.ZIP_DEFLATED, compresslevel=_COMPRESSION_LEVEL
        )
        with packed:
            about = {**state.about, "state_version": STATE_VERSION}
            packed.writestr(_ABOUT, json.dumps(about, indent=1))
            for name, (dtype, *_) in _SIDES.items():
                values = np.ascontiguousarray(getattr(state, name), dtype)
                with packed.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, values, allow_pickle=False)


def read_state(path: str | Path) -> MachineState:
    """Read a state file.

    Raises:
        RecordingError: it is damaged, of a newer layout, larger than any machine's, or its arrays
            contradict each other.
    """
    try:
        with opened(path) as file, zipfile.ZipFile(file) as packed:
            about = _about(path, packed)
            size = os.fstat(file.fileno()).st_size
            left, arrays = max(_UNPACKED, _TIMES_UNPACKED * size), {}
            for name in _SIDES:
                arrays[name] = _values(path, packed, name, left)
                left -= arrays[name].nbytes
    except _DAMAGED as error:
        raise _wrong(path, f"is no intact state file ({error})") from None
    except OSError as error:
        raise unreadable(path, error) from None
    state = MachineState(about=about, **arrays)
    _check(path, state)
    return state


def _wrong(path: str | Path, what: str) -> RecordingError:
    return RecordingError(path, what, todo=_TODO)


def _member(path: str | Path, packed: zipfile.ZipFile, name: str, most: int) -> bytes:
    """A member's content, of at most so many bytes."""
    try:
        with packed.open(name) as member:
            content = member.read(most + 1)
    except KeyError:
        raise _wrong(path, f"has no {name}") from None
    if len(content) > most:
        raise _wrong(path, f"{name} has more than {most} bytes")
    return content


def _about(path: str | Path, packed: zipfile.ZipFile) -> Mapping[str, Any]:
    content = _member(path, packed, _ABOUT, _MOST_ABOUT)
    about = json_of(content.decode("utf-8", "replace"), path, todo=_TODO)
    version = about.get("state_version") if isinstance(about, dict) else None
    if type(version) is not int or version < 1:
        raise _wrong(path, f"{_ABOUT} has no state_version")
    if version > STATE_VERSION:
        what = f"state_version is {version}, this version reads up to {STATE_VERSION}"
        raise RecordingError(path, what, todo="update pagealloc_model")
    order = about.get("pageblock_order")
    if type(order) is not int or not 0 <= order <= LARGEST_ORDER:
        raise _wrong(path, f"pageblock_order is {order!r}, not an order")
    for key in ("zones", "nodes", "lru_lists", "zone_stat", "node_stat", "events"):
        values, kind = about.get(key), int if key == "nodes" else str
        if not isinstance(values, list) or not all(type(value) is kind for value in values):
            raise _wrong(path, f"{key} of {_ABOUT} is no list of names")
    bits = about.get("flags")
    if not isinstance(bits, dict) or not all(type(bit) is int for bit in bits.values()):
        raise _wrong(path, f"flags of {_ABOUT} are no numbers of bits")
    if "carried" in about:
        carried = about["carried"]
        losses = carried.get("losses") if isinstance(carried, dict) else None
        if not isinstance(losses, dict) or len(losses) > _MOST_LOSSES:
            raise _wrong(path, f"carried of {_ABOUT} does not say what was lost")
        if not all(words.isprintable() and len(words) <= _LONGEST_LOSS for words in losses):
            raise _wrong(path, f"carried of {_ABOUT} has words that are none")
        numbers = [about.get("read_ns"), carried.get("events"), carried.get("own_pages")]
        numbers += losses.values()
        if not all(type(count) is int and 0 <= count < 1 << 63 for count in numbers):
            raise _wrong(path, f"carried of {_ABOUT} has what is no count")
    return about


def _values(path: str | Path, packed: zipfile.ZipFile, name: str, left: int) -> np.ndarray:
    """An array; its size is bounded by what its header says before anything is unpacked."""
    file, (wanted, *sides) = f"{name}.npy", _SIDES[name]
    try:
        member = packed.open(file)
    except KeyError:
        raise _wrong(path, f"has no {file}") from None
    with member:
        try:
            np.lib.format.read_magic(member)
            shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(member)
        except (ValueError, TokenError, SyntaxError, RecursionError) as error:
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise _wrong(path, f"{file} is no array ({why})") from None
        if dtype != np.dtype(wanted) or is_fortran or len(shape) != len(sides):
            raise _wrong(path, f"{file} is no array of {wanted} by {', '.join(sides)}")
        for side, count in zip(sides, shape, strict=True):
            if not 0 <= count <= _MOST[side]:
                raise _wrong(path, f"{file} has {count} {side}")
        size = math.prod(shape) * dtype.itemsize
        if size > left:
            raise _wrong(path, f"{file} takes more bytes than a file of its size unpacks to")
        content = io.BytesIO()
        while content.tell() < size and (piece := member.read(min(size - content.tell(), 1 << 24))):
            content.write(piece)
        if content.tell() < size or member.read(1):
            raise _wrong(path, f"{file} is not as long as it says")
    return np.frombuffer(content.getbuffer(), dtype).reshape(shape)


def _check(path: str | Path, state: MachineState) -> None:
    """Refuse arrays that contradict each other, or name what is not there."""
    sides: dict[str, tuple[str, int]] = {"one": ("", 1)}
    for name, (_, *of_array) in _SIDES.items():
        for side, count in zip(of_array, getattr(state, name).shape, strict=True):
            first, known = sides.setdefault(side, (name, count))
            if known != count:
                raise _wrong(path, f"{name} has {count} {side}, {first} has {known}")

    def size(side: str) -> int:
        return sides[side][1]

    about = state.about
    pages, zones = size("pages"), size("zones")
    named = len(about["nodes"]) * len(about["zones"])
    if zones != named or size("nodes") != len(about["nodes"]):
        raise _wrong(path, f"has {zones} zones, {named} are named")
    if size("zone types") != len(about["zones"]):
        raise _wrong(path, "lowmem_reserve is of another number of zone types")
    if size("events") != len(about["events"]):
        raise _wrong(path, "events are not those that are named")
    if size("blocks") != -(-pages >> state.pageblock_order):
        raise _wrong(path, f"has {size('blocks')} pageblocks for {pages} page frames")
    is_lru = state.list_kind == ON_LRU_LIST
    bounds: tuple[tuple[str, Any, int, Any], ...] = (
        ("list_kind", state.list_kind, 0, ON_LRU_LIST),
        ("list_zone", state.list_zone, 0, np.where(is_lru, size("nodes"), zones) - 1),
        ("list_cpu", state.list_cpu, -1, size("cpus") - 1),
        ("list_order", state.list_order, -1, LARGEST_ORDER),
        ("list_type", state.list_type, 0, 127),
        ("list_length", state.list_length, 0, size("listed")),
        ("listed_pfn", state.listed_pfn, 0, pages - 1),
        ("page_order", state.page_order, 0, LARGEST_ORDER),
        ("block_type", state.block_type, -1, LARGEST_ORDER),
    )
    for name, values, least, most in bounds:
        if bool(((values < least) | (values > most)).any()):
            raise _wrong(path, f"{name} holds a number that no machine of its size has")
    if int(state.list_length.sum()) != size("listed"):
        raise _wrong(path, "the lists' lengths do not add up to the pages listed")
    at_home = (state.list_kind == ON_PCP_LIST) == (state.list_cpu >= 0)
    if not bool((at_home & (is_lru | (state.list_order >= 0))).all()):
        raise _wrong(path, "a list has a CPU or an order that its kind does not have")
    for kinds in ((ON_FREE_LIST, ON_PCP_LIST), (ON_LRU_LIST,)):
        sides_of = [state.list_of_entries(kind) for kind in kinds]
        firsts = np.concatenate([pfns for pfns, _ in sides_of]).astype(np.int64)
        orders = np.concatenate([state.list_order[lists] for _, lists in sides_of])
        ends = firsts + (np.int64(1) << np.maximum(orders, 0).astype(np.int64))
        by_pfn = np.argsort(firsts, kind="stable")
        limits = np.append(firsts[by_pfn][1:], pages)
        if bool((ends[by_pfn] > limits).any()):
            raise _wrong(path, "a page is on two lists, or ends behind the memory")
