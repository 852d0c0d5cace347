"""Tables of judged choices: shares by scope and over time, misses, rows for the error table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.allocator.choices import judging
from pagealloc_model.allocator.choices import true_state as true
from pagealloc_model.allocator.core import layout as at
from pagealloc_model.recording.trace.columns import EVENT_NAMES, Event
from pagealloc_model.verdict.choices.choice_words import KERNEL_FUNCTIONS
from pagealloc_model.verdict.state_errors import ErrorRow, error_row

if TYPE_CHECKING:
    from pagealloc_model.recording.trace.columns import Trace

EVENT_OF = {event: name for name, event in EVENT_NAMES.items()}

NULL_MODELS = {
    "zone": "always the preferred zone",
    "pcp_pop": "last in, first out, fed with refills and drains",
    "refill_when": "no refill",
    "refill_size": "pcp->batch",
    "buddy_pfn": "the page after the last one taken for this type",
    "drain_when": "no drain",
    "drain_size": "pcp->batch",
    "drain_page": "oldest page of that order and type in the null model of pcp_pop",
    "fallback": "the same kind as last time",
}
"""By choice, what its null model says."""

_LISTS = (
    true.REPAIR_OTHER_LIST,
    true.REPAIR_OTHER_CPU,
    true.REPAIR_HIDDEN,
    true.REPAIR_ASTRAY,
)
_BUDDY = (true.REPAIR_IN_BUDDY, true.REPAIR_NOWHERE, true.REPAIR_START, true.REPAIR_TYPE)
RESTS_ON = {
    "zone": (),
    "pcp_pop": _LISTS,
    "refill_when": _LISTS,
    "refill_size": (true.REPAIR_TUNING,),
    "buddy_pfn": _BUDDY,
    "drain_when": (true.REPAIR_TUNING,),
    "drain_size": (true.REPAIR_TUNING,),
    "drain_page": _LISTS,
    "fallback": _BUDDY,
}
"""By choice, the repairs of what it is judged from: lists, free buddies or a list's limits."""

ORDER_CLASSES = ("0", "1 to 3", "4 and more")
PAGE_CHOICES = ("pcp_pop", "buddy_pfn", "drain_page")
ALLOCATED = "pcp_pop"
METRIC = "placement_exact_resync"


def choices_table(
    tally: np.ndarray, repairs: Sequence[int], migratetypes: Sequence[str], nr_cpus: int
) -> pd.DataFrame:
    """One row per choice and scope; see `Placement.choices`.

    Args:
        tally: int64, shape (choices, slots, OUTCOMES).
        repairs: counts in the order of `true_state.REPAIR_NAMES`.
        migratetypes: names by number.
        nr_cpus: CPUs.
    """
    rows = []
    for number, choice in enumerate(judging.CHOICES):
        for scope, outcomes in _scopes(tally[number], migratetypes, nr_cpus):
            if scope == "all" or outcomes[[judging.JUDGED, judging.UNJUDGED]].any():
                row = _row(choice, outcomes) | {"scope": scope}
                if scope == "all":
                    row["repairs"] = sum(repairs[kind] for kind in RESTS_ON[choice])
                rows.append(row)
    columns = ["choice", "scope", "judged", "hits", "share", "block_share"]
    columns += ["null_model", "null_share", "unjudged", "repairs"]
    return pd.DataFrame(rows, columns=columns).astype({"repairs": "Int64"})


def _scopes(
    slots: np.ndarray, migratetypes: Sequence[str], nr_cpus: int
) -> Iterator[tuple[str, np.ndarray]]:
    by_type = slots[: judging.TYPE_SLOTS].reshape(at.ORDERS, at.MIGRATETYPES, judging.OUTCOMES)
    yield "all", by_type.sum(axis=(0, 1))
    for order in range(at.ORDERS):
        yield f"order={order}", by_type[order].sum(axis=0)
    for number, name in enumerate(migratetypes[: at.MIGRATETYPES]):
        yield f"migratetype={name}", by_type[:, number].sum(axis=0)
    for cpu in range(nr_cpus):
        yield f"cpu={cpu}", slots[judging.OTHER_SLOTS + cpu]


def _row(choice: str, outcomes: np.ndarray) -> dict[str, object]:
    judged = int(outcomes[judging.JUDGED])

    def share(outcome: int) -> float:
        return float(outcomes[outcome]) / judged if judged else float("nan")

    return {
        "choice": choice,
        "judged": judged,
        "hits": int(outcomes[judging.HITS]),
        "share": share(judging.HITS),
        "block_share": share(judging.BLOCK_HITS) if choice in PAGE_CHOICES else float("nan"),
        "null_model": NULL_MODELS[choice],
        "null_share": share(judging.NULL_HITS),
        "unjudged": int(outcomes[judging.UNJUDGED]),
    }


