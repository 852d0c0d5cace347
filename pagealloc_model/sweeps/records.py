"""One point's result: what it is made from, the key that it is kept by, and who makes it.

Recordings on this machine are scattered to a cluster's workers once; those at fsspec addresses are
fetched by each worker. Results come back here, where they are kept, so that workers need no common
disk.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path
from threading import Event, Lock, RLock
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pagealloc_model.base.errors import ClusterError, PageallocError, RecordingError, UsageError
from pagealloc_model.base.files import (
    opened,
    remove_temporary,
    temporary_directory,
    written_whole,
)
from pagealloc_model.base.jit import cache_directory
from pagealloc_model.base.jit.settings import numba
from pagealloc_model.base.progress_bar import Report, unreported
from pagealloc_model.base.version import __version__
from pagealloc_model.measured.rules import choose_rules
from pagealloc_model.numbers.vocabulary import sweep_row
from pagealloc_model.predicted.prepared import forget_prepared, prepare
from pagealloc_model.predicted.replay import Cancelled
from pagealloc_model.recording.event_files import digest_of, event_file_of, event_files_of
from pagealloc_model.recording.recording import Recording, files_of, open_recording
from pagealloc_model.sweeps.design import Settings

if TYPE_CHECKING:
    from distributed import Client, Future


PROVENANCE = (
    "effective_policy",
    "effective_rules",
    "decided_by",
    "assumptions",
    "lost_events",
    "version",
    "model",
)
"""Columns that say how a row was made, apart from recording, axes and time."""
PRESENTATION = ("cli", "show", "notebook")
"""Rooms that show results and cannot change them."""
IDENTITY = (
    *("ETag", "etag", "md5Hash", "md5", "version_id", "generation"),
    *("LastModified", "last_modified", "mtime", "created"),
)
"""Stores' own names for a file's content, or else the time it last changed."""

Numbers = tuple[dict[str, float], dict[str, str | int]]
"""Metrics, and values for names in `PROVENANCE`."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """A point's result, in plain values, or why it failed, in one line.

    Metrics and values for the names in `PROVENANCE` are empty for a point that failed.
    """

    key: str
    metrics: dict[str, float] = field(default_factory=dict)
    provenance: dict[str, str | int] = field(default_factory=dict)
    error: str = ""
    seconds: float = 0.0
    finished: str = ""

    @staticmethod
    def of(key: str, make: Callable[[], Numbers]) -> Record:
        """Make a result; an exception becomes the record's error, unless it is `Cancelled`."""
        begun = time.perf_counter()
        metrics, provenance, error = {}, {}, ""
        try:
            metrics, provenance = make()
        except Cancelled:
            raise
        except Exception as failure:
            error = one_line(failure)
        return Record(
            key=key,
            metrics=metrics,
            provenance=provenance,
            error=error,
            seconds=time.perf_counter() - begun,
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def one_line(failure: BaseException) -> str:
    """An error's message; errors that are not the user's also name their type."""
    words = " ".join(str(failure).split())
    if isinstance(failure, PageallocError):
        return words
    return f"{type(failure).__name__}: {words}" if words else type(failure).__name__


def replayed_point(
    recording: Recording, settings: Settings, cancel: Callable[[], bool] | None = None
) -> Numbers:
    """Replay a recording and keep the numbers; raises what `replay` does."""
    replay = settings.replayed(recording, cancel)
    recording.refuse_changed()
    assumed = dict(vars(replay.assumptions))
    elastic = vars(assumed.pop("elastic")) if replay.assumptions.reclaim == "elastic" else {}
    assumed |= {f"elastic.{name}": value for name, value in elastic.items()}
    assumed.pop("elastic", None)
    return sweep_row(replay), {
        "effective_policy": str(replay.policy),
        "effective_rules": replay.rules.spelled(),
        "decided_by": replay.kernel
        or (f"hooks {', '.join(replay.hooks)}" if replay.hooks else "model"),
        "assumptions": " ".join(f"{name}={value}" for name, value in assumed.items()),
        "lost_events": replay.losses,
        "version": __version__,
        "model": str(replay.provenance["model"]),
    }


@lru_cache(maxsize=1)
def model_fingerprint() -> str:
    """Digest of the package's sources, those of `PRESENTATION` left out, and of what runs them."""
    package = Path(__file__).parent.parent.parent
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__}".encode())
    for source in sorted(path for path in package.rglob("*") if path.suffix in (".py", ".c", ".h")):
        name = source.relative_to(package)
        if name.parts[0] not in PRESENTATION:
            digest.update(f"{name.as_posix()} {source.stat().st_size} ".encode())
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def recording_digest(recording: Recording) -> str:
    """SHA-256 of a recording's files: events, snapshots, page flags and settings.

    It is of the bytes that lie there, whatever a columnar form says that it was made from.

    Raises:
        RecordingError: a file has changed since the recording was opened.
    """
    digest = hashlib.sha256(f"events {digest_of(recording.event_file)}\n".encode())
    for file in files_of(recording):
        with opened(file, below=recording.path) as content:
            hashed = hashlib.file_digest(content, "sha256").hexdigest()
        digest.update(f"{file.relative_to(recording.path).as_posix()} {hashed}\n".encode())
    recording.refuse_changed()
    return digest.hexdigest()


