"""The model's closed loop, with the events of an elastic oracle's (S10.10)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator.closed_loop import FOR_EVER
from pagealloc_model.predicted.closed_loop import ClosedRun, TaskOrder
from tests.allocator.elastic_driver import ElasticDriver
from tests.allocator.model_driver import OBJECTS, one_event
from tests.oracle.closed_loop import TaskEvent
from tests.oracle.elastic import ElasticOracle

MACHINE = -(1 << 40)  # stands for the task of what no task does


class ClosedDriver(ElasticDriver):
    """A state that takes up an oracle's events in closed loop."""

    def __init__(
        self,
        oracle: ElasticOracle,
        events: Sequence[TaskEvent],
        *,
        imposes_losses: bool,
        lock_ns: Sequence[int],
    ) -> None:
        super().__init__(oracle)
        failures = {
            event.step.words["demand"].number
            for event in events
            if event.step.call == "fail_object"
        }
        rows = [one_event(event.time_ns, self.event_fields(event.step)) for event in events]
        objects = np.zeros(OBJECTS, [("kind", np.int8)])
        objects["kind"] = np.where(self.places >= 0, resolved.AT_START, resolved.RECORDED)
        tasks = np.array([self._task_of(event, failures) for event in events], np.int64)
        self.order = task_order(events, tasks, lock_ns)
        demand = SimpleNamespace(events=np.concatenate(rows), objects=objects, leads=self.leads)
        self.run = ClosedRun(
            self.state, demand, self.order, imposes_stalls=imposes_losses, keeps_times=True
        )

    def advance(self, position: int) -> int:
        """Go on until one event is over, which is to be that one; when it is."""
        assert self.run.done_ns[position] == 0, "it was taken up before"
        done = 0
        while not done:
            self.state.st[at.LOG_ROWS] = 0
            done = self.run.advance(self.places, 1, FOR_EVER)
        return int(self.run.done_ns[position])

    def lags(self) -> Counter[int]:
        rows = zip(self.order.pids.tolist(), self.run.lag_ns.tolist(), strict=True)
        return Counter(dict(rows))

    def daemon_ns(self) -> Counter[str]:
        """How long kswapd and kcompactd worked, by name."""
        work = self.run.daemon_work()
        return Counter(work.groupby("cause")["ns"].sum().to_dict())

    def beside_ns(self) -> int:
        """How long tasks ran beside holds of their CPU."""
        table = self.run.beside()
        return 0 if table is None else int(table["ns"].sum())

    @property
    def is_over(self) -> bool:
        return self.run.next_ns is None

    @staticmethod
    def _task_of(event: TaskEvent, failures: set[int]) -> int:
        """Number of the task; less than 0 for what cannot be late, as in a prepared recording."""
        call, words = event.step.call, event.step.words
        if call not in ("alloc_object", "fail_object", "free_object", "use_object"):
            return MACHINE
        if words.get("is_hidden") or (call == "free_object" and words["number"] in failures):
            return MACHINE
        return -1 - event.step.cpu if event.task is None else event.task


def task_order(events: Sequence[TaskEvent], tasks: np.ndarray, lock_ns: Sequence[int]) -> TaskOrder:
    """Events by task, with each task's own time."""
    pids, number = np.unique(tasks, return_inverse=True)
    order = np.argsort(number, kind="stable")
    begins = np.concatenate([[0], np.cumsum(np.bincount(number))])
    lost_ns = np.where(tasks >= 0, [event.lost_ns for event in events], 0)
    time_ns = np.array([event.time_ns for event in events])[order]
    running = [event.running_ns for event in events if event.running_ns is not None]
    spans = zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True)
    lost = [np.cumsum(lost_ns[order[begin:end]]) for begin, end in spans]
    return TaskOrder(
        pids=pids,
        order=order,
        begins=begins,
        own_ns=time_ns - np.concatenate(lost),
        lost_ns=lost_ns,
        moves=pids >= 0,
        running_ns=np.array(running, np.int64)[order if running else slice(0)],
        lock_ps=1000 * np.array(lock_ns, np.int64),
        until_ns=events[-1].time_ns,
    )
