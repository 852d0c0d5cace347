"""Tracepoints by name: those that something here reads, and the sets that `record` records.

A constant is named as the kernel's event, without its prefix where it is known without it.
"""

PAGE_ALLOC = "kmem:mm_page_alloc"
PAGE_FREE = "kmem:mm_page_free"
PAGE_FREE_BATCHED = "kmem:mm_page_free_batched"
PAGE_ALLOC_ZONE_LOCKED = "kmem:mm_page_alloc_zone_locked"
PAGE_ALLOC_EXTFRAG = "kmem:mm_page_alloc_extfrag"
PAGE_PCPU_DRAIN = "kmem:mm_page_pcpu_drain"
PAGE_PCPU_REFILL = "kmem:mm_page_pcpu_refill"
ZONE_LOCK_CONTENDED = "kmem:mm_zone_lock_contended"
ZONE_LOCKED = "kmem:mm_zone_locked"
ZONE_LOCK_UNLOCK = "kmem:mm_zone_lock_unlock"

COMPACTION = ("compaction:mm_compaction_begin", "compaction:mm_compaction_end")
COMPACTION_BEGIN, COMPACTION_END = COMPACTION
MIGRATEPAGES = "compaction:mm_compaction_migratepages"
ISOLATE_FREEPAGES = "compaction:mm_compaction_isolate_freepages"
ISOLATE_MIGRATEPAGES = "compaction:mm_compaction_isolate_migratepages"
FAST_ISOLATE_FREEPAGES = "compaction:mm_compaction_fast_isolate_freepages"
TRY_TO_COMPACT_PAGES = "compaction:mm_compaction_try_to_compact_pages"
COMPACTION_FINISHED = "compaction:mm_compaction_finished"
KCOMPACTD = ("compaction:mm_compaction_kcompactd_wake", "compaction:mm_compaction_kcompactd_sleep")
KCOMPACTD_WAKE, KCOMPACTD_SLEEP = KCOMPACTD

WAKEUP_KSWAPD = "vmscan:mm_vmscan_wakeup_kswapd"
KSWAPD = ("vmscan:mm_vmscan_kswapd_wake", "vmscan:mm_vmscan_kswapd_sleep")
KSWAPD_WAKE, KSWAPD_SLEEP = KSWAPD
"""The sleep comes after the naps."""
BALANCE_PGDAT = ("vmscan:mm_vmscan_balance_pgdat_begin", "vmscan:mm_vmscan_balance_pgdat_end")
DIRECT_RECLAIM = ("vmscan:mm_vmscan_direct_reclaim_begin", "vmscan:mm_vmscan_direct_reclaim_end")
DIRECT_RECLAIM_BEGIN, DIRECT_RECLAIM_END = DIRECT_RECLAIM
LRU_SHRINK_INACTIVE = "vmscan:mm_vmscan_lru_shrink_inactive"
"""The end of each cluster of reclaim (T7)."""

CONTENTION = CONTENTION_BEGIN, CONTENTION_END = "lock:contention_begin", "lock:contention_end"
CONTENDED_RELEASE = "lock:contended_release"
WORKQUEUE_EXECUTE_START = "workqueue:workqueue_execute_start"
TICK_FUNCTION = "vmstat_update"
TICK_FILTER = f"function == {TICK_FUNCTION}"
"""What perf keeps of the workqueue's events, as `record` spells it in meta.json."""
SCHED_SWITCH = "sched:sched_switch"
FILEMAP = FILEMAP_ADD, FILEMAP_DELETE, FILEMAP_GET_PAGES = (
    "filemap:mm_filemap_add_to_page_cache",
    "filemap:mm_filemap_delete_from_page_cache",
    "filemap:mm_filemap_get_pages",
)

ESSENTIAL = (PAGE_ALLOC, PAGE_FREE)
"""Recorded whatever else is asked for."""
RECORD_ESSENTIAL = " ".join(f"-e {name}" for name in ESSENTIAL)
LOCKS = (
    *(*CONTENTION, CONTENDED_RELEASE),
    *(ZONE_LOCK_CONTENDED, ZONE_LOCKED, ZONE_LOCK_UNLOCK),
)
"""Lock contention, which `record` can leave out."""
RECENT = {
    PAGE_PCPU_REFILL: "which objects a refill took is inferred",
    ZONE_LOCKED: "how long zone->lock is held, and refills that find nothing, are unseen",
    ZONE_LOCK_UNLOCK: "how long zone->lock is held is unseen",
    ZONE_LOCK_CONTENDED: "when a wait for zone->lock began is inferred",
    CONTENDED_RELEASE: "whose hold made others wait is unseen",
}
"""Those that most kernels lack, or that are only proposed (T8), and what a lack costs."""
USUAL = (
    *(PAGE_ALLOC, PAGE_FREE, PAGE_FREE_BATCHED, PAGE_ALLOC_ZONE_LOCKED),
    *(PAGE_PCPU_DRAIN, PAGE_PCPU_REFILL, PAGE_ALLOC_EXTFRAG),
    *("kmem:mm_setup_per_zone_wmarks", "kmem:mm_setup_per_zone_lowmem_reserve"),
    "kmem:mm_calculate_totalreserve_pages",
    *(*COMPACTION, MIGRATEPAGES),
    *(ISOLATE_FREEPAGES, ISOLATE_MIGRATEPAGES),
    *(FAST_ISOLATE_FREEPAGES, TRY_TO_COMPACT_PAGES),
    *("compaction:mm_compaction_suitable", COMPACTION_FINISHED),
    *("compaction:mm_compaction_deferred", "compaction:mm_compaction_defer_compaction"),
    *("compaction:mm_compaction_defer_reset", "compaction:mm_compaction_wakeup_kcompactd"),
    *(*KCOMPACTD, WAKEUP_KSWAPD, *KSWAPD, *BALANCE_PGDAT, *DIRECT_RECLAIM, LRU_SHRINK_INACTIVE),
    *("vmscan:mm_vmscan_kswapd_reclaim_fail", "vmscan:mm_vmscan_kswapd_clear_hopeless"),
    *("oom:reclaim_retry_zone", "oom:compact_retry", "migrate:mm_migrate_pages"),
    *("cma:cma_alloc_start", "cma:cma_alloc_finish", "cma:cma_alloc_busy_retry"),
    *("cma:cma_release", "page_isolation:test_pages_isolated"),
    *("huge_memory:mm_collapse_huge_page", "huge_memory:mm_khugepaged_scan_pmd"),
    *("huge_memory:mm_khugepaged_scan_file", "huge_memory:mm_khugepaged_collapse_file"),
    *(WORKQUEUE_EXECUTE_START, *LOCKS),
)
"""The set that `record` takes for "default"."""
