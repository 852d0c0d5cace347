"""Interactive views of the four studies: sliders made from `Policy`, a figure and a table each."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import ipywidgets
from pagealloc_model.notebooks.studies.build_host import BuildHost, run_build_host
from pagealloc_model.notebooks.studies.defrag_study import (
    DEFRAG_MODE,
    RULES,
    defrag_table,
    judged_rows,
    served_shares,
)
from pagealloc_model.notebooks.studies.figures import huge_page_trend
from pagealloc_model.notebooks.studies.ownership_effects import (
    OwnershipEffects,
    ownership_effects,
    ownership_table,
)

import pagealloc_model as pm
from pagealloc_model.base.text import count_of
from pagealloc_model.measured.costs import recorded_costs
from pagealloc_model.measured.measured import Measured
from pagealloc_model.notebook.controls import PolicyControls, number_slider
from pagealloc_model.notebook.view import Explorer, Progress, View
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.ownership_options import OwnershipOptions
from pagealloc_model.policy.policy import Policy
from pagealloc_model.predicted.lock_times import LockModel, LockTimes, lock_times
from pagealloc_model.show import figures
from pagealloc_model.show.figures.faceted import Drawing
from pagealloc_model.show.post import posted_figures
from pagealloc_model.studies.synthetic.demand import Demand
from pagealloc_model.studies.synthetic.run import run
from pagealloc_model.studies.synthetic.scale_up import scaled_up
from pagealloc_model.studies.synthetic.scenarios import scenario
from pagealloc_model.verdict.comparison import recorded_values
from pagealloc_model.verdict.locks import lock_policy_table

if TYPE_CHECKING:
    import pandas as pd

    from pagealloc_model.recording.recording import Recording


_HIGHATOMIC_FIELDS = ("highatomic_gate_order", "highatomic_reserve_percent", "highatomic_from_pcp")
_HIGHATOMIC_LABELS = {"highatomic_gate_order": "costly-order threshold"}
MAINLINE_GATE, PROPOSED_GATE = 0, 3
_HIGHATOMIC_AS_RECORDED = "predicted, policy as recorded"
_HIGHATOMIC_THIS_POLICY = "predicted, policy above"

Sources = Mapping[str, "tuple[Measured | pm.Replay, int]"]
"""Legend label -> what has the tables, and its recording's first event in ns."""


def highatomic(recording: Recording | str, *others: Recording | str) -> Explorer:
    """HighAtomic pageblocks and free memory by type under a threshold that a slider sets.

    Predictions replay the first recording; the slider starts at the rule that it was not made
    under, mainline's or the proposal's. What the others measured is drawn beside, on their own
    time axis from their own start: they are separate runs.
    """
    recordings = [pm.open(each) if isinstance(each, str) else each for each in (recording, *others)]
    first, first_start = recordings[0], recordings[0].trace.span_ns[0]
    measurements = {
        f"measured, {recording.name}": (recording.measure(), recording.trace.span_ns[0])
        for recording in recordings
    }
    base = pm.replay(first)
    posted = posted_figures("highatomic")

    def compute(policy: pm.Policy, progress: Progress, cancelled: threading.Event) -> View:
        patch = base
        if policy != pm.Policy():
            patch = pm.replay(first, policy, progress=progress, cancel=cancelled.is_set)
        predictions = {
            _HIGHATOMIC_AS_RECORDED: (base, first_start),
            _HIGHATOMIC_THIS_POLICY: (patch, first_start),
        }
        return View(
            figure=_figure(measurements, predictions, posted),
            text=pm.compare(base, patch).to_text(width=72),
            replay=patch,
        )

    gate = PROPOSED_GATE if not base.policy.highatomic_gate_order else MAINLINE_GATE
    controls = PolicyControls(
        _HIGHATOMIC_FIELDS,
        labels=_HIGHATOMIC_LABELS,
        recorded=recorded_values(base),
        start={"highatomic_gate_order": gate},
    )
    return Explorer(f"{first.name}: the highatomic reserve", controls, compute)


