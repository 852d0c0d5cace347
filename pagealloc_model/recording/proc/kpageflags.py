"""/proc/kpageflags: one flag word per page frame (T12.5)."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.given_file import refuse_unless_file

LRU = np.uint64(1 << 5)
SLAB = np.uint64(1 << 7)
BUDDY = np.uint64(1 << 10)
MMAP = np.uint64(1 << 11)
ANON = np.uint64(1 << 12)
COMPOUND_HEAD = np.uint64(1 << 15)
COMPOUND_TAIL = np.uint64(1 << 16)
HUGE = np.uint64(1 << 17)
HWPOISON = np.uint64(1 << 19)
NOPAGE = np.uint64(1 << 20)
THP = np.uint64(1 << 22)
OFFLINE = np.uint64(1 << 23)
PGTABLE = np.uint64(1 << 26)
RESERVED = np.uint64(1 << 32)

_SECTION = 1 << 15
"""Page frames of a memory section, to which the kernel fills the file up."""
_MOST_UNKNOWN = 1 << 27
"""Words that are read where nothing says how much memory the machine has: 512 GiB."""


def read_kpageflags(path: str | Path, page_frames: int | None = None) -> np.ndarray:
    """Flag words of all page frames, from a gzip of little-endian 64-bit words.

    BUDDY is set on every page of a free buddy. Pages on per-CPU lists show no flag at all, like
    plain kernel allocations (T12.5).

    Args:
        path: the gzip file.
        page_frames: where the machine's last zone ends; a file that goes on for more than a memory
            section behind it is not of this machine. None if unknown.

    Returns:
        uint64 array indexed by page frame number, read-only.

    Raises:
        RecordingError: the file cannot be read, is not an intact gzip, is cut inside a word or has
            more words than the machine has page frames.
    """
    refuse_unless_file(path)
    most = 8 * ((_MOST_UNKNOWN if page_frames is None else page_frames) + _SECTION)
    try:
        with gzip.open(path, "rb") as file:
            content = file.read(most + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RecordingError(
            path,
            f"is not an intact gzip file ({error})",
            todo="copy it again, or delete it to go on without the initial page map",
        ) from None
    except OSError as error:
        raise RecordingError(
            path, f"cannot be read ({error.strerror})", todo="check the path and its permissions"
        ) from None
    if len(content) > most:
        raise RecordingError(
            path,
            f"has more than {most // 8} words, but the machine's zones end at page frame "
            f"{page_frames}",
            todo="copy it again from the machine that was recorded, or delete it",
        )
    if len(content) % 8:
        raise RecordingError(
            path,
            f"holds {len(content)} bytes, not a whole number of 64-bit words",
            offset=len(content) - len(content) % 8,
            todo="copy it again, or delete it to go on without the initial page map",
        )
    return np.frombuffer(content, "<u8").astype(np.uint64, copy=False)
