"""The oracle's state as plain dicts and lists."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tests.oracle.kswapd import ElasticKswapd, Phase
from tests.oracle.machine import Purpose
from tests.oracle.ownership import OwnedPageblocks

if TYPE_CHECKING:
    from tests.oracle.elastic import ElasticOracle
    from tests.oracle.literal import Oracle
    from tests.oracle.page_alloc import Allocator

Dump = dict[str, dict[Any, Any]]  # a dict for each part of a state, by whatever the part is about

PAGE_SET = (
    *("count", "high", "high_min", "high_max", "batch", "alloc_factor", "free_count"),
    *("prev_free_high_order", "free_high_batch"),
)


def values(thing: object, *names: str) -> dict[str, Any]:
    """Some attributes of a thing by name."""
    return {name: getattr(thing, name) for name in names}


def dump_state(oracle: Allocator) -> Dump:
    """Everything that two implementations must agree on; zones without pages have no page sets.

    Returns:
        `free`: (zone, order, migratetype) -> pfns, head first, empty lists included;
        `pcp`: (zone, cpu, index) -> pfns, head first, empty lists included;
        `pcp_state`: (zone, cpu) -> scalars, `free_factor` only where the limit is fixed;
        `blocks`: pageblock number -> migratetype;
        `zones`: zone -> counters and flags;
        `pcp_types` (only where lists need not match blocks): as `pcp`, the types pages carry.
    """
    page_sets = [
        ((zone.index, cpu), pcp)
        for zone in oracle.zones
        if zone.spec.managed
        for cpu, pcp in enumerate(zone.pcp)
    ]
    tunes_itself = oracle.rules.pcp_tunes_itself
    names = PAGE_SET if tunes_itself else (*PAGE_SET, "free_factor")
    state: Dump = {
        "free": {
            (zone.index, *key): list(pages)
            for zone in oracle.zones
            for key, pages in zone.buddy.lists.items()
        },
        "pcp": {
            (*key, index): list(pages)
            for key, pcp in page_sets
            for index, pages in enumerate(pcp.lists)
        },
        "pcp_state": {key: values(pcp, *names) for key, pcp in page_sets},
        "blocks": dict(oracle.blocks.types),
        "zones": {
            zone.index: {
                "nr_free": zone.counters.free.total,
                "free_highatomic": zone.counters.highatomic,
                "reserved_highatomic": zone.reserve.reserved,
                "boost": zone.watermarks.boost,
                **values(zone.flags, "below_high", "reclaim_active"),
                "boosted": zone.fallback.boosted,
            }
            for zone in oracle.zones
        },
    }
    if not oracle.rules.free_lists_match_blocks:
        state["pcp_types"] = {
            key: [oracle.zones[key[0]].cached_types[pfn] for pfn in pages]
            for key, pages in state["pcp"].items()
        }
    return state


def dump_literal(oracle: Oracle) -> Dump:
    """What literal replays count, and what several nodes, lag, CMA and ownership add to the state.

    Returns:
        `divergence` and `told`: counts by name;
        `kswapd`: node -> whether a run is under way;
        `counters`: zone -> `free` and `cma` as CPUs read them before the floor at 0, `free_cma`
        the true number of free CMA pages, `threshold` in force;
        `cpus`: (zone, cpu) -> `free` and `cma` kept back, `changed` since the last tick, `expire`;
        `probes`: list probes of all refills, and of the one that made most;
        `owners`: pageblock number -> (CPU, whether it is recorded), owned blocks only;
        `recorded`: (zone, cpu) -> recorded blocks, oldest first;
        `mergeable`: (zone, cpu, index) -> the pages of the list that carry the mark, head first;
        `lockless`: (zone, cpu) -> (pfn, order) of the lockless list, newest first;
        `ownership_counts`: (zone, cpu, field of `OwnershipCount`) -> count.
    """
    zones = [zone for zone in oracle.zones if zone.spec.managed]
    page_sets = [(zone, cpu) for zone in zones for cpu in range(oracle.machine.nr_cpus)]
    searches = [probes for zone in oracle.zones for probes in zone.fallback.refill_probes]
    blocks = oracle.blocks
    owning = page_sets if isinstance(blocks, OwnedPageblocks) else []
    return {
        "divergence": values(oracle, "forced", "in_base_pages", "failed"),
        "told": values(oracle, "recorded_failures", "hidden", "orphan_frees"),
        "kswapd": {node: kswapd.active for node, kswapd in oracle.kswapd.items()},
        "counters": {
            zone.index: {
                "free": zone.counters.free.shared,
                "cma": zone.counters.cma.shared,
                "free_cma": zone.counters.cma.total,
                "threshold": zone.counters.free.threshold,
            }
            for zone in zones
        },
        "cpus": {
            (zone.index, cpu): {
                "free": zone.counters.free.pending[cpu],
                "cma": zone.counters.cma.pending[cpu],
                "changed": zone.counters.has_changed(cpu),
                "expire": zone.pcp[cpu].expire,
            }
            for zone, cpu in page_sets
        },
        "probes": {"all": sum(searches), "most": max(searches, default=0)},
        "owners": {
            number: (block.cpu, block.recorded)
            for number, block in (blocks.owned.items() if owning else ())
        },
        "recorded": {
            (zone.index, cpu): list(blocks.recorded[zone.index, cpu]) for zone, cpu in owning
        },
        "mergeable": {
            (zone.index, cpu, index): [pfn for pfn in pages if pfn in zone.lists[cpu].mergeable]
            for zone, cpu in owning
            for index, pages in enumerate(zone.pcp[cpu].lists)
        },
        "lockless": {(zone.index, cpu): list(zone.lists[cpu].lockless) for zone, cpu in owning},
        "ownership_counts": {
            (zone.index, cpu, name): count
            for zone, cpu in page_sets
            for name, count in asdict(oracle.ownership_counters.at(zone.index, cpu)).items()
        },
    }


def dump_elastic(oracle: ElasticOracle) -> Dump:
    """What elastic replays add to the state.

    Returns:
        `lru`: (node, list) -> pfns, head first;
        `lru_pages`: (node, list) -> base pages;
        `folios`: pfn -> (order, class, object, offset, draws);
        `marked`: first pages of folios used once; `ages`: node -> age;
        `shadows`: object -> (node, age), of what reclaim took of files;
        `pieces`: object -> (offset, pfn), the newest first;
        `kswapd`: node -> scalars; `kcompactd`: node -> scalars;
        `compaction`: zone -> scanners and deferral;
        `leads`: object -> the failure it came in place of, where tasks' requests tell;
        `skipped`: first pages of blocks left out;
        `counts`: name -> value, zeros left out; `divergence` and `outcomes` likewise.
    """
    memory = oracle.memory
    lists = [
        ((node, number), lru, key)
        for node, lru in memory.lrus.items()
        for number, key in enumerate(lru.lists)
    ]
    return {
        "lru": {place: list(lru.lists[key]) for place, lru, key in lists},
        "lru_pages": {place: lru.pages[key] for place, lru, key in lists},
        "folios": {
            pfn: (
                folio.order,
                int(folio.kind),
                folio.object,
                folio.offset,
                *(folio.draws[purpose] % 256 for purpose in (Purpose.REFERENCED, Purpose.DIRTY)),
            )
            for pfn, folio in memory.folios.items()
        },
        "marked": {"all": sorted(pfn for pfn, folio in memory.folios.items() if folio.marked)},
        "ages": {node: memory.workingset.ages[node] for node in memory.lrus},
        "shadows": dict(memory.workingset.shadows),
        "pieces": {
            number: [(piece.offset, piece.pfn) for piece in pieces]
            for number, pieces in memory.objects.items()
            if pieces
        },
        "kswapd": {
            node: values(kswapd, "due", "failures", "wanted_order")
            | {"phase": int(kswapd.phase)}
            | (_run(kswapd) if kswapd.phase is Phase.RUNNING else {})
            for node, kswapd in oracle.kswapd.items()
        },
        "kcompactd": {
            node: values(kcompactd, "due", "order", "highest", "proactive_due")
            for node, kcompactd in oracle.kcompactds.items()
        },
        "compaction": {
            zone: {
                "migrate_async": place.migrate[False],
                "migrate_sync": place.migrate[True],
                **values(place, "free", "flush"),
                **values(place.deferral, "considered", "shift", "order_failed"),
            }
            for zone, place in oracle.compaction.items()
        },
        "leads": {"all": dict(oracle.replacements.leads)},
        "skipped": {
            "blocks": sorted(pfn for place in oracle.compaction.values() for pfn in place.skipped)
        },
        "counts": {"all": nonzero(memory.counts)},
        "divergence": {"all": nonzero(oracle.divergence)},
        "outcomes": {"all": nonzero(oracle.outcomes)},
    }


def nonzero(counts: Counter[Any]) -> dict[Any, int]:
    return {name: count for name, count in counts.items() if count}


def _run(kswapd: ElasticKswapd) -> dict[str, int]:
    control = kswapd.control
    found = values(kswapd, "highest", "boost_left") | values(control, "order", "priority")
    return found | {"total": control.reclaimed}
