"""Holds of zone->lock, waits at both locks and fragmentation: the first table of a lock study."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.base.table import Column, Table
from pagealloc_model.base.text import count_of
from pagealloc_model.numbers.values import States, Zones
from pagealloc_model.numbers.vocabulary import STATES, swept
from pagealloc_model.policy.lock_costs import SPREAD
from pagealloc_model.predicted.lock_times import lock_times
from pagealloc_model.recording.trace.columns import Event

if TYPE_CHECKING:
    from pagealloc_model.predicted.lock_times import LockTimes
    from pagealloc_model.predicted.replay import Replay
    from pagealloc_model.recording.recording import Recording

LOCK_FIELDS = ("pageblock_ownership", "ownership.", "pcp_free_batched")
"""Beginnings of names of policy fields whose discussions are about locks."""
FEWEST_NAMED = 0.05
"""Share of the requests from which on a message names the program that makes them."""


def is_about_locks(fields: Iterable[str]) -> bool:
    """Whether one of the changed fields changes who takes a lock, and for how long."""
    return any(name.startswith(LOCK_FIELDS) for name in fields)


def lock_words(replay: Replay) -> str:
    """What the table rests on."""
    costs = replay.lock_times().model.costs
    each = [(one.name, getattr(costs, one.name)) for one in fields(costs)]
    origins = ", ".join(sorted({cost.origin for _, cost in each if cost.ns}))
    values = ", ".join(f"{name} {cost.ns:.0f}" for name, cost in each if cost.ns)
    return (
        "Holds include failed trylocks of lists. Times follow from the "
        f"model's own holds and the costs of a hold ({origins}; ns: {values}); brackets are for "
        f"costs {SPREAD:.1f} times lower and higher."
    )


def lock_table(base: Replay, patch: Replay) -> str:
    """Both sides' holds, waits, failed trylocks and free memory below a pageblock."""
    sides = [_sides(replay) for replay in (base, patch)]
    rows = [(name, *(side[name] for side in sides)) for name in sides[0]]
    titles = (Column(title="", words=True), "predicted", "patch")
    return Table(titles, rows, grouped=False).to_text()


def _sides(replay: Replay) -> dict[str, str]:
    """Value with its range over the costs of locks, by the name of its row."""
    model = replay.lock_times().model
    runs = [
        _lock_values(lock_times(replay, replace(model, costs=model.costs.times(factor))))
        for factor in (1.0, 1 / SPREAD, SPREAD)
    ]
    shown = {name: _in_range(*(run[name] for run in runs)) for name in runs[0]}
    zones = Zones(states=States.of_replay(replay), block_order=replay.machine.counted_order)
    share = 100 * swept(STATES, zones)["unusable_index_pageblock"]
    return shown | {"free below a pageblock (%)": f"{share:.3g}"}


def _lock_values(times: LockTimes) -> dict[str, float]:
    frame, lists = times.acquisitions, times.list_waits["wait_ns"]
    failed = times.trylocks[["frees", "allocations"]].sum()
    return {
        "zone->lock: holds": len(frame),
        "zone->lock: waits, sum (ms)": frame["wait_ns"].sum() / 1e6,
        "zone->lock: longest wait (us)": times.longest_starvation_ns / 1e3,
        "pcp->lock: waits, sum (ms)": lists.sum() / 1e6,
        "pcp->lock: longest wait (us)": lists.max() / 1e3 if len(lists) else 0.0,
        "pcp->lock: failed trylocks": failed.sum(),
    }


def _in_range(value: float, low: float, high: float) -> str:
    """Such as "461 (193 to 1,406)"; without a range where the costs change nothing."""
    texts = [
        f"{one:,.0f}" if one >= 100 or one == int(one) else f"{one:.3g}"
        for one in (value, low, high)
    ]
    return texts[0] if len(set(texts)) == 1 else f"{texts[0]} ({texts[1]} to {texts[2]})"


def load_words(recording: Recording) -> str:
    """Who asks for pages, of which orders, and on which CPU they are freed: of the events."""
    trace = recording.trace
    is_request = trace.event == Event.ALLOC
    if not is_request.any():
        return ""
    names = [trace.comms.get(int(pid), str(pid)) for pid in trace.pid[is_request].tolist()]
    tasks, counts = np.unique(np.array(names, object), return_counts=True)
    shares = counts / len(names)
    named = [place for place in np.argsort(-shares) if shares[place] >= FEWEST_NAMED]
    asked = ", ".join(f"{tasks[place]} ({100 * shares[place]:.0f} %)" for place in named)
    single = 100 * np.mean(trace.order[is_request] == 0)
    remote = freed_elsewhere(recording)
    moved = "" if np.isnan(remote) else f"; {100 * remote:.1f} % are freed on another CPU"
    command = " ".join(map(str, recording.meta.get("command") or ()))
    load = f"The load (`{command}`)" if command else "The load"
    by = f" by {asked}" if asked else ""
    return (
        f"{load} has {count_of(len(names), 'request')}{by}, {single:.1f} % of them for single "
        f"pages{moved}. Other loads can show other effects."
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
