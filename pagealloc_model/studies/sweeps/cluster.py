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
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, Queue
from threading import Lock
from typing import TYPE_CHECKING, Any

from pagealloc_model.base.errors import ClusterError, RecordingError, UsageError
from pagealloc_model.recording.event_files import event_files_of
from pagealloc_model.recording.recording import Recording, files_of, open_recording
from pagealloc_model.studies.sweeps.records import (
    ReadyRecording,
    Record,
    Task,
    is_address,
    made_record,
    model_fingerprint,
    one_line,
    replayed_point,
)

if TYPE_CHECKING:
    from distributed import Client, Future


def packed(recording: Recording) -> bytes:
    """A tar archive of a recording's files; event files are compressed already."""
    output = io.BytesIO()
    top = recording.path.resolve().name
    with tarfile.open(fileobj=output, mode="w") as archive:
        for file in (*event_files_of(recording.event_file), *files_of(recording)):
            inside = recording.path.is_dir()
            place = f"{top}/{file.relative_to(recording.path)}" if inside else top
            archive.add(file, arcname=place)
    return output.getvalue()


def unpacked_recording(content: bytes, name: str) -> Recording:
    """The recording in an archive; its files are removed when the recording is let go.

    Args:
        content: what `packed` returned.
        name: what the recording is called.
    """
    directory = Path(tempfile.mkdtemp(prefix="pagealloc_model-recording-"))
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(directory, filter="data")
    (unpacked,) = directory.iterdir()
    recording = open_recording(unpacked.rename(directory / name))
    weakref.finalize(recording, shutil.rmtree, directory, ignore_errors=True)
    return recording


RECORDINGS_HELD = 2
"""Recordings that a worker keeps open; points of one recording come one after the other."""

_guard = Lock()
_held: OrderedDict[str, ReadyRecording] = OrderedDict()


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A worker cannot read a recording.

    Attributes:
        worker: its address.
        why: in one line.
    """

    worker: str
    why: str


def made_on_worker(task: Task, content: bytes | None, model: str) -> Record | Refusal:
    """Make a point here.

    Args:
        task: the point.
        content: its recording's files (`packed`); None where it lies at an address.
        model: fingerprint of the package where the sweep was started.

    Raises:
        ClusterError: this worker has another version of the package.
    """
    address = _own_address()
    if model_fingerprint() != model:
        raise ClusterError(
            f"worker {address} runs another version of pagealloc_model; install the same there"
        )
    recording = _recording(task, content)
    try:
        recording.opened()
    except RecordingError as error:
        return Refusal(worker=address, why=str(error))
    settings = task.settings
    return made_record(task.key, lambda: replayed_point(recording.ready(settings), settings))


def _recording(task: Task, content: bytes | None) -> ReadyRecording:
    recording = task.recording
    with _guard:
        if recording.digest not in _held:
            if content is None:
                _held[recording.digest] = ReadyRecording(recording.opened)
            else:
                _held[recording.digest] = ReadyRecording(
                    lambda: unpacked_recording(content, recording.name)
                )
            while len(_held) > RECORDINGS_HELD:
                _held.popitem(last=False)
        _held.move_to_end(recording.digest)
        return _held[recording.digest]


def _own_address() -> str:
    from distributed import get_worker

    return str(get_worker().address)


CONNECT_S = 10
LOOK_AGAIN_S = 1.0
"""How often the connection to the scheduler is looked at while no result comes."""
TRIES = 3
"""How often a point is sent out before its results count as lost with the workers."""


def made_by_cluster(tasks: Sequence[Task], client: Client | str) -> Iterator[Record]:
    """The tasks' records, in the order in which they are finished, each once.

    A worker that dies has its points made by others; one that cannot read a recording gets no more
    of that recording's points. When the iterator is closed, points not yet begun are cancelled.

    Args:
        tasks: those of one recording next to each other.
        client: a connected client, or the scheduler's address.

    Raises:
        UsageError: Dask is not installed.
        ClusterError: the scheduler cannot be reached or goes away, it has no workers, or one of
            them runs another version of this package.
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
        made = NewClient(client, timeout=CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"scheduler {client}: cannot be reached ({one_line(error)}); start one with "
            "`dask scheduler`, and workers with `dask worker ADDRESS`"
        ) from None
    try:
        yield made
    finally:
        made.close(timeout=CONNECT_S)


