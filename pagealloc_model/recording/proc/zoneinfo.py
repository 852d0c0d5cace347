"""/proc/zoneinfo, and how every file of /proc is read: lines, counts, complaints (T12.3)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.files import text_of


@dataclass(frozen=True, kw_only=True)
class PageSet:
    """One CPU's page lists (PCP) of a zone (S4.1); counts are base pages.

    Attributes:
        cpu: CPU number.
        count: pages on the lists.
        high: count above which a free drains.
        batch: the zone's batch (S4.2).
        high_min: lower bound of `high`, None where the kernel does not print it.
        high_max: upper bound of `high`, None where the kernel does not print it.
        vm_stats_threshold: per-CPU counter delta that is folded at once (S1.10), None if absent.
    """

    cpu: int
    count: int
    high: int
    batch: int
    high_min: int | None = None
    high_max: int | None = None
    vm_stats_threshold: int | None = None


@dataclass(frozen=True, kw_only=True)
class ZoneInfoZone:
    """One zone; sizes in base pages, None where this kernel does not print the field.

    `min`, `low`, `high` and `promo` are stored as printed, and the kernel prints them with the
    momentary boost added: subtract `boost` for the watermarks of S1.6.

    Attributes:
        node: NUMA node.
        name: zone name.
        free: pages on the free lists, without those on per-CPU lists.
        boost: watermark boost (S1.7).
        min: min watermark, boost included.
        low: low watermark, boost included.
        high: high watermark, boost included.
        promo: promotion watermark, boost included.
        spanned: page frames between the zone's first and last.
        present: page frames that exist.
        managed: page frames given to the allocator; 0 for a zone that is only a name.
        cma: pages reserved for contiguous allocation.
        protection: lowmem_reserve against requests for zone 0, 1, ... (S1.8).
        start_pfn: first page frame; None for a zone without pages.
        reserved_highatomic: pages of HIGHATOMIC pageblocks, free or not (S7).
        free_highatomic: free pages among them.
        vm_stats_threshold: the largest of the CPUs' thresholds (S1.10).
        counters: zone counters such as "nr_free_pages" under the kernel's names.
        pagesets: the CPUs' page lists, empty for a zone without pages.
    """

    node: int
    name: str
    free: int
    boost: int | None = None
    min: int
    low: int
    high: int
    promo: int | None = None
    spanned: int
    present: int
    managed: int
    cma: int | None = None
    protection: tuple[int, ...] = ()
    start_pfn: int | None = None
    reserved_highatomic: int | None = None
    free_highatomic: int | None = None
    vm_stats_threshold: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    pagesets: tuple[PageSet, ...] = ()

    @property
    def end_pfn(self) -> int | None:
        """First page frame behind the zone, None for a zone without pages."""
        return None if self.start_pfn is None else self.start_pfn + self.spanned


@dataclass(frozen=True, kw_only=True)
class ZoneInfo:
    """All zones in the order the kernel prints them: by node, then by zone index.

    Attributes:
        zones: the zones, those with no page included.
        node_counters: the per-node counters by node.
    """

    zones: tuple[ZoneInfoZone, ...]
    node_counters: Mapping[int, Mapping[str, int]]


NR_CPUS_MAX = 8192
"""CPUs of the largest kernel configuration."""
END_OF_MEMORY = 1 << 31
"""Page frames that the model can number: 8 TiB of 4 KiB pages."""
LARGEST_ORDER = 14


def impossible_values(zone: ZoneInfoZone) -> Iterator[str]:
    """Say what of a zone no kernel prints; nothing if all of it is possible."""
    end = (zone.start_pfn or 0) + zone.spanned
    if end > END_OF_MEMORY:
        yield f"ends at page frame {end}, the model knows memory up to {END_OF_MEMORY}"
    for name, other in (("managed", "present"), ("present", "spanned"), ("free", "present")):
        mine, bound = getattr(zone, name), getattr(zone, other)
        if mine > bound:
            yield f"has {name} {mine} above {other} {bound}"
    if zone.managed:
        yield from _impossible_marks(zone)
    seen: set[int] = set()
    for pageset in zone.pagesets:
        if pageset.cpu in seen:
            yield f"has cpu {pageset.cpu} a second time"
        seen.add(pageset.cpu)
        for what in _impossible_limits(pageset, zone.present):
            yield f"cpu {pageset.cpu} has {what}"


def _impossible_marks(zone: ZoneInfoZone) -> Iterator[str]:
    """Watermarks are printed with the boost included."""
    boost = zone.boost or 0
    if boost > zone.min:
        yield f"has boost {boost} above min {zone.min}, which includes it"
    if not zone.min <= zone.low <= zone.high:
        yield f"has min {zone.min}, low {zone.low} and high {zone.high}, which do not ascend"
    if zone.high - boost > zone.present:
        yield f"has high {zone.high} above its {zone.present} pages"


def _impossible_limits(pageset: PageSet, present: int) -> Iterator[str]:
    """A zone's batch and limits come from its pages; high is at least four batches (S4.2)."""
    most = max(present, 1)
    if not 1 <= pageset.batch <= most:
        yield f"batch {pageset.batch}, in a zone of {present} pages"
    limits: Mapping[str, int | None] = {
        "high": pageset.high,
        "high_min": pageset.high_min,
        "high_max": pageset.high_max,
        "count": pageset.count,
    }
    for name, value in limits.items():
        if value is not None and value > max(present, 4 * pageset.batch):
            yield f"{name} {value}, in a zone of {present} pages"
    low, high = pageset.high_min, pageset.high_max
    if low is not None and high is not None and low > high:
        yield f"high_min {low} above high_max {high}"
    if pageset.cpu >= NR_CPUS_MAX:
        yield f"a number that no kernel knows; there are at most {NR_CPUS_MAX} CPUs"


