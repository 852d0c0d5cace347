"""Which functions waited for a lock: call chains of lock:contention_begin by name (T8)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

EVENT = "lock:contention_begin"
CALLERS = 4
_FIRST_MARKER = (1 << 64) - 4095
"""Addresses from here on say whose the next ones are, the kernel's or a program's."""

_WAITING = ("_raw_spin_", "native_queued_", "queued_spin_", "__pv_queued_", "trace_contention")
_TRACING = ("perf_", "__traceiter_", "__bpf_trace_")


def waits_by_caller(recording: Recording) -> list[tuple[str, int]]:
    """Call chains that waited, innermost function first, with how often; the most frequent first.

    Functions of the lock itself are left out, and what called the fourth one. [] where the
    recording has no such events, no call chains, or no symbols.

    Raises:
        RecordingError: the recording cannot be read.
    """
    table = recording.trace.tables.get(EVENT, {})
    if "callchain_start" not in table or (symbols := recording.kernel_symbols) is None:
        return []
    chains = recording.trace.callchains
    known: dict[int, str] = {}
    waits: Counter[str] = Counter()
    ends = table["callchain_start"] + table["callchain_len"]
    # most wait where others waited before
    same = Counter(
        chains[start:end].tobytes()
        for start, end in zip(table["callchain_start"].tolist(), ends.tolist(), strict=True)
    )
    for chain, times in same.items():
        addresses = np.frombuffer(chain, chains.dtype)
        names = []
        for address in addresses[addresses < np.uint64(_FIRST_MARKER)].tolist():
            if address not in known:
                known[address] = symbols.name_at(address)
            names.append(known[address])
        callers = [name for name in names if not name.startswith(_WAITING + _TRACING)]
        waits[" < ".join(callers[:CALLERS])] += times
    return waits.most_common()
