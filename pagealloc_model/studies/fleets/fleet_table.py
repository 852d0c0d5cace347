"""Two sides of a fleet, as text for a mail: ranges per host, means, differences, significance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from pagealloc_model.base.text.counts import count_of
from pagealloc_model.base.text.layout import WIDTH, Row, ascii_only, number, paragraph, text_table
from pagealloc_model.studies.fleets.statistics import (
    ADJUSTMENT,
    CONFIDENCE,
    INTERVAL,
    RESAMPLES,
    SIGNIFICANT,
    TEST,
)

if TYPE_CHECKING:
    from pagealloc_model.policy.policy import Policy

LARGE = 1000
"""Numbers from here on are shown without parts."""


def fleet_table(
    compared: pd.DataFrame,
    hosts: pd.DataFrame,
    policies: Mapping[str, Policy],
    notes: Sequence[str] = (),
    *,
    width: int = WIDTH,
) -> str:
    """Three lines a metric: range per host, mean with its interval, difference with its own.

    Args:
        compared: as `fleets.statistics.compared_sides` returns it.
        hosts: one row a host, for what the table was made from.
        policies: by side.
        notes: what else to say below.
        width: characters per line at most.
    """
    lines = [line for row in compared.itertuples() for line in _rows(row)]
    header = Row(heading="metric", label="hosts", cells=("base", "patch"))
    table = text_table(header, lines, width=width)
    sentences = [
        paragraph(_sentence(row), width=width, label="- ") for row in compared.itertuples()
    ]
    rule = (
        f"Square brackets: {CONFIDENCE:.0%} {INTERVAL} intervals over hosts, {RESAMPLES} "
        f"resamples. p: {TEST}, adjusted for {count_of(len(compared), 'metric')} "
        f"({ADJUSTMENT}); * below "
        f"{SIGNIFICANT}."
    )
    words = [paragraph(each, width=width) for each in (rule, *notes)]
    return (
        "\n\n".join([table, "\n".join(sentences), *words, _footer(hosts, policies, width)]) + "\n"
    )


def _rows(row: Any) -> list[Row]:
    heading = ascii_only(row.metric)
    ranges = tuple(
        range_words(getattr(row, f"{side}_lowest"), getattr(row, f"{side}_highest"))
        for side in ("base", "patch")
    )
    means = tuple(_mean(row, f"{side}_mean") for side in ("base", "patch"))
    return [
        Row(heading=heading, label="per host", cells=ranges),
        Row(heading=heading, label="mean", cells=means),
    ]


def _mean(row: Any, name: str) -> str:
    """A mean and its interval."""
    low, high = (_amount(getattr(row, f"{name}_{end}")) for end in ("low", "high"))
    return f"{_amount(getattr(row, name))} [{low}, {high}]"


def _amount(value: float) -> str:
    """A number; of large ones no parts, which say nothing where hosts differ by more."""
    return f"{value:,.0f}" if abs(value) >= LARGE else number(value)


def range_words(lowest: float, highest: float) -> str:
    """Such as "309-312", or "1" where all hosts agree."""
    low, high = _amount(lowest), _amount(highest)
    return low if low == high else f"{low}-{high}"


def _sentence(row: Any) -> str:
    interval = f"[{_amount(row.difference_low)}, {_amount(row.difference_high)}]"
    change = "" if pd.isna(row.change) else f" ({100 * row.change:+.1f}%)"
    p_shown = "NA" if pd.isna(row.p_adjusted) else f"{row.p_adjusted:.2g}"
    star = "*" if row.significant else ""
    return (
        f"{row.metric}: patch - base = {_amount(row.difference)} {interval}{change}, "
        f"p = {p_shown}{star}"
    )


def _footer(hosts: pd.DataFrame, policies: Mapping[str, Policy], width: int) -> str:
    failed = int((hosts["error"] != "").sum())
    lines = {
        f"{side}": f"{count_of(int((hosts['side'] == side).sum()), 'host')}, policy {policy}"
        for side, policy in policies.items()
    }
    lines["rules"] = _distinct(hosts, "effective_rules")
    lines["failed"] = f"{failed} hosts"
    lines["made with"] = f"pagealloc_model {_distinct(hosts, 'version')}"
    return "\n".join(
        paragraph(text, width=width, label=f"{label + ':':<11}") for label, text in lines.items()
    )


def _distinct(hosts: pd.DataFrame, column: str) -> str:
    return ", ".join(str(value) for value in hosts[column].dropna().unique()) or "unknown"
