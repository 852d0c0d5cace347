"""Mem-Info: what the kernel prints of memory when an allocation fails or the OOM killer runs.

show_free_areas() of mm/show_mem.c (mm/page_alloc.c before 6.5), warn_alloc() and dump_header(), of
kernels from 4.0 to 7.3, in whatever stands before the lines of a log. Lines that belong to none of
these are passed over, so that any part of a log will do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.text import as_name
from pagealloc_model.recording.page_frames import LARGEST_ORDER

ZONE_NAMES = ("DMA", "DMA32", "Normal", "HighMem", "Movable", "Device")
"""All zone types there are, lowest first; each kernel has some of them (S1.4)."""
LETTERS = {
    "U": "Unmovable",
    "M": "Movable",
    "E": "Reclaimable",
    "H": "HighAtomic",
    "C": "CMA",
    "I": "Isolate",
}
"""What show_migration_types() prints for each type; kernels before 4.4 have R, a reserve."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request as the report names it.

    Attributes:
        what: "page allocation failure", "oom-killer" or "asked for", of a request that is ours.
        order: its order.
        gfp: its gfp flags as printed, names where the kernel prints them, else a number.
        comm: the task's name, "" where it is not known.
        cpu: CPU that it ran on, None where it is not known.
        in_interrupt: the report's stack has an interrupt in it; None where it has no stack.
        nodes: node numbers that its memory policy binds it to, None for any.
        cpuset_nodes: those that the task's cpuset allows, None where they are not printed.
    """

    what: str
    order: int
    gfp: str
    comm: str = ""
    cpu: int | None = None
    in_interrupt: bool | None = None
    nodes: frozenset[int] | None = None
    cpuset_nodes: frozenset[int] | None = None


@dataclass(frozen=True, kw_only=True)
class ZoneMemory:
    """A zone's memory in base pages; None where the text does not say.

    Attributes:
        node: NUMA node.
        name: zone name.
        free: pages that the zone counts as free.
        min: min watermark as printed, with the boost; so are `low` and `high`.
        boost: watermark boost.
        managed: pages that the allocator manages.
        reserved_highatomic: pages of the blocks reserved for atomic requests.
        free_highatomic: free pages in them.
        free_cma: free pages of CMA areas.
        file_pages: pages on the zone's lists of file pages, active and inactive.
        lowmem_reserve: pages kept from requests whose highest zone is the index (S1.8).
        buddies: free buddies by order, of all types; empty where not printed.
        types: letters of the types (`LETTERS`) with free buddies, by order; "" for none, None where
            not printed.
        by_type: free buddies by type and order, where pagetypeinfo says.
    """

    node: int = 0
    name: str
    free: int
    min: int
    low: int
    high: int
    boost: int | None = None
    managed: int | None = None
    reserved_highatomic: int | None = None
    free_highatomic: int | None = None
    free_cma: int | None = None
    file_pages: int | None = None
    lowmem_reserve: tuple[int, ...] = ()
    buddies: tuple[int, ...] = ()
    types: tuple[str | None, ...] = ()
    by_type: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MemoryState:
    """Free memory at one instant, and the request that met it.

    Attributes:
        source: what it was read from.
        release: of the kernel, "" where it is not known.
        page_kb: size of a base page, KiB.
        zones: populated zones, in the order printed.
        request: that the report is about, None of a state alone.
        pageblock_order: None where it is not known.
        zone_types: names of a node's zones, lowest first, where they are known.
        high_pages: pages of HighMem and Movable zones, None where they are not printed.
        hopeless: kswapd has given up on a node that may serve the request; None: not printed.
        swap_kb: free swap, None where it is not printed.
        compact_stall: direct compactions since boot; `compact_fail` those in vain.
        notes: what the text lacks or what was passed over, a sentence each.
        reports: how many reports the text has, of which this is number `number`, from 1 on.
    """

    source: str
    release: str = ""
    page_kb: int = 4
    zones: tuple[ZoneMemory, ...]
    request: Request | None = None
    pageblock_order: int | None = None
    zone_types: tuple[str, ...] = ()
    high_pages: int | None = None
    hopeless: bool | None = None
    swap_kb: int | None = None
    compact_stall: int | None = None
    compact_fail: int | None = None
    notes: tuple[str, ...] = ()
    number: int = 1
    reports: int = 1


LONGEST_LINE = 1536
MOST_REPORTS = 1000
_NODES_MAX = 1024
_NAME = "|".join(ZONE_NAMES)
_FAILURE = re.compile(
    r"page allocation (?:failure|stalls)[^,]{0,40}(?:, |: )"
    r"order:(\d{1,2}), mode:(0x[0-9a-fA-F]{1,16})(?:\(([^()]{0,500})\))?"
)
_VMALLOC = re.compile(
    r"page order (\d{1,2}), failed to allocate pages, "
    r"mode:(0x[0-9a-fA-F]{1,16})(?:\(([^()]{0,500})\))?"
)
_OOM = re.compile(r"invoked oom-killer: gfp_mask=(0x[0-9a-fA-F]{1,16})(?:\(([^()]{0,500})\))?")
_OOM_ORDER = re.compile(r"\border=(-?\d{1,2})\b")
_NODEMASK = re.compile(r"\bnodemask=([\d,-]{1,200}?)(?=,[a-z]|,?\s|,?$)")
_MEMS_ALLOWED = re.compile(r"\bmems_allowed=([\d,-]{1,200})")
_CPU = re.compile(r"\bCPU: (\d{1,4}) ")
_RELEASE = re.compile(r"(?<![\w.])(\d{1,2}\.\d{1,3}[\w.+~-]{0,80}) +#")
_BANNER = re.compile(r"\bLinux version (\d{1,2}\.\d{1,3}[\w.+~-]{0,80})")
_ZONE = re.compile(rf"(?:\bNode (\d{{1,4}}) )?\b({_NAME}) free:(\d{{1,15}})kB")
_PAIR = re.compile(r"\b([a-z_]{1,24}):(\d{1,15})[kK]B")
_BUDDIES = re.compile(rf"(?:\bNode (\d{{1,4}}) )?\b({_NAME}):(?: (?=\d{{1,12}}\*\d)|$)")
_PIECE = re.compile(r"(\d{1,12})\*(\d{1,9})kB(?: ?\(([A-Z]{0,8})\))?")
_TOTAL = re.compile(r"= ?\d{1,15}kB")
_RESERVE = re.compile(r"lowmem_reserve\[\]:((?: \d{1,12}){0,8})")
_NUMBERS_ALONE = re.compile(r"(?:^|[\]:>] )((?: ?\d{1,12}){1,8}) ?$")
_GAVE_UP = re.compile(r"\bNode (\d{1,4}) [^N?]{0,1500}all_unreclaimable\? (yes|no)")
_SWAP = re.compile(r"\bFree swap +[=:] *(\d{1,15})kB")
_HIGH_PAGES = re.compile(r"\b(\d{1,15}) pages HighMem")
_MEMCG_USAGE = re.compile(r"\bmemory: usage (\d{1,15})kB, limit (\d{1,15})kB")
_MEMCG_NAME = re.compile(r"\boom_memcg=([^\s,]{1,200})")
_BEFORE_COMM = ("] ", "kernel: ", "> ")
_PAGE_KB = (4, 8, 16, 32, 64, 256)


class _Report:
    """A report as it is read, line after line."""

    def __init__(self, request: Request | None, release: str) -> None:
        self.request, self.release = request, release
        self.zones: dict[tuple[int, str], dict[str, int]] = {}
        self.reserves: dict[tuple[int, str], list[int]] = {}
        self.buddies: dict[tuple[int, str], list[tuple[int, int, str | None]]] = {}
        self.gave_up: dict[int, bool] = {}
        self.swap_kb: int | None = None
        self.high_pages: int | None = None
        self.memcg_name = self.memcg_usage = ""
        self.is_memcg = self.has_stack = self.has_interrupt = False
        self.cpu: int | None = None
        self.nodes: frozenset[int] | None = None
        self.cpuset_nodes: frozenset[int] | None = None
        self._zone: tuple[int, str] | None = None
        self._row = ""

    def read(self, line: str) -> None:
        """Take what a line says of this report."""
        if " free:" in line and (match := _ZONE.search(line)):
            self._zone, self._row = (int(match[1] or 0), match[2]), "sizes"
            if self._zone[0] < _NODES_MAX:
                self.zones.setdefault(self._zone, {})
            line = line[match.start(2) :]
        elif "lowmem_reserve" in line and (match := _RESERVE.search(line)):
            if self._zone is not None:
                self.reserves[self._zone] = [int(word) for word in match[1].split()]
                self._row = "" if match[1] else "reserve"
            return
        elif match := _BUDDIES.search(line):
            self._zone, self._row = (int(match[1] or 0), match[2]), "buddies"
            if self._zone[0] < _NODES_MAX:
                self.buddies.setdefault(self._zone, [])
            line = line[match.end() :]
        else:
            self._read_around(line)
        self._read_row(line)

    def _read_around(self, line: str) -> None:
        """What stands beside the zones' rows."""
        if "CPU:" in line and "Comm:" in line:
            if match := _CPU.search(line):
                self.cpu = int(match[1])
            if match := _RELEASE.search(line):
                self.release = match[1]
        if "<IRQ>" in line or "<IRQ" in line:
            self.has_interrupt = True
        if "Call Trace" in line or "Call trace" in line or "Backtrace" in line:
            self.has_stack = True
        if "all_unreclaimable" in line and (match := _GAVE_UP.search(line)):
            self.gave_up[int(match[1])] = match[2] == "yes"
        if "Free swap" in line and (match := _SWAP.search(line)):
            self.swap_kb = int(match[1])
        if " pages HighMem" in line and (match := _HIGH_PAGES.search(line)):
            self.high_pages = int(match[1])
        if "nodemask=" in line and self.nodes is None:
            self.nodes = _nodes(_NODEMASK.search(line))
        if "mems_allowed=" in line and self.cpuset_nodes is None:
            self.cpuset_nodes = _nodes(_MEMS_ALLOWED.search(line))
        if "Memory cgroup out of memory" in line or "memory: usage" in line:
            self.is_memcg = True
        if "memory: usage" in line and (match := _MEMCG_USAGE.search(line)):
            self.memcg_usage = f" (usage {int(match[1]):,} kB, limit {int(match[2]):,} kB)"
        if "oom_memcg=" in line and (match := _MEMCG_NAME.search(line)):
            self.memcg_name = as_name(match[1], 200)

    def _read_row(self, line: str) -> None:
        """More of a zone's row, which mails fold and kernels before 4.10 may break."""
        if self._zone is None or self._zone[0] >= _NODES_MAX:
            return
        if self._row == "sizes":
            sizes = self.zones[self._zone]
            for name, value in _PAIR.findall(line):
                sizes.setdefault(name, int(value))
        elif self._row == "reserve" and (match := _NUMBERS_ALONE.search(line)):
            numbers = self.reserves[self._zone]
            numbers.extend(int(word) for word in match[1].split()[: 8 - len(numbers)])
        elif self._row == "buddies":
            end = _TOTAL.search(line)
            pieces = _PIECE.findall(line[: end.start()] if end else line)
            known = self.buddies[self._zone]
            for count, kb, letters in pieces[: LARGEST_ORDER + 1 - len(known)]:
                known.append((int(count), int(kb), letters))
            if end:
                self._row = ""


