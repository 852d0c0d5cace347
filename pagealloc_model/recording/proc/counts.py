"""Free lists, counters and symbols: buddyinfo, pagetypeinfo, vmstat, kallsyms (T12)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.files import json_of, lines_of
from pagealloc_model.recording.page_frames import LARGEST_ORDER
from pagealloc_model.recording.proc.zoneinfo import (
    count_of_pages,
    integer,
    malformed,
    split_node_zone,
)


@dataclass(frozen=True, kw_only=True)
class BuddyInfoZone:
    """Free buddies of one zone by order; HIGHATOMIC, CMA and ISOLATE lists are included."""

    node: int
    zone: str
    free_buddies: tuple[int, ...]

    @property
    def free_pages(self) -> int:
        """Base pages on the zone's free lists."""
        return sum(count << order for order, count in enumerate(self.free_buddies))


@dataclass(frozen=True, kw_only=True)
class BuddyInfo:
    """All zones in the order the kernel prints them."""

    zones: tuple[BuddyInfoZone, ...]


def parse_buddyinfo(text: str, path: str | Path = "buddyinfo") -> BuddyInfo:
    """Read the text of /proc/buddyinfo; the path is named in errors."""
    zones: dict[tuple[int, str], BuddyInfoZone] = {}
    orders = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        row = split_node_zone(line)
        if row is None:
            raise malformed(path, number, "is not a 'Node N, zone NAME ...' row")
        node, zone, rest = row
        counts = tuple(count_of_pages(word, path, number) for word in rest.split())
        orders = orders or len(counts)
        if not counts or len(counts) != orders:
            raise malformed(path, number, f"has {len(counts)} orders, unlike the other rows")
        if (node, zone) in zones:
            raise malformed(path, number, f"zone {zone} of node {node} appears a second time")
        zones[node, zone] = BuddyInfoZone(node=node, zone=zone, free_buddies=counts)
    if not zones:
        raise malformed(path, 1, "no zone found")
    return BuddyInfo(zones=tuple(zones.values()))


_TYPE = re.compile(r"^,\s*type\s+(\w+)\s+(.*)")
_ORDER = "Page block order:"
_PAGES = "Pages per block:"
_FREE = "Free pages count per migrate type at order"
_BLOCKS = "Number of blocks type"
_MIXED = "Number of mixed blocks"


@dataclass(frozen=True, kw_only=True)
class FreeListRow:
    """Free buddies of one zone and migratetype by order.

    Where `lower_bound` is True, the kernel stopped counting and printed `>100000`.
    """

    node: int
    zone: str
    migratetype: str
    buddies: tuple[int, ...]
    lower_bound: tuple[bool, ...]


@dataclass(frozen=True, kw_only=True)
class PageblockRow:
    """Pageblocks of one zone: `blocks[i]` have type `PageTypeInfo.migratetypes[i]`."""

    node: int
    zone: str
    blocks: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class PageTypeInfo:
    """The whole file; rows in the order the kernel prints them.

    The kernel drops zone->lock between two cells, so even one row is not a snapshot of an instant.

    Attributes:
        pageblock_order: order of a pageblock (S1.2).
        pages_per_block: base pages of a pageblock.
        migratetypes: row labels in the kernel's numbering: the index is the migratetype (S1.3).
        free_lists: one row per zone and migratetype.
        pageblocks: one row per zone.
    """

    pageblock_order: int
    pages_per_block: int
    migratetypes: tuple[str, ...]
    free_lists: tuple[FreeListRow, ...]
    pageblocks: tuple[PageblockRow, ...]

    @property
    def is_exact(self) -> bool:
        """False if any count is only a lower bound."""
        return not any(any(row.lower_bound) for row in self.free_lists)


