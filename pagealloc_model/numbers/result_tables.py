"""Two policies side by side, and predictions beside measurements, as text for a mail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import pandas as pd

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.table import Table
from pagealloc_model.base.text import (
    NOT_AVAILABLE,
    WIDTH,
    ascii_only,
    count_of,
    number,
    paragraph,
    percent,
)
from pagealloc_model.numbers.vocabulary import COUNTER_WORDS, WORDS

Style = Literal["signed", "mmtests"]

PLAIN_RULE = (
    "Sign rule: change is (patch - base) / base. It is patch - base, marked n, where base is a "
    "count below 20 or the change is above 1000 %, and in percentage points (pt) for a share. Last "
    "column: + better, - worse. No recording shows the model's error for these rows."
)
OF_ONE_SEED = "of one seed"
SIGNED_RULE = (
    "Sign rule: change is patch - base in percent of base. It is a number, marked n, where base is "
    "a count below 20 or the change is above 1000 %, and in percentage points (pt) for a share. "
    "from, to: 95 % interval of the change between two runs, from windows of the recording and "
    "from seeds, with the model's error added. A change is better or worse only if its interval "
    "excludes 0 (in error: it contains 0). error, null: that of the model and of the null model on "
    "this recording, as pagealloc validate has them: of states the mean distance over time in "
    "share of the measured range, of counts (predicted - measured) / measured, of fewer than ten "
    f"events as 7/9; {OF_ONE_SEED}. unchecked: the recording does not show this metric, so no "
    "error is added. one seed: too rare to judge from one seed. unproven: larger than the error, "
    "but the null model is as near to this metric of the recording as the model."
)
MMTESTS_RULE = (
    "Sign rule: percentages are gains over base, positive is better; metrics where neither "
    "direction is better show (patch - base) / base and are marked with ~. error, null: that of "
    "the model and of the null model on this recording, as pagealloc validate has them. Between "
    "asterisks: larger than the model's error and the spread over windows of the recording. "
    "unproven: larger, but the null model is as near to this metric of the recording as the model."
)
ERROR_RULE = (
    "error: (predicted - measured) / measured, unless the unit says otherwise; an error in share "
    "of range is a mean distance over time and has no sign. Such as 7/9: fewer than ten were "
    "measured, and these are the counts, predicted and measured. Marked n: a number, of what never "
    "moved in the kernel. null: the error of the null "
    "model, which knows nothing of the allocator. imposed: taken from the recording, so its error "
    "says nothing about the model. predicted alone: the recording does not show it. NA: not "
    "available."
)
FEW = 20
"""Of a base below this, a change is a number: a percentage of so little says nothing."""
TIMES = ("ns", "us", "ms", "s")
LARGEST_PERCENT = 10.0
"""A relative change above this is a number, too."""
LARGEST_NUMBER = 2.0**60
"""What no machine has of anything that is counted."""
JUDGEMENTS = {"within error": "in error"}
"""Verdicts in words that fit a column."""
DISTANCE, SUMMED = "in share of range", "summed"
"""The ends of the units of errors that are distances over time; the former have no sign."""
_ABSOLUTE_UNITS = ("share", "fraction", "tv", "total variation")
FEW_MEASURED = 10
"""Of fewer, an error in percent says nothing: counts stand in its place."""


@dataclass(frozen=True, kw_only=True)
class Footer:
    """Provenance of one table."""

    recording: str
    kernel: str
    policy_difference: str
    version: str
    lost_events: int
    divergences: Mapping[str, int] = field(default_factory=dict)
    assumptions: str = ""
    doubts: tuple[str, ...] = ()
    seeds: int = 1

    @property
    def runs(self) -> str:
        """What a column is of, in words."""
        return "one run" if self.seeds == 1 else f"means of {self.seeds} seeds"

    def to_text(self, width: int = WIDTH) -> str:
        """Labelled lines."""
        counted = [f"{name} {count}" for name, count in self.divergences.items() if count]
        lines = {
            "recording": self.recording,
            "kernel": self.kernel,
            "policy": self.policy_difference,
            "assumed": self.assumptions,
            "lost": f"{count_of(self.lost_events, 'event')} in the recording",
            "doubtful": "; ".join(self.doubts),
            "diverged": ", ".join(counted) or "nowhere",
            "made with": f"pagealloc_model {self.version}, {self.runs} per column: no significance "
            "test",
        }
        return labelled(lines, width)


def labelled(lines: Mapping[str, str], width: int, size: int = 11) -> str:
    """Texts below one another, each behind its label of a size; none where there is no text."""
    return "\n".join(
        paragraph(text, width=width, label=f"{label + ':':<{size}}")
        for label, text in lines.items()
        if text
    )


def comparison_table(
    rows: pd.DataFrame,
    footer: Footer | str,
    *,
    style: Style = "signed",
    width: int = WIDTH,
    first: str = "",
) -> str:
    """A comparison's rows as plain text with its sign rule and its footer.

    Args:
        rows: metric, scope, base, patch, unit, better ("lower", "higher" or ""); of judged rows
            also error, change_low, change_high (in the metric's unit), verdict.
        footer: provenance, or its text.
        style: "signed" prints the change; "mmtests" `value ( gain%)`, where positive is better.
        width: characters per line at most.
        first: said before the table.

    Raises:
        UsageError: an unknown style.
    """
    if style not in get_args(Style):
        styles = " or ".join(get_args(Style))
        raise UsageError(f"comparison style {style!r} is unknown; use {styles}")
    is_judged = "verdict" in rows
    rows = rows if is_judged else rows.assign(verdict="")
    titles, rule = ("change", "from", "to", "error", "null", ""), SIGNED_RULE
    if style == "mmtests":
        titles, rule = ("error", "null", ""), MMTESTS_RULE
    elif not is_judged:
        titles, rule = ("change", ""), PLAIN_RULE
    if isinstance(footer, Footer) and footer.seeds > 1:
        rule = rule.replace(OF_ONE_SEED, footer.runs)
    known = rows[rows["base"].notna() | rows["patch"].notna()]
    lines: list[tuple[Any, ...]] = []
    for row in known.itertuples():
        name, scope, change = with_unit(row), str(row.scope), row.patch - row.base
        if style == "mmtests":
            gain: Any = pd.NA
            if pd.notna(change) and (not change or abs(row.base) >= FEW or row.unit == "share"):
                gain = change / row.base if change else 0.0
                gain = -gain if row.better == "lower" else gain
            patch = value_and_gain(row.patch, gain)
            is_beyond = row.verdict in ("better", "worse", "changed")
            scope += "" if row.better else " ~"
            values = (value_and_gain(row.base, 0.0), f"*{patch}*" if is_beyond else f"{patch} ")
            errors = (row.error_words, row.null_words) if is_judged else (NOT_AVAILABLE,) * 2
            lines.append((name, scope, *values, *errors, judgement(row)))
        elif is_judged:
            change, error, *ends = measures(row)
            cells = (row.base, row.patch, change, *ends, error, row.null_words)
            lines.append((name, scope, *cells, judgement(row)))
        else:
            is_plain = pd.isna(change) or change == 0 or not row.better
            sign = "" if is_plain else "+" if (change > 0) == (row.better == "higher") else "-"
            lines.append((name, scope, row.base, row.patch, in_measure(row, change), sign))
    patch_title = "patch " if style == "mmtests" else "patch"
    table = Table(("metric", "scope", "base", patch_title, *titles), lines).to_text(width)
    unknown = list(dict.fromkeys(rows.loc[~rows.index.isin(known.index), "metric"]))
    words = f"Not known here, hence NA: {', '.join(unknown)}." if unknown else ""
    parts = [paragraph(text, width=width) for text in (first,) if text]
    parts += [table, *(paragraph(text, width=width) for text in (words, rule) if text)]
    parts.append(footer if isinstance(footer, str) else footer.to_text(width))
    return "\n\n".join(parts) + "\n"


def measures(row: Any) -> tuple[str, str, str, str]:
    """Change and the ends of its interval in one measure; the error, third of all, in its own."""
    change, low, high = (
        in_measure(row, amount)
        for amount in (row.patch - row.base, row.change_low, row.change_high)
    )
    return change, str(row.error_words), low, high


def in_measure(row: Any, amount: object) -> str:
    """A difference in the row's measure: percent of base, a number, or points of a share.

    An end beyond `LARGEST_NUMBER` is none.
    """
    if pd.isna(amount) or abs(float(amount)) > LARGEST_NUMBER:  # type: ignore[arg-type]
        return NOT_AVAILABLE
    value = float(amount)  # type: ignore[arg-type]
    if row.unit == "share":
        return f"{100 * value:+.1f}pt"
    change = row.patch - row.base
    is_much = abs(row.base) >= FEW or (row.unit in TIMES and row.base != 0)
    if pd.notna(change) and is_much and abs(change) <= LARGEST_PERCENT * abs(row.base):
        percent = 100 * value / row.base
        return f"{percent:+.1f}%" if abs(percent) < 100 else f"{percent:+.0f}%"
    return f"{value:+.0f}n" if abs(value) >= FEW or value == int(value) else f"{value:+.1f}n"


def judgement(row: Any) -> str:
    """The verdict on a row, in a word or two."""
    return JUDGEMENTS.get(row.verdict, row.verdict)


def with_unit(row: Any) -> str:
    """A metric's name with its unit."""
    return ascii_only(f"{row.metric} ({row.unit})" if row.unit else str(row.metric))


def value_and_gain(value: object, gain: object) -> str:
    """Such as "0.50 (  25.00%)", as mmtests prints them."""
    if pd.isna(value) or pd.isna(gain):
        shown = f"{NOT_AVAILABLE:>7} "
    else:
        shown = f"{100 * float(gain) + 0.0:7.2f}%"  # type: ignore[arg-type]  # no -0.0
    amount = NOT_AVAILABLE if pd.isna(value) else f"{float(value):.2f}"  # type: ignore[arg-type]
    return f"{amount} ({shown})"


SCOPE_WORDS = {"zone": "", "order": "order ", "cpu": "CPU ", "node": "node "}


def row_words(row: Any, *, place: str = " in ") -> str:
    """A row of a comparison in words, such as "free pages in DMA32"; `place` goes before a zone."""
    if (row.metric, row.scope) in COUNTER_WORDS:
        return COUNTER_WORDS[row.metric, row.scope]
    metric = WORDS.get(row.metric, row.metric.replace("_transactions", "s"))
    words = metric.replace("_", " ")
    for part in str(row.scope).split(","):
        key, _, value = part.rpartition("=")
        if key == "at":
            words += f" ({value})"
        elif part != "all":
            words += (place if key == "zone" else " ") + SCOPE_WORDS.get(key, "") + value
    return words


def error_table(errors: pd.DataFrame, kernel: pd.DataFrame | None = None) -> str:
    """The error table of one validation as plain text.

    Args:
        errors: metric, scope, measured, predicted, error, unit, null_model, null_error, kind.
        kernel: the same of a kernel build, to stand beside them in place of the null model's.
    """
    beside = {} if kernel is None else {(row.metric, row.scope): row for row in kernel.itertuples()}
    rows = []
    for row in errors.itertuples():
        unit = f" ({row.unit})" if row.unit else ""
        kind = "" if row.kind == "predicted" else f", {row.kind}"
        named = isinstance(row.null_model, str) and row.null_model
        null = f", null model: {named}" if named else ""
        cells = [row.measured, row.predicted, error_cell(row)]
        other = beside.get((row.metric, row.scope))
        if kernel is None:
            cells.append(null_cell(row))
        elif other is None:
            cells += [pd.NA, pd.NA]
        else:
            cells += [other.predicted, error_cell(other)]
        rows.append((ascii_only(f"{row.metric}{unit}{kind}{null}"), str(row.scope), *cells))
    titles, rule = ("measured", "predicted", "error", "null error"), ERROR_RULE
    if kernel is not None:
        titles = ("measured", "model", "error", "kernel", "error")
        rule += " kernel: predicted by the kernel build's own code."
    table = Table(("metric", "scope", *titles), rows).to_text()
    return f"{table}\n\n{paragraph(rule)}\n"


def error_cell(row: Any) -> str:
    """A row's error: relative ones in percent, distances without a sign, absolute ones as they are.

    Counts, predicted and measured, stand in its place where an error in percent says nothing.
    """
    return _error_cell(row, row.predicted, row.error)


def null_cell(row: Any) -> str:
    """That of the row's null model."""
    return _error_cell(row, row.null, row.null_error)


def _error_cell(row: Any, value: float, error: float) -> str:
    unit = str(row.unit).lower()
    if unit in _ABSOLUTE_UNITS:
        return number(error)
    if is_few(row):
        return counts_cell(value, row.measured)
    off = value - row.measured
    if pd.isna(error) and not pd.isna(off):  # in share of a range that is 0
        return f"{off:+.0f}n"
    return percent(error).lstrip("+") if unit.endswith(DISTANCE) else percent(error)


def counts_cell(value: float, measured: float) -> str:
    """Predicted and measured, such as 7/9, where an error in percent says nothing."""
    sides = (value, measured)
    if any(map(pd.isna, sides)):
        return NOT_AVAILABLE
    return "/".join(f"{side:.{side % 1 > 0 and side < 100:d}f}" for side in sides)


def is_few(row: Any) -> bool:
    """True if its error is relative, and rests on fewer measured events than `FEW_MEASURED`."""
    is_relative = not str(row.unit).lower().endswith((DISTANCE, *_ABSOLUTE_UNITS, SUMMED))
    return is_relative and bool(abs(row.counted) < FEW_MEASURED)
