"""kswapd at the start of a replay under other watermarks: asleep again, as recorded (S10.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.predicted.runner import Runner
from pagealloc_model.recording.record.kswapd_sleep import LONGEST_S
from pagealloc_model.recording.recorded_machine import start_snapshots

if TYPE_CHECKING:
    from pagealloc_model.allocator.state import State
    from pagealloc_model.policy.policy import Policy
    from pagealloc_model.predicted.carrier import Carrier
    from pagealloc_model.predicted.recorded_kswapd import RecordedKswapd
    from pagealloc_model.recording.recording import Recording

MARKS = ("min_free_kbytes", "watermark_scale_factor", "lowmem_reserve_ratio")
"""Policy fields that move watermarks, or what zones keep back, as soon as they are set."""
LONGEST_NS = int(LONGEST_S * 1e9)
"""As long as a recorder waits for kswapd."""
SEEN_NS = 20_000_000
"""Two snapshots so far apart tell: a kswapd at work takes up a cluster every 5 to 20 ms."""


def moves_marks(policy: Policy) -> bool:
    """True where a policy sets something of `MARKS`."""
    return not policy.given().keys().isdisjoint(MARKS)


def slept_at_start(recording: Recording) -> bool:
    """True where kswapd slept when the first event came, so that settings had had their effect.

    The recorder says so, or the two snapshots that describe the start, between which none had
    scanned anything. Nothing later is read.

    Raises:
        UsageError: no usable snapshot.
        RecordingError: a snapshot cannot be read.
    """
    said = recording.meta.get("kswapd_slept")
    if recording.begins_at is None and isinstance(said, bool):
        return said
    early, during = start_snapshots(recording)
    scanned = [(each.vmstat or {}).get("pgscan_kswapd") for each in (early, during)]
    has_time = during.time_ns - early.time_ns >= SEEN_NS
    return has_time and scanned[0] is not None and scanned[0] == scanned[1]


def _is_low(state: State) -> bool:
    """True where an ordinary request finds every zone at its low watermark or below (S3.3)."""
    highest = len(state.machine.zone_types) - 1
    words = [at.ZONE_FREE, at.ZONE_MIN + at.WMARK_LOW, at.ZONE_LOWMEM_RESERVE + highest]
    free, low, kept = map(state.zone_words, words)
    managed = np.array([zone.managed > 0 for zone in state.machine.zones])
    return bool((free <= low + state.zone_words(at.ZONE_BOOST) + kept)[managed].all())


def let_kswapd_settle(
    carrier: Carrier, places: np.ndarray, start_ns: int, kswapd: RecordedKswapd | None
) -> int:
    """Let kswapd work before the first event until it sleeps, and count nothing of it.

    `setup_per_zone_wmarks()` moves the marks (mm/page_alloc.c, 6.12); the next requests, such as
    the recorder's, wake kswapd where they find them all missed, and it works until zones are
    balanced. Ticks wait meanwhile: per-CPU lists are those of the start.

    Args:
        carrier: of an elastic replay, before its first event; its state is changed.
        places: int32 by object, likewise.
        start_ns: when the first event comes; kswapd begins `LONGEST_NS` before it at most.
        kswapd: the recorded one, whose pace at the start holds.

    Returns:
        Pages that became free.
    """
    state = carrier.state
    st = state.st
    if not _is_low(state):
        return 0
    if kswapd is not None:
        kswapd.set_at(state, start_ns)
    base = int(st[at.PRESSURE_BASE])
    nodes = int(st[base + pr.NODES_BASE])
    begin_ns = max(start_ns - LONGEST_NS, 0)
    own = [nodes + number * pr.NODE_WORDS for number in range(len(state.machine.nodes))]
    for words in own:
        st[words + pr.KSWAPD_WOKEN] = 1
        st[words + pr.KSWAPD_DUE] = begin_ns
    uncounted = np.r_[base + pr.COUNTERS : base + pr.SCALARS, [at.NOW, at.NEXT_TICK]]
    uncounted = np.r_[uncounted, [words + pr.PROACTIVE_DUE for words in own], _lock_words(state)]
    kept, pages = st[uncounted].copy(), state.kept_pages()
    st[at.NEXT_TICK] = at.NEVER
    st[at.NOW] = begin_ns
    none = np.zeros(0, at.EVENT)
    runner = Runner(carrier, places, lambda times: np.zeros(len(times), bool), events=1)
    runner.take(none, 0, 0, start_ns - 1)
    carrier.settle()
    st[uncounted] = kept
    return state.kept_pages() - pages


def _lock_words(state: State) -> np.ndarray:
    """Places of the words that count pcp->lock, of every zone and CPU."""
    count = len(state.machine.zones) * state.machine.nr_cpus
    first = int(state.st[at.PCP_BASE]) + np.arange(count) * at.PCP_STRIDE + at.PCP_LOCKS
    return np.concatenate([first + number for number in range(3)])
