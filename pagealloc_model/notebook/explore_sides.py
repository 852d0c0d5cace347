"""Replays of both policies for one part of a recording, kept while they may be asked for again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import pandas as pd

import pagealloc_model as pm
from pagealloc_model.base.arrays import bin_width_ns
from pagealloc_model.measured.costs import recorded_costs
from pagealloc_model.measured.measured import DEFAULT_BIN_NS, Measured
from pagealloc_model.predicted import Checkpoints
from pagealloc_model.predicted.lock_times import LockModel, lock_times
from pagealloc_model.predicted.replay import ReclaimChoice, choose_reclaim, literal_part
from pagealloc_model.predicted.tables import pageblock_map
from pagealloc_model.show import figures

if TYPE_CHECKING:
    from pagealloc_model.notebook.explore_state import Question, Window
    from pagealloc_model.policy.policy import Policy
    from pagealloc_model.predicted.replay import Replay
    from pagealloc_model.recording.recording import Recording

Made = TypeVar("Made")

BASE, CANDIDATE = "base", "candidate"
KEPT = 3
"""Base replays to keep: changing the tab or the candidate needs no new one."""

INSTANT_S = 1e-6
LOCK_BINS = 20
"""Bins of the lock's traffic in a recording too short for as many of a second."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sides:
    """What one state of the explorer is drawn from.

    Attributes:
        base: replay of the policy compared with.
        candidate: replay of the controls' policy.
        measured: what the recording itself shows.
        reclaim: mode of both replays, and why it was taken.
        start_ns: the recording's first event.
        window: the part on show, in seconds.
        acquisitions: of zone->lock in a replay, with times by costs fitted to the recording.
        blocks: the pageblocks when a replay ends.
        before: the pageblocks when the part begins.
        made: what was drawn of the base alone, by what it rests on beside.
    """

    base: Replay
    candidate: Replay
    measured: Measured
    reclaim: ReclaimChoice
    start_ns: int
    window: Window
    acquisitions: Callable[[Replay], pd.DataFrame]
    blocks: Callable[[Replay], pd.DataFrame]
    before: Callable[[], pd.DataFrame]
    made: dict[Hashable, Any]

    def kept(self, what: Hashable, make: Callable[[], Made]) -> Made:
        """Return what was made before of the same base and part, or make it."""
        if what not in self.made:
            self.made[what] = make()
        return self.made[what]  # type: ignore[no-any-return]

    def predicted(self, table: str) -> dict[str, pd.DataFrame]:
        """A table of both replays by label, on the recording's time axis."""
        both = {BASE: self.base, CANDIDATE: self.candidate}
        return {label: self._timed(getattr(each, table)) for label, each in both.items()}

    def recorded(self, table: str) -> pd.DataFrame:
        """A table of what was measured, inside the part on show."""
        return self.kept(("recorded", table), lambda: self._inside(getattr(self.measured, table)))

    def _inside(self, table: pd.DataFrame) -> pd.DataFrame:
        found = self._timed(table)
        if "time_s" not in found:
            return found
        inside = found[found["time_s"].between(*self.window)]
        inside.attrs.update(found.attrs)
        return inside

    def _timed(self, table: pd.DataFrame) -> pd.DataFrame:
        if "time_ns" not in table:
            return table
        timed = figures.since_start(table, self.start_ns)
        timed.attrs.update(table.attrs)
        return timed


class SidesOf:
    """Replays a recording for questions, one at a time.

    Args:
        recording: the recording.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        first, last = recording.trace.demand_span_ns
        self.start_ns = first
        self.seconds = (last - first) / 1e9
        self._checkpoints = Checkpoints()
        self._replays: dict[tuple[Policy, Window | None, str], Replay] = {}
        self._acquisitions: WeakKeyDictionary[Replay, pd.DataFrame] = WeakKeyDictionary()
        self._blocks: WeakKeyDictionary[Replay, pd.DataFrame] = WeakKeyDictionary()
        self._made: WeakKeyDictionary[Replay, dict[Hashable, Any]] = WeakKeyDictionary()

    @cached_property
    def measured(self) -> Measured:
        """What the recording itself shows; in narrower bins of the lock where it is short."""
        first, last = self.recording.trace.demand_span_ns
        width = bin_width_ns(last - first)
        rough = (last - first) // LOCK_BINS // width * width
        return self.recording.measure(bin_ns=min(DEFAULT_BIN_NS, max(rough, width)))

    @cached_property
    def lock_model(self) -> LockModel:
        """Costs fitted to the recording, without what tracing adds."""
        return LockModel(costs=recorded_costs(self.recording, with_intervals=False).untraced())

    def acquisitions(self, replay: Replay) -> pd.DataFrame:
        """Acquisitions of zone->lock in a replay with their times; computed once for each."""
        if replay not in self._acquisitions:
            self._acquisitions[replay] = lock_times(replay, self.lock_model).acquisitions
        return self._acquisitions[replay]

    def blocks(self, replay: Replay) -> pd.DataFrame:
        """The pageblocks when a replay ends; computed once for each."""
        if replay not in self._blocks:
            self._blocks[replay] = pageblock_map(replay.final)
        return self._blocks[replay]

    def answer(
        self, question: Question, progress: Callable[[float], None], cancelled: threading.Event
    ) -> Sides:
        """Both replays of a question; literal ones, of as much of the policies as those have.

        Raises:
            PageallocError: the recording cannot be replayed so.
            Cancelled: the event was set.
        """
        window = question.window
        base_policy, policy = question.base, question.candidate
        reclaim = choose_reclaim(self.recording, base_policy, policy, asked=question.reclaim)
        if reclaim.mode == "literal":
            base_policy, policy = literal_part(base_policy), literal_part(policy)

        def replay(policy: Policy, window: Window | None) -> Replay:
            return pm.replay(
                self.recording,
                policy,
                assumptions=pm.Assumptions(reclaim=reclaim.mode),
                window=window,
                checkpoints=self._checkpoints,
                progress=progress,
                cancel=cancelled.is_set,
            )

        def kept(window: Window | None) -> Replay:
            key = (base_policy, window, reclaim.mode)
            if key not in self._replays:
                made = replay(base_policy, window)
                while len(self._replays) >= KEPT:
                    del self._replays[next(iter(self._replays))]
                self._replays[key] = made
            return self._replays[key]

        def before() -> pd.DataFrame:
            begin = window[0] if window else 0.0
            return self.blocks(kept((0.0, max(begin, INSTANT_S))))

        base = kept(window)
        return Sides(
            base=base,
            candidate=base if policy == base_policy else replay(policy, window),
            measured=self.measured,
            reclaim=reclaim,
            start_ns=self.start_ns,
            window=window or (-self.seconds, 2 * self.seconds),
            acquisitions=self.acquisitions,
            blocks=self.blocks,
            before=before,
            made=self._made.setdefault(base, {}),
        )
