"""Holds of zone->lock, waits at both locks and fragmentation: the first table of a lock study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.base.table import Column, Table
from pagealloc_model.base.text import TERMINAL, as_name, count_of, paragraph
from pagealloc_model.measured.contention import OTHER, WAITING
from pagealloc_model.numbers.errors import shows_contention
from pagealloc_model.numbers.locks import with_spread
from pagealloc_model.numbers.values import States, Zones
from pagealloc_model.numbers.vocabulary import LOCK_TIMES, STATES, swept
from pagealloc_model.policy.lock_costs import SPREAD
from pagealloc_model.predicted.lock_times import TRYLOCK
from pagealloc_model.recording.trace.columns import Event
from pagealloc_model.show.post.tables import traffic_line

if TYPE_CHECKING:
    from pagealloc_model.numbers.locks import LockComparison
    from pagealloc_model.predicted.lock_times import LockModel, LockTimes
    from pagealloc_model.predicted.replay import Replay
    from pagealloc_model.recording.recording import Recording

LOCK_FIELDS = ("pageblock_ownership", "ownership.", "pcp_free_batched")
"""Beginnings of names of policy fields whose discussions are about locks."""
FEWEST_NAMED = 0.05
"""Share of the requests from which on a message names the program that makes them."""


def is_about_locks(fields: Iterable[str]) -> bool:
    """Whether one of the changed fields changes who takes a lock, and for how long."""
    return any(name.startswith(LOCK_FIELDS) for name in fields)


def lock_words(model: LockModel) -> str:
    """What the table rests on."""
    costs = (getattr(model.costs, one.name) for one in fields(model.costs))
    origins = ", ".join(sorted({cost.origin for cost in costs if cost.ns}))
    return (
        "Holds include failed trylocks; a spell is a CPU's waits and holds without a point to "
        f"reschedule. Times are of holds with tracing, their costs {origins}; brackets: at costs "
        f"divided and multiplied by {SPREAD:.1f}."
    )


def lock_table(base: Replay, patch: Replay, model: LockModel) -> str:
    """Both sides' holds, waits, failed trylocks and free memory below a pageblock."""
    sides = []
    for replay in (base, patch):
        zones = Zones(states=States.of_replay(replay), block_order=replay.machine.counted_order)
        share = 100 * swept(STATES, zones)["unusable_index_pageblock"]
        ranges = _ranges(replay.lock_times(model))
        cells = {name: _in_range(*values) for name, values in ranges.items()}
        sides.append(cells | {"free in fragments (%)": f"{share:.3g}"})
    rows = [(name, *(side[name] for side in sides)) for name in sides[0]]
    rows = [row for row in rows if set(row[1:]) != {"0"}]
    titles = (Column(title="", words=True), "base", "patch")
    return Table(titles, rows, grouped=False).to_text()


_HOLDS, _WAITS = "zone->lock: holds", "zone->lock: waits (ms)"
MOST_SITES = 4
"""Of the table of `brief_locks`."""


def brief_locks(
    comparison: LockComparison, patch: Replay | None = None, policy: str = ""
) -> tuple[str, str, str]:
    """What a replay predicts of both locks beside what was measured: a sentence, a table, notes.

    Args:
        comparison: of the recorded policy.
        patch: a replay under another one.
        policy: the other one, in words.
    """
    model = comparison.times.model
    times = [comparison.times, *([] if patch is None else [patch.lock_times(model)])]
    ranges = [_ranges(each) for each in times]
    said, waits = ([_in_range(side[name][0]) for side in ranges] for name in (_HOLDS, _WAITS))
    told = f"zone->lock is taken {said[0]} times, waits for it take {waits[0]} ms"
    if patch is not None:
        told = (
            f"zone->lock is taken {said[1]} times instead of {said[0]}, waits for it take "
            f"{waits[1]} ms instead of {waits[0]}"
        )
    name_of = f"{comparison.predicted.name}{', ' * bool(policy)}{policy}"
    measured = comparison.by_site.set_index("site")
    sites = [each.acquisitions["site"].value_counts() for each in times]
    counts = pd.concat(sites, axis=1, keys=range(len(times))).reindex(measured.index).fillna(0)
    counts.insert(0, "measured", measured["acquisitions_measured"])
    counts = counts[counts.fillna(0).ne(0).any(axis=1)]
    counts = counts.sort_values(0, ascending=False, kind="stable")
    cells = {f"  {site}": row for site, *row in counts[:MOST_SITES].itertuples()}
    if len(rest := counts[MOST_SITES:]):
        cells["  other sites"] = rest.sum(min_count=1).tolist()
    compared = measured["contended_measured"].drop(WAITING[OTHER], errors="ignore")
    contended = compared.sum(min_count=1)
    cells["  contended"] = [contended, *(shows_contention(each).sum() for each in times)]
    rows: list[tuple[object, ...]] = [("holds", pd.NA, *said)]
    rows += [
        (words, *(pd.NA if pd.isna(value) else f"{value:,.0f}" for value in values))
        for words, values in cells.items()
    ]
    for name in (each for each in ranges[0] if each != _HOLDS):
        scale = 1e3 if name.endswith("(us)") else 1.0
        shown = (_in_range(*(value / scale for value in side[name])) for side in ranges)
        words = name.removeprefix("zone->lock: ").replace("(us)", "(ms)")
        rows.append((words, pd.NA, *shown))
    rows = [row for row in rows if any(pd.notna(cell) and cell != "0" for cell in row[1:])]
    titles = (Column(title="zone->lock", words=True), "measured", "predicted", "patch")
    table = Table(titles[: 2 + len(times)], rows, grouped=False).to_text(TERMINAL)
    first = f"{name_of}: {told}; {traffic_line(comparison)}."
    last = (
        f"Counts are of the whole recording (measured: {comparison.measured.boundaries}; NA: no "
        f"event shows it). Times rest on costs with tracing; brackets: costs / and x {SPREAD:.2f}."
    )
    if comparison.times.trylocks[["frees", "allocations"]].to_numpy().any():
        last += " Refills and drains whose trylock fails are left out, validate counts them."
    return paragraph(first, width=TERMINAL), table, last


