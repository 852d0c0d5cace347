"""What an elastic oracle's state has beyond a literal one's, as plain dicts."""

from __future__ import annotations

from typing import Any

from tests.oracle.draws import Purpose
from tests.oracle.elastic import ElasticOracle
from tests.oracle.kswapd_run import Phase


def dump_elastic(oracle: ElasticOracle) -> dict[str, Any]:
    """Everything that two implementations must agree on.

    Returns:
        A dict of dicts:
        `lru`: (node, list) -> pfns, head first;
        `lru_pages`: (node, list) -> base pages;
        `folios`: pfn -> (order, class, object, offset, draws);
        `marked`: first pages of folios used once; `ages`: node -> age;
        `shadows`: object -> (node, age), of what reclaim took of files;
        `pieces`: object -> (offset, pfn), the newest first;
        `kswapd`: node -> scalars; `kcompactd`: node -> scalars;
        `compaction`: zone -> scanners and deferral;
        `skipped`: first pages of blocks left out;
        `counts`: name -> value, zeros left out; `divergence` and `outcomes` likewise.
    """
    memory = oracle.memory
    return {
        "lru": {
            (node, number): list(lru.lists[key])
            for node, lru in memory.lrus.items()
            for number, key in enumerate(lru.lists)
        },
        "lru_pages": {
            (node, number): lru.pages[key]
            for node, lru in memory.lrus.items()
            for number, key in enumerate(lru.lists)
        },
        "folios": {
            pfn: (
                each.order,
                int(each.kind),
                each.object,
                each.offset,
                *(each.draws[purpose] % 256 for purpose in (Purpose.REFERENCED, Purpose.DIRTY)),
            )
            for pfn, each in memory.folios.items()
        },
        "marked": {"all": sorted(pfn for pfn, each in memory.folios.items() if each.marked)},
        "ages": {node: memory.workingset.ages[node] for node in memory.lrus},
        "shadows": {
            number: (each.node, each.age) for number, each in memory.workingset.shadows.items()
        },
        "pieces": {
            number: [(each.offset, each.pfn) for each in pieces]
            for number, pieces in memory.objects.items()
            if pieces
        },
        "kswapd": {node: _kswapd(each) for node, each in oracle.kswapd.items()},
        "kcompactd": {
            node: {
                "due": each.due,
                "order": each.order,
                "highest": each.highest,
                "proactive_due": each.proactive_due,
            }
            for node, each in oracle.kcompactds.items()
        },
        "compaction": {
            zone: {
                "migrate_async": each.migrate[False],
                "migrate_sync": each.migrate[True],
                "free": each.free,
                "considered": each.deferral.considered,
                "shift": each.deferral.shift,
                "order_failed": each.deferral.order_failed,
                "flush": each.flush,
            }
            for zone, each in oracle.compaction.items()
        },
        "skipped": {
            "blocks": sorted(pfn for each in oracle.compaction.values() for pfn in each.skipped)
        },
        "counts": {"all": {name: value for name, value in memory.counts.items() if value}},
        "divergence": {"all": {name: value for name, value in oracle.divergence.items() if value}},
        "outcomes": {"all": {key: value for key, value in oracle.outcomes.items() if value}},
    }


def _kswapd(kswapd: Any) -> dict[str, int]:
    found = {
        "phase": int(kswapd.phase),
        "due": kswapd.due,
        "failures": kswapd.failures,
        "wanted_order": kswapd.wanted_order,
    }
    if kswapd.phase is Phase.RUNNING:
        found |= {
            "order": kswapd.control.order,
            "highest": kswapd.highest,
            "priority": kswapd.control.priority,
            "boost_left": kswapd.boost_left,
            "total": kswapd.control.reclaimed,
        }
    return found
