"""The line that validate begins with: quantities scored once, chaotic ones as ranges over seeds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import pagealloc_model as pm
from pagealloc_model.numbers.validation import (
    SeedRange,
    Validation,
    headline,
    judgement_of,
    score_words,
    scores,
)
from tests.small_recordings import shipped_recording

RECORDING = "xfree"


@pytest.fixture(scope="module")
def validation() -> Validation:
    return pm.validate(shipped_recording(RECORDING))


def test_imposed_rows_and_what_was_not_measured_are_left_out(validation: Validation) -> None:
    assert "free_and_listed_pages" not in set(validation.scores["metric"])
    unknown = validation.errors.assign(measured=np.nan)
    assert set(scores(unknown, validation.snapshots)["metric"]) <= {"free_pages", "pcp_count"}
    imposed = validation.errors.assign(kind="imposed")
    assert "refill_pages" not in set(scores(imposed, validation.snapshots)["metric"])


@pytest.mark.parametrize(
    ("measured", "predicted", "error", "null", "said"),
    [
        (100, 106, 0.06, 1.0, "within 6 %"),
        (100, 100, 0.0, 0.0, "within 1 %"),
        (100, 106, 0.06, 0.06, "within 6 %, null no worse"),
        (100, 300, 2.0, 1.0, "3 times too many"),
        (100, 20, 0.8, 1.0, "5 times too few"),
        (100, 0, 1.0, 1.0, "none predicted"),
        (0, 12, np.inf, 0.0, "none measured"),
        (100, 100, 0.4, 1.0, "off by 40 %"),
    ],
)
def test_a_quantity_is_judged_in_words(
    measured: float, predicted: float, error: float, null: float, said: str
) -> None:
    assert judgement_of(measured, predicted, error, null) == said


def test_the_line_names_what_is_right_and_what_is_not() -> None:
    rows = [
        ("free pages", "free_pages", 100.0, 102.0, 0.02, 0.5, "within 2 %"),
        ("refills", "refill_transactions", 100.0, 106.0, 0.06, 9.0, "within 6 %"),
        ("fallbacks", "extfrag_events", 10.0, 30.0, 2.0, 1.0, "3 times too many"),
    ]
    names = ["quantity", "metric", "measured", "predicted", "error", "null_error", "verdict"]
    table = pd.DataFrame(rows, columns=names)
    assert headline(table) == (
        "the model predicts free pages within 2 %, refills within 6 %; furthest off: fallbacks (3 "
        "times too many); 2 of 3 quantities within 25 % of what was measured, against 0 for the "
        "null model (nothing changes, no per-CPU lists)"
    )
    assert score_words(table[:1]).startswith("1 of 1 quantity within")
    assert headline(table[:1]).startswith("the model predicts free pages within 2 %; 1 of 1 ")
    no_better = table[:1].assign(null_error=0.02)
    first = headline(no_better).partition(";")[0]
    assert first == "the model predicts nothing better than a null model does"
    assert "nothing" in headline(table[:0])


def test_a_result_prints_in_at_most_forty_lines(validation: Validation) -> None:
    comparison = pm.compare(
        validation.replay, pm.replay(validation.recording, pm.Policy(pcp_batch=7))
    ).validated(validation)
    for result in (validation, validation.over_seeds(2), comparison):
        assert 3 < repr(result).count("\n") < 40
    assert repr(comparison).startswith("xfree, pcp_batch=7: refills up by ")


def test_chaotic_quantities_are_ranges_over_seeds() -> None:
    recording = shipped_recording("highatomic_gate3")
    elastic = pm.Assumptions(reclaim="elastic")
    validation = pm.validate(recording, assumptions=elastic).over_seeds(3)
    ranges = {spread.metric: spread for spread in validation.seeds}
    assert "extfrag_events" in ranges
    for seed in range(3):
        alone = pm.replay(recording, assumptions=elastic, seed=seed)
        assert ranges["extfrag_events"].values[seed] == alone.fallbacks["count"].sum()
    described = validation.to_dict()["seeds"]
    assert [row["metric"] for row in described] == list(ranges)  # type: ignore[index,attr-defined]


@pytest.mark.parametrize(
    ("measured", "inside", "below", "said"),
    [
        (29.0, True, 2, "measured 29, in the range, 2 of 3 below"),
        (500.0, False, 3, "measured 500, outside"),
        (float("nan"), False, 0, "not measured"),
    ],
)
def test_a_range_says_where_the_kernel_lies(
    measured: float, inside: bool, below: int, said: str
) -> None:
    values = (14.0, 15.0, 134.0)
    spread = SeedRange(
        quantity="fallbacks", metric="extfrag_events", measured=measured, values=values
    )
    assert (spread.inside, spread.below) == (inside, below)
    assert str(spread) == f"Over 3 seeds, fallbacks: 14 to 134, median 15; {said}"
    assert str(replace(spread, values=(7.0, 7.0))).startswith("Over 2 seeds, fallbacks: 7; ")
