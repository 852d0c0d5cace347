"""Events in a closed loop: each task asks when its own time has passed (S10.10)."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from tests.oracle.elastic import ElasticOracle
from tests.oracle.steps import Step

REQUESTS = ("alloc_object", "fail_object")
OF_TASKS = (*REQUESTS, "free_object", "use_object")
"""Calls that a task may be late with; all others come as recorded."""


@dataclass(frozen=True, kw_only=True)
class TaskEvent:
    """One recorded event, and whose it is."""

    time_ns: int  # when it was recorded
    step: Step  # what happened
    task: int | None  # who did it; None for interrupts, kswapd, kcompactd and the machine
    lost_ns: int = 0  # what the task lost in the recording since its event in front


class ClosedLoop:
    """Takes up events on an oracle, each when its task comes to it.

    Attributes:
        over: when each event was over, ns; None before.
        order: positions of events in the order in which they were taken up.
        lags: by how much each task is late, ns.
        stalls: events that lost time in the model.
        waits: frees that waited for their allocation.
    """

    def __init__(
        self, oracle: ElasticOracle, events: Sequence[TaskEvent], *, imposes_losses: bool = False
    ) -> None:
        """Let each task's first event be due; losses are the recorded ones if imposed."""
        self.oracle = oracle
        self.events = events
        self.imposes_losses = imposes_losses
        self.over: list[int | None] = [None] * len(events)
        self.order: list[int] = []
        self.lags: Counter[int] = Counter()
        self.stalls = self.waits = 0
        self.allocations = {
            event.step.words["demand"].number: position
            for position, event in reversed(list(enumerate(events)))
            if event.step.call in REQUESTS and event.step.words["demand"].number >= 0
        }  # the event that each object is asked for by
        self.tasks = [self._task_of(event) for event in events]
        self.own_ns = self._own_times()
        self._due: list[tuple[int, int]] = []  # times and positions of events that may come
        self._waiting: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self._behind: defaultdict[int, deque[int]] = defaultdict(deque)  # by task
        for position, task in enumerate(self.tasks):
            if task is None:
                heappush(self._due, (self.own_ns[position], position))
            else:
                self._behind[task].append(position)
        for task in self._behind:
            self._let_next_come(task, 0)

    def run(self) -> Iterator[int]:
        """Take up all events; the position of each, once it is done."""
        while self._due:
            now, position = heappop(self._due)
            if self._must_wait(position):
                allocation = self.allocations[self.events[position].step.words["number"]]
                self._waiting[allocation].append((now, position))
                self.waits += 1
                continue
            self._take(now, position)
            self.order.append(position)
            yield position

    def _task_of(self, event: TaskEvent) -> int | None:
        """The task that may be late with an event, None if it comes as recorded.

        No task's are hidden allocations, and frees of failures that were tried.
        """
        call, words = event.step.call, event.step.words
        if call not in OF_TASKS or words.get("is_hidden"):
            return None
        if call == "free_object":
            asked = self.allocations.get(words["number"])
            if asked is not None and self.events[asked].step.call == "fail_object":
                return None
        return event.task

    def _own_times(self) -> list[int]:
        """Recorded times less what the event's task had lost by then."""
        lost: Counter[int] = Counter()
        own = []
        for event, task in zip(self.events, self.tasks, strict=True):
            if task is not None:
                lost[task] += event.lost_ns
            own.append(event.time_ns - (0 if task is None else lost[task]))
        return own

    def _must_wait(self, position: int) -> bool:
        """Whether an event frees what is not allocated yet."""
        step = self.events[position].step
        if step.call != "free_object" or step.words["number"] not in self.allocations:
            return False
        return self.over[self.allocations[step.words["number"]]] is None

    def _take(self, now: int, position: int) -> None:
        """Take up an event, and let come what waited for it."""
        step, task = self.events[position].step, self.tasks[position]
        lost = self._lost_by(now, position)
        self.stalls += lost > 0
        over = self.over[position] = now + lost
        for since, waiting in self._waiting.pop(position, ()):
            waiter = self.tasks[waiting]
            if task is not None and waiter is not None:
                self.lags[waiter] += over - since
            heappush(self._due, (over, waiting))
        if task is not None:
            self.lags[task] += lost
            self._let_next_come(task, over)

    def _lost_by(self, now: int, position: int) -> int:
        """What a task loses by an event, which this takes up; threads that are due come first."""
        event, memory = self.events[position], self.oracle.memory
        self.oracle.events.clear()
        self.oracle.work.clear()
        self.oracle.advance(now)
        before = memory.stall_ns
        getattr(self.oracle, event.step.call)(**event.step.words)
        if not self.imposes_losses:
            return memory.stall_ns - before
        return 0 if self.tasks[position] is None else event.lost_ns

    def _let_next_come(self, task: int, over: int) -> None:
        """Let a task go on to its next event, as the one in front of that is over."""
        if self._behind[task]:
            position = self._behind[task].popleft()
            due = max(self.own_ns[position] + self.lags[task], over)
            heappush(self._due, (due, position))
