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


def test_files_that_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "flags.gz", np.arange(9999, dtype="<u8").tobytes())
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
