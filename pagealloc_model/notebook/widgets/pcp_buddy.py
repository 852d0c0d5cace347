"""Pageblock ownership beside mainline: traffic, and the fragmentation it is paid with (S12)."""

from __future__ import annotations

import threading
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING

import ipywidgets

import pagealloc_model as pm
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.notebook.controls import PolicyControls, number_slider
from pagealloc_model.notebook.view import Explorer, Progress, View
from pagealloc_model.notebooks.studies.ownership_effects import (
    OwnershipEffects,
    ownership_effects,
    ownership_table,
)
from pagealloc_model.policy.ownership_options import OwnershipOptions
from pagealloc_model.show import figures
from pagealloc_model.studies.synthetic.demand import Demand
from pagealloc_model.studies.synthetic.run import run
from pagealloc_model.studies.synthetic.scale_up import scaled_up
from pagealloc_model.studies.synthetic.scenarios import scenario

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

FIELDS = (
    "pageblock_ownership",
    *(f"ownership.{each.name}" for each in fields(OwnershipOptions)),
)
MAINLINE, THIS_POLICY = "mainline", "policy above"
CPUS_MAX = 32
PURGED_PAGES, PURGED_ROUNDS = 1024, 4
"""What an allocator touches before it is purged, and how often, in the made-up load."""


class PcpBuddy(ipywidgets.VBox):
    """An explorer of ownership with sliders for CPUs and for how many of them purge.

    Attributes:
        cpus: at the recorded number the recording itself is replayed, beyond it its streams are
            repeated.
        purging: CPUs that free what the others allocate, in a load made up for that; 0 for the
            recording's own demand.
        explorer: policy controls, figure and table.
    """

    def __init__(self, recording: Recording | str) -> None:
        recording = pm.open(recording) if isinstance(recording, str) else recording
        self._recording = recording
        self._base = pm.replay(recording)
        recorded = self._base.machine.nr_cpus
        most = max(CPUS_MAX, recorded)
        self.cpus = number_slider(
            "CPUs (streams repeated)", recorded, recorded, most, step=recorded
        )
        self.purging = number_slider("CPUs that only free, the others allocate", 0, 0, most // 2)
        self._scenario = lru_cache(maxsize=4)(self._made_scenario)
        self._mainline = lru_cache(maxsize=4)(self._effects_of_mainline)
        controls = PolicyControls(FIELDS, start={"pageblock_ownership": "pcp_buddy"})
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
            for label, effects in ((MAINLINE, base), (THIS_POLICY, patch))
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
        scenario = self._scenario(cpus, purging)
        return ownership_effects(run(scenario, policy, rules=self._base.rules, progress=progress))

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
    """What pageblock ownership does to zone->lock, pcp->lock and fragmentation.

    Args:
        recording: a recording, or anything `pm.open` takes.

    Raises:
        PageallocError: the recording cannot be opened or replayed, or its kernel cannot be given
            ownership.
    """
    return PcpBuddy(recording)
