"""Snapshot: the state files of /proc as they were at one instant of a recording."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.files import copy_file, is_given, text_of
from pagealloc_model.recording.proc import counts
from pagealloc_model.recording.proc.zoneinfo import ZoneInfo, parse_zoneinfo

SNAPSHOT_FILES = ("buddyinfo", "pagetypeinfo", "zoneinfo", "vmstat")
KNOWN_FILES = (*SNAPSHOT_FILES, counts.READ_TIMES_FILE)

_State = TypeVar(
    "_State", counts.BuddyInfo, counts.PageTypeInfo, ZoneInfo, counts.VmStat, counts.ReadTimes
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot:
    """State files read one after the other; each is parsed on first use and kept.

    A file that is absent or cannot be parsed is None; `problems` says why.

    Attributes:
        time_ns: CLOCK_MONOTONIC at the start of the read.
        directory: where the files are.
    """

    time_ns: int
    directory: Path
    _problems: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def buddyinfo(self) -> counts.BuddyInfo | None:
        """Free buddies by order."""
        return self._parse("buddyinfo", counts.parse_buddyinfo)

    @cached_property
    def pagetypeinfo(self) -> counts.PageTypeInfo | None:
        """Free lists and pageblocks by type."""
        return self._parse("pagetypeinfo", counts.parse_pagetypeinfo)

    @cached_property
    def zoneinfo(self) -> ZoneInfo | None:
        """Zones and per-CPU lists."""
        return self._parse("zoneinfo", parse_zoneinfo)

    @cached_property
    def vmstat(self) -> counts.VmStat | None:
        """Counters."""
        return self._parse("vmstat", counts.parse_vmstat)

    @cached_property
    def read_ns(self) -> counts.ReadTimes | None:
        """CLOCK_MONOTONIC before and after each file's own read; old recordings lack it."""
        return self._parse(counts.READ_TIMES_FILE, counts.parse_read_times)

    @cached_property
    def problems(self) -> Mapping[str, str]:
        """Files that are there but cannot be used: file name -> the error in one line."""
        for name in (*SNAPSHOT_FILES, "read_ns"):
            getattr(self, name)
        return self._problems

    def names(self) -> list[str]:
        """Names of all that its directory holds."""
        return sorted(os.listdir(self.directory))

    def has(self, name: str) -> bool:
        """Whether the file was copied, readable or not."""
        return is_given(self.directory / name)

    def text(self, name: str) -> str | None:
        """A file's text, None if it cannot be read; `problems` then says why."""
        path = self.directory / name
        todo = "copy the file from /proc again"
        try:
            return text_of(path, "ascii", todo=todo, below=self.directory.parents[1])
        except RecordingError as error:
            self._problems[name] = str(error)
            return None

    def copy_to(self, destination: Path) -> tuple[str, ...]:
        """Copy the state files into a new directory; returns names of all else, which is left."""
        destination.mkdir(parents=True)
        left = [name for name in self.names() if name not in KNOWN_FILES]
        for name in self.names():
            if name in KNOWN_FILES:
                copy, below = destination / name, self.directory.parents[1]
                try:
                    copy_file(self.directory / name, copy, below=below)
                except RecordingError:
                    copy.unlink(missing_ok=True)
                    left.append(name)
        return tuple(left)

    def _parse(self, name: str, parser: Callable[[str, Path], _State]) -> _State | None:
        text = self.text(name) if self.has(name) else None
        try:
            return None if text is None else parser(text, self.directory / name)
        except RecordingError as error:
            self._problems[name] = str(error)
            return None
