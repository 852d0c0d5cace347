"""Free memory at one instant, from copies of /proc, a report in a log, or this machine.

A directory is looked through for zoneinfo, buddyinfo, pagetypeinfo and vmstat: its own, those of a
snapshot or recording (the last ones), or those below `proc/` as a sosreport has them. A file is the
text of a log (see `proc.mem_info`).
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

from pagealloc_model.base.errors import RecordingError, UsageError
from pagealloc_model.base.files import MOST_TEXT, given, is_given, lines_of, text_of
from pagealloc_model.base.text import as_word
from pagealloc_model.recording.proc.counts import (
    BuddyInfo,
    PageTypeInfo,
    VmStat,
    parse_buddyinfo,
    parse_pagetypeinfo,
    parse_vmstat,
)
from pagealloc_model.recording.proc.mem_info import (
    LETTERS,
    MemoryState,
    ZoneMemory,
    parse_mem_info,
)
from pagealloc_model.recording.proc.zoneinfo import ZoneInfo, ZoneInfoZone, parse_zoneinfo
from pagealloc_model.recording.recording import META_FILE, located, read_meta

PROC = Path("/proc")
STANDARD_INPUT = "-"
_LOGS = (
    *("sos_commands/kernel/dmesg", "sos_commands/kernel/dmesg_-T", "dmesg.txt", "dmesg"),
    *("sos_commands/logs/journalctl_--no-pager_--boot", "var/log/messages", "var/log/kern.log"),
)
_VERSIONS = ("version", "../uname", "../sos_commands/kernel/uname_-a", "uname")
_RELEASE = re.compile(r"(?<![\w.])(\d{1,2}\.\d{1,3}[\w.+~-]{0,80})")
_PAGE_KB = {12: 16, 14: 64}
"""Page size by the number of buddy orders, KiB: arm64 has one of its own for each."""
_MOST_SNAPSHOTS = 1 << 16
_MOST_LOG = 1 << 27
"""Bytes of the longest log."""
_State = TypeVar("_State")


def open_memory_state(path: str | Path, *, number: int = 1) -> MemoryState:
    """Read free memory, and the request that met it where a log names one.

    Args:
        path: a log, "-" for one on standard input, a directory, the name of a shipped recording, or
            `PROC` for this machine now.
        number: which report of a log, from 1 on.

    Raises:
        RecordingError: nothing there can be used; the error says why.
        UsageError: the log has fewer reports.
    """
    if str(path) == STANDARD_INPUT:
        with suppress(AttributeError, ValueError):  # a stream in memory takes any character
            sys.stdin.reconfigure(errors="replace")  # type: ignore[union-attr]
        text = sys.stdin.read(MOST_TEXT + 1)
        if len(text) > MOST_TEXT:
            raise RecordingError("standard input", f"has more than {MOST_TEXT} characters")
        return _numbered(parse_mem_info(text.splitlines(), "standard input"), number)
    path = given(located(path))
    if not path.is_dir():
        return _numbered(parse_mem_info(lines_of(path, most=_MOST_LOG), path), number)
    directory = _proc_copies(path)
    for name in _LOGS:
        if is_given(path / name) and path != PROC:
            try:
                states = parse_mem_info(lines_of(path / name, most=_MOST_LOG), path / name)
            except RecordingError:
                continue
            if directory is None or any(state.request for state in states):
                return _numbered(states, number)
    if directory is None:
        raise RecordingError(
            path,
            "has no zoneinfo and no log of a failed allocation",
            todo="give copies of /proc/zoneinfo, /proc/buddyinfo and, as root, /proc/pagetypeinfo",
        )
    state = _state_of(directory)
    if not state.release and is_given(path / META_FILE):
        uname = read_meta(path / META_FILE).get("uname")
        if isinstance(uname, list) and len(uname) > 2:
            state = replace(state, release=as_word(str(uname[2])))
    return state


def _numbered(states: list[MemoryState], number: int) -> MemoryState:
    if not 1 <= number <= len(states):
        raise UsageError(
            f"{states[0].source}: has {len(states)} report(s), number {number} is none of them"
        )
    return states[number - 1]


def _proc_copies(path: Path) -> Path | None:
    """The directory below one that holds zoneinfo, the last one of several snapshots."""
    for directory in (path, path / "proc"):
        if is_given(directory / "zoneinfo"):
            return directory
    for above in (path / "snapshots", path):
        if above.is_dir() and not above.is_symlink():
            entries = islice(above.iterdir(), _MOST_SNAPSHOTS)
            dated = sorted(entry for entry in entries if entry.name.isdigit())
            for directory in reversed(dated):
                if is_given(directory / "zoneinfo"):
                    return directory
    return None


def _state_of(directory: Path) -> MemoryState:
    """The state that copies of /proc show."""
    notes: list[str] = []

    def parsed(name: str, parser: Callable[[str, Path], _State]) -> _State | None:
        path = directory / name
        if not is_given(path):
            return None
        try:
            return parser(text_of(path, "utf-8", todo="copy the file from /proc again"), path)
        except RecordingError as error:
            notes.append(f"{name} is left out ({error.what})")
            return None

    path = directory / "zoneinfo"
    text = text_of(path, "utf-8", todo="copy the file from /proc again")
    zoneinfo: ZoneInfo = parse_zoneinfo(text, path)
    buddies: BuddyInfo | None = parsed("buddyinfo", parse_buddyinfo)
    types: PageTypeInfo | None = parsed("pagetypeinfo", parse_pagetypeinfo)
    vmstat: VmStat | None = parsed("vmstat", parse_vmstat)
    if buddies is None and types is None:
        raise RecordingError(
            directory,
            "has no buddyinfo and no pagetypeinfo that can be used",
            todo="copy /proc/buddyinfo beside zoneinfo",
        )
    if types is None:
        notes.append(
            "no pagetypeinfo (root alone can read it): the types of free blocks are not known"
        )
    orders = max(len(zone.free_buddies) for zone in buddies.zones) if buddies else 11
    return MemoryState(
        source=str(directory),
        release=platform.release() if directory == PROC else _release(directory),
        page_kb=_PAGE_KB.get(orders, 4),
        zones=tuple(_zone(zone, buddies, types) for zone in zoneinfo.zones if zone.managed),
        pageblock_order=types.pageblock_order if types else None,
        zone_types=tuple(dict.fromkeys(zone.name for zone in zoneinfo.zones)),
        compact_stall=vmstat.get("compact_stall") if vmstat else None,
        compact_fail=vmstat.get("compact_fail") if vmstat else None,
        notes=tuple(notes),
    )


def _release(directory: Path) -> str:
    """The kernel's release where a copy of /proc/version or of `uname -a` lies near."""
    for name in _VERSIONS:
        path = directory / name
        if is_given(path):
            try:
                match = _RELEASE.search(text_of(path, "utf-8", todo="")[:400])
            except RecordingError:
                continue
            if match:
                return match[1]
    return ""


