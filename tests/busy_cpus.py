"""Makes every CPU allocate and free pages, steadily, so that no test waits for chance to."""

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


def _load(cpu: int) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, str(cpu), str(os.getpid())]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _map_and_unmap(cpu: int, parent: int) -> None:
    """Map, touch and unmap memory while the parent lives."""
    os.sched_setaffinity(0, {cpu})
    for done in itertools.count(1):
        room = mmap.mmap(-1, PAGES * mmap.PAGESIZE)
        for start in range(0, len(room), mmap.PAGESIZE):
            room[start] = 1
        room.close()
        if done == 1:
            print("busy", flush=True)
        if os.getppid() != parent:
            return
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    _map_and_unmap(*map(int, sys.argv[1:]))