def point_key(recording: str, settings: Settings) -> str:
    """Name of a result by the digest of its recording and its settings."""
    return result_key({"recording": recording, "settings": settings.spelled()})


def result_key(parts: Mapping[str, object]) -> str:
    """Name of a result of this version of the model; `parts` are all that it depends on."""
    parts = {**parts, "model": model_fingerprint()}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:40]


def load_record(directory: Path, key: str) -> Record | None:
    """A finished point; None if there is none, or its file is damaged or another user's."""
    try:
        with opened(directory / key[:2] / f"{key}.json") as file:
            is_own = os.fstat(file.fileno()).st_uid in (0, os.geteuid())
            return Record(**json.load(file)) if is_own else None
    except (RecordingError, ValueError, TypeError):
        return None


def store_record(directory: Path, record: Record) -> None:
    """Keep a finished point that did not fail; any number of processes may do so at a time."""
    if record.error:
        return
    folder = directory / record.key[:2]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with written_whole(folder / f"{record.key}.json") as partial:
            partial.write_text(json.dumps(vars(record)), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{folder}: finished points cannot be kept ({error.strerror}); name another "
            "directory, or set PAGEALLOC_CACHE"
        ) from None


def completed(
    keys: Iterable[str],
    place: str | Path | bool,
    make: Callable[[set[str]], Iterator[Record]],
    report: Report | None,
) -> tuple[dict[str, Record], int]:
    """Records by key, and how many of them were known; `make` makes those of keys that are not.

    What is made is kept at once, so that nothing is lost where an interrupt ends it: in the
    directory `place`, True for the one beside this model's compiled kernels (`PAGEALLOC_CACHE`
    moves both), False for none.
    """
    keys, directory = dict.fromkeys(keys), Path(place) if not isinstance(place, bool) else None
    if place is True:
        directory = cache_directory() / "points"
    records = {key: record for key in keys if directory and (record := load_record(directory, key))}
    known = len(records)
    with closing(make(keys.keys() - records)) as finished:
        for record in finished:
            if directory:
                store_record(directory, record)
            records[record.key] = record
            if report is not None:
                report(len(records) / len(keys))
    return records, known


def columns_of(records: Sequence[Record]) -> dict[str, object]:
    """Columns of a table with a row for each record: metrics, provenance, key and error."""
    metrics = pd.DataFrame([record.metrics for record in records])
    columns: dict[str, object] = dict(metrics.astype(float).items())
    for name in PROVENANCE:
        columns[name] = pd.array([record.provenance.get(name) for record in records])
    for name in ("seconds", "finished", "key", "error"):
        columns[name] = [getattr(record, name) for record in records]
    return columns


_fetching = Lock()
_fetched: dict[str, Path] = {}


def is_address(place: str) -> bool:
    """Tell an fsspec address from a path."""
    return "://" in place


