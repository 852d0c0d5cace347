"""Pictures and tables of how right predictions are: first sight, experiments, for a talk."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

import pagealloc_model as pm
from pagealloc_model.guests.score import MODES, score_table
from pagealloc_model.numbers import vocabulary as voc
from pagealloc_model.numbers.comparison import BELIEVED
from pagealloc_model.numbers.statistics import verdict
from pagealloc_model.show import figures
from pagealloc_model.show.figures.faceted import LEGEND_LINE
from pagealloc_model.show.figures.points import (
    FEW,
    HIDDEN,
    LARGEST,
    MOST_ERROR,
    MOST_FEW,
    MOST_ROWS,
    NO_INTERVAL,
    predicted_over_measured,
    shown_rows,
)
from pagealloc_model.show.post.tables import experiment_line, experiment_message, experiment_table
from tests import synthetic_tables as tables
from tests.small_recordings import LITERAL, shipped_recording


def notes_of(figure: go.Figure) -> list[str]:
    return [note.text.replace("<br>", " ") for note in figure.layout.annotations]


def source(**other: pd.DataFrame) -> SimpleNamespace:
    boosts = tables.free_pages()[["time_ns", "node", "zone"]].drop_duplicates().assign(pages=0)
    usual = {"free_pages": tables.free_pages(), "pcp": tables.pcp(), "lock": tables.lock()}
    usual |= {"pageblocks": tables.pageblocks(), "boosts": boosts}
    return SimpleNamespace(**usual | other)


def test_panels_where_nothing_happens_are_one_line() -> None:
    still = tables.pageblocks().assign(blocks=7)
    figure = figures.at_a_glance(source(pageblocks=still), source(pageblocks=still))
    *notes, last = notes_of(figure)
    assert "Nothing changes in: " in last
    assert "pageblocks: Movable" in last
    assert not any(note.startswith("pageblocks:") for note in notes)
    assert any(note.startswith("free pages, Normal") for note in notes)
    assert [trace.name for trace in figure.data if trace.showlegend] == ["measured", "predicted"]


def test_what_no_table_has_is_left_out() -> None:
    silent = source(lock=tables.lock().iloc[:0])
    assert not any("zone->lock" in note for note in notes_of(figures.at_a_glance(silent, silent)))
    lock = tables.lock()
    uneven = lock.assign(acquisitions=range(1, len(lock) + 1))
    one_sided = figures.at_a_glance(silent, source(lock=uneven))
    assert any("measured: not available" in note for note in notes_of(one_sided))


def test_an_axis_that_does_not_begin_at_zero_says_so() -> None:
    high = tables.free_pages()
    high, higher = (high.assign(pages=high["pages"] + more) for more in (10**4, 10**7))
    figure = figures.at_a_glance(source(free_pages=high), source(free_pages=high))
    cut = [note for note in notes_of(figure) if note.endswith("(axis cut)")]
    axes = [figure.layout[name] for name in figure.layout if name.startswith("yaxis")]
    assert any(note.startswith("free pages") for note in cut)
    assert len(cut) == sum(axis.rangemode == "normal" for axis in axes)
    by_order = figures.free_pages_by_order(high, high)
    assert notes_of(by_order)[0::10] == ["order 0", "order 10 (axis cut)"]
    modes = [by_order.layout[name].rangemode for name in ("yaxis", "yaxis11")]
    assert modes == ["tozero", "normal"]
    assert not any("cut" in note for note in notes_of(figures.free_pages_by_order(higher, higher)))


def test_a_legend_of_many_settings_has_room_above_the_panels() -> None:
    numbers = {"change": 1.0, "low": 0.5, "high": 1.5, "predicted": 1.0, "mode": "elastic"}
    words = {"metric": "m", "unit": "", "verdict": "predicted"}
    rows = pd.DataFrame([{"pair": f"A -> {name}", **numbers, **words} for name in "BCDEFGHI"])
    few, many = (figures.predicted_changes(rows[:count]).layout for count in (2, 8))
    assert many.margin.t - few.margin.t == many.height - few.height == 3 * LEGEND_LINE


def test_waits_at_the_lock_are_drawn_where_there_are_any() -> None:
    waits = [0, 0, 2000, 0]
    table = pd.DataFrame({"site": ["refill", "drain"] * 2, "hold_ns": 1000, "wait_ns": waits})
    drawn = notes_of(figures.lock_times({"one": table}))
    assert [note for note in drawn if "waited" in note] == [
        "refills, waited for",
        "drains, waited for",
    ]
    still = notes_of(figures.lock_times({"one": table.assign(wait_ns=0)}))
    assert still == ["refills, held", "drains, held", "Nothing waits for zone->lock."]


def test_a_small_share_of_folios_has_an_axis_of_its_size() -> None:
    rows = {"class": "anon", "order": [4, 9], "asked": [100, 100], "failed": [98, 99]}
    figure = figures.folios(None, pd.DataFrame(rows))
    assert figure.layout.yaxis.rangemode == "tozero"
    assert figure.layout.yaxis.range is None


def errors(*rows: tuple[str, float, float, float]) -> pd.DataFrame:
    columns = ["metric", "measured", "predicted", "null"]
    table = pd.DataFrame(rows, columns=columns).assign(scope="all", kind="predicted", unit="")
    sides = {"least": table["predicted"], "most": table["predicted"]}
    return table.assign(error=0.0, null_error=0.0, counted=table["measured"], **sides)


NO_STATES = errors().assign(time_s=0.0)


@pytest.mark.parametrize(
    ("measured", "predicted", "inside"),
    [(100, 125, True), (100, 126, False), (100, 80, True), (100, 79, False), (0, 0, True)],
)
def test_the_band_is_a_quarter_wide(measured: float, predicted: float, inside: bool) -> None:
    points = predicted_over_measured(errors(("refill_pages", measured, predicted, 1e6)), NO_STATES)
    assert points["inside"].tolist() == [inside]
    assert points["null_inside"].tolist() == [False]


def test_what_is_no_prediction_is_not_drawn() -> None:
    rows = errors(("refill_pages", 50, 50, 9), ("drain_pages", 50, 50, 9), ("thp_success", 1, 1, 1))
    rows["kind"] = ["imposed", "predicted", "predicted"]
    unknown = errors(("refill_transactions", np.nan, 3, 3))
    points = predicted_over_measured(pd.concat([rows, unknown]), NO_STATES)
    assert points["metric"].tolist() == ["drain_pages"]


def test_every_scored_number_is_drawn_under_a_mark_of_its_own() -> None:
    rows = errors(
        *((row.name, 50, 40, 7) for row in voc.SCORED if row.name not in voc.SERIES_WORDS)
    )
    states = errors(*((name, 50, 40, 7) for name in voc.SERIES_WORDS)).assign(time_s=0.0)
    figure = figures.how_right(rows, states, "mine")
    marks = {trace.name: trace.marker.symbol for trace in figure.data if trace.marker.symbol}
    assert {row.verdict[1] for row in voc.SCORED} < set(marks)
    assert len(set(marks.values())) == len(marks)


def test_small_counts_are_on_linear_axes() -> None:
    rows = errors(
        ("refill_pages", 50_000, 40_000, 7),
        ("extfrag_events", 12, FEW - 1, 0),
        ("drain_pages", 0, 500, 0),
    )
    figure = figures.how_right(rows, NO_STATES, "mine")
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    assert figure.layout.xaxis2.type is None
    assert figure.layout.xaxis.range[0] >= np.log10(FEW)
    few = [trace for trace in figure.data if trace.xaxis == "x2" and trace.mode == "markers"]
    assert sorted(y for trace in few for y in trace.y) == [0, 0, FEW - 1, MOST_FEW]
    assert any(f"cut at {MOST_FEW}" in note for note in notes_of(figure))
    named = [trace.name for trace in figure.data if trace.showlegend]
    assert len(named) == len(set(named))
    assert {"within 25 %", "equal", "null model of each", "fallbacks"} <= set(named)


PAIR = "A -> B: vm.min_free_kbytes 2048 -> 16384"
NAN = float("nan")


@pytest.fixture
def changes() -> pd.DataFrame:
    """An experiment's table: the predictions of one mode lie half a page above the other's."""
    effects = {
        "within": (150.0, 100.0, 200.0),
        "right": (500.0, 100.0, 200.0),
        "wrong": (-500.0, 100.0, 200.0),
        "none": (5.0, -100.0, 200.0),
        "few": (5.0, NAN, NAN),
        "exact": (5.0, 5.0, 5.0),
    }
    rows = []
    for mode in MODES:
        for metric, (guess, low, high) in effects.items():
            predicted = guess + (0.0 if mode == MODES[0] else 0.5)
            row = {"pair": PAIR, "axis": "vm.min_free_kbytes", "metric": metric, "mode": mode}
            row |= {"unit": "pages", "runs_before": 3, "runs_after": 3, "before": 12_345.0}
            row |= {"change": (low + high) / 2, "low": low, "high": high, "predicted": predicted}
            row |= {"verdict": verdict(predicted, low, high), "inside": low <= predicted <= high}
            rows.append(row | {"modelled": True, "note": ""})
    return pd.DataFrame(rows)


def test_predictions_carry_their_verdict_and_the_score_stands_below(changes: pd.DataFrame) -> None:
    lines = experiment_table(changes, score_table(changes)).splitlines()
    below = {heading: line.split() for heading, line in pairwise(lines)}
    assert lines[0] == f"{PAIR} (3 and 3 runs)"
    within = "pages 12.3k 150 [100, 200] 150 = 150.5 ="
    assert below["within"] == within.split()
    assert below["right"][-2:] == ["500.5", "+"]
    assert below["wrong"][-2:] == ["-499.5", "!"]
    assert below["few"][1:4] == ["12.3k", "NA", "NA"]
    assert "No measurable effect: none." in lines and "none" not in lines
    scores = [" ".join(line.split()) for line in lines if line.startswith("  ")]
    assert "literal 4 2 (50%) 3 (75%) 1 (25%) 0 (0%) 1 (100%)" in scores
    assert "no change 4 0 (0%) 0 (0%) 4 (100%) 0 (0%) 1 (100%)" in scores
    # one of the four effects has an interval of no width, and is large; 3 of 6 intervals hold
    assert "literal 4 2 (50%) 3 (75%) 3 (60%) NA" in scores


def test_the_score_is_a_sentence(changes: pd.DataFrame) -> None:
    said = experiment_line(score_table(changes))
    assert said.startswith("Elastic replays predict 1 of 4 measurable changes within the interval")
    assert (
        "; literal replays predict 2 of 4" in said and "3 in the direction and 1 wrongly." in said
    )
    assert experiment_line(score_table(changes)[3:]) == "No measurable change is predicted."


def test_an_experiment_fits_a_mail(changes: pd.DataFrame) -> None:
    failed = pd.DataFrame({"side": ["B"], "repeat": [2], "error": ["it hung"]})
    text = experiment_message("two", ["A: x 1"], changes, failed, score_table(changes)).to_text()
    assert text.startswith("Subject: [predicted and measured] two\n")
    assert max(map(len, text.splitlines())) <= 72 and text.isascii()
    assert "- B2: it hung" in text.splitlines()


def test_points_lie_where_their_verdict_says(changes: pd.DataFrame) -> None:
    figure = figures.predicted_changes(changes)
    go.Figure(figure.to_dict())  # plotly checks every property
    points = [trace for trace in figure.data if trace.meta == PAIR]
    assert len(points) == len(MODES)
    names = [words.split(":")[0] for words in points[0].text]
    widths = dict(zip(names, np.sinh([points[0].x, points[0].y]).T, strict=True))
    assert set(widths) == {"within", "right", "wrong", "none"}
    assert widths["within"] == pytest.approx([3, 3])  # half widths of 50
    assert abs(widths["right"][1] - widths["right"][0]) > 1
    assert abs(widths["none"][0]) < 1
    empty = figures.predicted_changes(changes[changes["metric"] == "few"])
    assert all(len(trace.x) == 0 for trace in empty.data if trace.meta == PAIR)


def test_every_pair_that_is_drawn_is_named_once(changes: pd.DataFrame) -> None:
    """Also one that only the second mode has numbers for."""
    other = changes[changes["mode"] == MODES[1]].assign(pair="A -> C: another")
    figure = figures.predicted_changes(pd.concat([changes, other], ignore_index=True))
    points = [trace for trace in figure.data if trace.mode == "markers"]
    named = [trace.name for trace in points if trace.showlegend and len(trace.x)]
    assert sorted(named) == sorted([PAIR, "A -> C: another"])


def test_believed_rows_come_first_and_what_says_nothing_is_left_out() -> None:
    columns = ["metric", "base", "patch", "change_low", "change_high", "verdict"]
    rows = [
        ("unsure", 100, 110, -20, 40, "within error"),
        ("unproven", 100, 300, 150, 250, "unproven"),
        ("few", 3, 30, 20, 30, "worse"),
        ("halved", 100, 50, -60, -40, "better"),
        ("huge", 100, 9000, 8000, 9900, "worse"),
    ]
    shown = shown_rows(pd.DataFrame(rows, columns=columns).assign(scope="all")).set_index("name")
    assert list(shown.index) == ["halved", "huge", "unproven", "unsure"]
    assert shown.loc["halved", ["ratio", "from_ratio", "to_ratio"]].tolist() == [0.5, 0.4, 0.6]
    assert shown.loc["huge", ["ratio", "from_ratio", "to_ratio"]].tolist() == [90, 81, 100]


def test_unproven_rows_are_drawn_however_many_others_there_are() -> None:
    columns = ["metric", "base", "patch", "change_low", "change_high", "verdict"]
    rows = [(f"good {place}", 100, 50, -60, -40, "better") for place in range(MOST_ROWS + 3)]
    rows.append(("worst", 100, 300, 150, 250, "unproven"))
    drawn = shown_rows(pd.DataFrame(rows, columns=columns).assign(scope="all"))
    assert len(drawn) == MOST_ROWS
    assert drawn["name"].iloc[-1] == "worst"


def test_what_lies_beyond_an_axis_has_an_arrow_and_a_missing_interval_its_reason() -> None:
    columns = ["metric", "base", "patch", "change_low", "change_high", "verdict"]
    rows = [
        ("huge", 100, 9000, 8000, 9900, "worse"),
        ("wide", 100, 50, -99, -40, "better"),
        ("narrow", 100, 50, -51, -49, "better"),
        ("rare", 100, 50, np.nan, np.nan, "unproven"),
    ]
    table = pd.DataFrame(rows, columns=columns).assign(scope="all")
    errors = [("near", 0.1, 5.0), ("far", 13.0, 0.5), ("none", np.inf, np.inf)]
    errors += [("too few", -0.4, -0.2)]
    scored = pd.DataFrame(errors, columns=["quantity", "error", "null_error"])
    figure = figures.talk_figure(table, scored, "title", "caption")
    left, right = ([trace for trace in figure.data if trace.xaxis == axis] for axis in ("x", "x2"))
    arrows = {
        (name, trace.marker.symbol, x > 1)
        for trace in left
        if trace.name == "goes on beyond the axis"
        for name, x in zip(trace.y, trace.x, strict=True)
    }
    assert arrows == {("huge", "triangle-right", True), ("wide", "triangle-left", False)}
    marks = [trace for trace in left if trace.mode == "markers+text"]
    ends = [np.clip(trace.x, 1 / LARGEST, LARGEST) == trace.x for trace in marks]
    assert all(np.all(inside) for inside in ends)
    why = {name: text for t in marks for name, text in zip(t.y, t.text, strict=True)}
    assert why == {"huge": "", "wide": "", "narrow": HIDDEN, "rare": NO_INTERVAL}
    (bars,) = [trace for trace in right if trace.type == "bar"]
    assert list(bars.y) == ["none", "far", "too few", "near"]  # the worst on top, none left out
    assert list(bars.x) == [MOST_ERROR, MOST_ERROR, pytest.approx(40), pytest.approx(10)]
    cut = {t.marker.symbol: list(t.y) for t in right if t.name == "goes on beyond the axis"}
    assert cut == {"triangle-right": ["none", "far"], "triangle-right-open": ["none", "near"]}
    assert figure.layout.xaxis2.range[0] == 0 and figure.layout.xaxis2.type != "log"


def test_the_figure_has_marks_for_each_kind_and_its_caption() -> None:
    recording = shipped_recording("highatomic_gate3")
    validation = pm.validate(recording, assumptions=LITERAL)
    rows = (
        pm.compare(
            validation.replay, pm.replay(recording, pm.Policy(pcp_batch=7), assumptions=LITERAL)
        )
        .validated()
        .rows
    )
    figure = figures.talk_figure(rows, validation.scores, "title", "the caption")
    traces = {trace.name: trace for trace in figure.data if trace.xaxis == "x"}
    drawn = shown_rows(rows)
    assert 0 < len(drawn) <= MOST_ROWS
    believed = drawn.loc[drawn["verdict"].isin(BELIEVED), "name"]
    assert list(traces["changed by more than the model's error"].y) == list(believed)
    (bars,) = [trace for trace in figure.data if trace.type == "bar"]
    assert sorted(bars.y) == sorted(validation.scores["quantity"])
    assert figure.layout.annotations[-1].text.startswith("the caption")
