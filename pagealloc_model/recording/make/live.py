"""Lines with rates while a recording runs."""

from __future__ import annotations

import time
from pathlib import Path

from pagealloc_model.recording.make.host import Host, read_or_none

_MIB = 1 << 20


class LiveRates:
    """Rates since the last line, from the counters of /proc/vmstat (T12.4).

    Args:
        host: the machine.
        event_file: the perf.data being written.
    """

    def __init__(self, host: Host, event_file: Path) -> None:
        self._host = host
        self._event_file = event_file
        self._start = self._then = time.monotonic()
        self._counts = self._read()

    def line(self) -> str:
        """One line on the time since the line before."""
        now, counts = time.monotonic(), self._read()
        passed = max(now - self._then, 1e-9)
        allocated, freed, written = (
            (new - old) / passed for new, old in zip(counts, self._counts, strict=True)
        )
        self._then, self._counts = now, counts
        return (
            f"{now - self._start:7.1f} s  allocated {allocated:10,.0f} pages/s  "
            f"freed {freed:10,.0f} pages/s  (vmstat)  "
            f"perf.data {counts[2] / _MIB:,.1f} MiB, {written / _MIB:+.1f} MiB/s"
        )

    def _read(self) -> tuple[int, int, int]:
        """Pages allocated and freed so far, and bytes of the event file."""
        allocated = freed = 0
        for line in (read_or_none(self._host.proc / "vmstat") or "").splitlines():
            name, _, value = line.partition(" ")
            if name.startswith("pgalloc_"):
                allocated += int(value)
            elif name == "pgfree":
                freed = int(value)
        try:
            size = self._event_file.stat().st_size
        except OSError:
            size = 0
        return allocated, freed, size
