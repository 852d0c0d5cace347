"""A free's time beside what memory itself takes for random access to records of its size.

Usage: python benchmarks/memory_floor.py [MB ...] [--json]

One table of page records per size, each as it is and with huge pages asked for, each in a process
of its own. `random access` reads and writes records at random places, as many as are freed; none
waits for another. `to a list`: the event loop frees as many pages in random order, one event each,
and lists hold them all. `to the zone`: the same with lists as short as decay leaves them: they
overflow, pages go to the zone, out of a chain, and merge. `free and allocate`:
it frees 31 at a time and takes as many again. ns of CPU time, the least of RUNS.

numpy asks for huge pages (madvise) where the kernel gives them on request, unless
NUMPY_MADVISE_HUGEPAGE is 0: so `huge pages` false is that variable, and `in huge pages` what share
of the process the kernel had put there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from math import isqrt
from pathlib import Path

import numba
import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.events import advance
from pagealloc_model.allocator.state import State, make_state, place_buddies
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.recording.machine import Machine, Zone

SIZES = (25, 100, 1600)
RUNS = 3
FREED = 1 << 19
"""Pages freed in a run, or a sixteenth of the table; each run frees others."""
BATCH = 31
CPU_PAGES = 1 << 20
"""4 GiB a CPU, so that per-CPU lists are as long as hosts have them; one of the CPUs is at work."""
CHUNK = 1 << 20
SEED = 7
MB = 1_000_000


def measured(sizes: tuple[int, ...] = SIZES) -> pd.DataFrame:
    """One row per size of the table, without and with huge pages.

    Returns:
        `table`, MB; `huge pages`: whether they were asked for; `in huge pages`, share of the
        process's memory; `random access`, `to a list`, `to the zone`, `free and allocate`, ns;
        `list over access`.
    """
    rows = [_row(size, huge) for size in sizes for huge in (False, True)]
    table = pd.DataFrame(rows)
    table["list over access"] = table["to a list"] / table["random access"]
    return table


def _row(size: int, huge: bool) -> dict[str, object]:
    command = [sys.executable, __file__, "--one", str(size)]
    environment = os.environ | {
        "NUMPY_MADVISE_HUGEPAGE": str(int(huge)),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if found.returncode:
        raise SystemExit(f"memory_floor.py: {size}: {found.stderr.strip().splitlines()[-1]}")
    return {"table": size, "huge pages": huge, **json.loads(found.stdout)}


def one(size: int) -> dict[str, float]:
    """The figures of a table of `size` MB, in this process."""
    state = _full(size * MB // at.PAGE.itemsize >> 10 << 10)
    least = int(state.pcp_region(0, 0)[at.PCP_HIGH_MIN])
    count = min(FREED, len(state.pages) >> 4) // BATCH * BATCH
    random = np.random.default_rng(SEED)
    frees = np.zeros(count, at.EVENT)
    frees["operation"] = at.FREE
    frees["object"] = np.arange(count)
    pairs = _in_turn(count)
    access: list[float] = []
    free: list[float] = []
    listed: list[float] = []
    both: list[float] = []
    for _ in range(RUNS):
        both.append(_seconds(state, pairs, _allocated(state, random, count)) / count)
        access.append(_seconds_of_access(state.pages, random, count))
        _set_high(state, len(state.pages))
        listed.append(_seconds(state, frees, _allocated(state, random, count)) / count)
        _set_high(state, least)
        free.append(_seconds(state, frees, _allocated(state, random, count)) / count)
    return {
        "in huge pages": _in_huge_pages(),
        "random access": min(access) * 1e9,
        "to a list": min(listed) * 1e9,
        "to the zone": min(free) * 1e9,
        "free and allocate": min(both) * 1e9,
    }


def _in_turn(count: int) -> np.ndarray:
    """BATCH frees, then as many allocations, and so on."""
    events = np.zeros(2 * count, at.EVENT)
    frees = np.arange(2 * count) // BATCH % 2 == 0
    events["operation"] = np.where(frees, at.FREE, at.ALLOC)
    events["object"] = np.where(frees, np.cumsum(frees) - 1, count)
    events["migratetype"] = at.MOVABLE
    return events


def _full(pages: int) -> State:
    """A machine whose memory has been given out page by page, but a sixteenth."""
    least, step = 2 * isqrt(pages), pages // 1000
    zone = Zone(
        name="Normal",
        start_pfn=0,
        spanned=pages,
        present=pages,
        managed=pages,
        min=least,
        low=least + step,
        high=least + 2 * step,
    )
    machine = Machine(zones=(zone,), nr_cpus=pages // CPU_PAGES)
    state = make_state(machine, KernelRules.preset("6.12"))
    heads = np.arange(0, pages, 1 << 10, dtype=np.int32)
    place_buddies(state.arrays(), heads, np.full(len(heads), 10, np.int8))
    events = np.zeros(CHUNK, at.EVENT)
    events["operation"] = at.ALLOC
    events["migratetype"] = at.MOVABLE
    places = np.full(CHUNK + 1, -1, np.int32)
    events["object"] = np.arange(CHUNK)
    left = pages - (pages >> 4)
    while left > 0:
        count = min(left, CHUNK)
        _seconds(state, events[:count], places)
        left -= count
    return state


def _set_high(state: State, high: int) -> None:
    """Empty the lists of the CPU at work and let them hold `high` pages from now on."""
    event = np.zeros(1, at.EVENT)
    event["operation"] = at.DRAIN_ALL
    _seconds(state, event, np.zeros(1, np.int32))
    state.pcp_region(0, 0)[[at.PCP_HIGH, at.PCP_HIGH_MIN, at.PCP_HIGH_MAX]] = high


def _allocated(state: State, random: np.random.Generator, count: int) -> np.ndarray:
    """Where allocated pages lie, in random order; room for one object more."""
    drawn = random.integers(0, len(state.pages), 3 * count, np.int32)
    drawn = np.unique(drawn[state.pages["where"][drawn] == at.ALLOCATED])
    places = np.full(count + 1, -1, np.int32)
    found = random.permutation(drawn)[:count]
    places[: len(found)] = found
    return places


def _seconds(state: State, events: np.ndarray, places: np.ndarray) -> float:
    """CPU time of the event loop."""
    begun = time.process_time()
    position = 0
    while position < len(events):
        position = advance(state.arrays(places), events, position, len(events), -1)
        state.st[at.LOG_ROWS] = 0
    return time.process_time() - begun


@numba.njit
def _touched(pages: np.ndarray, places: np.ndarray) -> int:
    total = 0
    for place in places:
        total += pages[place]["next"]
        pages[place]["flags"] = 0
    return total


def _seconds_of_access(pages: np.ndarray, random: np.random.Generator, count: int) -> float:
    """CPU time of an access to a random record."""
    places = random.integers(0, len(pages), count, np.int32)
    _touched(pages[:1], places[:0])
    begun = time.process_time()
    _touched(pages, places)
    return (time.process_time() - begun) / count


def _in_huge_pages() -> float:
    """Share of this process's memory that lies in transparent huge pages."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return sizes["AnonHugePages"] / sizes["Rss"]


def main() -> None:
    """Measure all and print, or measure one."""
    parser = argparse.ArgumentParser(description="frees beside random access to memory")
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES, metavar="MB")
    parser.add_argument("--one", type=int)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one)))
        return
    table = measured(tuple(options.sizes))
    if options.json:
        print(table.to_json(orient="records"))
    else:
        print(table.to_string(index=False, float_format="{:,.2f}".format))


if __name__ == "__main__":
    main()
