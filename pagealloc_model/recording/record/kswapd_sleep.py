"""Waiting until kswapd sleeps, so that a recording begins when settings have had their effect."""

from __future__ import annotations

import time
from collections.abc import Callable

from pagealloc_model.recording.record.host import Host, read_or_none

LONGEST_S = 10.0
"""Longest wait, unless another is asked for."""
STEP_S = 0.2
"""Between two looks, s: longer than the nap that ends a run (HZ / 10, mm/vmscan.c, 6.12)."""


def kswapd_sleeps(
    host: Host, longest_s: float = LONGEST_S, wait: Callable[[float], None] = time.sleep
) -> bool | None:
    """Wait until no kswapd works; returns whether none does, None where none can be seen.

    A setting such as vm.min_free_kbytes raises watermarks, and kswapd frees up to them. None works
    while what all have scanned stays the same and each sleeps, twice in a row.

    Args:
        host: the machine.
        longest_s: give up after this, s.
        wait: waits for a time in s; may raise to end early.

    Raises:
        OSError: /proc/vmstat cannot be read.
    """
    ends, quiet, before = time.monotonic() + longest_s, 0, None
    kswapds = [
        stat.parent
        for stat in host.proc.glob("[0-9]*/stat")
        if _name_and_state(read_or_none(stat))[0].startswith("kswapd")
    ]
    if not kswapds:
        return None
    while quiet < 2:
        if time.monotonic() >= ends:
            return False
        states = {_name_and_state(read_or_none(each / "stat"))[1] for each in kswapds}
        lines = (host.proc / "vmstat").read_text(encoding="ascii").splitlines()
        scanned = [line for line in lines if line.startswith("pgscan_kswapd ")]
        is_quiet = states <= {"S", "I"} and scanned == before
        quiet, before = quiet + 1 if is_quiet else 0, scanned
        if quiet < 2:
            wait(STEP_S)
    return True


def _name_and_state(stat: str | None) -> tuple[str, str]:
    """A task's name and state by its `stat` in /proc; empty where it has ended."""
    name, _, rest = (stat or "").partition("(")[2].rpartition(")")
    return name, rest.split()[0] if rest.split() else ""
