"""A plan of two values whose guests are made up: each leaves a small recording at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from pagealloc_model.guests.guest import Boot, Cancel, RunFailedError
from pagealloc_model.guests.inside import RECORDING
from tests.small_recordings import (
    AFTER_NS,
    TimedEvents,
    start_free,
    write_recording,
    write_snapshot,
)

MORE_USED = 100
PLAN = """
repeats = 2

[[kernel]]
image = "bzImage"

[workload]
command = "true"

[[vary]]
setting = "vm.percpu_pagelist_high_fraction"
values = [0, 8]
"""


def write_plan(directory: Path, text: str = PLAN) -> Path:
    """The plan as a file, with a kernel beside it."""
    (directory / "bzImage").write_bytes(b"no kernel")
    file = directory / "plan.toml"
    file.write_text(text)
    return file


def write_run(directory: Path, used: int) -> Path:
    """A recording with a snapshot at its end, in which so many pages more are used."""
    write_recording(directory, few_events(200))
    free = start_free()
    free[np.flatnonzero(free)[:used]] = False
    write_snapshot(directory, AFTER_NS, free)
    return directory


def few_events(requests: int) -> TimedEvents:
    """One CPU, some requests, each freed at once."""
    events = TimedEvents()
    for index in range(requests):
        events.on(cpu=index % 2).alloc(8 * 512 + 512 + index, gfp="GFP_KERNEL", migratetype=0)
        events.free(8 * 512 + 512 + index)
    return events


class FakeGuests:
    """Guests that leave a recording at once; on the side with fraction 8 more pages are used.

    Args:
        fails: whether a run fails.
    """

    def __init__(self, fails: Callable[[Boot], bool] = lambda boot: False) -> None:
        self.booted: list[Boot] = []
        self._fails = fails

    def __call__(self, boot: Boot, folder: Path, cancel: Cancel) -> None:
        """Make a run."""
        self.booted.append(boot)
        assert not cancel()
        if self._fails(boot):
            raise RunFailedError("the guest ended before it was done", "Kernel panic\nRebooting")
        seed = int(boot.order.environment["SEED"])
        more = MORE_USED if "8" in boot.order.settings.values() else 0
        write_run(folder / RECORDING, 10 * seed + more)
