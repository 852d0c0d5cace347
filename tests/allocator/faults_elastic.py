"""Faults in reclaim, kswapd, compaction and the slow path, which elastic scenarios must tell."""

from __future__ import annotations

from tests.allocator.fault import Fault


def _fault(name: str, module: str, right: str, wrong: str) -> Fault:
    return Fault(name, module, right, wrong, scenarios=("elastic",))


def _fault_of_7_3(name: str, module: str, right: str, wrong: str) -> Fault:
    return Fault(name, module, right, wrong, presets=("7.3",), scenarios=("elastic",))


FAULTS_ELASTIC = (
    _fault(
        "a piece is freed whatever range of its object was to be",
        "lru",
        'int(m.folios[pfn]["offset"]) == offset and int(m.pages[pfn]["order"]) == order',
        'int(m.pages[pfn]["order"]) == order',
    ),
    _fault(
        "of a piece freed whole only the first page is freed",
        "events",
        "            free_piece(m, place, order)",
        "            free_piece(m, place, 0)",
    ),
    _fault(
        "second attempts for huge pages retry whatever the memory",
        "events",
        "    if value_of(m, pr.THP_MADVISED):",
        "    if True:",
    ),
    _fault(
        "a refused huge page becomes all its base pages",
        "events",
        "        untouched = max(whole - value_of(m, pr.BASE_PAGES_PER_HUGE), 0)",
        "        untouched = 0",
    ),
    _fault(
        "what cannot be moved can at the next attempt",
        "lru",
        'key_of(m, pfn), MIGRATES, int(m.folios[pfn]["offset"]))',
        "key_of(m, pfn), MIGRATES, m.st[at.COUNT_ALLOC])",
    ),
    _fault(
        "fast searches of free lists begin at their heads",
        "compaction_scan",
        "page = m.st[lst + at.TAIL]",
        "page = m.st[lst + at.HEAD]",
    ),
    _fault(
        "sources isolate without a skip mark",
        "compaction_scan",
        "                if marks and not m.st[run + pr.RUN_IGNORES_SKIPS]:\n",
        "                if False:\n",
    ),
    _fault(
        "isolated folios come first in, first out",
        "compaction_scan",
        'm.pages[pfn]["next"] = m.st[run + pr.RUN_SOURCES]',
        'm.pages[pfn]["next"] = -1',
    ),
    _fault(
        "asynchronous runs do not give a range up",
        "compaction_scan",
        "gives_up = m.st[run + pr.RUN_DIRECT] != 0 and",
        "gives_up = m.st[run + pr.RUN_DIRECT] < 0 and",
    ),
    _fault(
        "a block is left before it is finished",
        "compaction",
        "        m.st[run + pr.RUN_FINISHES_BLOCK] = 1\n",
        "        m.st[run + pr.RUN_FINISHES_BLOCK] = 0\n",
    ),
    _fault(
        "captures take any block's pages",
        "buddy",
        "if migratetype == at.MOVABLE and not own and order <",
        "if migratetype == at.MOVABLE and m.st[at.CAPTURE_TYPE] < 0 and order <",
    ),
    _fault(
        "referenced pages stay inactive",
        "vmscan",
        "lruvec_add_folio(m, pfn, inactive + 1)",
        "lruvec_add_folio(m, pfn, inactive + 0)",
    ),
    Fault(
        "reclaim frees the first page taken first in every release",
        "vmscan",
        "        queue_free_first(m, pfn)",
        "        queue_free(m, pfn)",
        presets=("6.1",),
        scenarios=("elastic",),
    ),
    _fault(
        "frees end kswapd's runs",
        "state",
        "st[at.KSWAPD_RECORDED] = 1",
        "st[at.KSWAPD_RECORDED] = 0",
    ),
    _fault(
        "an active list feeds no inactive one",
        "vmscan",
        "    while moved < budget and entries > 0:",
        "    while moved > budget and entries > 0:",
    ),
    _fault(
        "halves change places",
        "lru",
        'm.folios[upper]["offset"] = int(m.folios[pfn]["offset"]) + (1 << order)',
        'm.folios[upper]["offset"] = int(m.folios[pfn]["offset"])',
    ),
    _fault(
        "kswapd never lowers its order",
        "kswapd",
        "        m.st[sc + pr.SC_ORDER] = 0\n",
        "        m.st[sc + pr.SC_ORDER] = order\n",
    ),
    _fault(
        "a nap is not cut short",
        "kswapd",
        "    if m.st[words + pr.KSWAPD_WOKEN]:\n",
        "    if m.st[words + pr.KSWAPD_WOKEN] < 0:\n",
    ),
    _fault(
        "fruitless passes do not press harder",
        "kswapd",
        "if raises or freed == 0:",
        "if raises and freed == 0:",
    ),
    _fault(
        "direct reclaim frees a single cluster",
        "vmscan",
        "if m.st[sc + pr.SC_RECLAIMED] >= m.st[sc + pr.SC_GOAL]:",
        "if m.st[sc + pr.SC_RECLAIMED] > 0:",
    ),
    _fault(
        "reserves after reclaim",
        "page_alloc",
        "    if pfn < 0 and gfp_pfmemalloc_allowed(ac.bits):\n",
        "    if pfn < 0 and ac.bits == 0:\n",
    ),
    _fault(
        "costly requests retry",
        "page_alloc",
        "return ac.bits & pr.GFP_RETRY_MAYFAIL != 0 and gfp_compaction_allowed(m, ac.bits)",
        "return gfp_compaction_allowed(m, ac.bits)",
    ),
    _fault(
        "the last reserved block is kept from those who give up",
        "page_alloc",
        "return unreserve_highatomic_pageblock(m, ac, True)",
        "return unreserve_highatomic_pageblock(m, ac, False)",
    ),
    _fault(
        "nothing is deferred",
        "compaction",
        "shift = min(m.st[words + pr.ZONE_DEFER_SHIFT] + 1, pr.DEFER_SHIFT_MAX)",
        "shift = 0",
    ),
    _fault(
        "compaction needs no room",
        "compaction",
        "wanted += compact_gap(m, order)",
        "wanted += 0",
    ),
    _fault(
        "large free buddies are targets",
        "compaction_scan",
        'pages[pfn]["order"]) >= wanted:',
        'pages[pfn]["order"]) > wanted:',
    ),
    _fault(
        "moved pages go to the wrong end",
        "compaction",
        'lst = int(m.pages[source]["prev"])',
        "lst = pr.INACTIVE_FILE",
    ),
    _fault(
        "kcompactd forgets to defer",
        "kcompactd",
        "        defer_compaction(m, zone, order)\n",
        "        return False\n",
    ),
    _fault(
        "kcompactd goes as high as anyone asked",
        "kcompactd",
        "= min(m.st[words + pr.KCOMPACTD_HIGHEST], highest_type)",
        "= max(m.st[words + pr.KCOMPACTD_HIGHEST], highest_type)",
    ),
    _fault(
        "kcompactd's sleep goes on after a job",
        "kcompactd",
        "    m.st[words + pr.PROACTIVE_DUE] = m.st[words + pr.KCOMPACTD_DUE] + sleep\n",
        (
            "    if order < 0:\n    "
            "        m.st[words + pr.PROACTIVE_DUE] = m.st[words + pr.KCOMPACTD_DUE] + sleep\n"
        ),
    ),
    _fault(
        "a job does not end kcompactd's long sleep",
        "kcompactd",
        "    sleep = CHECK_NS\n",
        "    sleep = max(CHECK_NS, m.st[words + pr.PROACTIVE_DUE] - m.st[at.NOW])\n",
    ),
    _fault(
        "forced unreserving leaves empty reserves alone",
        "highatomic",
        "kept = -1 if force else",
        "kept = 0 if force else",
    ),
    _fault(
        "the score has free reserved pages though it must not",
        "compaction",
        "if m.st[at.POLICY_SCORE_WITHOUT_HIGHATOMIC]:",
        "if m.st[at.POLICY_SCORE_WITHOUT_HIGHATOMIC] < 0:",
    ),
    _fault(
        "kcompactd gives blocks back to who is not movable",
        "highatomic",
        "unreserve_from(m, zone, cpu, at.MOVABLE, order)",
        "unreserve_from(m, zone, cpu, at.UNMOVABLE, order)",
    ),
    _fault(
        "kcompactd gives back only where it may compact unasked",
        "kcompactd",
        "if m.st[at.POLICY_KCOMPACTD_UNRESERVES]:",
        "if m.st[at.POLICY_KCOMPACTD_UNRESERVES] and m.st[at.POLICY_COMPACTION_PROACTIVENESS]:",
    ),
    _fault_of_7_3(
        "movable requests are promoted",
        "page_alloc",
        "needs_block = flags & at.ALLOC_NOFRAGMENT and ac.migratetype != at.MOVABLE",
        "needs_block = flags & at.ALLOC_NOFRAGMENT",
    ),
    _fault(
        "requests are promoted whatever the policy",
        "page_alloc",
        "if m.st[at.POLICY_DEFRAG_PROMOTES_ORDER] and needs_block:",
        "if needs_block:",
    ),
    _fault_of_7_3(
        "reclaim of promoted requests helps",
        "page_alloc",
        "helped = progress > 0 and not is_costly and not is_promoted",
        "helped = progress > 0 and not is_costly",
    ),
    _fault_of_7_3(
        "a promoted request's run captures whole blocks",
        "compaction",
        "m.st[at.CAPTURE_ORDER] = ac.order",
        "m.st[at.CAPTURE_ORDER] = order",
    ),
    _fault(
        "boosts hold compaction's targets back",
        "compaction_scan",
        "mark = m.st[zone_at(zone) + at.ZONE_MIN] + (1 << order)",
        (
            "mark = m.st[zone_at(zone) + at.ZONE_MIN] + m.st[zone_at(zone) + at.ZONE_BOOST]"
            " + (1 << order)"
        ),
    ),
    _fault(
        "the distance between pages that are looked at stays",
        "compaction_scan",
        "stride = 1 if m.st[run + pr.RUN_HELD] > before else min(pr.CLUSTER, stride << 1)",
        "stride = stride",
    ),
    _fault(
        "free lists keep their order after a search in vain",
        "compaction_scan",
        "            move_freelist_head(m, lst, last)\n",
        "            pass\n",
    ),
    _fault(
        "a search for sources takes marked blocks",
        "compaction_scan",
        "if page < high and not get_pageblock_skip(m, page):",
        "if page < high:",
    ),
    _fault(
        "targets begin in blocks of any type once marks are cleared",
        "compaction_scan",
        "if not as_source and as_target and block_type_of(m, pfn) != at.MOVABLE:",
        "if not as_source and as_target and block_type_of(m, pfn) < 0:",
    ),
    _fault(
        "a round of kcompactd sees one zone as a whole",
        "compaction",
        "    if not m.st[run + pr.RUN_WHOLE]:\n",
        "    if m.st[run + pr.RUN_ORDER] >= 0:\n",
    ),
    Fault(
        "direct runs empty CMA blocks for everyone",
        "compaction_scan",
        "        and block_type == m.st[at.CMA]\n",
        "        and block_type < 0\n",
        presets=("7.2", "7.3"),
        scenarios=("cma_elastic",),
    ),
    Fault(
        "asynchronous runs need no room beside CMA",
        "compaction",
        "__zone_watermark_ok(m, zone, 0, least, highest_type, 0, seen)",
        "__zone_watermark_ok(m, zone, 0, least, highest_type, at.ALLOC_CMA, seen)",
        presets=("7.2", "7.3"),
        scenarios=("cma_elastic",),
    ),
    _fault(
        "reclaim takes both classes to their ends",
        "vmscan",
        "        end_in_proportion(m, sc)\n",
        "        pass\n",
    ),
    _fault(
        "the free scanner counts a buddy as one page",
        "compaction_scan",
        "            scanned += size - 1\n            pfn += size - 1\n            if",
        "            pfn += size - 1\n            if",
    ),
    _fault(
        "base pages from the beginning",
        "events",
        "for offset in range(whole - 1, untouched - 1, -1):",
        "for offset in range(untouched, whole):",
    ),
    _fault(
        "boosts for atomic requests come as often as they are asked for",
        "watermark",
        "m.st[at.NOW] + ATOMIC_BOOST_PERIOD_NS",
        "m.st[at.NOW]",
    ),
    _fault(
        "every request in need boosts",
        "page_alloc",
        "    if ac.order > 0 or not is_atomic:\n",
        "    if ac.order > 0:\n",
    ),
    _fault(
        "local attempts always end early",
        "page_alloc",
        "return ac.bits & at.GFP_THISNODE != 0 and not m.st[at.POLICY_LOCAL_THP_RECLAIMS]",
        "return ac.bits & at.GFP_THISNODE != 0",
    ),
)
