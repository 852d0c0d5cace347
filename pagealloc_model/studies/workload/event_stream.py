"""Demand that is made part by part, so that it need never be in memory as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from pagealloc_model.recording.machine import Machine
from pagealloc_model.studies.workload.scenario import Scenario


@dataclass(frozen=True, kw_only=True, eq=False)
class EventStream:
    """Demand on a machine whose memory is all free at first, made when it is asked for.

    Attributes:
        name: of the demand.
        machine: where it runs.
        parts: called for the parts from the first on: `layout.EVENT` records in time order, none
            before those of the part that precedes it.
        events: how many all parts have together.
        objects: how many numbers of objects they use; one is used again once it is freed.
        lines: what was assumed, one line each.
        seed: of its random choices.
        kswapd_recorded: kswapd's runs are events, not the model's to decide.
        direct_reclaim_recorded: direct reclaim is marked on the requests it runs for.
    """

    name: str
    machine: Machine
    parts: Callable[[], Iterator[np.ndarray]]
    events: int
    objects: int
    lines: tuple[str, ...] = ()
    seed: int = 0
    kswapd_recorded: bool = False
    direct_reclaim_recorded: bool = False

    def scenario(self) -> Scenario:
        """The same demand with all its events in memory."""
        return Scenario(
            name=self.name,
            machine=self.machine,
            events=np.concatenate(list(self.parts())),
            objects=self.objects,
            lines=self.lines,
            seed=self.seed,
            kswapd_recorded=self.kswapd_recorded,
            direct_reclaim_recorded=self.direct_reclaim_recorded,
        )
