"""Faults to be put into the kernels, which scenarios of their kind must tell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

Faults = dict[str, dict[str, tuple[str, str]]]
"""By module and name: text as it is, once in the file, and text put in its place."""


@dataclass(frozen=True)
class Fault:
    """One wrong line.

    Attributes:
        name: what is wrong.
        module: kernel source.
        right: text as it is, once in the file.
        wrong: text put in its place.
        presets: rules of the scenarios that must tell.
        scenarios: kinds of scenarios that must tell.
    """

    name: str
    module: str
    right: str
    wrong: str
    presets: tuple[str, ...]
    scenarios: tuple[str, ...]


def faults(
    texts: Faults,
    *,
    presets: tuple[str, ...] = ("6.12", "6.18", "7.2"),
    scenarios: tuple[str, ...] = ("small", "nodes"),
) -> tuple[Fault, ...]:
    """Faults that the same scenarios must tell."""
    return tuple(
        Fault(name, module, right, wrong, presets, scenarios)
        for module, named in texts.items()
        for name, (right, wrong) in named.items()
    )


def module_source(package: Path, module: str) -> Path:
    """The kernel source of a name in a copy of the package, whichever room it is in."""
    (source,) = (package / "allocator").rglob(f"{module}.py")
    return source


LATER_FAULTS: Faults = {
    "buddy": {
        "smallest fit takes the tail": (
            "pfn = m.st[free_list_at(zone, current, migratetype) + at.HEAD]",
            "pfn = m.st[free_list_at(zone, current, migratetype) + at.TAIL]",
        ),
        "merging stops early": ("while order < largest:", "while order < largest - 1:"),
        "no tail placement": ("if order < largest - 1 and not tail:", "if order < 0:"),
        "merged block keeps its type": (
            "change_pageblock_range(m, buddy, order, migratetype)",
            "change_pageblock_range(m, buddy, order, other)",
        ),
        "highatomic merges with others": (
            "if other >= at.PCP_TYPES or migratetype >= at.PCP_TYPES:",
            "if other > at.PCP_TYPES or migratetype > at.PCP_TYPES:",
        ),
        "moved pages to the head": (
            "__add_to_free_list(m, zone, pfn, order, migratetype, True)\n            moved",
            "__add_to_free_list(m, zone, pfn, order, migratetype, False)\n            moved",
        ),
        "splits are not counted": (
            "st[at.WORK_SPLITS] += from_order - order",
            "st[at.WORK_SPLITS] += 1",
        ),
        "merges are not counted": ("m.st[at.WORK_MERGES] -= order", "pass"),
        "a list probed in vain is not counted": (
            "m.st[at.LIST_PROBES] += largest - order + 1",
            "m.st[at.LIST_PROBES] += largest - order",
        ),
    },
    "event_log": {
        "work is kept": ("m.st[at.WORK + unit] = 0", "pass"),
    },
    "fallback": {
        "a scan does not skip buddies": (
            (
                'pfn += 1 << int(m.pages[pfn]["order"]) if int(m.pages[pfn]["where"]) == '
                "at.BUDDY else 1"
            ),
            "pfn += 1",
        ),
        "unmovable falls back to movable first": (
            (
                "    if migratetype == at.UNMOVABLE:\n"
                "        return at.RECLAIMABLE if choice == 0 else at.MOVABLE"
            ),
            (
                "    if migratetype == at.UNMOVABLE:\n"
                "        return at.RECLAIMABLE if choice == 1 else at.MOVABLE"
            ),
        ),
        "no boost": (
            "\n    if boost_watermark(m, zone) and flags & at.ALLOC_KSWAPD:",
            "\n    if flags < 0:",
        ),
        "lists of an order without free pages are probed": (
            "if not has_free_pages(m, zone, order):",
            "if order < 0:",
        ),
        "half a block is not enough": (
            "return free + alike >= block_pages // 2",
            "return free + alike > block_pages // 2",
        ),
        "movable requests claim from order 5 up": (
            "return order >= m.st[at.PAGEBLOCK_ORDER] // 2 or",
            "return order >= m.st[at.PAGEBLOCK_ORDER] // 2 + 1 or",
        ),
        "movable requests claim from order 3 up": (
            "return order >= m.st[at.PAGEBLOCK_ORDER] // 2 or",
            "return order >= m.st[at.PAGEBLOCK_ORDER] // 3 or",
        ),
        "NOFRAGMENT claims parts of blocks": (
            (
                "return max(order, m.st[at.PAGEBLOCK_ORDER]) if flags & "
                "at.ALLOC_NOFRAGMENT else order"
            ),
            "return order",
        ),
        "every steal looks at the other steps again": (
            "return pfn, MODE_STEAL if pfn >= 0 else mode",
            "return pfn, MODE_NORMAL if pfn >= 0 else mode",
        ),
        "stolen remainder changes its type": (
            "expand(m, zone, pfn, order, found_order, other)",
            "expand(m, zone, pfn, order, found_order, migratetype)",
        ),
        "blocks at the zone's edge are claimed": (
            "return first >= m.st[region + at.ZONE_START] and end <= m.st[region + at.ZONE_END]",
            "return first >= m.st[region + at.ZONE_START] or end <= m.st[region + at.ZONE_END]",
        ),
        "movable pages count for no one": ("movable += size", "movable += 0"),
        "half of free memory in CMA is enough": (
            "return seen_free_cma(m, zone) > seen_free(m, zone) // 2",
            "return seen_free_cma(m, zone) >= seen_free(m, zone) // 2",
        ),
        "CMA is never first": (
            "if flags & at.ALLOC_CMA and cma_comes_first(m, zone):",
            "if flags < 0:",
        ),
    },
    "pcp": {
        "full drains never go by batch": ("at.DRAINS_BATCH:", "at.DRAINS_BATCH + 1:"),
        "refill one too many": ("while got < wanted:", "while got <= wanted:"),
        "refill to the head": (
            "list_add_tail(m.pages, m.st, lst, pfn)",
            "list_add(m.pages, m.st, lst, pfn)",
        ),
        "no halving of free_count": (
            "st[pcp + at.PCP_FREE_COUNT] >>= 1",
            "st[pcp + at.PCP_FREE_COUNT] >>= 0",
        ),
        "no halving of alloc_factor": (
            "st[pcp + at.PCP_ALLOC_FACTOR] >>= 1",
            "st[pcp + at.PCP_ALLOC_FACTOR] >>= 0",
        ),
        "the low bound wins": (
            "    if value >= high:\n        return high\n    return max(value, low)",
            "    return max(low, min(value, high))",
        ),
        "clamped high forgotten": (
            "    m.st[pcp + at.PCP_HIGH] = high\n    return high",
            "    return high",
        ),
        "drain from the head": ("pfn = m.st[lst + at.TAIL]", "pfn = m.st[lst + at.HEAD]"),
        "drain starts at list 0": ("else first_list", "else 0"),
        "high grows below the high watermark": (
            "if high_min != high_max and not m.st[zone_at(zone) + at.ZONE_BELOW_HIGH]:",
            "if high_min != high_max:",
        ),
        "the raised high applies at once": (
            "clamp(needed, high_min, high_max)\n    return high",
            "clamp(needed, high_min, high_max)\n    return st[pcp + at.PCP_HIGH]",
        ),
        "flush threshold without high_min": (
            "threshold += m.st[pcp + at.PCP_HIGH_MIN] // 2",
            "threshold += 0",
        ),
        "huge pages of all types on one list": ("(1 if migratetype == at.MOVABLE else 0)", "0"),
        "decay by a quarter": ("high - (high >> 3)", "high - (high >> 2)"),
        "free_count beyond its cap": (
            "if m.st[pcp + at.PCP_FREE_COUNT] < most:",
            "if m.st[pcp + at.PCP_FREE_COUNT] <= most:",
        ),
        "a free may drain up to the limit": (
            "clamp(m.st[pcp + at.PCP_FREE_COUNT], base, limit - base)",
            "clamp(m.st[pcp + at.PCP_FREE_COUNT], base, limit)",
        ),
        "no shorter lists while reclaim runs": (
            "if m.st[region + at.ZONE_RECLAIM_ACTIVE]:",
            "if m.st[region + at.ZONE_RECLAIM_ACTIVE] > 1:",
        ),
        "every refill goes on in its mode": (
            "        if not m.st[at.POLICY_REFILL_MODE_PERSISTS]:\n",
            "        if False:\n",
        ),
        "limits share a zone among all CPUs": (
            "machine.cpus_of_node(machine.nodes.index(zone.node)) or machine.nr_cpus",
            "machine.nr_cpus",
        ),
        "local lists expire too": (
            "        m.st[pcp + at.PCP_EXPIRE] = 0\n        return 0\n",
            "        pass\n",
        ),
        "expiry empties the list": ("return min(count, m.st[pcp + at.PCP_BATCH])", "return count"),
        "a limit is set beyond its bounds": (
            "wanted, m.st[pcp + at.PCP_HIGH_MIN], m.st[pcp + at.PCP_HIGH_MAX]",
            "wanted, 0, 1 << 30",
        ),
    },
    "highatomic": {
        "gate one order too low": (
            "if order <= m.st[at.POLICY_HIGHATOMIC_GATE_ORDER]:",
            "if order < m.st[at.POLICY_HIGHATOMIC_GATE_ORDER]:",
        ),
        "cap one block too high": (
            "if m.st[region + at.ZONE_RESERVED_HIGHATOMIC] >= cap:",
            "if m.st[region + at.ZONE_RESERVED_HIGHATOMIC] > cap:",
        ),
        "small zones reserve": ("        if share < block_pages:\n            return\n", ""),
        "the last block is given back": ("if reserved <= kept:", "if reserved < kept:"),
        "whole blocks are given back first": (
            "    for order in range(smallest, m.st[at.MAX_ORDER] + 1):",
            "    for order in range(m.st[at.MAX_ORDER], smallest - 1, -1):",
        ),
    },
    "watermark": {
        "a reserve of 3/4": ("needed -= needed // 2", "needed -= needed // 4"),
        "no extra reserve for atomics": ("needed -= needed // 4", "needed -= 0"),
        "lowmem_reserve ignored": (
            "return free - needed - m.st[region + at.ZONE_LOWMEM_RESERVE + highest_type]",
            "return free - needed",
        ),
        "at the mark is above it": (
            "if pages_above_mark(m, zone, order, mark, highest_type, flags, free) <= 0:",
            "if pages_above_mark(m, zone, order, mark, highest_type, flags, free) < 0:",
        ),
        "the reserve satisfies high-order checks": (
            "if flags & at.ALLOC_HIGHATOMIC and reserve >= 0:",
            "if reserve >= 0:",
        ),
        "reserved free pages count as free": (
            "free -= m.st[region + m.st[at.WATERMARK_SUBTRACTS]]",
            "free -= 0",
        ),
        "boost counts for order-0 reserves": (
            "if order == 0 and flags & at.ALLOC_IGNORES_BOOST and",
            "if order == 1 and flags & at.ALLOC_IGNORES_BOOST and",
        ),
        "boost without a cap": (
            "min(m.st[region + at.ZONE_BOOST] + block_pages, cap)",
            "m.st[region + at.ZONE_BOOST] + block_pages",
        ),
        "boost stays when reclaim ends": (
            "m.st[region + at.ZONE_BOOST] - m.st[region + at.ZONE_REMEMBERED_BOOST]",
            "m.st[region + at.ZONE_BOOST]",
        ),
        "kswapd sleeps through a boost": (
            "if pgdat_watermark_boosted(m, node, highest_type) or not pgdat_balanced(",
            "if not pgdat_balanced(",
        ),
        "kswapd concerns all zones of its node": (
            (
                "return m.st[region + at.ZONE_MANAGED] > 0 and m.st[region + at.ZONE_TYPE] "
                "<= highest_type"
            ),
            "return m.st[region + at.ZONE_MANAGED] > 0",
        ),
        "lists expire a tick late": ("QUIET_TICKS = 3\n", "QUIET_TICKS = 4\n"),
        "a list's own drain does not put its expiry off": (
            "            m.st[pcp + at.PCP_TOUCHED] = 1\n",
            "            m.st[pcp + at.PCP_TOUCHED] = change < 0\n",
        ),
        "counters are passed on a page early": (
            "if abs(held) > m.st[region + at.ZONE_THRESHOLD]:",
            "if abs(held) >= m.st[region + at.ZONE_THRESHOLD]:",
        ),
        "the threshold does not shrink under pressure": (
            "set_pgdat_percpu_threshold(m, node, at.ZONE_THRESHOLD_AWAKE)",
            "set_pgdat_percpu_threshold(m, node, at.ZONE_THRESHOLD_ASLEEP)",
        ),
        "conversions leave the held-back pages": (
            "if m.st[at.RULE_LISTS_MATCH_BLOCKS] and m.st[at.COUNTS_BY_CPU]:",
            "if m.st[at.COUNTS_BY_CPU] < 0:",
        ),
        "free CMA pages count for all": (
            "        free -= seen_free_cma(m, zone)\n",
            "        free -= 0\n",
        ),
        "CMA satisfies every high-order check": (
            "if flags & at.ALLOC_CMA and m.st[free_list_at",
            "if m.st[at.CMA] >= 0 and m.st[free_list_at",
        ),
        "isolated pages count as free": (
            "        return\n    account_total(m, zone, change)\n",
            "        change += 0\n    account_total(m, zone, change)\n",
        ),
    },
    "page_alloc": {
        "no last resort for atomics": (
            "if pfn < 0 and flags & at.ALLOC_NON_BLOCK:",
            "if pfn < 0 and flags < 0:",
        ),
        "NOFRAGMENT is never dropped": (
            "flags &= ~at.ALLOC_NOFRAGMENT\n            else:",
            "return -1, position, flags, skips_busy, skipped\n            else:",
        ),
        "BELOW_HIGH is never set": (
            "st[region + at.ZONE_BELOW_HIGH] = 1",
            "st[region + at.ZONE_BELOW_HIGH] = 0",
        ),
        "forced requests begin with the first zone": (
            "if margin > best_margin:",
            "if margin < best_margin:",
        ),
        "unreserve is forgotten": (
            "    unreserve_highatomic_pageblock(m, ac, False)\n    drain_all_pages(m)\n",
            "    drain_all_pages(m)\n",
        ),
        "NOFRAGMENT matters more than the own node": (
            (
                "return -1, position, flags, skips_busy, skipped\n"
                "            position = ac.zonelist\n        elif drops_nofragment(m, flags) and"
            ),
            (
                "return -1, position, flags, skips_busy, skipped\n"
                "            position = ac.zonelist\n        elif flags < 0 and"
            ),
        ),
        "only the nearest node's kswapd wakes": (
            "            woken = node\n            position += 1\n",
            "            return\n",
        ),
        "MEMALLOC waits for reclaim": (
            "return bits & at.GFP_MEMALLOC != 0 and not bits & at.GFP_NOMEMALLOC",
            "return False",
        ),
        "every request that may reclaim does": (
            "return not m.st[at.DIRECT_RECLAIM_RECORDED] or bits & at.REQUEST_RECLAIMED != 0",
            "return True",
        ),
        "recorded reclaim never suffices": (
            "if margin <= m.st[at.RECLAIM_MARGINS + number]:",
            "if margin < 1 << 60:",
        ),
        "reclaim is to leave the whole mark free": (
            "st[at.RECLAIM_MARGINS + number] = min(margin, 0)",
            "st[at.RECLAIM_MARGINS + number] = 0",
        ),
    },
    "state": {
        "nodes by number, not by distance": (
            "nearest = local if local in left else min(left, key=lambda node: costs[node])",
            "nearest = local if local in left else min(left)",
        ),
        "nodes below the own one are as near": (
            "machine.distance(local, node) + (node < local) + has_cpus[node],",
            "machine.distance(local, node) + has_cpus[node],",
        ),
        "nodes with CPUs are as near": (
            "machine.distance(local, node) + (node < local) + has_cpus[node],",
            "machine.distance(local, node) + (node < local),",
        ),
        "low zones of a node first": (
            "range(node * types + highest_type, node * types - 1, -1)",
            "range(node * types, node * types + highest_type + 1)",
        ),
        "NOFRAGMENT without a zone below": ("and (len(machine.nodes) == 1 or populated_below)", ""),
        "huge lists hold blocks": (
            "machine.pageblock_order if rules.huge_lists_hold_blocks else PMD_ORDER",
            "machine.pageblock_order",
        ),
    },
    "layout": {
        "THISNODE is not heard": ("if bits & GFP_THISNODE:", "if bits < 0:"),
    },
    "events": {
        "a recorded run goes on through the next": (
            "        end_kswapd(m, offset)\n        start_kswapd(m, offset",
            "        start_kswapd(m, offset",
        ),
    },
}
"""The allocator as 6.12 and later have it, on machines of one node or several."""

FAULTS_6_1: Faults = {
    "fallback": {
        "movable requests take blocks from order 3 up": (
            "return order >= m.st[at.PAGEBLOCK_ORDER] // 2 or",
            "return order >= m.st[at.PAGEBLOCK_ORDER] // 3 or",
        ),
        "only movable requests take blocks": (
            "or migratetype != at.MOVABLE",
            "or migratetype == at.MOVABLE",
        ),
        "NOFRAGMENT falls back to parts of blocks": (
            "if flags & at.ALLOC_NOFRAGMENT and order < block_order:",
            "if flags & at.ALLOC_NOFRAGMENT and order > block_order:",
        ),
        "the largest is split where the smallest should be": (
            "return choose_steal(m, zone, order, migratetype)",
            "return m.st[free_list_at(zone, current, other) + at.HEAD]",
        ),
        "a fallback empties reserved blocks": (
            "if block_type != at.HIGHATOMIC:",
            "if block_type >= 0:",
        ),
        "whole blocks keep their type": (
            "change_pageblock_range(m, pfn, order, migratetype)",
            "pass",
        ),
        "blocks keep their type": ("                if alike:", "                if alike < 0:"),
        "a fallback within a block boosts nothing": (
            "    if boost_watermark(m, zone) and flags & at.ALLOC_KSWAPD:\n                m",
            "    if flags < 0:\n                m",
        ),
        "ownership is what the list said": (
            'owned = int(m.blocks[found >> block_order]["migratetype"]) == migratetype',
            "owned = found_order >= block_order",
        ),
    },
    "buddy": {
        "a buddy comes to the head of its new list": (
            "__add_to_free_list(m, zone, pfn, order, migratetype, True)\n            moved",
            "__add_to_free_list(m, zone, pfn, order, migratetype, False)\n            moved",
        ),
        "blocks at the zone's end are moved": (
            "        return pfn, pfn\n",
            "        return first, end\n",
        ),
        "blocks at the zone's start are not moved": (
            "        return pfn, end\n",
            "        return pfn, pfn\n",
        ),
        "merging retags": (
            "                if m.st[at.RULE_LISTS_MATCH_BLOCKS]:\n",
            "                if True:\n",
        ),
        "large pages are freed block by block": (
            "if order <= block_order or not m.st[at.RULE_FREE_SPLIT_BY_BLOCK]:",
            "if order <= block_order:",
        ),
    },
    "pcp": {
        "pages are drained as their blocks are": (
            "as_of_block = m.st[at.RULE_LISTS_MATCH_BLOCKS] or",
            "as_of_block = 1 or",
        ),
        "isolated blocks change no drain": (" or m.st[zone_at(zone) + at.ZONE_HAS_ISOLATED]", ""),
        "drains do not double": (
            "st[pcp + at.PCP_FREE_FACTOR] = factor + 1",
            "st[pcp + at.PCP_FREE_FACTOR] = 0",
        ),
        "drains double once too often": ("if wanted < most and", "if wanted <= most and"),
        "high-order pages never empty the lists": (
            "if factor > 0 and 0 < order",
            "if factor < 0 and 0 < order",
        ),
        "huge pages empty the lists": (
            "0 < order <= m.st[at.POLICY_COSTLY_ORDER]:",
            "0 < order < 10:",
        ),
        "no shorter fixed lists while reclaim runs": (
            "if m.st[zone_at(zone) + at.ZONE_RECLAIM_ACTIVE]:",
            "if m.st[zone_at(zone) + at.ZONE_RECLAIM_ACTIVE] > 1:",
        ),
        "lists decay": ("if not m.st[at.RULE_PCP_DECAYS]:", "if m.st[at.RULE_PCP_DECAYS]:"),
        "refills are tuned": ("    if m.st[at.RULE_PCP_AUTO_TUNED]:\n", "    if True:\n"),
    },
    "watermark": {
        "each page of a refill counts at once": (
            "return m.st[at.RULE_REFILL_COUNTED_AT_END] != 0",
            "return False",
        ),
        "moved pages count as taken and freed": (
            "if m.st[at.RULE_LISTS_MATCH_BLOCKS] and m.st[at.COUNTS_BY_CPU]:",
            "if m.st[at.COUNTS_BY_CPU]:",
        ),
        "a refill is counted page by page": (
            "return m.st[at.RULE_REFILL_COUNTED_AT_END] != 0",
            "return False",
        ),
    },
    "highatomic": {
        "small zones do not reserve": ("    cap = share + block_pages\n", "    cap = share\n"),
        "several blocks are reserved at once": (
            "            converted = 1\n        elif order",
            "            converted = 1 << max(order - block_order, 0)\n        elif order",
        ),
        "what is reserved no more is subtracted again": (
            "size = 1 << block_order if reserves else 0",
            "size = 1 << block_order",
        ),
    },
    "state": {
        "used pages of the reserve count as free": (
            "else at.ZONE_RESERVED_HIGHATOMIC",
            "else at.ZONE_FREE_HIGHATOMIC",
        ),
        "the boost is dropped by HIGH": (
            "at.GFP_HIGH if rules.boost_retry_by_high else at.GFP_ATOMIC,",
            "at.GFP_HIGH if rules.boost_retry_by_high else 0,",
        ),
    },
    "page_alloc": {
        "the high watermark is tested first": (
            "if m.st[at.RULE_BELOW_HIGH_TESTED] and not",
            "if not",
        ),
    },
}
"""What only 6.1 does."""

FAULTS_6_18: Faults = {
    "page_alloc": {
        "nodes that kswapd works on are left out for good": (
            "                skips_busy = False\n",
            "                skips_busy = True\n",
        ),
        "nodes that kswapd works on are not left out": (
            (
                "elif skips_busy and is_busy(m, zone):\n            skipped = True\n"
                "        elif zone_may_serve(m, zone, ac.order, ac.highest_type, flags):\n"
                "            return zone,"
            ),
            (
                "elif zone_may_serve(m, zone, ac.order, ac.highest_type, flags):\n"
                "            return zone,"
            ),
        ),
    },
}
"""What 6.18 began to do."""

FAULTS_7_3: Faults = {
    "watermark": {
        "first attempts leave the reserve alone": (
            "    if m.st[at.POLICY_HIGHATOMIC_FASTPATH]:\n",
            "    if m.st[at.POLICY_HIGHATOMIC_FASTPATH] and m.st[at.PRESSURE_BASE]:\n",
        ),
    },
    "page_alloc": {
        "first attempts make the reserve grow": (
            "return is_in_need or not m.st[at.POLICY_HIGHATOMIC_SLOWPATH_ONLY]",
            "return True",
        ),
    },
}
"""What 7.3 began to do."""

FAULTS_COMPACTION: Faults = {
    "events": {
        "isolation takes a list's head": (
            "pfn = m.st[free_list_at(zone, order, migratetype) + at.TAIL]",
            "pfn = m.st[free_list_at(zone, order, migratetype) + at.HEAD]",
        ),
        "isolated pages stay counted as free": (
            "account_freepages(m, zone, migratetype, -(1 << order))",
            "account_freepages(m, zone, migratetype, 0)",
        ),
        "isolation takes the smallest buddies first": (
            "largest = m.st[at.PAGEBLOCK_ORDER] - 1",
            "largest = order",
        ),
        "isolation takes more than a scan does": (
            "while largest > order and 1 << largest > wanted:",
            "while largest > order and 1 << largest > 2 * wanted:",
        ),
        "pieces overlap": (
            "st[at.ISOLATED_FROM] = pfn + (1 << order)",
            "st[at.ISOLATED_FROM] = pfn",
        ),
        "a captured page is gathered though a buddy is free": (
            "    if pfn < 0:\n        return gather_free_pages(m, zone, order)",
            "    if pfn < 0 or order > 0:\n        return gather_free_pages(m, zone, order)",
        ),
        "pieces come from unmovable blocks before they are gathered": (
            "or hold_movable(m, zone, order, wanted):\n",
            (
                "or hold_movable(m, zone, order, wanted) or "
                "hold_free_pages(m, zone, order, wanted, at.UNMOVABLE):\n"
            ),
        ),
        "a piece without a buddy is lost": (
            "        return deal_out(m, order)\n    return gather_free_pages(m, zone, order)\n",
            "        return deal_out(m, order)\n    return -1\n",
        ),
        "single pages are gathered from unmovable blocks only": (
            "m.st[at.ISOLATED_PAGES] == 0 and not hold_movable(m, zone, 0, left):",
            "m.st[at.ISOLATED_PAGES] == 0:",
        ),
        "compaction's own drains leave the lists": (
            "            drain_pages_zone(m, zone, cpu)\n",
            "            pass\n",
        ),
    },
}
"""What recorded compaction takes and captures."""

FAULTS_IMPOSED: Faults = {
    "page_alloc": {
        "a recorded failure looks at no zone": (
            "        zone_may_serve(m, m.st[position], ac.order, ac.highest_type, flags)\n",
            "        pass\n",
        ),
        "a recorded failure lets kswapd sleep": (
            "        position += 1\n    wake_all_kswapds(m, ac, flags)\n",
            "        position += 1\n",
        ),
        "every recorded failure made room": (
            "    if ac.bits & at.REQUEST_RECLAIMED:\n        make_room",
            "    if ac.bits >= 0:\n        make_room",
        ),
        "a recorded failure makes no room": (
            "    if ac.bits & at.REQUEST_RECLAIMED:\n        make_room(m, ac)\n",
            "    if ac.bits & at.REQUEST_RECLAIMED:\n        pass\n",
        ),
        "an imposed zone serves only if no other does": (
            "return not m.st[at.ONLY_ZONE] or m.st[at.ONLY_ZONE] == zone + 1",
            "return True",
        ),
        "a request is forced where its zonelist says, whatever is imposed": (
            "        zone = m.st[at.ONLY_ZONE] - 1\n",
            "        pass\n",
        ),
    },
    "events": {
        "an imposed zone is imposed on what follows": (
            "        m.st[at.ONLY_ZONE] = 0\n",
            "        pass\n",
        ),
        "a reclaim in vain makes no room": (
            "        make_room(m, request_of(m, events, position, bits))\n",
            "        pass\n",
        ),
        "an imposed boost adds to the zone's own": (
            "m.st[zone_at(zone) + at.ZONE_BOOST] = offset",
            "m.st[zone_at(zone) + at.ZONE_BOOST] += offset",
        ),
        "an imposed drain is one of the CPU that drains": (
            "drain_pages_zone(m, zone, offset)",
            "drain_pages_zone(m, zone, m.st[at.EVENT_CPU])",
        ),
        "a recorded tick leaves the lists": (
            "    elif operation == at.TICK:\n        refresh_cpu_vm_stats(m, cpu)\n",
            "    elif operation == at.TICK:\n        pass\n",
        ),
        "hidden allocations count as others": (
            (
                "m.st[at.COUNT_HIDDEN if operation == at.HIDDEN_ALLOC else at.COUNT_ALLOC] += 1\n"
                "            m.places[number] = allocate_object("
            ),
            "m.st[at.COUNT_ALLOC] += 1\n            m.places[number] = allocate_object(",
        ),
        "frees of nothing are not counted": (
            "                m.st[at.COUNT_ORPHAN_FREE] += 1\n",
            "                pass\n",
        ),
        "what a task does goes on with the folio batch before it": (
            "            let_go_of_lists(m, cpu)\n",
            "            pass\n",
        ),
        "a piece as large as a pageblock is the last of its list": (
            "    current = largest + 1\n",
            "    current = max(largest, order) + 1\n",
        ),
    },
    "pcp": {
        "where drains are recorded the model drains too": (
            "if m.st[at.DRAINS_RECORDED]:",
            "if m.st[at.DRAINS_RECORDED] < 0:",
        ),
    },
    "buddy": {
        "memory that comes is first on its list": (
            "__free_one_page(m, zone, first, piece, migratetype, True)",
            "__free_one_page(m, zone, first, piece, migratetype, False)",
        ),
        "memory that comes is not managed": (
            "    m.st[zone_at(zone) + at.ZONE_MANAGED] += 1 << order\n",
            "    pass\n",
        ),
    },
}
"""What a recording imposes."""

FAULTS_INTERRUPTS: Faults = {
    "pcp": {
        "an interrupt's request finds no list locked": (
            "if is_locked_by_holder(m, ac.cpu, pcp):",
            "if is_locked_by_holder(m, ac.cpu, -1):",
        ),
        "the lists of all zones are locked": (
            "return m.st[words + at.CPU_BATCH_SET] == pcp or",
            "return m.st[words + at.CPU_BATCH_SET] != 0 or",
        ),
        "a drain is over before its interrupts come": (
            "m.st[words + at.CPU_LOCKED_SET] = abs(m.st[words + at.CPU_LOCKED_SET])",
            "m.st[words + at.CPU_LOCKED_SET] = 0",
        ),
        "an interrupt's drain lets go of the list that is locked": (
            "    if m.st[word] <= 0:\n        m.st[word] = -pcp\n",
            "    m.st[word] = -pcp\n",
        ),
        "a drain is remembered beyond the next event": (
            "    m.st[words + at.CPU_BATCH_SET] = 0\n    m.st[words + at.CPU_LOCKED_SET] = 0\n",
            (
                "    m.st[words + at.CPU_BATCH_SET] = 0\n"
                "    m.st[words + at.CPU_LOCKED_SET] = min(m.st[words + at.CPU_LOCKED_SET], 0)\n"
            ),
        ),
        "a folio batch goes on after an interrupt into its last drain": (
            "    m.st[words + at.CPU_BATCH_SET] = 0\n    m.st[words + at.CPU_LOCKED_SET] = abs(",
            "    m.st[words + at.CPU_LOCKED_SET] = abs(",
        ),
    },
    "page_free": {
        "an interrupt's free finds no list locked": (
            "elif not in_batch and is_locked_by_holder(m, cpu, pcp_at(m, zone, cpu)):",
            "elif False:",
        ),
    },
    "events": {
        "an interrupt ends the batch": ("elif not bits & at.INTERRUPTS_HOLDER:", "else:"),
        "a folio batch goes on under the lock of a drain before it": (
            "            m.st[cpu_at(m, cpu) + at.CPU_LOCKED_SET] = 0\n",
            "            pass\n",
        ),
    },
    "page_alloc": {
        "a refill is over before its interrupts come": (
            "        hold_refilled(m, ac.cpu, pcp)\n",
            "",
        ),
        "a list that has pages is locked for interrupts, too": (
            "        hold_refilled(m, ac.cpu, pcp)\n",
            "    hold_refilled(m, ac.cpu, pcp)\n",
        ),
        "the preferred zone is refilled, whatever its watermark": (
            (
                "            skipped = True\n"
                "        elif zone_may_serve(m, zone, ac.order, ac.highest_type, flags):\n"
                "            return zone,"
            ),
            "            skipped = True\n        else:\n            return zone,",
        ),
        "a busy node's list is refilled": (
            (
                "            skipped = True\n"
                "        elif zone_may_serve(m, zone, ac.order, ac.highest_type, flags):\n"
                "            return zone,"
            ),
            (
                "            pass\n"
                "        elif zone_may_serve(m, zone, ac.order, ac.highest_type, flags):\n"
                "            return zone,"
            ),
        ),
        "a refill for another node's zone fragments nothing": (
            (
                "            flags &= ~at.ALLOC_NOFRAGMENT\n            position = ac.zonelist\n"
                "        elif skips_busy and is_busy(m, zone):\n            skipped = True\n"
                "        elif zone_may_serve(m, zone, ac.order, ac.highest_type, flags):\n"
                "            return zone,"
            ),
            (
                "            return -1, position, flags, skips_busy, skipped\n"
                "        elif skips_busy and is_busy(m, zone):\n            skipped = True\n"
                "        elif zone_may_serve(m, zone, ac.order, ac.highest_type, flags):\n"
                "            return zone,"
            ),
        ),
        "what a request would refill is owned like other pages": (
            "if index < 0 or m.st[at.OWNERSHIP]:",
            "if index < 0:",
        ),
    },
}
"""How interrupts find lists locked (S4.10)."""

FAULTS = (
    *faults(LATER_FAULTS),
    *faults(FAULTS_6_1, presets=("6.1",)),
    *faults(FAULTS_6_18, presets=("6.18", "7.2")),
    *faults(FAULTS_7_3, presets=("7.3",)),
    *faults(FAULTS_COMPACTION, scenarios=("compaction",)),
    *faults(FAULTS_IMPOSED, scenarios=("imposed",)),
    *faults(FAULTS_INTERRUPTS, scenarios=("interrupts",)),
)
