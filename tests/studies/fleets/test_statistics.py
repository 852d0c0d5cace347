"""Ranges, intervals and tests of two samples whose answers are known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pagealloc_model.studies.fleets import adjusted, compared_sides, p_value, range_words
from pagealloc_model.verdict.statistics import resampled_interval

RNG = np.random.default_rng(5)


def mean_interval(values: np.ndarray) -> tuple[float, float]:
    return resampled_interval(lambda mean: mean, values)


def difference_interval(base: np.ndarray, patch: np.ndarray) -> tuple[float, float]:
    return resampled_interval(lambda one, other: other - one, base, patch)


def test_intervals_cover_the_mean_as_often_as_they_say() -> None:
    covered = 0
    for _ in range(200):
        values = RNG.normal(10, 2, 40)
        low, high = mean_interval(values)
        covered += low <= 10 <= high
    assert 180 <= covered <= 199


def test_an_interval_of_equal_hosts_has_no_width() -> None:
    assert mean_interval(np.full(5, 3.0)) == (3.0, 3.0)
    assert difference_interval(np.full(5, 3.0), np.full(4, 1.0)) == (-2.0, -2.0)
    low, high = difference_interval(np.full(5, 3.0), np.array([1.0, 2.0, 1.0]))
    assert -2.0 <= low < high <= -1.0


def test_single_hosts_have_neither_interval_nor_test() -> None:
    one, many = np.array([1.0]), np.arange(5.0)
    assert np.isnan(
        [*mean_interval(one), *difference_interval(one, many), p_value(one, many)]
    ).all()


def test_p_values_are_those_of_the_named_test() -> None:
    # all 252 orders of 5 + 5 values are equally likely; 2 of them are as far apart as these
    assert p_value(np.arange(5.0), np.arange(5.0) + 10) == pytest.approx(2 / 252)
    assert p_value(np.full(5, 1.0), np.full(5, 1.0)) == 1.0


def test_adjusting_controls_the_rate_of_false_discoveries() -> None:
    found = adjusted([0.01, float("nan"), 0.02, 0.5])
    assert found[[0, 2, 3]] == pytest.approx([0.03, 0.03, 0.5])
    assert np.isnan(found[1])


def test_sides_are_compared_metric_by_metric_without_failed_hosts() -> None:
    hosts = pd.DataFrame(
        {
            "side": ["base"] * 5 + ["patch"] * 5,
            "blocks": [309, 310, 312, 311, np.nan, 1, 1, 1, 1, 1],
            "same": [1.0, 2, 3, 4, 5, 5, 4, 3, 2, 1],
        }
    )
    blocks, same = compared_sides(hosts, ["blocks", "same"]).itertuples()
    assert (blocks.base_hosts, blocks.base_lowest, blocks.base_highest) == (4, 309, 312)
    assert blocks.difference == pytest.approx(-309.5)
    assert blocks.difference_low <= -309.5 <= blocks.difference_high
    assert blocks.change == pytest.approx(-309.5 / 310.5)
    assert blocks.significant
    assert same.difference == 0
    assert not same.significant


def test_ranges_of_large_numbers_have_no_parts() -> None:
    assert range_words(63054.56, 66778.13) == "63,055-66,778"
    assert range_words(0.5027, 0.5577) == "0.5027-0.5577"
    assert range_words(1.0, 1.0) == "1"
