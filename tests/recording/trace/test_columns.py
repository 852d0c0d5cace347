from __future__ import annotations

from mmap import mmap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagealloc_model.base.arrays import in_memory, on_disk
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.trace.columns import time_order


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 9))
def test_any_order_at_any_block_size(times: list[int], block: int) -> None:
    column = np.array(times, np.int64)
    order = time_order(column, in_memory, block=block)
    wanted = np.argsort(column, kind="stable")
    assert (order is None) == bool(np.all(np.diff(column) >= 0))
    assert np.array_equal(np.arange(len(times)) if order is None else order, wanted)


def test_rounds_of_two_cpus_hold_back_little() -> None:
    one_round = np.concatenate([np.arange(0, 100, 2), np.arange(1, 101, 2)])
    times = np.concatenate([one_round + 100 * number for number in range(50)])
    order = time_order(times, in_memory, block=64)
    assert order is not None
    assert np.array_equal(times[order], np.arange(5000))


def test_arrays_on_disk_are_files_only_where_they_are_large(tmp_path: Path) -> None:
    new_array = on_disk(tmp_path)
    for shape, in_file in ((10, False), ((1 << 16, 4), True)):
        array = new_array(shape, np.int64)
        array[:] = 7
        assert array.sum() == 7 * array.size
        assert isinstance(array.base, mmap) is in_file
    assert list(tmp_path.iterdir()) == []


def test_no_room_on_disk_is_said_beforehand(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="has no room for"):
        on_disk(tmp_path)(1 << 56, np.int64)