def parse_mem_info(lines: Iterable[str], path: str | Path) -> list[MemoryState]:
    """Read all reports of a log; lines are passed over where they are of no report.

    Raises:
        RecordingError: the text has no report, or none with the zones' free memory.
    """
    reports: list[_Report] = []
    release, current, is_begun = "", None, False
    failures = 0
    for line in lines:
        line = line[:LONGEST_LINE].rstrip()
        if "Linux version" in line and (match := _BANNER.search(line)):
            release = match[1]
        if ("mode:" in line or "oom-killer" in line) and (request := _request(line)):
            failures += 1
            current, is_begun = _Report(request, release), False
            reports.append(current)
        elif "Mem-Info:" in line and (current is None or is_begun or current.zones):
            current, is_begun = _Report(None, release), True
            reports.append(current)
        elif "Mem-Info:" in line:
            is_begun = True
        elif current is None and " free:" in line and _ZONE.search(line):
            current, is_begun = _Report(None, release), True
            reports.append(current)
        if current is not None:
            current.read(line)
        if len(reports) > MOST_REPORTS:
            what = f"has more than {MOST_REPORTS} reports"
            raise RecordingError(path, what, todo="cut the one that you ask about out of the log")
    whole = [report for report in reports if report.zones and report.buddies]
    if not whole:
        raise RecordingError(path, *_why_none(reports, failures))
    states, refused = [], None
    for report in whole:
        try:
            states.append(_state(report, path))
        except RecordingError as error:
            refused = refused or error
    if not states and refused is not None:
        raise refused
    return [
        replace(state, number=number, reports=len(states)) for number, state in enumerate(states, 1)
    ]


