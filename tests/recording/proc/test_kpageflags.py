"""kpageflags.u64.gz."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.proc.pages import BUDDY, NOPAGE, read_kpageflags


def write(path: Path, content: bytes) -> Path:
    with gzip.open(path, "wb") as file:
        file.write(content)
    return path


def test_words_are_little_endian_by_page_frame(tmp_path: Path) -> None:
    words = np.array([NOPAGE, BUDDY, 0, 1 << 32], np.uint64)
    flags = read_kpageflags(write(tmp_path / "flags.gz", words.astype("<u8").tobytes()))
    assert flags.dtype == np.uint64
    assert flags.tolist() == words.tolist()
    assert (flags & BUDDY != 0).tolist() == [False, True, False, False]


def test_cut_word_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"offset 8: holds 11 bytes"):
        read_kpageflags(write(tmp_path / "flags.gz", bytes(11)))


def test_damaged_gzip_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "flags.gz", np.arange(9999, dtype="<u8").tobytes())
    path.write_bytes(path.read_bytes()[:-900])
    with pytest.raises(RecordingError, match="not an intact gzip"):
        read_kpageflags(path)
    path.write_bytes(b"no gzip at all")
    with pytest.raises(RecordingError, match="not an intact gzip"):
        read_kpageflags(path)


def test_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cannot be read"):
        read_kpageflags(tmp_path / "none.gz")
