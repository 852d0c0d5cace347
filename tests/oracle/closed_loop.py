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

NO_OBJECT = -1


@dataclass(frozen=True, kw_only=True)
class TaskEvent:
    """One recorded event, and whose it is."""

    time_ns: int  # when it was recorded
    step: Step  # what happened
    task: int | None  # who did it; None for interrupts, kswapd, kcompactd and the machine
    lost_ns: int = 0  # what the task lost in the recording since its event in front
    running_ns: int | None = None  # what it had of CPUs since then; None where nobody knows

    @property
    def cpu(self) -> int:
        """Where it happens."""
        demand = self.step.words.get("demand")
        return self.step.cpu if demand is None else demand.cpu


def _object_of(event: TaskEvent) -> int:
    """Number of the object that an event is about, if it is about one."""
    words = event.step.words
    return words["demand"].number if "demand" in words else words.get("number", NO_OBJECT)


class ClosedLoop:
    """Takes up events on an oracle, each when its task comes to it.

    Attributes:
        over: when each event was over, ns; None before.
    """

    def __init__(
        self,
        oracle: ElasticOracle,
        events: Sequence[TaskEvent],
        *,
        imposes_losses: bool = False,
        lock_ns: Sequence[int] = (),
    ) -> None:
        """Let each task's first event be due; losses are the recorded ones if imposed.

        `lock_ns` are the costs of a hold of zone->lock: of itself, an object, a split, a merge, an
        insert and a scanned page; and of a hand-over (S11.2). None: nobody waits for it.
        """
        self.oracle = oracle
        self.events = events
        self.imposes_losses = imposes_losses
        self.over: list[int | None] = [None] * len(events)
        self.order: list[int] = []  # positions of events in the order in which they were taken up
        self.lags: Counter[int] = Counter()  # by how much each task is late, ns
        self.stalls = 0  # events that lost time in the model
        self.waited: list[int] = []  # positions of frees and uses that waited for an allocation
        self.late_by_others: set[int] = set()  # tasks that did, and were late from then on
        self.holds: dict[int, tuple[int, int]] = {}  # begin and end of each CPU's last hold
        self.shared: dict[int, int] = {}  # how long tasks ran beside a hold, by event
        self.lock_ns = () if imposes_losses else lock_ns
        self.free_at: Counter[int] = Counter()  # when each zone's lock is free, ns
        self.waits: dict[int, int] = {}  # how long tasks waited at zone->lock, by event
        oracle.log.queue.clear()
        oracle.after_step = self._queue
        self._came: set[int] = set()  # events whose time has come once
        self._over_of: dict[int, int] = {}  # when each task's latest event was over
        self._failures = {_object_of(event) for event in events if event.step.call == "fail_object"}
        asked = {_object_of(event) for event in events if event.step.call in REQUESTS}
        # objects whose allocation has not come
        self._missing = asked - {NO_OBJECT} - oracle.memory.objects.keys()
        self.tasks = [self._task_of(event) for event in events]
        lost: Counter[int | None] = Counter()
        self.own_ns = []  # recorded times less what the event's task had lost by then
        for event, task in zip(events, self.tasks, strict=True):
            lost[task] += 0 if task is None else event.lost_ns
            self.own_ns.append(event.time_ns - lost[task])
        self._due: list[tuple[int, int]] = []  # times and positions of events that may come
        # events that wait, and since when, by object
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
            event = self.events[position]
            late = self._shares_cpu(now, position)
            if late:
                heappush(self._due, (now + late, position))
                continue
            if event.step.call not in REQUESTS and _object_of(event) in self._missing:
                self._waiting[_object_of(event)].append((now, position))
                self.waited.append(position)
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
        if call == "free_object" and _object_of(event) in self._failures:
            return None
        return event.task

    def _shares_cpu(self, now: int, position: int) -> int:
        """How much later an event comes that finds its CPU held (S10.10)."""
        event, task = self.events[position], self.tasks[position]
        if self.imposes_losses or task is None or event.running_ns is None:
            return 0
        if position in self._came:
            return 0
        self._came.add(position)
        self.oracle.advance(now)
        self._note_steps()
        begin, end = self.holds.get(event.cpu, (0, 0))
        if not begin <= now < end:
            return 0
        alone_from = max(begin, self._over_of.get(task, begin))
        ran = min(event.running_ns, now - alone_from)
        late = min(ran, end - now)
        if late > 0:
            self.shared[position] = ran
            self.lags[task] += late
        return late

    def _note_steps(self) -> None:
        """Hold the CPUs on which kswapd and kcompactd worked."""
        for cpu, begin, end in self.oracle.stalled_steps:
            self._hold(cpu, begin, end)
        self.oracle.stalled_steps.clear()

    def _hold(self, cpu: int, begin: int, end: int) -> None:
        """Join a stall to what holds its CPU, or begin a new hold."""
        if begin == end:
            return
        first, last = self.holds.get(cpu, (begin, begin))
        self.holds[cpu] = (begin, end) if begin > last else (first, max(last, end))

    def _queue(self, now: int) -> int:
        """Let holds of zone->lock since the last call have it; for how long they wait (S10.10)."""
        queue, waited = self.oracle.log.queue, 0
        for zone, objects, work in queue if self.lock_ns else ():
            alone, each, split, merge, insert, scan, handoff = self.lock_ns
            begin = self.free_at[zone] + handoff if self.free_at[zone] > now else now
            waited += begin - now
            work_ns = split * work.splits + merge * work.merges + insert * work.inserts
            now = begin + max(alone + each * objects + work_ns + scan * work.scanned, 1)
            self.free_at[zone] = now
        queue.clear()
        return waited

    def _take(self, now: int, position: int) -> None:
        """Take up an event after threads that are due, and let come what waited for it."""
        task, event = self.tasks[position], self.events[position]
        self.oracle.advance(now)
        self._note_steps()
        before = self.oracle.memory.stall_ns
        getattr(self.oracle, event.step.call)(**event.step.words)
        lost = 0
        if task is not None:
            stalled = self.oracle.memory.stall_ns - before
            lost = event.lost_ns if self.imposes_losses else stalled
        self.stalls += lost > 0
        if self.oracle.memory.stall_ns > before or event.step.call.startswith("tick"):
            self.oracle.log.queue.clear()
        waited = self._queue(now)
        if task is not None and waited:
            self.waits[position] = waited
            self.lags[task] += waited
        over = self.over[position] = now + lost + (waited if task is not None else 0)
        number = _object_of(self.events[position])
        if number in self._missing:
            self._missing.remove(number)
            self._wake(number, over, by_task=task is not None)
        if task is not None:
            self._hold(event.cpu, now, now + lost)
            self._over_of[task] = over
            self.lags[task] += lost
            self._let_next_come(task, over)

    def _wake(self, number: int, over: int, *, by_task: bool) -> None:
        """Let frees and uses of an object come that waited until its allocation was over."""
        for since, position in self._waiting.pop(number, ()):
            waiter = self.tasks[position]
            if by_task and waiter is not None:
                self.lags[waiter] += over - since
                self.late_by_others.add(waiter)
            heappush(self._due, (over, position))

    def _let_next_come(self, task: int, over: int) -> None:
        """Let a task go on to its next event, as the one in front of that is over."""
        if self._behind[task]:
            position = self._behind[task].popleft()
            due = max(self.own_ns[position] + self.lags[task], over)
            heappush(self._due, (due, position))
