"""Parts of a recording in which nothing was lost, each with a snapshot to start from (T1.5)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.text import count_of
from pagealloc_model.recording.provenance import MOST_LOST, lost_share
from pagealloc_model.recording.trace.side_tables import Window, events_between

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording


@dataclass(frozen=True, kw_only=True)
class LossWindow(Window):
    """A stretch between losses; `snapshots` with a zoneinfo describe its start or lie in it."""

    snapshots: int
    first_ns: int

    @property
    def unusable(self) -> str:
        """Why it cannot be replayed and scored by itself, "" if it can."""
        if not self.events:
            return "no events"
        if self.snapshots < 2:
            have = "one snapshot" if self.snapshots else "no snapshot"
            return f"{have}, two are needed"
        return ""

    def __str__(self) -> str:
        """One line such as "0.000 to 29.022 s, 2700000 events: can be validated"."""
        begin, end = ((time_ns - self.first_ns) / 1e9 for time_ns in (self.begin_ns, self.end_ns))
        verdict = f"cannot be validated: {self.unusable}" if self.unusable else "can be validated"
        return f"{begin:.3f} to {end:.3f} s, {count_of(self.events, 'event')}: {verdict}"


def loss_windows(recording: Recording) -> tuple[LossWindow, ...]:
    """All stretches between losses in time order; none if nothing was lost.

    Raises:
        RecordingError: the events cannot be read.
    """
    trace = recording.trace
    losses = trace.losses
    if not losses.total:
        return ()
    first, last = trace.demand_span_ns
    described = [shot.time_ns for shot in recording.dated_snapshots if shot.zoneinfo is not None]
    times = np.array(described, np.int64)
    gaps = sorted(zip(losses.start_ns.tolist(), losses.end_ns.tolist(), strict=True))
    windows = []
    begin, from_start = first, True
    for start, end in [*gaps, (last + 1, last + 1)]:
        if start > begin or (start == begin and start > last):
            rows = np.searchsorted(trace.time_ns, [begin, start])
            inside = (times < start) & (from_start | (times >= begin))
            windows.append(
                LossWindow(
                    begin_ns=begin,
                    end_ns=start,
                    from_start=from_start,
                    to_end=start > last,
                    events=int(rows[1] - rows[0]),
                    snapshots=int(inside.sum()),
                    first_ns=first,
                )
            )
        if end + 1 > begin:
            begin, from_start = end + 1, False
    return tuple(windows)


def recording_between(recording: Recording, window: LossWindow) -> Recording:
    """The recording of one of `loss_windows`, from its own snapshot on.

    After a loss that is the first one in the window: what came before it is left out. Page flags
    and owners were read before the recording: a window after a loss does without them.

    Raises:
        UsageError: the window is not usable.
    """
    if window.unusable:
        raise UsageError(f"{recording.path}: {window}")
    snapshots = recording.dated_snapshots
    begin = window.begin_ns
    if not window.from_start:
        described = (shot.time_ns for shot in snapshots if shot.zoneinfo is not None)
        begin = min(time_ns for time_ns in described if time_ns >= begin)
    inside = tuple(
        shot
        for shot in snapshots
        if (window.from_start or shot.time_ns >= begin)
        and (window.to_end or shot.time_ns < window.end_ns)
    )
    part = replace(recording, snapshots=inside)
    events = events_between(recording.trace, replace(window, begin_ns=begin))
    # Where cached_property keeps what it has read.
    part.__dict__.update(trace=events, whole_trace=events, dated_snapshots=inside)
    part.__dict__["begins_at"] = None if window.from_start else inside[0]
    if not window.from_start:
        part.__dict__.update(kpageflags=None, page_owner=None)
    return part


def refuse_if_lossy(recording: Recording) -> None:
    """Refuse figures for a whole recording that lost too much.

    Raises:
        UsageError: more than `MOST_LOST` of its events were lost.
    """
    share = lost_share(recording.trace)
    if share > MOST_LOST:
        usable = sum(not window.unusable for window in loss_windows(recording))
        raise UsageError(
            f"{recording.path}: {share:.1%} of its events were lost, more than {MOST_LOST:.0%}, so "
            f"no figure for the whole recording means anything; {usable} of its loss-free windows "
            "can be validated (pagealloc validate does, pagealloc info lists them)"
        )
