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

_KNOWN_FROM = {
    Event.ZONE_LOCKED: "the kernel had last taken it from the buddy, and the model's refill "
    "brought other pages or came at another time",
    Event.PCPU_DRAIN: "the kernel had last drained it to the buddy and took it with no event since",
    Event.FREE: "it had been freed since, and the model's list had another page at its head",
    Event.FREE_BATCHED: "it had been freed since, and the model's list had another page at its "
    "head",
    Event.ALLOC: "it had been allocated before with no event between that freed it",
}
_SINCE_START = (
    "no event of the recording had touched it before: its rank on a list at the start, or in the "
    "buddy, is in no event"
)


@dataclass(frozen=True, kw_only=True)
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
    machine = predicted.machine
    first = int(trace.demand_span_ns[0])
    events, objects = predicted.demand.events, predicted.demand.objects

    def zone_name(number: int) -> str:
        zone = machine.zones[number]
        return f"{zone.name} of node {zone.node}" if number >= 0 else "none"

    has_page = False
    for part in parts(len(events)):
        asked = events[part]
        asked = asked[np.isin(asked["operation"], (at.ALLOC, at.CAPTURE))]
        asked = asked[objects["kind"][asked["object"]] == RECORDED]
        kernel, model = objects["pfn"][asked["object"]], predicted.places[asked["object"]]
        if not has_page and (kernel != model).any():
            has_page = True
            row = int(np.argmax(kernel != model))
            time_ns, pfn = int(asked["time_ns"][row]), int(model[row])
            yield Departure(
                what="page",
                time_s=(time_ns - first) / 1e9,
                measured=f"frame {kernel[row]}",
                predicted=f"frame {pfn}" if pfn >= 0 else "none in one piece",
                kernel_function="rmqueue",
                cause=_last_touched(trace, int(kernel[row]), time_ns),
            )
        real, own = machine.zones_of_pages(kernel), machine.zones_of_pages(model)
        if (real != own).any():
            row = int(np.argmax(real != own))
            yield Departure(
                what="zone",
                time_s=(int(asked["time_ns"][row]) - first) / 1e9,
                measured=zone_name(int(real[row])),
                predicted=zone_name(int(own[row])),
                kernel_function="get_page_from_freelist",
                cause=f"a request of order {asked['order'][row]} on CPU {asked['cpu'][row]}: a "
                "zone passed its watermark test on one side only, as free pages differ",
            )
            return


def _last_touched(trace: Trace, pfn: int, time_ns: int) -> str:
    """The last event of a page before a time, as what it says of where the kernel had it."""
    rows = slice(0, int(np.searchsorted(trace.time_ns, time_ns)))
    first, order = trace.pfn[rows], trace.order[rows]
    size = np.int64(1) << np.clip(order, 0, 30).astype(np.int64)
    touched = np.flatnonzero((first <= pfn) & (pfn < first + size) & (order >= 0))
    if not len(touched):
        return _SINCE_START
    return _KNOWN_FROM.get(Event(int(trace.event[touched[-1]])), _SINCE_START)


def _of_transactions(
    trace: Trace, predicted: Replay, measured: pd.DataFrame
) -> Iterator[Departure]:
    """The first refill and drain of each CPU that moves another number of pages."""
    for site, function in (("refill", "rmqueue_bulk"), ("drain", "free_pcppages_bulk")):
        real, model = (
            table[(table["site"] == site) & (table["pages"] > 0)].sort_values(
                "time_ns", kind="stable"
            )
            for table in (measured, predicted.transactions_full)
        )
        for cpu in sorted(real["cpu"].unique()):
            sides = [side[side["cpu"] == cpu] for side in (real, model)]
            sizes = [side["pages"].to_numpy() for side in sides]
            common = min(map(len, sizes))
            differs = np.flatnonzero(sizes[0][:common] != sizes[1][:common])
            index = int(differs[0]) if len(differs) else common
            if index >= max(map(len, sizes)):
                continue
            times = [int(side["time_ns"].iloc[index]) for side in sides if index < len(side)]
            pages = [
                count_of(side[index], "page") if index < len(side) else "none" for side in sizes
            ]
            yield Departure(
                what=f"{site} on CPU {cpu}",
                time_s=(min(times) - int(trace.demand_span_ns[0])) / 1e9,
                measured=pages[0],
                predicted=pages[1],
                kernel_function=function,
                cause=f"the {index} before it on this CPU moved as many pages on both sides",
            )
