"""Small recordings made in code: a machine of 24 pageblocks, its state files and its events."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from pagealloc_model.policy import Assumptions
from pagealloc_model.predicted.replay import Replay, replay
from pagealloc_model.recording.machine import Machine, Zone
from pagealloc_model.recording.proc import pages as flags
from pagealloc_model.recording.recording import Recording, open_recording
from tests.event_text import EventText

MAX_ORDER, PAGEBLOCK_ORDER = 10, 9
BLOCK = 1 << PAGEBLOCK_ORDER
TYPES = ("Unmovable", "Movable", "Reclaimable", "HighAtomic", "Isolate")
CPUS = 2
EVENTS_BEGIN_NS = 1_000_000_000
BEFORE_NS, AFTER_NS = 500_000_000, 1_000_000_000 + 50_000


@dataclass(frozen=True)
class SmallZone:
    """A zone whose first block is allocated, Unmovable, and whose others are free, Movable."""

    name: str
    start_pfn: int
    pages: int
    watermarks: tuple[int, int, int]
    protection: tuple[int, ...]
    node: int = 0

    @property
    def first_free(self) -> int:
        return self.start_pfn + BLOCK


DMA32 = SmallZone("DMA32", 0, 8 * BLOCK, (32, 40, 48), (0, 64, 64))
NORMAL = SmallZone("Normal", 8 * BLOCK, 16 * BLOCK, (64, 80, 96), (0, 0, 0))
ZONES = (DMA32, NORMAL)
END_PFN = NORMAL.start_pfn + NORMAL.pages
NO_DMA32 = SmallZone("DMA32", 0, 0, (0, 0, 0), (0, 0, 0), node=1)
NORMAL_1 = SmallZone("Normal", END_PFN, 16 * BLOCK, (64, 80, 96), (0, 0, 0), node=1)
TWO_NODES = (*ZONES, NO_DMA32, NORMAL_1)
"""The same machine with a second node, which has no low memory."""


def small_machine() -> Machine:
    """The machine that the state files below describe, its per-CPU lists left out."""
    zones = [
        Zone(
            name=zone.name,
            start_pfn=zone.start_pfn,
            spanned=zone.pages,
            present=zone.pages,
            managed=zone.pages,
            min=zone.watermarks[0],
            low=zone.watermarks[1],
            high=zone.watermarks[2],
            lowmem_reserve=zone.protection,
        )
        for zone in ZONES
    ]
    empty = Zone(name="Movable", start_pfn=0, spanned=0, present=0, managed=0)
    return Machine(zones=(*zones, empty), nr_cpus=CPUS)


class TimedEvents(EventText):
    """Events 1 us apart, unless the clock is put forward; the first at EVENTS_BEGIN_NS."""

    def __init__(self) -> None:
        super().__init__()
        self.now_us = EVENTS_BEGIN_NS // 1000

    def wait(self, microseconds: int) -> TimedEvents:
        self.now_us += microseconds
        return self

    def event(self, name: str, body: str) -> None:
        time = f"{self.now_us // 10**6}.{self.now_us % 10**6:06d}"
        self.lines.append(f"{self.comm} {self.pid} [{self.cpu:03d}] {time}: {name}: {body}")
        self.now_us += 1


def busy_events() -> TimedEvents:
    """Two CPUs, some hundred requests of three orders and two types, frees of old and new pages."""
    events = TimedEvents()
    first = NORMAL.first_free
    for index in range(300):
        movable = index % 3 > 0
        gfp = "GFP_HIGHUSER_MOVABLE" if movable else "GFP_KERNEL"
        events.on(cpu=index % 2).alloc(first + index, gfp=gfp, migratetype=int(movable))
        if index >= 40:
            events.on(cpu=0).free(first + index - 40)
    for index in range(8):
        events.on(cpu=1).alloc(first + 1024 + 8 * index, order=3)
        events.free(NORMAL.start_pfn + index)
    events.wait(3_000_000)
    events.alloc(first + 2048, order=9, gfp="GFP_TRANSHUGE", migratetype=1)
    events.free(first + 1024, order=3)
    events.free(first + 2048, order=9)
    return events


def start_free(zones: Sequence[SmallZone] = ZONES) -> np.ndarray:
    """Whether a page is free before the first event, bool per page frame."""
    free = np.zeros(max(zone.start_pfn + zone.pages for zone in zones), bool)
    for zone in zones:
        free[zone.first_free : zone.start_pfn + zone.pages] = True
    return free


def buddies_of(free: np.ndarray, zone: SmallZone) -> list[int]:
    """Free buddies by order in a zone, cut greedily from the lowest page frame on."""
    counts = [0] * (MAX_ORDER + 1)
    pfn, end = zone.start_pfn, zone.start_pfn + zone.pages
    while pfn < end:
        order = 0
        if free[pfn]:
            while order < MAX_ORDER:
                size = 2 << order
                if pfn % size or pfn + size > end or not free[pfn : pfn + size].all():
                    break
                order += 1
            counts[order] += 1
        pfn += 1 << order
    return counts


def zoneinfo_text(
    free: np.ndarray, listed: Mapping[str, int], zones: Sequence[SmallZone] = ZONES
) -> str:
    """What zoneinfo shows; `listed` gives the pages on each CPU's lists by zone."""
    lines = []
    for node in sorted({zone.node for zone in zones}):
        for zone in (zone for zone in zones if zone.node == node):
            page_set = {"count": listed.get(zone.name, 0), "high": 60, "batch": 15}
            page_set |= {"high_min": 60, "high_max": 240}
            lines += zone_lines(
                zone.name,
                zone.node,
                free=int(free[zone.start_pfn : zone.start_pfn + zone.pages].sum()),
                watermarks=zone.watermarks,
                pages=zone.pages,
                protection=zone.protection,
                page_sets=[page_set] * CPUS,
                start_pfn=zone.start_pfn,
            )
        lines += zone_lines("Movable", node)
    return "\n".join(lines) + "\n"