def _zone(
    zone: ZoneInfoZone, buddyinfo: BuddyInfo | None, pagetypeinfo: PageTypeInfo | None
) -> ZoneMemory:
    """A zone of zoneinfo with its free blocks."""
    place = (zone.node, zone.name)

    def of_zone(rows: Iterator[_State]) -> list[_State]:
        return [row for row in rows if (row.node, row.zone) == place]  # type: ignore[attr-defined]

    by_type: dict[str, tuple[int, ...]] = {}
    reserved = free_highatomic = None
    counts: tuple[int, ...] = ()
    types: tuple[str | None, ...] = ()
    if buddyinfo is not None:
        counts = next((row.free_buddies for row in of_zone(iter(buddyinfo.zones))), ())
        types = tuple(None if count else "" for count in counts)
    if pagetypeinfo is not None:
        by_type = {row.migratetype: row.buddies for row in of_zone(iter(pagetypeinfo.free_lists))}
        letters = {name: letter for letter, name in LETTERS.items()}
        if not counts:
            counts = tuple(map(sum, zip(*by_type.values(), strict=True)))
        types = tuple(
            "".join(letters.get(name, "") for name, row in by_type.items() if row[order])
            for order in range(len(counts))
        )
        if "HighAtomic" in pagetypeinfo.migratetypes:
            place_of_type = pagetypeinfo.migratetypes.index("HighAtomic")
            blocks = of_zone(iter(pagetypeinfo.pageblocks))
            if blocks:
                reserved = blocks[0].blocks[place_of_type] << pagetypeinfo.pageblock_order
            row = by_type.get("HighAtomic", ())
            free_highatomic = sum(count << order for order, count in enumerate(row))
    file_lists = ("nr_zone_active_file", "nr_zone_inactive_file")
    file_pages = [zone.counters[name] for name in file_lists if name in zone.counters]
    return ZoneMemory(
        node=zone.node,
        name=zone.name,
        free=zone.free,
        min=zone.min,
        low=zone.low,
        high=zone.high,
        boost=zone.boost,
        managed=zone.managed,
        reserved_highatomic=reserved,
        free_highatomic=free_highatomic,
        free_cma=zone.counters.get("nr_free_cma"),
        file_pages=sum(file_pages) if file_pages else None,
        lowmem_reserve=zone.protection,
        buddies=counts,
        types=types,
        by_type=by_type,
    )