def _why_none(reports: list[_Report], failures: int) -> tuple[str]:
    if found := next((report for report in reports if report.is_memcg), None):
        of = f"memory cgroup {found.memcg_name}" if found.memcg_name else "a memory cgroup"
        what = (
            f"reports the OOM killer of {of}: its limit was met{found.memcg_usage}, the page "
            "allocator did not fail; raise memory.max or ask what the tasks in it use"
        )
    elif failures:
        what = (
            f"has {failures} report(s) of a failure without the zones' lines (Mem-Info); give the "
            "whole report, as dmesg prints it"
        )
    else:
        what = (
            "has no report of a failed allocation; give the text of a page allocation failure or "
            "of the OOM killer, or a directory with copies of /proc/zoneinfo and /proc/buddyinfo"
        )
    return (what,)


def _request(line: str) -> Request | None:
    """The request that a line is the report's first line of."""
    if match := _FAILURE.search(line) or _VMALLOC.search(line):
        what, order, number, names = "page allocation failure", match[1], match[2], match[3]
    elif match := _OOM.search(line):
        found = _OOM_ORDER.search(line, match.end())
        order = max(int(found[1]), 0) if found else 0
        what, number, names = "oom-killer", match[1], match[2]
    else:
        return None
    before = line[: match.start()][-200:]
    ends = (before.rfind(mark) + len(mark) for mark in _BEFORE_COMM if mark in before)
    comm = before[max(ends, default=0) :].rstrip(" ")
    comm = comm[: -1 if comm.endswith((":", ",")) else None][-40:]
    return Request(
        what=what, order=int(order), gfp=as_name(names or number, 500), comm=as_name(comm)
    )