class _ClusterRun:
    """Points under way on a cluster.

    Args:
        client: connected.
        tasks: the points.
    """

    def __init__(self, client: Client, tasks: Sequence[Task]) -> None:
        self._client = client
        self._tasks = tasks
        self._address = str(client.scheduler.address) if client.scheduler else "scheduler"
        self._ended: Queue[Future] = Queue()
        self._under_way: dict[Future, Task] = {}
        self._sent: defaultdict[str, int] = defaultdict(int)
        self._without: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._packed: dict[str, Future] = {}
        self._finished = 0

    def records(self) -> Iterator[Record]:
        """Send everything out, then take back what comes."""
        for task in self._tasks:
            self._send(task)
        while self._under_way:
            future = self._next_ended()
            task = self._under_way.pop(future, None)
            record = None if task is None else self._outcome(task, future)
            if record is not None:
                self._finished += 1
                yield record

    def cancel(self) -> None:
        """Give up what is under way, as far as the scheduler can still be told."""
        if self._under_way and self._client.status == "running":
            self._client.cancel(list(self._under_way), force=True)
        self._under_way.clear()
        self._packed.clear()

    def _send(self, task: Task) -> None:
        """Have a point made by any worker that is not known to lack its recording."""
        lacking = self._without[task.recording.digest]
        able = [each for each in self._workers() if each not in lacking] if lacking else None
        self._sent[task.key] += 1
        with self._gone_becomes_an_error():
            future = self._client.submit(
                made_on_worker,
                replace(task, recording=replace(task.recording, recording=None)),
                self._scattered(task),
                model_fingerprint(),
                key=f"pagealloc-{task.key}-{self._sent[task.key]}-{id(self)}",
                pure=False,
                workers=able,
            )
        self._under_way[future] = task
        future.add_done_callback(self._ended.put)

    def _scattered(self, task: Task) -> Future | None:
        """The files of a recording on the workers, sent there with its first point."""
        recording = task.recording
        if is_address(recording.place):
            return None
        if recording.digest not in self._packed:
            if not self._workers():
                raise ClusterError(
                    f"scheduler {self._address} has no workers; start some with "
                    f"`dask worker {self._address}`"
                )
            content = packed(recording.opened())
            sent = self._client.scatter(content, broadcast=True, hash=False)
            self._packed[recording.digest] = sent
        return self._packed[recording.digest]

    def _workers(self) -> dict[str, int]:
        """Threads by address of each worker."""
        return dict(self._client.nthreads())

    @contextmanager
    def _gone_becomes_an_error(self) -> Iterator[None]:
        try:
            yield
        except (OSError, TimeoutError, RuntimeError, CancelledError) as error:
            raise self._gone(one_line(error)) from None

    def _next_ended(self) -> Future:
        """The next future that has a result, failed, or was lost."""
        while True:
            try:
                future = self._ended.get(timeout=LOOK_AGAIN_S)
            except Empty:
                future = None
            if self._client.status != "running":
                raise self._gone("connection lost")
            if future is not None:
                return future

    def _gone(self, why: str) -> ClusterError:
        return ClusterError(
            f"scheduler {self._address} went away after {self._finished} of {len(self._tasks)} "
            f"points ({why}); what is finished is kept: start the sweep again to go on"
        )

    def _outcome(self, task: Task, future: Future) -> Record | None:
        """A point's record; None where it was sent out again."""
        if future.status == "finished":
            with self._gone_becomes_an_error():
                result = future.result()
            return result if isinstance(result, Record) else self._refused(task, result)
        if future.status == "error":
            return self._failed(task, future.exception())
        if self._sent[task.key] < TRIES:
            self._packed.pop(task.recording.digest, None)
            self._send(task)
            return None
        return Record(key=task.key, error=f"its workers went away {TRIES} times")

    def _refused(self, task: Task, refusal: Refusal) -> Record | None:
        """Try another worker; if none is left, the point has failed."""
        lacking = self._without[task.recording.digest]
        lacking[refusal.worker] = refusal.why
        with self._gone_becomes_an_error():
            workers = self._workers()
        if any(each not in lacking for each in workers):
            self._send(task)
            return None
        return Record(key=task.key, error=f"no worker can read it; {refusal.worker}: {refusal.why}")

    def _failed(self, task: Task, error: Any) -> Record:
        from distributed.scheduler import KilledWorker

        if isinstance(error, KilledWorker):
            return Record(
                key=task.key, error=f"workers died while they made it ({one_line(error)})"
            )
        if isinstance(error, ClusterError):
            raise error
        raise ClusterError(f"a worker cannot make points: {one_line(error)}")
