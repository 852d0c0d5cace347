"""The Trace: page-allocator events of one recording as time-ordered columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pagealloc_model.base.arrays import NewArray, in_memory, parts
from pagealloc_model.base.memo import Memo
from pagealloc_model.base.text import as_name, as_word
from pagealloc_model.recording.page_frames import NO_HOLES, PageFrames
from pagealloc_model.recording.proc.zoneinfo import NR_CPUS_MAX
from pagealloc_model.recording.trace import tracepoints as tp

if TYPE_CHECKING:
    import pandas as pd


NAMED = -1
"""Stands for the parent where a thread was named, not forked."""
THREAD_NAME_COLUMNS = ("time_ns", "tid", "parent", "name")


@dataclass(frozen=True, eq=False)
class ThreadNames:
    """Namings of threads, one row each, in the order of the source.

    Attributes:
        time_ns: int64, 0 for names that held when the recording began.
        tid: int64, the thread.
        parent: int64, the thread it was forked from, whose name it takes over, or NAMED.
        name: object, str; "" where it was forked.
    """

    time_ns: np.ndarray
    tid: np.ndarray
    parent: np.ndarray
    name: np.ndarray

    @staticmethod
    def of(rows: Iterable[tuple[int, int, int, str]]) -> ThreadNames:
        """From rows of time, thread, parent and name."""
        times, tids, parents, names = list(zip(*rows, strict=True)) or ((), (), (), ())
        numbers = (np.array(column, np.int64) for column in (times, tids, parents))
        return ThreadNames(*numbers, np.array(names, object))

    def take(self, rows: np.ndarray) -> ThreadNames:
        """Some of the namings, by index or mask."""
        return ThreadNames(**{name: getattr(self, name)[rows] for name in THREAD_NAME_COLUMNS})

    def __len__(self) -> int:
        return len(self.time_ns)

    def last(self) -> dict[int, str]:
        """Thread id -> last command name; a forked thread starts with its parent's."""
        comms = {0: "swapper"}
        order = np.argsort(self.time_ns, kind="stable")
        columns = (column[order].tolist() for column in (self.tid, self.parent, self.name))
        for tid, parent, name in zip(*columns, strict=True):
            if parent == NAMED:
                comms[tid] = name
            elif parent in comms:
                comms[tid] = comms[parent]
        return comms


class Event(IntEnum):
    """The six kmem events that make up a Trace's rows (T2 to T6)."""

    ALLOC = 0
    FREE = 1
    FREE_BATCHED = 2
    ZONE_LOCKED = 3
    PCPU_DRAIN = 4
    EXTFRAG = 5


EVENT_NAMES: dict[str, Event] = {
    tp.PAGE_ALLOC: Event.ALLOC,
    tp.PAGE_FREE: Event.FREE,
    tp.PAGE_FREE_BATCHED: Event.FREE_BATCHED,
    tp.PAGE_ALLOC_ZONE_LOCKED: Event.ZONE_LOCKED,
    tp.PAGE_PCPU_DRAIN: Event.PCPU_DRAIN,
    tp.PAGE_ALLOC_EXTFRAG: Event.EXTFRAG,
}

COLUMN_TYPES: dict[str, type] = {
    "time_ns": np.int64,
    "cpu": np.int16,
    "pid": np.int32,
    "event": np.uint8,
    "pfn": np.int64,
    "order": np.int8,
    "gfp": np.uint32,
    "migratetype": np.int8,
    "percpu_refill": np.int8,
    "in_interrupt": np.int8,
}
LARGEST_ORDER = 30
"""Of an event, by the model: a block of order 31 would be all the memory that it can number. The
kernel's are smaller: on free lists MAX_PAGE_ORDER + PAGE_SHIFT is at most SECTION_SIZE_BITS
(include/linux/mmzone.h, 6.12), and a freed gigantic page of x86 is of PUD_SIZE, order 18."""