_DIGITS = 20
_NODE_ZONE = re.compile(r"^Node\s+(\d+),\s+zone\s+(\w+)(.*)$")


def read_text(path: str | Path, below: Path | None = None) -> str:
    """The text of one state file.

    Args:
        path: the file.
        below: a directory that it lies in, with no link between the two.

    Raises:
        RecordingError: it is no file, cannot be read, is too long or is not text.
    """
    return text_of(path, "ascii", todo="copy the file from /proc again", below=below)


def malformed(path: str | Path, line_number: int, what: str) -> RecordingError:
    """The error for a line that does not look as any known kernel prints it."""
    return RecordingError(
        path,
        f"line {line_number}: {what}",
        todo="the file must be an unedited copy from /proc of a kernel from 6.1 to 7.3",
    )


def integer(word: str, path: str | Path, line_number: int) -> int:
    """A non-negative decimal number.

    Raises:
        RecordingError: the word is anything else, or more than a kernel's word can hold.
    """
    if not (word.isascii() and word.isdigit()):
        raise malformed(path, line_number, f"{word!r} is not a count")
    if len(word) > _DIGITS or int(word) >= 1 << 64:
        raise malformed(path, line_number, f"{word[:_DIGITS]}... is more than 64 bits hold")
    return int(word)


def count_of_pages(word: str, path: str | Path, line_number: int) -> int:
    """A number of pages, buddies or blocks."""
    count = integer(word, path, line_number)
    if count > END_OF_MEMORY:
        raise malformed(path, line_number, f"{word} is more than memory can have pages")
    return count


def split_node_zone(line: str) -> tuple[int, str, str] | None:
    """Node, zone name and the rest of a `Node N, zone NAME ...` line; None for other lines."""
    match = _NODE_ZONE.match(line)
    if match is None:
        return None
    return int(match[1]), match[2], match[3]


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
        self.seen: set[tuple[int, str]] = set()
        self.node_counters: dict[int, dict[str, int]] = {}
        self.zone: _ZoneLines | None = None
        self.section = ""

    def line(self, line: str) -> None:
        """Take one line that is not blank."""
        header = split_node_zone(line)
        if header is not None:
            self._close()
            if header[:2] in self.seen:
                what = f"zone {header[1]} of node {header[0]} appears a second time"
                raise malformed(self.path, self.number, what)
            self.seen.add(header[:2])
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
            field or a zone appears twice, or a value is one that no kernel prints.
    """
    parser = _Parser(path)
    for parser.number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            parser.line(line)
    return parser.finish()
