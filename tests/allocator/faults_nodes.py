"""Faults in what several nodes, CMA and lagging counters add, which larger machines must tell."""

from __future__ import annotations

from tests.allocator.fault import Fault

FAULTS_NODES = (
    Fault(
        "nodes by number, not by distance",
        "state",
        "nearest = local if local in left else min(left, key=lambda node: costs[node])",
        "nearest = local if local in left else min(left)",
    ),
    Fault(
        "nodes below the own one are as near",
        "state",
        "machine.distance(local, node) + (node < local) + has_cpus[node],",
        "machine.distance(local, node) + has_cpus[node],",
    ),
    Fault(
        "nodes with CPUs are as near",
        "state",
        "machine.distance(local, node) + (node < local) + has_cpus[node],",
        "machine.distance(local, node) + (node < local),",
    ),
    Fault(
        "low zones of a node first",
        "state",
        "range(node * types + highest_type, node * types - 1, -1)",
        "range(node * types, node * types + highest_type + 1)",
    ),
    Fault(
        "THISNODE is not heard",
        "layout",
        "if bits & GFP_THISNODE:",
        "if bits < 0:",
    ),
    Fault(
        "NOFRAGMENT matters more than the own node",
        "page_alloc",
        """return -1, position, flags, skips_busy, skipped
            position = ac.zonelist
        elif drops_nofragment(m, flags) and""",
        """return -1, position, flags, skips_busy, skipped
            position = ac.zonelist
        elif flags < 0 and""",
    ),
    Fault(
        "NOFRAGMENT without a zone below",
        "state",
        "and (len(machine.nodes) == 1 or populated_below)",
        "",
    ),
    Fault(
        "nodes that kswapd works on are left out for good",
        "page_alloc",
        "                skips_busy = False\n",
        "                skips_busy = True\n",
        presets=("6.18", "7.2"),
    ),
    Fault(
        "nodes that kswapd works on are not left out",
        "page_alloc",
        """elif skips_busy and is_busy(m, zone):
            skipped = True
        elif zone_may_serve(m, zone, ac.order, ac.highest_type, flags):
            return zone,""",
        """elif zone_may_serve(m, zone, ac.order, ac.highest_type, flags):
            return zone,""",
        presets=("6.18", "7.2"),
    ),
    Fault(
        "only the nearest node's kswapd wakes",
        "page_alloc",
        "            woken = node\n            position += 1\n",
        "            return\n",
    ),
    Fault(
        "kswapd concerns all zones of its node",
        "watermark",
        (
            "return m.st[region + at.ZONE_MANAGED] > 0 and m.st[region + at.ZONE_TYPE] <= "
            "highest_type"
        ),
        "return m.st[region + at.ZONE_MANAGED] > 0",
    ),
    Fault(
        "a recorded run goes on through the next",
        "events",
        ("        end_kswapd(m, offset)\n        start_kswapd(m, offset"),
        "        start_kswapd(m, offset",
    ),
    Fault(
        "limits share a zone among all CPUs",
        "pcp",
        "machine.cpus_of_node(machine.nodes.index(zone.node)) or machine.nr_cpus",
        "machine.nr_cpus",
    ),
    Fault(
        "lists expire a tick late",
        "watermark",
        "QUIET_TICKS = 3\n",
        "QUIET_TICKS = 4\n",
    ),
    Fault(
        "a list's own drain does not put its expiry off",
        "watermark",
        "            m.st[pcp + at.PCP_TOUCHED] = 1\n",
        "            m.st[pcp + at.PCP_TOUCHED] = change < 0\n",
    ),
    Fault(
        "local lists expire too",
        "pcp",
        ("        m.st[pcp + at.PCP_EXPIRE] = 0\n        return 0\n"),
        "        pass\n",
    ),
    Fault(
        "expiry empties the list",
        "pcp",
        "return min(count, m.st[pcp + at.PCP_BATCH])",
        "return count",
    ),
    Fault(
        "counters are passed on a page early",
        "watermark",
        "if abs(held) > m.st[region + at.ZONE_THRESHOLD]:",
        "if abs(held) >= m.st[region + at.ZONE_THRESHOLD]:",
    ),
    Fault(
        "the threshold does not shrink under pressure",
        "watermark",
        "set_pgdat_percpu_threshold(m, node, at.ZONE_THRESHOLD_AWAKE)",
        "set_pgdat_percpu_threshold(m, node, at.ZONE_THRESHOLD_ASLEEP)",
    ),
    Fault(
        "conversions leave the held-back pages",
        "watermark",
        "if m.st[at.RULE_LISTS_MATCH_BLOCKS] and m.st[at.COUNTS_BY_CPU]:",
        "if m.st[at.COUNTS_BY_CPU] < 0:",
    ),
    Fault(
        "a refill is counted page by page",
        "watermark",
        "return m.st[at.RULE_REFILL_COUNTED_AT_END] != 0",
        "return False",
        presets=("6.1",),
    ),
    Fault(
        "free CMA pages count for all",
        "watermark",
        "        free -= seen_free_cma(m, zone)\n",
        "        free -= 0\n",
    ),
    Fault(
        "half of free memory in CMA is enough",
        "fallback",
        "return seen_free_cma(m, zone) > seen_free(m, zone) // 2",
        "return seen_free_cma(m, zone) >= seen_free(m, zone) // 2",
    ),
    Fault(
        "CMA is never first",
        "fallback",
        "if flags & at.ALLOC_CMA and cma_comes_first(m, zone):",
        "if flags < 0:",
    ),
    Fault(
        "CMA satisfies every high-order check",
        "watermark",
        "if flags & at.ALLOC_CMA and m.st[free_list_at",
        "if m.st[at.CMA] >= 0 and m.st[free_list_at",
    ),
    Fault(
        "isolated pages count as free",
        "watermark",
        "        return\n    account_total(m, zone, change)\n",
        "        change += 0\n    account_total(m, zone, change)\n",
    ),
    Fault(
        "MEMALLOC waits for reclaim",
        "page_alloc",
        "return bits & at.GFP_MEMALLOC != 0 and not bits & at.GFP_NOMEMALLOC",
        "return False",
    ),
    Fault(
        "every request that may reclaim does",
        "page_alloc",
        "return not m.st[at.DIRECT_RECLAIM_RECORDED] or bits & at.REQUEST_RECLAIMED != 0",
        "return True",
    ),
    Fault(
        "recorded reclaim never suffices",
        "page_alloc",
        "if margin <= m.st[at.RECLAIM_MARGINS + number]:",
        "if margin < 1 << 60:",
    ),
    Fault(
        "reclaim is to leave the whole mark free",
        "page_alloc",
        "st[at.RECLAIM_MARGINS + number] = min(margin, 0)",
        "st[at.RECLAIM_MARGINS + number] = 0",
    ),
    Fault(
        "a limit is set beyond its bounds",
        "pcp",
        "wanted, m.st[pcp + at.PCP_HIGH_MIN], m.st[pcp + at.PCP_HIGH_MAX]",
        "wanted, 0, 1 << 30",
    ),
    Fault(
        "huge lists hold blocks",
        "state",
        "machine.pageblock_order if rules.huge_lists_hold_blocks else PMD_ORDER",
        "machine.pageblock_order",
    ),
)
