"""Host: where the running kernel's files are, and what this process may do with them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

CAP_SYS_ADMIN = 21
CAP_SYS_NICE = 23
CAP_PERFMON = 38

_KIB = 1024


@dataclass(frozen=True, kw_only=True)
class Host:
    """The machine to record; tests point it at directories of their own.

    Attributes:
        proc: where procfs is mounted.
        sysfs: where sysfs is mounted.
        boot: where kernel configurations are installed.
        user: effective user id.
        release: kernel release, as `uname -r` prints it.
    """

    proc: Path = Path("/proc")
    sysfs: Path = Path("/sys")
    boot: Path = Path("/boot")
    user: int = field(default_factory=os.geteuid)
    release: str = field(default_factory=lambda: os.uname().release)

    @cached_property
    def tracefs(self) -> Path | None:
        """The mounted tracefs, None if there is none or it may not be entered."""
        for place in (self.sysfs / "kernel/tracing", self.sysfs / "kernel/debug/tracing"):
            if os.path.isdir(place / "events"):
                return place
        return None

    @property
    def debugfs(self) -> Path:
        """Where debugfs is mounted, if it is."""
        return self.sysfs / "kernel/debug"

    @cached_property
    def lockdown(self) -> str:
        """The lockdown level in force: "none", "integrity" or "confidentiality"."""
        text = read_or_none(self.sysfs / "kernel/security/lockdown") or ""
        chosen = [word.strip("[]") for word in text.split() if word.startswith("[")]
        return chosen[0] if chosen else "none"

    @cached_property
    def cpus(self) -> int:
        """Online CPUs."""
        online = (read_or_none(self.sysfs / "devices/system/cpu/online") or "").strip()
        return sum(len(numbers) for numbers in cpu_ranges(online)) or os.cpu_count() or 1

    @cached_property
    def available_memory(self) -> int:
        """Bytes of MemAvailable, 0 if unknown."""
        for line in (read_or_none(self.proc / "meminfo") or "").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * _KIB
        return 0

    def has_capability(self, *numbers: int) -> bool:
        """Whether this process holds one of some capabilities."""
        for line in (read_or_none(self.proc / "self/status") or "").splitlines():
            if line.startswith("CapEff:"):
                held = int(line.split()[1], 16)
                return any(held >> number & 1 for number in numbers)
        return self.user == 0

    def setting(self, name: str) -> int | None:
        """A number below /proc/sys, None if absent or unreadable."""
        text = read_or_none(self.proc / "sys" / name)
        try:
            return int(text) if text is not None else None
        except ValueError:
            return None


def read_or_none(path: Path) -> str | None:
    """A file's text, None where it is absent or may not be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def cpu_ranges(text: str) -> list[range]:
    """Ranges of a list such as "0-3,8", as sysfs prints it."""
    ranges = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            ranges.append(range(int(first), int(last or first) + 1))
    return ranges
