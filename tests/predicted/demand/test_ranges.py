"""An allocation that is freed as a range of single pages is freed whole, where kernels do so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.predicted.demand.demand import Demand, resolve_demand
from pagealloc_model.predicted.demand.ranges import with_ranges_freed_whole
from tests.predicted.demand.test_demand import PAGE, Script
from tests.small_recordings import small_machine


def frees(words: str, directory: Path) -> list[tuple[int, int, int]]:
    """Object, offset and order of each free."""
    demand = resolve_demand(Script(words, PAGE).trace(directory), small_machine())
    events = with_ranges_freed_whole(demand).events
    events = events[events["operation"] == at.FREE]
    assert (events["time_ns"][1:] >= events["time_ns"][:-1]).all()
    return [tuple(row) for row in events[["object", "offset", "order"]].tolist()]


def test_the_pages_of_an_allocation_in_order_are_one_free(tmp_path: Path) -> None:
    assert frees("@0 a0^2 a8 f0 f1 f2 f3 f8", tmp_path) == [(0, 0, 2), (1, 0, 0)]


def test_the_free_stands_where_the_last_page_was(tmp_path: Path) -> None:
    demand = resolve_demand(Script("@0 a0^1 f0 @1 a8 @0 f1", PAGE).trace(tmp_path), small_machine())
    operations = with_ranges_freed_whole(demand).events["operation"].tolist()
    assert operations == [at.ALLOC, at.ALLOC, at.FREE]


@pytest.mark.parametrize(
    "words",
    [
        "@0 a0^2 f0 f1 f2",
        "@0 a0^2 f3 f2 f1 f0",
        "@0 a0^2 f0 f1 @1 f2 f3",
        "@0 a0^2 f0 f1 a8 f2 f3",
        "@0 a0 a1 f0 f1",
    ],
)
def test_other_frees_stay(tmp_path: Path, words: str) -> None:
    assert all(order == 0 for _, _, order in frees(words, tmp_path))


def random_words(random: np.random.Generator) -> str:
    """Allocations that are freed page by page, with something else in between now and then."""
    words = []
    for first in range(0, 4 * int(random.integers(1, 4)), 4):
        order = int(random.integers(0, 3))
        words.append(f"a{first}^{order}")
        pages = list(range(first, first + (1 << order)))
        if random.random() < 0.2:
            random.shuffle(pages)
        if random.random() < 0.2:
            pages.pop()
        for page in pages:
            words += [f"f{page}"] + [f"b{page}"] * (random.random() < 0.1)
            words += random.choice(BETWEEN, p=[0.8, 0.08, 0.06, 0.06]).split()
        words.append("@0")
    return " ".join(["@0", *words])


BETWEEN = ("", "!a40", "a41", "@1")


def whole_by_hand(demand: Demand) -> list[tuple[int, ...]]:
    """What is left: event by event, and one free where a range ends."""
    events = demand.events
    orders = demand.objects["order"].tolist()
    rows = [
        (row, *(int(event[name]) for name in ("operation", "cpu", "bits", "object", "offset")))
        for row, event in enumerate(events)
    ]
    shown = {
        row: tuple(events[row][["operation", "object", "offset", "order"]]) for row, *_ in rows
    }
    for number, order in enumerate(orders):
        own = [
            row
            for row, operation, _, bits, other, _ in rows
            if (operation, other) == (at.FREE, number)
            and events["order"][row] == 0
            and not bits & at.FREED_IN_BATCH
        ]
        if not order or len(own) != 1 << order:
            continue
        cpu = int(events["cpu"][own[0]])
        between = [row for row, _, on, *_ in rows[own[0] : own[-1] + 1] if on == cpu]
        in_turn = [int(events["offset"][row]) for row in own] == list(range(1 << order))
        if between == own and in_turn:
            for row in own[:-1]:
                del shown[row]
            shown[own[-1]] = (at.FREE, number, 0, order)
    return list(shown.values())


def test_ranges_are_those_found_by_hand(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    merged = 0
    for number in range(60):
        folder = tmp_path / str(number)
        folder.mkdir()
        demand = Script(random_words(random), PAGE).demand(folder)
        found = with_ranges_freed_whole(demand).events
        rows = found[["operation", "object", "offset", "order"]].tolist()
        assert [tuple(row) for row in rows] == whole_by_hand(demand)
        merged += len(demand.events) - len(found)
    assert merged > 20


def test_kernels_from_7_2_do_so() -> None:
    kernels = [name for name in ("6.1", "6.12", "6.18", "7.2", "7.3")]
    assert [KernelRules.preset(name).frees_ranges_in_chunks for name in kernels] == [
        *(False, False, False, True, True)
    ]