@dataclass(frozen=True)
class Losses:
    """Intervals in which the kernel dropped events (T1.5), one row per loss record.

    Attributes:
        cpu: int16, the CPU whose buffer overran, -1 where the record does not say.
        start_ns: int64, time of the last event before the loss on that CPU's stream.
        end_ns: int64, time of the loss record.
        count: int64, events lost; what 64 bits cannot hold counts as the most they can.
        at_end: how many rows, the last ones, rest only on the sums that the kernel wrote when the
            recording ended.
    """

    cpu: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    count: np.ndarray
    at_end: int = 0

    def __post_init__(self) -> None:
        if np.any(self.count < 0):
            most = np.int64(np.iinfo(np.int64).max)
            object.__setattr__(self, "count", np.where(self.count < 0, most, self.count))

    @property
    def total(self) -> int:
        """Events lost in the whole recording."""
        halves = self.count >> 32, self.count & 0xFFFFFFFF  # whose sums fit 64 bits
        return (int(halves[0].sum()) << 32) + int(halves[1].sum())

    def take(self, rows: np.ndarray) -> Losses:
        """Some of the losses, by index or mask; none of them counts as of the end."""
        return Losses(self.cpu[rows], self.start_ns[rows], self.end_ns[rows], self.count[rows])

    def overlap(self, begin_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
        """Mark the closed intervals that have an instant in common with a loss, bool."""
        order = np.argsort(self.start_ns, kind="stable")
        # The latest end of all losses that start no later than each, with one of none in front.
        ends = np.maximum.accumulate(np.r_[np.iinfo(np.int64).min, self.end_ns[order]])
        return np.asarray(ends[np.searchsorted(self.start_ns[order], end_ns, "right")] >= begin_ns)

    @staticmethod
    def of(rows: Sequence[Sequence[int]] | np.ndarray, at_end: int = 0) -> Losses:
        """Losses of any events, from rows of CPU, start, end and count."""
        cpu, *others = np.array(rows, np.int64).reshape(-1, 4).T.copy()
        return Losses(cpu.astype(np.int16), *others, at_end=at_end)


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace(Memo):
    """Page-allocator events in time order; all columns have one length and are read-only.

    Attributes:
        time_ns: int64, the recording's clock (CLOCK_MONOTONIC where `pagealloc record` made it).
        cpu: int16, the CPU that recorded the event (T1.6).
        pid: int32, thread id; names in `comms`.
        event: uint8, values of `Event`.
        pfn: int64, page frame, see `frames`; -1 for a failed allocation (T2).
        order: int8. FREE_BATCHED carries no order: 0.
        gfp: uint32, raw gfp word of ALLOC, else 0; decode with `gfp_bits`.
        migratetype: int8; of ALLOC the requested type, of ZONE_LOCKED and PCPU_DRAIN the list's
            (T4, T5), of EXTFRAG alloc_migratetype, of frees -1.
        percpu_refill: int8, ZONE_LOCKED's field, -1 elsewhere.
        in_interrupt: int8, 1 in a hard or soft interrupt, 0 in a task, -1 where the source does
            not say (T1.7).
        comms: thread id -> command name (the last one seen).
        thread_names: when threads were named, where the source says so.
        gfp_bits: name such as "__GFP_HIGH" -> bit mask, from the recording's format data (S2.3).
        gfp_from_format: it really is; text has none, and known names stand in.
        tables: every other tracepoint by name, and `kmem:mm_page_alloc_extfrag` with all fields:
            arrays `time_ns`, `cpu`, `pid`, `row` (rows of the main columns before it), then the
            fields under the names of the recording's format data.
        declared_types: C types of the tables' fields by table and column, where the source says.
        callchains: uint64, all call chains end to end; tables index it by `callchain_start` and
            `callchain_len`.
        losses: intervals in which events were dropped.
        source: path of the file read.
        release: kernel release named in the file, "" if it names none.
        nr_cpus: CPUs online when recorded, 0 if unknown or more than any kernel has.
        clock: "monotonic", "perf" or another clock's name, "" if unknown.
        scope: of `perf_arguments.SCOPES`, by perf's command line; "" if the source has none.
        notes: what the source held or lacked that the columns do not show, one line each.
        frames: how page frames are counted, here and in the tables' columns that end in pfn; a
            reader's are as the kernel numbers them.
        sampled: events for each one recorded, by the name of the event, of those that perf sampled
            (`-c`); 0 where that varies (`-F`). Nothing that needs every event can be told then.
    """

    time_ns: np.ndarray
    cpu: np.ndarray
    pid: np.ndarray
    event: np.ndarray
    pfn: np.ndarray
    order: np.ndarray
    gfp: np.ndarray
    migratetype: np.ndarray
    percpu_refill: np.ndarray
    in_interrupt: np.ndarray
    comms: Mapping[int, str] = field(default_factory=dict)
    thread_names: ThreadNames = field(default_factory=lambda: ThreadNames.of(()))
    gfp_bits: Mapping[str, int] = field(default_factory=dict)
    gfp_from_format: bool = False
    tables: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)
    declared_types: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    callchains: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))
    losses: Losses = field(default_factory=lambda: Losses.of(()))
    source: str = ""
    release: str = ""
    nr_cpus: int = 0
    clock: str = ""
    scope: str = ""
    notes: tuple[str, ...] = ()
    sampled: Mapping[str, int] = field(default_factory=dict)
    frames: PageFrames = NO_HOLES

    def __post_init__(self) -> None:
        """Give every column its type, make it contiguous and read-only."""
        for name, dtype in COLUMN_TYPES.items():
            column = np.ascontiguousarray(getattr(self, name), dtype)
            if len(column) != len(self.time_ns):
                raise ValueError(f"column {name} has {len(column)} rows, not {len(self.time_ns)}")
            column.flags.writeable = False
            object.__setattr__(self, name, column)
        for name, named in _NAMED_FIELDS.items():
            object.__setattr__(self, name, named(getattr(self, name)))
        object.__setattr__(self, "_rows", len(self.time_ns))

    @property
    def is_whole(self) -> bool:
        """Whether the source has all events from its first to its end, as far as it tells."""
        return not self.losses.total and not any(CUT in note for note in self.notes)

    @staticmethod
    def unread(rows: int, load: Mapping[str, Callable[[], Any]], **known: Any) -> Trace:
        """A trace of so many rows whose fields are read on first use."""
        trace = object.__new__(Trace)
        known = {name: _NAMED_FIELDS.get(name, _as_it_is)(value) for name, value in known.items()}
        for name, value in (*known.items(), ("_rows", rows), ("_load", load)):
            object.__setattr__(trace, name, value)
        return trace

    def __getattr__(self, name: str) -> Any:
        load = self.__dict__.get("_load", {})
        if name not in load:
            raise AttributeError(f"{type(self).__name__} has no {name}")
        value = _NAMED_FIELDS.get(name, _as_it_is)(load[name]())
        object.__setattr__(self, name, value)
        return value

    def __len__(self) -> int:
        return self._rows

    def count(self, event: Event) -> int:
        """Rows of one event."""
        return sum(int(np.count_nonzero(self.event[part] == event)) for part in parts(len(self)))

    @property
    def span_ns(self) -> tuple[int, int]:
        """Times of the first and last row, (0, 0) if there is none."""
        return (int(self.time_ns[0]), int(self.time_ns[-1])) if len(self) else (0, 0)

    @cached_property
    def demand_span_ns(self) -> tuple[int, int]:
        """Times of the first and last allocation or free, (0, 0) if there is none."""
        ends: list[int] = []
        for part in parts(len(self)):
            rows = np.flatnonzero(self.event[part] <= Event.FREE)
            ends += (part.start + rows[[0, -1]]).tolist() if len(rows) else []
        return (int(self.time_ns[ends[0]]), int(self.time_ns[ends[-1]])) if ends else (0, 0)

    def with_frames(self, frames: PageFrames) -> Trace:
        """The same events, their page frames counted another way; columns are read on first use."""
        if frames == self.frames:
            return self

        def counted(name: str, values: np.ndarray) -> np.ndarray:
            if not name.endswith("pfn") or values.dtype not in (np.int64, np.uint64):
                return values
            return frames.indices(self.frames.numbers(values))

        def tables() -> Mapping[str, Mapping[str, np.ndarray]]:
            return {
                event: {name: counted(name, values) for name, values in table.items()}
                for event, table in self.tables.items()
            }

        # What has a default on the class is never asked of `load`.
        names = {each.name for each in fields(self)}
        known = {name: getattr(self, name) for name in names if hasattr(Trace, name)}
        load = {name: partial(getattr, self, name) for name in names - known.keys()}
        load |= {"pfn": lambda: counted("pfn", self.pfn), "tables": tables}
        return Trace.unread(len(self), load, **known | {"frames": frames})

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a DataFrame, events and command names as categories, the kernel's frames."""
        import pandas as pd

        columns = {name: getattr(self, name) for name in COLUMN_TYPES}
        columns["pfn"] = self.frames.numbers(self.pfn)
        names = [member.name.lower() for member in Event]
        columns["event"] = pd.Categorical.from_codes(self.event, names)
        pids, inverse = np.unique(self.pid, return_inverse=True)
        comms = [self.comms.get(pid, str(pid)) for pid in pids.tolist()]
        categories = sorted(set(comms))
        codes = np.searchsorted(np.array(categories, object), np.array(comms, object))
        columns["comm"] = pd.Categorical.from_codes(codes[inverse], categories)
        return pd.DataFrame(columns)


