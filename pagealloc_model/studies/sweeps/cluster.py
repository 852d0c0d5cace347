"""Points made by the workers of a Dask cluster.

Recordings on this machine are scattered to the workers once; those at fsspec addresses are fetched
by each worker. Results come back here, where they are kept, so that workers need no common disk.
"""

from __future__ import annotations

import io
import shutil
import tarfile
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, Queue
from typing import TYPE_CHECKING

from pagealloc_model.base.errors import ClusterError, RecordingError, UsageError
from pagealloc_model.recording.event_files import event_files_of
from pagealloc_model.recording.recording import Recording, files_of, open_recording
from pagealloc_model.studies.sweeps.records import (
    HeldRecordings,
    Numbers,
    Record,
    Task,
    is_address,
    model_fingerprint,
    one_line,
    replayed_point,
)

if TYPE_CHECKING:
    from distributed import Client, Future

RECORDINGS_HELD = 2
"""Recordings that a worker keeps open; points of one recording come one after the other."""
CONNECT_S = 10
LOOK_AGAIN_S = 1.0
"""How often the connection to the scheduler is looked at while no result comes."""
TRIES = 3
"""How often a point is sent out before its results count as lost with the workers."""

_held = HeldRecordings(RECORDINGS_HELD)


def _packed(recording: Recording) -> bytes:
    """A tar archive of a recording's files; event files are compressed already."""
    output = io.BytesIO()
    top = recording.path.resolve().name
    with tarfile.open(fileobj=output, mode="w") as archive:
        for file in (*event_files_of(recording.event_file), *files_of(recording)):
            inside = recording.path.is_dir()
            place = f"{top}/{file.relative_to(recording.path)}" if inside else top
            archive.add(file, arcname=place)
    return output.getvalue()


