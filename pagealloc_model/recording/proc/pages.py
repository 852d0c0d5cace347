"""Every page of the machine: debugfs page_owner and /proc/kpageflags (T12.5, T12.7)."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.files import CHUNK, chunks_of, opened, unreadable
from pagealloc_model.recording.page_frames import (
    END_OF_MEMORY,
    LARGEST_ORDER,
    NO_HOLES,
    SECTION,
    PageFrames,
)

_BEGIN = b"Page allocated via order "
_ALLOCATION = re.compile(
    rb"Page allocated via order (\d{1,2}), mask (0x[0-9a-f]{1,8}|0)\([^)\n]*\), pid (-?\d{1,9})"
    rb"(?:, tgid (-?\d{1,9}))?(?: \((.{0,15}?)\))?, ts (\d{1,18}) ns(?:, free_ts \d+ ns)?\n"
    rb"PFN (0x[0-9a-f]{1,12}|\d{1,14}) type (\w+) Block \d+ type (\w+) ",
    re.DOTALL,
)
"""Limits of the model: orders (S1.1) and page frames."""

_COPY_AGAIN = "copy it again, or delete it to go on without owners of pages"
_TODO = "the file must be an unedited copy from debugfs; delete it to go on without owners"


@dataclass(frozen=True, kw_only=True, eq=False)
class PageOwner:
    """Allocations that were live when the file was read, one element each, in file order.

    Attributes:
        pfn: int64, first page frame, see `PageFrames`.
        order: int8.
        migratetype: int8, index into `migratetypes`: the type requested.
        block_migratetype: int8, index into `migratetypes`: the type of the page's block.
        migratetypes: the kernel's names of types, in order of appearance.
    """

    pfn: np.ndarray
    order: np.ndarray
    migratetype: np.ndarray
    block_migratetype: np.ndarray
    migratetypes: tuple[str, ...]

    def __len__(self) -> int:
        """Number of allocations."""
        return len(self.pfn)

    @property
    def pages(self) -> int:
        """Base pages of all allocations."""
        return int((np.int64(1) << self.order.astype(np.int64)).sum())

    def types_as(self, names: Sequence[str], codes: np.ndarray) -> np.ndarray:
        """`codes` by the numbering of a machine whose types have these names; -1: unknown name."""
        known = {name.lower(): index for index, name in enumerate(names)}
        table = np.array([known.get(name.lower(), -1) for name in self.migratetypes], np.int8)
        return table[codes] if len(table) else np.zeros(0, np.int8)


def read_page_owner(path: str | Path, frames: PageFrames = NO_HOLES) -> PageOwner:
    """Read page_owner text: plain, gzip, xz or zstd. Stacks are passed over.

    The file is read piece by piece, so memory holds the result and one piece only.
    """
    types: dict[bytes, int] = {}
    tables: list[np.ndarray] = []
    line = 1
    for text in _whole_allocations(path):
        rows = _ALLOCATION.findall(text)
        position: int | None = None
        if len(rows) != text.count(_BEGIN) or not text.startswith(_BEGIN[: len(text)]):
            position = 0
            while match := _ALLOCATION.match(text, position):
                following = text.find(_BEGIN, match.end())
                position = len(text) if following < 0 else following
        else:
            table = np.array(
                [
                    (
                        int(pfn, 0),
                        int(order),
                        types.setdefault(kind, len(types)),
                        types.setdefault(block, len(types)),
                    )
                    for order, *_, pfn, kind, block in rows
                ],
                np.int64,
            ).reshape(-1, 4)
            table[:, 0] = frames.indices(table[:, 0])
            pfn, order = table[:, 0], table[:, 1]
            aligned = pfn & ((np.int64(1) << np.minimum(order, LARGEST_ORDER)) - 1) == 0
            bad = np.flatnonzero((pfn >= END_OF_MEMORY) | (order > LARGEST_ORDER) | ~aligned)
            if len(bad):
                position = [match.start() for match in re.finditer(_BEGIN, text)][bad[0]]
            tables.append(table)
        if position is not None:
            number = line + text.count(b"\n", 0, position)
            what = f"line {number}: does not begin an allocation's two lines"
            raise RecordingError(path, what, todo=_TODO)
        line += text.count(b"\n")
    columns = np.concatenate(tables).T
    if not columns.size:
        raise RecordingError(path, "line 1: no allocation found; was page_owner=on?", todo=_TODO)
    return PageOwner(
        pfn=columns[0].copy(),
        order=columns[1].astype(np.int8),
        migratetype=columns[2].astype(np.int8),
        block_migratetype=columns[3].astype(np.int8),
        migratetypes=tuple(name.decode() for name in types),
    )


def _whole_allocations(path: str | Path) -> Iterator[bytes]:
    """The file in pieces that end where an allocation begins."""
    rest = b""
    for chunk in chunks_of(path, todo=_COPY_AGAIN):
        rest += chunk
        cut = rest.rfind(b"\n" + _BEGIN) + 1
        if not cut and len(rest) > 2 * CHUNK:
            cut = len(rest)
        if cut:
            yield rest[:cut]
            rest = rest[cut:]
    yield rest


LRU = np.uint64(1 << 5)
SLAB = np.uint64(1 << 7)
BUDDY = np.uint64(1 << 10)
MMAP = np.uint64(1 << 11)
ANON = np.uint64(1 << 12)
COMPOUND_TAIL = np.uint64(1 << 16)
HUGE = np.uint64(1 << 17)
HWPOISON = np.uint64(1 << 19)
NOPAGE = np.uint64(1 << 20)
THP = np.uint64(1 << 22)
OFFLINE = np.uint64(1 << 23)
PGTABLE = np.uint64(1 << 26)
RESERVED = np.uint64(1 << 32)

_MOST_UNKNOWN = 1 << 27
"""Words that are read where nothing says how much memory the machine has: 512 GiB."""


def read_kpageflags(
    path: str | Path, page_frames: int | None = None, frames: PageFrames = NO_HOLES
) -> np.ndarray:
    """Flag words by page frame, uint64 and read-only, from a gzip of little-endian 64-bit words.

    Those of holes are passed over.

    BUDDY is set on every page of a free buddy. Pages on per-CPU lists show no flag at all, like
    plain kernel allocations (T12.5).

    A file that goes on for more than a memory section behind `page_frames`, where the machine's
    last zone ends (None if unknown), is not of this machine, and refused.
    """
    most = 8 * ((_MOST_UNKNOWN if page_frames is None else page_frames) + SECTION)
    without = "copy it again, or delete it to go on without the initial page map"
    try:
        with opened(path) as packed, gzip.open(packed, "rb") as file:
            content = b""
            for begin, end in frames.holes:
                content += file.read(min(8 * begin - file.tell(), most))
                file.seek(8 * end)
            content += file.read(most + 1 - len(content))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        what = f"is not an intact gzip file ({error})"
        raise RecordingError(path, what, todo=without) from None
    except OSError as error:
        raise unreadable(path, error) from None
    if len(content) > most:
        raise RecordingError(
            path,
            f"has more than {most // 8} words, but the machine's zones end at page frame "
            f"{page_frames}",
            todo="copy it again from the machine that was recorded, or delete it",
        )
    odd = len(content) % 8
    if odd:
        what = f"holds {len(content)} bytes, not a whole number of 64-bit words"
        raise RecordingError(path, what, offset=len(content) - odd, todo=without)
    return np.frombuffer(content, "<u8").astype(np.uint64, copy=False)