def _stored(address: str) -> tuple[Any, str, dict[str, dict[str, Any]]]:
    """An address's file system, its path there, and what the store says of each file.

    Files go by their name below the address, "" for a single one.
    """
    try:
        from fsspec.core import url_to_fs

        system, root = url_to_fs(address)
    except ImportError as error:
        install = "addresses need fsspec; pip install '.[cluster]' in the checkout"
        raise UsageError(f"{address}: {install if error.name == 'fsspec' else error}") from None
    except ValueError as error:
        raise UsageError(f"{address}: {error}") from None
    except Exception as error:
        raise RecordingError(address, f"cannot be reached ({error})") from None
    try:
        files = system.find(root, detail=True)
    except Exception as error:
        raise RecordingError(address, f"cannot be read ({error})") from None
    if not files:
        raise RecordingError(address, "does not exist", todo="check the address and the access")
    below = len(root.rstrip("/"))
    names = {path[below:].lstrip("/"): about for path, about in files.items()}
    if odd := [name for name in names if ".." in name.split("/")]:
        raise RecordingError(address, f"has a file whose name leads out of it: {odd[0]}")
    return system, root, names


@dataclass(frozen=True, kw_only=True)
class SweptRecording:
    """A recording to sweep over."""

    name: str
    digest: str
    place: str
    recording: Recording | None = field(default=None, compare=False)

    def opened(self) -> Recording:
        """The recording, read on first use; one at an address is copied here until the end."""
        if self.recording is not None:
            return self.recording
        place = self.place
        if not is_address(place):
            recording = open_recording(place)
            if recording_digest(recording) != self.digest:
                raise RecordingError(place, "has changed since the sweep began", todo="sweep again")
            return recording
        with _fetching:
            if place not in _fetched:
                system, root, files = _stored(place)
                parent = temporary_directory()
                atexit.register(remove_temporary, parent)
                try:
                    for name in files:
                        file = parent / self.name / name
                        file.parent.mkdir(parents=True, exist_ok=True)
                        system.get_file(f"{root}/{name}" if name else root, str(file))
                except Exception as error:
                    raise RecordingError(place, f"cannot be fetched ({error})") from None
                _fetched[place] = parent / self.name
        return open_recording(_fetched[place])


def named_recording(source: Recording | str | Path) -> SweptRecording:
    """A recording, a path, a shipped name or an fsspec address as a sweep refers to it.

    An address's digest is of the names, sizes and identities of its files.
    """
    if isinstance(source, str) and is_address(source):
        hashed = hashlib.sha256()
        for name, about in sorted(_stored(source)[2].items()):
            identity = [str(about[key]) for key in IDENTITY if about.get(key)]
            hashed.update(f"{name} {about.get('size')} {' '.join(identity[:1])}\n".encode())
        return SweptRecording(
            name=source.rstrip("/").rsplit("/", 1)[-1], digest=hashed.hexdigest(), place=source
        )
    recording = source if isinstance(source, Recording) else open_recording(source)
    return SweptRecording(
        name=recording.name,
        digest=recording_digest(recording),
        place=str(recording.path),
        recording=recording if recording is source else None,
    )


def in_folders(sources: Iterable[Recording | str | Path]) -> list[Recording | str | Path]:
    """Recordings, paths and addresses; a folder of recordings stands for those in it, by name.

    Raises:
        RecordingError: one in a folder is a link: only links that a user names are followed.
    """
    found: list[Recording | str | Path] = []
    for source in sources:
        place = Path(source) if isinstance(source, str | Path) else None
        inside: list[Path] = []
        if place is not None and place.is_dir() and event_file_of(place) is None:
            folders = sorted(folder for folder in place.iterdir() if folder.is_dir())
            inside = [folder for folder in folders if event_file_of(folder) is not None]
            if linked := [folder for folder in inside if folder.is_symlink()]:
                what = "is a link in a folder of recordings; such links are not followed"
                raise RecordingError(linked[0], what, todo="name the recording itself")
        found += inside or [source]
    return found


@dataclass(kw_only=True)
class _Held:
    lock: RLock = field(default_factory=RLock)
    recording: Recording | None = None
    prepared_for: tuple[object, ...] | None = None


