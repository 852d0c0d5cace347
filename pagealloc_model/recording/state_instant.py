"""State files of a recording, and the instant of each among the recorded events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.text import count_of
from pagealloc_model.recording.state_file import STATE_SUFFIX, MachineState, read_state
from pagealloc_model.recording.trace.columns import EVENT_NAMES, Trace
from pagealloc_model.recording.trace.side_tables import events_from

STATE_DIRECTORY = "states"
_FIVE_MINUTES_S = 300


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


def dated_states(files: Iterable[Path], trace: Trace) -> tuple[DatedState, ...]:
    """State files in time order, each with its instant among a recording's events.

    Without those whose instant is hidden by lost events, or lies behind the end of a file that was
    cut short: nothing can be compared with them. Where that is so of all, the first is refused, as
    a replay cannot begin with it.

    Raises:
        RecordingError: a file is damaged, or no instant has its events before it.
    """
    files = tuple(files)
    dated = [dated_state(file, trace) for file in files]
    known = sorted((state for state in dated if state is not None), key=lambda own: own.time_ns)
    if files and not known:
        lacks = f"lost {trace.losses.total:,}" if trace.losses.total else "was cut short"
        why = f"no instant has its events before it, as the recording {lacks}"
        todo = "delete it, or record again with larger buffers"
        raise RecordingError(files[0], why, todo=todo)
    return tuple(known)


def dated_state(path: Path, trace: Trace) -> DatedState | None:
    """Read a state file and find its instant: as many events of each kind are before it.

    Among instants of which this is true it is the one that the jiffy counter says; None where
    there is none because the recording lacks events.

    Raises:
        RecordingError: the file is damaged, or no instant has these events before it.
    """
    state = read_state(path)
    recorded = [
        (*events, counts)
        for name, counts in zip(state.about["events"], state.event_count, strict=True)
        if (events := _events_of(trace, name)) is not None
    ]
    # a tick may be the last event, when pages are left alone
    end = max(int(time_ns.max(initial=trace.time_ns[-1])) for time_ns, _, _ in recorded) + 1
    earliest, latest = -1, end
    seen = False
    for time_ns, cpus, counts in recorded:
        for cpu, count in enumerate(counts.tolist()):
            if count < 0:
                continue
            # one that is recorded twice is counted once (T10.2)
            times = np.unique(time_ns[cpus == cpu])
            if count > len(times):
                earliest = end
                continue
            seen = True
            earliest = max(earliest, int(times[count - 1]) if count else -1)
            latest = min(latest, int(times[count]) if count < len(times) else latest)
    if not seen or earliest >= latest:
        if not trace.is_whole:
            return None
        why = "has more events before it, or others, than this recording"
        raise RecordingError(path, why, todo="keep it with its own recording, or delete it")
    time_ns = min(max(_uptime_ns(state), earliest + 1), latest)
    return DatedState(state=state, time_ns=time_ns, slack_ns=latest - time_ns, path=path)


def counts_before(trace: Trace, state: MachineState, time_ns: int) -> np.ndarray:
    """Events before an instant by the state's tracepoints and CPUs, as `dated_state` counts them.

    -1 remains where perf did not count any.
    """
    counts = state.event_count.copy()
    for place, name in enumerate(state.about["events"]):
        if (events := _events_of(trace, name)) is None:
            continue
        times, cpus = events
        for cpu in np.flatnonzero(counts[place] >= 0).tolist():
            own = np.unique(times[cpus == cpu])
            counts[place, cpu] = int(own.searchsorted(time_ns))
    return counts


def _events_of(trace: Trace, name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Times and CPUs of the events of a tracepoint, None where they were not recorded."""
    event = EVENT_NAMES.get(f"kmem:{name}")
    if event is not None:
        rows = np.flatnonzero(trace.event == event)
        return trace.time_ns[rows], trace.cpu[rows]
    table = trace.tables.get(f"workqueue:{name}")
    return None if table is None else (np.asarray(table["time_ns"]), np.asarray(table["cpu"]))


def _uptime_ns(state: MachineState) -> int:
    """CLOCK_MONOTONIC at the state's jiffy.

    The jiffy counter begins five minutes before 2^32 (`INITIAL_JIFFIES`). A second has as many as
    there are from vmstat work to the next, unless vm.stat_interval was changed.
    """
    per_second = max(int(state.stat_interval[0]), 1)
    since_boot = int(state.jiffies[0]) - ((1 << 32) - _FIVE_MINUTES_S * per_second)
    return since_boot * 1_000_000_000 // per_second


def events_after_state(trace: Trace, dated: DatedState) -> Trace:
    """The events from a state's instant on, with a note on those left out."""
    later, left_out = events_from(trace, dated.time_ns)
    note = (
        f"the recording begins with the state in {dated.path.name}; "
        f"{count_of(left_out, 'event')} before it are left out"
    )
    return replace(later, notes=(*trace.notes, note))
