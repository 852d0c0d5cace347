"""Points made by threads of this process: replays release the GIL and share one trace."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from threading import Event

from pagealloc_model.errors import UsageError
from pagealloc_model.sweeps.record import Record, made_record
from pagealloc_model.sweeps.recordings import OpenRecordings
from pagealloc_model.sweeps.task import Task


def default_workers() -> int:
    """One thread for each CPU that this process may use."""
    return len(os.sched_getaffinity(0))


def made_by_threads(tasks: Sequence[Task], workers: int) -> Iterator[Record]:
    """The tasks' records, in the order in which they are finished.

    Memory holds one state for each worker, and the recordings whose points are being made. When the
    iterator is closed, replays that run are told to stop.

    Args:
        tasks: those of one recording next to each other.
        workers: threads.

    Raises:
        UsageError: less than one worker.
    """
    if workers < 1:
        raise UsageError(f"{workers} workers: a sweep needs at least one")
    stopped = Event()
    recordings = OpenRecordings(task.recording for task in tasks)

    def made(task: Task) -> Record:
        opener = recordings.opener(task.recording, task.settings)
        try:
            return made_record(task.key, opener, task.settings, cancel=stopped.is_set)
        finally:
            recordings.used(task.recording)

    with ThreadPoolExecutor(workers, thread_name_prefix="sweep") as threads:
        futures = [threads.submit(made, task) for task in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            stopped.set()
            threads.shutdown(wait=True, cancel_futures=True)
