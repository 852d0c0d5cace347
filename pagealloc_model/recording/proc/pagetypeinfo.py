"""/proc/pagetypeinfo: free lists by migratetype and pageblocks by type (T12.2)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from pagealloc_model.recording.proc.limits import LARGEST_ORDER
from pagealloc_model.recording.proc.lines import count_of_pages, integer, malformed, split_node_zone

_TYPE = re.compile(r"^,\s*type\s+(\w+)\s+(.*)$")
_ORDER = "Page block order:"
_PAGES = "Pages per block:"
_FREE = "Free pages count per migrate type at order"
_BLOCKS = "Number of blocks type"
_MIXED = "Number of mixed blocks"


@dataclass(frozen=True, kw_only=True)
class FreeListRow:
    """Free lists of one zone and migratetype.

    Attributes:
        node: NUMA node.
        zone: zone name.
        migratetype: the kernel's row label, such as "HighAtomic".
        buddies: free buddies of order 0, 1, ...
        lower_bound: per order, True where the kernel stopped counting and printed `>100000`: the
            number in `buddies` is then only a lower bound.
    """

    node: int
    zone: str
    migratetype: str
    buddies: tuple[int, ...]
    lower_bound: tuple[bool, ...]


@dataclass(frozen=True, kw_only=True)
class PageblockRow:
    """Pageblocks of one zone: `blocks[i]` have type `PageTypeInfo.migratetypes[i]`."""

    node: int
    zone: str
    blocks: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class PageTypeInfo:
    """The whole file; rows in the order the kernel prints them.

    The kernel drops zone->lock between two cells, so even one row is not a snapshot of an instant.

    Attributes:
        pageblock_order: order of a pageblock (S1.2).
        pages_per_block: base pages of a pageblock.
        migratetypes: row labels in the kernel's numbering: the index is the migratetype (S1.3).
        free_lists: one row per zone and migratetype.
        pageblocks: one row per zone.
        mixed_pageblocks: blocks holding pages of other types, empty unless page_owner is active.
    """

    pageblock_order: int
    pages_per_block: int
    migratetypes: tuple[str, ...]
    free_lists: tuple[FreeListRow, ...]
    pageblocks: tuple[PageblockRow, ...]
    mixed_pageblocks: tuple[PageblockRow, ...] = ()

    @property
    def is_exact(self) -> bool:
        """False if any count is only a lower bound."""
        return not any(any(row.lower_bound) for row in self.free_lists)


@dataclass
class _Parser:
    """Lines seen so far; the sections repeat once per node."""

    path: str | Path
    number: int = 0
    section: str = ""
    orders: int = 0
    header: dict[str, int] = field(default_factory=dict)
    migratetypes: tuple[str, ...] = ()
    rows: set[tuple[object, ...]] = field(default_factory=set)
    free_lists: list[FreeListRow] = field(default_factory=list)
    pageblocks: dict[str, list[PageblockRow]] = field(
        default_factory=lambda: {_BLOCKS: [], _MIXED: []}
    )

    def line(self, line: str) -> None:
        """Take one line that is not blank."""
        if line.startswith((_ORDER, _PAGES)):
            name, _, value = line.partition(":")
            self.header[f"{name}:"] = integer(value.strip(), self.path, self.number)
        elif line.startswith(_FREE):
            self.section = _FREE
            self.orders = len(line.removeprefix(_FREE).split())
        elif line.startswith((_BLOCKS, _MIXED)):
            self.section = _BLOCKS if line.startswith(_BLOCKS) else _MIXED
            self._labels(tuple(line.removeprefix(self.section).split()))
        else:
            self._row(line)

    def _labels(self, labels: tuple[str, ...]) -> None:
        if self.migratetypes and labels != self.migratetypes:
            raise malformed(self.path, self.number, "names other migratetypes than before")
        self.migratetypes = labels

    def _row(self, line: str) -> None:
        row = split_node_zone(line)
        if row is None or not self.section:
            raise malformed(self.path, self.number, "is neither a header nor a zone's row")
        if self.section == _FREE:
            self._free_list(*row)
        else:
            self._pageblocks(*row)

    def _free_list(self, node: int, zone: str, rest: str) -> None:
        match = _TYPE.match(rest)
        if match is None:
            raise malformed(self.path, self.number, "has no ', type NAME' and counts")
        words = match[2].split()
        if len(words) != self.orders:
            raise malformed(
                self.path, self.number, f"has {len(words)} counts for {self.orders} orders"
            )
        buddies = tuple(self._count(word.removeprefix(">")) for word in words)
        self._once(_FREE, node, zone, match[1])
        self.free_lists.append(
            FreeListRow(
                node=node,
                zone=zone,
                migratetype=match[1],
                buddies=buddies,
                lower_bound=tuple(word.startswith(">") for word in words),
            )
        )

    def _pageblocks(self, node: int, zone: str, rest: str) -> None:
        blocks = tuple(map(self._count, rest.split()))
        if len(blocks) != len(self.migratetypes):
            raise malformed(
                self.path,
                self.number,
                f"has {len(blocks)} counts for {len(self.migratetypes)} migratetypes",
            )
        self._once(self.section, node, zone)
        self.pageblocks[self.section].append(PageblockRow(node=node, zone=zone, blocks=blocks))

    def _count(self, word: str) -> int:
        return count_of_pages(word, self.path, self.number)

    def _once(self, *row: object) -> None:
        if row in self.rows:
            raise malformed(self.path, self.number, "is a row that was there before")
        self.rows.add(row)

    def finish(self) -> PageTypeInfo:
        """What was read; the labels of the free lists must be those of the block counts."""
        for name in (_ORDER, _PAGES):
            if name not in self.header:
                raise malformed(self.path, self.number, f"ends without '{name}'")
        if not self.free_lists or not self.pageblocks[_BLOCKS]:
            raise malformed(self.path, self.number, "ends without free lists and block counts")
        strange = {row.migratetype for row in self.free_lists} - set(self.migratetypes)
        if strange:
            raise malformed(
                self.path, self.number, f"counts no blocks of type {', '.join(sorted(strange))}"
            )
        order, pages = self.header[_ORDER], self.header[_PAGES]
        if not 0 < order <= LARGEST_ORDER or pages != 1 << order:
            what = f"blocks of order {order} and {pages} pages are of no kernel"
            raise malformed(self.path, 1, what)
        return PageTypeInfo(
            pageblock_order=self.header[_ORDER],
            pages_per_block=self.header[_PAGES],
            migratetypes=self.migratetypes,
            free_lists=tuple(self.free_lists),
            pageblocks=tuple(self.pageblocks[_BLOCKS]),
            mixed_pageblocks=tuple(self.pageblocks[_MIXED]),
        )


def parse_pagetypeinfo(text: str, path: str | Path = "pagetypeinfo") -> PageTypeInfo:
    """Read the text of /proc/pagetypeinfo.

    Args:
        text: the file's content.
        path: named in errors.

    Raises:
        RecordingError: a line is unknown, rows disagree in length, a row appears twice, a count is
            beyond all memory, or a section is missing.
    """
    parser = _Parser(path)
    for parser.number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            parser.line(line)
    return parser.finish()
