"""Recordings of a sweep: how each is named, and which of them are open while points are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, RLock

from pagealloc_model.base.progress_bar import unreported
from pagealloc_model.measured.evidence.choice import choose_rules
from pagealloc_model.predicted.prepared import forget_prepared, prepare
from pagealloc_model.recording.recording import Bundle, open_recording
from pagealloc_model.studies.sweeps.fingerprint import recording_digest
from pagealloc_model.studies.sweeps.remote_files import (
    address_digest,
    address_name,
    fetched,
    is_address,
)
from pagealloc_model.studies.sweeps.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A recording to sweep over.

    Attributes:
        name: as tables show it.
        digest: of its content.
        place: its path or address.
        bundle: it, where the caller had opened it.
    """

    name: str
    digest: str
    place: str
    bundle: Bundle | None = field(default=None, compare=False)

    def opened(self) -> Bundle:
        """The recording, read on first use."""
        if self.bundle is not None:
            return self.bundle
        return open_recording(fetched(self.place) if is_address(self.place) else self.place)


def named_recording(given: Bundle | str | Path) -> Recording:
    """A recording as a sweep refers to it.

    Args:
        given: a bundle, a path, a shipped name, or an fsspec address (protocol://path).

    Raises:
        RecordingError: it cannot be opened.
    """
    if isinstance(given, str) and is_address(given):
        return Recording(name=address_name(given), digest=address_digest(given), place=given)
    if isinstance(given, Bundle):
        place, digest = str(given.path), recording_digest(given)
        return Recording(name=given.name, digest=digest, place=place, bundle=given)
    bundle = open_recording(given)
    return Recording(name=bundle.name, digest=recording_digest(bundle), place=str(bundle.path))


class ReadyRecording:
    """A recording that several threads replay: opened once, and prepared once for equal settings.

    Args:
        open_it: opens it.
    """

    def __init__(self, open_it: Callable[[], Bundle]) -> None:
        self._open_it = open_it
        self._bundle: Bundle | None = None
        self._prepared_for: tuple[object, ...] | None = None
        self._lock = RLock()

    def opened(self) -> Bundle:
        """The recording; its events are read on first use.

        Raises:
            RecordingError: it cannot be opened.
        """
        with self._lock:
            if self._bundle is None:
                self._bundle = self._open_it()
            return self._bundle

    def ready(self, settings: Settings) -> Bundle:
        """The recording, prepared; threads that need it meanwhile wait.

        What was prepared for settings that start otherwise is let go.

        Raises:
            RecordingError: it cannot be read.
            UsageError: it cannot be replayed.
        """
        with self._lock:
            bundle = self.opened()
            wanted = (settings.rules, settings.assumptions, settings.seed)
            if wanted != self._prepared_for:
                if self._prepared_for is not None:
                    forget_prepared(bundle)
                rules = choose_rules(bundle, settings.rules).rules
                prepare(bundle, rules, settings.assumptions, settings.seed, unreported)
                self._prepared_for = wanted
            return bundle


class OpenRecordings:
    """The recordings of a sweep, each let go after the last point that needs it.

    Args:
        uses: each recording once for every point that replays it.
    """

    def __init__(self, uses: Iterable[Recording]) -> None:
        self._guard = Lock()
        self._uses_left: Counter[Recording] = Counter(uses)
        self._ready = {each: ReadyRecording(each.opened) for each in self._uses_left}

    def ready(self, recording: Recording, settings: Settings) -> Bundle:
        """A recording, opened and prepared; raises what `ReadyRecording.ready` does."""
        return self._ready[recording].ready(settings)

    def used(self, recording: Recording) -> None:
        """Note that one of a recording's points is made."""
        with self._guard:
            self._uses_left[recording] -= 1
            if self._uses_left[recording] == 0:
                del self._ready[recording]
