"""Faults of what only 6.1 does."""

from __future__ import annotations

from tests.allocator.fault import Fault


def fault(name: str, module: str, right: str, wrong: str) -> Fault:
    """A fault that scenarios with 6.1's rules must tell."""
    return Fault(name, module, right, wrong, presets=("6.1",))


FAULTS_6_1 = (
    fault(
        "movable requests take blocks from order 3 up",
        "fallback",
        "return order >= m.st[at.PAGEBLOCK_ORDER] // 2 or",
        "return order >= m.st[at.PAGEBLOCK_ORDER] // 3 or",
    ),
    fault(
        "only movable requests take blocks",
        "fallback",
        "or migratetype != at.MOVABLE",
        "or migratetype == at.MOVABLE",
    ),
    fault(
        "NOFRAGMENT falls back to parts of blocks",
        "fallback",
        "if flags & at.ALLOC_NOFRAGMENT and order < block_order:",
        "if flags & at.ALLOC_NOFRAGMENT and order > block_order:",
    ),
    fault(
        "the largest is split where the smallest should be",
        "fallback",
        "return choose_steal(m, zone, order, migratetype)",
        "return m.st[free_list_at(zone, current, other) + at.HEAD]",
    ),
    fault(
        "a fallback empties reserved blocks",
        "fallback",
        "if block_type != at.HIGHATOMIC:",
        "if block_type >= 0:",
    ),
    fault(
        "whole blocks keep their type",
        "fallback",
        "change_pageblock_range(m, pfn, order, migratetype)",
        "pass",
    ),
    fault(
        "blocks keep their type",
        "fallback",
        "                if alike:",
        "                if alike < 0:",
    ),
    fault(
        "a fallback within a block boosts nothing",
        "fallback",
        "    if boost_watermark(m, zone) and flags & at.ALLOC_KSWAPD:\n                m",
        "    if flags < 0:\n                m",
    ),
    fault(
        "a buddy comes to the head of its new list",
        "buddy",
        "__add_to_free_list(m, zone, pfn, order, migratetype, True)\n            moved",
        "__add_to_free_list(m, zone, pfn, order, migratetype, False)\n            moved",
    ),
    fault(
        "ownership is what the list said",
        "fallback",
        'owned = int(m.blocks[found >> block_order]["migratetype"]) == migratetype',
        "owned = found_order >= block_order",
    ),
    fault(
        "blocks at the zone's end are moved",
        "buddy",
        "        return pfn, pfn\n",
        "        return first, end\n",
    ),
    fault(
        "blocks at the zone's start are not moved",
        "buddy",
        "        return pfn, end\n",
        "        return pfn, pfn\n",
    ),
    fault(
        "merging retags",
        "buddy",
        "                if m.st[at.RULE_LISTS_MATCH_BLOCKS]:\n",
        "                if True:\n",
    ),
    fault(
        "pages are drained as their blocks are",
        "pcp",
        "as_of_block = m.st[at.RULE_LISTS_MATCH_BLOCKS] or",
        "as_of_block = 1 or",
    ),
    fault(
        "isolated blocks change no drain",
        "pcp",
        " or m.st[zone_at(zone) + at.ZONE_HAS_ISOLATED]",
        "",
    ),
    fault(
        "drains do not double",
        "pcp",
        "st[pcp + at.PCP_FREE_FACTOR] = factor + 1",
        "st[pcp + at.PCP_FREE_FACTOR] = 0",
    ),
    fault(
        "drains double once too often",
        "pcp",
        "if wanted < most and",
        "if wanted <= most and",
    ),
    fault(
        "high-order pages never empty the lists",
        "pcp",
        "if factor > 0 and 0 < order",
        "if factor < 0 and 0 < order",
    ),
    fault(
        "huge pages empty the lists",
        "pcp",
        "0 < order <= m.st[at.POLICY_COSTLY_ORDER]:",
        "0 < order < 10:",
    ),
    fault(
        "no shorter fixed lists while reclaim runs",
        "pcp",
        "if m.st[zone_at(zone) + at.ZONE_RECLAIM_ACTIVE]:",
        "if m.st[zone_at(zone) + at.ZONE_RECLAIM_ACTIVE] > 1:",
    ),
    fault(
        "lists decay",
        "pcp",
        "if not m.st[at.RULE_PCP_DECAYS]:",
        "if m.st[at.RULE_PCP_DECAYS]:",
    ),
    fault(
        "refills are tuned",
        "pcp",
        "    if m.st[at.RULE_PCP_AUTO_TUNED]:\n",
        "    if True:\n",
    ),
    fault(
        "each page of a refill counts at once",
        "watermark",
        "return m.st[at.RULE_REFILL_COUNTED_AT_END] != 0",
        "return False",
    ),
    fault(
        "moved pages count as taken and freed",
        "watermark",
        "if m.st[at.RULE_LISTS_MATCH_BLOCKS] and m.st[at.COUNTS_BY_CPU]:",
        "if m.st[at.COUNTS_BY_CPU]:",
    ),
    fault(
        "small zones do not reserve",
        "highatomic",
        "    cap = share + block_pages\n",
        "    cap = share\n",
    ),
    fault(
        "several blocks are reserved at once",
        "highatomic",
        "            converted = 1\n        elif order",
        "            converted = 1 << max(order - block_order, 0)\n        elif order",
    ),
    fault(
        "what is reserved no more is subtracted again",
        "highatomic",
        "size = 1 << block_order if reserves else 0",
        "size = 1 << block_order",
    ),
    fault(
        "used pages of the reserve count as free",
        "state",
        "else at.ZONE_RESERVED_HIGHATOMIC",
        "else at.ZONE_FREE_HIGHATOMIC",
    ),
    fault(
        "the boost is dropped by HIGH",
        "state",
        "at.GFP_HIGH if rules.boost_retry_by_high else at.GFP_ATOMIC,",
        "at.GFP_HIGH if rules.boost_retry_by_high else 0,",
    ),
    fault(
        "the high watermark is tested first",
        "page_alloc",
        "if m.st[at.RULE_BELOW_HIGH_TESTED] and not",
        "if not",
    ),
    fault(
        "large pages are freed block by block",
        "buddy",
        "if order <= block_order or not m.st[at.RULE_FREE_SPLIT_BY_BLOCK]:",
        "if order <= block_order:",
    ),
)
