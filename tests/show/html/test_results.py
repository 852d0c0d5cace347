"""What results show in a notebook: whole HTML, escaped names, numbers to sort by, courses."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from IPython.lib.pretty import pretty

import pagealloc_model as pm
from pagealloc_model.base.table import Cell, Column, Table
from pagealloc_model.numbers.errors import against_null
from pagealloc_model.numbers.validation import Validation
from pagealloc_model.numbers.vocabulary import over_time
from pagealloc_model.show.html.results import (
    MOST_POINTS,
    course_of,
    frame_table,
    framed,
    line,
    sparkline,
)
from pagealloc_model.sweeps.sweep import SweepResult
from tests.small_recordings import LITERAL, shipped_recording

HOSTILE = "<script>alert(1)</script>\"'&<b>"
VOID = {"circle", "polyline", "input", "br"}


class Balanced(HTMLParser):
    """Collects elements and complains of any that is not closed in its turn."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.words: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def validation() -> Validation:
    return pm.validate(shipped_recording("highatomic_gate3"), assumptions=LITERAL)


def test_every_result_is_whole_html(validation: Validation) -> None:
    patch = pm.replay(validation.recording, pm.Policy(pcp_batch=31), assumptions=LITERAL)
    for shown in (
        validation.recording,
        validation,
        validation.replay,
        pm.compare(validation.replay, patch).validated(validation),
    ):
        page = Balanced(shown._repr_html_())
        assert {"table", "details", "svg"} <= set(page.seen)
        assert page.seen.count("script") == page.seen.count("style") == 1


def test_hostile_names_stay_words(validation: Validation) -> None:
    errors = validation.errors.assign(metric=HOSTILE, scope=HOSTILE, unit=HOSTILE)
    named = replace(validation, errors=errors, notes=(HOSTILE,))
    for html in (
        named._repr_html_(),
        replace(validation.replay, name=HOSTILE)._repr_html_(),
        replace(validation.recording, name=HOSTILE)._repr_html_(),
        framed(frame_table(pd.DataFrame({HOSTILE: [HOSTILE]}), HOSTILE)),
        framed(sparkline(HOSTILE, (np.arange(3.0), np.arange(3.0)))),
    ):
        page = Balanced(html)
        assert page.seen.count("script") == 1
        words = [*page.words, *(value or "" for _, value in page.attributes)]
        assert any(HOSTILE in word for word in words)


def test_rows_say_whether_they_beat_their_null_model(validation: Validation) -> None:
    words = Balanced(validation._repr_html_()).words
    rows = [against_null(row) for row in validation.errors.itertuples()]
    assert sum(word.endswith("no nearer") for word in words) == rows.count("no nearer") > 0
    assert words.count("\u2713 nearer") == rows.count("nearer") > 0


@pytest.mark.parametrize(
    ("measured", "predicted", "null", "error", "null_error", "kind", "said"),
    [
        (10, 11, 20, 0.1, 1.0, "predicted", "nearer"),
        (10, 20, 11, 1.0, 0.1, "predicted", "no nearer"),
        (10, 5, 15, -0.5, 0.5, "predicted", "no nearer"),
        (0, 0, 0, 0.0, 0.0, "predicted", "both right"),
        (0, 0, 4, 0.0, np.nan, "predicted", "none"),
        (0, 3, 4, np.nan, np.nan, "predicted", "nearer"),
        (0, 0, 0, 0.002, 0.005, "predicted", "nearer"),
        (0, -3, 0, np.nan, 0.0, "predicted", "no nearer"),
        (np.nan, 3, 4, np.nan, np.nan, "predicted", "not measured"),
        (10, 11, 20, 0.1, 1.0, "imposed", "imposed"),
    ],
)
def test_what_is_said_against_a_null_model(
    measured: float,
    predicted: float,
    null: float,
    error: float,
    null_error: float,
    kind: str,
    said: str,
) -> None:
    row = SimpleNamespace(
        measured=measured,
        predicted=predicted,
        null=null,
        error=error,
        null_error=null_error,
        kind=kind,
    )
    assert against_null(row) == said


def test_cells_are_sorted_by_number_and_the_unknown_have_none() -> None:
    columns = [Column(title="n")]
    rows = [[Cell(shown="1,000", number=1000)], [Cell(shown="NA", number=float("nan"))]]
    html = framed(Table(columns, rows, "numbers").to_html(), line("end"))
    assert 'data-sort="1000">1,000<' in html
    assert 'data-sort="">NA<' in html


def test_a_course_adds_up_what_its_scope_is_about(validation: Validation) -> None:
    replay = validation.replay
    span = (int(replay.edges[0]), int(replay.edges[-1]))
    dated = over_time(replay, replay.machine)
    course = course_of(dated["free_pages", "zone=DMA32"], span)
    assert course is not None
    table = replay.free_pages[replay.free_pages["zone"] == "DMA32"]
    assert course[1].tolist() == table.groupby("time_ns")["pages"].sum().tolist()
    whole = course_of(dated["refill_transactions", "all"], span)
    parts = [course_of(dated["refill_transactions", f"cpu={cpu}"], span) for cpu in range(4)]
    assert whole is not None
    assert whole[1].sum() == (replay.transactions_full["site"] == "refill").sum()
    assert sum(part[1].sum() for part in parts if part is not None) == whole[1].sum()
    assert not {metric for metric, _ in dated} & {"placement_exact", "order_distribution_tv"}
    assert course_of(dated.get(("refill_pages", "per time bin")), span) is None


def test_a_sparkline_keeps_its_extremes_in_few_points() -> None:
    values = np.zeros(1000)
    values[500] = 9.0
    html = sparkline("peak", (np.arange(1000.0), values)).html
    points = html.partition('points="')[2].partition('"')[0].split()
    assert len(points) == MOST_POINTS
    assert min(float(point.split(",")[1]) for point in points) == 3.0
    assert "from 0 to 9" in html
    empty = (np.arange(2.0), np.full(2, np.nan))
    assert sparkline("nothing", empty).html == ""


def test_a_sweep_shows_its_points() -> None:
    rows = pd.DataFrame(
        {"recording": ["a", HOSTILE], "pcp_batch": [1, 63], "seed": 0, "error": ["", "broken"]}
    )
    html = SweepResult(rows=rows, axes=("pcp_batch",))._repr_html_()
    assert "1 point failed" in html
    assert "broken" in Balanced(html).words


def test_terminals_get_text(validation: Validation) -> None:
    for shown in (validation, validation.replay, validation.recording):
        text = pretty(shown)
        assert "<" not in text.replace("<=", "").replace("->", "")
        assert max(map(len, text.splitlines())) < 160
    assert "by the null model (no change" in " ".join(pretty(validation).split())
