"""What a recording came to, and what to tell its maker."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagealloc_model.base.text.counts import count_of
from pagealloc_model.recording.make.events import RECENT_EVENTS
from pagealloc_model.recording.make.options import size_text
from pagealloc_model.recording.provenance_check import ProvenanceCheck, believed_words

_LARGEST_SUGGESTION = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A finished recording.

    Attributes:
        path: the recording.
        seconds: how long events were on.
        ended_by: what ended it, such as "command" or "SIGINT".
        command_code: exit code of the command, negative for a signal; None without one.
        snapshots: snapshots taken.
        buffer_bytes: ring buffer of one CPU.
        missing_events: tracepoints of the usual set that this kernel lacks.
        unset_probes: (event, why) of the kprobes that could not be set.
    """

    path: Path
    seconds: float
    ended_by: str
    command_code: int | None
    snapshots: int
    buffer_bytes: int
    missing_events: tuple[str, ...]
    unset_probes: tuple[tuple[str, str], ...]


def read_back(path: Path, owner: tuple[int, int] | None) -> dict[str, Any] | None:
    """What `pagealloc info --json` says of a recording, None if it cannot say.

    In a process of its own, as the user it belongs to: kernels compiled for the reading are then
    kept in that user's cache, not root's.
    """
    if owner is not None:
        # An installation that this user cannot run has no cache of theirs to spoil.
        with contextlib.suppress(PermissionError):
            home = {**os.environ, "HOME": _home(owner[0])}
            return _described(path, user=owner[0], group=owner[1], extra_groups=[], env=home)
    return _described(path)


def _described(path: Path, **process: Any) -> dict[str, Any] | None:
    answer = subprocess.run(
        [sys.executable, "-m", "pagealloc_model.cli", "info", "--json", str(path)],
        stdout=subprocess.PIPE,
        # its bar is for people; what it complains of comes back as "cannot be read back"
        stderr=None if sys.stderr.isatty() else subprocess.DEVNULL,
        check=False,
        **process,
    )
    return None if answer.returncode else json.loads(answer.stdout)


def _home(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_dir
    except KeyError:
        return "/"


def summary_lines(recorded: Recorded, content: Mapping[str, Any] | None) -> Iterator[str]:
    """What went otherwise than usual; then what is there, if it can be believed, how to see it.

    The last three are always there. Tracepoints that hardly any kernel has are not named; meta.json
    and `doctor` do.

    Args:
        recorded: the recording.
        content: of `read_back`.
    """
    yield from _odd(recorded)
    yield from _losses(recorded, content)
    files = [file for file in recorded.path.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files) / (1 << 20)
    events = "unknown number of events"
    if content is not None:
        count = sum(content["events"].values()) + sum(content["other_events"].values())
        events = count_of(count, "event")
    yield (
        f"there      {recorded.path}: {recorded.seconds:.1f} s, {events}, "
        f"{count_of(recorded.snapshots, 'snapshot')}, {size:,.1f} MiB"
    )
    checks = [] if content is None else content.get("provenance", [])
    believed = believed_words([ProvenanceCheck(**each) for each in checks])
    yield f"believe    {believed if checks else 'not known: it cannot be read back'}"
    yield f"see        pagealloc explore {recorded.path}"


def _odd(recorded: Recorded) -> Iterator[str]:
    """How the command ended, and what was not recorded."""
    if recorded.command_code is not None:
        code = recorded.command_code
        how = f"with exit code {code}" if code >= 0 else f"by signal {-code}"
        yield f"command    ended {how}"
    if recorded.ended_by.startswith("SIG"):
        yield f"ended      by {recorded.ended_by}"
    missing = [name for name in recorded.missing_events if name not in RECENT_EVENTS]
    if missing:
        yield f"left out   {', '.join(missing)}: not in this kernel"
    whys: dict[str, list[str]] = {}
    for event, why in recorded.unset_probes:
        whys.setdefault(why, []).append(event)
    for why, unset in whys.items():
        yield f"left out   {', '.join(unset)}: {why}"


def _losses(recorded: Recorded, content: Mapping[str, Any] | None) -> Iterator[str]:
    if content is None:
        yield "lost       unknown: the recording cannot be read back; try pagealloc info"
        return
    if not content["lost"]:
        yield "lost       nothing"
        return
    shares = content["lost_by_cpu"]
    by_cpu = ", ".join(
        f"CPU {cpu} {each['lost']:,} ({each['share']:.1%})" for cpu, each in shares.items()
    )
    yield f"lost       {count_of(content['lost'], 'event')}: {by_cpu}"
    worst = max(each["share"] for each in shares.values())
    yield f"           {_advice(recorded.buffer_bytes, worst)}"


def _advice(buffer_bytes: int, worst_share: float) -> str:
    """A buffer that would hold what came; at least four times this one, as losses are bursts."""
    needed = 4 * buffer_bytes
    while needed < buffer_bytes / max(1 - worst_share, 1e-3):
        needed *= 2
    if needed > _LARGEST_SUGGESTION:
        return "record fewer events: --no-lock, --no-probes, or a choice with --events"
    return f"record again with --buffer {size_text(needed)}, or fewer events with --events"
