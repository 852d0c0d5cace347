"""What a user asks of a recording, and what comes of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pagealloc_model.base.errors import UsageError

USUAL_EVENTS = "default"
SHORTEST_INTERVAL_S = 0.02

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SMALLEST_BUFFER = 1 << 16


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """One call of `pagealloc record`.

    Attributes:
        destination: directory to create.
        command: command to run while recording; () for none.
        seconds: length of the recording; None: until the command ends or a signal arrives.
        events: event names and patterns, `USUAL_EVENTS` for the usual set.
        locks: whether to record lock contention.
        probes: whether to set kprobes; None: where the kernel permits it.
        profile: whether to profile the machine, untraced, after the recording.
        anonymise: whether to remove what names the machine or its programs.
        live_s: seconds between lines with rates; None: no such lines.
        interval_s: seconds between snapshots.
        buffer_bytes: ring buffer of one CPU, a power of two; None: by the machine's memory.
    """

    destination: Path
    command: tuple[str, ...] = ()
    seconds: float | None = None
    events: tuple[str, ...] = (USUAL_EVENTS,)
    locks: bool = True
    probes: bool | None = None
    profile: bool = False
    anonymise: bool = False
    live_s: float | None = None
    interval_s: float = 1.0
    buffer_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.command and self.seconds is not None:
            raise UsageError("a recording ends after --seconds or with a command; give one")
        if self.profile and not self.command and self.seconds is None:
            raise UsageError("--profile needs a command, which is run once more, or --seconds")
        for name, value, least in (
            ("--seconds", self.seconds, 0.0),
            ("--live", self.live_s, 0.0),
            ("--interval", self.interval_s, SHORTEST_INTERVAL_S),
        ):
            if value is not None and not (value > 0 and least <= value < float("inf")):
                raise UsageError(
                    f"{name} {value} is no length of time; give "
                    + (f"{least} seconds or more" if least else "more than 0 seconds")
                )


def _nothing() -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """What brings a machine into the state that a recording begins with.

    The ring buffers are there before it, so that they find memory, and what it changes has no time
    to act before the first event.

    Attributes:
        command: run once the ring buffers exist; () for none.
        last: called once the state was copied, right before the last snapshot and the first event.
    """

    command: tuple[str, ...] = ()
    last: Callable[[], None] = _nothing


def parse_size(text: str) -> int:
    """Bytes of a buffer size such as "64M".

    Raises:
        UsageError: not a size, not a power of two, or too small to be of use.
    """
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip().upper())
    size = int(match[1]) * _UNITS[match[2]] if match else 0
    if size < _SMALLEST_BUFFER or size & (size - 1):
        raise UsageError(f"--buffer {text} is no power of two from 64K up; give one such as 64M")
    return size


def size_text(size: int) -> str:
    """A size as `parse_size` reads it."""
    for unit in ("G", "M", "K"):
        if size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return str(size)
