"""/proc/zoneinfo: watermarks, sizes, counters and per-CPU page lists of every zone (T12.3)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from pagealloc_model.recording.proc.limits import impossible_values
from pagealloc_model.recording.proc.lines import integer, malformed, split_node_zone
from pagealloc_model.recording.proc.zone_values import PageSet, ZoneInfo, ZoneInfoZone

_NUMBERS = re.compile(r"^\(([\d,\s]*)\)$")
_SIZES = ("boost", "min", "low", "high", "promo", "spanned", "present", "managed", "cma")
_REQUIRED_SIZES = ("min", "low", "high", "spanned", "present", "managed")
_TAIL = ("start_pfn", "reserved_highatomic", "free_highatomic")
_PAGESET = ("count", "high", "batch", "high_min", "high_max")


@dataclass
class _ZoneLines:
    """Fields of the zone being read."""

    node: int
    name: str
    line_number: int
    sizes: dict[str, int] = field(default_factory=dict)
    protection: tuple[int, ...] = ()
    tail: dict[str, int] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    pagesets: list[dict[str, int]] = field(default_factory=list)

    def finish(self, path: str | Path) -> ZoneInfoZone:
        """The zone, once all of its lines are read."""
        missing = [name for name in ("free", *_REQUIRED_SIZES) if name not in self.sizes]
        if missing:
            raise malformed(path, self.line_number, f"zone {self.name} has no {', '.join(missing)}")
        pagesets = tuple(self._pageset(values, path) for values in self.pagesets)
        thresholds = [p.vm_stats_threshold for p in pagesets if p.vm_stats_threshold is not None]
        zone = ZoneInfoZone(
            node=self.node,
            name=self.name,
            **self.sizes,
            **self.tail,
            protection=self.protection,
            vm_stats_threshold=max(thresholds, default=None),
            counters=self.counters,
            pagesets=pagesets,
        )
        for what in impossible_values(zone):
            raise malformed(path, self.line_number, f"zone {self.name} {what}")
        return zone

    def _pageset(self, values: dict[str, int], path: str | Path) -> PageSet:
        missing = [name for name in ("count", "high", "batch") if name not in values]
        if missing:
            raise malformed(
                path,
                self.line_number,
                f"zone {self.name}, cpu {values['cpu']} has no {', '.join(missing)}",
            )
        return PageSet(**values)


class _Parser:
    """Reads line after line; which names are known depends on the section."""

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self.number = 0
        self.zones: list[ZoneInfoZone] = []
        self.node_counters: dict[int, dict[str, int]] = {}
        self.zone: _ZoneLines | None = None
        self.section = ""

    def line(self, line: str) -> None:
        """Take one line that is not blank."""
        header = split_node_zone(line)
        if header is not None:
            self._close()
            if any((each.node, each.name) == header[:2] for each in self.zones):
                what = f"zone {header[1]} of node {header[0]} appears a second time"
                raise malformed(self.path, self.number, what)
            self.zone = _ZoneLines(header[0], header[1], self.number)
            self.section = ""
            return
        if self.zone is None:
            raise malformed(self.path, self.number, "comes before any 'Node N, zone NAME' line")
        text = line.strip()
        if text in ("per-node stats", "pagesets"):
            self.section = text
            return
        name, value = self._name_and_value(text)
        self._field(self.zone, name, value)

    def _name_and_value(self, text: str) -> tuple[str, str]:
        """Split at the colon, or at the last blank where the kernel prints none."""
        name, separator, value = text.partition(":")
        if not separator:
            name, _, value = text.rpartition(" ")
        if not name.strip() or not value.strip():
            raise malformed(self.path, self.number, "is not a name and a value")
        return name.strip(), value.strip()

    def _field(self, zone: _ZoneLines, name: str, value: str) -> None:
        if name == "protection":
            zone.protection = self._numbers(value)
            return
        count = integer(value, self.path, self.number)
        if name == "pages free":
            self._once(zone.sizes, "free", count)
            self.section = "pages"
        elif name == "node_unreclaimable" or name in _TAIL:
            self.section = "tail"
            if name in _TAIL:
                self._once(zone.tail, name, count)
        elif self.section == "per-node stats":
            self.node_counters.setdefault(zone.node, {})[name] = count
        elif self.section == "pagesets":
            self._pageset_field(zone, name, count)
        elif self.section == "pages" and name in _SIZES:
            self._once(zone.sizes, name, count)
        else:
            zone.counters[name] = count

    def _pageset_field(self, zone: _ZoneLines, name: str, count: int) -> None:
        if name == "cpu":
            zone.pagesets.append({"cpu": count})
        elif not zone.pagesets:
            raise malformed(self.path, self.number, f"{name} comes before any 'cpu:' line")
        elif name in _PAGESET:
            self._once(zone.pagesets[-1], name, count)
        elif name == "vm stats threshold":
            zone.pagesets[-1]["vm_stats_threshold"] = count

    def _once(self, fields: dict[str, int], name: str, count: int) -> None:
        if name in fields:
            raise malformed(self.path, self.number, f"{name} appears a second time")
        fields[name] = count

    def _numbers(self, value: str) -> tuple[int, ...]:
        match = _NUMBERS.match(value)
        if match is None:
            raise malformed(self.path, self.number, f"{value!r} is not a list of counts")
        return tuple(
            integer(word.strip(), self.path, self.number)
            for word in match[1].split(",")
            if word.strip()
        )

    def _close(self) -> None:
        if self.zone is not None:
            self.zones.append(self.zone.finish(self.path))

    def finish(self) -> ZoneInfo:
        """What was read."""
        self._close()
        if not self.zones:
            raise malformed(self.path, max(self.number, 1), "no zone found")
        return ZoneInfo(
            zones=tuple(self.zones),
            node_counters=self.node_counters,
        )


def parse_zoneinfo(text: str, path: str | Path = "zoneinfo") -> ZoneInfo:
    """Read the text of /proc/zoneinfo.

    Column padding and the set of fields differ between kernels; fields a kernel does not print
    are None, lines of pagesets that are not modelled are passed over.

    Args:
        text: the file's content.
        path: named in errors.

    Raises:
        RecordingError: a line is not a name and a count, a zone lacks its sizes or watermarks, a
            field or a zone appears twice, or a value is one that no kernel prints: see `limits`.
    """
    parser = _Parser(path)
    for parser.number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            parser.line(line)
    return parser.finish()
