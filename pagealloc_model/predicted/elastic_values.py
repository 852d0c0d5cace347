"""What an elastic replay of a recording assumes: read off the recording, else general values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator.state import slab_objects
from pagealloc_model.measured.costs import recorded_elastic_costs
from pagealloc_model.policy.assumptions import Assumptions, ElasticAssumptions
from pagealloc_model.predicted.demand.elastic import ElasticRows, slab_survivors
from pagealloc_model.predicted.recorded_kswapd import recorded_kswapd, recorded_schedule
from pagealloc_model.recording.recorded_machine import recorded_machine, start_snapshots
from pagealloc_model.recording.trace.columns import Event

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

_LRU_ORDER, _ANON_USE = "lru_as_recorded", "anon_referenced_per_mille"
_SCHEDULED = "daemons_as_scheduled"
READ = {
    "kswapd_as_recorded": "kswapd's pace and CPU*",
    _SCHEDULED: "kswapd's and kcompactd's waits for a CPU*",
    _LRU_ORDER: "order of reclaim at the start*",
    "slab_survivors_per_mille": "share of slabs that outlive reclaim*",
    "kswapd_free_ns": "kswapd's time to free a page",
    "kswapd_wake_ns": "kswapd's time to wake",
    "compact_migrate_ns": "compaction's time to move a page",
    "compaction_contended_per_mille": "compactions that give way",
    "base_pages_per_huge": "base pages in place of a huge one",
    "file_referenced_per_mille": "share of file pages in use",
    _ANON_USE: "share of anonymous pages in use",
}
"""Fields of `ElasticAssumptions` that a recording can show, in words; * is imposed: the recorded
kernel's own doing, which a replay takes over."""


@dataclass(frozen=True, kw_only=True)
class ElasticValues:
    """The values of an elastic replay of a recording, and which of them it shows.

    Attributes:
        elastic: the values.
        read: the fields read off the recording, of `READ`; the others are general.
        has_state: LRU lists and compaction's positions at the start come from a state file, so
            that the order in which the recorded kernel reclaimed is not taken over.
    """

    elastic: ElasticAssumptions
    read: tuple[str, ...]
    has_state: bool = False

    @property
    def costs_alone(self) -> Assumptions:
        """Those of an elastic replay with nothing imposed: recorded costs, general behaviour."""
        general = ElasticAssumptions()
        names = [name for name, text in READ.items() if text.endswith("*")]
        elastic = replace(self.elastic, **{name: getattr(general, name) for name in names})
        return Assumptions(reclaim="elastic", elastic=elastic)

    def __str__(self) -> str:
        words = [text for name, text in READ.items() if name in self.read]
        # anonymous pages are scanned where there is swap: elsewhere their share is no lack
        asked = {name: text for name, text in READ.items() if name != _ANON_USE}
        lacking = [text.rstrip("*") for name, text in asked.items() if name not in self.read]
        if self.has_state:
            words.append("LRU lists and compaction's positions at the start")
            lacking.remove(READ[_LRU_ORDER].rstrip("*"))
        if not words:
            return "The recording shows none of reclaim's costs: general values take their place."
        general = f"; general values: {', '.join(lacking)}" if lacking else ""
        starred = any(text.endswith("*") for text in words)
        imposed = " (* imposed: the recorded kernel's own doing)" if starred else ""
        return f"Read off the recording: {', '.join(words)}{imposed}{general}."


def elastic_values(recording: Recording) -> ElasticValues:
    """All that a recording shows of the costs and findings of reclaim and compaction (S10.5).

    It is read once for a recording. The share of slabs that outlive reclaim is of the whole
    recording, kswapd's pace and the order of reclaim are the recorded kernel's own.

    Raises:
        UsageError: no snapshot, or a machine the model has no rules for.
        RecordingError: a file of the recording cannot be read.
    """

    def read() -> ElasticValues:
        trace = recording.trace
        frees = np.flatnonzero(trace.event == Event.FREE)
        shown: dict[str, int | bool | None] = {
            **recorded_elastic_costs(trace, start_snapshots(recording)[1]),
            "slab_survivors_per_mille": slab_survivors(
                recording.whole_trace,
                recording.dated_snapshots,
                slab_objects(recorded_machine(recording).nr_cpus),
            ),
            "kswapd_as_recorded": recorded_kswapd(trace) is not None or None,
        }
        if shown["kswapd_as_recorded"] and recorded_schedule(trace) is not None:
            shown[_SCHEDULED] = True
        has_state = recording.start_state is not None
        if not has_state:
            is_shown = bool(ElasticRows(trace).freed_by_reclaim(frees).any())
            shown[_LRU_ORDER] = is_shown or None
        known = {name: value for name, value in shown.items() if value is not None}
        elastic = replace(ElasticAssumptions(), **known)
        return ElasticValues(elastic=elastic, read=tuple(known), has_state=has_state)

    return recording.remembered("elastic values", read)
