"""An error budget as text for a mail or a terminal."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from pagealloc_model.base.table import Table
from pagealloc_model.base.text.layout import (
    WIDTH,
    ascii_only,
    number,
    paragraph,
)

_WINDOWS = "windows"
ABSOLUTE_UNITS = ("total variation",)
_RULE = (
    "Errors as in the error table. A column marked * is imposed: the run was given what the kernel "
    "decided, so it is no prediction and says only where an error comes from."
)
_SHARES_RULE = (
    "Mean absolute error over scopes. model's: what is not missing; decided: the part of it that "
    "goes when the kernel's own decisions (zone, drains, boosts) are imposed; missing: what goes "
    "when information is imposed beside them (the start). The rest of the model's remains with all "
    "imposed. Negative: errors hid one another. most by: the one truth that removes most alone, if "
    "more than a tenth. windows: the error of the loss-free windows, each predicted by itself."
)


def budget_table(
    errors: pd.DataFrame,
    shares: pd.DataFrame,
    meanings: Mapping[str, str],
    absent: Mapping[str, str],
    record: Mapping[str, str],
    *,
    width: int = WIDTH,
) -> str:
    """Return an error budget as plain text.

    Args:
        errors: columns metric, scope, unit, run, imposed, error.
        shares: columns metric, error, models, decided, missing, windows, most_by.
        meanings: what each run is, in the order of columns.
        absent: what cannot be imposed, and why and what to record.
        record: what to record next time, by the truth it would tell.
        width: characters per line at most.
    """
    marked = dict(zip(errors["run"], errors["imposed"], strict=True))
    titles = {name: f"{name}*" if marked[name] else name for name in meanings}
    shown = [name for name in meanings if name != _WINDOWS]
    header = ("metric", "scope", *(titles[name] for name in shown))
    lines = [Table(header, _rows(errors, shown)).to_text(width), ""]
    lines += [paragraph(_RULE, width=width), ""]
    lines += [
        paragraph(meanings[name], label=f"{title + ':':<10}", width=width)
        for name, title in titles.items()
    ]
    lines += [
        paragraph(f"not in this recording: {why}", label=f"{name + ':':<10}", width=width)
        for name, why in absent.items()
    ]
    columns = ["error", "models", "decided", "missing"]
    columns += [_WINDOWS] if _WINDOWS in meanings else []
    header = (
        "whose error",
        "metric",
        *("model's" if each == "models" else each for each in columns),
        "most by",
    )
    units = dict(zip(errors["metric"], errors["unit"], strict=True))
    rows = [
        (
            "",
            row["metric"],
            *(_short(row[each], str(units[row["metric"]]), sign=False) for each in columns),
            row["most_by"] or "-",
        )
        for row in shares.to_dict(orient="records")
    ]
    lines += ["", Table(header, rows).to_text(width), ""]
    lines += [paragraph(_SHARES_RULE, width=width)]
    if record:
        lines += ["", "Record next time:"]
        lines += [
            paragraph(what, label=f"- {name}: ", width=width) for name, what in record.items()
        ]
    return "\n".join(lines) + "\n"


def _rows(errors: pd.DataFrame, runs: list[str]) -> list[tuple[str, ...]]:
    """One row for each metric and scope."""
    rows = []
    for (metric, scope), mine in errors.groupby(["metric", "scope"], sort=False):
        by_run = mine.set_index("run")["error"].reindex(runs)
        unit, where = str(mine["unit"].iloc[0]), "" if scope == "all" else f", {scope}"
        rows.append(
            (
                ascii_only(f"{metric}{where} ({unit})"),
                "",
                *(_short(value, unit) for value in by_run),
            )
        )
    return rows


def _short(value: object, unit: str, *, sign: bool = True) -> str:
    """An error in at most seven characters: percent, or as it is where the unit is absolute."""
    if pd.isna(value):
        return number(value)
    amount = float(value)  # type: ignore[arg-type]
    if unit in ABSOLUTE_UNITS:
        return f"{amount:.3f}"
    digits = 1 if abs(amount) < 10 else 0
    return f"{100 * amount:{'+' if sign else ''}.{digits}f}%"