def _figure(measurements: Sources, predictions: Sources, posted: pd.DataFrame) -> Drawing:
    blocks = figures.highatomic_blocks.drawing(
        _tables(measurements, "pageblocks"), _tables(predictions, "pageblocks"), posted
    )
    free_pages = figures.free_pages_by_migratetype.drawing(
        _tables(measurements, "free_pages"), _tables(predictions, "free_pages")
    )
    return figures.stacked.drawing([blocks, free_pages])


def _tables(sources: Sources, name: str) -> dict[str, pd.DataFrame]:
    """One table of each source, on a time axis that begins where its recording does."""
    return {
        label: figures.since_start(getattr(source, name), start_ns)
        for label, (source, start_ns) in sources.items()
    }


_PCP_BATCHING_FIELDS = (
    "pcp_free_batched",
    "pcp_decay_batched",
    "pcp_drain_batched",
    "pcp_batch",
    "pcp_batch_scale_max",
)
_PCP_BATCHING_LABELS = {
    "pcp_free_batched": "batch frees of a full list",
    "pcp_decay_batched": "batch the periodic decay",
    "pcp_drain_batched": "batch full drains",
}
_PCP_BATCHING_AS_RECORDED, _PCP_BATCHING_THIS_POLICY = "policy as recorded", "policy above"
_PCP_BATCHING_CPUS_MAX = 64


class PcpBatching(ipywidgets.VBox):
    """An explorer of lock times with a slider for the number of CPUs."""

    def __init__(self, recording: Recording | str) -> None:
        recording = pm.open(recording) if isinstance(recording, str) else recording
        self._recording = recording
        self._base = pm.replay(recording)
        self._model = LockModel(costs=recorded_costs(recording).untraced())
        recorded = self._base.machine.nr_cpus
        most = max(_PCP_BATCHING_CPUS_MAX, recorded)
        self.cpus = number_slider(
            "CPUs (streams repeated)", min(4 * recorded, most), recorded, most, recorded
        )
        self._scenario = lru_cache(maxsize=4)(self._scaled)
        self._as_recorded = lru_cache(maxsize=4)(self._base_times)
        controls = PolicyControls(
            _PCP_BATCHING_FIELDS,
            labels=_PCP_BATCHING_LABELS,
            recorded=recorded_values(self._base),
            start={"pcp_free_batched": not recorded_values(self._base)["pcp_free_batched"]},
        )
        self.explorer = Explorer(f"{recording.name}: zone->lock", controls, self._compute)
        self.cpus.observe(lambda _: self.explorer.redraw(), "value")
        super().__init__([self.cpus, self.explorer])

    def _compute(self, policy: pm.Policy, progress: Progress, cancelled: threading.Event) -> View:
        cpus = self.cpus.value
        base = self._as_recorded(cpus)
        patch = self._times(policy, cpus, progress, cancelled)
        return View(
            figure=figures.lock_times.drawing(
                {
                    _PCP_BATCHING_AS_RECORDED: base.acquisitions,
                    _PCP_BATCHING_THIS_POLICY: patch.acquisitions,
                }
            ),
            text=lock_policy_table(
                base,
                patch,
                f"base: {self._recording.name} as recorded; patch: {policy}; "
                f"{count_of(cpus, 'CPU')}",
                () if cpus == self._base.machine.nr_cpus else self._scenario(cpus).lines,
            ),
        )

    def _times(
        self, policy: pm.Policy, cpus: int, progress: Progress, cancelled: threading.Event
    ) -> LockTimes:
        if cpus == self._base.machine.nr_cpus:
            replay = pm.replay(self._recording, policy, progress=progress, cancel=cancelled.is_set)
            return lock_times(replay, self._model)
        done = run(self._scenario(cpus), policy, rules=self._base.rules, progress=progress)
        return done.lock_times(self._model)

    def _base_times(self, cpus: int) -> LockTimes:
        return self._times(self._base.policy, cpus, lambda _: None, threading.Event())

    def _scaled(self, cpus: int) -> Demand:
        return scaled_up(self._recording, cpus, rules=self._base.rules)


