"""/proc/vmstat: one `name value` pair a line (T12.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pagealloc_model.recording.proc.lines import integer, malformed


@dataclass(frozen=True, kw_only=True)
class VmStat:
    """Counters and gauges under the kernel's own names.

    Event counters are exact at read time; gauges may lag by the per-CPU deltas (S1.10).
    A counter this kernel does not have is absent, not 0.
    """

    values: Mapping[str, int]

    def get(self, name: str) -> int | None:
        """The value of one counter, None if this kernel does not print it."""
        return self.values.get(name)


def parse_vmstat(text: str, path: str | Path = "vmstat") -> VmStat:
    """Read the text of /proc/vmstat.

    Args:
        text: the file's content.
        path: named in errors.

    Raises:
        RecordingError: a line is not a name and a number, a name appears twice, or the text is
            empty.
    """
    values: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words:
            continue
        if len(words) != 2:
            raise malformed(path, number, "is not a name and a value")
        name, value = words
        if name in values:
            raise malformed(path, number, f"{name} appears a second time")
        values[name] = integer(value, path, number)
    if not values:
        raise malformed(path, 1, "no counter found")
    return VmStat(values=values)
