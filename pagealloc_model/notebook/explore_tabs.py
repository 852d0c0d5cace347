"""A state of the explorer, its replays of both policies, and its tabs, which draw them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

import pagealloc_model as pm
from pagealloc_model.base.arrays import bin_width_ns
from pagealloc_model.base.errors import PageallocError, RecordingError, UsageError
from pagealloc_model.base.files import given, text_of
from pagealloc_model.measured.costs import recorded_costs
from pagealloc_model.measured.measured import DEFAULT_BIN_NS, Measured
from pagealloc_model.policy.assumptions import AUTO, CHOICES
from pagealloc_model.policy.policy import Policy
from pagealloc_model.predicted import Checkpoints
from pagealloc_model.predicted.lock_times import LockModel, lock_times
from pagealloc_model.predicted.reclaim_mode import ReclaimChoice, choose_reclaim, literal_part
from pagealloc_model.predicted.tables import pageblock_map, recorded_pageblock_map
from pagealloc_model.show import figures
from pagealloc_model.show.figures.faceted import Drawing

if TYPE_CHECKING:
    from pagealloc_model.predicted.replay import Replay
    from pagealloc_model.recording.recording import Recording

Window = tuple[float, float]
"""From and to, in seconds after the first event."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One state of the explorer."""

    base: Policy
    candidate: Policy
    window: Window | None
    tab: str
    reclaim: str = AUTO

    def as_json(self) -> str:
        """The state as text that `from_json` reads, for a file or a link."""
        policies = {"base": self.base.given(), "candidate": self.candidate.given()}
        view = {"window": self.window, "tab": self.tab, "reclaim": self.reclaim}
        return json.dumps(policies | view, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Question:
        """The state that `as_json` wrote.

        Raises:
            UsageError: it is no such text, or of other fields, tabs or modes than there are.
        """
        try:
            state = json.loads(text)
            window = state["window"]
            if window is not None and not 0 <= window[0] < window[1] < float("inf"):
                raise ValueError(f"window {window!r} does not end after it begins")
            question = cls(
                base=Policy.from_settings(state["base"]),
                candidate=Policy.from_settings(state["candidate"]),
                window=None if window is None else (float(window[0]), float(window[1])),
                tab=str(state["tab"]),
                reclaim=str(state.get("reclaim", AUTO)),
            )
        except RecursionError:
            raise UsageError("this is no state of an explorer (nested too deep)") from None
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise UsageError(f"this is no state of an explorer ({error}); save one anew") from None
        check_names(question.tab, question.reclaim)
        return question


def check_names(tab: str, reclaim: str) -> None:
    """Refuse a tab or a mode of reclaim that the explorer does not have."""
    names = [known.name for known in TABS]
    if tab not in names:
        raise UsageError(f"the explorer has no tab {tab!r}; it has {', '.join(names)}")
    if reclaim not in CHOICES["reclaim"]:
        raise UsageError(f"reclaim {reclaim!r} is not known; use {', '.join(CHOICES['reclaim'])}")


def read_question(path: Path) -> Question:
    """The state in a file that the explorer saved.

    Raises:
        UsageError: the file cannot be read, or holds no state.
    """
    try:
        text = text_of(given(path), "utf-8", todo="give a saved state")
    except RecordingError as error:
        raise UsageError(str(error)) from None
    try:
        return Question.from_json(text)
    except PageallocError as error:
        raise UsageError(f"{path}: {error}") from None


def as_python(recording: Recording, question: Question, mode: str) -> str:
    """Code that replays both policies, compares them, and opens an explorer in this state.

    Settings that a literal replay refuses are left to the explorer, which says so.
    """
    from pagealloc_model.recording.recording import open_recording, recording_names

    name = str(recording.path)
    is_named = recording.name in recording_names()  # which another recording may be, too
    if is_named and open_recording(recording.name).path.resolve() == recording.path.resolve():
        name = recording.name
    window = "" if question.window is None else f", window={question.window!r}"
    reclaim = "" if question.reclaim == AUTO else f", reclaim={question.reclaim!r}"
    is_literal = mode == "literal"
    assumed = f", assumptions=pm.Assumptions(reclaim={mode!r})"
    sides = {"base": question.base, "candidate": question.candidate}
    policies = ", ".join(f"{side}=pm.{policy!r}" for side, policy in sides.items())
    replays = (
        f"{side} = pm.replay(rec, pm.{literal_part(policy) if is_literal else policy!r}"
        f"{window}{assumed})"
        for side, policy in sides.items()
    )
    return "\n".join(
        (
            f"import pagealloc_model as pm\n\nrec = pm.open({name!r})",
            *replays,
            "print(pm.compare(base, candidate).validated().to_text(width=72))",
            f"pm.explore(rec, {policies}{window}, tab={question.tab!r}{reclaim})",
        )
    )


BASE, CANDIDATE = "base", "candidate"
RECORDED = "recorded at the end"


class SidesOf:
    """Replays a recording for questions, one at a time."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.start_ns, last = recording.trace.demand_span_ns
        self.seconds = (last - self.start_ns) / 1e9
        self._checkpoints = Checkpoints()
        self._base_replays: dict[tuple[Policy, Window | None, str], Replay] = {}

    @cached_property
    def measured(self) -> Measured:
        """Measurements of the recording; in narrower bins of the lock where it is short."""
        first, last = self.recording.trace.demand_span_ns
        width = bin_width_ns(last - first)
        rough = (last - first) // 20 // width * width
        return self.recording.measure(bin_ns=min(DEFAULT_BIN_NS, max(rough, width)))

    @cached_property
    def lock_model(self) -> LockModel:
        """Costs fitted to the recording, without what tracing adds."""
        return LockModel(costs=recorded_costs(self.recording, with_intervals=False).untraced())

    def blocks(self, replay: Replay) -> pd.DataFrame:
        """The pageblocks when a replay ends."""
        return replay.remembered("blocks", lambda: pageblock_map(replay.final))

    def answer(
        self, question: Question, progress: Callable[[float], None], cancelled: threading.Event
    ) -> Sides:
        """Both replays of a question; literal ones, of as much of the policies as those have."""
        window = question.window
        base_policy, policy = question.base, question.candidate
        asked = pm.Assumptions(reclaim=question.reclaim)
        reclaim = choose_reclaim(self.recording, base_policy, policy, asked=asked)
        if reclaim.mode == "literal":
            base_policy, policy = literal_part(base_policy), literal_part(policy)

        def replay(policy: Policy, window: Window | None) -> Replay:
            return pm.replay(
                self.recording,
                policy,
                assumptions=reclaim.assumptions,
                window=window,
                checkpoints=self._checkpoints,
                progress=progress,
                cancel=cancelled.is_set,
            )

        def base_replay(window: Window | None) -> Replay:
            key, replays = (base_policy, window, reclaim.mode), self._base_replays
            if key not in replays:
                newest = replay(base_policy, window)
                while len(replays) >= 3:  # changing the tab or the candidate needs no new one
                    del replays[next(iter(replays))]
                replays[key] = newest
            return replays[key]

        base = base_replay(window)
        before = (0.0, max(window[0] if window else 0.0, 1e-6))
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

    def both(self, table: str) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
        """A table as measured inside the part on show, and of both replays by label."""

        def timed(source: Measured | Replay) -> pd.DataFrame:
            rows = getattr(source, table)
            is_timed = "time_ns" in rows
            return figures.since_start(rows, self.recorded_with.start_ns) if is_timed else rows

        def measured() -> pd.DataFrame:
            rows = timed(self.recorded_with.measured)
            return rows[rows["time_s"].between(*self.window)] if "time_s" in rows else rows

        replays = {BASE: timed(self.base), CANDIDATE: timed(self.candidate)}
        return self.base.remembered(("recorded", table), measured), replays

    def acquisitions(self, replay: Replay) -> pd.DataFrame:
        """Acquisitions of zone->lock in a replay, with times by costs fitted to the recording."""
        of = self.recorded_with
        return replay.remembered(
            "acquisitions", lambda: lock_times(replay, of.lock_model).acquisitions
        )


def _fragmentation(sides: Sides) -> tuple[Drawing, ...]:
    pages = sides.both("free_pages")
    by_order = figures.free_pages_by_order.drawing(*pages)
    over_time = [by_order, figures.free_pages_by_migratetype.drawing(*pages)]
    return _linked(over_time, figures.fallbacks.drawing(*sides.both("fallbacks")))


def _pageblocks(sides: Sides) -> tuple[Drawing, ...]:
    blocks = sides.recorded_with.blocks
    maps = {"before": sides.before(), BASE: blocks(sides.base), CANDIDATE: blocks(sides.candidate)}
    types = frozenset(maps[CANDIDATE]["migratetype"].unique())
    recording = sides.recorded_with.recording
    if len(recording.states) > 1:
        kernel, machine = recording.states[-1].state, sides.base.machine
        maps[RECORDED] = recorded_pageblock_map(maps[BASE], kernel, machine)

    def draw(*labels: str, difference: tuple[str, str] = (BASE, CANDIDATE)) -> Drawing:
        return figures.pageblock_map.drawing(maps, difference, labels)

    first = partial(draw, "before", BASE)
    if RECORDED in maps:
        first = partial(draw, "before", RECORDED, BASE, difference=(RECORDED, BASE))
    return sides.base.remembered(("pageblocks", types), first), draw(CANDIDATE)


def _pcp(sides: Sides) -> tuple[Drawing, ...]:
    counts = figures.pcp_counts.drawing(*sides.both("pcp"))
    return _linked([counts], figures.transaction_sizes.drawing(*sides.both("transactions")))


def _locks(sides: Sides) -> tuple[Drawing, ...]:
    rates = figures.transaction_rates.drawing(*sides.both("lock"))
    replays = {BASE: sides.base, CANDIDATE: sides.candidate}
    times = {label: sides.acquisitions(replay) for label, replay in replays.items()}
    return _linked([rates], figures.lock_times.drawing(times))


def _outcomes(sides: Sides) -> tuple[Drawing, ...]:
    orders = sorted(sides.base.outcomes["order"].unique())[-3:]
    tables = sides.both("outcomes")
    drawn = [figures.outcomes.drawing(*tables, int(order)) for order in orders]
    return _linked([], figures.folios.drawing(*sides.both("folios")), *drawn)


def _linked(over_time: Sequence[Drawing], *others: Drawing) -> tuple[Drawing, ...]:
    """Figures below each other; those over time zoom together."""
    whole = figures.stacked.drawing([*over_time, *others])
    linked = sum(name.startswith("xaxis") for drawing in over_time for name in drawing.layout)
    for axis in range(2, linked + 1):
        whole.layout[f"xaxis{axis}"]["matches"] = "x"
    return (whole,)


@dataclass(frozen=True)
class Tab:
    """One view: its name in calls, its button, and drawings to stand below each other.

    What never moves under a candidate stands apart from what does, so that it is not drawn again.
    """

    name: str
    label: str
    tooltip: str
    draw: Callable[[Sides], tuple[Drawing, ...]]


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
