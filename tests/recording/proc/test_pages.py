"""Files of pages: page_owner and kpageflags."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
import zstandard

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.files import chunks_of
from pagealloc_model.recording.machine import DEFAULT_MIGRATETYPES
from pagealloc_model.recording.proc import pages as page_owner
from pagealloc_model.recording.proc.pages import BUDDY, NOPAGE, read_kpageflags, read_page_owner

STACK = " post_alloc_hook+0x9c/0xc0\n get_page_from_freelist+0x11/0x1c0\n"


OLD = (
    "Page allocated via order 2, mask 0x52cc0(GFP_KERNEL|__GFP_NOWARN|__GFP_NORETRY|__GFP_COMP), "
    "pid 1, tgid 1 (swapper/0), ts 105 ns, free_ts 0 ns\n"
    "PFN 4096 type Unmovable Block 8 type Unmovable Flags 0x200(slab|node=0|zone=1)\n"
    f"{STACK}Slab cache page\n\n"
)


RECENT = (
    "Page allocated via order 0, mask 0x100cca(GFP_HIGHUSER_MOVABLE), pid 77, tgid 70 "
    "((sd-pam), x), ts 12345678901 ns\n"
    "PFN 0x1234 type Movable Block 9 type HighAtomic Flags 0x4a0(lru|mappedtodisk)\n"
    f"{STACK}Page has been migrated, last migrate reason: compaction\nCharged to memcg a.slice\n\n"
)


NAMELESS = (
    "Page allocated via order 0, mask 0x0(), pid -1, ts 3 ns\n"
    "PFN 7 type Reclaimable Block 0 type Reclaimable Flags 0x0()\n\n"
)


def write(directory: Path, text: str) -> Path:
    path = directory / "page_owner.txt"
    path.write_text(text)
    return path


def test_old_and_recent_kernels_are_read(tmp_path: Path) -> None:
    owner = read_page_owner(write(tmp_path, OLD + RECENT + NAMELESS))
    assert owner.pfn.tolist() == [4096, 0x1234, 7]
    assert owner.order.tolist() == [2, 0, 0]
    types = DEFAULT_MIGRATETYPES
    assert owner.types_as(types, owner.migratetype).tolist() == [0, 1, 2]
    assert owner.types_as(types, owner.block_migratetype).tolist() == [0, 3, 2]
    assert owner.types_as(("Unmovable",), owner.migratetype).tolist() == [0, -1, -1]
    assert (len(owner), owner.pages) == (3, 6)


@pytest.mark.parametrize(
    "pack", [str.encode, lambda text: gzip.compress(text.encode()),
             lambda text: lzma.compress(text.encode()),
             lambda text: zstandard.compress(text.encode())],
    ids=["plain", "gzip", "xz", "zstd"],
)  # fmt: skip
def test_every_compression_is_read(tmp_path: Path, pack: object) -> None:
    path = tmp_path / "page_owner.any"
    path.write_bytes(pack(OLD + RECENT))  # type: ignore[operator]
    assert read_page_owner(path).pfn.tolist() == [4096, 0x1234]


def test_pieces_join_to_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, (OLD + RECENT + NAMELESS) * 20)
    whole = read_page_owner(path)
    for size in (1, 97, 600):
        monkeypatch.setattr("pagealloc_model.base.files.CHUNK", size)
        assert len(list(chunks_of(path))) == -(-path.stat().st_size // size)
        monkeypatch.setattr(page_owner, "CHUNK", 1 << 20)
        again = read_page_owner(path)
        assert again.pfn.tolist() == whole.pfn.tolist()
        assert again.order.tolist() == whole.order.tolist()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("hello\n", 1),
        (OLD + RECENT.replace("PFN", "PNF"), 7),
        (OLD + RECENT.replace("0x1234", "0x1234567890"), 7),
        (OLD.replace("PFN 4096", "PFN 4097") + RECENT, 1),
        (OLD + RECENT.replace("order 0", "order 15"), 7),
        (OLD + RECENT[:60], 7),
        (OLD + RECENT[:150], 7),
        (OLD + RECENT.replace("ts 12345678901", "ts " + "9" * 30), 7),
        (OLD * 3 + RECENT.replace("mask 0x100cca", "mask"), 19),
    ],
)
def test_odd_text_is_refused_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    path = write(tmp_path, text)
    with pytest.raises(RecordingError) as caught:
        read_page_owner(path)
    assert str(caught.value).startswith(f"{path}: line {line}: ")
    assert "\n" not in str(caught.value)


def test_an_empty_file_asks_for_page_owner(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="page_owner=on"):
        read_page_owner(write(tmp_path, ""))


def write_flags(path: Path, content: bytes) -> Path:
    with gzip.open(path, "wb") as file:
        file.write(content)
    return path


def test_words_are_little_endian_by_page_frame(tmp_path: Path) -> None:
    words = np.array([NOPAGE, BUDDY, 0, 1 << 32], np.uint64)
    flags = read_kpageflags(write_flags(tmp_path / "flags.gz", words.astype("<u8").tobytes()))
    assert flags.dtype == np.uint64
    assert flags.tolist() == words.tolist()
    assert (flags & BUDDY != 0).tolist() == [False, True, False, False]


def test_files_that_are_refused(tmp_path: Path) -> None:
    path = write_flags(tmp_path / "flags.gz", np.arange(9999, dtype="<u8").tobytes())
    for content, problem in (
        (gzip.compress(bytes(11)), r"offset 8: holds 11 bytes"),
        (path.read_bytes()[:-900], "not an intact gzip"),
        (b"no gzip at all", "not an intact gzip"),
    ):
        path.write_bytes(content)
        with pytest.raises(RecordingError, match=problem):
            read_kpageflags(path)
    with pytest.raises(RecordingError, match="cannot be read"):
        read_kpageflags(tmp_path / "none.gz")
