"""The error table: every metric with its measured, predicted and null value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.allocator.core.layout import CHAINED
from pagealloc_model.allocator.core.objects import RECORDED
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.base.working_arrays import parts
from pagealloc_model.measured.measured import Measured
from pagealloc_model.predicted.replay import Replay
from pagealloc_model.predicted.tables import EMPTY_SITES
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.trace.columns import EVENT_NAMES, Event, Trace
from pagealloc_model.verdict.contention_errors import contention_rows
from pagealloc_model.verdict.state_errors import ErrorRow, Scored, error_row, relative, state_rows

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

NO_PCP = "no PCP"
MEAN = "measured mean"
NO_FALLBACK = "no fallback"
RANDOM_PAGE = "a page at random"
MOST_USED_ZONE = "always the zone most are from"
NONE_EMPTY = "none is empty"
PREDICTED_ALONE = "predicted alone"
"""Kind of a row whose measured side no recording of this kind can have."""
PCP_ORDER_MAX = 3


def error_rows(
    recording: Recording, predicted: Replay, measured: Measured, scored: Scored
) -> pd.DataFrame:
    """All rows of the error table.

    Args:
        recording: for what was recorded, and what a machine without per-CPU lists would have moved.
        predicted: the replay under the recorded policy.
        measured: the recording's tables.
        scored: both at the scored snapshots.
    """
    rows = [
        *state_rows(scored),
        *_transaction_rows(recording, predicted, measured),
        *_empty_rows(predicted, measured),
        _extfrag_row(recording, predicted, measured),
        *_placement_rows(predicted),
        _zone_row(predicted),
        *contention_rows(recording, predicted, measured),
        *_unknown_rows(measured),
    ]
    return pd.DataFrame(rows)


def was_recorded(recording: Recording, event: Event) -> bool:
    """Whether an event's absence means that it did not happen: the recorder was asked for it."""
    names = [name for name, number in EVENT_NAMES.items() if number == event]
    asked = recording.meta.get("perf") or ()
    return recording.trace.count(event) > 0 or any(name in asked for name in names)


def _transaction_rows(
    recording: Recording, predicted: Replay, measured: Measured
) -> Iterator[ErrorRow]:
    """Refills and drains: in all, by CPU, and bin by bin."""
    trace = recording.trace
    for site, event, shown_by in (
        ("refill", Event.ALLOC, Event.ZONE_LOCKED),
        ("drain", Event.FREE, Event.PCPU_DRAIN),
    ):
        known = was_recorded(recording, shown_by)
        real = measured.transactions_full.query("site == @site")
        model = predicted.transactions_full.query("site == @site")
        calls, pages = _moved_by_cpu(trace, event)
        yield from _totals(
            site, "all", real, model, sum(pages.values()), sum(calls.values()), known
        )
        for cpu in calls:
            yield from _totals(
                site,
                f"cpu={cpu}",
                real[real["cpu"] == cpu],
                model[model["cpu"] == cpu],
                pages[cpu],
                calls[cpu],
                known,
            )
        yield from _binned(site, measured.lock, predicted.lock)


def _moved_by_cpu(trace: Trace, event: Event) -> tuple[dict[int, int], dict[int, int]]:
    """Events and pages of them that per-CPU lists may hold, by each CPU that has any event."""
    first = int(trace.cpu.min(initial=0))
    length = int(trace.cpu.max(initial=0)) - first + 1
    seen, calls, pages = (np.zeros(length, np.int64) for _ in range(3))
    for part in parts(len(trace)):
        cpu, order = trace.cpu[part].astype(np.int64) - first, trace.order[part]
        seen += np.bincount(cpu, minlength=length)
        moved = (trace.event[part] == event) & (trace.pfn[part] >= 0) & (order <= PCP_ORDER_MAX)
        calls += np.bincount(cpu[moved], minlength=length)
        sizes = 1 << order[moved].astype(np.int64)
        pages += np.bincount(cpu[moved], weights=sizes, minlength=length).astype(np.int64)
    cpus = np.flatnonzero(seen).tolist()
    by_cpu = [{cpu + first: int(each[cpu]) for cpu in cpus} for each in (calls, pages)]
    return by_cpu[0], by_cpu[1]


def _empty_rows(predicted: Replay, measured: Measured) -> Iterator[ErrorRow]:
    """Attempts under zone->lock that found no page; most recordings cannot show them."""
    for site in EMPTY_SITES:
        is_seen = site not in measured.unseen_sites
        real = measured.transactions_full["site"] == site
        count = float(real.sum()) if is_seen else float("nan")
        model = float((predicted.transactions_full["site"] == site).sum())
        yield error_row(
            f"{site}_transactions",
            "all",
            measured=count,
            predicted=model,
            error=relative(model, count),
            unit="transactions",
            null_model=NONE_EMPTY,
            null=0.0,
            null_error=relative(0.0, count),
            kind="predicted" if is_seen else PREDICTED_ALONE,
        )


def empty_attempt_notes(predicted: Replay, measured: Measured) -> Iterator[str]:
    """Say which predicted attempts found no page, and where else they count; nothing if none."""
    sites = predicted.transactions_full["site"]
    counts = {site: int((sites == site).sum()) for site in EMPTY_SITES}
    if not any(counts.values()):
        return
    refills, direct = counts.values()
    is_seen = "empty_refill" not in measured.unseen_sites
    shown = "kprobes show the refills alone" if is_seen else "no event shows either"
    yield (
        f"{count_of(refills, 'predicted refill')} and "
        f"{count_of(direct, 'predicted direct allocation')} found no page and stand in "
        f"rows of their own; {shown}. Each takes zone->lock, so times, waits and "
        "contended acquisitions at the lock include them"
    )


