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
    header = Row(heading="metric", label="", cells=("base", "patch"))
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
    means = tuple(
        f"{number(getattr(row, f'{side}_mean'))} "
        f"[{number(getattr(row, f'{side}_mean_low'))}, {number(getattr(row, f'{side}_mean_high'))}]"
        for side in ("base", "patch")
    )
    return [
        Row(heading=heading, label="per host", cells=ranges),
        Row(heading=heading, label="mean", cells=means),
    ]


def range_words(lowest: float, highest: float) -> str:
    """Such as "309-312", or "1" where all hosts agree."""
    low, high = number(lowest), number(highest)
    return low if low == high else f"{low}-{high}"


def _sentence(row: Any) -> str:
    interval = f"[{number(row.difference_low)}, {number(row.difference_high)}]"
    change = "" if pd.isna(row.change) else f" ({100 * row.change:+.1f}%)"
    p_shown = "NA" if pd.isna(row.p_adjusted) else f"{row.p_adjusted:.2g}"
    star = "*" if row.significant else ""
    return (
        f"{row.metric}: patch - base = {number(row.difference)} {interval}{change}, "
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
