"""Two policies over repeated runs, as text for a mail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from pagealloc_model.base.text.comparison_table import (
    FEW,
    MMTESTS_RULE,
    Style,
    in_measure,
    judgement,
    value_and_gain,
    with_unit,
)
from pagealloc_model.base.text.layout import (
    NOT_AVAILABLE,
    WIDTH,
    Row,
    ascii_only,
    number,
    paragraph,
    text_table,
)
from pagealloc_model.verdict.comparison import BELIEVED
from pagealloc_model.verdict.statistics import LEVEL, TEST, smallest_p

REPEATED_RULE = (
    "Sign rule: change is patch - base of the means, in percent of base, or as a number marked n "
    "where base is below 20 or the change above 1000 %, or in points of a share. error: the "
    "model's on these very recordings, in the same measure. Nothing is better or worse unless its "
    "interval, over runs and over windows of each, error included, leaves out 0 (in error: it does "
    "not). unchecked: nothing recorded shows that metric. null: the model was no nearer than a "
    "null model; such rows come last."
)

if TYPE_CHECKING:
    from pagealloc_model.verdict.comparison import RepeatedComparison


def repeated_table(
    repeated: RepeatedComparison, *, style: Style = "signed", width: int = WIDTH
) -> str:
    """Means, spread and significance by metric, with the sign rule and the test.

    Args:
        repeated: the runs.
        style: "signed" prints means, standard deviations, the raw change and p; "mmtests" prints
            Min, Amean, Stddev, CoeffVar and Max with gains, significant ones between asterisks.
        width: characters per line at most.
    """
    if style == "mmtests":
        header = Row(heading="metric", label="scope", cells=("base", "patch"))
        rows = [line for row in repeated.rows.itertuples() for line in _mmtests(row)]
    else:
        titles = ("base", "+-", "patch", "+-", "change", "error", "p", "")
        header = Row(heading="metric", label="scope", cells=titles)
        rows = [_signed(row) for row in repeated.rows.itertuples()]
    rule = MMTESTS_RULE if style == "mmtests" else REPEATED_RULE
    told = f"{rule} {significance_words(len(repeated.comparisons), len(repeated.rows))}"
    return f"{text_table(header, rows, width=width)}\n\n{paragraph(told, width=width)}\n"


def significance_words(runs: int, rows: int) -> str:
    """What test was made over how many runs, and what it cannot tell."""
    if runs == 1:
        return "One run per column: no significance test."
    words = (
        f"{runs} runs per column; +- is their standard deviation; p: {TEST}; between asterisks: "
        f"p < {LEVEL:g}, not corrected for the {rows} rows tested."
    )
    if smallest_p(runs) >= LEVEL:
        words += f" With {runs} runs p is at least {smallest_p(runs):.3g}: no row can be marked."
    return words


def _signed(row: Any) -> Row:
    change = in_measure(row, row.patch - row.base)
    is_said = row.significant and row.verdict in BELIEVED
    return Row(
        heading=with_unit(row),
        label=ascii_only(str(row.scope)),
        cells=(
            number(row.base),
            number(row.base_std),
            number(row.patch),
            number(row.patch_std),
            f"*{change}*" if is_said else change,
            in_measure(row, row.error).lstrip("+"),
            NOT_AVAILABLE if pd.isna(row.p) else f"{row.p:.3f}",
            judgement(row),
        ),
    )


def _mmtests(row: Any) -> Iterator[Row]:
    """One line per moment, in the manner of mmtests' compare-kernels."""
    heading = with_unit(row)
    scope = ascii_only(str(row.scope))
    for name, base, patch in (
        ("Min", row.base_min, row.patch_min),
        ("Amean", row.base, row.patch),
        ("Stddev", row.base_std, row.patch_std),
        ("CoeffVar", _share(row.base_std, row.base), _share(row.patch_std, row.patch)),
        ("Max", row.base_max, row.patch_max),
    ):
        gain = _gain(base, patch, row.better if name in ("Min", "Amean", "Max") else "lower")
        cell = value_and_gain(patch, gain)
        marked = row.significant and name == "Amean" and row.verdict in BELIEVED
        yield Row(
            heading=heading,
            label=f"{scope} {name}",
            cells=(f"{value_and_gain(base, 0.0)} ", f"*{cell}*" if marked else f"{cell} "),
        )


def _share(part: float, whole: float) -> float:
    """In percent; NaN where there is nothing to be a share of."""
    return 100 * part / whole if whole else float("nan")


def _gain(base: float, patch: float, better: str) -> object:
    if pd.isna(base) or pd.isna(patch) or abs(base) < FEW:
        return 0.0 if base == patch else pd.NA
    change = (patch - base) / base
    return -change if better == "lower" else change
