"""The plain C program beside the model: what it is given, how it is compiled and run."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.state import State

SOURCE = Path(__file__).with_name("replay_peer.c")
LISTED_ORDERS, LISTED_TYPES = 4, 3
ZONE = np.dtype(
    [
        ("free", np.int64),
        ("mark", np.int64),
        ("lists", np.int32, (at.ORDERS, at.MIGRATETYPES, 2)),
    ]
)
PAGESET = np.dtype(
    [
        ("count", np.int64),
        ("batch", np.int64),
        ("high", np.int64),
        ("lists", np.int32, (LISTED_ORDERS, LISTED_TYPES, 2)),
    ]
)


@dataclass(frozen=True, kw_only=True)
class PeerRun:
    """What one run of the program prints.

    Attributes:
        seconds: CPU time of its loop.
        allocations, frees: served.
        refills, drains: of per-CPU lists.
        free_pages, listed_pages: in the buddy and on per-CPU lists at the end.
    """

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
    """Write a start state and what is asked of it, as the C program's structs are.

    Args:
        file: to write: header, pages, blocks, zones, pagesets, places, events.
        state: where pages are at the start.
        events: `layout.EVENT` records.
        places: int32, where objects that live at the start are.
    """
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
    ]
    zones = np.zeros(len(machine.zones), ZONE)
    pagesets = np.zeros((len(machine.zones), machine.nr_cpus), PAGESET)
    for number in range(len(machine.zones)):
        region = state.zone_region(number)
        zones[number]["free"] = region[at.ZONE_FREE]
        zones[number]["mark"] = region[at.ZONE_HIGH]
        lists = region[at.ZONE_LISTS :].reshape(at.ORDERS, at.MIGRATETYPES, at.LIST_WORDS)
        zones[number]["lists"] = lists[:, :, : at.ENTRIES]
        for cpu in range(machine.nr_cpus):
            words = state.pcp_region(number, cpu)
            lists = words[at.PCP_LISTS : at.PCP_SITES].reshape(-1, LISTED_TYPES, at.LIST_WORDS)
            pageset = pagesets[number, cpu]
            pageset["count"] = words[at.PCP_COUNT]
            pageset["batch"] = words[at.PCP_BATCH]
            pageset["high"] = words[at.PCP_HIGH_MAX]
            pageset["lists"] = lists[:LISTED_ORDERS, :, : at.ENTRIES]
    with file.open("wb") as out:
        for part in (np.array(header, np.int64), state.pages, state.blocks, zones, pagesets):
            part.tofile(out)
        places.tofile(out)
        events.tofile(out)


def run(program: Path, file: Path) -> PeerRun:
    """Run the program once."""
    printed = subprocess.run([program, file], check=True, capture_output=True, text=True).stdout
    seconds, *counts = printed.split()
    names = ("allocations", "frees", "refills", "drains", "free_pages", "listed_pages")
    return PeerRun(seconds=float(seconds), **dict(zip(names, map(int, counts), strict=True)))
