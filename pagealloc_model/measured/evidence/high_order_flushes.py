"""At which free_count high-order frees flush a per-CPU list (S4.6), reconstructed from events."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.measured.evidence.finding import Finding
from pagealloc_model.measured.evidence.list_history import (
    BATCH_SCALE_MAX,
    CPU,
    ENTERS,
    LIST,
    PROBE,
    count_chances,
    match_batches,
)
from pagealloc_model.measured.stream import PROBE_EVENTS, Probe
from pagealloc_model.recording.trace.columns import Event, Trace
from pagealloc_model.recording.zone_map import ZoneMap

CHANCES_MIN = 20
FLUSHED_SHARE, KEPT_SHARE = 0.25, 0.1
"""Of 6.12.117's chances 35 % flush, of 7.2.13's 3 % drain for another reason; the rest of the
former are frees that missed the list, which events do not show (S4.10)."""


@dataclass(frozen=True, kw_only=True)
class FlushChances:
    """High-order frees that flush if the threshold is `batch`, not if it is batch + high_min/2.

    Attributes:
        asked: their number.
        flushed: those followed at once by a drain.
    """

    asked: int
    flushed: int

    def finding(self) -> Finding | None:
        """Which threshold the kernel has, None if that is not clear."""
        if self.asked < CHANCES_MIN:
            return None
        line = f"{self.flushed} of {self.asked} high-order frees above the lower threshold flush"
        share = self.flushed / self.asked
        if KEPT_SHARE < share < FLUSHED_SHARE:
            return None
        return Finding(value=share <= KEPT_SHARE, line=line)


def flush_chances(trace: Trace, zones: ZoneMap) -> FlushChances:
    """Count the frees of order 1-3 that tell the two thresholds apart.

    Such a free follows another one of order 1-3, more than a batch is on the list, free_count is
    between the thresholds, and no folio batch is open on the CPU: inside one, an interrupt finds
    the list locked and its free goes to the buddy. Pages outside all known zones do not count.

    Args:
        trace: a recording's events.
        zones: batch and low watermark of each code.
    """
    if not zones.zones or not len(trace):
        return FlushChances(asked=0, flushed=0)
    batches = zones.batches()[:-1]
    upper = batches + _high_mins(zones)[:-1] // 2
    starts = [zone.start_pfn or 0 for zone in zones.zones]
    ends = [zone.end_pfn for zone in zones.zones]
    limits = np.array([starts, ends, batches, upper], np.int64)
    batched = trace.pfn[trace.event == Event.FREE_BATCHED]
    pages = min(int(limits[1].max()), int(batched.max(initial=-1)) + 1)
    role = np.full(len(trace), ENTERS, np.int8)
    match_batches(trace.event, trace.pfn, trace.order, np.zeros(max(pages, 1), np.int32), role)
    probes = _probes(trace)
    nr_cpus = int(trace.cpu.max()) + 1
    cap_of = int(batches.max())
    while True:
        found = np.zeros(2 + len(batches), np.int64)
        found[0] = cap_of << BATCH_SCALE_MAX
        count_chances(
            trace.event,
            trace.cpu,
            trace.pfn,
            trace.order,
            trace.migratetype,
            role,
            probes,
            limits,
            np.zeros(nr_cpus * len(batches), LIST),
            np.zeros(nr_cpus, CPU),
            found,
        )
        seen = batches[found[2:] > 0]
        if not len(seen) or int(seen.max()) == cap_of:
            return FlushChances(asked=int(found[0]), flushed=int(found[1]))
        cap_of = int(seen.max())


def _probes(trace: Trace) -> np.ndarray:
    """`PROBE` records of all kprobes' events, in the order in which the trace has them."""
    parts = []
    for name in PROBE_EVENTS:
        table = trace.tables.get(name)
        if table is not None:
            part = np.zeros(len(table["row"]), PROBE)
            part["row"], part["cpu"] = table["row"], table["cpu"]
            part["flushes"] = PROBE_EVENTS[name] == Probe.BULK_FREE
            parts.append((table["time_ns"], part))
    if not parts:
        return np.zeros(0, PROBE)
    times, records = (np.concatenate(each) for each in zip(*parts, strict=True))
    return records[np.lexsort((times, records["row"]))]


def _high_mins(zones: ZoneMap) -> np.ndarray:
    """int64 high_min by zone code, computed where the kernel does not print it (S4.3)."""
    values = []
    for zone in zones.zones:
        first = zone.pagesets[0] if zone.pagesets else None
        if first is not None and first.high_min is not None:
            values.append(first.high_min)
        else:
            batch = first.batch if first else 1
            values.append(max(zone.low // max(len(zone.pagesets), 1), 4 * batch))
    return np.array([*values, 0], np.int64)
