"""The part of a Trace that lies in a time window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Losses, Trace
from pagealloc_model.recording.trace.event_tables import CHAIN_COLUMNS
from pagealloc_model.recording.trace.thread_names import ThreadNames


@dataclass(frozen=True, kw_only=True)
class Window:
    """The time kept: begin_ns <= time < end_ns, on the recording's clock.

    Attributes:
        begin_ns: time of the first event kept, or later.
        end_ns: where the window ends.
        from_start: whether it begins where the recording does.
        to_end: whether it reaches the recording's last event.
        events: page-allocator events in it.
    """

    begin_ns: int
    end_ns: int
    from_start: bool
    to_end: bool
    events: int


def events_between(trace: Trace, window: Window) -> Trace:
    """What a Trace holds of a window.

    Names from before the window are kept, since they hold in it. An event without samples in it
    has no table.
    """
    rows = _inside(trace.time_ns, window)
    cut = _TableCut(trace, window, rows.start)
    tables = {name: cut.table(table) for name, table in trace.tables.items()}
    kept = {name: table for name, table in tables.items() if len(table["time_ns"])}
    names = _names_before(trace.thread_names, window)
    return replace(
        trace,
        **{name: getattr(trace, name)[rows] for name in COLUMN_TYPES},
        tables=kept,
        declared_types={name: trace.declared_types[name] for name in kept if trace.declared_types},
        callchains=np.concatenate([*cut.chains, np.zeros(0, np.uint64)]),
        thread_names=names,
        comms=names.last() if len(trace.thread_names) else trace.comms,
        losses=_losses_between(trace.losses, window, int(trace.time_ns[rows.start])),
    )


def _inside(time_ns: np.ndarray, window: Window) -> slice:
    """The rows of a column of ascending times that lie in the window."""
    first = 0 if window.from_start else int(np.searchsorted(time_ns, window.begin_ns))
    last = len(time_ns) if window.to_end else int(np.searchsorted(time_ns, window.end_ns))
    return slice(first, last)


class _TableCut:
    """Cuts tables one after the other, and collects the call chains they keep."""

    def __init__(self, trace: Trace, window: Window, rows_before: int) -> None:
        self._trace = trace
        self._window = window
        self._rows_before = rows_before
        self._chain_words = 0
        self.chains: list[np.ndarray] = []

    def table(self, table: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One table's rows in the window."""
        rows = _inside(table["time_ns"], self._window)
        kept = {name: values[rows] for name, values in table.items()}
        kept["row"] = kept["row"] - self._rows_before
        if set(CHAIN_COLUMNS) <= kept.keys():
            start, length = (kept[name] for name in CHAIN_COLUMNS)
            kept[CHAIN_COLUMNS[0]] = self._take_chains(start, length)
        return kept

    def _take_chains(self, start: np.ndarray, length: np.ndarray) -> np.ndarray:
        """Where the call chains start among those kept."""
        ends = np.cumsum(length)
        within = np.arange(int(length.sum()), dtype=np.int64) - np.repeat(ends - length, length)
        self.chains.append(self._trace.callchains[np.repeat(start, length) + within])
        moved = self._chain_words + ends - length
        self._chain_words += len(within)
        return moved


def _names_before(names: ThreadNames, window: Window) -> ThreadNames:
    """Namings until the window's end."""
    kept = (names.time_ns < window.end_ns) | window.to_end
    return ThreadNames(
        time_ns=names.time_ns[kept],
        tid=names.tid[kept],
        parent=names.parent[kept],
        name=names.name[kept],
    )


def _losses_between(losses: Losses, window: Window, first_ns: int) -> Losses:
    """Losses noticed in the window; one that began before it begins with the first event in it.

    Sums at the recording's end do not say when, and are kept only if the window is all of it.
    """
    whole = window.from_start and window.to_end
    kept = (losses.end_ns >= window.begin_ns) | window.from_start
    kept &= (losses.end_ns < window.end_ns) | window.to_end
    kept[len(kept) - losses.at_end :] = whole
    start, end = losses.start_ns[kept], losses.end_ns[kept]
    if not window.from_start:
        start = np.where(start < window.begin_ns, np.minimum(first_ns, end), start)
    return Losses(
        cpu=losses.cpu[kept],
        start_ns=start,
        end_ns=end,
        count=losses.count[kept],
        event=tuple(np.array(losses.event, object)[kept].tolist()),
        at_end=losses.at_end if whole else 0,
    )