def parse_pagetypeinfo(text: str, path: str | Path = "pagetypeinfo") -> PageTypeInfo:
    """Read the text of /proc/pagetypeinfo; the path is named in errors."""
    header: dict[str, int] = {}
    free_lists: dict[tuple[int, str, str], FreeListRow] = {}
    pageblocks: dict[str, dict[tuple[int, str], PageblockRow]] = {_BLOCKS: {}, _MIXED: {}}
    migratetypes: tuple[str, ...] = ()
    section, orders, number = "", 0, 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        if line.startswith((_ORDER, _PAGES)):
            name, _, value = line.partition(":")
            header[f"{name}:"] = integer(value.strip(), path, number)
            continue
        if line.startswith(_FREE):
            section, orders = _FREE, len(line.removeprefix(_FREE).split())
            continue
        if line.startswith((_BLOCKS, _MIXED)):
            section = _BLOCKS if line.startswith(_BLOCKS) else _MIXED
            labels = tuple(line.removeprefix(section).split())
            if migratetypes and labels != migratetypes:
                raise malformed(path, number, "names other migratetypes than before")
            migratetypes = labels
            continue
        row = split_node_zone(line)
        if row is None or not section:
            raise malformed(path, number, "is neither a header nor a zone's row")
        node, zone, rest = row
        match = _TYPE.match(rest) if section == _FREE else None
        if section == _FREE and match is None:
            raise malformed(path, number, "has no ', type NAME' and counts")
        words = (match[2] if match else rest).split()
        counts = tuple(count_of_pages(word.removeprefix(">"), path, number) for word in words)
        wanted, unit = (orders, "orders") if match else (len(migratetypes), "migratetypes")
        if len(counts) != wanted:
            raise malformed(path, number, f"has {len(counts)} counts for {wanted} {unit}")
        if (node, zone, match[1]) in free_lists if match else (node, zone) in pageblocks[section]:
            raise malformed(path, number, "is a row that was there before")
        if match:
            free_lists[node, zone, match[1]] = FreeListRow(
                node=node,
                zone=zone,
                migratetype=match[1],
                buddies=counts,
                lower_bound=tuple(word.startswith(">") for word in words),
            )
        else:
            pageblocks[section][node, zone] = PageblockRow(node=node, zone=zone, blocks=counts)
    for name in (_ORDER, _PAGES):
        if name not in header:
            raise malformed(path, number, f"ends without '{name}'")
    if not free_lists or not pageblocks[_BLOCKS]:
        raise malformed(path, number, "ends without free lists and block counts")
    strange = {migratetype for _, _, migratetype in free_lists} - set(migratetypes)
    if strange:
        raise malformed(path, number, f"counts no blocks of type {', '.join(sorted(strange))}")
    order, pages = header[_ORDER], header[_PAGES]
    if not 0 < order <= LARGEST_ORDER or pages != 1 << order:
        raise malformed(path, 1, f"blocks of order {order} and {pages} pages are of no kernel")
    return PageTypeInfo(
        pageblock_order=order,
        pages_per_block=pages,
        migratetypes=migratetypes,
        free_lists=tuple(free_lists.values()),
        pageblocks=tuple(pageblocks[_BLOCKS].values()),
    )


@dataclass(frozen=True, kw_only=True)
class VmStat:
    """Counters and gauges under the kernel's own names.

    Event counters are exact at read time; gauges may lag by the per-CPU deltas (S1.10).
    A counter this kernel does not have is absent, not 0.
    """

    values: Mapping[str, int]

    def get(self, name: str) -> int | None:
        """The value of one counter, None if this kernel does not print it."""
        return self.values.get(name)


def parse_vmstat(text: str, path: str | Path = "vmstat") -> VmStat:
    """Read the text of /proc/vmstat; the path is named in errors."""
    values: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words:
            continue
        if len(words) != 2:
            raise malformed(path, number, "is not a name and a value")
        name, value = words
        if name in values:
            raise malformed(path, number, f"{name} appears a second time")
        values[name] = integer(value, path, number)
    if not values:
        raise malformed(path, 1, "no counter found")
    return VmStat(values=values)


PRESSURE_FILE = "pressure_memory"
"""A copy of /proc/pressure/memory; a kernel without PSI has none."""
_PRESSURE_LINE = re.compile(r"(some|full) avg10=[\d.]+ avg60=[\d.]+ avg300=[\d.]+ total=(\d{1,18})")


