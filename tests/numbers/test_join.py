"""Numbers side by side: what a side lacks, and how far apart they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pagealloc_model.numbers.join import ModelError, at_instants, distance, joined
from pagealloc_model.numbers.statistics import SHARE
from pagealloc_model.numbers.values import How, Quantity


def number(metric: str, *values: float, how: How = "mean", first: int = 0) -> Quantity:
    """A number with a value at each of some instants."""
    times = np.arange(first, first + len(values))
    return Quantity(metric=metric, how=how, time_ns=times, values=np.array(values))


def test_a_side_that_lacks_a_count_has_none_and_other_numbers_are_unknown() -> None:
    sides = [[number("free", 1.0)], [number("holds", 2.0, how="sum")], []]
    values = {row[0].metric: [side.value for side in row] for row in joined(*sides)}
    assert list(values) == ["free", "holds"]
    assert values["free"][0] == 1.0
    assert np.isnan(values["free"][1:]).all()
    assert values["holds"] == [0.0, 2.0, 0.0]


def test_errors_at_instants_do_not_hide_one_another() -> None:
    real, model, start = number("free", 1.0, 3.0, 5.0), number("free", 2.0, 2.0, 6.0), number("", 1)
    sides = (real, model, at_instants(start, real.time_ns, held=True))
    error = ModelError.of_states(*sides)
    assert error.null_model == "nothing changes"
    assert (error.measured, error.error, error.null_error) == (3.0, 1.0, 2.0)
    row = error.row()
    assert (row["error"], row["null_error"]) == (0.25, 0.5)  # of the range from 1 to 5
    assert error.beats_null


def test_a_row_says_the_unit_of_its_values() -> None:
    """Of a share too, whose errors are shares of the range."""
    sides = [replace(number("", *values), unit=SHARE) for values in ((0.5,), (0.25,), (0.75,))]
    error = ModelError.of_states(*sides).row()
    assert (error["unit"], error["error"]) == ("share, error in share of range", 1.0)


def test_the_distance_of_distributions_is_their_total_variation() -> None:
    real, model = np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[0.25, 0.75], [1.0, 0.0]])
    assert distance(model, real) == 0.125


def test_a_number_stands_at_the_instants_of_another() -> None:
    model = number("free", 1.0, 2.0, 3.0)
    assert at_instants(model, np.array([0, 2])).values.tolist() == [1.0, 3.0]
    assert at_instants(number("free"), np.array([0]), held=True).values.tolist() == pytest.approx(
        [np.nan], nan_ok=True
    )


def test_a_row_that_did_not_move_is_in_no_table() -> None:
    still = number("free", 1.0, 1.0)
    assert not ModelError.of_states(still, still, still).tabled


def test_a_zone_counts_as_much_as_a_larger_one() -> None:
    """Zones that did not move have no say; a zone that only the model moved is no 0 %."""
    large, small, still = (
        ModelError.of_states(*(number("free", *values) for values in sides))
        for sides in (
            ((1000.0, 0.0), (900.0, 0.0), (1000.0, 1000.0)),
            ((0.0, 10.0), (0.0, 0.0), (0.0, 0.0)),
            ((7.0, 7.0), (7.0, 7.0), (7.0, 7.0)),
        )
    )
    row = ModelError.of_zones([large, small, still]).row()
    assert (row["scope"], row["measured"], row["predicted"]) == ("all", 512.0, 457.0)
    assert row["error"] == pytest.approx((0.05 + 0.5) / 2)
    assert row["null_error"] == pytest.approx((0.5 + 0.5) / 2)
    moved = ModelError.of_states(still_at(7.0), still_at(9.0), still_at(7.0))
    assert np.isnan(ModelError.of_zones([moved]).row()["error"])  # type: ignore[call-overload]
    ends = [number("blocks", value, how="last") for value in (5.0, 3.0, 1.0)]
    row = ModelError.of_zones([ModelError.of_states(*ends)] * 2).row()
    assert (row["measured"], row["error"], row["null_error"]) == (10.0, -0.4, -0.8)


def still_at(value: float) -> Quantity:
    return number("free", value, value)
