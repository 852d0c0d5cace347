"""A recording in the making: under a temporary name until it is whole, then its owner's."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from pagealloc_model.base.errors import UsageError

_MOST_RESERVED = 64 << 20
_RESERVED_SHARE = 10
_UNWRITTEN = 3


class Workspace:
    """A directory beside the destination that is gone afterwards, unless it was kept.

    Args:
        destination: the recording's final name, which must not exist.

    Attributes:
        recording: the directory to fill.
        log: a file beside it, for what perf says.
    """

    def __init__(self, destination: Path) -> None:
        self.destination = destination.absolute()
        self._keeps = False
        if os.path.lexists(self.destination):
            raise UsageError(f"{destination} exists; name a new directory with -o")
        if not self.destination.name:
            raise UsageError(f"{destination} is no name for a directory; name a new one with -o")

    def __enter__(self) -> Workspace:
        parent = self.destination.parent
        self._new_parents = [each for each in (parent, *parent.parents) if not each.exists()]
        try:
            parent.mkdir(parents=True, exist_ok=True)
            self._top = Path(tempfile.mkdtemp(prefix=f".{self.destination.name}.", dir=parent))
        except OSError as error:
            raise UsageError(
                f"{self.destination}: cannot be made ({error.strerror}); name another place with -o"
            ) from None
        self.recording = self._top / self.destination.name
        self.recording.mkdir()
        self.log = self._top / "perf.log"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._keeps:
            return
        shutil.rmtree(self._top, ignore_errors=True)
        if not self.destination.exists():
            for directory in self._new_parents:
                with contextlib.suppress(OSError):  # somebody else may use it by now
                    directory.rmdir()

    def second(self) -> Path:
        """A name for another version of the recording, which `keep` may be given."""
        directory = self._top / "second"
        directory.mkdir()
        return directory / self.destination.name

    def nearly_full(self, recent: int) -> bool:
        """Whether the disk has little more than what perf and the rest may need to finish.

        Args:
            recent: bytes perf wrote last; it may hold several times as much.
        """
        usage = shutil.disk_usage(self._top)
        reserved = min(_MOST_RESERVED, usage.total // _RESERVED_SHARE)
        return usage.free < reserved + _UNWRITTEN * recent

    def keep(self, recording: Path, owner: tuple[int, int] | None) -> None:
        """Give a finished recording its owner and its name.

        Raises:
            UsageError: the name was taken meanwhile.
        """
        if owner is not None:
            _hand_over(recording, owner)
            for directory in self._new_parents:
                os.chown(directory, *owner)
        try:
            recording.rename(self.destination)
        except OSError as error:
            self._keeps = True
            raise UsageError(
                f"{self.destination} was made by something else meanwhile ({error.strerror}); "
                f"the recording is whole, in {recording}"
            ) from None


def calling_user(environment: Mapping[str, str], user: int) -> tuple[int, int] | None:
    """User and group that called sudo, None if it was not used to become root."""
    words = environment.get("SUDO_UID", ""), environment.get("SUDO_GID", "")
    if user != 0 or not all(word.isdecimal() for word in words):
        return None
    return int(words[0]), int(words[1])


def _hand_over(directory: Path, owner: tuple[int, int]) -> None:
    for top, _, files in os.walk(directory):
        os.chown(top, *owner)
        for name in files:
            os.chown(Path(top) / name, *owner, follow_symlinks=False)
