"""Who asked for pages, fell back and held zone->lock: the call chains of `perf record -g`.

A replay has no call chains of its own. But each of its holds of zone->lock happens at a recorded
event, and that event's call chain says who caused it, under any policy.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.base.errors import UsageError
from pagealloc_model.measured.spinlocks import has_paravirtual_spinlocks
from pagealloc_model.recording.proc.counts import KernelSymbols, read_kallsyms
from pagealloc_model.recording.trace import tracepoints as tp

if TYPE_CHECKING:
    import pandas as pd

    from pagealloc_model.recording.recording import Recording


_EVENTS = (
    *(tp.PAGE_ALLOC, tp.PAGE_FREE, tp.PAGE_FREE_BATCHED, tp.PAGE_ALLOC_EXTFRAG),
    *(tp.PAGE_ALLOC_ZONE_LOCKED, tp.PAGE_PCPU_DRAIN),
)
_FIRST_MARKER = np.uint64((1 << 64) - 4095)
"""Addresses from here on say whose the next ones are."""
_USER_MARKER = np.uint64((1 << 64) - 512)
_TRACING = ("perf_", "__traceiter_", "__bpf_trace_", "trace_event_raw_")
_UNKNOWN = "no call chain"
_RECORD = "record with pagealloc record -g"
_SOON_S = 600.0
"""A file written this long after its last event is still taken for one of this boot."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CallStacks:
    """The call chains of one recording's events.

    Attributes:
        stacks: different ones, task first, then functions from the outermost to the innermost.
        tables: by event: time_ns, cpu, stack (index into `stacks`), pages, of a sampled event
            those of all that it stands for.
        named_by: where functions' names are from, "" if there are only addresses.
    """

    stacks: tuple[tuple[str, ...], ...]
    tables: Mapping[str, pd.DataFrame]
    named_by: str

    def by_stack(self, event: str) -> pd.DataFrame:
        """Return stack, events and pages of one event, the most pages first.

        Raises:
            UsageError: it was not recorded with call chains.
        """
        if event not in self.tables:
            raise UsageError(f"{event} was not recorded with call chains; {_RECORD}")
        return self._by_stack(self.tables[event])

    def of_holds(self, holds: pd.DataFrame, least_pages: int = 0) -> pd.DataFrame:
        """Return stack, events and pages of holds of zone->lock, the most pages first.

        Each hold is that of the recorded event on its CPU at its time, or the last one before it.

        Args:
            holds: time_ns, cpu and pages, of a replay or of a recording.
            least_pages: leave out holds of fewer pages.
        """
        import pandas as pd

        events = pd.concat(self.tables.values(), ignore_index=True)
        if not len(events):
            raise UsageError(f"no event has a call chain; {_RECORD}")
        events = events.sort_values("time_ns", kind="stable")[["time_ns", "cpu", "stack"]]
        large = holds[holds["pages"].astype("Float64").fillna(0) >= least_pages]
        large = large[["time_ns", "cpu", "pages"]].astype({"time_ns": np.int64, "cpu": np.int64})
        large = large.sort_values("time_ns", kind="stable")
        caused = pd.merge_asof(large, events.astype({"cpu": np.int64}), on="time_ns", by="cpu")
        return self._by_stack(caused.assign(stack=caused["stack"].fillna(-1).astype(int)))

    def _by_stack(self, table: pd.DataFrame) -> pd.DataFrame:
        grouped = table.groupby("stack")["pages"].agg(["size", "sum"])
        frame = grouped.rename(columns={"size": "events", "sum": "pages"}).reset_index()
        names = [self.stacks[number] if number >= 0 else (_UNKNOWN,) for number in frame["stack"]]
        frame["stack"] = [";".join(name) for name in names]
        return frame.sort_values(["pages", "stack"], ascending=[False, True], ignore_index=True)


