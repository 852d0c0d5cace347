"""What a worker of a cluster does: keep the last recordings at hand, and make points."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

from pagealloc_model.base.errors import ClusterError, RecordingError
from pagealloc_model.studies.sweeps.fingerprint import model_fingerprint
from pagealloc_model.studies.sweeps.packing import unpacked_recording
from pagealloc_model.studies.sweeps.record import Record, made_record, replayed_point
from pagealloc_model.studies.sweeps.recordings import ReadyRecording
from pagealloc_model.studies.sweeps.task import Task

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