def _totals(
    site: str,
    scope: str,
    real: pd.DataFrame,
    model: pd.DataFrame,
    pages: int,
    calls: int,
    known: bool,
) -> Iterator[ErrorRow]:
    for metric, measured, predicted, null, unit in (
        ("pages", real["pages"].sum(), model["pages"].sum(), pages, "pages"),
        ("transactions", len(real), len(model), calls, "transactions"),
    ):
        measured = float(measured) if known else float("nan")
        yield error_row(
            f"{site}_{metric}",
            scope,
            measured=measured,
            predicted=float(predicted),
            error=relative(float(predicted), measured),
            unit=unit,
            null_model=NO_PCP,
            null=float(null),
            null_error=relative(float(null), measured),
        )


def _binned(site: str, measured: pd.DataFrame, predicted: pd.DataFrame) -> Iterator[ErrorRow]:
    """Absolute differences summed over time bins, as a share of the measured total."""
    real = measured[measured["site"] == site].groupby("time_ns")["pages"].sum()
    model = predicted[predicted["site"] == site].groupby("time_ns")["pages"].sum()
    both = pd.DataFrame({"measured": real, "predicted": model}).fillna(0.0)
    total = both["measured"].sum()
    if not total:
        return
    mean = both["measured"].mean()
    yield error_row(
        f"{site}_pages",
        "per time bin",
        measured=float(mean),
        predicted=float(both["predicted"].mean()),
        error=float((both["predicted"] - both["measured"]).abs().sum() / total),
        unit="pages, absolute errors summed",
        null_model=MEAN,
        null=float(mean),
        null_error=float((mean - both["measured"]).abs().sum() / total),
    )


def _extfrag_row(recording: Recording, predicted: Replay, measured: Measured) -> ErrorRow:
    known = was_recorded(recording, Event.EXTFRAG)
    real = float(measured.fallbacks["count"].sum()) if known else float("nan")
    model = float(predicted.fallbacks["count"].sum())
    return error_row(
        "extfrag_events",
        "all",
        measured=real,
        predicted=model,
        error=relative(model, real),
        unit="events",
        null_model=NO_FALLBACK,
        null=0.0,
        null_error=relative(0.0, real),
    )


def _placement_rows(predicted: Replay) -> Iterator[ErrorRow]:
    """Share of recorded allocations that the free-running model put where the kernel did."""
    objects = predicted.demand.objects
    recorded = objects["kind"] == RECORDED
    kernel = objects["pfn"][recorded]
    model = predicted.places[recorded]
    order = predicted.machine.pageblock_order
    pages = sum(zone.managed for zone in predicted.machine.zones)
    for metric, hit, chance in (
        ("placement_exact", kernel == model, 1 / pages),
        ("placement_block", kernel >> order == model >> order, (1 << order) / pages),
    ):
        share = float(hit.mean()) if len(hit) else float("nan")
        yield error_row(
            metric,
            "all",
            measured=1.0,
            predicted=share,
            error=share - 1,
            unit="share",
            null_model=RANDOM_PAGE,
            null=chance,
            null_error=chance - 1,
        )


def _zone_row(predicted: Replay) -> ErrorRow:
    """Share of recorded allocations that the free-running model served from the kernel's zone."""
    machine = predicted.machine
    recorded = predicted.demand.objects["kind"] == RECORDED
    kernel = _zones(machine, predicted.demand.objects["pfn"][recorded])
    model = predicted.places[recorded]
    model = _zones(machine, np.where(model <= CHAINED, CHAINED - model, model))
    share = float((kernel == model).mean()) if len(kernel) else float("nan")
    used = np.bincount(kernel[kernel >= 0], minlength=1)
    most = float(used.max() / len(kernel)) if len(kernel) else float("nan")
    return error_row(
        "placement_zone",
        "all",
        measured=1.0,
        predicted=share,
        error=share - 1,
        unit="share",
        null_model=MOST_USED_ZONE,
        null=most,
        null_error=most - 1,
    )


def _zones(machine: Machine, pfn: np.ndarray) -> np.ndarray:
    """Number of the zone of each page frame, -1 for those in none."""
    numbers = np.full(len(pfn), -1)
    for number, zone in enumerate(machine.zones):
        if zone.managed:
            numbers[(pfn >= zone.start_pfn) & (pfn < zone.end_pfn)] = number
    return numbers


def _unknown_rows(measured: Measured) -> Iterator[ErrorRow]:
    """What a literal replay cannot know, with what was measured of it."""
    counters = measured.vmstat.groupby("name")["value"].agg(["first", "last"])
    change = (counters["last"] - counters["first"]).astype(float)
    succeeded = change.get("thp_fault_alloc", np.nan)
    fell_back = change.get("thp_fault_fallback", np.nan)
    asked = succeeded + fell_back
    if asked > 0:
        yield error_row(
            "thp_success",
            "all",
            measured=succeeded / asked,
            predicted=float("nan"),
            error=float("nan"),
            unit="share",
            null_model="none",
            null=float("nan"),
            null_error=float("nan"),
        )
