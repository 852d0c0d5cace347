"""/proc/zoneinfo, and the lines, counts and complaints of every file of /proc (T12.3)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.page_frames import (
    END_OF_MEMORY,
    END_OF_NUMBERS,
    NO_HOLES,
    PageFrames,
)


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
    """

    cpu: int
    count: int
    high: int
    batch: int
    high_min: int | None = None
    high_max: int | None = None


@dataclass(frozen=True, kw_only=True)
class ZoneInfoZone:
    """One zone; sizes in base pages, None where this kernel does not print the field.

    `min`, `low` and `high` are stored as printed, and the kernel prints them with the momentary
    boost added: subtract `boost` for the watermarks of S1.6.

    Attributes:
        node: NUMA node.
        name: zone name.
        free: pages on the free lists, without those on per-CPU lists.
        boost: watermark boost (S1.7).
        min: min watermark, as printed; so are `low` and `high`.
        spanned: page frames between the zone's first and last.
        present: page frames that exist.
        managed: page frames given to the allocator; 0 for a zone that is only a name.
        protection: lowmem_reserve against requests for zone 0, 1, ... (S1.8).
        start_pfn: first page frame, see `ZoneInfo.frames`; None for a zone without pages.
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
    spanned: int
    present: int
    managed: int
    protection: tuple[int, ...] = ()
    start_pfn: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    pagesets: tuple[PageSet, ...] = ()

    @property
    def end_pfn(self) -> int | None:
        """First page frame behind the zone, None for a zone without pages."""
        return None if self.start_pfn is None else self.start_pfn + self.spanned


@dataclass(frozen=True, kw_only=True)
class ZoneInfo:
    """All zones, by node and then by zone index.

    Attributes:
        frames: how the page frames of populated zones are counted; the zones have theirs that way.
    """

    zones: tuple[ZoneInfoZone, ...]
    frames: PageFrames = NO_HOLES

    @staticmethod
    def of(zones: Sequence[ZoneInfoZone]) -> ZoneInfo:
        """Zones as the kernel numbers their page frames."""
        spans = ((zone.start_pfn, zone.end_pfn) for zone in zones if zone.managed)
        frames = PageFrames.of((first, end) for first, end in spans if first is not None and end)
        counted = (
            replace(zone, start_pfn=frames.index(zone.start_pfn))
            if zone.start_pfn is not None and zone.spanned
            else zone
            for zone in zones
        )
        return ZoneInfo(zones=tuple(counted), frames=frames)


NR_CPUS_MAX = 8192
"""CPUs of the largest kernel configuration."""
_DIGITS = 20
_NODE_ZONE = re.compile(r"^Node\s+(\d{1,4}),\s+zone\s+(\w+)(.*)")


def malformed(path: str | Path, line_number: int, what: str) -> RecordingError:
    """The error for a line that does not look as any known kernel prints it."""
    return RecordingError(
        path,
        f"line {line_number}: {what}",
        todo="the file must be an unedited copy from /proc of a kernel from 6.1 to 7.3",
    )


def integer(word: str, path: str | Path, line_number: int) -> int:
    """A non-negative decimal number of at most 64 bits; a RecordingError of any other word."""
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
    return None if match is None else (int(match[1]), match[2], match[3])


_NUMBERS = re.compile(r"^\(([\d,\s]*)\)$")
_REQUIRED = ("free", "min", "low", "high", "spanned", "present", "managed")
_SIZES = (*_REQUIRED[1:], "boost", "promo", "cma")
_NOT_KEPT = ("promo", "cma", "reserved_highatomic", "free_highatomic")
_TAIL = ("start_pfn", "reserved_highatomic", "free_highatomic")
_PAGESET_REQUIRED = ("count", "high", "batch")
_PAGESET = (*_PAGESET_REQUIRED, "high_min", "high_max")


def parse_zoneinfo(text: str, path: str | Path = "zoneinfo") -> ZoneInfo:
    """Read the text of /proc/zoneinfo; the path is named in errors.

    Column padding and the set of fields differ between kernels; fields a kernel does not print
    are None, lines of pagesets that are not modelled are passed over.
    """
    lines_of: dict[tuple[int, str], list[tuple[int, str]]] = {}
    lines: list[tuple[int, str]] | None = None
    number = 1
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        header = split_node_zone(line)
        if header is not None:
            if header[:2] in lines_of:
                what = f"zone {header[1]} of node {header[0]} appears a second time"
                raise malformed(path, number, what)
            lines = lines_of[header[:2]] = [(number, "")]
        elif lines is None:
            raise malformed(path, number, "comes before any 'Node N, zone NAME' line")
        else:
            lines.append((number, line.strip()))
    if not lines_of:
        raise malformed(path, number, "no zone found")
    return ZoneInfo.of([_zone(node, name, lines, path) for (node, name), lines in lines_of.items()])


def _zone(node: int, name: str, lines: list[tuple[int, str]], path: str | Path) -> ZoneInfoZone:
    """A zone from its numbered lines; which names are known depends on the section."""
    fields: dict[str, Any] = {}
    counters: dict[str, int] = {}
    pagesets: list[dict[str, int]] = []
    section = ""
    (begin, _), *rest = lines
    for number, text in rest:
        if text in ("per-node stats", "pagesets"):
            section = text
            continue
        label, colon, value = text.partition(":")
        if not colon:
            label, _, value = text.rpartition(" ")
        label, value = label.strip(), value.strip()
        if not label or not value:
            raise malformed(path, number, "is not a name and a value")
        if label == "protection":
            match = _NUMBERS.match(value)
            if match is None:
                raise malformed(path, number, f"{value!r} is not a list of counts")
            words = (word.strip() for word in match[1].split(","))
            fields[label] = tuple(count_of_pages(word, path, number) for word in words if word)
            continue
        count = integer(value, path, number)
        known: dict[str, Any] | None = None
        if label == "pages free":
            known, label, section = fields, "free", "pages"
        elif label == "node_unreclaimable" or label in _TAIL:
            section = "tail"
            known = fields if label in _TAIL else None
        elif section == "pagesets":
            if label == "cpu":
                pagesets.append({"cpu": count})
            elif not pagesets:
                raise malformed(path, number, f"{label} comes before any 'cpu:' line")
            elif label in _PAGESET:
                known = pagesets[-1]
        elif section == "pages" and label in _SIZES:
            known = fields
        elif section != "per-node stats":
            counters[label] = count
        if known is not None:
            if label in known:
                raise malformed(path, number, f"{label} appears a second time")
            known[label] = count
    missing = [size for size in _REQUIRED if size not in fields]
    if missing:
        raise malformed(path, begin, f"zone {name} has no {', '.join(missing)}")
    for values in pagesets:
        missing = [label for label in _PAGESET_REQUIRED if label not in values]
        if missing:
            what = f"zone {name}, cpu {values['cpu']} has no {', '.join(missing)}"
            raise malformed(path, begin, what)
    zone = ZoneInfoZone(
        node=node,
        name=name,
        **{name: value for name, value in fields.items() if name not in _NOT_KEPT},
        counters=counters,
        pagesets=tuple(PageSet(**values) for values in pagesets),
    )
    for what in _impossible_values(zone):
        raise malformed(path, begin, f"zone {name} {what}")
    return zone


def _impossible_values(zone: ZoneInfoZone) -> Iterator[str]:
    """Values of a zone that no kernel prints: batch and limits come from its pages (S4.2)."""
    if zone.spanned > END_OF_MEMORY:
        yield f"spans {zone.spanned} page frames, the model knows {END_OF_MEMORY} at most"
    if (zone.end_pfn or 0) > END_OF_NUMBERS:
        yield f"ends at page frame {zone.end_pfn}, and no kernel numbers more than 2^52"
    for name, other in (("managed", "present"), ("present", "spanned"), ("free", "present")):
        value, bound = getattr(zone, name), getattr(zone, other)
        if value > bound:
            yield f"has {name} {value} above {other} {bound}"
    present, boost = zone.present, zone.boost or 0
    if zone.managed:
        if boost > zone.min:
            yield f"has boost {boost} above min {zone.min}, which includes it"
        if not zone.min <= zone.low <= zone.high:
            yield f"has min {zone.min}, low {zone.low} and high {zone.high}, which do not ascend"
        if zone.high - boost > present:
            yield f"has high {zone.high} above its {present} pages"
    seen: set[int] = set()
    for pageset in zone.pagesets:
        cpu = pageset.cpu
        if cpu in seen:
            yield f"has cpu {cpu} a second time"
        seen.add(cpu)
        if not 1 <= pageset.batch <= max(present, 1):
            yield f"cpu {cpu} has batch {pageset.batch}, in a zone of {present} pages"
        for name in ("high", "high_min", "high_max", "count"):
            value = getattr(pageset, name)
            if value is not None and value > max(present, 4 * pageset.batch):
                yield f"cpu {cpu} has {name} {value}, in a zone of {present} pages"
        if cpu >= NR_CPUS_MAX:
            yield (
                f"cpu {cpu} has a number that no kernel knows; there are at most {NR_CPUS_MAX} CPUs"
            )
