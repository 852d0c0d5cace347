"""An allocation that is freed as a range of single pages is freed whole, where kernels do so."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.predicted.demand.demand import resolve_demand
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


def test_kernels_from_7_2_do_so() -> None:
    kernels = [name for name in ("6.1", "6.12", "6.18", "7.2", "7.3")]
    assert [KernelRules.preset(name).frees_ranges_in_chunks for name in kernels] == [
        *(False, False, False, True, True)
    ]
