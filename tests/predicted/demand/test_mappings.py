"""What lay in one mapping, from frees written by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.predicted.demand.event_order import new_events
from pagealloc_model.predicted.demand.mappings import Mappings, last_frees


def demand_of(asked: int, *freed: int, orders: dict[int, int] | None = None) -> SimpleNamespace:
    """Objects allocated by number, then freed in an order; none came in place of another."""
    events = new_events(at.ALLOC, asked + len(freed), object=[*range(asked), *freed])
    events["operation"][asked:] = at.FREE
    objects = np.zeros(asked, resolved.OBJECT)
    for number, order in (orders or {}).items():
        objects["order"][number] = order
    return SimpleNamespace(events=events, objects=objects, leads=np.zeros(0, np.int32))


def blocks_of(demand: SimpleNamespace, tasks: list[int] | None = None) -> list[tuple[list, bool]]:
    units = np.flatnonzero(demand.events["operation"] == at.ALLOC)
    of_tasks = np.array(tasks or [7] * len(demand.events))
    found = Mappings(demand, of_tasks, units).blocks()
    return [(places.tolist(), mixed) for places, mixed in found]


@pytest.mark.parametrize(
    ("freed", "blocks"),
    [
        ((0, 1, 2, 3), [([0, 1, 2, 3], False)]),
        ((2, 3, 0, 1), [([0, 1], False), ([2, 3], False)]),
        ((2, 0, 3, 1), [([2, 0, 3, 1], True)]),
        ((3, 2, 1, 0), [([0], False), ([1], False), ([2], False), ([3], False)]),
    ],
)
def test_what_was_freed_in_turn_lay_in_one_mapping(
    freed: tuple[int, ...], blocks: list[tuple[list, bool]]
) -> None:
    """Frees go by address: 2, 0, 3, 1 were touched in no order that parts would explain."""
    assert blocks_of(demand_of(4, *freed)) == blocks


def test_another_task_s_frees_between_part_nothing() -> None:
    """Tasks 7 and 8 ask for two each, and free them by turns."""
    tasks = [7, 7, 8, 8, 7, 8, 7, 8]
    assert blocks_of(demand_of(4, 0, 2, 1, 3), tasks) == [([0, 1], False), ([2, 3], False)]


def test_an_object_is_freed_at_its_last_free_if_nothing_of_it_stays() -> None:
    """Object 0 whole, 1 in two halves, 2 by a half only, 3 never."""
    demand = demand_of(4, 0, 1, 1, 2, orders={1: 1, 2: 1})
    last, whole = last_frees(demand)
    assert last.tolist() == [4, 6, -1, -1]
    assert whole.tolist() == [True, False, False, False]


def test_what_reclaim_frees_is_no_unmapping() -> None:
    demand = demand_of(2, 0, 1)
    demand.events["bits"][2] = pr.FREED_BY_RECLAIM
    assert last_frees(demand)[0].tolist() == [-1, 3]
