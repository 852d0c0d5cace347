"""Memory stalls of a recording: what tasks lost, daemons' work, and who ran beside (S10.11)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pagealloc_model.base.errors import UsageError
from pagealloc_model.measured.cpu_spans import Running
from pagealloc_model.measured.stream import DAEMONS, KCOMPACTD, KSWAPD, begun_and_ended
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import Trace

CAUSES = RECLAIM, COMPACTION = "direct reclaim", "direct compaction"
SPANS = {RECLAIM: tp.DIRECT_RECLAIM, COMPACTION: tp.COMPACTION}
_WORK = {
    KSWAPD: (tp.BALANCE_PGDAT, ("pa:kswapd_begin", "pa:kswapd_end"), tp.KSWAPD),
    KCOMPACTD: (tp.KCOMPACTD,),
}
"""Events around a daemon's work that is memory stall, the first recorded pair of each (S10.11)."""
_WHO = ("pid", "cpu", "time_ns")
_KEY_BITS = 63


def recorded_stalls(trace: Trace) -> pd.DataFrame:
    """What tasks lost to direct reclaim and direct compaction, by the events that begin and end it.

    kswapd and kcompactd are left out, and what had begun before the first event or went on after
    the last.

    Returns:
        pid, cpu, cause, begin_ns, ns: one row each, by begin.
    """
    daemons = [pid for pid, name in trace.comms.items() if name.startswith(DAEMONS)]
    parts = []
    for cause, (begin, end) in SPANS.items():
        rows, _, ns = begun_and_ended(trace, begin, end) or (np.zeros(0, np.int64),) * 3
        begun = trace.tables.get(begin, dict.fromkeys(_WHO, rows))
        pid, cpu, begin_ns = (np.asarray(begun[name])[rows] for name in _WHO)
        columns = {"pid": pid, "cpu": cpu, "cause": cause, "begin_ns": begin_ns, "ns": ns}
        parts.append(pd.DataFrame(columns).astype({"cause": object}))
    every = pd.concat(parts, ignore_index=True)
    return every[~every["pid"].isin(daemons)].sort_values("begin_ns", ignore_index=True)


def recorded_daemon_work(trace: Trace) -> pd.DataFrame:
    """pid, cpu, cause, begin_ns, ns: work of kswapd and kcompactd that is memory stall (S10.11).

    What had begun before the first event, or went on after the last, counts as far as events go.
    """
    first, last = trace.demand_span_ns
    chosen = {
        cause: next((names for names in pairs if trace.tables.keys() & {*names}), ())
        for cause, pairs in _WORK.items()
    }
    parts = [pd.DataFrame(columns=[*_WHO, "cause", "is_end"])]
    for cause, names in chosen.items():
        for is_end, name in enumerate(names):
            table = trace.tables.get(name, {})
            columns = {key: np.asarray(table.get(key, []), np.int64) for key in _WHO}
            parts.append(pd.DataFrame(columns).assign(cause=cause, is_end=is_end))
    rows = pd.concat(parts).astype(dict.fromkeys((*_WHO, "is_end"), np.int64) | {"cause": object})
    rows = rows.sort_values(["cause", "pid", "time_ns", "is_end"], ignore_index=True)
    until = rows.groupby(["cause", "pid"])["time_ns"].shift(-1, fill_value=last)
    shrunk = trace.tables.get(tp.LRU_SHRINK_INACTIVE) if chosen[KSWAPD] == tp.KSWAPD else None
    # kswapd naps before it sleeps or wakes again: it works until its last cluster
    for pid in rows["pid"][rows["cause"] == KSWAPD].unique() if shrunk is not None else ():
        own = rows["pid"] == pid
        ends = np.asarray(shrunk["time_ns"])[np.asarray(shrunk["pid"]) == pid]
        before = np.searchsorted(ends, until[own].to_numpy(), "right")
        until[own] = np.maximum(np.append(ends, 0)[before - 1], rows["time_ns"][own])
    had_begun = (rows["is_end"] == 1) & ~rows[["cause", "pid"]].duplicated()
    begin = rows["time_ns"].where(~had_begun, first)
    rows = rows.assign(begin_ns=begin, ns=until.where(~had_begun, rows["time_ns"]) - begin)
    return rows.loc[had_begun | (rows["is_end"] == 0), ["pid", "cpu", "cause", "begin_ns", "ns"]]


