"""/proc/kpageflags: one flag word per page frame (T12.5)."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from pagealloc_model.base.errors import RecordingError

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


def read_kpageflags(path: str | Path) -> np.ndarray:
    """Flag words of all page frames, from a gzip of little-endian 64-bit words.

    BUDDY is set on every page of a free buddy. Pages on per-CPU lists show no flag at all, like
    plain kernel allocations (T12.5).

    Args:
        path: the gzip file.

    Returns:
        uint64 array indexed by page frame number, read-only.

    Raises:
        RecordingError: the file cannot be read, is not an intact gzip or is cut inside a word.
    """
    try:
        with gzip.open(path, "rb") as file:
            content = file.read()
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
    if len(content) % 8:
        raise RecordingError(
            path,
            f"holds {len(content)} bytes, not a whole number of 64-bit words",
            offset=len(content) - len(content) % 8,
            todo="copy it again, or delete it to go on without the initial page map",
        )
    return np.frombuffer(content, "<u8").astype(np.uint64, copy=False)
