"""What must hold of whatever a reader makes of a damaged recording."""

from __future__ import annotations

from collections import Counter

import numpy as np

from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Trace


def check_consistent(trace: Trace) -> None:
    """A trace from damaged bytes is a trace: ordered, of one length, within its types' meaning."""
    lengths = {len(getattr(trace, name)) for name in COLUMN_TYPES}
    assert len(lengths) == 1, f"columns of lengths {lengths}"
    assert np.all(trace.time_ns[1:] >= trace.time_ns[:-1]), "times descend"
    assert len(trace) == 0 or trace.time_ns[0] >= 0, "a negative time"
    assert np.all(trace.event <= 5) and np.all(trace.cpu >= 0), "an impossible event or CPU"
    for name, table in trace.tables.items():
        assert {len(column) for column in table.values()} == {len(table["time_ns"])}, name
        assert np.all(table["time_ns"][1:] >= table["time_ns"][:-1]), f"{name} descends"
        assert np.all((table["row"] >= 0) & (table["row"] <= len(trace))), f"rows of {name}"
        if "callchain_len" in table:
            ends = table["callchain_start"] + table["callchain_len"]
            assert np.all(table["callchain_len"] >= 0), f"call chains of {name}"
            assert np.all(ends <= len(trace.callchains)), f"call chains of {name}"
    losses = trace.losses
    assert len(losses.cpu) == len(losses.count) == len(losses.start_ns) == len(losses.end_ns)
    assert np.all(losses.count >= 0), "a negative loss"


def check_beginning(trace: Trace, whole: Trace) -> None:
    """The events are the first of the whole recording's."""
    assert len(trace) <= len(whole), "more events than there were"
    for name in COLUMN_TYPES:
        expected = getattr(whole, name)[: len(trace)]
        assert np.array_equal(getattr(trace, name), expected), f"{name} is not the beginning"


def check_all_but_one(trace: Trace, whole: Trace) -> None:
    """At most one event is another than it was, or gone, or new."""
    now, before = _rows(trace), _rows(whole)
    assert (now - before).total() <= 1, "several events changed"
    assert (before - now).total() <= 1, "several events are gone"


def _rows(trace: Trace) -> Counter[tuple[int, ...]]:
    return Counter(zip(*(getattr(trace, name).tolist() for name in COLUMN_TYPES), strict=True))
