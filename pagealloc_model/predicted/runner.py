"""The runner: a carrier takes events and is sampled, and what its log says is handed on."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.base.arrays import Column, working_directory
from pagealloc_model.predicted import tables
from pagealloc_model.predicted.carrier import Carrier
from pagealloc_model.predicted.idle_time import IdleTime
from pagealloc_model.predicted.page_balance import IS_STRICT, PageBalance
from pagealloc_model.predicted.tables import Samples, TransactionCounts

if TYPE_CHECKING:
    from pathlib import Path

    from pagealloc_model.allocator.state import State
    from pagealloc_model.predicted.checkpoints import Resumption
    from pagealloc_model.predicted.demand.compaction import Exchange
    from pagealloc_model.predicted.demand.demand import Demand
    from pagealloc_model.predicted.recorded_kswapd import RecordedKswapd

_AS_BYTES = np.dtype((np.void, at.LOG.itemsize))
"""Rows of the log: numpy copies bytes at once, records field by field."""
STEP_EVENTS = 1 << 18
"""Events between two looks at whether to go on."""


class Cancelled(Exception):
    """A replay was told to stop through its `cancel` argument."""


class Runner:
    """Takes a carrier through events, of a recording or made up.

    Attributes:
        carrier: who takes the events.
        state: the carrier's.
        places: int32 by object, where the model put it; changed as events are taken.
        done: events that were taken.
    """

    def __init__(
        self,
        carrier: Carrier,
        places: np.ndarray,
        is_counted: Callable[[np.ndarray], np.ndarray],
        *,
        events: int,
        done: int = 0,
        directory: Path | None = None,
        sizes: TransactionCounts | None = None,
        keep_log: bool = True,
        progress: Callable[[float], None] | None = None,
        cancel: Callable[[], bool] | None = None,
    ) -> None:
        """Begin where the carrier is.

        Args:
            carrier: changed from now on.
            places: likewise.
            is_counted: which rows of the log count, by their times, int64.
            events: how many there are.
            done: those that were taken by others.
            directory: of the log, on a disk; None: in memory.
            sizes: counts these rows as well.
            keep_log: keep them.
            progress: called with the share done, 0 to 1.
            cancel: asked now and then; True ends the run with `Cancelled`.
        """
        self.carrier, self.state, self.places = carrier, carrier.state, places
        self.done, self._events = done, events
        self._is_counted, self._sizes, self._keep_log = is_counted, sizes, keep_log
        self._progress, self._cancel = progress, cancel
        self._blocks = BlockCounter(carrier.state)
        self._sampled: dict[int, tuple[np.ndarray, ...]] = {}
        self._log = Column(_AS_BYTES, directory, min(events, STEP_EVENTS))

    def take(self, events: np.ndarray, low: int, high: int, until_ns: int = -1) -> int:
        """Take `events[low:high]`, then what is due by `until_ns` if not -1; returns log rows."""
        st, count = self.state.st, 0
        while low < high or (until_ns >= 0 and self.state.next_due_ns <= until_ns):
            begin, low = low, self.carrier.advance(events, self.places, low, high, until_ns)
            self.done += low - begin
            self._report()
            rows = self.state.log[: st[at.LOG_ROWS]]
            self._keep(rows)
            count += len(rows)
            st[at.LOG_ROWS] = 0
        return count

    def _keep(self, rows: np.ndarray) -> None:
        """Count and copy rows of the log, which are overwritten afterwards."""
        counted = self._is_counted(rows["time_ns"])
        rows = rows.view(_AS_BYTES)
        rows = rows if counted.all() else rows[counted]
        if self._sizes is not None:
            self._sizes.add(rows.view(at.LOG))
        if self._keep_log:
            self._log.append(rows)

    @property
    def log(self) -> np.ndarray:
        """The rows that were kept, `layout.LOG` records."""
        return self._log.values.view(at.LOG)

    def _report(self) -> None:
        """Say how much is done; raises `Cancelled` if that is enough."""
        if self._cancel is not None and self._cancel():
            raise Cancelled
        if self._progress is not None:
            self._progress(self.done / self._events)

    def sample(self, time_ns: int) -> None:
        """Copy the counters, under a time; a second sample under it takes the first one's place."""
        self.carrier.settle()
        self._sampled[time_ns] = sample_of(self.state, self._blocks)

    @property
    def samples(self) -> Samples:
        """The copies by time."""
        names = [each.name for each in fields(Samples)][1:]
        columns = map(np.stack, zip(*self._sampled.values(), strict=True))
        return Samples(
            time_ns=np.array(list(self._sampled), np.int64),
            **dict(zip(names, columns, strict=True)),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Course:
    """The way of a state through a recording's demand.

    Attributes:
        instants: int64, ascending: when samples are wanted.
        span: first and last time of samples, and of holds that are kept.
        resumption: where to go on from, and what may be kept for others.
        kswapd: the recorded one, set wherever it changes.
        exchange: moves places where recorded compaction moves a cluster.
    """

    instants: np.ndarray
    span: tuple[int, int]
    resumption: Resumption | None = None
    kswapd: RecordedKswapd | None = None
    exchange: Exchange | None = None

    def run(
        self,
        carrier: Carrier,
        demand: Demand,
        places: np.ndarray,
        progress: Callable[[float], None] | None = None,
        cancel: Callable[[], bool] | None = None,
    ) -> tuple[Runner, int]:
        """Advance to every instant inside the span and copy the counters there.

        The balance of pages is held at each instant, or of an elastic replay, where all pages are
        looked at for it, at the end.

        Returns:
            Who took the events, with the copies and the log's rows inside the span; pages lost (see
            `PageBalance`).
        """
        state, events = carrier.state, demand.events
        (first_ns, last_ns), resumption, kswapd = self.span, self.resumption, self.kswapd
        balance = PageBalance(carrier, places)
        position = 0 if resumption is None else resumption.begin()
        runner = Runner(
            carrier,
            places,
            lambda times: (times >= first_ns) & (times < last_ns),
            events=len(events),
            done=position,
            directory=working_directory(len(events)),
            progress=progress,
            cancel=cancel,
        )
        instants = self.instants
        if resumption is not None:
            instants = np.union1d(instants, [resumption.stop_ns])
        instants = instants[instants <= last_ns]
        wanted = frozenset(instants.tolist())
        idle = IdleTime(state)
        if len(instants):
            gaps = idle.ends_of_gaps(events)
            instants = np.union1d(instants, gaps[gaps < instants[-1]])
        if kswapd is not None:
            # a resumed course comes by all changes again, and so to the one that holds
            kswapd.set_at(state, int(events["time_ns"][0]))
            changes = kswapd.changes_ns
            instants = np.union1d(instants, changes[changes < instants[-1]])
        # numpy's search would copy the times, which lie among other fields
        stops = [bisect_left(events["time_ns"], instant) for instant in instants.tolist()]
        for instant, stop in zip(instants.tolist(), stops, strict=True):
            while position < stop or (position > 0 and state.next_due_ns <= instant):
                goal = min(stop, position + STEP_EVENTS)
                if self.exchange is not None:
                    self.exchange.make(position)
                    goal = min(goal, self.exchange.due)
                until = idle.until(instant) if goal == stop else -1
                rows = runner.take(events, position, goal, until)
                position = goal
                if position == stop:
                    idle.reached(until, instant, is_quiet=not rows)
            if kswapd is not None:
                kswapd.set_at(state, instant)
            if instant not in wanted:
                continue
            if resumption is not None:
                resumption.note(instant, position)
            if instant >= first_ns:
                runner.sample(instant)
                if IS_STRICT or not state.is_elastic:
                    balance.check(events, position)
        balance.check(events, position)
        return runner, balance.lost


TYPES = 256
"""Values of a block's first byte, its migratetype; the second is its zone's number plus one."""


class BlockCounter:
    """What `State.block_counts` counts, from what changed since it was last asked."""

    def __init__(self, state: State) -> None:
        """Count all blocks of a state once; it is read whenever counts are asked for."""
        self._blocks = state.blocks.view("<u2")
        self._seen = self._blocks.copy()
        self._counts = np.bincount(self._seen, minlength=(len(state.machine.zones) + 1) * TYPES)

    def counts(self) -> np.ndarray:
        """Pageblocks now, int64, shape (zones, migratetypes)."""
        changed = np.flatnonzero(self._blocks != self._seen)
        if len(changed):
            np.subtract.at(self._counts, self._seen[changed], 1)
            self._seen[changed] = self._blocks[changed]
            np.add.at(self._counts, self._seen[changed], 1)
        return self._counts.reshape(-1, TYPES)[1:, : at.MIGRATETYPES].astype(np.int64)


def sample_of(state: State, block_counter: BlockCounter) -> tuple[np.ndarray, ...]:
    """Return what `Samples` has of one instant, in the order of its attributes."""
    ownership = np.zeros((len(state.machine.zones), 0), np.int64)
    if state.st[at.OWNERSHIP]:
        ownership = state.owned_sets().sum(axis=1)
    return (
        state.free_buddies(),
        block_counter.counts(),
        state.pcp_words(at.PCP_COUNT, 2),
        state.zone_words(at.ZONE_BOOST),
        state.pcp_words(at.PCP_LOCKS, len(tables.LOCK_COLUMNS)).sum(axis=1),
        ownership,
        state.pressure_words(0, pr.SCALARS),
    )
