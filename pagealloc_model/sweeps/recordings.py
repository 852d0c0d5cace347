"""Recordings of a sweep: how each is named, and which of them are open while points are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from pagealloc_model.bundle import Bundle, open_recording
from pagealloc_model.evidence.choice import choose_rules
from pagealloc_model.prepared import forget_prepared, prepare
from pagealloc_model.sweeps.fingerprint import recording_digest
from pagealloc_model.sweeps.remote_files import (
    address_digest,
    address_name,
    fetched,
    is_address,
)
from pagealloc_model.sweeps.settings import Settings


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


class OpenRecordings:
    """Recordings that threads replay: each is opened and prepared once, and let go when done.

    Args:
        uses: each recording once for every point that replays it.
    """

    def __init__(self, uses: Iterable[Recording]) -> None:
        self._guard = Lock()
        self._entries: dict[str, _Entry] = {}
        for recording in uses:
            self._entries.setdefault(recording.digest, _Entry(recording)).uses_left += 1

    def opener(self, recording: Recording, settings: Settings) -> Callable[[], Bundle]:
        """What opens a recording, ready to be replayed; threads that need the same one wait."""
        return lambda: self._entries[recording.digest].ready(settings)

    def used(self, recording: Recording) -> None:
        """Note that one of a recording's points is made."""
        with self._guard:
            entry = self._entries[recording.digest]
            entry.uses_left -= 1
            if entry.uses_left == 0:
                entry.let_go()


class _Entry:
    """A recording, how many points still need it, and what was last prepared of it."""

    def __init__(self, recording: Recording) -> None:
        self.uses_left = 0
        self._recording = recording
        self._bundle: Bundle | None = None
        self._prepared_for: tuple[object, ...] | None = None
        self._lock = Lock()

    def ready(self, settings: Settings) -> Bundle:
        with self._lock:
            if self._bundle is None:
                self._bundle = self._recording.opened()
            wanted = (settings.rules, settings.assumptions, settings.seed)
            if wanted != self._prepared_for:
                if self._prepared_for is not None:
                    forget_prepared(self._bundle)
                rules = choose_rules(self._bundle, settings.rules).rules
                prepare(self._bundle, rules, settings.assumptions, settings.seed, _unseen)
                self._prepared_for = wanted
            return self._bundle

    def let_go(self) -> None:
        self._bundle = None
        self._prepared_for = None


def _unseen(share: float) -> None:
    """Preparing's own progress, which the sweep's bar stands for."""
