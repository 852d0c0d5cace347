"""Where a free-running prediction first departs from the recording, and what is known of why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.objects import RECORDED
from pagealloc_model.base.arrays import parts
from pagealloc_model.base.text import count_of
from pagealloc_model.predicted.replay import Replay
from pagealloc_model.recording.machine import Machine
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

    def to_dict(self) -> dict[str, object]:
        """For `pagealloc validate --json`."""
        return asdict(self)

    def words(self) -> str:
        """One sentence for a note."""
        return (
            f"{self.what}: {self.time_s:.6f} s after the first event the kernel's is "
            f"{self.measured}, the model's {self.predicted} ({self.kernel_function}); {self.cause}"
        )


def first_departures(
    trace: Trace, predicted: Replay, measured: pd.DataFrame
) -> tuple[Departure, ...]:
    """First departures of a free-running prediction: page, zone, and each CPU's refills and drains.

    Args:
        trace: the recording's events.
        predicted: under the recorded policy.
        measured: the recording's `Measured.transactions_full`.
    """
    return (*_of_places(trace, predicted), *_of_transactions(trace, predicted, measured))


def _of_places(trace: Trace, predicted: Replay) -> Iterator[Departure]:
    """The first request that got another page, and the first served from another zone."""
    machine = predicted.machine
    first = int(trace.demand_span_ns[0])
    page: int | None = None
    for asked, kernel, model in _requests(predicted):
        if page is None and (kernel != model).any():
            page = int(np.argmax(kernel != model))
            time_ns = int(asked["time_ns"][page])
            yield Departure(
                what="page",
                time_s=(time_ns - first) / 1e9,
                measured=f"frame {kernel[page]}",
                predicted=_frame(int(model[page])),
                kernel_function="rmqueue",
                cause=_last_touched(trace, int(kernel[page]), time_ns),
            )
        real, mine = machine.zones_of_pages(kernel), machine.zones_of_pages(model)
        if (real != mine).any():
            zone = int(np.argmax(real != mine))
            yield Departure(
                what="zone",
                time_s=(int(asked["time_ns"][zone]) - first) / 1e9,
                measured=_zone_name(machine, int(real[zone])),
                predicted=_zone_name(machine, int(mine[zone])),
                kernel_function="get_page_from_freelist",
                cause=f"a request of order {asked['order'][zone]} on CPU {asked['cpu'][zone]}: a "
                "zone passed its watermark test on one side only, as free pages differ",
            )
            return


def _requests(predicted: Replay) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Recorded requests in time order, a part at a time: events, the kernel's and model's pages."""
    events, objects = predicted.demand.events, predicted.demand.objects
    for part in parts(len(events)):
        asked = events[part]
        asked = asked[np.isin(asked["operation"], (at.ALLOC, at.CAPTURE))]
        asked = asked[objects["kind"][asked["object"]] == RECORDED]
        yield asked, objects["pfn"][asked["object"]], predicted.places[asked["object"]]


def _frame(pfn: int) -> str:
    return f"frame {pfn}" if pfn >= 0 else "none in one piece"


def _zone_name(machine: Machine, number: int) -> str:
    if number < 0:
        return "none"
    zone = machine.zones[number]
    return f"{zone.name} of node {zone.node}"


def _last_touched(trace: Trace, pfn: int, time_ns: int) -> str:
    """What the last event of a page before a time says of where the kernel had it."""
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
        real = _moving(measured, site)
        model = _moving(predicted.transactions_full, site)
        for cpu in sorted(real["cpu"].unique()):
            found = _first_other_size(real[real["cpu"] == cpu], model[model["cpu"] == cpu])
            if found is None:
                continue
            index, time_ns, kernel_pages, model_pages = found
            yield Departure(
                what=f"{site} on CPU {cpu}",
                time_s=(time_ns - int(trace.demand_span_ns[0])) / 1e9,
                measured=kernel_pages,
                predicted=model_pages,
                kernel_function=function,
                cause=f"the {index} before it on this CPU moved as many pages on both sides",
            )


def _moving(transactions: pd.DataFrame, site: str) -> pd.DataFrame:
    chosen = transactions[(transactions["site"] == site) & (transactions["pages"] > 0)]
    return chosen.sort_values("time_ns", kind="stable")


def _first_other_size(real: pd.DataFrame, model: pd.DataFrame) -> tuple[int, int, str, str] | None:
    """Index, time and both sizes where two sequences first differ; None if never."""
    sizes = [side["pages"].to_numpy() for side in (real, model)]
    times = [side["time_ns"].to_numpy() for side in (real, model)]
    common = min(map(len, sizes))
    differs = sizes[0][:common] != sizes[1][:common]
    index = int(np.argmax(differs)) if differs.any() else common
    present = [index < len(side) for side in sizes]
    if not any(present):
        return None
    time_ns = min(
        int(side[index]) for side, is_there in zip(times, present, strict=True) if is_there
    )
    words = [
        count_of(side[index], "page") if is_there else "none"
        for side, is_there in zip(sizes, present, strict=True)
    ]
    return index, time_ns, words[0], words[1]