def zone_lines(
    name: str,
    node: int = 0,
    *,
    free: int = 0,
    watermarks: tuple[int, int, int] = (0, 0, 0),
    pages: int = 0,
    protection: tuple[int, ...] = (0, 0, 0),
    page_sets: Sequence[Mapping[str, int]] = (),
    start_pfn: int = 0,
) -> list[str]:
    """One zone of zoneinfo; an empty one shows no page sets."""
    low_to_high = dict(zip(("min", "low", "high"), watermarks, strict=True))
    sizes = low_to_high | dict.fromkeys(("spanned", "present", "managed"), pages)
    lines = [
        f"Node {node}, zone {name:>8}",
        f"  pages free     {free}",
        "        boost    0",
        *[f"        {size:<8} {value}" for size, value in sizes.items()],
        f"        protection: ({', '.join(map(str, protection))})",
    ]
    if not pages:
        return lines
    lines.append("  pagesets")
    for cpu, words in enumerate(page_sets):
        lines += [f"    cpu: {cpu}", *[f"              {key}: {n}" for key, n in words.items()]]
    return [*lines, "  node_unreclaimable:  0", f"  start_pfn:           {start_pfn}"]


def pagetypeinfo_text(free: np.ndarray, zones: Sequence[SmallZone] = ZONES) -> str:
    """What pagetypeinfo shows: everything free is Movable."""
    orders = "".join(f"{order:7}" for order in range(MAX_ORDER + 1))
    lines = [
        f"Page block order: {PAGEBLOCK_ORDER}",
        f"Pages per block:  {BLOCK}",
        "",
        f"Free pages count per migrate type at order {orders}",
    ]
    populated = [zone for zone in zones if zone.pages]
    for zone in populated:
        for name in TYPES:
            counts = buddies_of(free, zone) if name == "Movable" else [0] * (MAX_ORDER + 1)
            cells = "".join(f"{count:7}" for count in counts)
            lines.append(f"Node    {zone.node}, zone {zone.name:>8}, type {name:>12} {cells}")
    lines += ["", f"Number of blocks type {' '.join(TYPES)}"]
    for zone in populated:
        lines.append(f"Node {zone.node}, zone {zone.name:>8} 1 {zone.pages // BLOCK - 1} 0 0 0")
    return "\n".join(lines) + "\n"


def buddyinfo_text(free: np.ndarray, zones: Sequence[SmallZone] = ZONES) -> str:
    """What buddyinfo shows."""
    return "".join(
        f"Node {zone.node}, zone {zone.name:>8} {' '.join(map(str, buddies_of(free, zone)))}\n"
        for zone in zones
        if zone.pages
    )


def write_snapshot(
    recording: Path,
    time_ns: int,
    free: np.ndarray,
    listed: Mapping[str, int] | None = None,
    zones: Sequence[SmallZone] = ZONES,
) -> Path:
    """Write the four state files of one instant."""
    directory = recording / "snapshots" / f"{time_ns:020d}"
    directory.mkdir(parents=True)
    (directory / "zoneinfo").write_text(zoneinfo_text(free, listed or {}, zones))
    (directory / "pagetypeinfo").write_text(pagetypeinfo_text(free, zones))
    (directory / "buddyinfo").write_text(buddyinfo_text(free, zones))
    (directory / "vmstat").write_text(f"nr_free_pages {int(free.sum())}\n")
    return directory


def write_recording(
    directory: Path,
    events: EventText | None = None,
    *,
    release: str = "6.18.0-small",
    page_flags: bool = True,
    snapshots: bool = True,
    zones: Sequence[SmallZone] = ZONES,
    **meta: object,
) -> Path:
    """A recording whose perf.data is `perf script` text.

    Args:
        directory: is made.
        events: None for `busy_events`.
        release: named in meta.json.
        page_flags: write kpageflags.
        snapshots: write one snapshot from before the first event.
        zones: the machine's.
        **meta: more of meta.json.
    """
    directory.mkdir(parents=True)
    text = events or busy_events()
    (directory / "perf.data").write_text("\n".join(text.lines) + "\n")
    uname = ["Linux", "host", release, "#1 SMP", "x86_64"]
    about = {"bundle_version": 1, "uname": uname, "nr_cpus": CPUS, **meta}
    (directory / "meta.json").write_text(json.dumps(about))
    free = start_free(zones)
    if snapshots:
        write_snapshot(directory, BEFORE_NS, free, zones=zones)
    if page_flags:
        words = np.where(free, flags.BUDDY, flags.PGTABLE).astype("<u8")
        (directory / "kpageflags.u64.gz").write_bytes(gzip.compress(words.tobytes(), 1))
    return directory


LITERAL = Assumptions(reclaim="literal")
ELASTIC = Assumptions(reclaim="elastic")


@cache
def shipped_replay(name: str) -> Replay:
    """A recording of data/ under the recorded policy, replayed literally once for all tests."""
    return replay(shipped_recording(name), assumptions=LITERAL)


@cache
def shipped_recording(name: str) -> Recording:
    """A recording of data/, opened once for all tests, so that it is read and prepared once."""
    return open_recording(Path(__file__).parent.parent / "data" / name)
