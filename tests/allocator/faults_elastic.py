"""Faults under pressure and in proposals, which scenarios of their kind must tell."""

from __future__ import annotations

from tests.allocator.faults import Faults, faults

PRESSURE_FAULTS: Faults = {
    "lru": {
        "a piece is freed whatever range of its object was to be": (
            'int(m.folios[pfn]["offset"]) == offset and int(m.pages[pfn]["order"]) == order',
            'int(m.pages[pfn]["order"]) == order',
        ),
        "what cannot be moved can at the next attempt": (
            'key_of(m, pfn), MIGRATES, int(m.folios[pfn]["offset"]))',
            "key_of(m, pfn), MIGRATES, m.st[at.COUNT_ALLOC])",
        ),
        "halves change places": (
            'm.folios[upper]["offset"] = int(m.folios[pfn]["offset"]) + (1 << order)',
            'm.folios[upper]["offset"] = int(m.folios[pfn]["offset"])',
        ),
    },
    "events": {
        "of a piece freed whole only the first page is freed": (
            "            free_piece(m, place, order)",
            "            free_piece(m, place, 0)",
        ),
        "second attempts for huge pages retry whatever the memory": (
            "    if value_of(m, pr.THP_MADVISED):",
            "    if True:",
        ),
        "a refused huge page becomes all its base pages": (
            "        untouched = max(whole - value_of(m, pr.BASE_PAGES_PER_HUGE), 0)",
            "        untouched = 0",
        ),
        "base pages from the beginning": (
            "for offset in range(whole - 1, untouched - 1, -1):",
            "for offset in range(untouched, whole):",
        ),
    },
    "compaction_scan": {
        "fast searches of free lists begin at their heads": (
            "page = m.st[lst + at.TAIL]",
            "page = m.st[lst + at.HEAD]",
        ),
        "sources isolate without a skip mark": (
            "                if marks and not m.st[run + pr.RUN_IGNORES_SKIPS]:\n",
            "                if False:\n",
        ),
        "isolated folios come first in, first out": (
            'm.pages[pfn]["next"] = m.st[run + pr.RUN_SOURCES]',
            'm.pages[pfn]["next"] = -1',
        ),
        "asynchronous runs do not give a range up": (
            "gives_up = m.st[run + pr.RUN_DIRECT] != 0 and",
            "gives_up = m.st[run + pr.RUN_DIRECT] < 0 and",
        ),
        "large free buddies are targets": (
            'pages[pfn]["order"]) >= wanted:',
            'pages[pfn]["order"]) > wanted:',
        ),
        "boosts hold compaction's targets back": (
            "mark = m.st[zone_at(zone) + at.ZONE_MIN] + (1 << order)",
            (
                "mark = m.st[zone_at(zone) + at.ZONE_MIN] + m.st[zone_at(zone) + "
                "at.ZONE_BOOST] + (1 << order)"
            ),
        ),
        "the distance between pages that are looked at stays": (
            "stride = 1 if m.st[run + pr.RUN_HELD] > before else min(pr.CLUSTER, stride << 1)",
            "stride = stride",
        ),
        "free lists keep their order after a search in vain": (
            "            move_freelist_head(m, lst, last)\n",
            "            pass\n",
        ),
        "a search for sources takes marked blocks": (
            "if page < high and not get_pageblock_skip(m, page):",
            "if page < high:",
        ),
        "targets begin in blocks of any type once marks are cleared": (
            "if not as_source and as_target and block_type_of(m, pfn) != at.MOVABLE:",
            "if not as_source and as_target and block_type_of(m, pfn) < 0:",
        ),
        "the free scanner counts a buddy as one page": (
            "            scanned += size - 1\n            pfn += size - 1\n            if",
            "            pfn += size - 1\n            if",
        ),
    },
    "compaction": {
        "a block is left before it is finished": (
            "        m.st[run + pr.RUN_FINISHES_BLOCK] = 1\n",
            "        m.st[run + pr.RUN_FINISHES_BLOCK] = 0\n",
        ),
        "nothing is deferred": (
            "shift = min(m.st[words + pr.ZONE_DEFER_SHIFT] + 1, pr.DEFER_SHIFT_MAX)",
            "shift = 0",
        ),
        "compaction needs no room": ("wanted += compact_gap(m, order)", "wanted += 0"),
        "moved pages go to the wrong end": (
            'lst = int(m.pages[source]["prev"])',
            "lst = pr.INACTIVE_FILE",
        ),
        "the score has free reserved pages though it must not": (
            "if m.st[at.POLICY_SCORE_WITHOUT_HIGHATOMIC]:",
            "if m.st[at.POLICY_SCORE_WITHOUT_HIGHATOMIC] < 0:",
        ),
        "a round of kcompactd sees one zone as a whole": (
            "    if not m.st[run + pr.RUN_WHOLE]:\n",
            "    if m.st[run + pr.RUN_ORDER] >= 0:\n",
        ),
    },
    "buddy": {
        "captures take any block's pages": (
            "if migratetype == at.MOVABLE and not own and order <",
            "if migratetype == at.MOVABLE and m.st[at.CAPTURE_TYPE] < 0 and order <",
        ),
    },
    "vmscan": {
        "referenced pages stay inactive": (
            "lruvec_add_folio(m, pfn, inactive + 1)",
            "lruvec_add_folio(m, pfn, inactive + 0)",
        ),
        "an active list feeds no inactive one": (
            "    while moved < budget and entries > 0:",
            "    while moved > budget and entries > 0:",
        ),
        "direct reclaim frees a single cluster": (
            "if m.st[sc + pr.SC_RECLAIMED] >= m.st[sc + pr.SC_GOAL]:",
            "if m.st[sc + pr.SC_RECLAIMED] > 0:",
        ),
        "reclaim takes both classes to their ends": (
            "        end_in_proportion(m, sc)\n",
            "        pass\n",
        ),
    },
    "state": {
        "frees end kswapd's runs": ("st[at.KSWAPD_RECORDED] = 1", "st[at.KSWAPD_RECORDED] = 0"),
    },
    "kswapd": {
        "kswapd never lowers its order": (
            "        m.st[sc + pr.SC_ORDER] = 0\n",
            "        m.st[sc + pr.SC_ORDER] = order\n",
        ),
        "a nap is not cut short": (
            "    if m.st[words + pr.KSWAPD_WOKEN]:\n",
            "    if m.st[words + pr.KSWAPD_WOKEN] < 0:\n",
        ),
        "fruitless passes do not press harder": (
            "if raises or freed == 0:",
            "if raises and freed == 0:",
        ),
    },
    "page_alloc": {
        "reserves after reclaim": (
            "    if pfn < 0 and gfp_pfmemalloc_allowed(ac.bits):\n",
            "    if pfn < 0 and ac.bits == 0:\n",
        ),
        "costly requests retry": (
            "return ac.bits & pr.GFP_RETRY_MAYFAIL != 0 and gfp_compaction_allowed(m, ac.bits)",
            "return gfp_compaction_allowed(m, ac.bits)",
        ),
        "the last reserved block is kept from those who give up": (
            "return unreserve_highatomic_pageblock(m, ac, True)",
            "return unreserve_highatomic_pageblock(m, ac, False)",
        ),
        "requests are promoted whatever the policy": (
            "if m.st[at.POLICY_DEFRAG_PROMOTES_ORDER] and needs_block:",
            "if needs_block:",
        ),
        "every request in need boosts": (
            "    if ac.order > 0 or not is_atomic:\n",
            "    if ac.order > 0:\n",
        ),
        "local attempts always end early": (
            "return ac.bits & at.GFP_THISNODE != 0 and not m.st[at.POLICY_LOCAL_THP_RECLAIMS]",
            "return ac.bits & at.GFP_THISNODE != 0",
        ),
    },
    "kcompactd": {
        "kcompactd forgets to defer": (
            "        defer_compaction(m, zone, order)\n",
            "        return False\n",
        ),
        "kcompactd goes as high as anyone asked": (
            "= min(m.st[words + pr.KCOMPACTD_HIGHEST], highest_type)",
            "= max(m.st[words + pr.KCOMPACTD_HIGHEST], highest_type)",
        ),
        "kcompactd's sleep goes on after a job": (
            "    m.st[words + pr.PROACTIVE_DUE] = m.st[words + pr.KCOMPACTD_DUE] + sleep\n",
            (
                "    if order < 0:\n"
                "            m.st[words + pr.PROACTIVE_DUE] = m.st[words + "
                "pr.KCOMPACTD_DUE] + sleep\n"
            ),
        ),
        "a job does not end kcompactd's long sleep": (
            "    sleep = CHECK_NS\n",
            "    sleep = max(CHECK_NS, m.st[words + pr.PROACTIVE_DUE] - m.st[at.NOW])\n",
        ),
        "kcompactd gives back only where it may compact unasked": (
            "if m.st[at.POLICY_KCOMPACTD_UNRESERVES]:",
            (
                "if m.st[at.POLICY_KCOMPACTD_UNRESERVES] and "
                "m.st[at.POLICY_COMPACTION_PROACTIVENESS]:"
            ),
        ),
    },
    "highatomic": {
        "forced unreserving leaves empty reserves alone": (
            "kept = -1 if force else",
            "kept = 0 if force else",
        ),
        "kcompactd gives blocks back to who is not movable": (
            "unreserve_from(m, zone, cpu, at.MOVABLE, order)",
            "unreserve_from(m, zone, cpu, at.UNMOVABLE, order)",
        ),
    },
    "watermark": {
        "boosts for atomic requests come as often as they are asked for": (
            "m.st[at.NOW] + ATOMIC_BOOST_PERIOD_NS",
            "m.st[at.NOW]",
        ),
    },
}
"""Reclaim, kswapd, compaction and the slow path."""

