"""What was made of a recording's files, kept on disk: the next process need not make it again.

A file is named by all that its content rests on: the recording's files (place, size, times, inode),
the sources of this package, and what was asked for. None is ever out of date; a change makes
another name. The oldest go when they take too much room.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import pickle
import stat
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar
from weakref import WeakSet

import numpy as np

Made = TypeVar("Made")

WORTH_S = 0.3
"""What is made in less is not kept."""
MOST_BYTES = 6 << 30
"""Of all that is kept; a single file may take half of it."""
_FOLDER = "prepared"


class Recording(Protocol):
    """What is asked of a recording here.

    Attributes:
        path: its directory or file.
        name: its short name.
    """

    path: Path
    name: str


_opened: WeakSet[Recording] = WeakSet()


def vouch_for(recording: Recording) -> None:
    """Say that a recording is what its files hold; copies with other content never are."""
    _opened.add(recording)


def kept_object(
    recording: Recording, what: str, about: tuple[object, ...], make: Callable[[], Made]
) -> Made:
    """Return what was kept, or make it, and keep it where that took long.

    Args:
        recording: that it is made of.
        what: names it, for a person who looks at the directory.
        about: dataclasses and plain values that it rests on too.
        make: makes it anew.

    Raises:
        whatever `make` raises.
    """
    file = _file(recording, what, about)
    if file is not None:
        with suppress(OSError):
            found = _kept(file)
            if found is not _NOTHING:
                return found
    begun = time.perf_counter()
    made = make()
    if file is not None and time.perf_counter() - begun >= WORTH_S:
        _keep(file, made)
    return made


_NOTHING = object()
_END = struct.Struct("<QI")
"""Length and checksum of what stands before them."""


def _kept(file: Path) -> Any:
    """What a file keeps, `_NOTHING` if it is another user's, cut or damaged; then it goes."""
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as opened:
        about = os.fstat(opened.fileno())
        if about.st_uid not in (0, os.geteuid()) or not stat.S_ISREG(about.st_mode):
            return _NOTHING
        if about.st_size > _END.size:
            with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                whole = memoryview(mapped)
                content, end = whole[: -_END.size], whole[-_END.size :]
                try:
                    if _END.unpack(end) == (len(content), zlib.crc32(content)):
                        with suppress(Exception):  # of a library that has changed since
                            found = pickle.loads(content)
                            os.utime(file)
                            return found
                finally:
                    for view in (content, end, whole):
                        view.release()
    file.unlink()
    return _NOTHING


def kept_directory() -> Path:
    """Where it is kept; may not be there yet."""
    from pagealloc_model.base.jit import cache_base

    return cache_base() / _FOLDER


def _file(recording: Recording, what: str, about: tuple[object, ...]) -> Path | None:
    """The file of something, None of a recording that may differ from its files."""
    if recording not in _opened or _is_changed(recording):
        return None
    parts = [_sources(), what, *_identities(recording.path), *map(_words, about)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    return kept_directory() / f"{recording.name}-{what}-{key}.pickle"


def _is_changed(recording: Recording) -> bool:
    """Whether something else was put in the place of what the files hold."""
    held = vars(recording)
    return "trace" in held and held["trace"] is not held.get("trace_as_read")


def _identities(path: Path) -> list[str]:
    """Each file's place, size, times and inode; a change of its content changes one of them."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    found = []
    for file in files:
        seen = file.stat() if file == path else file.lstat()
        identity = (seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_dev, seen.st_ino)
        found.append(f"{os.path.realpath(file)} {identity}")
    return found


@lru_cache(maxsize=1)
def _sources() -> str:
    """Digest of this package's sources and of what else shapes what is kept."""
    digest = hashlib.sha256(f"{sys.version} {np.__version__} {sys.byteorder}".encode())
    package = Path(__file__).parents[1]
    for source in sorted(package.rglob("*.py")):
        digest.update(str(source.relative_to(package)).encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _words(value: object) -> str:
    if is_dataclass(value) and not isinstance(value, type):
        return f"{type(value).__name__} {sorted(asdict(value).items())!r}"
    return repr(value)


def _keep(file: Path, made: object) -> None:
    """Write a file whole or not at all, and make room; where that cannot be, nothing is kept."""
    with suppress(OSError, MemoryError):
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=".", dir=file.parent)
        partial = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as opened:
                bounded = _Bounded(opened)
                pickle.dump(made, bounded, protocol=5)
                opened.write(_END.pack(bounded.written, bounded.checksum))
            os.replace(partial, file)
        finally:
            partial.unlink(missing_ok=True)
        _prune(file.parent)


class _Bounded:
    """A file to write to that takes half of `MOST_BYTES`; more is an OSError."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.written = self.checksum = 0

    def write(self, part: bytes | memoryview) -> int:
        """Write a part, if it has room."""
        size = memoryview(part).nbytes
        self.written += size
        self.checksum = zlib.crc32(part, self.checksum)
        if self.written > MOST_BYTES // 2:
            raise OSError(errno.EFBIG, "larger than what is kept")
        self._file.write(part)
        return size


def _prune(directory: Path) -> None:
    """Remove what was not used for longest until the rest fits."""
    files = sorted(
        (file for file in directory.iterdir() if file.is_file()),
        key=lambda file: file.stat().st_mtime_ns,
        reverse=True,
    )
    room = MOST_BYTES
    for file in files:
        room -= file.stat().st_size
        if room < 0:
            file.unlink(missing_ok=True)
