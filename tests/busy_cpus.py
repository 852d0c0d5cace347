"""Makes every CPU allocate and free pages, steadily, so that no test waits for chance to.

Usage: python tests/busy_cpus.py MAPPINGS     (so many on each CPU)
"""

from __future__ import annotations

import itertools
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

PAGES = 32
PAUSE_S = 0.001


@contextmanager
def busy_cpus() -> Iterator[list[int]]:
    """All CPUs are busy meanwhile, from the start on; yields their numbers."""
    loads = {cpu: _load(cpu) for cpu in sorted(os.sched_getaffinity(0))}
    try:
        for load in loads.values():
            assert load.stdout is not None
            load.stdout.readline()
        yield list(loads)
    finally:
        for load in loads.values():
            load.kill()
            load.communicate()


def _load(cpu: int, mappings: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, str(mappings), str(cpu), str(os.getpid())]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _map_and_unmap(mappings: int, cpu: int, parent: int) -> None:
    """Map, touch and unmap memory so many times (0: without end) while the parent lives."""
    os.sched_setaffinity(0, {cpu})
    for done in itertools.count(1):
        room = mmap.mmap(-1, PAGES * mmap.PAGESIZE)
        for start in range(0, len(room), mmap.PAGESIZE):
            room[start] = 1
        room.close()
        if done == 1:
            print("busy", flush=True)
        if done == mappings or os.getppid() != parent:
            return
        time.sleep(PAUSE_S)


def main() -> None:
    mappings, *one_cpu = map(int, sys.argv[1:])
    if one_cpu:
        _map_and_unmap(mappings, *one_cpu)
        return
    for load in [_load(cpu, mappings) for cpu in sorted(os.sched_getaffinity(0))]:
        load.communicate()


if __name__ == "__main__":
    main()