def parse_pressure(text: str, path: str | Path = PRESSURE_FILE) -> Mapping[str, int]:
    """Read /proc/pressure/memory: us in all by "some" and "full" (T12.11)."""
    totals: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _PRESSURE_LINE.fullmatch(line)
        if match is None:
            raise malformed(path, number, "is no line of memory pressure")
        totals[match[1]] = int(match[2])
    return totals


CPU_TIMES_FILE = "stat"
"""The lines of /proc/stat that begin with cpu."""
_TICKS_PER_S = 100
_SYSTEM = (3, 6, 7)
"""Words of a line that are time in the kernel: system, irq and softirq."""


def cpu_lines(stat: bytes) -> bytes:
    """What a recording keeps of /proc/stat (T12.12)."""
    return b"".join(line for line in stat.splitlines(keepends=True) if line.startswith(b"cpu"))


def parse_system_time(text: str, path: str | Path = CPU_TIMES_FILE) -> float:
    """Read all CPUs' time in the kernel since boot, s, from the first line of /proc/stat."""
    words = (text.splitlines() or [""])[0].split()
    if len(words) <= max(_SYSTEM) or words[0] != "cpu":
        raise malformed(path, 1, "is no line of all CPUs' times")
    return sum(integer(words[place], path, 1) for place in _SYSTEM) / _TICKS_PER_S


_TEXT_TYPES = frozenset("tTwW")
_LARGEST_FUNCTION = 1 << 20
_MOST_FUNCTIONS = 1 << 22
_MOST_SYMBOLS = 1 << 28


@dataclass(frozen=True, eq=False)
class KernelSymbols:
    """The kernel's functions by address, uint64, ascending; of several at one, the last listed."""

    addresses: np.ndarray
    names: tuple[str, ...]

    def name_at(self, address: int) -> str:
        """The function an address lies in, the address itself where none is near before it."""
        index = int(np.searchsorted(self.addresses, np.uint64(address), "right")) - 1
        if index < 0 or address - int(self.addresses[index]) >= _LARGEST_FUNCTION:
            return f"{address:#x}"
        return self.names[index]


def read_kallsyms(path: str | Path) -> KernelSymbols | None:
    """The functions of a copy of /proc/kallsyms, plain or packed; None if it hides addresses."""
    functions: dict[int, str] = {}
    for number, line in enumerate(lines_of(path, most=_MOST_SYMBOLS), 1):
        words = line.split()
        try:
            address, kind, name = int(words[0], 16), words[1], words[2]
        except (ValueError, IndexError):
            raise malformed(path, number, "no address, type and name") from None
        if kind in _TEXT_TYPES and 0 < address < 1 << 64:
            functions[address] = name
            if len(functions) > _MOST_FUNCTIONS:
                raise malformed(path, number, f"more than {_MOST_FUNCTIONS} functions")
    if not functions:
        return None
    addresses, names = zip(*sorted(functions.items()), strict=True)
    return KernelSymbols(np.array(addresses, np.uint64), names)


READ_TIMES_FILE = "read_ns.json"

ReadTimes = Mapping[str, tuple[int, int]]
"""File name -> CLOCK_MONOTONIC in ns before it was opened and after its last byte was read."""


def format_read_times(times: ReadTimes) -> str:
    """Return the text that `parse_read_times` reads."""
    return json.dumps({name: list(span) for name, span in times.items()}) + "\n"


def parse_read_times(text: str, path: Path) -> ReadTimes:
    """Read the times of a snapshot's files; the path is named in errors."""
    todo = "restore the file, or delete it to take the time at which the snapshot began"
    content = json_of(text, path, todo=todo)
    if not isinstance(content, dict):
        raise RecordingError(path, "is not a JSON object", todo=todo)
    for name, span in content.items():
        if not (
            isinstance(span, list)
            and [type(time_ns) for time_ns in span] == [int, int]
            and 0 <= span[0] <= span[1] < 1 << 63
        ):
            what = f"{name!r} has no two times in ns, the earlier one first"
            raise RecordingError(path, what, todo=todo)
    return {name: (span[0], span[1]) for name, span in content.items()}
