"""The line that validate begins with: quantities scored once, as the error table has them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pagealloc_model as pm
from pagealloc_model.numbers.result_tables import error_cell, null_cell
from pagealloc_model.numbers.validation import (
    TOO_FEW,
    Validation,
    headline,
    score_words,
    scores,
    usual_seeds,
)
from tests.small_recordings import shipped_recording

RECORDING = "xfree"


@pytest.fixture(scope="module")
def validation() -> Validation:
    return pm.validate(shipped_recording(RECORDING))


def test_imposed_rows_and_what_was_not_measured_are_left_out(validation: Validation) -> None:
    assert "free_and_listed_pages" not in set(validation.scores["metric"])
    refills = validation.errors["metric"] == "refill_pages"
    unknown = validation.errors.assign(measured=validation.errors["measured"].mask(refills))
    assert "refill_pages" not in set(scores(unknown)["metric"])
    assert scores(validation.errors.assign(kind="imposed")).empty


def test_a_score_is_the_row_of_the_error_table(validation: Validation) -> None:
    """And the first line says no other number of it."""
    errors = validation.errors[validation.errors["scope"] == "all"].set_index("metric")
    for row in validation.scores.itertuples():
        own = errors.loc[row.metric]
        assert (row.error, row.null_error) == (own["error"], own["null_error"])
        said = validation.headline.partition(f"{row.quantity} ")[2]
        assert not said or said.startswith(f"{error_cell(own)} ({null_cell(own)})")
    free = errors.loc["free_pages"]
    assert "share of range" in free["unit"] and abs(free["null_error"]) > 0.5


def scored(*rows: tuple[str, float, float, float, float, float]) -> pd.DataFrame:
    """An error table of these metrics: measured, predicted, null, error and null_error."""
    names = ["metric", "measured", "predicted", "null", "error", "null_error"]
    table = pd.DataFrame(rows, columns=names)
    table = table.assign(scope="all", kind="predicted", unit="events", counted=table["measured"])
    return table.assign(least=table["predicted"], most=table["predicted"])


def test_the_line_names_what_is_right_and_what_is_not() -> None:
    errors = scored(
        ("free_pages", 100.0, 102.0, 150.0, 0.02, 0.5),
        ("refill_transactions", 100.0, 106.0, 90.0, 0.06, -0.1),
        ("refill_pages", 100.0, 120.0, 110.0, 0.2, 0.1),
        ("extfrag_events", 10.0, 30.0, 20.0, 2.0, 1.0),
        ("compact_stall", 2.0, 2.0, 0.0, 0.0, -1.0),
        ("allocstall", 0.0, 40.0, 0.0, np.nan, 0.0),
        ("reclaim_scanned", 0.0, 0.0, 8.0, 0.0, np.nan),
    )
    table = scores(errors)
    verdicts = dict(zip(table["metric"], table["verdict"], strict=True))
    assert verdicts == {
        "free_pages": "nearer",
        "refill_transactions": "nearer",
        "refill_pages": "no nearer",
        "extfrag_events": "no nearer",
        "allocstall": "no nearer",
        "compact_stall": TOO_FEW,
    }
    assert headline(table) == (
        "errors (null model's): free pages +2.0% (+50.0%), refills +6.0% (-10.0%); furthest off: "
        "allocation stalls 40/0 (0/0), fallbacks +200.0% (+100.0%); 3 of 5 quantities within 25 % "
        "(1 of fewer than ten events not scored), 3 by the null model (no change; counts as in "
        "the first quarter)"
    )
    assert score_words(table[:1]).startswith("1 of 1 quantity within 25 %, 0 by ")
    assert headline(table[2:3]).startswith("no quantity is near, and nearer than the null model; ")
    assert "nothing" in headline(table[:0])


def test_a_result_prints_in_at_most_forty_lines(validation: Validation) -> None:
    comparison = pm.compare(
        validation.replay, pm.replay(validation.recording, pm.Policy(pcp_batch=7))
    ).validated(validation)
    for result in (validation, validation.over_seeds(2), comparison):
        assert 3 < repr(result).count("\n") < 40
    assert repr(comparison).startswith("xfree, pcp_batch=7: refills up by ")


def test_errors_of_several_seeds_are_means_with_their_range() -> None:
    recording = shipped_recording("highatomic_gate3")
    elastic = pm.Assumptions(reclaim="elastic")
    validation = pm.validate(recording, assumptions=elastic).over_seeds(3)
    assert usual_seeds(recording) == 5 and usual_seeds(shipped_recording(RECORDING)) == 1
    rows = validation.errors.set_index(["metric", "scope"])
    alone = [pm.validate(recording, assumptions=elastic, seed=seed).errors for seed in range(3)]
    for key in (("extfrag_events", "all"), ("free_pages", "all"), ("drain_pages", "all")):
        own = [errors.set_index(["metric", "scope"]).loc[key] for errors in alone]
        predicted = [row["predicted"] for row in own]
        assert rows.loc[key, "predicted"] == pytest.approx(np.mean(predicted))
        assert (rows.loc[key, "least"], rows.loc[key, "most"]) == (min(predicted), max(predicted))
        assert rows.loc[key, "error"] == pytest.approx(np.mean([row["error"] for row in own]))
        assert rows.loc[key, "null_error"] == own[0]["null_error"]
    assert validation.to_dict()["seeds"] == 3
    assert validation.headline.startswith("highatomic_gate3 (mean of 3 seeds): ")
    assert "least" in validation.to_text()
    first = validation.scores.iloc[0]
    assert error_cell(first) in validation.headline and error_cell(first) in validation.to_text()