class HeldRecordings:
    """The last few recordings that threads replay, each opened once, and prepared for its points.

    Threads that need one meanwhile wait. A start prepared for other settings is let go.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._guard = Lock()
        self._held: OrderedDict[str, _Held] = OrderedDict()

    def ready(
        self, digest: str, open_it: Callable[[], Recording], settings: Settings | None
    ) -> Recording:
        """A recording by its digest, prepared for settings; None: only opened."""
        with self._guard:
            held = self._held.setdefault(digest, _Held())
            self._held.move_to_end(digest)
            while len(self._held) > self._most:
                self._held.popitem(last=False)
        with held.lock:
            if held.recording is None:
                held.recording = open_it()
            wanted = settings and settings.start
            if settings is not None and held.prepared_for != wanted:
                forget_prepared(held.recording)
                rules = choose_rules(held.recording, settings.rules).rules
                prepare(held.recording, rules, settings.assumptions, settings.seed, unreported)
                held.prepared_for = wanted
            return held.recording


@dataclass(frozen=True, kw_only=True)
class Task:
    """A recording to be replayed under settings; the key names the result (`point_key`)."""

    key: str
    recording: SweptRecording
    settings: Settings


def records_by_threads(tasks: Sequence[Task], workers: int | None) -> Iterator[Record]:
    """The tasks' records, in the order in which they are finished; None: a thread a CPU.

    Memory holds one state for each worker, and as many recordings: tasks of one recording are next
    to each other. When the iterator is closed, points that run are told to stop, and no other
    begins.
    """
    workers = len(os.sched_getaffinity(0)) if workers is None else workers
    held, stopped = HeldRecordings(workers), Event()

    def point(task: Task) -> Numbers:
        ready = held.ready(task.recording.digest, task.recording.opened, task.settings)
        return replayed_point(ready, task.settings, stopped.is_set)

    with ThreadPoolExecutor(workers, thread_name_prefix="sweep") as threads:
        futures = [threads.submit(Record.of, task.key, partial(point, task)) for task in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            stopped.set()
            threads.shutdown(wait=True, cancel_futures=True)


RECORDINGS_HELD = 2
"""Recordings that a worker keeps open; points of one recording come one after the other."""
CONNECT_S = 10
MADE_AGAIN = ("lost", "pending")
"""What Dask says of a point that was finished, and whose worker died with its numbers."""
RETRIES = 2
"""Times that Dask makes a point again whose recording a worker failed to fetch."""

_held = HeldRecordings(RECORDINGS_HELD)


def _unpacked(files: Mapping[str, bytes], name: str) -> Recording:
    """The recording whose files these are; they are removed when it is let go."""
    directory = temporary_directory()
    for place, content in files.items():
        file = directory / name / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    recording = open_recording(directory / name)
    weakref.finalize(recording, remove_temporary, directory)
    return recording


def _why_unreachable(address: str) -> str:
    """Why the machine that this runs on cannot reach a recording; "" where it can."""
    try:
        _stored(address)
    except PageallocError as error:
        return str(error)
    return ""


def _point_on_worker(task: Task, files: Mapping[str, bytes] | None, model: str) -> Record:
    """Make a point on the worker that this runs on.

    Raises:
        OSError: it cannot fetch the recording; Dask tries again.
    """
    from distributed import get_worker

    worker, swept, settings = get_worker().address, task.recording, task.settings
    if model_fingerprint() != model:
        raise ClusterError(
            f"worker {worker} runs another version of pagealloc_model; install the same there"
        )

    def open_it() -> Recording:
        return swept.opened() if files is None else _unpacked(files, swept.name)

    try:
        _held.ready(swept.digest, open_it, None)
    except RecordingError as error:
        raise OSError(f"{worker}: {error}") from None
    return Record.of(
        task.key,
        lambda: replayed_point(_held.ready(swept.digest, open_it, settings), settings),
    )


@contextmanager
def _connected(client: Client | str) -> Iterator[Client]:
    """A client of the cluster, closed at the end where it was made here."""
    try:
        from distributed import Client as NewClient
        from distributed.comm import get_address_host_port
    except ImportError:
        raise UsageError(
            "a sweep on a cluster needs Dask: pip install '.[cluster]' in the checkout"
        ) from None
    if not isinstance(client, str):
        yield client
        return
    try:
        get_address_host_port(client)  # of what is no address, a client would be left half made
        cluster = NewClient(client, timeout=CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"scheduler {client}: cannot be reached ({one_line(error)}); start one with "
            "`dask scheduler`, and workers with `dask worker ADDRESS`"
        ) from None
    try:
        yield cluster
    finally:
        cluster.close(timeout=CONNECT_S)


def _sent(tasks: Sequence[Task], cluster: Client) -> dict[Future, Task]:
    """Points of one recording, sent to workers that can reach it while there are any.

    Workers have a copy of a recording on this machine, and reach one at an address by themselves.
    """
    swept, able, sent = tasks[0].recording, [], None
    if is_address(swept.place):
        found = cluster.run(_why_unreachable, swept.place, on_error="return")
        able = [worker for worker, why in found.items() if not why]
        if len(able) == len(found):
            able = []  # workers that come in place of these, at other addresses, may begin too
    else:
        recording = swept.opened()
        files = {
            str(file.relative_to(recording.path)): file.read_bytes()
            for file in (*event_files_of(recording.event_file), *files_of(recording))
        }
        (sent,) = cluster.scatter([files], broadcast=True, hash=False)
    return {
        cluster.submit(
            _point_on_worker,
            replace(task, recording=replace(swept, recording=None)),
            sent,
            model_fingerprint(),
            pure=False,
            retries=RETRIES,
            workers=able or None,
            allow_other_workers=bool(able),  # where these are gone
        ): task
        for task in tasks
    }


def _outcome(task: Task, future: Future) -> Record:
    """A point's record; an error where its workers died or cannot read the recording."""
    if future.status == "finished":
        return future.result()
    if future.status == "cancelled":
        return Record(key=task.key, error="somebody cancelled it on the cluster")
    error = future.exception()
    if isinstance(error, ClusterError):
        raise error
    if isinstance(error, OSError):
        return Record(key=task.key, error=f"no worker can read it; {error}")
    if type(error).__name__ == "KilledWorker":
        return Record(key=task.key, error=f"workers died while they made it ({one_line(error)})")
    raise ClusterError(f"a worker cannot make points: {one_line(error)}")


