"""zone->lock under other batches: mainline beside what the sliders say, on as many CPUs (S4.7)."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import TYPE_CHECKING

import ipywidgets

import pagealloc_model as pm
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.measured.costs import recorded_costs
from pagealloc_model.notebook.controls import PolicyControls, number_slider
from pagealloc_model.notebook.view import Explorer, Progress, View
from pagealloc_model.predicted.lock_times import LockModel, LockTimes, lock_times
from pagealloc_model.show import figures
from pagealloc_model.studies.synthetic.demand import Demand
from pagealloc_model.studies.synthetic.run import run
from pagealloc_model.studies.synthetic.scale_up import scaled_up
from pagealloc_model.verdict.locks import lock_policy_table
from pagealloc_model.verdict.recorded_values import recorded_values

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

FIELDS = (
    "pcp_free_batched",
    "pcp_decay_batched",
    "pcp_drain_batched",
    "pcp_batch",
    "pcp_batch_scale_max",
)
LABELS = {
    "pcp_free_batched": "batch frees of a full list",
    "pcp_decay_batched": "batch the periodic decay",
    "pcp_drain_batched": "batch full drains",
}
AS_RECORDED, THIS_POLICY = "policy as recorded", "policy above"
CPUS_MAX = 64


class PcpBatching(ipywidgets.VBox):
    """An explorer of lock times with a slider for the number of CPUs.

    Attributes:
        cpus: the slider; at the recorded number the recording itself is replayed, beyond it its
            streams are repeated.
        explorer: policy controls, figure and table.
    """

    def __init__(self, recording: Recording | str) -> None:
        recording = pm.open(recording) if isinstance(recording, str) else recording
        self._recording = recording
        self._base = pm.replay(recording)
        self._model = LockModel(costs=recorded_costs(recording).untraced())
        recorded = self._base.machine.nr_cpus
        most = max(CPUS_MAX, recorded)
        self.cpus = number_slider(
            "CPUs (streams repeated)", min(4 * recorded, most), recorded, most, recorded
        )
        self._scenario = lru_cache(maxsize=4)(self._scaled)
        self._as_recorded = lru_cache(maxsize=4)(self._base_times)
        controls = PolicyControls(
            FIELDS,
            labels=LABELS,
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
                {AS_RECORDED: base.acquisitions, THIS_POLICY: patch.acquisitions}
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

    Args:
        recording: a recording, or anything `pm.open` takes.

    Raises:
        PageallocError: the recording cannot be opened or replayed.
    """
    return PcpBatching(recording)
