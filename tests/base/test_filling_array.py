"""Arrays that are filled from their beginning: the same in memory and in files."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.base import filling_array
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.filling_array import FillingArray, PassingArray, all_of

PAIR = np.dtype((np.int64, 2))


@pytest.fixture(params=["memory", "file"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param == "file" else None


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling_array, "_STEP_BYTES", 4096)


def test_what_was_put_stays_when_it_grows(directory: Path | None) -> None:
    array, end = FillingArray(10, PAIR, directory), 0
    for number in range(40):
        rows = np.full((100, 2), number)
        array.need(end + 100)[end : end + 100] = rows
        end += 100
    assert array.room[:end, 1].tolist() == np.repeat(np.arange(40), 100).tolist()


def test_what_was_given_back_takes_up_no_room_and_the_rest_stays(tmp_path: Path) -> None:
    array = FillingArray(4096, np.int64, tmp_path)
    array.need(4096)[:4096] = np.arange(4096)
    array.give_back(3000)
    assert array.room[3000:4096].tolist() == list(range(3000, 4096))
    assert array.room[:2560].max() == 0
    grown = array.need(10_000)
    assert grown[3000:4096].tolist() == list(range(3000, 4096))


def test_a_file_has_no_name(tmp_path: Path) -> None:
    array = FillingArray(1 << 16, np.int64, tmp_path)
    array.need(1 << 16)[:] = 1
    assert list(tmp_path.iterdir()) == []


def test_no_room_on_disk_is_said_beforehand(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="no room"):
        FillingArray(1 << 60, np.int8, tmp_path)


def test_batches_lie_one_behind_the_other(directory: Path | None) -> None:
    found = all_of(FillingArray(1, np.int32, directory), [np.arange(3), np.arange(0), np.arange(2)])
    assert found.tolist() == [0, 1, 2, 0, 1]


@pytest.mark.parametrize("seed", range(10))
def test_what_passes_comes_out_in_order(directory: Path | None, seed: int) -> None:
    random = np.random.default_rng(seed)
    array, put, taken = PassingArray(np.int64, directory), 0, 0
    for _ in range(200):
        count = int(random.integers(0, 2000))
        array.append(np.arange(put, put + count))
        put += count
        assert array.values.tolist() == list(range(taken, put))
        count = int(random.integers(0, len(array.values) + 1))
        array.take(count)
        taken += count


def test_what_was_given_back_is_had_again_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = PassingArray(np.int64, tmp_path)
    array.append(np.arange(2000))
    array.take(1900)
    array.append(np.arange(2000))
    array.take(2000)

    def full(file: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(RecordingError, match="no room"):
        array.append(np.arange(200))