def _unpacked(content: bytes, name: str) -> Recording:
    """The recording in an archive; its files are removed when the recording is let go."""
    directory = Path(tempfile.mkdtemp(prefix="pagealloc_model-recording-"))
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(directory, filter="data")
    (unpacked,) = directory.iterdir()
    recording = open_recording(unpacked.rename(directory / name))
    weakref.finalize(recording, shutil.rmtree, directory, ignore_errors=True)
    return recording


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A worker, by its address, cannot read a recording, and why."""

    worker: str
    why: str


def point_on_worker(task: Task, content: bytes | None, model: str) -> Record | Refusal:
    """Make a point on the worker that this runs on."""
    from distributed import get_worker

    address, swept = str(get_worker().address), task.recording
    if model_fingerprint() != model:
        raise ClusterError(
            f"worker {address} runs another version of pagealloc_model; install the same there"
        )

    def open_it() -> Recording:
        return swept.opened() if content is None else _unpacked(content, swept.name)

    def point() -> Numbers:
        return replayed_point(_held.ready(swept.digest, open_it, task.settings), task.settings)

    try:
        _held.ready(swept.digest, open_it, None)
    except RecordingError as error:
        return Refusal(worker=address, why=str(error))
    return Record.of(task.key, point)


def records_by_cluster(tasks: Sequence[Task], client: Client | str) -> Iterator[Record]:
    """The tasks' records, in the order in which they are finished, each once.

    A worker that dies has its points made by others; one that cannot read a recording gets no more
    of that recording's points. When the iterator is closed, points not yet begun are cancelled.
    """
    with _connected(client) as connection:
        run = _ClusterRun(connection, tasks)
        try:
            yield from run.records()
        finally:
            run.cancel()


@contextmanager
def _connected(client: Client | str) -> Iterator[Client]:
    """The client itself, or one for an address, closed at the end."""
    if not isinstance(client, str):
        yield client
        return
    try:
        from distributed import Client as NewClient
    except ImportError:
        raise UsageError(
            "a sweep on a cluster needs Dask: pip install '.[cluster]' in the checkout"
        ) from None
    try:
        own = NewClient(client, timeout=CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"scheduler {client}: cannot be reached ({one_line(error)}); start one with "
            "`dask scheduler`, and workers with `dask worker ADDRESS`"
        ) from None
    try:
        yield own
    finally:
        own.close(timeout=CONNECT_S)


class _ClusterRun:
    """Points under way on a cluster."""

    def __init__(self, client: Client, tasks: Sequence[Task]) -> None:
        self._client = client
        self._tasks = tasks
        self._address = str(client.scheduler.address) if client.scheduler else "scheduler"
        self._ended: Queue[Future] = Queue()
        self._under_way: dict[Future, Task] = {}
        self._sent: defaultdict[str, int] = defaultdict(int)
        self._lacking: defaultdict[str, set[str]] = defaultdict(set)
        self._scattered: dict[str, Future] = {}
        self._finished = 0

    def records(self) -> Iterator[Record]:
        """Send everything out, then take back what comes."""
        for task in self._tasks:
            self._send(task)
        while self._under_way:
            try:
                future = self._ended.get(timeout=LOOK_AGAIN_S)
            except Empty:
                future = None
            if self._client.status != "running":
                raise self._gone("connection lost")
            task = self._under_way.pop(future, None) if future is not None else None
            record = self._outcome(task, future) if task is not None else None
            if record is not None:
                self._finished += 1
                yield record

    def cancel(self) -> None:
        """Give up what is under way, as far as the scheduler can still be told."""
        if self._under_way and self._client.status == "running":
            self._client.cancel(list(self._under_way), force=True)
        self._under_way.clear()
        self._scattered.clear()

    def _send(self, task: Task) -> None:
        """Have a point made by any worker that is not known to lack its recording.

        The files of a recording on this machine are scattered with its first point.
        """
        swept = task.recording
        lacking = self._lacking[swept.digest]
        able = [worker for worker in self._workers() if worker not in lacking] if lacking else None
        self._sent[task.key] += 1
        with self._gone_becomes_an_error():
            if not is_address(swept.place) and swept.digest not in self._scattered:
                if not self._workers():
                    raise ClusterError(
                        f"scheduler {self._address} has no workers; start some with "
                        f"`dask worker {self._address}`"
                    )
                content = _packed(swept.opened())
                sent = self._client.scatter(content, broadcast=True, hash=False)
                self._scattered[swept.digest] = sent
            future = self._client.submit(
                point_on_worker,
                replace(task, recording=replace(swept, recording=None)),
                self._scattered.get(swept.digest),
                model_fingerprint(),
                key=f"pagealloc-{task.key}-{self._sent[task.key]}-{id(self)}",
                pure=False,
                workers=able,
            )
        self._under_way[future] = task
        future.add_done_callback(self._ended.put)

    def _workers(self) -> list[str]:
        return list(self._client.nthreads())

    @contextmanager
    def _gone_becomes_an_error(self) -> Iterator[None]:
        try:
            yield
        except (OSError, TimeoutError, RuntimeError, CancelledError) as error:
            raise self._gone(one_line(error)) from None

    def _gone(self, why: str) -> ClusterError:
        return ClusterError(
            f"scheduler {self._address} went away after {self._finished} of {len(self._tasks)} "
            f"points ({why}); what is finished is kept: start the sweep again to go on"
        )

    def _outcome(self, task: Task, future: Future) -> Record | None:
        """A point's record; None where it was sent out again."""
        if future.status == "error":
            from distributed.scheduler import KilledWorker

            error = future.exception()
            if isinstance(error, KilledWorker):
                why = f"workers died while they made it ({one_line(error)})"
                return Record(key=task.key, error=why)
            if isinstance(error, ClusterError):
                raise error
            raise ClusterError(f"a worker cannot make points: {one_line(error)}")
        if future.status != "finished":
            if self._sent[task.key] >= TRIES:
                return Record(key=task.key, error=f"its workers went away {TRIES} times")
            self._scattered.pop(task.recording.digest, None)
            self._send(task)
            return None
        with self._gone_becomes_an_error():
            result = future.result()
            workers = self._workers() if isinstance(result, Refusal) else []
        if isinstance(result, Record):
            return result
        lacking = self._lacking[task.recording.digest]
        lacking.add(result.worker)
        if set(workers) - lacking:
            self._send(task)
            return None
        return Record(key=task.key, error=f"no worker can read it; {result.worker}: {result.why}")
