"""Which tracepoints a recording asks for (T2 to T8), and which of them a kernel has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.make.host import Host, read_or_none
from pagealloc_model.recording.make.options import USUAL_EVENTS

ESSENTIAL_EVENTS = ("kmem:mm_page_alloc", "kmem:mm_page_free")
_CHAINED_EVENT = "lock:contention_begin"
LOCK_EVENTS = (
    _CHAINED_EVENT,
    "lock:contention_end",
    "lock:contended_release",
    "kmem:mm_zone_lock_contended",
    "kmem:mm_zone_locked",
    "kmem:mm_zone_lock_unlock",
)
RECENT_EVENTS = {
    "kmem:mm_page_pcpu_refill": "which objects a refill took is inferred",
    "kmem:mm_zone_locked": "how long zone->lock is held, and refills that find nothing, are unseen",
    "kmem:mm_zone_lock_unlock": "how long zone->lock is held is unseen",
    "kmem:mm_zone_lock_contended": "when a wait for zone->lock began is inferred",
    "lock:contended_release": "whose hold made others wait is unseen",
}
"""Tracepoints that most kernels lack, or that are only proposed (T8), and what a lack costs."""

_USUAL = {
    "kmem": (
        "mm_page_alloc",
        "mm_page_free",
        "mm_page_free_batched",
        "mm_page_alloc_zone_locked",
        "mm_page_pcpu_drain",
        "mm_page_pcpu_refill",
        "mm_page_alloc_extfrag",
        "mm_setup_per_zone_wmarks",
        "mm_setup_per_zone_lowmem_reserve",
        "mm_calculate_totalreserve_pages",
    ),
    "compaction": (
        "mm_compaction_begin",
        "mm_compaction_end",
        "mm_compaction_migratepages",
        "mm_compaction_isolate_freepages",
        "mm_compaction_isolate_migratepages",
        "mm_compaction_fast_isolate_freepages",
        "mm_compaction_try_to_compact_pages",
        "mm_compaction_suitable",
        "mm_compaction_finished",
        "mm_compaction_deferred",
        "mm_compaction_defer_compaction",
        "mm_compaction_defer_reset",
        "mm_compaction_wakeup_kcompactd",
        "mm_compaction_kcompactd_wake",
        "mm_compaction_kcompactd_sleep",
    ),
    "vmscan": (
        "mm_vmscan_wakeup_kswapd",
        "mm_vmscan_kswapd_wake",
        "mm_vmscan_kswapd_sleep",
        "mm_vmscan_balance_pgdat_begin",
        "mm_vmscan_balance_pgdat_end",
        "mm_vmscan_direct_reclaim_begin",
        "mm_vmscan_direct_reclaim_end",
        "mm_vmscan_lru_shrink_inactive",
        "mm_vmscan_kswapd_reclaim_fail",
        "mm_vmscan_kswapd_clear_hopeless",
    ),
    "oom": ("reclaim_retry_zone", "compact_retry"),
    "migrate": ("mm_migrate_pages",),
    "cma": ("cma_alloc_start", "cma_alloc_finish", "cma_alloc_busy_retry", "cma_release"),
    "page_isolation": ("test_pages_isolated",),
    "huge_memory": (
        "mm_collapse_huge_page",
        "mm_khugepaged_scan_pmd",
        "mm_khugepaged_scan_file",
        "mm_khugepaged_collapse_file",
    ),
}
_DECAY_EVENT = "workqueue:workqueue_execute_start"
_DECAY_FUNCTION = "vmstat_update"
_CALL_CHAIN = "call-graph=fp,max-stack=12"


@dataclass(frozen=True, kw_only=True)
class EventChoice:
    """The tracepoints of one recording.

    Attributes:
        names: those to record, as `system:name`.
        missing: those of the usual set that this kernel lacks.
    """

    names: tuple[str, ...]
    missing: tuple[str, ...]


def usual_events(*, locks: bool = True) -> tuple[str, ...]:
    """Names of the usual set."""
    names = tuple(f"{system}:{name}" for system, part in _USUAL.items() for name in part)
    return (*names, _DECAY_EVENT, *(LOCK_EVENTS if locks else ()))


def available_events(tracefs: Path) -> frozenset[str]:
    """Names of all tracepoints of the running kernel."""
    return frozenset((read_or_none(tracefs / "available_events") or "").split())


def choose_events(available: frozenset[str], asked: Iterable[str], *, locks: bool) -> EventChoice:
    """Resolve what a user asks for; the two essential events are always recorded.

    Args:
        available: names of the kernel's tracepoints.
        asked: names, shell patterns such as "vmscan:*", and `USUAL_EVENTS`.
        locks: whether to record lock contention.

    Raises:
        UsageError: something asked for by name or pattern is not in this kernel.
    """
    wanted = list(ESSENTIAL_EVENTS)
    for each in asked:
        if each == USUAL_EVENTS:
            wanted += usual_events()
        else:
            wanted += _matching(available, each)
    names = [name for name in dict.fromkeys(wanted) if locks or name not in LOCK_EVENTS]
    return EventChoice(
        names=tuple(name for name in names if name in available),
        missing=tuple(name for name in names if name not in available),
    )


def _matching(available: frozenset[str], pattern: str) -> list[str]:
    matches = sorted(name for name in available if fnmatchcase(name, pattern))
    if not matches:
        raise UsageError(
            f"--events {pattern}: this kernel has no such tracepoint; "
            "give a name or pattern that `perf list tracepoint` shows"
        )
    return matches


def event_arguments(names: Iterable[str], host: Host) -> Iterator[str]:
    """The words that make perf record some events.

    Only a lock's contention comes with the kernel's call chain. Of the workqueue's events only
    those of the periodic counter update are kept, which is when per-CPU lists decay (S4.8).
    """
    for name in names:
        if name == _DECAY_EVENT:
            yield from _decay_arguments(host)
        elif name == _CHAINED_EVENT:
            yield from ("-e", f"{name}/{_CALL_CHAIN}/")
        else:
            yield from ("-e", name)


def _decay_arguments(host: Host) -> Iterator[str]:
    """None where the kernel hides the function's address: the event is too frequent unfiltered."""
    address = _function_address(host, _DECAY_FUNCTION)
    if address:
        yield from ("-e", _DECAY_EVENT, "--filter", f"function == {address:#x}")


def _function_address(host: Host, function: str) -> int:
    """Address of a kernel function, 0 if unknown or hidden."""
    ending = f" {function}"
    for line in (read_or_none(host.proc / "kallsyms") or "").splitlines():
        if line.endswith(ending):
            return int(line.split()[0], 16)
    return 0


def without_addresses(arguments: Iterable[str]) -> list[str]:
    """Arguments for perf as they are kept with a recording: filters name the function."""
    return [
        f"function == {_DECAY_FUNCTION}" if word.startswith("function == ") else word
        for word in arguments
    ]