def _ranges(times: LockTimes) -> dict[str, list[float]]:
    """Value, and its ends over the costs of locks, by the name of its row."""
    spread = with_spread(times)
    whole = spread[spread["scope"] == "all"].set_index("metric")[["value", "low", "high"]]
    ranges = {row.in_words: whole.loc[row.name].tolist() for row in LOCK_TIMES if row.words}
    # a failed trylock moves one page under zone->lock (S11.3)
    logged = int((times.acquisitions["cause"] != TRYLOCK).sum())
    holds = [logged + failed for failed in ranges["pcp->lock: failed tries"]]
    return {_HOLDS: holds, **ranges}


def _in_range(*values: float) -> str:
    """Such as "1,903 (633 to 5,937)"; without a range where the costs change nothing."""
    texts = [f"{one:,.0f}" if one >= 100 or one == int(one) else f"{one:.2g}" for one in values]
    return texts[0] if len(set(texts)) == 1 else f"{texts[0]} ({texts[1]} to {texts[2]})"


def load_words(recording: Recording) -> str:
    """Who asks for pages, of which orders, and on which CPU they are freed: of the events."""
    trace = recording.trace
    is_request = trace.event == Event.ALLOC
    if not is_request.any():
        return ""
    asked_by: Counter[str] = Counter()
    for pid, count in zip(*np.unique(trace.pid[is_request], return_counts=True), strict=True):
        asked_by[trace.comms.get(int(pid), str(pid))] += int(count)
    total = asked_by.total()
    shares = {name: count / total for name, count in asked_by.most_common()}
    named = [name for name, share in shares.items() if share >= FEWEST_NAMED]
    asked = ", ".join(f"{name} ({100 * shares[name]:.0f} %)" for name in named)
    single = 100 * np.mean(trace.order[is_request] == 0)
    remote = freed_elsewhere(recording)
    moved = "" if np.isnan(remote) else f"; {100 * remote:.1f} % are freed on another CPU"
    command = as_name(" ".join(map(str, recording.meta.get("command") or ())))
    load = f"The load (`{command}`)" if command else "The load"
    by = f" by {asked}" if asked else ""
    return (
        f"{load} has {count_of(total, 'request')}{by}, {single:.1f} % of them for single "
        f"pages{moved}."
    )


def freed_elsewhere(recording: Recording) -> float:
    """Share of requests, of those whose page is freed in the recording, freed on another CPU."""
    trace = recording.trace
    rows = np.flatnonzero((trace.event == Event.ALLOC) | (trace.event == Event.FREE))
    rows = rows[np.argsort(trace.pfn[rows], kind="stable")]
    first, then = rows[:-1], rows[1:]
    is_pair = trace.pfn[first] == trace.pfn[then]
    is_pair &= (trace.event[first] == Event.ALLOC) & (trace.event[then] == Event.FREE)
    first, then = first[is_pair], then[is_pair]
    return float(np.mean(trace.cpu[first] != trace.cpu[then])) if len(first) else float("nan")