FAULTS_6_1: Faults = {
    "vmscan": {
        "reclaim frees the first page taken first in every release": (
            "        queue_free_first(m, pfn)",
            "        queue_free(m, pfn)",
        ),
    },
}
"""What only 6.1 does under pressure."""

FAULTS_7_3: Faults = {
    "page_alloc": {
        "movable requests are promoted": (
            "needs_block = flags & at.ALLOC_NOFRAGMENT and ac.migratetype != at.MOVABLE",
            "needs_block = flags & at.ALLOC_NOFRAGMENT",
        ),
        "reclaim of promoted requests helps": (
            "helped = progress > 0 and not is_costly and not is_promoted",
            "helped = progress > 0 and not is_costly",
        ),
    },
    "compaction": {
        "a promoted request's run captures whole blocks": (
            "m.st[at.CAPTURE_ORDER] = ac.order",
            "m.st[at.CAPTURE_ORDER] = order",
        ),
    },
}
"""What 7.3 began to do."""

FAULTS_TOLD: Faults = {
    "compaction_scan": {
        "a boost keeps free pages from compaction": (
            "mark = m.st[zone_at(zone) + at.ZONE_MIN] + (1 << order)\n",
            (
                "mark = m.st[zone_at(zone) + at.ZONE_MIN] + (1 << order)\n"
                "        mark += m.st[zone_at(zone) + at.ZONE_BOOST]\n"
            ),
        ),
    },
}
"""What a recording tells between."""

