"""Points made by the workers of a Dask cluster.

Recordings on this machine are scattered to the workers once; those at fsspec addresses are fetched
by each worker. Results come back here, where they are kept, so that workers need no common disk.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pagealloc_model.base.errors import ClusterError, RecordingError, UsageError
from pagealloc_model.recording.event_files import event_files_of
from pagealloc_model.recording.recording import Recording, files_of, open_recording
from pagealloc_model.studies.sweeps.records import (
    HeldRecordings,
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
TRIES = 3
"""How often a point is sent out before its results count as lost with the workers."""

_held = HeldRecordings(RECORDINGS_HELD)
Refusal = tuple[str, str]
"""A worker's address, and why it cannot read a recording."""


def _unpacked(files: Mapping[str, bytes], name: str) -> Recording:
    """The recording whose files these are; they are removed when it is let go."""
    directory = Path(tempfile.mkdtemp(prefix="pagealloc_model-recording-"))
    for place, content in files.items():
        file = directory / name / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    recording = open_recording(directory / name)
    weakref.finalize(recording, shutil.rmtree, directory, ignore_errors=True)
    return recording


def _point_on_worker(task: Task, files: Mapping[str, bytes] | None, model: str) -> Record | Refusal:
    """Make a point on the worker that this runs on."""
    from distributed import get_worker

    address, swept = str(get_worker().address), task.recording
    if model_fingerprint() != model:
        raise ClusterError(
            f"worker {address} runs another version of pagealloc_model; install the same there"
        )

    def open_it() -> Recording:
        return swept.opened() if files is None else _unpacked(files, swept.name)

    try:
        _held.ready(swept.digest, open_it, None)
    except RecordingError as error:
        return address, str(error)
    settings = task.settings
    return Record.of(
        task.key,
        lambda: replayed_point(_held.ready(swept.digest, open_it, settings), settings),
    )


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


def records_by_cluster(tasks: Sequence[Task], client: Client | str) -> Iterator[Record]:
    """The tasks' records, in the order in which they are finished, each once.

    A worker that dies has its points made by others; one that cannot read a recording gets no more
    of that recording's points. When the iterator is closed, points not yet begun are cancelled.
    """
    with _connected(client) as cluster:
        from distributed import as_completed
        from distributed.scheduler import KilledWorker

        address = str(cluster.scheduler.address) if cluster.scheduler else "scheduler"
        coming = as_completed(loop=cluster.loop)
        under_way: dict[Future, Task] = {}
        scattered: dict[str, Future] = {}
        lacking: defaultdict[str, set[str]] = defaultdict(set)
        tries: Counter[str] = Counter()
        finished = 0

        def gone(why: str) -> ClusterError:
            return ClusterError(
                f"scheduler {address} went away after {finished} of {len(tasks)} "
                f"points ({why}); what is finished is kept: start the sweep again to go on"
            )

        @contextmanager
        def reached() -> Iterator[None]:
            try:
                yield
            except (OSError, TimeoutError, RuntimeError, CancelledError) as error:
                raise gone(one_line(error)) from None

        def send(task: Task) -> None:
            """Have a point made by any worker that is not known to lack its recording."""
            swept, without = task.recording, lacking[task.recording.digest]
            able = [name for name in cluster.nthreads() if name not in without] if without else None
            tries[task.key] += 1
            with reached():
                if not is_address(swept.place) and swept.digest not in scattered:
                    if not cluster.nthreads():
                        raise ClusterError(
                            f"scheduler {address} has no workers; start some with "
                            f"`dask worker {address}`"
                        )
                    recording = swept.opened()
                    files = {
                        str(file.relative_to(recording.path)): file.read_bytes()
                        for file in (*event_files_of(recording.event_file), *files_of(recording))
                    }
                    (sent,) = cluster.scatter([files], broadcast=True, hash=False)
                    scattered[swept.digest] = sent
                future = cluster.submit(
                    _point_on_worker,
                    replace(task, recording=replace(swept, recording=None)),
                    scattered.get(swept.digest),
                    model_fingerprint(),
                    key=f"pagealloc-{task.key}-{tries[task.key]}-{id(under_way)}",
                    pure=False,
                    workers=able,
                )
            under_way[future] = task
            coming.add(future)

        def outcome(task: Task, future: Future) -> Record | None:
            """A point's record; None where it was sent out again."""
            if future.status == "error":
                error = future.exception()
                if isinstance(error, KilledWorker):
                    why = f"workers died while they made it ({one_line(error)})"
                    return Record(key=task.key, error=why)
                if isinstance(error, ClusterError):
                    raise error
                raise ClusterError(f"a worker cannot make points: {one_line(error)}")
            if future.status != "finished":
                if tries[task.key] >= TRIES:
                    return Record(key=task.key, error=f"its workers went away {TRIES} times")
                scattered.pop(task.recording.digest, None)
                send(task)
                return None
            with reached():
                result = future.result()
                if isinstance(result, Record):
                    return result
                worker, why = result
                lacking[task.recording.digest].add(worker)
                others = set(cluster.nthreads()) - lacking[task.recording.digest]
            if others:
                send(task)
                return None
            return Record(key=task.key, error=f"no worker can read it; {worker}: {why}")

        try:
            for task in tasks:
                send(task)
            for future in coming:
                if cluster.status != "running":
                    raise gone("connection lost")
                record = outcome(under_way.pop(future), future)
                if record is not None:
                    finished += 1
                    yield record
        finally:
            if under_way and cluster.status == "running":
                cluster.cancel(list(under_way), force=True)
