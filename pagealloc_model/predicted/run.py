"""The run behind a replay: a state advances through demand and is sampled at instants.

States that replays came by are kept, so that a later one need not begin at the recording's start.

No page is lost silently (S10.4): what a replay took and did not free is in use, or counted as
missing. Where this balance breaks, the pages are a count of `divergence`; with PAGEALLOC_STRICT
set, as tests set it, the replay ends with an error, and with PAGEALLOC_CHECKED (see `base.jit`)
that names the first event which breaks it.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from math import prod
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.invariants import set_words
from pagealloc_model.allocator.state import State
from pagealloc_model.base.arrays import Column, working_directory
from pagealloc_model.base.errors import CorruptStateError
from pagealloc_model.base.jit import CHECKED
from pagealloc_model.measured.memory_stalls import SHRUNK
from pagealloc_model.predicted import tables
from pagealloc_model.predicted.carrier import Carrier, ModelCarrier
from pagealloc_model.predicted.demand.compaction import Exchange
from pagealloc_model.predicted.idle_time import IdleTime
from pagealloc_model.predicted.tables import Samples
from pagealloc_model.recording.trace.columns import Trace

if TYPE_CHECKING:
    from pagealloc_model.predicted.demand.demand import Demand

CHUNK = 4096
"""Bytes that are kept together if one of them changed."""
COMPARED_AT_ONCE = 1 << 26
ROOM_BYTES = 256 << 20


@dataclass(frozen=True, kw_only=True, eq=False)
class Changes:
    """Numbers of an array's chunks that changed, what they hold now, and what follows the last."""

    chunks: np.ndarray
    content: np.ndarray
    rest: np.ndarray

    def put_into(self, array: np.ndarray) -> None:
        """Turn an array as it was at the start into what it became."""
        whole, rest = _chunks(array)
        whole[self.chunks] = self.content
        rest[:] = self.rest


def changes(before: np.ndarray, after: np.ndarray) -> Changes:
    """Differences between two arrays of one type and shape."""
    (old, _), (new, rest) = _chunks(before), _chunks(after)
    step = COMPARED_AT_ONCE // CHUNK
    changed = [np.zeros(0, np.int64)]
    for first in range(0, len(new), step):
        parts = (each[first : first + step].view(np.uint64) for each in (old, new))
        changed.append(first + np.flatnonzero(np.not_equal(*parts).any(axis=1)))
    chunks = np.concatenate(changed)
    return Changes(chunks=chunks, content=new[chunks], rest=rest.copy())