FAULTS_CMA: Faults = {
    "compaction_scan": {
        "direct runs empty CMA blocks for everyone": (
            "        and block_type == m.st[at.CMA]\n",
            "        and block_type < 0\n",
        ),
    },
    "compaction": {
        "asynchronous runs need no room beside CMA": (
            "__zone_watermark_ok(m, zone, 0, least, highest_type, 0, seen)",
            "__zone_watermark_ok(m, zone, 0, least, highest_type, at.ALLOC_CMA, seen)",
        ),
    },
}
"""Where there is CMA."""

FAULTS_OWNERSHIP: Faults = {
    "ownership": {
        "frees never leave the CPU": (
            "if not option(m, at.OPTION_ROUTES_FREES):",
            "if owner >= 0:",
        ),
        "a dead CPU's blocks draw frees": (
            "return cpu if m.st[cpu_at(m, owner) + at.CPU_IS_DEAD] else owner",
            "return owner",
        ),
        "whole free blocks stay owned": (
            "for block in range(first, first + (1 << (order - block_order))):",
            "for block in range(first, first):",
        ),
        "one block too many is recorded": (
            "if cap > 0 and entries >= cap:",
            "if cap > 0 and entries > cap:",
        ),
        "recorded blocks lose their followers": (
            "        m.st[owned_block_at(m, preceding) + at.BLOCK_NEXT] = following\n",
            "        m.st[owned_block_at(m, preceding) + at.BLOCK_NEXT] = -1\n",
        ),
        "remainders of a split are plain": (
            "mark_listed(m, half, current, tag, flags)",
            "mark_listed(m, half, current, tag, 0)",
        ),
        "lists merge pages of blocks given up": (
            "if buddy >= 0 and owner_of(m, pfn >> m.st[at.PAGEBLOCK_ORDER]) == cpu:",
            "if buddy >= 0:",
        ),
        "merged pairs go in front": (
            "            append_listed(m, pcp, first, order + 1, migratetype)\n",
            "            push_listed(m, pcp, first, order + 1, migratetype)\n",
        ),
        "pages on top of buddies cut the walk for them short": (
            "    if m.st[unmerged] > 0 or listed_buddy",
            "    if listed_buddy",
        ),
        "a page that is taken shortens the walk by two": (
            "max(m.st[unmerged] - 1, 0)",
            "max(m.st[unmerged] - 2, 0)",
        ),
        "merged pairs are not looked for again": (
            "        m.st[unmerged_at(pcp, order, kind)] = m.st[lst + at.ENTRIES]\n",
            "        m.st[unmerged_at(pcp, order, kind)] = 0\n",
        ),
    },
    "ownership_refill": {
        "recovered pages are plain": (
            "put_refilled(m, ac, zone, pfn, order, at.MERGEABLE)",
            "put_refilled(m, ac, zone, pfn, order, 0)",
        ),
        "blocks of other types are recovered": (
            "        if fits:\n",
            "        if fits or not per_type:\n",
        ),
        "a block must leave a page free": (
            "return held + (1 << m.st[at.PAGEBLOCK_ORDER]) <= limit",
            "return held + (1 << m.st[at.PAGEBLOCK_ORDER]) < limit",
        ),
        "the fit test forgets what the lists hold": (
            "held = m.st[pcp + at.PCP_COUNT]\n",
            "held = 0\n",
        ),
        "chunks as large as a block": (
            "most = max(order, m.st[at.PAGEBLOCK_ORDER] - 1)",
            "most = max(order, m.st[at.PAGEBLOCK_ORDER])",
        ),
    },
    "pcp": {
        "the smallest pages are drained first": (
            "    return 3 * m.st[at.PAGEBLOCK_ORDER]\n",
            "    return 0\n",
        ),
        "whole blocks queue last": (
            "is_fragment = order < m.st[at.PAGEBLOCK_ORDER] and owner_of",
            "is_fragment = order >= 0 and owner_of",
        ),
        "a folio batch has 32 pages": (
            "st[words + at.CPU_BATCHED] <= BATCH_MAX",
            "st[words + at.CPU_BATCHED] <= BATCH_MAX + 1",
        ),
        "the first to take a lock takes it over": (
            "        if last != 0:\n",
            "        if last >= 0:\n",
        ),
    },
    "page_free": {
        "a free drains the freer's lists": (
            "drain_overflow(m, zone, receiver, remaining, index)",
            "drain_overflow(m, zone, cpu, remaining, index)",
        ),
        "a page keeps its mark on a list of another": (
            "mark_listed(m, pfn, order, migratetype, at.MERGEABLE if is_own else 0)",
            "mark_listed(m, pfn, order, migratetype, at.MERGEABLE)",
        ),
    },
}
"""Owned pageblocks (S12)."""