def zone_classes(tally: np.ndarray, migratetypes: Sequence[str]) -> pd.DataFrame:
    """Which zone, by class of request and margin; see `Placement.zone_classes`.

    Args:
        tally: int64, shape (choices, slots, OUTCOMES).
        migratetypes: names by number.
    """
    first = judging.TYPE_SLOTS + judging.TIME_BINS
    slots = tally[judging.ZONE, first : first + judging.CLASS_SLOTS]
    limits = (0, *judging.MARGINS)
    shape = (judging.ORDER_CLASSES, at.PCP_TYPES, 2, len(limits), judging.OUTCOMES)
    rows = []
    for place, outcomes in zip(np.ndindex(shape[:-1]), slots, strict=True):
        order, migratetype, atomic, margin = place
        if outcomes[judging.JUDGED]:
            row = _row("zone", outcomes)
            named = {
                "orders": ORDER_CLASSES[order],
                "migratetype": migratetypes[migratetype],
                "atomic": bool(atomic),
                "margin_at_least": limits[margin],
            }
            kept = ("judged", "hits", "share", "null_model", "null_share")
            rows.append(named | {name: row[name] for name in kept})
    return pd.DataFrame(rows)


def over_time(tally: np.ndarray, seconds: float) -> pd.DataFrame:
    """One row per choice and bin of time with such a choice; see `Placement.over_time`.

    Args:
        tally: int64, shape (choices, slots, OUTCOMES).
        seconds: length of the recording.
    """
    rows = []
    for number, choice in enumerate(judging.CHOICES):
        for each in range(judging.TIME_BINS):
            outcomes = tally[number, judging.TYPE_SLOTS + each]
            if outcomes.any():
                when = each * seconds / judging.TIME_BINS
                rows.append({"time_s": when} | _row(choice, outcomes))
    columns = ["choice", "time_s", "judged", "hits", "share", "null_share", "unjudged"]
    return pd.DataFrame(rows, columns=columns)


def misses_table(kept: np.ndarray, steps: np.ndarray, trace: Trace) -> pd.DataFrame:
    """The misses kept, in order of time by choice; see `Placement.misses`.

    Args:
        kept: int64, shape (choices, MISSES_KEPT + 1, MISS_COLUMNS).
        steps: `STEP` records as judged.
        trace: the recording's events.
    """
    parts = []
    for number, choice in enumerate(judging.CHOICES):
        count = min(int(kept[number, judging.MISSES_KEPT, 0]), judging.MISSES_KEPT)
        rows = kept[number, :count]
        at_step = steps[rows[:, judging.MISS_STEP]]
        where = at_step["row"]
        words = {
            name: rows[:, judging.MISS_WORDS + place]
            for place, (name, _) in enumerate(judging.MISS_PAGESET)
        }
        parts.append(
            pd.DataFrame(
                {
                    "choice": choice,
                    "kernel_function": KERNEL_FUNCTIONS[choice],
                    "event": [EVENT_OF[Event(event)] for event in trace.event[where]],
                    "row": where.astype(np.int64),
                    "time_s": (trace.time_ns[where] - trace.demand_span_ns[0]) / 1e9,
                    "cpu": at_step["cpu"].astype(np.int64),
                    "pid": at_step["pid"].astype(np.int64),
                    "task": [trace.comms.get(int(pid), "") for pid in at_step["pid"]],
                    "order": at_step["order"].astype(np.int64),
                    "migratetype": at_step["migratetype"].astype(np.int64),
                    "predicted": rows[:, judging.MISS_PREDICTED],
                    "actual": rows[:, judging.MISS_ACTUAL],
                    **words,
                    "below_high": rows[:, judging.MISS_BELOW_HIGH] != 0,
                    "reclaim_active": rows[:, judging.MISS_RECLAIM] != 0,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def metric_rows(choices: pd.DataFrame) -> list[ErrorRow]:
    """`placement_exact_resync`: allocations by scope, then every choice of its own.

    Args:
        choices: from `choices_table`.
    """
    rows = []
    for row in choices.itertuples():
        overall = row.scope == "all"
        if not row.judged or not (overall or row.choice == ALLOCATED):
            continue
        scopes = [row.scope] if row.choice == ALLOCATED else []
        if overall:
            scopes.append(f"choice={row.choice}")
        for scope in scopes:
            rows.append(
                error_row(
                    METRIC,
                    scope,
                    measured=1.0,
                    predicted=row.share,
                    error=row.share - 1,
                    unit="share",
                    null_model=row.null_model if scope.startswith("choice=") else "LIFO lists",
                    null=row.null_share,
                    null_error=row.null_share - 1,
                )
            )
    return rows


def records(table: pd.DataFrame) -> list[dict[str, object]]:
    """Rows as plain values, None for what is not known."""
    return table.astype(object).where(table.notna(), None).to_dict(orient="records")
