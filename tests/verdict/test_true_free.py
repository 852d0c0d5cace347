"""Free pages between snapshots: what all reads and the counted moves agree on."""

from __future__ import annotations

import numpy as np

from pagealloc_model.verdict.choices.recorded_moves import FreeRead, agreed_free_pages

MOVED = np.array([[row, -10] for row in range(100)], np.int64)
"""Ten pages leave at every row."""


def read(begun: int, last: int, *pages: tuple[int, int]) -> FreeRead:
    return FreeRead(begun=begun, read=last, pages=pages)


def test_a_read_that_took_no_time_is_taken_as_it_is() -> None:
    assert agreed_free_pages(MOVED, [read(20, 20, (500, 0))]) == [500]


def test_an_exact_read_settles_when_a_slow_one_was_read() -> None:
    """Counted moves: 1000 less ten a row; the first read may be of any of twenty rows."""
    slow, exact = read(10, 30, (750, 0)), read(50, 50, (500, 0))
    assert agreed_free_pages(MOVED, [slow, exact]) == [900, 500]
    assert agreed_free_pages(MOVED, [exact, read(60, 80, (300, 0))]) == [500, 400]


def test_pages_that_went_unseen_change_the_constant_by_no_more_than_needed() -> None:
    before, after = read(10, 10, (900, 0)), read(50, 60, (300, 0))
    assert agreed_free_pages(MOVED, [before, after]) == [900, 400]


def test_a_lagging_counter_bounds_less_closely() -> None:
    exact, lagging = read(10, 10, (900, 0)), read(50, 50, (470, 36))
    assert agreed_free_pages(MOVED, [exact, lagging]) == [900, 500]
