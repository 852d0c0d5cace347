"""Checkpoints: states that replays came by, so that a later one need not begin at the start."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from threading import Lock

import numpy as np

CHUNK = 4096
"""Bytes that are kept together if one of them changed."""
COMPARED_AT_ONCE = 1 << 26
ROOM_BYTES = 256 << 20


@dataclass(frozen=True, kw_only=True, eq=False)
class Changes:
    """Numbers of an array's chunks that changed, what they hold now, and what follows the last."""

    chunks: np.ndarray
    content: np.ndarray
    rest: np.ndarray

    def put_into(self, array: np.ndarray) -> None:
        """Turn an array as it was at the start into what it became."""
        whole, rest = _chunks(array)
        whole[self.chunks] = self.content
        rest[:] = self.rest


def changes(before: np.ndarray, after: np.ndarray) -> Changes:
    """Differences between two arrays of one type and shape."""
    (old, _), (new, rest) = _chunks(before), _chunks(after)
    step = COMPARED_AT_ONCE // CHUNK
    changed = [np.zeros(0, np.int64)]
    for first in range(0, len(new), step):
        parts = (each[first : first + step].view(np.uint64) for each in (old, new))
        changed.append(first + np.flatnonzero(np.not_equal(*parts).any(axis=1)))
    chunks = np.concatenate(changed)
    return Changes(chunks=chunks, content=new[chunks], rest=rest.copy())


def _chunks(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An array's bytes as whole chunks, shape (chunks, CHUNK), and what follows them; views."""
    flat = array.reshape(-1).view(np.uint8)
    end = len(flat) // CHUNK * CHUNK
    return flat[:end].reshape(-1, CHUNK), flat[end:]


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """The progress of a replay.

    Attributes:
        time_ns: every event before this time was replayed, and every tick up to it.
        position: the event to go on with.
        arrays: what changed since the start, of each array that a replay changes.
    """

    time_ns: int
    position: int
    arrays: tuple[Changes, ...]

    @property
    def nbytes(self) -> int:
        """Memory that this takes."""
        changed = ((each.chunks, each.content, each.rest) for each in self.arrays)
        return sum(part.nbytes for columns in changed for part in columns)


class Checkpoints:
    """Checkpoints of any replays, those used last, in so many bytes; to be shared by replays."""

    def __init__(self, room: int = ROOM_BYTES) -> None:
        self._room = room
        self._lock = Lock()
        self._kept: OrderedDict[tuple[Hashable, int], Checkpoint] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """Memory that they take together."""
        return sum(each.nbytes for each in self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)

    def latest(self, key: Hashable, before_ns: int) -> Checkpoint | None:
        """The last one before a time of replays with a key, None if there is none."""
        with self._lock:
            times = [time for of, time in self._kept if of == key and time < before_ns]
            if not times:
                return None
            self._kept.move_to_end((key, max(times)))
            return self._kept[key, max(times)]

    def keep(self, key: Hashable, checkpoint: Checkpoint) -> None:
        """Add one; those not used for longest make room, or it is not kept."""
        with self._lock:
            self._kept[key, checkpoint.time_ns] = checkpoint
            while self.nbytes > self._room:
                self._kept.popitem(last=False)


class Resumption:
    """One replay's use of checkpoints.

    Attributes:
        stop_ns: when a checkpoint is to be kept.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        key: Hashable,
        arrays: tuple[np.ndarray, ...],
        before_ns: int,
    ) -> None:
        """Take notice of a replay at its start.

        Args:
            checkpoints: of this replay and others.
            key: replays share it that can go on from each other.
            arrays: all that the replay changes.
            before_ns: the time before which checkpoints are sought and kept.
        """
        self._checkpoints, self._key, self._arrays = checkpoints, key, arrays
        self._at_start: tuple[np.ndarray, ...] = ()
        self.stop_ns = before_ns - 1

    def begin(self) -> int:
        """Bring the arrays to the latest checkpoint, if any; returns the event to go on with."""
        latest = self._checkpoints.latest(self._key, self.stop_ns + 1)
        if latest is None or latest.time_ns < self.stop_ns:
            self._at_start = tuple(each.copy() for each in self._arrays)
        if latest is None:
            return 0
        for array, changed in zip(self._arrays, latest.arrays, strict=True):
            changed.put_into(array)
        return latest.position

    def note(self, time_ns: int, position: int) -> None:
        """Keep a checkpoint if this is the time for one and there is none yet."""
        if time_ns == self.stop_ns and self._at_start:
            arrays = tuple(map(changes, self._at_start, self._arrays))
            checkpoint = Checkpoint(time_ns=time_ns, position=position, arrays=arrays)
            self._checkpoints.keep(self._key, checkpoint)
            self._at_start = ()
