"""Predicted beside measured changes of an experiment: as a table, and as a message for a list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from pagealloc_model.base.text.layout import (
    NOT_AVAILABLE,
    WIDTH,
    Row,
    ascii_only,
    number,
    paragraph,
    text_table,
)
from pagealloc_model.show.post.message import Block, Fixed, Message, Section, Words
from pagealloc_model.verdict.statistics import (
    CONFIDENCE,
    INTERVAL,
    NO_EFFECT,
    NOT_PREDICTED,
    RIGHT,
    TOO_FEW,
    WITHIN,
    WRONG,
)

MARKS = {WITHIN: "=", RIGHT: "+", WRONG: "!", NO_EFFECT: " ", NOT_PREDICTED: " ", TOO_FEW: " "}
"""What stands behind a prediction."""

READING = (
    "change: mean of the later side less that of the earlier one, with its "
    f"{CONFIDENCE:.0%} interval over runs ({INTERVAL}, not corrected for the number of rows). "
    "literal, elastic: the predicted change, from recordings of the earlier side alone. "
    "= within the interval; + right direction; ! wrong; no mark: no measurable effect, "
    "or too few runs."
)
NO_FIELD = "Nothing in the model stands for this setting: no change is predicted."


def experiment_table(changes: pd.DataFrame, score: pd.DataFrame, *, width: int = WIDTH) -> str:
    """Every quantity with a measurable effect, how to read it, and how often it was predicted.

    Quantities without one are named below their pair's rows.

    Args:
        changes: as `studies.experiments.changes_table` returns it.
        score: of the same.
        width: characters per line at most.
    """
    blocks = [
        block
        for title, mine in changes.groupby("pair", sort=False)
        for block in _pair(title, mine, width)
    ]
    return (
        "\n\n".join([*blocks, paragraph(READING, width=width), score_text(score, width=width)])
        + "\n"
    )


def _pair(title: str, mine: pd.DataFrame, width: int) -> Iterator[str]:
    runs = f"{mine['runs_before'].iloc[0]} and {mine['runs_after'].iloc[0]} runs"
    heading = paragraph(f"{title} ({runs})", width=width)
    by_mode = {mode: rows.set_index("metric") for mode, rows in mine.groupby("mode", sort=False)}
    first = next(iter(by_mode.values()))
    shown = first[first["verdict"] != NO_EFFECT]
    if len(shown):
        header = Row(
            heading="quantity", label="unit", cells=("before", "change", "interval", *by_mode)
        )
        rows = [_row(metric, row, by_mode) for metric, row in shown.iterrows()]
        yield f"{heading}\n\n{text_table(header, rows, width=width)}"
    else:
        yield f"{heading}\n\nNo quantity has a measurable effect."
    if not mine["modelled"].iloc[0]:
        yield paragraph(NO_FIELD, width=width)
    for note in dict.fromkeys(note for note in mine["note"] if note):
        yield paragraph(f"Not predicted: {note}.", width=width)
    quiet = first.index[first["verdict"] == NO_EFFECT]
    if len(quiet) and len(shown):
        yield paragraph(f"{NO_EFFECT.capitalize()}: {', '.join(quiet)}.", width=width)


def _row(metric: Any, row: pd.Series, by_mode: dict[Any, pd.DataFrame]) -> Row:
    interval = NOT_AVAILABLE
    if pd.notna(row["low"]):
        interval = f"[{_short(row['low'])}, {_short(row['high'])}]"
    cells = [
        f"{_short(rows.loc[metric, 'predicted'])} {MARKS[rows.loc[metric, 'verdict']]}"
        for rows in by_mode.values()
    ]
    measured = (_short(row["before"]), _short(row["change"]), interval)
    return Row(heading=ascii_only(str(metric)), label=row["unit"], cells=(*measured, *cells))


def _short(value: float) -> str:
    """A number in about five characters: 12.3k for 12345."""
    if pd.isna(value):
        return NOT_AVAILABLE
    for scale, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * scale or (letter == "M" and abs(value) >= scale):
            return f"{value / scale:.3g}{letter}" if abs(value) < 1e3 * scale else f"{value:.3g}"
    if abs(value) >= 1e3:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 and value != int(value) else number(value)


def score_text(score: pd.DataFrame, *, width: int = WIDTH) -> str:
    """How many quantities were predicted, by mode and by the model that nothing changes.

    Args:
        score: model, measurable, predicted, right, wrong, not_predicted, quiet, quiet_inside.
        width: characters per line at most.
    """
    titles = ("effects", "within", "direction", "wrong", "none", "quiet")
    header = Row(heading="model", label="mode", cells=titles)
    rows = [
        Row(
            heading="quantities of all pairs",
            label=row.model,
            cells=(
                str(row.measurable),
                _share(row.predicted, row.measurable),
                _share(row.predicted + row.right, row.measurable),
                _share(row.wrong, row.measurable),
                _share(row.not_predicted, row.measurable),
                _share(row.quiet_inside, row.quiet),
            ),
        )
        for row in score.itertuples()
    ]
    words = (
        "effects: quantities of pairs with a measurable effect, and of these the shares predicted "
        "within the interval, in the right direction (those within it included; a coin has half), "
        "wrong, and none (not predicted). quiet: of those without one, predictions within the "
        "interval."
    )
    return f"{text_table(header, rows, width=width)}\n\n{paragraph(words, width=width)}"


def _share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.0f}%)" if whole else NOT_AVAILABLE


def experiment_message(
    name: str,
    about: Sequence[str],
    changes: pd.DataFrame,
    score: pd.DataFrame,
    failed: pd.DataFrame,
) -> Message:
    """An experiment as a message: what was run, predicted beside measured, what failed.

    Args:
        name: of the experiment.
        about: sentences on what was run.
        changes: as `studies.experiments.changes_table` returns it.
        score: of the same.
        failed: side, repeat and error of runs that left no recording.
    """
    told: tuple[Block, ...] = tuple(Words(text=each, bullet=True) for each in about)
    missing = tuple(
        Words(text=f"{row.side}{row.repeat}: {row.error}", bullet=True)
        for row in failed.itertuples()
    )
    sections = (
        Section(
            title="What",
            blocks=(
                Words(
                    text="Changes predicted by a trace-driven model of the page allocator, from "
                    "recordings of one side, beside what changed when the other side was run."
                ),
            ),
        ),
        Section(title="On what", blocks=told),
        Section(title="Results", blocks=(Fixed(text=experiment_table(changes, score)),)),
        Section(title="Runs that failed", blocks=missing),
    )
    kept = tuple(section for section in sections if section.blocks)
    return Message(subject=f"[predicted and measured] {name}", sections=kept)
