"""What is done to a sound recording to make a hostile one: each takes its directory."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[Path], object]
GIB = 1 << 30
PIECE = bytes(1 << 24)
EVENT = "task 1 [000] 1.000{}: kmem:mm_page_{}\n"
ALLOC = "alloc: page=0x1 pfn={} order={} migratetype={} gfp_flags=GFP_KERNEL"


def each_snapshot(name: str, change: Callable[[Path], object]) -> Damage:
    def damage(recording: Path) -> None:
        for file in recording.glob(f"snapshots/*/{name}"):
            change(file)

    return damage


def replaced(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        file.unlink(missing_ok=True)
        make(file)

    return change


fifo = replaced(os.mkfifo)
zeros = replaced(lambda file: file.symlink_to("/dev/zero"))
loop = replaced(lambda file: file.symlink_to(file))
folder = replaced(lambda file: file.mkdir())


def sparse(file: Path) -> None:
    file.unlink(missing_ok=True)
    with file.open("wb") as content:
        content.truncate(10 * GIB)


def packed_zeros(file: Path, packer: Callable[[bytes], bytes], head: bytes = b"") -> None:
    """10 GiB in members that were packed once."""
    member = packer(PIECE)
    file.write_bytes((packer(head) if head else b"") + member * (10 * GIB // len(PIECE)))


def file_is(name: str, change: Callable[[Path], object]) -> Damage:
    return lambda recording: change(recording / name)


def holds(content: str | bytes) -> Callable[[Path], object]:
    data = content if isinstance(content, bytes) else content.encode()
    return lambda file: file.write_bytes(data)


def substituted(pattern: str, replacement: str, count: int = 0) -> Callable[[Path], object]:
    def change(file: Path) -> None:
        changed, times = re.subn(pattern, replacement, file.read_text(), count=count)
        assert times, f"{pattern!r} is not in {file.name}"
        file.write_text(changed)

    return change


def zoneinfo(pattern: str, replacement: str, count: int = 0) -> Damage:
    return each_snapshot("zoneinfo", substituted(pattern, replacement, count))


def stray(name: str, byte: bytes) -> Damage:
    """A byte in the file's third line, or its first if it has no third."""

    def change(file: Path) -> None:
        lines = file.read_bytes().splitlines(keepends=True)
        place = min(2, len(lines) - 1)
        lines[place] = byte + lines[place]
        file.write_bytes(b"".join(lines))

    return each_snapshot(name, change)


def meta(**changes: object) -> Damage:
    def change(file: Path) -> None:
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    return file_is("meta.json", change)


def events(*bodies: str) -> Damage:
    """The recording's event text with more events behind it."""

    def change(file: Path) -> None:
        late = "".join(
            f"task 1 [000] 9.{at:06d}: kmem:mm_page_{b}\n" for at, b in enumerate(bodies)
        )
        file.write_text(file.read_text() + late)

    return file_is("perf.data", change)


def nothing(recording: Path) -> None:
    pass


def without_snapshots(recording: Path) -> None:
    shutil.rmtree(recording / "snapshots")
