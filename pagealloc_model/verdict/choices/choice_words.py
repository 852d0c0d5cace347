"""What is said of a judged choice: where the kernel makes it, how many of its misses."""

KERNEL_FUNCTIONS = {
    "zone": "get_page_from_freelist",
    "pcp_pop": "__rmqueue_pcplist",
    "refill_when": "__rmqueue_pcplist",
    "refill_size": "nr_pcp_alloc",
    "buddy_pfn": "__rmqueue_smallest",
    "drain_when": "nr_pcp_high",
    "drain_size": "nr_pcp_free, decay_pcp_high",
    "drain_page": "free_pcppages_bulk",
    "fallback": "__rmqueue_claim, __rmqueue_steal",
}
"""By choice, where the kernel makes it."""

MISSES_TOLD = 10
"""Misses of each choice that are printed."""