_LONGEST_EVENT_NAME, _LONGEST_NOTE = 160, 400


def _as_it_is(value: Any) -> Any:
    return value


def _named_keys(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {as_name(name, _LONGEST_EVENT_NAME): value for name, value in values.items()}


def _named_values(values: Mapping[int, str]) -> Mapping[int, str]:
    return {key: as_name(name) for key, name in values.items()}


def _named_threads(names: ThreadNames) -> ThreadNames:
    known = {name: as_name(name) for name in set(names.name.tolist())}
    if all(name == shown for name, shown in known.items()):
        return names
    return replace(names, name=np.array([known[name] for name in names.name.tolist()], object))


_NAMED_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "comms": _named_values,
    "thread_names": _named_threads,
    **dict.fromkeys(("gfp_bits", "sampled", "tables", "declared_types"), _named_keys),
    "clock": as_name,
    "release": as_word,
    "nr_cpus": lambda count: count if count <= NR_CPUS_MAX else 0,
    "notes": lambda notes: tuple(as_name(note, _LONGEST_NOTE) for note in notes),
}
"""The fields of a Trace with names that its source chose, and how these become names on a line, and
the count of CPUs, which a header may only claim."""

CUT = "is cut short"
"""Part of the note on a source without its end."""

_EVENTS_BEFORE_LOSS = 5
"""One of each context under way at once on a CPU (task, softirq, hardirq, NMI), and one more."""


