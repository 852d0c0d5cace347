"""Reads the state of a machine's memory out of its kernel: every list, and what it decides by."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.jit import entry
from pagealloc_model.recording.record.kernel_memory import KernelMemory, Structure
from pagealloc_model.recording.state_file import (
    COUNTED_EVENTS,
    ON_FREE_LIST,
    ON_LRU_LIST,
    ON_PCP_LIST,
    MachineState,
)

_SECTION_ORDER = 15
_HAS_MEM_MAP = 2
_SUBSECTION_PAGES = 512
_LRU_LISTS = ("inactive_anon", "active_anon", "inactive_file", "active_file", "unevictable")
_UNEVICTABLE = 4
HUGE_ORDER = 9
PCP_ORDERS = 4
_COSTLY_LISTS = 3 * PCP_ORDERS
"""Per-CPU lists of orders 0 to 3 by three types; those beyond are of huge pages (S4.1)."""
_TYPE_BITS, _FEWEST_BLOCK_BITS = 3, 4
_OLD_BUDDY_BIT = 0x80


class Pages(NamedTuple):
    """What is taken from each `struct page` in one pass.

    Attributes:
        base: address of page frame 0's.
        size: bytes of one.
        link_offset: bytes from its begin to its links.
        flags: its `flags`, uint64.
        next: address that its links hold as the next one, uint64.
        prev: the same as the one before.
        refcount: its reference count, int32; -1 where there is no `struct page`.
        free_order: int8, order of the free buddy that begins there, -1 for none.
        pieces: int64, shape (pieces, 4): first page frame and page frames of each piece in the
            order of reading, CLOCK_MONOTONIC in ns before and after it was read.
    """

    base: int
    size: int
    link_offset: int
    flags: np.ndarray
    next: np.ndarray
    prev: np.ndarray
    refcount: np.ndarray
    free_order: np.ndarray
    pieces: np.ndarray


class ListTaker(Protocol):
    """What is done with the head of each list that is found."""

    def add(self, head: int, first: int, what: str, row: tuple[int, int, int, int, int]) -> None:
        """Take a list: address of its head, what that holds, words for it, its columns."""

    def arrays(self) -> tuple[np.ndarray, Mapping[str, np.ndarray]]:
        """Pages of all lists, and the columns of lists by their names in `MachineState`."""


@entry
def follow(links: np.ndarray, first: int, head: int, base: int, size: int, pfns: np.ndarray) -> int:
    """No kernel function: write down the pages of a list, head first.

    Args:
        links: uint64, address that each page's `next` holds.
        first: address that the head's `next` holds.
        head: address of the head, which ends the list.
        base: address of the links of page frame 0.
        size: bytes from one page's links to the next one's.
        pfns: int32, filled from its begin; as long as the longest list may be.

    Returns:
        The entries; -1 if the list leaves the pages, or does not end.
    """
    count = 0
    node = np.uint64(first)
    while node != np.uint64(head):
        offset = node - np.uint64(base)
        pfn = offset // np.uint64(size)
        if offset % np.uint64(size) or pfn >= len(links) or count >= len(pfns):
            return -1
        pfns[count] = pfn
        count += 1
        node = links[pfn]
    return count


def read_machine_state(
    memory: KernelMemory,
    pageblock_order: int = 9,
    pages: Pages | None = None,
    lists: ListTaker | None = None,
) -> MachineState:
    """Read every page, list, pageset, zone and node of a kernel.

    A kernel that does not hold still gives lists that contradict each other; a list that cannot be
    followed to its end is an error.

    Args:
        memory: the kernel's.
        pageblock_order: order of a pageblock, which its memory does not tell.
        pages: those that were read before; None: they are read now.
        lists: takes the lists; None: they are followed.

    Raises:
        UsageError: the kernel lacks what is read, or a list does not end.
    """
    begun = time.monotonic_ns()
    types = memory.types
    counts = event_counts(memory)
    nodes = _nodes(memory)
    zones = [zone for _, node in nodes for zone in _zones(memory, node)]
    end = max(_end(zone) for zone in zones)
    sections = _sections(memory, end)
    if pages is None:
        pages = _read_pages(memory, [number for number, _ in sections], end, 1 << _SECTION_ORDER)
    if lists is None:
        lists = _Lists(pages)
    cpus = len(memory.per_cpu(0))
    for number, zone in enumerate(zones):
        _free_lists(memory, zone, number, lists)
    pagesets = [
        [memory.at("per_cpu_pages", each) for each in memory.per_cpu(zone.pointer(_PAGESET))]
        if zone.pointer(_PAGESET)
        else []
        for zone in zones
    ]
    online = memory.bits(memory.address("__cpu_online_mask"), -(-cpus // 64) * 8)
    for number, row in enumerate(pagesets):
        for cpu, pageset in enumerate(row):
            _pcp_lists(memory, pageset, number, cpu, lists)
    bits = {name.removeprefix("PG_"): bit for name, bit in types.enumerators("pageflags").items()}
    nodes_of_pages = np.zeros(end, np.int16)
    for number, zone in enumerate(zones):
        span = slice(zone.number("zone_start_pfn"), _end(zone))
        nodes_of_pages[span] = number // (len(zones) // len(nodes))
    _lru_lists(memory, pages, bits, nodes_of_pages, lists)
    block_type, block_skip = _blocks(memory, sections, end, pageblock_order)
    zone_items = _counter_names(types.enumerators("zone_stat_item"), "NR_VM_ZONE_STAT_ITEMS")
    node_items = _counter_names(types.enumerators("node_stat_item"), "NR_VM_NODE_STAT_ITEMS")
    stats = [
        [memory.at("per_cpu_zonestat", each) for each in memory.per_cpu(pointer)]
        if (pointer := zone.pointer("per_cpu_zonestats"))
        else []
        for zone in zones
    ]
    work = memory.per_cpu(memory.address("vmstat_work"))
    listed, words = lists.arrays()
    about = {
        "source": memory.source,
        "release": _release(memory),
        "pageblock_order": pageblock_order,
        "zones": [memory.text(zone.pointer("name")) for zone in zones[: len(zones) // len(nodes)]],
        "nodes": [number for number, _ in nodes],
        "flags": bits,
        "lru_lists": list(_LRU_LISTS),
        "zone_stat": zone_items,
        "node_stat": node_items,
        "events": list(COUNTED_EVENTS),
        "read_ns": 0,
    }

    def of_zones(path: str, missing: int | None = 0) -> np.ndarray:
        return np.array([zone.number(path, missing) for zone in zones], np.int64)

    def of_nodes(path: str) -> np.ndarray:
        return np.array([node.number(path, 0) for _, node in nodes], np.int64)

    def of_pagesets(path: str) -> np.ndarray:
        table = np.full((len(zones), cpus), -1, np.int64)
        for number, row in enumerate(pagesets):
            for cpu, pageset in enumerate(row):
                table[number, cpu] = pageset.number(path, -1)
        return table

    def of_stats(path: str, shape: tuple[int, ...]) -> np.ndarray:
        table = np.zeros((len(zones), cpus, *shape), np.int64)
        for number, row in enumerate(stats):
            for cpu, stat in enumerate(row):
                table[number, cpu] = stat.values(path)
        return table

    compaction = {
        f"zone_{name}": of_zones(name)
        for name in (
            "compact_defer_shift",
            "compact_considered",
            "compact_order_failed",
            "compact_init_migrate_pfn",
            "compact_init_free_pfn",
        )
    }
    about["read_ns"] = time.monotonic_ns() - begun
    return MachineState(
        about=about,
        page_flags=pages.flags,
        page_refcount=pages.refcount,
        page_order=_orders(pages, bits),
        **words,
        listed_pfn=listed,
        block_type=block_type,
        block_skip=block_skip,
        **{f"pageset_{name}": of_pagesets(name) for name in _PAGESET_NUMBERS},
        pageset_free_count=np.maximum(of_pagesets("free_count"), of_pagesets("free_factor")),
        zone_start=of_zones("zone_start_pfn"),
        zone_spanned=of_zones("spanned_pages"),
        zone_present=of_zones("present_pages"),
        zone_managed=of_zones("managed_pages"),
        zone_watermark=np.array([zone.values("_watermark") for zone in zones]),
        zone_boost=of_zones("watermark_boost"),
        zone_reserved_highatomic=of_zones("nr_reserved_highatomic"),
        zone_free_highatomic=of_zones("nr_free_highatomic", -1),
        zone_drift_mark=of_zones("percpu_drift_mark"),
        zone_lowmem_reserve=np.array([zone.values("lowmem_reserve") for zone in zones]),
        zone_stat=np.array([zone.values("vm_stat") for zone in zones]),
        zone_stat_diff=of_stats("vm_stat_diff", (len(zone_items),)),
        zone_stat_threshold=of_stats("stat_threshold", ()),
        zone_compact_migrate_pfn=np.array(
            [zone.values("compact_cached_migrate_pfn") for zone in zones]
        ),
        zone_compact_free_pfn=of_zones("compact_cached_free_pfn"),
        **compaction,
        node_kswapd_order=of_nodes("kswapd_order"),
        node_kswapd_highest=of_nodes("kswapd_highest_zoneidx"),
        node_kswapd_failures=of_nodes("kswapd_failures"),
        node_kcompactd_order=of_nodes("kcompactd_max_order"),
        node_kcompactd_highest=of_nodes("kcompactd_highest_zoneidx"),
        node_proactive_trigger=of_nodes("proactive_compact_trigger"),
        node_stat=np.array([node.values("vm_stat") for _, node in nodes]),
        cpu_online=np.isin(np.arange(cpus), online),
        cpu_vmstat_expires=np.array([_expires(memory.at("delayed_work", each)) for each in work]),
        jiffies=np.array([memory.variable("jiffies_64")]).astype(np.int64),
        stat_interval=np.array([memory.variable("sysctl_stat_interval", "<i4")]),
        event_count=counts,
    )


_PAGESET = "per_cpu_pageset"
_PAGESET_NUMBERS = [
    "count",
    "high",
    "high_min",
    "high_max",
    "batch",
    "alloc_factor",
    "expire",
    "flags",
]


def _end(zone: Structure) -> int:
    return zone.number("zone_start_pfn") + zone.number("spanned_pages")


def _release(memory: KernelMemory) -> str:
    """Release of the kernel, from its `linux_banner`."""
    words = memory.text(memory.address("linux_banner"), 256).split()
    return words[2] if len(words) > 2 else ""


def _nodes(memory: KernelMemory) -> list[tuple[int, Structure]]:
    """Numbers of the online nodes, and their `struct pglist_data`."""
    if not memory.has("node_data"):
        return [(0, memory.at("pglist_data", memory.address("contig_page_data")))]
    states = memory.types.enumerators("node_states")
    # a policy's mask of nodes has the type of the others, and every kernel with NUMA has policies
    size = memory.types.member("mempolicy", "nodes").dtype.itemsize
    online = memory.bits(memory.address("node_states") + states["N_ONLINE"] * size, size)
    pointers = memory.address("node_data")
    return [(node, memory.at("pglist_data", memory.number(pointers + 8 * node))) for node in online]


def _zones(memory: KernelMemory, node: Structure) -> Iterator[Structure]:
    size = memory.types.size("zone")
    member = node.member("node_zones")
    for number in range(member.dtype.itemsize // size):
        yield memory.at("zone", node.address + member.offset + number * size)


def _sections(memory: KernelMemory, end: int) -> list[tuple[int, int]]:
    """Numbers of the sections that have a memory map, and addresses of their `usage`."""
    size, found = memory.types.size("mem_section"), []
    per_root = max(4096 // size, 1)
    roots = memory.variable("mem_section")
    for number in range(-(-end >> _SECTION_ORDER)):
        root = memory.number(roots + 8 * (number // per_root))
        if not root:
            continue
        section = memory.at("mem_section", root + number % per_root * size)
        if section.pointer("section_mem_map") & _HAS_MEM_MAP:
            found.append((number, section.pointer("usage")))
    return found


def read_pages_in_pieces(memory: KernelMemory, piece: int) -> Pages:
    """Read every `struct page` in one linear pass, so many at once, with the time of each piece.

    Raises:
        UsageError: the kernel lacks what is read.
    """
    zones = [zone for _, node in _nodes(memory) for zone in _zones(memory, node)]
    end = max(_end(zone) for zone in zones)
    return _read_pages(memory, [number for number, _ in _sections(memory, end)], end, piece)


def _read_pages(memory: KernelMemory, sections: list[int], end: int, piece: int) -> Pages:
    """One pass over all `struct page`s of some sections, `piece` at once."""
    types, size = memory.types, memory.types.size("page")
    base = memory.variable("vmemmap_base") if memory.has("vmemmap_base") else 0xFFFFEA0000000000
    # memory that is written first while pages are read would be allocated meanwhile
    flags, following, before = (np.full(end, 0, np.uint64) for _ in range(3))
    refcount, kinds = np.full(end, -1, np.int32), np.full(end, 0, np.uint32)
    free_order = np.full(end, -1, np.int8)
    columns = [
        (column, types.member("page", name).offset)
        for column, name in (
            (flags, "flags"),
            (following, "lru.next"),
            (before, "lru.prev"),
            (refcount, "_refcount"),
            (kinds, "page_type"),
        )
    ]
    order_offset = types.member("page", "private").offset
    is_buddy = _buddy_mark(memory)
    pieces = []

    def take(first: int, count: int) -> bool:
        begun = time.monotonic_ns()
        content = memory.read_or_none(base + first * size, count * size)
        if content is None:
            return False
        pieces.append((first, count, begun, time.monotonic_ns()))
        rows = np.frombuffer(content, np.uint8).reshape(count, size)
        for column, offset in columns:
            width = column.dtype.itemsize
            part = np.ascontiguousarray(rows[:, offset : offset + width])
            column[first : first + count] = part.view(column.dtype)[:, 0]
        marked = np.flatnonzero(is_buddy(kinds[first : first + count]))
        free_order[first + marked] = np.minimum(rows[marked, order_offset], 127)
        return True

    for number in sections:
        for first in range(number << _SECTION_ORDER, (number + 1) << _SECTION_ORDER, piece):
            count = min(piece, end - first)
            if count > 0 and not take(first, count):
                for start in range(first, first + count, _SUBSECTION_PAGES):
                    take(start, min(_SUBSECTION_PAGES, end - start))
    link = types.member("page", "lru.next").offset
    table = np.array(pieces, np.int64).reshape(-1, 4)
    return Pages(base, size, link, flags, following, before, refcount, free_order, table)


def _buddy_mark(memory: KernelMemory) -> Callable[[np.ndarray], np.ndarray]:
    """Tell the first pages of free buddies by their `page_type` (include/linux/page-flags.h).

    Since 6.12 the type is its highest byte; before, the bit of a type is off and the highest four
    bits are on.
    """
    try:
        names = memory.types.enumerators("pagetype")
    except UsageError:
        names = {}
    if (kind := names.get("PGTY_buddy")) is not None:
        return lambda words: words >> np.uint32(24) == kind
    bit = names.get("PG_buddy", _OLD_BUDDY_BIT)
    return lambda words: words & np.uint32(0xF0000000 | bit) == 0xF0000000


def _orders(pages: Pages, bits: dict[str, int]) -> np.ndarray:
    """Order of the compound page that begins at each page frame, from its second page (S1.1)."""
    is_head = pages.flags >> np.uint64(bits["head"]) & np.uint64(1)
    heads = np.flatnonzero(is_head)
    heads = heads[heads + 1 < len(pages.flags)]
    orders = np.zeros(len(pages.flags), np.int8)
    orders[heads] = np.minimum(pages.flags[heads + 1] & np.uint64(0xFF), np.uint64(14))
    return orders


class _Lists:
    """Lists as they are found."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._room = np.empty(len(pages.flags), np.int32)
        self._rows: list[tuple[int, ...]] = []
        self._parts: list[np.ndarray] = []

    def add(self, head: int, first: int, what: str, row: tuple[int, int, int, int, int]) -> None:
        """Follow a list from its head; `row` is its kind, zone, CPU, order and type."""
        pages = self._pages
        count = follow(
            pages.next, first, head, pages.base + pages.link_offset, pages.size, self._room
        )
        if count < 0:
            raise UsageError(f"{what} does not end: the kernel changed it while it was read")
        if count:
            self.put(self._room[:count].copy(), row)

    def put(self, pfns: np.ndarray, row: tuple[int, int, int, int, int]) -> None:
        """Note a list's pages."""
        self._parts.append(pfns)
        self._rows.append((*row, len(pfns)))

    def arrays(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Pages of all lists, and the columns of lists by their names in `MachineState`."""
        table = np.array(self._rows, np.int64).reshape(-1, 6).T
        names = ("kind", "zone", "cpu", "order", "type", "length")
        columns: dict[str, Any] = {
            f"list_{name}": column for name, column in zip(names, table, strict=True)
        }
        return np.concatenate([np.zeros(0, np.int32), *self._parts]), columns


def _free_lists(memory: KernelMemory, zone: Structure, number: int, lists: ListTaker) -> None:
    """Lists of free pages by order and type (S1.6)."""
    types = memory.types
    area_size, areas = types.size("free_area"), zone.member("free_area")
    heads = types.member("free_area", "free_list")
    for order in range(areas.dtype.itemsize // area_size):
        for kind in range(heads.dtype.itemsize // 16):
            head = zone.address + areas.offset + order * area_size + heads.offset + kind * 16
            first = memory.number(head)
            if first:
                what = f"the free list of order {order}, type {kind}"
                lists.add(head, first, what, (ON_FREE_LIST, number, -1, order, kind))


def _pcp_lists(
    memory: KernelMemory, pageset: Structure, number: int, cpu: int, lists: ListTaker
) -> None:
    """Per-CPU lists by order and type (S4.1)."""
    member = pageset.member("lists")
    for index in range(member.dtype.itemsize // 16):
        head = pageset.address + member.offset + index * 16
        order, kind = divmod(index, 3)
        if index >= _COSTLY_LISTS:
            # Huge pages: a list for movable ones and one for all others; with one list, for all.
            order, kind = HUGE_ORDER, index - _COSTLY_LISTS
        what = f"a per-CPU list of CPU {cpu}"
        lists.add(head, memory.number(head), what, (ON_PCP_LIST, number, cpu, order, kind))


def lru_lists_of(flags: np.ndarray, bits: Mapping[str, int]) -> np.ndarray:
    """The LRU list that pages' flags say, int8 by its number; -1 for none."""

    def flag(name: str) -> np.ndarray:
        return (flags >> np.uint64(bits[name]) & np.uint64(1)).astype(bool)

    kind = np.where(flag("swapbacked"), 0, 2) + flag("active")
    kind = np.where(flag("unevictable"), _UNEVICTABLE, kind)
    return np.where(flag("lru"), kind, -1).astype(np.int8)


def _lru_lists(
    memory: KernelMemory,
    pages: Pages,
    bits: dict[str, int],
    nodes: np.ndarray,
    lists: ListTaker,
) -> None:
    """LRU lists, of every memory cgroup: those that pages on them link to.

    Which list it is, the flags of its pages tell. Lists follow by node and type; those of several
    cgroups come one after the other.
    """
    first_node = pages.base + pages.link_offset
    last_node = first_node + len(pages.flags) * pages.size
    all_kinds = lru_lists_of(pages.flags, bits)
    on_lru = np.flatnonzero(all_kinds >= 0)
    links = pages.next[on_lru]
    ends = (links < np.uint64(first_node)) | (links >= np.uint64(last_node))
    found = sorted(
        (int(nodes[last]), int(all_kinds[last]), int(head))
        for last, head in zip(on_lru[ends], links[ends], strict=True)
    )
    for node, kind, head in found:
        if kind == _UNEVICTABLE:
            continue
        what = f"the LRU list {_LRU_LISTS[kind]}"
        content = memory.read_or_none(head, 8)
        first = 0 if content is None else int.from_bytes(content, "little")
        lists.add(head, first, what, (ON_LRU_LIST, node, -1, -1, kind))


def _blocks(
    memory: KernelMemory, sections: list[tuple[int, int]], end: int, order: int
) -> tuple[np.ndarray, np.ndarray]:
    """Migratetype and skip mark of each pageblock (S1.2)."""
    names = memory.types.enumerators("pageblock_bits")
    width = _FEWEST_BLOCK_BITS
    while width < max(names.values()):
        width *= 2
    skip = names.get("PB_migrate_skip", names.get("PB_compact_skip", _TYPE_BITS))
    isolate = names.get("PB_migrate_isolate")
    number_of_isolate = memory.types.enumerators("migratetype").get("MIGRATE_ISOLATE", 0)
    offset = memory.types.member("mem_section_usage", "pageblock_flags").offset
    per_section = 1 << (_SECTION_ORDER - order)
    kinds = np.full(-(-end >> order), -1, np.int8)
    skips = np.zeros(len(kinds), np.int8)
    for section, usage in sections:
        raw = np.frombuffer(memory.read(usage + offset, per_section * width // 8), np.uint8)
        rows = np.unpackbits(raw, bitorder="little").reshape(per_section, width)
        types = rows[:, :_TYPE_BITS] @ (1 << np.arange(_TYPE_BITS))
        if isolate is not None:
            types = np.where(rows[:, isolate] == 1, number_of_isolate, types)
        first = section * per_section
        count = min(per_section, len(kinds) - first)
        kinds[first : first + count] = types[:count]
        skips[first : first + count] = rows[:count, skip]
    return kinds, skips


def _counter_names(names: dict[str, int], end: str) -> list[str]:
    """Names of counters by their numbers; of several names of one, the last."""
    by_number = {number: name for name, number in names.items() if number < names[end]}
    return [by_number.get(number, "") for number in range(names[end])]


def _expires(work: Structure) -> int:
    """The jiffy at which a delayed work is due, 0 if it is not queued."""
    is_queued = work.pointer("timer.entry.pprev") != 0
    return work.number("timer.expires") if is_queued else 0


def event_counts(memory: KernelMemory) -> np.ndarray:
    """Events that perf has counted, by tracepoint and CPU; -1 where it does not record any."""
    counts = np.full((len(COUNTED_EVENTS), len(memory.per_cpu(0))), -1, np.int64)
    entry_offset = memory.types.member("perf_event", "hlist_entry").offset
    for number, name in enumerate(COUNTED_EVENTS):
        if not memory.has(f"event_{name}"):
            continue
        call = memory.at("trace_event_call", memory.address(f"event_{name}"))
        if not call.pointer("perf_events"):
            continue
        for cpu, head in enumerate(memory.per_cpu(call.pointer("perf_events"))):
            for node in memory.entries(head):
                event = memory.at("perf_event", node - entry_offset)
                counts[number, cpu] = max(counts[number, cpu], event.number("count"))
    return counts