def _time_bits(count: int, ns: int) -> int:
    """Bits of times up to `ns` that fit into an int64 beside numbers of so many tasks or CPUs."""
    bits = ns.bit_length()
    if bits + count.bit_length() > _KEY_BITS:
        what = f"stalls of {count:,} tasks or CPUs within {ns / 3.6e12:,.0f} hours"
        raise UsageError(f"{what} are too many; cut the recording (pagealloc trim)")
    return bits


Spans = tuple[np.ndarray, np.ndarray, np.ndarray]
"""int64: whose each span is (a CPU, or a task's number), and its begin and end, ns."""


def _overlaps(spans: Spans, others: Spans) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row of the spans, begin and end of each part that others have in common with them.

    The others are disjoint, by whose they are and by begin.
    """
    (whose, begin, end), (_, other_begin, other_end) = spans, others
    names, other = np.unique(others[0], return_inverse=True)
    number = np.searchsorted(names, whose)
    known = np.isin(whose, names)
    times = np.concatenate([begin, other_begin, end, other_end])
    zero = int(times.min()) if len(times) else 0
    bits = _time_bits(len(names), int(times.max(initial=zero)) - zero)
    key, other = (number << bits) - zero, (other << bits) - zero
    first = np.searchsorted(other + other_end, key + begin, "right")
    last = np.searchsorted(other + other_begin, key + end, "left")
    count = np.where(known, np.maximum(last - first, 0), 0)
    row = np.repeat(np.arange(len(begin)), count)
    place = np.arange(len(row)) + np.repeat(first - (np.cumsum(count) - count), count)
    return row, np.maximum(begin[row], other_begin[place]), np.minimum(end[row], other_end[place])


def once(whose: np.ndarray, begin: np.ndarray, ns: np.ndarray) -> tuple[np.ndarray, Spans]:
    """Order of spans by whose they are and begin; each so, less what one before it covers."""
    order = np.lexsort((begin, whose))
    whose, begin, end = whose[order], begin[order], (begin + ns)[order]
    latest = pd.Series(end).groupby(whose).cummax().groupby(whose).shift(fill_value=0).to_numpy()
    begin = np.maximum(begin, latest)
    return order, (whose, begin, np.maximum(end, begin))


def in_stall(running: Running, stalls: pd.DataFrame) -> Spans:
    """When each CPU ran who was in a memory stall, by CPU and begin; of pid, begin_ns, ns."""
    columns = (stalls[name].to_numpy(np.int64) for name in ("pid", "begin_ns", "ns"))
    row, begin, end = _overlaps((running.pid, running.begin_ns, running.end_ns), once(*columns)[1])
    return running.cpu[row], begin, end


def beside(running: Running, stalls: pd.DataFrame) -> pd.DataFrame:
    """cpu, begin_ns, ns: who ran, in no stall, while somebody stalled on the CPU (S10.11)."""
    columns = (stalls[name].to_numpy(np.int64) for name in ("cpu", "begin_ns", "ns"))
    busy = running.pid > 0
    runs = running.cpu[busy], running.begin_ns[busy], running.end_ns[busy]
    row, begin, end = _overlaps(runs, once(*columns)[1])
    cpu, ns = runs[0][row], end - begin
    held, held_from, held_to = _overlaps((cpu, begin, end), in_stall(running, stalls))
    ns = ns - np.bincount(held, held_to - held_from, len(ns)).astype(np.int64)
    return pd.DataFrame({"cpu": cpu, "begin_ns": begin, "ns": ns})


MemoryStalls = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame | None]
"""What tasks lost, work of kswapd and kcompactd, and who ran beside them, None where not told."""


def recorded_memory_stalls(trace: Trace) -> MemoryStalls:
    """Memory stalls of a recording (S10.11)."""
    stalls, work, running = recorded_stalls(trace), recorded_daemon_work(trace), Running.of(trace)
    if running is None:
        return stalls, work, None
    return stalls, work, beside(running, pd.concat([stalls, work], ignore_index=True))
