"""State files of a recording, and the instant of each among the recorded events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.text import count_of
from pagealloc_model.recording.state_file import STATE_SUFFIX, MachineState, read_state
from pagealloc_model.recording.trace.columns import EVENT_NAMES, Trace
from pagealloc_model.recording.trace.side_tables import Window, events_between

STATE_DIRECTORY = "states"


@dataclass(frozen=True, kw_only=True, eq=False)
class DatedState:
    """A machine's state at an instant of a recording.

    Attributes:
        state: what was read.
        time_ns: its instant on the recording's clock: events before it had happened, those of this
            time and later had not.
        slack_ns: how much later it may be with the same events before it.
        path: the file.
    """

    state: MachineState
    time_ns: int
    slack_ns: int
    path: Path


def state_files_of(directory: Path) -> Iterator[Path]:
    """State files of a recording's directory; links are none of them."""
    place = directory / STATE_DIRECTORY
    if place.is_symlink() or not place.is_dir():
        return
    for file in sorted(place.iterdir()):
        if file.suffix == STATE_SUFFIX and file.is_file() and not file.is_symlink():
            yield file


def dated_state(path: Path, trace: Trace) -> DatedState:
    """Read a state file and find its instant: as many events of each kind are before it.

    Raises:
        RecordingError: the file is damaged, or no instant has these events before it.
    """
    state = read_state(path)
    earliest, latest = -1, np.iinfo(np.int64).max
    seen = False
    kinds = {name.removeprefix("kmem:"): kind for name, kind in EVENT_NAMES.items()}
    for name, counts in zip(state.about["events"], state.event_count, strict=True):
        rows = np.flatnonzero(trace.event == kinds[name]) if name in kinds else []
        for cpu, count in enumerate(counts.tolist()):
            if count < 0 or name not in kinds:
                continue
            times = trace.time_ns[rows][trace.cpu[rows] == cpu]
            if count > len(times):
                earliest = np.iinfo(np.int64).max
                continue
            seen = True
            earliest = max(earliest, int(times[count - 1]) if count else -1)
            latest = min(latest, int(times[count]) if count < len(times) else latest)
    if not seen or earliest >= latest:
        why = "has more events before it, or others, than this recording"
        raise RecordingError(path, why, todo="keep it with its own recording, or delete it")
    end = int(trace.time_ns[-1]) + 1
    return DatedState(
        state=state, time_ns=earliest + 1, slack_ns=min(latest, end) - earliest - 1, path=path
    )


def events_after_state(trace: Trace, dated: DatedState) -> Trace:
    """The events from a state's instant on, with a note on those left out."""
    left_out = int(np.searchsorted(trace.time_ns, dated.time_ns))
    window = Window(
        begin_ns=dated.time_ns,
        end_ns=int(trace.time_ns[-1]) + 1,
        from_start=False,
        to_end=True,
        events=len(trace) - left_out,
    )
    note = (
        f"the recording begins with the state in {dated.path.name}; "
        f"{count_of(left_out, 'event')} before it are left out"
    )
    return replace(events_between(trace, window), notes=(*trace.notes, note))
