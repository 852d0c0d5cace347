"""Which thread each event of a demand is of, in traces written by hand."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.predicted.demand.event_order import new_events
from pagealloc_model.predicted.demand.threads import threads_of
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Trace

ROWS = (
    *((10, 0, 7, 0), (20, 1, 8, 0), (20, 0, 9, 0), (20, 2, 7, 1)),
    *((30, 3, 40, 0), (40, 0, 41, 0), (50, 1, 8, 0)),
)
"""Time, CPU, thread, in an interrupt."""


def threads(*events: tuple[int, int, int]) -> list[int]:
    """Of events, each an operation, a time and a CPU."""
    columns = {name: np.zeros(len(ROWS), kind) for name, kind in COLUMN_TYPES.items()}
    given = ("time_ns", "cpu", "pid", "in_interrupt")
    columns |= zip(given, np.array(ROWS).T, strict=True)
    trace = Trace(**columns, comms={40: "kswapd0", 41: "kcompactd1", 8: "make"})
    operations, time_ns, cpus = zip(*events, strict=True)
    made = new_events(at.ALLOC, len(events), time_ns=time_ns, cpu=cpus)
    made["operation"] = operations
    return threads_of(trace, made).tolist()


def test_the_thread_is_of_the_row_at_that_time_on_that_cpu() -> None:
    assert threads((at.ALLOC, 10, 0), (at.FREE, 20, 0), (at.USE, 20, 1)) == [7, 9, 8]
    assert threads((at.RECORDED_FAILURE, 50, 1)) == [8]


def test_in_an_interrupt_the_cpu_stands_for_the_task() -> None:
    assert threads((at.ALLOC, 20, 2)) == [-3]


def test_what_no_task_does_is_of_one_thread() -> None:
    """What no row shows, what is neither asked for nor freed, and the daemons' work."""
    unseen, at_no_row, late = (at.ALLOC, 10, 1), (at.ALLOC, 15, 0), (at.FREE, 60, 1)
    daemons = ((at.ALLOC, 30, 3), (at.FREE, 40, 0))
    found = threads(unseen, at_no_row, late, (at.HIDDEN_ALLOC, 10, 0), (at.TICK, 20, 1), *daemons)
    assert len({*found}) == 1
    assert found[0] not in {pid for _, _, pid, _ in ROWS} | {-1 - cpu for cpu in range(1024)}