def losses_by_time(
    records: Iterable[tuple[int, int, int]], time_ns: np.ndarray, cpu: np.ndarray
) -> Losses:
    """Losses of (CPU, time, count): each starts five events of its CPU before its record.

    The kernel writes the record in front of the first event that has room again, and has taken
    that event's time a moment before the record's. The same holds for an event of each context
    that this one interrupted. The fifth is before the gap for certain.
    """
    rows = sorted(records, key=lambda record: record[1])
    times_of = {number: time_ns[cpu == number] for number in {row[0] for row in rows}}
    losses = []
    for number, end_ns, count in rows:
        before = int(np.searchsorted(times_of[number], end_ns, "right")) - _EVENTS_BEFORE_LOSS
        start_ns = int(time_ns[0]) if len(time_ns) else end_ns
        if before >= 0:
            start_ns = int(times_of[number][before])
        losses.append((number, min(start_ns, end_ns), end_ns, count))
    return Losses.of(losses)


_BLOCK = 1 << 18


def time_order(time_ns: np.ndarray, new_array: NewArray, block: int = _BLOCK) -> np.ndarray | None:
    """Row numbers in time order, ties in file order, int64; None if the rows are in order.

    In memory they are sorted at once. Else memory is bounded: perf reads one CPU's buffer after the
    other, round by round, so a row is out of place by two rounds at most. Rows are held back only
    until no later row can precede them, whatever the rounds were.
    """
    starts = range(0, len(time_ns), block)
    if all(np.all(np.diff(time_ns[start : start + block + 1]) >= 0) for start in starts):
        return None
    if new_array is in_memory and block == _BLOCK:
        return np.argsort(time_ns, kind="stable")
    least = np.array([time_ns[start : start + block].min() for start in starts])
    least_later = np.append(np.minimum.accumulate(least[::-1])[::-1][1:], np.iinfo(np.int64).max)
    order = new_array(len(time_ns), np.int64)
    held = np.zeros(0, np.int64)
    begin = filled = 0
    while begin < len(least):
        # As many new rows as are held back, so that each row is sorted a few times only.
        end = min(begin + max(len(held) // block, 1), len(least))
        new = np.arange(begin * block, min(end * block, len(time_ns)), dtype=np.int64)
        held = np.concatenate([held, new])
        times = time_ns[held]
        by_time = np.argsort(times, kind="stable")
        certain = int(np.searchsorted(times[by_time], least_later[end - 1], "right"))
        order[filled : filled + certain] = held[by_time[:certain]]
        filled += certain
        held = held[by_time[certain:]]
        begin = end
    return order
