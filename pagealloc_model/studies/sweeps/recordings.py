"""Recordings of a sweep: how each is named, and which of them are open while points are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, RLock

from pagealloc_model.base.progress_bar import unreported
from pagealloc_model.measured.rules import choose_rules
from pagealloc_model.predicted.prepared import forget_prepared, prepare
from pagealloc_model.recording.recording import Recording, open_recording
from pagealloc_model.studies.sweeps.fingerprint import recording_digest
from pagealloc_model.studies.sweeps.remote_files import (
    address_digest,
    address_name,
    fetched,
    is_address,
)
from pagealloc_model.studies.sweeps.settings import Settings


@dataclass(frozen=True, kw_only=True)
class SweptRecording:
    """A recording to sweep over.

    Attributes:
        name: as tables show it.
        digest: of its content.
        place: its path or address.
        recording: it, where the caller had opened it.
    """

    name: str
    digest: str
    place: str
    recording: Recording | None = field(default=None, compare=False)

    def opened(self) -> Recording:
        """The recording, read on first use."""
        if self.recording is not None:
            return self.recording
        return open_recording(fetched(self.place) if is_address(self.place) else self.place)


def named_recording(given: Recording | str | Path) -> SweptRecording:
    """A recording as a sweep refers to it.

    Args:
        given: a recording, a path, a shipped name, or an fsspec address (protocol://path).

    Raises:
        RecordingError: it cannot be opened.
    """
    if isinstance(given, str) and is_address(given):
        return SweptRecording(name=address_name(given), digest=address_digest(given), place=given)
    if isinstance(given, Recording):
        place, digest = str(given.path), recording_digest(given)
        return SweptRecording(name=given.name, digest=digest, place=place, recording=given)
    recording = open_recording(given)
    return SweptRecording(
        name=recording.name, digest=recording_digest(recording), place=str(recording.path)
    )


class ReadyRecording:
    """A recording that several threads replay: opened once, and prepared once for equal settings.

    Args:
        open_it: opens it.
    """

    def __init__(self, open_it: Callable[[], Recording]) -> None:
        self._open_it = open_it
        self._recording: Recording | None = None
        self._prepared_for: tuple[object, ...] | None = None
        self._lock = RLock()

    def opened(self) -> Recording:
        """The recording; its events are read on first use.

        Raises:
            RecordingError: it cannot be opened.
        """
        with self._lock:
            if self._recording is None:
                self._recording = self._open_it()
            return self._recording

    def ready(self, settings: Settings) -> Recording:
        """The recording, prepared; threads that need it meanwhile wait.

        What was prepared for settings that start otherwise is let go.

        Raises:
            RecordingError: it cannot be read.
            UsageError: it cannot be replayed.
        """
        with self._lock:
            recording = self.opened()
            wanted = (settings.rules, settings.assumptions, settings.seed)
            if wanted != self._prepared_for:
                if self._prepared_for is not None:
                    forget_prepared(recording)
                rules = choose_rules(recording, settings.rules).rules
                prepare(recording, rules, settings.assumptions, settings.seed, unreported)
                self._prepared_for = wanted
            return recording


class OpenRecordings:
    """The recordings of a sweep, each let go after the last point that needs it.

    Args:
        uses: each recording once for every point that replays it.
    """

    def __init__(self, uses: Iterable[SweptRecording]) -> None:
        self._guard = Lock()
        self._uses_left: Counter[SweptRecording] = Counter(uses)
        self._ready = {each: ReadyRecording(each.opened) for each in self._uses_left}

    def ready(self, recording: SweptRecording, settings: Settings) -> Recording:
        """A recording, opened and prepared; raises what `ReadyRecording.ready` does."""
        return self._ready[recording].ready(settings)

    def used(self, recording: SweptRecording) -> None:
        """Note that one of a recording's points is made."""
        with self._guard:
            self._uses_left[recording] -= 1
            if self._uses_left[recording] == 0:
                del self._ready[recording]
