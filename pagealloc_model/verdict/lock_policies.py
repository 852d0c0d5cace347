"""Two policies at zone->lock: sizes of holds, times, waits, side by side as a post shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from pagealloc_model.base.text.comparison_table import comparison_table
from pagealloc_model.base.text.layout import Row, number, paragraph, text_table
from pagealloc_model.policy.lock_costs import SPREAD
from pagealloc_model.predicted.lock_times import LockTimes, with_spread
from pagealloc_model.verdict.state_errors import relative

Metric = tuple[str, str, float, str, str]
"""Name, scope, value, unit, and which direction is better: "lower", "higher" or ""."""


def lock_policy_rows(base: LockTimes, patch: LockTimes) -> pd.DataFrame:
    """metric, scope, base, patch, change (relative to base), unit, better.

    Args:
        base: acquisitions under the policy compared with.
        patch: under the other one.
    """
    sides = [{(row[0], row[1], row[3]): row for row in _values(each)} for each in (base, patch)]
    rows = []
    for key in dict.fromkeys([*sides[0], *sides[1]]):
        metric, scope, _, unit, better = sides[0].get(key) or sides[1][key]
        values = [side[key][2] if key in side else 0.0 for side in sides]
        rows.append(
            {
                "metric": metric,
                "scope": scope,
                "base": values[0],
                "patch": values[1],
                "change": relative(values[1], values[0]),
                "unit": unit,
                "better": better,
            }
        )
    return pd.DataFrame(rows)


def lock_policy_table(
    base: LockTimes, patch: LockTimes, title: str, lines: Sequence[str] = (), width: int = 72
) -> str:
    """The same as plain text for a mail, with what it rests on.

    Args:
        base: acquisitions under the policy compared with.
        patch: under the other one.
        title: what base and patch are.
        lines: more to say below.
        width: characters per line at most.
    """
    rests_on = [
        title,
        *lines,
        "Counts and pages are the model's. Times rest on these costs; low and high are those of "
        f"costs {SPREAD:.2f} times smaller and larger.",
        *patch.model.costs.lines(),
    ]
    footer = "\n".join(paragraph(line, width=width) for line in rests_on)
    spread = _spread_table(base, patch, width)
    return comparison_table(lock_policy_rows(base, patch), f"{spread}\n\n{footer}", width=width)


def _spread_table(base: LockTimes, patch: LockTimes, width: int) -> str:
    """Results in time for the lowest and the highest costs."""
    sides = [
        with_spread(each.log, each.machine, each.model, each.visits).set_index("result")
        for each in (base, patch)
    ]
    results = [name for name in sides[0].index.union(sides[1].index, sort=False) if "(" in name]
    rows = [
        Row(
            heading="for costs that are tenfold apart",
            label=str(name),
            cells=tuple(
                number(side[end].get(name, pd.NA)) for side in sides for end in ("low", "high")
            ),
        )
        for name in results
    ]
    titles = ("base, low", "high", "patch, low", "high")
    return text_table(Row(heading="time", label="result", cells=titles), rows, width=width)


def _values(times: LockTimes) -> Iterator[Metric]:
    frame = times.acquisitions
    for row in times.longest_holds().itertuples():
        scope = " ".join(word for word in (row.site, row.cause) if word)
        yield "longest hold", scope, float(row.pages), "pages", "lower"
        yield "longest hold", scope, row.hold_ns / 1e3, "us", "lower"
    for row in times.by_site.itertuples():
        scope = " ".join(word for word in (row.site, row.cause) if word)
        yield "acquisitions", scope, float(row.acquisitions), "", "lower"
        yield "longest wait", scope, row.max_wait_ns / 1e3, "us", "lower"
    held = frame["pages"] > 1000
    yield "holds of more than 1000 pages", "all", float(held.sum()), "", "lower"
    yield "contended", "all", float((frame["ahead"] > 0).sum()), "", "lower"
    yield "time waiting", "all", frame["wait_ns"].sum() / 1e6, "ms", "lower"
    yield "longest wait", "all", times.longest_starvation_ns / 1e3, "us", "lower"
    sums = times.trylocks.sum()
    yield "trylocks failed", "frees", float(sums["frees"]), "", "lower"
    yield "trylocks failed", "allocations", float(sums["allocations"]), "", "lower"
    yield "left by drains cut short", "all", float(sums["pages_left"]), "pages", ""
