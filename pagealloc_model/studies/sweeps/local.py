"""Results made by threads of this process: replays release the GIL and share one trace."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from threading import Event

from pagealloc_model.base.errors import UsageError
from pagealloc_model.studies.sweeps.record import Made, Record, made_record, replayed_point
from pagealloc_model.studies.sweeps.recordings import OpenRecordings
from pagealloc_model.studies.sweeps.task import Task

Job = Callable[[Callable[[], bool]], Made]
"""Makes a result; it is handed what says that it should stop."""


def default_workers() -> int:
    """One thread for each CPU that this process may use."""
    return len(os.sched_getaffinity(0))


def made_by_threads(tasks: Sequence[Task], workers: int) -> Iterator[Record]:
    """The tasks' records, in the order in which they are finished.

    Memory holds one state for each worker, and the recordings whose points are being made.

    Args:
        tasks: those of one recording next to each other.
        workers: threads.

    Raises:
        UsageError: less than one worker.
    """
    recordings = OpenRecordings(task.recording for task in tasks)

    def job(task: Task) -> Job:
        def made(cancel: Callable[[], bool]) -> Made:
            try:
                ready = recordings.ready(task.recording, task.settings)
                return replayed_point(ready, task.settings, cancel)
            finally:
                recordings.used(task.recording)

        return made

    return records_of({task.key: job(task) for task in tasks}, workers)


def records_of(jobs: dict[str, Job], workers: int) -> Iterator[Record]:
    """Records of jobs by key, in the order in which they are finished.

    When the iterator is closed, jobs that run are told to stop, and no other begins.

    Args:
        jobs: what makes each result, by its key.
        workers: threads.

    Raises:
        UsageError: less than one worker.
    """
    if workers < 1:
        raise UsageError(f"{workers} workers: a sweep needs at least one")
    stopped = Event()

    def record(key: str, job: Job) -> Record:
        return made_record(key, lambda: job(stopped.is_set))

    with ThreadPoolExecutor(workers, thread_name_prefix="sweep") as threads:
        futures = [threads.submit(record, key, job) for key, job in jobs.items()]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            stopped.set()
            threads.shutdown(wait=True, cancel_futures=True)
