"""The explorer's replays of both policies, and its tabs, which draw them beside measurements."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
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
from pagealloc_model.show.figures.faceted import Drawing

if TYPE_CHECKING:
    from pagealloc_model.notebook.explore_state import Question, Window
    from pagealloc_model.policy.policy import Policy
    from pagealloc_model.predicted.replay import Replay
    from pagealloc_model.recording.recording import Recording

BASE, CANDIDATE = "base", "candidate"
BASE_REPLAYS = 3
"""Kept: changing the tab or the candidate needs no new one."""
INSTANT_S = 1e-6
LOCK_BINS = 20
"""Bins of the lock's traffic in a recording too short for as many of a second."""
MOST_ORDERS = 3
"""Orders whose outcomes are drawn, the largest asked for."""


class SidesOf:
    """Replays a recording for questions, one at a time."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        first, last = recording.trace.demand_span_ns
        self.start_ns = first
        self.seconds = (last - first) / 1e9
        self._checkpoints = Checkpoints()
        self._base_replays: dict[tuple[Policy, Window | None, str], Replay] = {}
        self._results: WeakKeyDictionary[Replay, dict[Hashable, Any]] = WeakKeyDictionary()

    @cached_property
    def measured(self) -> Measured:
        """Measurements of the recording; in narrower bins of the lock where it is short."""
        first, last = self.recording.trace.demand_span_ns
        width = bin_width_ns(last - first)
        rough = (last - first) // LOCK_BINS // width * width
        return self.recording.measure(bin_ns=min(DEFAULT_BIN_NS, max(rough, width)))

    @cached_property
    def lock_model(self) -> LockModel:
        """Costs fitted to the recording, without what tracing adds."""
        return LockModel(costs=recorded_costs(self.recording, with_intervals=False).untraced())

    def once(self, replay: Replay, what: Hashable, make: Callable[[], Any]) -> Any:
        """A result of a replay, computed when it is first asked for."""
        results = self._results.setdefault(replay, {})
        if what not in results:
            results[what] = make()
        return results[what]

    def acquisitions(self, replay: Replay) -> pd.DataFrame:
        """Acquisitions of zone->lock in a replay, with times by costs fitted to the recording."""
        return self.once(
            replay, "acquisitions", lambda: lock_times(replay, self.lock_model).acquisitions
        )

    def blocks(self, replay: Replay) -> pd.DataFrame:
        """The pageblocks when a replay ends."""
        return self.once(replay, "blocks", lambda: pageblock_map(replay.final))

    def answer(
        self, question: Question, progress: Callable[[float], None], cancelled: threading.Event
    ) -> Sides:
        """Both replays of a question; literal ones, of as much of the policies as those have."""
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

        def base_replay(window: Window | None) -> Replay:
            key, replays = (base_policy, window, reclaim.mode), self._base_replays
            if key not in replays:
                newest = replay(base_policy, window)
                while len(replays) >= BASE_REPLAYS:
                    del replays[next(iter(replays))]
                replays[key] = newest
            return replays[key]

        base = base_replay(window)
        before = (0.0, max(window[0] if window else 0.0, INSTANT_S))
        return Sides(
            base=base,
            candidate=base if policy == base_policy else replay(policy, window),
            reclaim=reclaim,
            window=window or (-self.seconds, 2 * self.seconds),
            recorded_with=self,
            before=lambda: self.blocks(base_replay(before)),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Sides:
    """One state of the explorer, to be drawn: both replays, and the part on show in seconds."""

    base: Replay
    candidate: Replay
    reclaim: ReclaimChoice
    window: Window
    recorded_with: SidesOf
    before: Callable[[], pd.DataFrame]

    def once(self, what: Hashable, make: Callable[[], Any]) -> Any:
        """A result of the base alone."""
        return self.recorded_with.once(self.base, what, make)

    def both(self, table: str) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
        """A table as measured inside the part on show, and of both replays by label."""
        replays = {BASE: self.base, CANDIDATE: self.candidate}
        timed = {label: self._timed(getattr(each, table)) for label, each in replays.items()}
        return self.once(("recorded", table), lambda: self._measured(table)), timed

    def _measured(self, table: str) -> pd.DataFrame:
        rows = self._timed(getattr(self.recorded_with.measured, table))
        if "time_s" not in rows:
            return rows
        inside = rows[rows["time_s"].between(*self.window)]
        inside.attrs.update(rows.attrs)
        return inside

    def _timed(self, table: pd.DataFrame) -> pd.DataFrame:
        if "time_ns" not in table:
            return table
        timed = figures.since_start(table, self.recorded_with.start_ns)
        timed.attrs.update(table.attrs)
        return timed


@dataclass(frozen=True)
class Tab:
    """One view: its name in calls, its button, and drawings to stand below each other.

    What never moves under a candidate stands apart from what does, so that it is not drawn again.
    """

    name: str
    label: str
    tooltip: str
    draw: Callable[[Sides], tuple[Drawing, ...]]


def _fragmentation(sides: Sides) -> tuple[Drawing, ...]:
    pages = sides.both("free_pages")
    by_order = figures.free_pages_by_order.drawing(*pages)
    over_time = [by_order, figures.free_pages_by_migratetype.drawing(*pages)]
    return _linked(over_time, figures.fallbacks.drawing(*sides.both("fallbacks")))


def _pageblocks(sides: Sides) -> tuple[Drawing, ...]:
    blocks = sides.recorded_with.blocks
    maps = {"before": sides.before(), BASE: blocks(sides.base), CANDIDATE: blocks(sides.candidate)}
    types = frozenset(maps[CANDIDATE]["migratetype"].unique())

    def draw(*labels: str) -> Drawing:
        return figures.pageblock_map.drawing(maps, (BASE, CANDIDATE), labels)

    return sides.once(("pageblocks", types), lambda: draw("before", BASE)), draw(CANDIDATE)


def _pcp(sides: Sides) -> tuple[Drawing, ...]:
    counts = figures.pcp_counts.drawing(*sides.both("pcp"))
    return _linked([counts], figures.transaction_sizes.drawing(*sides.both("transactions")))


def _locks(sides: Sides) -> tuple[Drawing, ...]:
    rates = figures.transaction_rates.drawing(*sides.both("lock"))
    replays = {BASE: sides.base, CANDIDATE: sides.candidate}
    times = {label: sides.recorded_with.acquisitions(each) for label, each in replays.items()}
    return _linked([rates], figures.lock_times.drawing(times))


def _outcomes(sides: Sides) -> tuple[Drawing, ...]:
    orders = sorted(sides.base.outcomes["order"].unique())[-MOST_ORDERS:]
    tables = sides.both("outcomes")
    parts = [figures.outcomes.drawing(*tables, int(order)) for order in orders]
    return (figures.stacked.drawing(parts),)


def _linked(over_time: Sequence[Drawing], *others: Drawing) -> tuple[Drawing, ...]:
    """Figures below each other; those over time zoom together."""
    whole = figures.stacked.drawing([*over_time, *others])
    linked = sum(name.startswith("xaxis") for each in over_time for name in each.layout)
    for axis in range(2, linked + 1):
        whole.layout[f"xaxis{axis}"]["matches"] = "x"
    return (whole,)


_FRAGMENTATION = "free pages by order and migratetype, fallbacks"
_PAGEBLOCKS = "a map of every pageblock by type and occupancy: before, after, difference"
_PCP = "per-CPU lists: their lengths, sizes of refills and drains"
_OUTCOMES = "what requests of each order asked for and got"
TABS = (
    Tab("fragmentation", "Fragmentation", _FRAGMENTATION, _fragmentation),
    Tab("pageblocks", "Pageblocks", _PAGEBLOCKS, _pageblocks),
    Tab("pcp", "PCP", _PCP, _pcp),
    Tab("locks", "Locks", "zone->lock: acquisitions, holds and waits", _locks),
    Tab("outcomes", "Outcomes", _OUTCOMES, _outcomes),
)
