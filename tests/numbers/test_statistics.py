"""Verdicts on predicted changes, and the interval of a measured one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_ind

from pagealloc_model.numbers.statistics import (
    CONFIDENCE,
    EFFECTS,
    NO_EFFECT,
    NOT_PREDICTED,
    RIGHT,
    TOO_FEW,
    WITHIN,
    change_interval,
    verdict,
)

NAN = float("nan")
number = st.floats(-1e9, 1e9, allow_nan=False)
runs = st.lists(number, min_size=2, max_size=6)


@given(number, number, number)
def test_a_verdict_says_where_the_prediction_lies(predicted: float, one: float, two: float) -> None:
    low, high = sorted((one, two))
    judgement = verdict(predicted, low, high)
    if low <= 0 <= high:
        assert judgement == NO_EFFECT
        return
    assert judgement in EFFECTS
    assert (judgement == WITHIN) == (low <= predicted <= high)
    if judgement in (WITHIN, RIGHT):
        assert np.sign(predicted) == np.sign(low)
    else:
        assert predicted == 0 or np.sign(predicted) != np.sign(low)


@given(number, number, number)
def test_signs_do_not_matter(predicted: float, one: float, two: float) -> None:
    low, high = sorted((one, two))
    assert verdict(predicted, low, high) == verdict(-predicted, -high, -low)


def test_what_is_not_predicted_is_neither_right_nor_wrong() -> None:
    assert verdict(NAN, 1.0, 2.0) == NOT_PREDICTED
    assert verdict(NAN, -1.0, 2.0) == NO_EFFECT
    assert verdict(1.0, NAN, NAN) == TOO_FEW


@given(runs, runs)
def test_the_interval_holds_the_change_and_turns_with_it(
    before: list[float], after: list[float]
) -> None:
    low, high = change_interval(before, after)
    change = float(np.mean(after) - np.mean(before))
    room = 1e-9 * (1 + max(map(abs, before + after)))
    assert low - room <= change <= high + room
    back = change_interval(after, before)
    assert back == pytest.approx((-high, -low), rel=1e-9, abs=room)


@pytest.mark.filterwarnings("ignore:Precision loss")
@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=6), st.integers(2, 6))
def test_the_interval_is_that_of_welch(before: list[int], runs_after: int) -> None:
    after = [number * number for number in range(runs_after)]
    known = ttest_ind(after, before, equal_var=False).confidence_interval(CONFIDENCE)
    assert change_interval(before, after) == pytest.approx((known.low, known.high), rel=1e-6)


def test_few_or_unknown_runs_have_no_interval() -> None:
    for before, after in (([1.0], [2.0, 3.0]), ([1.0, NAN], [2.0, 3.0]), ([], [1.0, 2.0])):
        assert all(math.isnan(end) for end in change_interval(before, after))


def test_runs_without_spread_have_an_interval_without_width() -> None:
    assert change_interval([1.0, 1.0], [3.0, 3.0]) == (2.0, 2.0)
    assert verdict(2.0, 2.0, 2.0) == WITHIN
    assert verdict(1.0, 2.0, 2.0) == RIGHT
