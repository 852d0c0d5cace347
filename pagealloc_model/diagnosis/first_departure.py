"""Where a free-running prediction first departs from the recording, and what is known of why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.objects import RECORDED
from pagealloc_model.base.arrays import parts
from pagealloc_model.base.text import count_of
from pagealloc_model.predicted.replay import Replay
from pagealloc_model.recording.trace.columns import Event, Trace

_FREED_SINCE = "it had been freed since, and the model's list had another page at its head"
_KNOWN_FROM = {
    Event.ZONE_LOCKED: "the kernel had last taken it from the buddy, and the model's refill "
    "brought other pages or came at another time",
    Event.PCPU_DRAIN: "the kernel had last drained it to the buddy and took it with no event since",
    Event.FREE: _FREED_SINCE,
    Event.FREE_BATCHED: _FREED_SINCE,
    Event.ALLOC: "it had been allocated before with no event between that freed it",
}
_SINCE_START = (
    "no event of the recording had touched it before: its rank on a list at the start, or in the "
    "buddy, is in no event"
)


@dataclass(frozen=True)
class Departure:
    """The first choice of a kind that differs from the kernel's.

    Attributes:
        what: "page", "zone", "refill on CPU n" or "drain on CPU n".
        time_s: seconds after the first event.
        measured: page frame, zone, or pages moved, in words.
        predicted: the same of the model.
        kernel_function: where the kernel decides it.
        cause: what the events say of why.
    """

    what: str
    time_s: float
    measured: str
    predicted: str
    kernel_function: str
    cause: str

    def words(self) -> str:
        """One sentence for a note."""
        return (
            f"{self.what}: {self.time_s:.6f} s after the first event the kernel's is "
            f"{self.measured}, the model's {self.predicted} ({self.kernel_function}); {self.cause}"
        )


def first_departures(
    trace: Trace, predicted: Replay, measured: pd.DataFrame
) -> tuple[Departure, ...]:
    """First departures of a prediction: page, zone, and each CPU's refills and drains."""
    return (*_of_places(trace, predicted), *_of_transactions(trace, predicted, measured))


def _of_places(trace: Trace, predicted: Replay) -> Iterator[Departure]:
    """The first request that got another page, and the first served from another zone."""
    machine, first_ns = predicted.machine, int(trace.demand_span_ns[0])
    events, objects = predicted.demand.events, predicted.demand.objects
    has_page = False
    for part in parts(len(events)):
        requests = events[part]
        requests = requests[np.isin(requests["operation"], (at.ALLOC, at.CAPTURE))]
        requests = requests[objects["kind"][requests["object"]] == RECORDED]
        kernel, model = objects["pfn"][requests["object"]], predicted.places[requests["object"]]
        zones = machine.zones_of_pages(kernel), machine.zones_of_pages(model)
        other_page, other_zone = kernel != model, zones[0] != zones[1]
        seconds = (requests["time_ns"] - first_ns) / 1e9
        if not has_page and other_page.any():
            has_page = True
            row = int(np.argmax(other_page))
            place = f"frame {model[row]}" if model[row] >= 0 else "none in one piece"
            cause = _last_touched(trace, int(kernel[row]), int(requests["time_ns"][row]))
            shown = (float(seconds[row]), f"frame {kernel[row]}", place)
            yield Departure("page", *shown, "rmqueue", cause)
        if other_zone.any():
            row = int(np.argmax(other_zone))
            served = [machine.zones[side[row]] if side[row] >= 0 else None for side in zones]
            names = [f"{zone.name} of node {zone.node}" if zone else "none" for zone in served]
            cause = (
                f"a request of order {requests['order'][row]} on CPU {requests['cpu'][row]}: a "
                "zone passed its watermark test on one side only, as free pages differ"
            )
            yield Departure("zone", float(seconds[row]), *names, "get_page_from_freelist", cause)
            return


def _last_touched(trace: Trace, pfn: int, time_ns: int) -> str:
    """The last event of a page before a time, as what it says of where the kernel had it."""
    rows = slice(0, int(np.searchsorted(trace.time_ns, time_ns)))
    first, order = trace.pfn[rows], trace.order[rows]
    size = np.int64(1) << np.clip(order, 0, 30).astype(np.int64)
    touched = np.flatnonzero((first <= pfn) & (pfn < first + size) & (order >= 0))
    event = Event(int(trace.event[touched[-1]])) if len(touched) else None
    return _KNOWN_FROM.get(event, _SINCE_START)


def _of_transactions(
    trace: Trace, predicted: Replay, measured: pd.DataFrame
) -> Iterator[Departure]:
    """The first refill and drain of each CPU that moves another number of pages."""
    for site, function in (("refill", "rmqueue_bulk"), ("drain", "free_pcppages_bulk")):
        tables = [
            table[(table["site"] == site) & (table["pages"] > 0)].sort_values(
                "time_ns", kind="stable"
            )
            for table in (measured, predicted.transactions_full)
        ]
        for cpu in sorted(tables[0]["cpu"].unique()):
            sides = [table[table["cpu"] == cpu] for table in tables]
            sizes = [side["pages"].to_numpy() for side in sides]
            common = min(map(len, sizes))
            differs = np.flatnonzero(sizes[0][:common] != sizes[1][:common])
            index = int(differs[0]) if len(differs) else common
            if index >= max(map(len, sizes)):
                continue
            time_ns = min(int(side["time_ns"].iloc[index]) for side in sides if index < len(side))
            pages = [
                count_of(side[index], "page") if index < len(side) else "none" for side in sizes
            ]
            cause = f"the {index} before it on this CPU moved as many pages on both sides"
            seconds = (time_ns - int(trace.demand_span_ns[0])) / 1e9
            yield Departure(f"{site} on CPU {cpu}", seconds, *pages, function, cause)