def _nodes(match: re.Match[str] | None) -> frozenset[int] | None:
    """Node numbers of a list such as 0-1,3; None if there is none."""
    if match is None:
        return None
    nodes: set[int] = set()
    for part in match[1].split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last.isdigit() or not last):
            nodes.update(range(int(first), min(int(last or first), _NODES_MAX) + 1))
    return frozenset(nodes) or None


def _state(report: _Report, path: str | Path) -> MemoryState:
    """A report as a value, sizes in base pages."""
    sizes = {kb for rows in report.buddies.values() for _, kb, _ in rows[:1]}
    page_kb = min(sizes, default=4)
    if page_kb not in _PAGE_KB or len(sizes) > 1:
        what = f"has buddies of {page_kb} kB at order 0, which are pages of no kernel"
        raise RecordingError(path, what, todo="give the report as the kernel printed it")
    zones, notes = [], []
    for place, kb in report.zones.items():
        rows = report.buddies.get(place, [])
        if not {"free", "min", "low", "high"} <= kb.keys():
            notes.append(f"zone {place[1]} of node {place[0]} has no watermarks and is left out")
            continue
        if not rows:
            notes.append(f"zone {place[1]} of node {place[0]} has no line of free blocks")
        if [size for _, size, _ in rows] != [page_kb << order for order in range(len(rows))]:
            what = f"zone {place[1]}: free blocks do not go from {page_kb} kB upwards by doubling"
            raise RecordingError(path, what, todo="give the report as the kernel printed it")
        pages = {name: value // page_kb for name, value in kb.items()}
        file_pages = [pages[name] for name in ("active_file", "inactive_file") if name in pages]
        zones.append(
            ZoneMemory(
                node=place[0],
                name=place[1],
                free=pages["free"],
                min=pages["min"],
                low=pages["low"],
                high=pages["high"],
                boost=pages.get("boost"),
                managed=pages.get("managed"),
                reserved_highatomic=pages.get("reserved_highatomic"),
                free_highatomic=pages.get("free_highatomic"),
                free_cma=pages.get("free_cma"),
                file_pages=sum(file_pages) if file_pages else None,
                lowmem_reserve=tuple(report.reserves.get(place, ())),
                buddies=tuple(count for count, _, _ in rows),
                types=tuple("" if not count else (letters or None) for count, _, letters in rows),
            )
        )
    if not zones:
        raise RecordingError(path, "has no zone with watermarks", todo="give the whole report")
    request = report.request
    if request is not None:
        in_interrupt = report.has_interrupt if report.has_stack or report.has_interrupt else None
        request = replace(
            request,
            cpu=report.cpu,
            in_interrupt=in_interrupt,
            nodes=report.nodes,
            cpuset_nodes=report.cpuset_nodes,
        )
    return MemoryState(
        source=str(path),
        release=report.release,
        page_kb=page_kb,
        zones=tuple(zones),
        request=request,
        high_pages=report.high_pages,
        hopeless=any(report.gave_up.values()) if report.gave_up else None,
        swap_kb=report.swap_kb,
        notes=tuple(notes),
    )