FAULTS_OWNERSHIP_PRESSED: Faults = {
    "compaction_scan": {
        "targets of compaction keep an old mark": (
            'm.pages[pfn]["flags"] = 0\n        m.pages[pfn]["order"] = order\n        m.pages',
            'm.pages[pfn]["order"] = order\n        m.pages',
        ),
    },
}
"""Owned pageblocks under pressure."""

FAULTS_SUPERPAGEBLOCKS: Faults = {
    "superpageblocks": {
        "the reserve does not taint": (
            "return migratetype in (at.UNMOVABLE, at.RECLAIMABLE, at.HIGHATOMIC)",
            "return migratetype in (at.UNMOVABLE, at.RECLAIMABLE)",
        ),
        "a tainted head goes before the clean part": (
            "following = -1 if tail else boundary",
            "following = -1 if tail else m.st[lst + at.HEAD]",
        ),
        "a clean tail goes behind the tainted part": (
            "following = boundary if tail else m.st[lst + at.HEAD]",
            "following = -1 if tail else m.st[lst + at.HEAD]",
        ),
        "the tainted part keeps a buddy that left": (
            '        m.st[first] = m.pages[pfn]["next"]\n',
            "        m.st[first] = -1\n",
        ),
        "a superpageblock never becomes clean again": (
            "m.st[count] == (1 if now else 0)",
            "m.st[count] == (1 if now else -1)",
        ),
        "moved buddies go to heads": (
            "add_to_part(m, zone, pfn, buddy_order, migratetype, True)",
            "add_to_part(m, zone, pfn, buddy_order, migratetype, False)",
        ),
        "movable pages take tainted ones first": (
            "for part in range(TAINTED if taints(migratetype) else CLEAN, TAINTED + 1):",
            "for part in range(TAINTED, -1 if not taints(migratetype) else CLEAN, -1):",
        ),
        "parts are not counted": ("    m.st[at.LIST_PROBES] += 1\n", "    pass\n"),
        "movable requests fall back by class": (
            "return m.st[at.SUPERPAGEBLOCKS] != 0 and migratetype != at.MOVABLE",
            "return m.st[at.SUPERPAGEBLOCKS] != 0",
        ),
        "few superpageblocks are packed too": (
            "return last - first + 1 > PACKED_ABOVE",
            "return True",
        ),
        "many superpageblocks are not packed": (
            "return last - first + 1 > PACKED_ABOVE",
            "return False",
        ),
    },
    "fallback": {
        "no fallback in clean superpageblocks": (
            "for part in (TAINTED, CLEAN):\n        least",
            "for part in (TAINTED,):\n        least",
        ),
        "blocks in use are not claimed in tainted ones": (
            "if pfn < 0 and part == TAINTED and zone_holds_block(m, zone, block):",
            "if False:",
        ),
        "blocks in use are claimed in clean ones": (
            "if pfn < 0 and part == TAINTED and zone_holds_block(m, zone, block):",
            "if pfn < 0 and part <= TAINTED and zone_holds_block(m, zone, block):",
        ),
        "blocks that the zone's edge cuts are claimed in tainted ones": (
            "if pfn < 0 and part == TAINTED and zone_holds_block(m, zone, block):",
            "if pfn < 0 and part == TAINTED:",
        ),
    },
}
"""Superpageblocks (S14)."""

FAULTS_SUPERPAGEBLOCKS_PRESSED: Faults = {
    "compaction_scan": {
        "compaction turns the lists around": (
            "if last < 0 or m.st[at.SUPERPAGEBLOCKS]:",
            "if last < 0:",
        ),
    },
}
"""Superpageblocks under pressure."""

FAULTS_ELASTIC = (
    *faults(PRESSURE_FAULTS, scenarios=("elastic",)),
    *faults(FAULTS_6_1, presets=("6.1",), scenarios=("elastic",)),
    *faults(FAULTS_7_3, presets=("7.3",), scenarios=("elastic",)),
    *faults(FAULTS_TOLD, scenarios=("told_elastic",)),
    *faults(FAULTS_CMA, presets=("7.2", "7.3"), scenarios=("cma_elastic",)),
    *faults(FAULTS_OWNERSHIP, scenarios=("ownership",)),
    *faults(FAULTS_OWNERSHIP_PRESSED, scenarios=("owning_elastic",)),
    *faults(FAULTS_SUPERPAGEBLOCKS, scenarios=("superpageblocks",)),
    *faults(FAULTS_SUPERPAGEBLOCKS_PRESSED, scenarios=("superpageblocks_elastic",)),
)
