"""Columns that are filled at their end and let go of at their beginning, in memory and in files."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.base import arrays
from pagealloc_model.base.arrays import Column, refuse_beyond_memory
from pagealloc_model.base.errors import RecordingError, UsageError


@pytest.fixture(params=["memory", "file"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param == "file" else None


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "STEP_BYTES", 4096)


def test_what_was_put_stays_when_it_grows(directory: Path | None) -> None:
    column = Column((np.int64, 2), directory, rows=10)
    for number in range(40):
        column.room(100)[-100:] = number
        column.rows += 100
    assert column.values[:, 1].tolist() == np.repeat(np.arange(40), 100).tolist()
    if directory is not None:
        assert list(directory.iterdir()) == []  # a file has no name


@pytest.mark.parametrize("seed", range(10))
def test_what_passes_comes_out_in_order(directory: Path | None, seed: int) -> None:
    random = np.random.default_rng(seed)
    column, put, taken = Column(np.int64, directory), 0, 0
    for _ in range(200):
        count = int(random.integers(0, 2000))
        column.append(np.arange(put, put + count))
        put += count
        assert column.values.tolist() == list(range(taken, put))
        count = int(random.integers(0, column.rows + 1))
        column.drop(count)
        taken += count


def test_no_room_on_disk_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RecordingError, match="no room"):
        Column(np.int8, tmp_path, rows=1 << 60)
    column = Column(np.int64, tmp_path)

    def full(file: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(RecordingError, match="no room"):
        column.append(np.arange(200))


def test_more_memory_than_there_is_is_refused_with_the_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PAGEALLOC_MEMORY", "2G")
    refuse_beyond_memory(2 << 30, "it")
    with pytest.raises(UsageError, match=r"it takes about 4.0 GiB .* 2.0 GiB .*such as 4G"):
        refuse_beyond_memory(4 << 30, "it")
    monkeypatch.setenv("PAGEALLOC_MEMORY", "lots")
    with pytest.raises(UsageError, match="no amount of memory"):
        refuse_beyond_memory(4 << 30, "it")
    monkeypatch.delenv("PAGEALLOC_MEMORY")
    with pytest.raises(UsageError, match="are free"):
        refuse_beyond_memory(1 << 60, "it")
    refuse_beyond_memory(1 << 29, "what is small is not looked at")
