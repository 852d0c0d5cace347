"""Faults in reclaim, kswapd, compaction and the slow path, which elastic scenarios must tell."""

from __future__ import annotations

from tests.allocator.fault import Fault


def _fault(name: str, module: str, right: str, wrong: str) -> Fault:
    return Fault(name, module, right, wrong, scenarios=("elastic",))


FAULTS_ELASTIC = (
    _fault(
        "referenced pages stay inactive",
        "lru_scan",
        "lru_move(pages, blocks, st, folios, pfn, inactive + 1)\n            st[",
        "lru_move(pages, blocks, st, folios, pfn, inactive)\n            st[",
    ),
    _fault(
        "frees end kswapd's runs",
        "pressure_state",
        "st[at.KSWAPD_RECORDED] = 1",
        "st[at.KSWAPD_RECORDED] = 0",
    ),
    _fault(
        "an active list feeds no inactive one",
        "lru_scan",
        "while moved < budget and lruvec_lru_size(st, node, inactive) * ratio < lruvec_lru_size(",
        "while moved > budget and lruvec_lru_size(st, node, inactive) * ratio < lruvec_lru_size(",
    ),
    _fault(
        "halves change places",
        "folios",
        'folios[upper]["offset"] = int(folios[pfn]["offset"]) + (1 << order)',
        'folios[upper]["offset"] = int(folios[pfn]["offset"])',
    ),
    _fault(
        "kswapd never lowers its order",
        "kswapd",
        "        st[words + pr.KSWAPD_ORDER] = 0\n",
        "        st[words + pr.KSWAPD_ORDER] = order\n",
    ),
    _fault(
        "a nap is not cut short",
        "kswapd",
        "st[words + pr.KSWAPD_WOKEN_EARLY] = 1",
        "st[words + pr.KSWAPD_WOKEN_EARLY] = 0",
    ),
    _fault(
        "fruitless passes do not press harder",
        "kswapd",
        "if raises or freed == 0:",
        "if raises and freed == 0:",
    ),
    _fault(
        "direct reclaim frees a single cluster",
        "direct_reclaim",
        "return freed >= pr.CLUSTER or ready or value_of(st, pr.RECLAIM_PRIORITY) < 0",
        "return freed > 0 or ready or value_of(st, pr.RECLAIM_PRIORITY) < 0",
    ),
    _fault(
        "reserves after reclaim",
        "slow_path",
        "    if gfp_pfmemalloc_allowed(bits):\n        wake(st)",
        "    if bits == 0:\n        wake(st)",
    ),
    _fault(
        "costly requests retry",
        "slow_path",
        "    if is_costly and not (bits & pr.GFP_RETRY_MAYFAIL and gfp_compaction_allowed(st)):\n",
        "    if is_costly and not gfp_compaction_allowed(st):\n",
    ),
    _fault(
        "the last reserved block is kept from those who give up",
        "slow_path",
        "    st[word_at(st, pr.UNRESERVES)] = 1\n",
        "    st[word_at(st, pr.UNRESERVES)] = (1 << st[at.PAGEBLOCK_ORDER]) + 1\n",
    ),
    _fault(
        "nothing is deferred",
        "compaction_gates",
        "shift = min(st[words + pr.ZONE_DEFER_SHIFT] + 1, pr.DEFER_SHIFT_MAX)",
        "shift = 0",
    ),
    _fault(
        "compaction needs no room",
        "compaction_gates",
        "wanted += compact_gap(st, order)",
        "wanted += 0",
    ),
    _fault(
        "large free buddies are targets",
        "compaction_scanners",
        'pages[first]["order"]) >= wanted:',
        'pages[first]["order"]) > wanted:',
    ),
    _fault(
        "isolated pages go to the wrong end",
        "compaction",
        'lst = int(pages[source]["prev"])',
        "lst = pr.INACTIVE_FILE",
    ),
    _fault(
        "kcompactd forgets to defer",
        "kcompactd",
        "        defer_compaction(st, zone, order)\n",
        "        return\n",
    ),
    _fault(
        "kcompactd goes as high as anyone asked",
        "kcompactd",
        "= min(st[words + pr.KCOMPACTD_HIGHEST], highest_type)",
        "= max(st[words + pr.KCOMPACTD_HIGHEST], highest_type)",
    ),
    _fault(
        "base pages from the beginning",
        "elastic_events",
        "offset = left - 1 if left > 0 else 0",
        "offset = (1 << order) - left if left > 0 else 0",
    ),
)