def pcp_batching(recording: Recording | str) -> PcpBatching:
    """Holds and waits at zone->lock with batches of other sizes, on the recorded CPUs or on more.

    Times are of a machine that is not traced: costs are fitted to the recording, without what
    tracing adds.
    """
    return PcpBatching(recording)


_PCP_BUDDY_FIELDS = (
    "pageblock_ownership",
    *(f"ownership.{each.name}" for each in fields(OwnershipOptions)),
)
_PCP_BUDDY_MAINLINE, _PCP_BUDDY_THIS_POLICY = "mainline", "policy above"
_PCP_BUDDY_CPUS_MAX = 32
PURGED_PAGES, PURGED_ROUNDS = 1024, 4
"""What an allocator touches before it is purged, and how often, in the made-up load."""


class PcpBuddy(ipywidgets.VBox):
    """An explorer of ownership with sliders for CPUs and for how many of them purge."""

    def __init__(self, recording: Recording | str) -> None:
        recording = pm.open(recording) if isinstance(recording, str) else recording
        self._recording = recording
        self._base = pm.replay(recording)
        recorded = self._base.machine.nr_cpus
        most = max(_PCP_BUDDY_CPUS_MAX, recorded)
        self.cpus = number_slider(
            "CPUs (streams repeated)", recorded, recorded, most, step=recorded
        )
        self.purging = number_slider("CPUs that only free, the others allocate", 0, 0, most // 2)
        self._scenario = lru_cache(maxsize=4)(self._made_scenario)
        self._mainline = lru_cache(maxsize=4)(self._effects_of_mainline)
        controls = PolicyControls(_PCP_BUDDY_FIELDS, start={"pageblock_ownership": "pcp_buddy"})
        self.explorer = Explorer(f"{recording.name}: pageblock ownership", controls, self._compute)
        for slider in (self.cpus, self.purging):
            slider.observe(lambda _: self.explorer.redraw(), "value")
        super().__init__([self.cpus, self.purging, self.explorer])

    def _compute(self, policy: pm.Policy, progress: Progress, cancelled: threading.Event) -> View:
        load = self.cpus.value, self.purging.value
        base = self._mainline(*load)
        patch = self._effects(policy, *load, progress, cancelled)
        start_ns = int(base.over_time["time_ns"].min())
        over_time = {
            label: figures.since_start(effects.over_time, start_ns)
            for label, effects in ((_PCP_BUDDY_MAINLINE, base), (_PCP_BUDDY_THIS_POLICY, patch))
        }
        return View(
            figure=figures.ownership_over_time.drawing(over_time),
            text=ownership_table(
                base,
                patch,
                f"base: {self._load_words(*load)}; patch: {policy}",
                () if self._is_recorded(*load) else self._scenario(*load).lines,
            ),
        )

    def _effects(
        self,
        policy: pm.Policy,
        cpus: int,
        purging: int,
        progress: Progress,
        cancelled: threading.Event,
    ) -> OwnershipEffects:
        if self._is_recorded(cpus, purging):
            return ownership_effects(
                pm.replay(self._recording, policy, progress=progress, cancel=cancelled.is_set)
            )
        demand = self._scenario(cpus, purging)
        return ownership_effects(run(demand, policy, rules=self._base.rules, progress=progress))

    def _effects_of_mainline(self, cpus: int, purging: int) -> OwnershipEffects:
        recorded = self._base.policy
        return self._effects(recorded, cpus, purging, lambda _: None, threading.Event())

    def _is_recorded(self, cpus: int, purging: int) -> bool:
        return purging == 0 and cpus == self._base.machine.nr_cpus

    def _load_words(self, cpus: int, purging: int) -> str:
        if purging:
            return f"purgers on {count_of(cpus, 'CPU')}"
        return f"{self._recording.name} on {count_of(cpus, 'CPU')}"

    def _made_scenario(self, cpus: int, purging: int) -> Demand:
        if purging == 0:
            return scaled_up(self._recording, cpus, rules=self._base.rules)
        return scenario(
            "purgers",
            gib=max(cpus, 4),
            nr_cpus=cpus,
            purging_cpus=min(purging, cpus - 1),
            pages=PURGED_PAGES,
            rounds=PURGED_ROUNDS,
            rules=self._base.rules,
        )


def pcp_buddy(recording: Recording | str) -> PcpBuddy:
    """What pageblock ownership does to zone->lock, pcp->lock and fragmentation."""
    return PcpBuddy(recording)


_DEFRAG_MODE_FIELDS = (
    "defrag_mode",
    "defrag_kswapd_assist",
    "defrag_watermarks",
    "compact_gap",
    "thp_defrag",
)
_DEFRAG_MODE_LABELS = {
    "defrag_mode": "ban on fallbacks (defrag_mode)",
    "defrag_kswapd_assist": "kswapd and kcompactd assist",
    "defrag_watermarks": "watermarks in whole blocks",
    "thp_defrag": "faults may (thp_defrag)",
}
PARTS = _DEFRAG_MODE_FIELDS[:3]
"""The series' steps; each run takes seconds, so that a page without a kernel offers no others."""
DEMAND_FIELDS = ("thp_defrag",)
"""What both sides have in common."""
HOST = BuildHost(scale=128)
GIB_LEAST, GIB_MOST = 8, 32
BURST_LEAST, BURST_MOST, BURST_STEP = 256, 2048, 256
ONE_SEED = "One seed, hence no interval and no sign judged. Right here:"


class DefragMode(ipywidgets.VBox):
    """An explorer of defrag_mode with sliders for memory and for the size of bursts."""

    def __init__(self, host: BuildHost) -> None:
        self._host = host
        self._posted = posted_figures("defrag_mode")
        self.gib = number_slider("memory (GiB)", int(host.gib), GIB_LEAST, GIB_MOST, GIB_LEAST)
        self.burst = number_slider(
            "huge pages of a burst", host.burst_huge_pages, BURST_LEAST, BURST_MOST, BURST_STEP
        )
        self._run = lru_cache(maxsize=16)(self._made_run)
        controls = PolicyControls(
            _DEFRAG_MODE_FIELDS, labels=_DEFRAG_MODE_LABELS, start=DEFRAG_MODE.given()
        )
        self.explorer = Explorer(
            "kernel build with bursts: vanilla beside the controls' policy",
            controls,
            self._compute,
        )
        for slider in (self.gib, self.burst):
            slider.observe(lambda _: self.explorer.redraw(), "value")
        super().__init__([self.gib, self.burst, self.explorer])

    def _compute(self, policy: Policy, progress: Progress, cancelled: threading.Event) -> View:
        host = replace(self._host, gib=self.gib.value, burst_huge_pages=self.burst.value)
        given = policy.given()
        vanilla = Policy.from_settings({name: given.get(name) for name in DEMAND_FIELDS})
        base = self._run(host, vanilla)
        progress(0.5)
        runs = _both(base, base if cancelled.is_set() else self._run(host, policy))
        return View(
            figure=huge_page_trend.drawing(served_shares(runs, self._posted), patch="policy above"),
            text=defrag_table(judged_rows(runs, self._posted), ONE_SEED),
        )

    def _made_run(self, host: BuildHost, policy: Policy) -> pd.DataFrame:
        return run_build_host(host, policy, rules=KernelRules.preset(RULES))


def _both(base: pd.DataFrame, patch: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    sides = [table.assign(side=side, seed=0) for side, table in (("base", base), ("patch", patch))]
    return pd.concat(sides, ignore_index=True)


def defrag_mode(host: BuildHost = HOST) -> DefragMode:
    """What the parts of defrag_mode do to huge pages, compaction and reclaim of a made-up host."""
    return DefragMode(host)
