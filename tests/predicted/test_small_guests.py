"""Small guests that ship: what only they hold, and what of it is predicted."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pagealloc_model as pm
from pagealloc_model.base.errors import PageallocError
from pagealloc_model.measured.measured import snapshot_tables
from pagealloc_model.recording.recording import Recording

CMA = "CMA"


def shipped(name: str) -> Recording:
    try:
        return pm.open(name)
    except PageallocError as error:
        pytest.skip(str(error))


def free_cma(table: pd.DataFrame) -> pd.Series:
    own = table[table["migratetype"] == CMA]
    return own.groupby("time_ns")["pages"].sum()


def test_free_pages_of_a_cma_area_are_predicted_better_than_that_none_changes() -> None:
    recording = shipped("cma_area_A1")
    measured = free_cma(snapshot_tables(recording.snapshots)["free_pages"])
    predicted = free_cma(pm.replay(recording).free_pages)
    begin, later = measured.iloc[0], measured.iloc[1:]
    nearest = [int(np.abs(predicted.index - time).argmin()) for time in later.index]
    off = np.abs(predicted.iloc[nearest].to_numpy() - later.to_numpy()).mean()
    assert off < 0.75 * np.abs(later - begin).mean()


def test_a_recording_swaps() -> None:
    recording = shipped("zram_swap_A1")
    first, *_, last = (each.vmstat.values for each in recording.snapshots if each.vmstat)
    for counter in ("pswpin", "pswpout"):
        assert last[counter] > first[counter] + 1000, counter