def call_stacks(recording: Recording) -> CallStacks:
    """Read the call chains of all page-allocator events; the event file is read once more.

    Functions are named by the recording's own copy of kallsyms, or by this machine's if it is of
    this boot; otherwise they stay addresses.

    Raises:
        UsageError: no event carries a call chain.
        RecordingError: the event file or kallsyms is damaged.
    """
    import pandas as pd

    from pagealloc_model.recording.event_files import read_events

    trace = read_events(recording.event_file, main_chains=True)
    symbols, named_by = recording.kernel_symbols, "the recording's kallsyms"
    if symbols is None and is_of_this_boot(recording, trace.span_ns[1]):
        symbols, named_by = read_kallsyms(Path("/proc/kallsyms")), "/proc/kallsyms of this boot"
    name_of = _namer(symbols)
    numbers: dict[tuple[str, bytes], int] = {}
    stacks: list[tuple[str, ...]] = []
    tables = {}
    for event in _EVENTS:
        table = trace.tables.get(event)
        if table is None or "callchain_start" not in table:
            continue
        of_rows = np.zeros(len(table["time_ns"]), np.int64)
        columns = (table[name].tolist() for name in ("callchain_start", "callchain_len", "pid"))
        for row, (begin, length, pid) in enumerate(zip(*columns, strict=True)):
            chain = kernel_part(trace.callchains[begin : begin + length])
            task = trace.comms.get(pid, str(pid))
            key = (task, chain.tobytes())
            if key not in numbers:
                numbers[key] = len(stacks)
                names = [name_of(address) for address in chain.tolist()]
                while names and names[0].startswith(_TRACING):
                    del names[0]
                stacks.append((task.replace(";", ":"), *reversed(names)))
            of_rows[row] = numbers[key]
        pages = np.ones(len(of_rows), np.int64)
        if event != tp.PAGE_FREE_BATCHED:
            name = "fallback_order" if event == tp.PAGE_ALLOC_EXTFRAG else "order"
            pages <<= np.clip(table[name].astype(np.int64), 0, 30)
        tables[event] = pd.DataFrame(
            {
                "time_ns": table["time_ns"],
                "cpu": table["cpu"],
                "stack": of_rows,
                "pages": pages * max(trace.sampled.get(event, 1), 1),
            }
        )
    if not tables:
        raise UsageError(f"{recording.name}: no page-allocator event has a call chain; {_RECORD}")
    named_by = named_by if symbols is not None else ""
    return CallStacks(stacks=tuple(stacks), tables=tables, named_by=named_by)


def kernel_part(chain: np.ndarray) -> np.ndarray:
    """Return the kernel's addresses of a call chain, innermost first, without markers."""
    users = np.flatnonzero(chain == _USER_MARKER)
    kernel = chain[: users[0]] if len(users) else chain
    return kernel[kernel < _FIRST_MARKER]


def _namer(symbols: KernelSymbols | None) -> Callable[[int], str]:
    return cache(hex if symbols is None else symbols.name_at)


def is_of_this_boot(recording: Recording, last_ns: int) -> bool:
    """True if a recording was made on this machine, under its kernel, since it booted.

    Its file must have been written shortly after its last event by this boot's clock.
    """
    uname = recording.meta.get("uname")
    same = list(os.uname()) == uname if uname else os.uname().release == recording.release
    booted = time.time() - time.monotonic()
    behind = recording.event_file.stat().st_mtime - (booted + last_ns / 1e9)
    return same and -1.0 <= behind <= _SOON_S


CALLERS = 4
_WAITING = ("_raw_spin_", "native_queued_", "queued_spin_", "__pv_queued_", "trace_contention")


def waits_by_caller(recording: Recording) -> list[tuple[str, int]]:
    """Call chains that waited, innermost function first, with how often; the most frequent first.

    Functions of the lock itself are left out, and what called the fourth one. [] where the
    recording has no such events, no call chains, or no symbols.
    """
    table = recording.trace.tables.get(tp.CONTENTION_BEGIN, {})
    if "callchain_start" not in table or (symbols := recording.kernel_symbols) is None:
        return []
    chains, name_of = recording.trace.callchains, _namer(symbols)
    waits: Counter[str] = Counter()
    ends = table["callchain_start"] + table["callchain_len"]
    # most wait where others waited before
    same = Counter(
        chains[start:end].tobytes()
        for start, end in zip(table["callchain_start"].tolist(), ends.tolist(), strict=True)
    )
    for chain, times in same.items():
        addresses = np.frombuffer(chain, chains.dtype)
        names = map(name_of, addresses[addresses < _FIRST_MARKER].tolist())
        callers = [name for name in names if not name.startswith(_WAITING + _TRACING)]
        waits[" < ".join(callers[:CALLERS])] += times
    return waits.most_common()


_SLOW_PATHS = {
    "__pv_queued_spin_lock_slowpath": True,
    "native_queued_spin_lock_slowpath": False,
    "queued_spin_lock_slowpath": False,
}


def recorded_spinlocks(recording: Recording) -> tuple[bool, str]:
    """Whether spinlocks are the hybrid ones of paravirtual guests, and where that was read.

    Call chains of contended spinlocks begin in the slow path of the one or the other. Without them
    contention that shows on two CPUs is paravirtual (T8); what is then left open is assumed native.
    """
    trace, symbols = recording.trace, recording.kernel_symbols
    table = trace.tables.get(tp.CONTENTION_BEGIN, {})
    if "callchain_start" in table and symbols is not None:
        spans = zip(table["callchain_start"].tolist(), table["callchain_len"].tolist(), strict=True)
        for start, length in spans:
            for address in kernel_part(trace.callchains[start : start + length])[:2].tolist():
                name = symbols.name_at(address)
                if name in _SLOW_PATHS:
                    return _SLOW_PATHS[name], f"read from a call chain that begins in {name}()"
    if has_paravirtual_spinlocks(trace):
        return True, "read from contention that shows on two CPUs (T8)"
    return False, "assumed, as no event tells them from paravirtual ones"