def _chunks(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An array's bytes as whole chunks, shape (chunks, CHUNK), and what follows them; views."""
    flat = array.reshape(-1).view(np.uint8)
    end = len(flat) // CHUNK * CHUNK
    return flat[:end].reshape(-1, CHUNK), flat[end:]


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """The progress of a replay.

    Attributes:
        time_ns: every event before this time was replayed, and every tick up to it.
        position: the event to go on with.
        arrays: what changed since the start, of each array of the state and of the places.
    """

    time_ns: int
    position: int
    arrays: tuple[Changes, ...]

    @property
    def nbytes(self) -> int:
        """Memory that this takes."""
        changed = ((each.chunks, each.content, each.rest) for each in self.arrays)
        return sum(part.nbytes for columns in changed for part in columns)


class Checkpoints:
    """Checkpoints of any replays, those used last, in so many bytes; to be shared by replays."""

    def __init__(self, room: int = ROOM_BYTES) -> None:
        self._room = room
        self._lock = Lock()
        self._kept: OrderedDict[tuple[Hashable, int], Checkpoint] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """Memory that they take together."""
        return sum(each.nbytes for each in self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)

    def latest(self, key: Hashable, before_ns: int) -> Checkpoint | None:
        """The last one before a time of replays with a key, None if there is none."""
        with self._lock:
            times = [time for of, time in self._kept if of == key and time < before_ns]
            if not times:
                return None
            self._kept.move_to_end((key, max(times)))
            return self._kept[key, max(times)]

    def keep(self, key: Hashable, checkpoint: Checkpoint) -> None:
        """Add one; those not used for longest make room, or it is not kept."""
        with self._lock:
            self._kept[key, checkpoint.time_ns] = checkpoint
            while self.nbytes > self._room:
                self._kept.popitem(last=False)


class Resumption:
    """One replay's use of checkpoints.

    State and places are brought to the latest one of its key, which replays share that can go on
    from each other, before a time.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        key: Hashable,
        state: State,
        places: np.ndarray,
        before_ns: int,
    ) -> None:
        self._checkpoints, self._key = checkpoints, key
        self._arrays = (state.pages, state.blocks, state.st, state.folios, places)
        self._at_start: tuple[np.ndarray, ...] = ()
        self.stop_ns, self.position = before_ns - 1, 0
        latest = checkpoints.latest(key, before_ns)
        if latest is None or latest.time_ns < self.stop_ns:
            self._at_start = tuple(each.copy() for each in self._arrays)
        if latest is not None:
            self.position = latest.position
            for array, changed in zip(self._arrays, latest.arrays, strict=True):
                changed.put_into(array)

    def note(self, time_ns: int, position: int) -> None:
        """Keep a checkpoint if this is the time for one and there is none yet."""
        if time_ns == self.stop_ns and self._at_start:
            arrays = tuple(map(changes, self._at_start, self._arrays))
            checkpoint = Checkpoint(time_ns=time_ns, position=position, arrays=arrays)
            self._checkpoints.keep(self._key, checkpoint)
            self._at_start = ()


IS_STRICT = CHECKED or bool(os.environ.get("PAGEALLOC_STRICT"))

_SIGN = np.zeros(128, np.int64)
_SIGN[[at.ALLOC, at.HIDDEN_ALLOC, at.ALLOC_IN_ZONE, at.HIDDEN_ALLOC_IN_ZONE]] = 1
_SIGN[[at.ISOLATE_FREE, at.CAPTURE]] = 1
_SIGN[[at.FREE, at.GROW]] = -1


def taken_pages(events: np.ndarray) -> int:
    """Pages that events take from a literal replay's memory, less those that they give it."""
    return int((_SIGN[events["operation"]] << events["order"].astype(np.int64)).sum())


def kept_pages(state: State) -> int:
    """Pages of the allocator: free, on per-CPU lists, and held by compaction."""
    free = state.free_buddies().sum(axis=(0, 2)) << np.arange(at.ORDERS)
    held = int(state.st[at.ISOLATED_PAGES])
    if state.is_elastic:
        first = int(state.st[int(state.st[at.PRESSURE_BASE]) + pr.COMPACTORS_BASE])
        runs = first + np.arange(1 + len(state.machine.nodes)) * pr.COMPACTOR_WORDS
        held += int(state.st[runs + pr.RUN_HELD].sum())
    return int(free.sum()) + int(state.pcp_words(at.PCP_COUNT, 1).sum()) + held


class PageBalance:
    """The balance of one replay, held against its events step by step.

    A literal replay's pages are held against what its events ask for and free. An elastic one
    decides that itself: its pages are those of the allocator and those in use, together constant
    but for memory that comes.

    Attributes:
        lost: pages that the replay has fewer than it should have, or minus what it has too many.
    """

    def __init__(self, carrier: Carrier, places: np.ndarray, position: int) -> None:
        """Begin where a replay begins, with the first event that its carrier is about to take."""
        self._carrier, self._places, self._position = carrier, places, position
        self.lost = 0
        self._pages = self._count()
        state = carrier.state
        self._arrays = (state.pages, state.blocks, state.st, state.folios, places)
        # remembered, so that the event which breaks the balance can be found
        self._kept: tuple[np.ndarray, ...] = ()
        if CHECKED and isinstance(carrier, ModelCarrier):
            self._kept = tuple(each.copy() for each in self._arrays)

    def check(self, events: np.ndarray, position: int) -> None:
        """Hold the state against the events up to one.

        Raises:
            CorruptStateError: pages were lost, or came from nowhere, and IS_STRICT.
        """
        lost = self._expected(events, position) - self._count()
        if lost and IS_STRICT:
            where = f"between events {self._position} and {position}"
            if self._kept:
                where = f"in ticks {where}"
                for array, kept in zip(self._arrays, self._kept, strict=True):
                    array[:] = kept
                for each in range(self._position, position):
                    self._carrier.advance(events, self._places, each, each + 1, -1)
                    self._carrier.state.st[at.LOG_ROWS] = 0
                    if self._expected(events, each + 1) != self._count():
                        event = events[each]
                        words = ", ".join(f"{name} {event[name]}" for name in event.dtype.names)
                        where = f"at event {each} ({words})"
                        break
            raise CorruptStateError(f"the replay lost {lost} pages {where}: please report it")
        self.lost += lost
        self._pages = self._expected(events, position) - lost
        self._position = position
        if self._kept:
            self._kept = tuple(each.copy() for each in self._arrays)

    def _count(self) -> int:
        """Pages of the allocator, with those in use of an elastic replay, without missing ones."""
        state = self._carrier.state
        self._carrier.settle()
        if not state.is_elastic:
            return kept_pages(state) - int(state.st[at.MISSING_PAGES])
        orders = state.pages["order"][state.pages["where"] == at.ALLOCATED]
        return kept_pages(state) + int((np.int64(1) << orders.astype(np.int64)).sum())

    def _expected(self, events: np.ndarray, position: int) -> int:
        """Pages that are to be counted after the events up to one."""
        part = events[self._position : position]
        if self._carrier.state.is_elastic:
            part = part[part["operation"] == at.GROW]
        return self._pages - taken_pages(part)


PAGES_OF_A_PACE = 1024
"""Pages freed that one pace is taken from: 32 clusters of reclaim."""
RUNS = "vmscan:mm_vmscan_kswapd_wake"


Held = tuple[np.ndarray, np.ndarray]
"""Two int64: instants, increasing, and the value from each to the next one's."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedKswapd:
    """Each value holds from its instant to the next one's, and the first before it too.

    Attributes:
        free_ns: by node: when a pace of its kswapd begins; time to free a page from there on, ns.
        cpus: by node: when its kswapd is on another CPU; and the CPU.
    """

    free_ns: Mapping[int, Held]
    cpus: Mapping[int, Held]

    @cached_property
    def changes_ns(self) -> np.ndarray:
        """All instants at which something changes, int64."""
        held = [*self.free_ns.values(), *self.cpus.values()]
        return np.unique(np.concatenate([from_ns for from_ns, _ in held]))

    def set_at(self, state: State, time_ns: int) -> None:
        """Let an elastic replay's kswapds go on as at an instant."""
        st = state.st
        nodes = int(st[int(st[at.PRESSURE_BASE]) + pr.NODES_BASE])
        for word, held in ((pr.KSWAPD_FREE_NS, self.free_ns), (pr.KSWAPD_CPU, self.cpus)):
            for node, (from_ns, values) in held.items():
                if node < int(st[at.NR_NODES]):
                    row = max(int(np.searchsorted(from_ns, time_ns, "right")) - 1, 0)
                    st[nodes + node * pr.NODE_WORDS + word] = values[row]


def recorded_kswapd(trace: Trace) -> RecordedKswapd | None:
    """Return where the recorded kswapds ran, and how fast they freed pages, time by time.

    A run's time is cut at the ends of its clusters, and each cluster's goes with its pages. A pace
    is of a node's clusters in a row that freed `PAGES_OF_A_PACE` pages, and holds until the next
    one's begin: also while the recorded kswapd slept. None if they freed nothing.
    """
    runs, shrunk = trace.tables.get(RUNS), trace.tables.get(SHRUNK)
    if runs is None or shrunk is None:
        return None
    free_ns, cpus = {}, {}
    for pid in np.unique(runs["pid"]):
        own = runs["pid"] == pid
        node, begins = int(runs["nid"][own][0]), runs["time_ns"][own]
        rows = np.flatnonzero((shrunk["pid"] == pid) & (shrunk["time_ns"] >= begins[0]))
        times, cpu = shrunk["time_ns"][rows], shrunk["cpu"][rows].astype(np.int64)
        freed = shrunk["nr_reclaimed"][rows].astype(np.int64)
        if not len(times):
            continue
        run = np.searchsorted(begins, times, "right") - 1
        before = np.maximum(begins[run], np.concatenate([times[:1] * 0, times[:-1]]))
        if freed.any():
            whole = max(int(freed.sum()) // PAGES_OF_A_PACE, 1)
            part = np.minimum((np.cumsum(freed) - freed) // PAGES_OF_A_PACE, whole - 1)
            first = np.flatnonzero(np.diff(part, prepend=-1))
            pages = np.maximum(np.add.reduceat(freed, first), 1)
            free_ns[node] = before[first], np.add.reduceat(times - before, first) // pages
        moves = np.flatnonzero(np.diff(cpu, prepend=-1))
        cpus[node] = before[moves], cpu[moves]
    return RecordedKswapd(free_ns=free_ns, cpus=cpus) if free_ns else None


STEP_EVENTS = 1 << 18


class Cancelled(Exception):
    """A replay was told to stop through its `cancel` argument."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Course:
    """The way of a state through demand.

    Attributes:
        instants: int64, ascending: when samples are wanted.
        span: first and last time of samples, and of holds that are kept.
        resumption: where to go on from, and what may be kept for others.
        kswapd: the recorded one, set wherever it changes.
        exchange: moves places where recorded compaction moves a cluster.
        progress: called with the share replayed, 0 to 1.
        cancel: asked now and then; True ends the replay.
    """

    instants: np.ndarray
    span: tuple[int, int]
    resumption: Resumption | None = None
    kswapd: RecordedKswapd | None = None
    exchange: Exchange | None = None
    progress: Callable[[float], None] | None = None
    cancel: Callable[[], bool] | None = None


def advance_and_sample(
    carrier: Carrier, demand: Demand, places: np.ndarray, course: Course
) -> tuple[Samples, np.ndarray, int]:
    """Advance to every instant inside the span and copy the counters there.

    The balance of pages is held at each instant, or of an elastic replay, where all pages are
    looked at for it, at the end.

    Returns:
        The copies; the log's rows inside the span; pages lost (see `PageBalance`).
    """
    state, events = carrier.state, demand.events
    block_counter = BlockCounter(state)
    (first_ns, last_ns), resumption, kswapd = course.span, course.resumption, course.kswapd
    sampled: dict[int, tuple[np.ndarray, ...]] = {}
    log = Column((np.int64, at.LOG_COLUMNS), working_directory(len(events)))
    position, instants = 0, course.instants
    if resumption is not None:
        position = resumption.position
        instants = np.union1d(instants, [resumption.stop_ns])
    instants = instants[instants <= last_ns]
    wanted = frozenset(instants.tolist())
    idle = IdleTime(state)
    if len(instants):
        gaps = idle.ends_of_gaps(events)
        instants = np.union1d(instants, gaps[gaps < instants[-1]])
    balance = PageBalance(carrier, places, position)
    if kswapd is not None:
        now = int(events["time_ns"][min(position, len(events) - 1)])
        kswapd.set_at(state, now)
        changes = kswapd.changes_ns
        instants = np.union1d(instants, changes[(changes > now) & (changes < instants[-1])])
    # numpy's search would copy the times, which lie among other fields
    stops = [bisect_left(events["time_ns"], instant) for instant in instants.tolist()]
    for instant, stop in zip(instants.tolist(), stops, strict=True):
        while position < stop or (position > 0 and state.next_due_ns <= instant):
            goal = min(stop, position + STEP_EVENTS)
            if course.exchange is not None:
                course.exchange.make(position)
                goal = min(goal, course.exchange.due)
            until = idle.until(instant) if goal == stop else -1
            position = carrier.advance(events, places, position, goal, until)
            if position == stop:
                idle.reached(until, instant)
            rows = state.log[: state.st[at.LOG_ROWS]]
            log.append(rows[(rows[:, 1] >= first_ns) & (rows[:, 1] < last_ns)])
            state.st[at.LOG_ROWS] = 0
            if course.cancel is not None and course.cancel():
                raise Cancelled
            if course.progress is not None:
                course.progress(position / len(events))
        if kswapd is not None:
            kswapd.set_at(state, instant)
        if instant not in wanted:
            continue
        if resumption is not None:
            resumption.note(instant, position)
        if instant >= first_ns:
            carrier.settle()
            sampled[instant] = sample_of(state, block_counter)
            if IS_STRICT or not state.is_elastic:
                balance.check(events, position)
    balance.check(events, position)
    names = [each.name for each in fields(Samples)][1:]
    columns = map(np.stack, zip(*sampled.values(), strict=True))
    samples = Samples(
        time_ns=np.array(list(sampled), np.int64), **dict(zip(names, columns, strict=True))
    )
    return samples, log.values, balance.lost


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
        ownership = set_words(state).sum(axis=1)
    return (
        state.free_buddies(),
        block_counter.counts(),
        state.pcp_words(at.PCP_COUNT, 2),
        state.zone_words(at.ZONE_BOOST),
        state.pcp_words(at.PCP_LOCKS, len(tables.LOCK_COLUMNS)).sum(axis=1),
        ownership,
        state.pressure_words(0, pr.SCALARS),
    )


def fallback_counts(state: State) -> np.ndarray:
    """Fallbacks by requested type, type taken from, kind and orders (`layout.FALLBACK_SHAPE`)."""
    words = state.st[at.FALLBACKS : at.FALLBACKS + prod(at.FALLBACK_SHAPE)]
    return words.reshape(at.FALLBACK_SHAPE).copy()


def divergence(state: State, demand: Demand, lost: int) -> dict[str, int]:
    """Return counts of what recording and model disagreed on, and of what demand had to make up.

    Pages that are missing at the end, and those lost, are counts where there are any.
    """
    words = {
        "forced": at.COUNT_FORCED,
        "in_base_pages": at.COUNT_IN_BASE_PAGES,
        "failed": at.COUNT_FAILED,
        "unlogged_transactions": at.LOG_DROPPED,
        "orphan_frees": at.COUNT_ORPHAN_FREE,
        "recorded_failures": at.COUNT_RECORDED_FAILURE,
    }
    pages = {"missing_pages": int(state.st[at.MISSING_PAGES]), "lost_pages": lost}
    return {
        **{name: int(state.st[word]) for name, word in words.items()},
        "live_at_start": len(demand.at_start),
        **{name: getattr(demand, name) for name in _DEMAND_COUNTS},
        "outside_zones": demand.outside,
        **tables.divergence(state.pressure_words(0, pr.SCALARS)),
        **{name: count for name, count in pages.items() if count},
        **demand.by_orders,
    }


_DEMAND_COUNTS = (
    "hidden_allocations",
    "hidden_over_losses",
    "repeated_frees",
    "isolated_pages",
    "isolated_unseen",
    "captured",
    "stayed_pages",
    "moved_frees",
    "failed_charges",
    "recorded_twice",
    "missed_frees",
    "split_frees",
    "grown_pages",
)
