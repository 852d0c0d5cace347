"""Rules shown by what the allocator did: checks, which no free-running prediction may use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from pagealloc_model.base.text.counts import count_of
from pagealloc_model.measured.evidence import drain_holds, fallback_events, highatomic_calls
from pagealloc_model.measured.evidence.drains_and_fallbacks import evidence_stream
from pagealloc_model.measured.evidence.finding import Finding
from pagealloc_model.measured.evidence.high_order_flushes import FlushChances, flush_chances
from pagealloc_model.measured.stream import Stream
from pagealloc_model.recording.trace.columns import Event, Trace
from pagealloc_model.recording.zone_map import ZoneMap

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

HIGHATOMIC = 3
DECAYS_MIN = 3
RETYPED_DRAINS_MIN = 10


@dataclass(frozen=True, eq=False)
class Answers:
    """What the allocator did in one recording; each part is derived on first use.

    Attributes:
        recording: the recording.
    """

    recording: Recording

    @cached_property
    def stream(self) -> Stream:
        """The events that rules rest on, CPU by CPU, kprobes included."""
        return evidence_stream(self.recording.trace)

    @cached_property
    def drain_steps(self) -> drain_holds.DrainSteps:
        """How long each step inside a drain of single pages took."""
        return drain_holds.drain_steps(self.stream, self.zones, self.recording.trace.comms)

    @cached_property
    def zones(self) -> ZoneMap:
        """Zones of the first snapshot that has a usable zoneinfo."""
        return ZoneMap.of(next((s.zoneinfo for s in self.recording.snapshots if s.zoneinfo), None))


def _drains_batched(cause: str) -> Callable[[Answers], Finding | None]:
    def find(answers: Answers) -> Finding | None:
        trace, stream = answers.recording.trace, answers.stream
        if drain_holds.PROBE in trace.tables:
            largest = int(answers.zones.batches().max())
            return drain_holds.by_calls(stream, trace, largest, cause)
        return drain_holds.by_pauses(answers.drain_steps, cause)

    return find


def _flush_adds_half_high_min(answers: Answers) -> Finding | None:
    chances = FlushChances(asked=0, flushed=0)
    if not answers.recording.trace.losses.total:
        chances = flush_chances(answers.recording.trace, answers.zones)
    return chances.finding()


def _pcp_auto_tuned(answers: Answers) -> Finding | None:
    values: dict[tuple[str, int], set[int]] = {}
    for zone, cpu, high in _highs(answers):
        values.setdefault((zone, cpu), set()).add(high)
    (zone, cpu), most = max(
        values.items(), key=lambda item: len(item[1]), default=(("", 0), set[int]())
    )
    if len(most) < DECAYS_MIN:
        return None
    line = f"pcp->high of zone {zone}, CPU {cpu}, has {len(most)} values, {min(most)}-{max(most)}"
    return Finding(value=True, line=line)


def _pcp_decays(answers: Answers) -> Finding | None:
    highs: dict[tuple[str, int], list[int]] = {}
    for zone, cpu, high in _highs(answers):
        highs.setdefault((zone, cpu), []).append(high)
    ticks = sum(
        after == before - (before >> 3)
        for row in highs.values()
        for before, after in pairwise(row)
        if before > min(row)
    )
    if ticks < DECAYS_MIN:
        return None
    return Finding(
        value=True, line=f"pcp->high fell by exactly an eighth {count_of(ticks, 'time')}"
    )


def _highs(answers: Answers) -> list[tuple[str, int, int]]:
    """(zone, CPU, pcp->high) of every snapshot in time order."""
    return [
        (f"{zone.node}/{zone.name}", pageset.cpu, pageset.high)
        for snapshot in answers.recording.snapshots
        if snapshot.zoneinfo
        for zone in snapshot.zoneinfo.zones
        for pageset in zone.pagesets
    ]


def _fallback_from_largest(answers: Answers) -> Finding | None:
    return fallback_events.generation(answers.stream)


def _lists_match_blocks(answers: Answers) -> Finding | None:
    pages = retyped_while_listed(answers.recording.trace)
    if pages < RETYPED_DRAINS_MIN:
        return None
    line = f"{pages} pages refilled as another type were drained, unused, as HighAtomic"
    return Finding(value=True, line=line)


def retyped_while_listed(trace: Trace) -> int:
    """Pages that a refill took as another type and that left a per-CPU list as HIGHATOMIC.

    A page freed in between would say nothing: before 6.10 it carries its block's type from then on
    (S5.6).
    """
    drained = trace.pfn[
        (trace.event == Event.PCPU_DRAIN) & (trace.migratetype == HIGHATOMIC) & (trace.pfn >= 0)
    ]
    if not len(drained):
        return 0
    rows = np.flatnonzero(np.isin(trace.pfn, drained))
    by_page = rows[np.lexsort((rows, trace.pfn[rows]))]
    same_page = trace.pfn[by_page[1:]] == trace.pfn[by_page[:-1]]
    before, after = by_page[:-1][same_page], by_page[1:][same_page]
    refilled = (trace.event[before] == Event.ZONE_LOCKED) & (trace.migratetype[before] < HIGHATOMIC)
    leaves = (trace.event[after] == Event.PCPU_DRAIN) & (trace.migratetype[after] == HIGHATOMIC)
    return int(np.count_nonzero(refilled & leaves))


def _highatomic_from_pcp(answers: Answers) -> Finding | None:
    return highatomic_calls.reserve_after_list(answers.stream, answers.recording.trace.tables)


def _highatomic_refills_pcp(answers: Answers) -> Finding | None:
    return highatomic_calls.refills_for_highatomic(answers.recording.trace.tables)


def _reserve_cap_rounded(answers: Answers) -> Finding | None:
    return highatomic_calls.cap(answers.recording.snapshots)


ANSWER_FINDERS: dict[str, Callable[[Answers], Finding | None]] = {
    "free_batched": _drains_batched("commit"),
    "decay_batched": _drains_batched("decay"),
    "high_order_flush_adds_half_high_min": _flush_adds_half_high_min,
    "pcp_auto_tuned": _pcp_auto_tuned,
    "pcp_decays": _pcp_decays,
    "fallback_from_largest": _fallback_from_largest,
    "lists_match_blocks": _lists_match_blocks,
    "highatomic_from_pcp": _highatomic_from_pcp,
    "highatomic_refills_pcp": _highatomic_refills_pcp,
    "reserve_cap_rounded": _reserve_cap_rounded,
}
"""By field of `KernelRules`; a field without a finder cannot be checked."""

_findings: WeakKeyDictionary[Recording, dict[str, Finding]] = WeakKeyDictionary()


def answer_findings(recording: Recording) -> dict[str, Finding]:
    """What the allocator's answers show, by rule; kept while that lives.

    Raises:
        RecordingError: the recording cannot be read.
    """
    if recording not in _findings:
        answers = Answers(recording)
        found = {rule: find(answers) for rule, find in ANSWER_FINDERS.items()}
        _findings[recording] = {rule: each for rule, each in found.items() if each is not None}
    return _findings[recording]
