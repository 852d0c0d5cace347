"""A trace's allocations and frees matched part by part: events on objects, in time order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator.objects import mark_interrupted
from pagealloc_model.base import arrays
from pagealloc_model.base.arrays import Column, parts, working_directory
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.predicted.demand.elastic import REQUEST_SEEN
from pagealloc_model.predicted.demand.event_order import HiddenAllocations
from pagealloc_model.predicted.demand.rows import MARK, PartRows, RequestsOfTasks, RowMaker
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.trace.columns import Trace

_WITHOUT_MARKS = np.uint32(~at.CONTEXT_BITS & 0xFFFFFFFF)
_AT_A_TIME = 8
"""Parts whose rows are made at the same time, at most."""


class ResolvedTrace:
    """Events on objects: every free of a trace with its allocation.

    Rows live from when they are made until nothing that follows can change them.

    Attributes:
        events: column of `layout.EVENT` records in time order, but for hidden allocations.
        objects: column of `objects.OBJECT` records.
        requests: column of `elastic.REQUEST_SEEN` records, in time order.
        alloc_rows: column of int32, rows of the allocations where files are known.
        marks: column of `rows.MARK` records: the marks of interrupts that events had.
        counts: int64, `objects.COUNT_...`.
        outside: events whose pages lie in no zone of the machine, or are no buddy.
        recorded_twice: events that repeat the one before them to the nanosecond.
    """

    def __init__(
        self, trace: Trace, machine: Machine, maker: RowMaker, progress: Report | None = None
    ) -> None:
        """Match every free to its allocation."""
        if len(trace) > resolved.LAST_ROW:
            raise UsageError(
                f"{trace.source}: has {len(trace)} events; a replay takes {resolved.LAST_ROW} at "
                "most, so trim the recording"
            )
        directory = working_directory(len(trace))
        expected = len(trace) + len(trace) // 8 + 4096
        self._trace = trace
        self._columns = resolved.SeenColumns(trace.time_ns, trace.pid, trace.cpu)
        self._has_interrupts = any((trace.in_interrupt[p] > 0).any() for p in parts(len(trace)))
        self._last_rows = np.full(machine.nr_cpus, -1)
        self._last_task = np.zeros(machine.nr_cpus, resolved.ROW)
        self._last_task["row"] = -1
        self._bursts = np.full((machine.nr_cpus, 2), -1)
        self._rows = Column(resolved.ROW, directory)
        self._marked = 0
        self._hidden = Column(at.EVENT, directory, expected >> 5)
        self._hidden_words = Column((np.int64, 2), directory, expected >> 5)
        self._frames = resolved.FramesSeen(
            np.zeros(machine.end_pfn, np.int32), np.zeros(machine.end_pfn, resolved.FREED)
        )
        self.events = Column(at.EVENT, directory, expected)
        self.objects = Column(resolved.OBJECT, directory, expected)
        self.requests = Column(REQUEST_SEEN, directory)
        self.alloc_rows = Column(np.int32, directory)
        self.marks = Column(MARK, directory)
        self.counts = np.zeros(resolved.COUNTS, np.int64)
        self.outside = self.recorded_twice = taken = 0
        tasks = RequestsOfTasks()
        for part, made in _made_ahead(maker, len(trace)):
            self.outside += made.outside
            self.recorded_twice += made.recorded_twice
            if made.requests is not None:
                self.requests.append(made.requests[0])
                self.alloc_rows.append(made.requests[1])
            before = len(self._rows.values)
            self._rows.append(made.rows)
            tasks.link(self._rows.values, before, trace.gfp, self._last_rows)
            taken += len(made.rows)
            self._match(self._settled(awaits_charge=part.stop <= maker.last_charged))
            if progress is not None:
                progress(part.stop / len(trace))
        # rows that wait for what does not come are as they are
        self._match(len(self._rows.values))
        if not taken:
            raise UsageError(f"{trace.source}: no allocation or free inside the machine's zones")

    @property
    def hidden(self) -> HiddenAllocations:
        """Allocations that the trace does not show."""
        ranks, freed_ns = self._hidden_words.values.T
        return HiddenAllocations(events=self._hidden.values, ranks=ranks, freed_ns=freed_ns)

    @property
    def left_out(self) -> dict[str, int]:
        """Counts of what is left out or made up, by the names that `Demand` has for them."""
        return {
            "missed_frees": int(self.counts[resolved.COUNT_MISSED_FREE]),
            "split_frees": int(self.counts[resolved.COUNT_SPLIT_FREE]),
            "repeated_frees": int(self.counts[resolved.COUNT_REPEATED_FREE]),
            "failed_charges": int(self.counts[resolved.COUNT_FAILED_CHARGE]),
            "recorded_twice": self.recorded_twice,
            "outside": self.outside,
        }

    def _settled(self, *, awaits_charge: bool) -> int:
        """How many of the rows kept nothing that follows can change."""
        rows = self._rows.values
        settled = len(rows)
        if awaits_charge:
            last = self._last_rows[self._last_rows >= 0]
            last = last[rows["is_free"][last] == 1]
            settled = min(settled, int(last.min(initial=settled)))
        if self._has_interrupts:
            mark_interrupted(
                rows, self._marked, settled, self._trace.time_ns, self._last_task, self._bursts
            )
            self._marked = settled
            open_bursts = self._bursts[self._bursts[:, 0] >= 0, 0]
            settled = min(settled, int(open_bursts.min(initial=settled)))
        return settled

    def _match(self, settled: int) -> None:
        """Make events of so many of the rows kept, and let go of these."""
        done, rows, counts = 0, self._rows.values, self.counts
        room = settled + settled // 8 + 4096
        while done < settled:
            columns = (self.events, self._hidden, self._hidden_words, self.objects)
            into = resolved.Resolved(*(column.room(room) for column in columns), counts)
            before, hidden_before = self.events.rows, self._hidden.rows
            done = resolved.resolve_objects(rows, done, settled, self._columns, self._frames, into)
            self.events.rows = int(counts[resolved.COUNT_EVENTS])
            self._hidden.rows = int(counts[resolved.COUNT_HIDDEN_EVENTS])
            self._hidden_words.rows = self._hidden.rows
            self.objects.rows = int(counts[resolved.COUNT_OBJECTS])
            # marks of interrupts are kept beside the events
            bits = self.events.values["bits"][before:]
            places = np.flatnonzero(bits & np.uint32(at.CONTEXT_BITS))
            marks = np.zeros(len(places), MARK)
            marks["place"], marks["bits"] = places + before, bits[places]
            self.marks.append(marks)
            bits[places] &= _WITHOUT_MARKS
            self._hidden.values["bits"][hidden_before:] &= _WITHOUT_MARKS
            room *= 2
        self._rows.drop(settled)
        self._marked -= settled
        for numbers in (self._last_rows, self._bursts):
            numbers[numbers >= 0] -= settled
        # Of a row that is settled only its being there could matter.
        np.maximum(self._last_rows, -1, out=self._last_rows)


def _made_ahead(maker: RowMaker, rows: int) -> Iterator[tuple[slice, PartRows]]:
    """Parts and their rows, in order; those that follow are made meanwhile.

    As several are worked on, a part is a fourth of what is otherwise worked on at a time.
    """
    at_a_time = min(len(os.sched_getaffinity(0)), _AT_A_TIME)
    step = max(arrays.ROWS_TOGETHER // 4, 1)
    with ThreadPoolExecutor(at_a_time) as threads:
        waiting: list[tuple[slice, Future[PartRows]]] = []
        for begin in range(0, rows, step):
            part = slice(begin, min(begin + step, rows))
            waiting.append((part, threads.submit(maker.part, part)))
            if len(waiting) > at_a_time:
                first, made = waiting.pop(0)
                yield first, made.result()
        for part, made in waiting:
            yield part, made.result()