def records_by_cluster(tasks: Sequence[Task], client: Client | str) -> Iterator[Record]:
    """The tasks' records, in the order in which they are finished, each once.

    Dask has the points of a worker that dies made by others. Workers that cannot reach a recording
    get none of its points. When the iterator is closed, points not yet begun are cancelled.
    """
    with _connected(client) as cluster:
        from distributed import as_completed as ended

        address = str(cluster.scheduler.address) if cluster.scheduler else "scheduler"
        under_way: dict[Future, Task] = {}
        finished = 0

        @contextmanager
        def reached() -> Iterator[None]:
            try:
                yield
                if cluster.status != "running":
                    raise OSError("connection lost")
            except (OSError, TimeoutError, RuntimeError, CancelledError) as error:
                raise ClusterError(
                    f"scheduler {address} went away after {finished} of {len(tasks)} points "
                    f"({one_line(error)}); what is finished is kept: start the sweep again to go on"
                ) from None

        if not cluster.nthreads():
            raise ClusterError(
                f"scheduler {address} has no workers; start some with `dask worker {address}`"
            )
        try:
            for _, of_one in groupby(tasks, key=lambda task: task.recording.digest):
                with reached():
                    under_way |= _sent(list(of_one), cluster)
            ending = ended(list(under_way), loop=cluster.loop)
            for future in ending:
                with reached():
                    if future.status in MADE_AGAIN:
                        ending.add(future)
                        continue
                    record = _outcome(under_way.pop(future), future)
                finished += 1
                yield record
        finally:
            if under_way and cluster.status == "running":
                cluster.cancel(list(under_way), force=True)
