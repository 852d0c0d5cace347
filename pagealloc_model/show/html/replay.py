"""A replay in a notebook: what the model predicts for one policy, and what it was made from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pagealloc_model.base.text.counts import count_of
from pagealloc_model.base.text.layout import number
from pagealloc_model.predicted.tables import EMPTY_SITES
from pagealloc_model.show.html.over_time import course_of
from pagealloc_model.show.html.parts import (
    BAD,
    DIM,
    Cell,
    Column,
    Markup,
    folded,
    framed,
    line,
    listed,
    table,
)
from pagealloc_model.show.html.rules import rules_table
from pagealloc_model.show.html.sparkline import sparkline

if TYPE_CHECKING:
    from pagealloc_model.measured.rules import RuleEvidence
    from pagealloc_model.predicted.replay import Replay

COLUMNS = (
    Column(title="predicted", words=True),
    Column(title="scope", words=True),
    Column(title="total"),
    Column(title="at the end"),
    Column(title="over time"),
    Column(title="unit", words=True),
)
TOTALS = {
    "refill_transactions": "holds of zone->lock",
    "refill_pages": "pages",
    "drain_transactions": "holds of zone->lock",
    "drain_pages": "pages",
}
STATES = {"free_pages": "pages", "pcp_count": "pages", "highatomic_blocks": "pageblocks"}


def replay_html(replay: Replay) -> str:
    """Return a summary line, totals and states with their course, and folded where from."""
    return framed(
        line(replay_words(replay), lead=f"{replay.name}, predicted:"),
        *(
            [line(f"not a prediction: imposed are {', '.join(replay.imposed)}", kind=BAD)]
            if replay.imposed
            else []
        ),
        table(COLUMNS, _rows(replay), "what the replay predicts"),
        *replay_parts(replay),
    )


def replay_words(replay: Replay) -> str:
    """Return one line: policy, time, events and holds of zone->lock."""
    changed = ", ".join(f"{name}={value}" for name, value in replay.asked_policy.given().items())
    seconds = (int(replay.edges[-1]) - int(replay.edges[0])) / 1e9
    holds = int((~replay.transactions_full["site"].isin(EMPTY_SITES)).sum())
    return (
        f"policy {changed or 'as recorded'}; {seconds:.1f} s, {len(replay.demand.events):,} "
        f"requests and frees, zone->lock held {count_of(holds, 'time')}, "
        f"{count_of(int(replay.fallbacks['count'].sum()), 'fallback')}"
    )


def replay_parts(
    replay: Replay, evidence: Sequence[RuleEvidence] | None = None
) -> tuple[Markup, ...]:
    """Return, folded, the rules, the start state, and where recording and model disagreed.

    Args:
        replay: the replay.
        evidence: what its rules rest on, if that was held against events; None: as it was chosen.
    """
    counts = [f"{name}: {count:,}" for name, count in replay.divergence.items() if count]
    policy = [f"{name} = {value}" for name, value in replay.policy.given().items()]
    return (
        folded("Policy", listed(policy)),
        folded("Rules", line(replay.rules_origin), rules_table(evidence or replay.rule_evidence)),
        folded("Start state", listed(replay.start_state)),
        folded("Where replay and recording could not agree", listed(counts or ["nowhere"])),
    )


def _rows(replay: Replay) -> Iterator[tuple[Cell, ...]]:
    zones = [
        (f"node={zone.node}," if len(replay.machine.nodes) > 1 else "") + f"zone={zone.name}"
        for zone in replay.machine.zones
        if zone.managed
    ]
    for metric, unit in TOTALS.items():
        yield _row(replay, metric, "all", unit, is_total=True)
    for metric, unit in STATES.items():
        for scope in zones:
            yield _row(replay, metric, scope, unit, is_total=False)


def _row(replay: Replay, metric: str, scope: str, unit: str, *, is_total: bool) -> tuple[Cell, ...]:
    span = (int(replay.edges[0]), int(replay.edges[-1]))
    course = course_of(replay, metric, scope, span)
    value = float("nan")
    if course is not None and len(course.values):
        value = float(course.values.sum() if is_total else course.values[-1])
    shown, empty = Cell(shown=number(value), number=value), Cell(shown="", number=float("nan"))
    picture = Markup(html="") if course is None else sparkline(f"{metric}, {scope}", course)
    return (
        Cell(shown=metric),
        Cell(shown=scope),
        shown if is_total else empty,
        empty if is_total else shown,
        Cell(shown=picture),
        Cell(shown=unit, kind=DIM),
    )
