"""An experiment's table, mail and figure, from a table of changes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from pagealloc_model.show.figures import predicted_changes
from pagealloc_model.show.post.tables import experiment_message, experiment_table
from pagealloc_model.studies.experiments.experiment import MODES, score_table
from pagealloc_model.verdict.statistics import verdict

PAIR = "A -> B: vm.min_free_kbytes 2048 -> 16384"


def row(metric: str, mode: str, predicted: float, low: float, high: float) -> dict[str, object]:
    return {
        "pair": PAIR,
        "axis": "vm.min_free_kbytes",
        "metric": metric,
        "unit": "pages",
        "mode": mode,
        "runs_before": 3,
        "runs_after": 3,
        "before": 12_345.0,
        "after": 12_345.0 + (low + high) / 2,
        "change": (low + high) / 2,
        "low": low,
        "high": high,
        "predicted": predicted,
        "predicted_lowest": predicted,
        "predicted_highest": predicted,
        "modelled": True,
        "verdict": verdict(predicted, low, high),
        "inside": low <= predicted <= high,
        "note": "",
    }


@pytest.fixture
def changes() -> pd.DataFrame:
    nan = float("nan")
    rows = [
        row(metric, mode, predicted + (0.0 if mode == MODES[0] else 0.5), low, high)
        for mode in MODES
        for metric, predicted, low, high in (
            ("within", 150.0, 100.0, 200.0),
            ("right", 500.0, 100.0, 200.0),
            ("wrong", -500.0, 100.0, 200.0),
            ("none", 5.0, -100.0, 200.0),
            ("few", 5.0, nan, nan),
            ("exact", 5.0, 5.0, 5.0),
        )
    ]
    return pd.DataFrame(rows)


def lines_of(changes: pd.DataFrame) -> list[str]:
    return experiment_table(changes, score_table(changes)).splitlines()


def line_below(lines: list[str], heading: str) -> str:
    return lines[lines.index(heading) + 1]


def test_predictions_carry_their_verdict(changes: pd.DataFrame) -> None:
    lines = lines_of(changes)
    assert lines[0] == f"{PAIR} (3 and 3 runs)"
    assert line_below(lines, "within").split() == [
        *("pages", "12.3k", "150", "[100,", "200]", "150", "=", "150.5", "="),
    ]
    assert line_below(lines, "right").split()[-2:] == ["500.5", "+"]
    assert line_below(lines, "wrong").split()[-2:] == ["-499.5", "!"]
    assert line_below(lines, "few").split()[1:4] == ["12.3k", "NA", "NA"]


def test_what_has_no_effect_is_named_below(changes: pd.DataFrame) -> None:
    lines = lines_of(changes)
    assert "No measurable effect: none." in lines
    assert "none" not in lines


def test_the_score_stands_beside_no_change(changes: pd.DataFrame) -> None:
    lines = lines_of(changes)
    words = {line.split()[0]: line.split() for line in lines if line.startswith("  ")}
    assert words["literal"][1:] == ["4", "2", "(50%)", "3", "(75%)", *WRONG_AND_QUIET]
    assert words["no"][2:] == ["4", "0", "(0%)", "0", "(0%)", "4", "(100%)", *NO_QUIET]


WRONG_AND_QUIET = ("1", "(25%)", "0", "(0%)", "1", "(100%)")
NO_QUIET = ("0", "(0%)", "1", "(100%)")


def test_lines_fit_a_mail(changes: pd.DataFrame) -> None:
    failed = pd.DataFrame({"side": ["B"], "repeat": [2], "error": ["it hung"]})
    message = experiment_message("two", ["A: x 1"], changes, score_table(changes), failed)
    text = message.to_text()
    assert text.startswith("Subject: [predicted and measured] two\n")
    assert max(map(len, text.splitlines())) <= 72
    assert text.isascii()
    assert "- B2: it hung" in text.splitlines()


def test_points_lie_where_their_verdict_says(changes: pd.DataFrame) -> None:
    figure = predicted_changes(changes)
    go.Figure(figure.to_dict())  # plotly checks every property
    points = [trace for trace in figure.data if trace.meta == PAIR]
    assert len(points) == len(MODES)
    drawn = {
        words.split(":")[0]: (x, y)
        for x, y, words in zip(points[0].x, points[0].y, points[0].text, strict=True)
    }
    assert set(drawn) == {"within", "right", "wrong", "none"}
    half = 50.0
    assert drawn["within"] == pytest.approx(tuple(np.arcsinh([150 / half, 150 / half])))
    widths = {name: np.sinh(place) for name, place in drawn.items()}
    assert abs(widths["within"][1] - widths["within"][0]) <= 1
    assert abs(widths["right"][1] - widths["right"][0]) > 1
    assert abs(widths["none"][0]) < 1


def test_an_empty_table_is_drawn(changes: pd.DataFrame) -> None:
    few = changes[changes["metric"] == "few"]
    figure = predicted_changes(few)
    assert all(len(trace.x) == 0 for trace in figure.data if trace.meta == PAIR)


def test_every_pair_that_is_drawn_is_named_once(changes: pd.DataFrame) -> None:
    """Also one that only the second mode has numbers for."""
    other = changes[changes["mode"] == MODES[1]].assign(pair="A -> C: another")
    figure = predicted_changes(pd.concat([changes, other], ignore_index=True))
    points = [trace for trace in figure.data if trace.mode == "markers"]
    named = [trace.name for trace in points if trace.showlegend and len(trace.x)]
    assert sorted(named) == sorted([PAIR, "A -> C: another"])
