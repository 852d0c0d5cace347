"""The plain C program beside the model: what it is given, how it is compiled and run."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import State
from pagealloc_model.recording.machine import ZONE_TYPES_MAX

SOURCE = Path(__file__).with_name("replay_peer.c")
LIST = np.dtype([("head", np.int64), ("tail", np.int64), ("entries", np.int64)])
ZONE_WORDS = {
    "managed": at.ZONE_MANAGED,
    "start": at.ZONE_START,
    "end": at.ZONE_END,
    "min": at.ZONE_MIN,
    "low": at.ZONE_LOW,
    "high": at.ZONE_HIGH,
    "boost": at.ZONE_BOOST,
    **{f"lowmem_reserve_{kind}": at.ZONE_LOWMEM_RESERVE + kind for kind in range(ZONE_TYPES_MAX)},
    "reserve": at.ZONE_FREE_HIGHATOMIC,
    "free": at.ZONE_FREE,
    "unfolded": at.ZONE_FREE_UNFOLDED,
    "free_cma": at.ZONE_FREE_CMA,
    "threshold": at.ZONE_THRESHOLD,
    "below_high": at.ZONE_BELOW_HIGH,
    "reclaim_active": at.ZONE_RECLAIM_ACTIVE,
    "avoids_fragmentation": at.ZONE_AVOIDS_FRAGMENTATION,
}
"""The C program's words of a zone, in its order, and where the model has them."""
ZONE = np.dtype(
    [*((name, np.int64) for name in ZONE_WORDS), ("lists", LIST, (at.ORDERS, at.MIGRATETYPES))]
)
PAGESET_WORDS = {
    "count": at.PCP_COUNT,
    "high": at.PCP_HIGH,
    "high_min": at.PCP_HIGH_MIN,
    "high_max": at.PCP_HIGH_MAX,
    "batch": at.PCP_BATCH,
    "alloc_factor": at.PCP_ALLOC_FACTOR,
    "free_count": at.PCP_FREE_COUNT,
    "freed_high_order": at.PCP_PREV_FREE_HIGH_ORDER,
    "free_delta": at.PCP_FREE_DELTA,
    "lock_holder": at.PCP_LOCK_HOLDER,
    "locks": at.PCP_LOCKS,
    "handovers": at.PCP_LOCK_HANDOVERS,
}
PAGESET = np.dtype(
    [
        *((name, np.int64) for name in PAGESET_WORDS),
        ("lists", LIST, at.PCP_LISTS_MAX),
        ("sites", np.int64, (at.SITES, at.SITE_WORDS)),
    ]
)


@dataclass(frozen=True, kw_only=True)
class PeerRun:
    """What one run of the program prints."""

    seconds: float
    allocations: int
    frees: int
    refills: int
    drains: int
    free_pages: int
    listed_pages: int


def compiled(directory: Path) -> Path | None:
    """The program, compiled with -O3 into a directory; None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    program = directory / "replay_peer"
    command = [compiler, "-O3", "-march=native", "-o", str(program), str(SOURCE)]
    subprocess.run(command, check=True)
    return program


def write_demand(file: Path, state: State, events: np.ndarray, places: np.ndarray) -> None:
    """Write a start state and what is asked of it, as the C program's structs are."""
    st, machine = state.st, state.machine
    header = [
        len(state.pages),
        len(state.blocks),
        len(events),
        len(places),
        len(machine.zones),
        machine.nr_cpus,
        st[at.PAGEBLOCK_ORDER],
        st[at.MAX_ORDER],
        st[at.POLICY_WORDS["costly_order"]],
        st[at.HUGE_ORDER] if st[at.THP_LISTS] else -1,
        st[at.POLICY_WORDS["pcp_batch_scale_max"]],
        st[at.POLICY_WORDS["watermark_boost_factor"]],
        st[at.CMA],
        st[at.COUNTS_BY_CPU],
        st[at.POLICY_WORDS["pcp_free_batched"]],
        st[at.POLICY_WORDS["pcp_decay_batched"]],
        len(state.log),
        st[at.NEXT_TICK],
        st[at.TICK_PERIOD],
        st[at.TICK_CPU],
        st[at.TICK_BASE],
        st[at.TICK_STAGGER],
    ]
    zones = np.zeros(len(machine.zones), ZONE)
    pagesets = np.zeros((len(machine.zones), machine.nr_cpus), PAGESET)
    for number in range(len(machine.zones)):
        region = state.zone_region(number)
        _copy_words(zones[number], region, ZONE_WORDS)
        _copy_lists(zones[number]["lists"], region[at.ZONE_LISTS :])
        for cpu in range(machine.nr_cpus):
            words = state.pcp_region(number, cpu)
            _copy_words(pagesets[number, cpu], words, PAGESET_WORDS)
            _copy_lists(pagesets[number, cpu]["lists"], words[at.PCP_LISTS :])
    with file.open("wb") as out:
        for part in (np.array(header, np.int64), state.pages, state.blocks, zones, pagesets):
            part.tofile(out)
        places.tofile(out)
        events.tofile(out)


def _copy_words(record: np.void, region: np.ndarray, words: dict[str, int]) -> None:
    for name, offset in words.items():
        record[name] = region[offset]


def _copy_lists(lists: np.ndarray, words: np.ndarray) -> None:
    copied = words[: lists.size * at.LIST_WORDS].reshape(*lists.shape, at.LIST_WORDS)
    for column, name in enumerate(("head", "tail", "entries")):
        lists[name] = copied[..., column]


def run(program: Path, file: Path) -> PeerRun:
    """Run the program once."""
    printed = subprocess.run([program, file], check=True, capture_output=True, text=True).stdout
    seconds, *counts = printed.split()
    names = ("allocations", "frees", "refills", "drains", "free_pages", "listed_pages")
    return PeerRun(seconds=float(seconds), **dict(zip(names, map(int, counts), strict=True)))
