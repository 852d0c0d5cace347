"""Judged choices as text for a mail or a terminal: shares, null models, first misses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from pagealloc_model.base.text.counts import count_of
from pagealloc_model.base.text.layout import (
    NOT_AVAILABLE,
    WIDTH,
    Row,
    ascii_only,
    paragraph,
    text_table,
)
from pagealloc_model.verdict.choices.placement import KERNEL_FUNCTIONS, MISSES_TOLD

if TYPE_CHECKING:
    from pagealloc_model.verdict.choices.placement import Placement

RULE = (
    "Each choice is judged from the state the kernel was in, as its earlier events leave it. "
    "share: hits of the choices judged; null: the same of the null model; unjudged: choices that "
    "the recording does not settle; repairs: corrections of what the choice is judged from that "
    "no event explains; margin: how far the closest watermark test was from its mark. Free-running "
    "shares are placement_exact, placement_block and placement_zone."
)
FALLBACK_WORDS = ("none", "claim", "steal")


def choice_table(placement: Placement, *, width: int = WIDTH) -> str:
    """Shares by choice, one line each, then by CPU.

    Args:
        placement: the judged recording.
        width: characters per line at most.
    """
    rows = [
        Row(heading="All choices", label=choice.choice, cells=_cells(choice))
        for choice in _rows(placement.choices, "all")
    ]
    for choice in _rows(placement.choices, "cpu="):
        rows.append(Row(heading=choice.choice, label=choice.scope, cells=_cells(choice)))
    titles = ("judged", "hits", "share", "null", "unjudged", "repairs")
    for found in placement.zone_classes.itertuples():
        kind = " atomic" if found.atomic else ""
        rows.append(
            Row(
                heading=f"zone, order {found.orders} {found.migratetype}{kind}, by margin",
                label=f">={found.margin_at_least} pages",
                cells=(
                    str(found.judged),
                    str(found.hits),
                    _share(found.share),
                    _share(found.null_share),
                    NOT_AVAILABLE,
                    NOT_AVAILABLE,
                ),
            )
        )
    table = text_table(Row(heading="choice", label="scope", cells=titles), rows, width=width)
    return f"{table}\n\n{paragraph(RULE, width=width)}\n"


def miss_list(placement: Placement, *, width: int = WIDTH) -> str:
    """The first misses of each choice: event, what the rule says, the state it says it from.

    Args:
        placement: the judged recording.
        width: characters per line at most.
    """
    lines: list[str] = []
    totals = placement.choices[placement.choices["scope"] == "all"].set_index("choice")
    for choice, misses in placement.misses.groupby("choice", sort=False):
        missed = int(totals.loc[choice, "judged"] - totals.loc[choice, "hits"])
        where = KERNEL_FUNCTIONS[str(choice)]
        lines.append(
            paragraph(f"{choice}: {count_of(missed, 'miss', 'misses')} ({where})", width=width)
        )
        for miss in misses.head(MISSES_TOLD).itertuples():
            lines.append(paragraph(_explained(miss), width=width, label="  - "))
        lines.append("")
    return "\n".join(lines)


def _rows(choices: pd.DataFrame, scope: str) -> Iterator[Any]:
    yield from choices[choices["scope"].str.startswith(scope)].itertuples()


def _cells(row: Any) -> tuple[str, ...]:
    return (
        str(row.judged),
        str(row.hits),
        _share(row.share),
        _share(row.null_share),
        str(row.unjudged),
        NOT_AVAILABLE if pd.isna(row.repairs) else str(row.repairs),
    )


def _share(value: float) -> str:
    """Hits in percent, rounded down so that only all of them are 100%."""
    if pd.isna(value):
        return NOT_AVAILABLE
    return f"{int(value * 1e5) / 1e3:.3f}%"


def _explained(miss: Any) -> str:
    size = f"order {miss.order} type {miss.migratetype}"
    said, done = _said_and_done(miss)
    state = ", ".join(
        [
            f"count {miss.listed}",
            f"high {miss.high}",
            f"alloc_factor {miss.alloc_factor}",
            f"free_count {miss.free_count}",
            *(["zone below high"] if miss.below_high else []),
            *(["reclaim active"] if miss.reclaim_active else []),
        ]
    )
    when = f"{miss.time_s:.6f} s, row {miss.row}, {miss.task or 'task'}/{miss.pid} CPU {miss.cpu}"
    return ascii_only(f"{when}, {size}: {done}; the rule says {said} ({state})")


def _said_and_done(miss: Any) -> tuple[str, str]:
    if miss.choice == "zone":
        return f"zone {miss.predicted}" if miss.predicted >= 0 else "none", f"zone {miss.actual}"
    if miss.choice == "fallback":
        return FALLBACK_WORDS[miss.predicted], f"fallback: {FALLBACK_WORDS[miss.actual]}"
    if miss.choice in ("pcp_pop", "buddy_pfn", "drain_page"):
        named = f"page {miss.predicted}" if miss.predicted >= 0 else "no page"
        return named, f"page {miss.actual}"
    if miss.choice == "refill_when":
        words = ("no refill", "a refill")
        return words[miss.predicted > 0], words[miss.actual > 0]
    unit = "objects" if miss.choice == "refill_size" else "pages drained"
    return f"{miss.predicted}", f"{miss.actual} {unit}"
