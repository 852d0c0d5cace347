"""Faults of the kernels as 6.12 and later have them."""

from __future__ import annotations

from tests.allocator.fault import Fault

FAULTS = (
    Fault(
        "smallest fit takes the tail",
        "buddy",
        "pfn = m.st[free_list_at(zone, current, migratetype) + at.HEAD]",
        "pfn = m.st[free_list_at(zone, current, migratetype) + at.TAIL]",
    ),
    Fault("merging stops early", "buddy", "while order < largest:", "while order < largest - 1:"),
    Fault("no tail placement", "buddy", "if order < largest - 1 and not tail:", "if order < 0:"),
    Fault(
        "merged block keeps its type",
        "buddy",
        "change_pageblock_range(m, buddy, order, migratetype)",
        "change_pageblock_range(m, buddy, order, other)",
    ),
    Fault(
        "highatomic merges with others",
        "buddy",
        "if other >= at.PCP_TYPES or migratetype >= at.PCP_TYPES:",
        "if other > at.PCP_TYPES or migratetype > at.PCP_TYPES:",
    ),
    Fault(
        "moved pages to the head",
        "buddy",
        "__add_to_free_list(m, zone, pfn, order, migratetype, True)\n            moved",
        "__add_to_free_list(m, zone, pfn, order, migratetype, False)\n            moved",
    ),
    Fault(
        "splits are not counted",
        "buddy",
        "st[at.WORK_SPLITS] += from_order - order",
        "st[at.WORK_SPLITS] += 1",
    ),
    Fault("merges are not counted", "buddy", "st[at.WORK_MERGES] -= order", "pass"),
    Fault("work is kept", "event_log", "st[at.WORK + unit] = 0", "pass"),
    Fault(
        "a scan does not skip buddies",
        "fallback_search",
        ('pfn += 1 << int(m.pages[pfn]["order"]) if int(m.pages[pfn]["where"]) == at.BUDDY else 1'),
        "pfn += 1",
    ),
    Fault("full drains never go by batch", "pcp_drain", "at.DRAINS_BATCH:", "at.DRAINS_BATCH + 1:"),
    Fault("refill one too many", "pcp", "while got < wanted:", "while got <= wanted:"),
    Fault(
        "refill to the head",
        "pcp",
        "list_add_tail(m.pages, m.st, lst, pfn)",
        "list_add(m.pages, m.st, lst, pfn)",
    ),
    Fault(
        "no halving of free_count",
        "pcp",
        "st[pcp + at.PCP_FREE_COUNT] >>= 1",
        "st[pcp + at.PCP_FREE_COUNT] >>= 0",
    ),
    Fault(
        "no halving of alloc_factor",
        "pcp",
        "st[pcp + at.PCP_ALLOC_FACTOR] >>= 1",
        "st[pcp + at.PCP_ALLOC_FACTOR] >>= 0",
    ),
    Fault(
        "the low bound wins",
        "pcp",
        "    if value >= high:\n        return high\n    return max(value, low)",
        "    return max(low, min(value, high))",
    ),
    Fault(
        "clamped high forgotten",
        "pcp",
        ("    m.st[pcp + at.PCP_HIGH] = high\n    return high"),
        "    return high",
    ),
    Fault("drain from the head", "pcp", "pfn = m.st[lst + at.TAIL]", "pfn = m.st[lst + at.HEAD]"),
    Fault("drain starts at list 0", "pcp", "index = first_list", "index = 0"),
    Fault(
        "high grows below the high watermark",
        "pcp",
        "if high_min != high_max and not m.st[zone_at(zone) + at.ZONE_BELOW_HIGH]:",
        "if high_min != high_max:",
    ),
    Fault(
        "the raised high applies at once",
        "pcp",
        "clamp(needed, high_min, high_max)\n    return high",
        "clamp(needed, high_min, high_max)\n    return st[pcp + at.PCP_HIGH]",
    ),
    Fault(
        "flush threshold without high_min",
        "pcp",
        "threshold += m.st[pcp + at.PCP_HIGH_MIN] // 2",
        "threshold += 0",
    ),
    Fault(
        "huge pages of all types on one list",
        "pcp",
        "(1 if migratetype == at.MOVABLE else 0)",
        "0",
    ),
    Fault("decay by a quarter", "pcp_drain", "high - (high >> 3)", "high - (high >> 2)"),
    Fault(
        "free_count beyond its cap",
        "pcp",
        (
            "if m.st[pcp + at.PCP_FREE_COUNT] < m.st[pcp + at.PCP_BATCH] << "
            "m.st[at.POLICY_PCP_BATCH_SCALE_MAX]:"
        ),
        (
            "if m.st[pcp + at.PCP_FREE_COUNT] <= m.st[pcp + at.PCP_BATCH] << "
            "m.st[at.POLICY_PCP_BATCH_SCALE_MAX]:"
        ),
    ),
    Fault(
        "a free may drain up to the limit",
        "pcp",
        "clamp(m.st[pcp + at.PCP_FREE_COUNT], base, limit - base)",
        "clamp(m.st[pcp + at.PCP_FREE_COUNT], base, limit)",
    ),
    Fault(
        "no shorter lists while reclaim runs",
        "pcp",
        "if m.st[region + at.ZONE_RECLAIM_ACTIVE]:",
        "if m.st[region + at.ZONE_RECLAIM_ACTIVE] > 1:",
    ),
    Fault(
        "unmovable falls back to movable first",
        "fallback_search",
        "    if migratetype == at.UNMOVABLE:\n"
        "        return at.RECLAIMABLE if choice == 0 else at.MOVABLE",
        "    if migratetype == at.UNMOVABLE:\n"
        "        return at.RECLAIMABLE if choice == 1 else at.MOVABLE",
    ),
    Fault(
        "no boost",
        "fallback",
        "if boost_watermark(m, zone) and flags & at.ALLOC_KSWAPD:",
        "if flags < 0:",
    ),
    Fault(
        "half a block is not enough",
        "fallback_search",
        "return free + alike >= block_pages // 2",
        "return free + alike > block_pages // 2",
    ),
    Fault(
        "movable requests claim from order 5 up",
        "fallback",
        "if current < m.st[at.PAGEBLOCK_ORDER] // 2 and",
        "if current < m.st[at.PAGEBLOCK_ORDER] // 2 + 1 and",
    ),
    Fault(
        "movable requests claim from order 3 up",
        "fallback",
        "if current < m.st[at.PAGEBLOCK_ORDER] // 2 and",
        "if current < m.st[at.PAGEBLOCK_ORDER] // 3 and",
    ),
    Fault(
        "NOFRAGMENT claims parts of blocks",
        "fallback",
        "if flags & at.ALLOC_NOFRAGMENT and order < m.st[at.PAGEBLOCK_ORDER]:",
        "if flags & at.ALLOC_NOFRAGMENT and order > m.st[at.PAGEBLOCK_ORDER]:",
    ),
    Fault(
        "every steal looks at the other steps again",
        "fallback",
        "return pfn, MODE_STEAL if pfn >= 0 else mode",
        "return pfn, MODE_NORMAL if pfn >= 0 else mode",
    ),
    Fault(
        "stolen remainder changes its type",
        "fallback",
        "expand(m, zone, pfn, order, found_order, other)",
        "expand(m, zone, pfn, order, found_order, migratetype)",
    ),
    Fault(
        "blocks at the zone's edge are claimed",
        "fallback_search",
        "if first < m.st[region + at.ZONE_START] or end > m.st[region + at.ZONE_END]:",
        "if first < m.st[region + at.ZONE_START] and end > m.st[region + at.ZONE_END]:",
    ),
    Fault(
        "movable pages count for no one",
        "fallback_search",
        "movable += size",
        "movable += 0",
    ),
    Fault(
        "gate one order too low",
        "highatomic",
        "if order <= m.st[at.POLICY_HIGHATOMIC_GATE_ORDER]:",
        "if order < m.st[at.POLICY_HIGHATOMIC_GATE_ORDER]:",
    ),
    Fault(
        "cap one block too high",
        "highatomic",
        "if m.st[region + at.ZONE_RESERVED_HIGHATOMIC] >= cap:",
        "if m.st[region + at.ZONE_RESERVED_HIGHATOMIC] > cap:",
    ),
    Fault(
        "small zones reserve",
        "highatomic",
        "        if share < block_pages:\n            return\n",
        "",
    ),
    Fault(
        "the last block is given back",
        "highatomic",
        "if reserved <= kept:",
        "if reserved < kept:",
    ),
    Fault(
        "whole blocks are given back first",
        "highatomic",
        ("m.st[at.PAGEBLOCK_ORDER]\n    for order in range(m.st[at.MAX_ORDER] + 1):"),
        ("m.st[at.PAGEBLOCK_ORDER]\n    for order in range(m.st[at.MAX_ORDER], -1, -1):"),
    ),
    Fault("a reserve of 3/4", "watermark", "needed -= needed // 2", "needed -= needed // 4"),
    Fault(
        "no extra reserve for atomics",
        "watermark",
        "needed -= needed // 4",
        "needed -= 0",
    ),
    Fault(
        "lowmem_reserve ignored",
        "watermark",
        "return free - needed - m.st[region + at.ZONE_LOWMEM_RESERVE + highest_type]",
        "return free - needed",
    ),
    Fault(
        "at the mark is above it",
        "watermark",
        "if pages_above_mark(m, zone, order, mark, highest_type, flags, free) <= 0:",
        "if pages_above_mark(m, zone, order, mark, highest_type, flags, free) < 0:",
    ),
    Fault(
        "the reserve satisfies high-order checks",
        "watermark",
        "if flags & at.ALLOC_HIGHATOMIC and reserve >= 0:",
        "if reserve >= 0:",
    ),
    Fault(
        "reserved free pages count as free",
        "watermark",
        "free -= m.st[region + m.st[at.WATERMARK_SUBTRACTS]]",
        "free -= 0",
    ),
    Fault(
        "boost counts for order-0 reserves",
        "watermark",
        "if order == 0 and flags & at.ALLOC_IGNORES_BOOST and",
        "if order == 1 and flags & at.ALLOC_IGNORES_BOOST and",
    ),
    Fault(
        "boost without a cap",
        "watermark",
        "min(m.st[region + at.ZONE_BOOST] + block_pages, cap)",
        "m.st[region + at.ZONE_BOOST] + block_pages",
    ),
    Fault(
        "boost stays when reclaim ends",
        "kswapd_runs",
        "m.st[region + at.ZONE_BOOST] - m.st[region + at.ZONE_REMEMBERED_BOOST]",
        "m.st[region + at.ZONE_BOOST]",
    ),
    Fault(
        "kswapd sleeps through a boost",
        "kswapd_runs",
        "if pgdat_watermark_boosted(m, node, highest_type) or not pgdat_balanced(",
        "if not pgdat_balanced(",
    ),
    Fault(
        "no last resort for atomics",
        "zone_walk",
        "if pfn < 0 and flags & at.ALLOC_NON_BLOCK:",
        "if pfn < 0 and flags < 0:",
    ),
    Fault(
        "NOFRAGMENT is never dropped",
        "zone_walk",
        "flags &= ~at.ALLOC_NOFRAGMENT\n            else:",
        "return -1\n            else:",
    ),
    Fault(
        "BELOW_HIGH is never set",
        "zone_walk",
        "st[region + at.ZONE_BELOW_HIGH] = 1",
        "st[region + at.ZONE_BELOW_HIGH] = 0",
    ),
    Fault(
        "forced requests begin with the first zone",
        "reclaim",
        "if margin > best_margin:",
        "if margin < best_margin:",
    ),
    Fault(
        "unreserve is forgotten",
        "request",
        "flags):\n        unreserve_highatomic_pageblock(m, ac, False)\n",
        "flags):\n",
    ),
)
