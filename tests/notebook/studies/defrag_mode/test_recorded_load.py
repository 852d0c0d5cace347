"""Rounds of a recording: what a later one asks for and frees."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from pagealloc_model.notebooks.studies.defrag_mode.recorded_load import Recorded, recorded
from pagealloc_model.notebooks.studies.defrag_mode.repeated_rounds import (
    SURVIVORS,
    HugeFaults,
    repeated_demand,
)

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr


@cache
def made_ready(name: str) -> Recorded:
    return recorded(pm.open(name), assumptions=pm.Assumptions(reclaim="elastic"))


ASKS = (at.ALLOC, at.HIDDEN_ALLOC)


Repeated = tuple[pm.synthetic.Demand, list[int]]


def repeated(survivors: str, rounds: int = 3, **options: object) -> Repeated:
    start, faults = made_ready("kbuild"), HugeFaults(per_round=4, kept=2)
    about = {"rounds": rounds, "survivors": survivors, "fill_pages": 10, **options}
    return repeated_demand(start, faults, **{"tables_ns": np.zeros(0, np.int64), **about})


def of_round(demand: pm.synthetic.Demand, rounds: int = 3) -> int:
    """Objects of a round."""
    return (demand.objects - 10) // rounds


def classes() -> np.ndarray:
    """Class of each of the recording's objects, -1 of those at its start."""
    recorded = made_ready("kbuild").demand
    allocs = recorded.events[np.isin(recorded.events["operation"], ASKS)]
    kinds = np.full(len(recorded.objects), -1)
    kinds[allocs["object"]] = allocs["bits"] >> pr.CLASS_SHIFT
    return kinds


@pytest.mark.parametrize("survivors", SURVIVORS)
def test_parts_follow_one_another_and_objects_are_asked_for_before_they_go(survivors: str) -> None:
    demand, ends_ns = repeated(survivors)
    parts = list(demand.parts())
    assert len(parts) == 1 + 3
    before = 0
    for events, end in zip(parts, ends_ns, strict=True):
        times = events["time_ns"]
        assert before <= times[0]
        assert (np.diff(times) >= 0).all()
        assert times[-1] <= end
        before = end
    every = np.concatenate(parts)
    assert len(every) == demand.count
    assert every["object"].max() < demand.objects == len(demand.leads)
    asked_at = np.full(demand.objects, np.iinfo(np.int64).max)
    starting = made_ready("kbuild").demand.starting_places()
    asked_at[: len(starting)][starting >= 0] = 0
    asks = np.isin(every["operation"], (at.ALLOC, at.HIDDEN_ALLOC, at.RECORDED_FAILURE))
    asks &= every["object"] >= 0
    asked_at[every["object"][asks]] = every["time_ns"][asks]
    frees = every[every["operation"] == at.FREE]
    assert (asked_at[frees["object"]] <= frees["time_ns"]).all()


def test_what_tasks_leave_is_freed_as_many_rounds_later() -> None:
    """Page tables are known by when they were asked for; the last rounds' tasks outlive the run."""
    events = made_ready("kbuild").demand.events
    left = events[np.isin(events["operation"], ASKS)]
    of_kernel = left[left["bits"] >> pr.CLASS_SHIFT == pr.KERNEL]
    tables_ns = of_kernel["time_ns"][of_kernel["order"] == 0]
    at_once, later = (
        repeated("once", rounds=4, tables_ns=tables_ns, task_rounds=rounds)[0] for rounds in (0, 2)
    )
    count = of_round(at_once, 4)
    ends = []
    for demand in (at_once, later):
        frees = [part[part["operation"] == at.FREE]["object"] for part in demand.parts()][1:]
        ends.append([set((objects // count).tolist()) for objects in frees])
    assert ends[0] == [{0}, {1}, {2}, {3}]
    assert ends[1] == [{0}, {1}, {0, 2}, {1, 3}]


def test_what_outlives_a_round_is_as_the_word_says() -> None:
    """Pages of each class that the third round adds to what is in use."""
    sums: dict[str, np.ndarray] = {}
    for survivors in SURVIVORS:
        demand, _ = repeated(survivors)
        *_, events = demand.parts()
        kind, count = classes(), len(made_ready("kbuild").demand.objects)
        kinds = kind[events["object"] % of_round(demand) % count]
        is_recorded = events["object"] % of_round(demand) < count
        pages = np.int64(1) << events["order"].astype(np.int64)
        signs = np.select(
            [
                np.isin(events["operation"], (at.ALLOC, at.HIDDEN_ALLOC)),
                events["operation"] == at.FREE,
            ],
            [1, -1],
        )
        by_reclaim = events["bits"] & np.uint32(pr.FREED_BY_RECLAIM) == pr.FREED_BY_RECLAIM
        own = is_recorded & ~((signs < 0) & by_reclaim)
        sums[survivors] = np.array(
            [(signs * pages)[own & (kinds == kind)].sum() for kind in range(4)]
        )
    assert (sums["gone"][:3] == 0).all()
    assert sums["stay"][pr.ANON] == 0
    assert sums["stay"][pr.KERNEL] > 0
    assert (sums["once"][:3] == 0).all()
    assert sums["gone"][pr.FILE] == sums["stay"][pr.FILE] == sums["once"][pr.FILE] > 0


def test_what_serves_later_rounds_is_asked_for_in_the_first_and_never_freed() -> None:
    once, gone = repeated("once")[0], repeated("gone")[0]
    first, second = list(once.parts())[1:3]
    requests = [np.isin(part["operation"], ASKS).sum() for part in (first, second)]
    assert requests[1] < requests[0]
    frees = [
        sum((part["operation"] == at.FREE).sum() for part in demand.parts())
        for demand in (once, gone)
    ]
    assert frees[0] < frees[1]


def test_limits_are_set_in_the_first_round_only() -> None:
    _, *rounds = repeated("stay")[0].parts()
    counts = [int((events["operation"] == at.SET_PCP_HIGH).sum()) for events in rounds]
    assert counts[0] > 0
    assert counts[1:] == [0, 0]
