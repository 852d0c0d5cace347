"""The oracle's state as plain dicts and lists, and what always holds in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tests.oracle.kswapd import ElasticKswapd, Phase
from tests.oracle.machine import Migratetype, Purpose, is_mergeable
from tests.oracle.ownership import OwnedPageblocks
from tests.oracle.ownership_refill import OwningZone
from tests.oracle.vmstat import LARGEST_STAT_THRESHOLD

if TYPE_CHECKING:
    from tests.oracle.elastic import ElasticOracle
    from tests.oracle.literal import Oracle
    from tests.oracle.page_alloc import Allocator
    from tests.oracle.zone import Zone

Dump = dict[str, dict[Any, Any]]
"""A dict for each part of a state, by whatever the part is about."""

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
        "kswapd": {node: _kswapd(kswapd) for node, kswapd in oracle.kswapd.items()},
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
        "skipped": {
            "blocks": sorted(pfn for place in oracle.compaction.values() for pfn in place.skipped)
        },
        "counts": {"all": nonzero(memory.counts)},
        "divergence": {"all": nonzero(oracle.divergence)},
        "outcomes": {"all": nonzero(oracle.outcomes)},
    }


def nonzero(counts: Counter[Any]) -> dict[Any, int]:
    return {name: count for name, count in counts.items() if count}


def _kswapd(kswapd: ElasticKswapd) -> dict[str, int]:
    state = values(kswapd, "due", "failures", "wanted_order") | {"phase": int(kswapd.phase)}
    if kswapd.phase is Phase.RUNNING:
        state |= values(kswapd, "highest", "boost_left")
        state |= values(kswapd.control, "order", "priority")
        state["total"] = kswapd.control.reclaimed
    return state


def check(oracle: Allocator) -> None:
    for zone in oracle.zones:
        _check_free_lists(zone)
        _check_counts(zone)
        _check_merged(zone)
    _check_reserves(oracle)
    _check_places(oracle)
    if isinstance(oracle.blocks, OwnedPageblocks):
        _check_owners(oracle, oracle.blocks)
    for zone in oracle.zones:
        if isinstance(zone, OwningZone):
            _check_owned_zone(zone)


def _listed(zone: Zone) -> Iterator[tuple[int, int, int]]:
    """First page, order and list's type of each free buddy."""
    for (order, migratetype), pages in zone.buddy.lists.items():
        for pfn in pages:
            yield pfn, order, migratetype


def _check_free_lists(zone: Zone) -> None:
    """Loose lists of types up to HIGHATOMIC may hold pages of each other's blocks."""
    strict = zone.rules.free_lists_match_blocks
    for pfn, order, migratetype in _listed(zone):
        last = pfn + (1 << order) - 1
        assert pfn % (1 << order) == 0, f"free buddy {pfn} is not aligned to order {order}"
        assert zone.spec.spans(pfn), f"free buddy {pfn} lies outside its zone"
        assert zone.spec.spans(last), f"free buddy {pfn} reaches out of its zone"
        for page in range(pfn, last + 1, zone.blocks.pages):
            of_block = zone.blocks.type_of(page)
            may_differ = not strict and max(of_block, migratetype) <= Migratetype.HIGHATOMIC
            assert may_differ or of_block == migratetype, (
                f"page {page} in a block of type {of_block} is on a list of type {migratetype}"
            )


def _check_counts(zone: Zone) -> None:
    pages: Counter[int] = Counter()
    for _, order, migratetype in _listed(zone):
        pages[migratetype] += 1 << order
    free = sum(size for each, size in pages.items() if not zone.machine.is_isolate(each))
    counters = zone.counters
    counted = counters.free.total
    assert counted == free, f"zone {zone.index} counts {counted} free pages"
    highatomic, cma = pages[Migratetype.HIGHATOMIC], pages[zone.machine.cma]
    assert counters.highatomic == highatomic, f"zone {zone.index}: free highatomic pages"
    assert counters.cma.total == cma, f"zone {zone.index}: free CMA pages"
    for pending in (*counters.free.pending, *counters.cma.pending):
        assert abs(pending) <= LARGEST_STAT_THRESHOLD, f"a CPU keeps back {pending} pages"


def _check_merged(zone: Zone) -> None:
    """No two free buddies lie side by side that a free would have merged (S5.3, S5.4).

    Blocks that the reserve gave back whole stand beside free neighbours until one is used, and so
    do loose lists' blocks whose tag has changed.
    """
    returned = zone.reserve.returned_whole
    checked = zone.buddy.max_order
    if not zone.rules.free_lists_match_blocks:
        checked = min(checked, zone.blocks.order)
    for pfn, order, migratetype in _listed(zone):
        neighbour = pfn ^ (1 << order)
        buddy = zone.buddy.at(neighbour)
        if order >= checked or buddy is None or buddy.order != order:
            continue
        mergeable = is_mergeable(buddy.migratetype) and is_mergeable(migratetype)
        kept_apart = buddy.migratetype != migratetype and not mergeable
        is_apart = kept_apart and order >= zone.blocks.order
        assert is_apart or {pfn, neighbour} & returned, (
            f"free buddies {pfn} and {neighbour} of order {order} are not merged"
        )


def _check_reserves(oracle: Allocator) -> None:
    """Loose lists lose HIGHATOMIC tags to fallbacks that the reserve is not told of."""
    reserved = sum(zone.reserve.reserved for zone in oracle.zones)
    types = list(oracle.blocks.types.values())
    tagged = types.count(Migratetype.HIGHATOMIC) * oracle.blocks.pages
    agrees = reserved == tagged if oracle.rules.free_lists_match_blocks else reserved >= tagged
    assert agrees, f"{reserved} pages reserved, {tagged} in HIGHATOMIC blocks"


def _check_places(oracle: Allocator) -> None:
    """Every page laid out at the start is in exactly one place."""
    places = dict.fromkeys(oracle.allocated.movable, "allocated")
    for pfn, order, place in _places(oracle):
        for page in range(pfn, pfn + (1 << order)):
            assert page not in places, f"page {page} is on {place} and also {places[page]}"
            places[page] = place
    assert len(places) == oracle.placed_pages, (
        f"{len(places)} pages are somewhere, {oracle.placed_pages} were laid out"
    )


def _places(oracle: Allocator) -> Iterator[tuple[int, int, str]]:
    """First page, order and place of all that is listed."""
    for zone in oracle.zones:
        for pfn, order, migratetype in _listed(zone):
            yield pfn, order, f"free list {order}/{migratetype}"
        for cpu, pcp in enumerate(zone.pcp):
            for index, pages in enumerate(pcp.lists):
                for pfn in pages:
                    yield pfn, pcp.layout.order(index), f"list {index} of cpu {cpu}"


def _check_owners(oracle: Allocator, blocks: OwnedPageblocks) -> None:
    for number, block in blocks.owned.items():
        assert 0 <= block.cpu < oracle.machine.nr_cpus, f"block {number} belongs to {block.cpu}"
        migratetype = blocks.types[number]
        assert is_mergeable(migratetype), f"block {number} of type {migratetype} is owned"
        zone = oracle.zone_of(number << blocks.order).index
        assert zone == block.zone, f"block {number} lies in zone {zone}, not {block.zone}"
        is_listed = number in blocks.recorded[block.zone, block.cpu]
        assert is_listed == block.recorded, f"block {number} is recorded: {block.recorded}"


def _check_owned_zone(zone: OwningZone) -> None:
    """Whole free blocks have no owner, recorded ones their list's; marks are where they may be."""
    blocks = zone.owned_blocks
    for pfn, order, _ in _listed(zone):
        for start in range(pfn, pfn + (1 << order), blocks.pages) if order >= blocks.order else ():
            owner = blocks.owner_of(start)
            assert owner is None, f"the free block of page {start} belongs to cpu {owner}"
    for lists in zone.lists:
        for number in blocks.recorded[zone.index, lists.cpu]:
            assert number in blocks.owned, f"block {number} is recorded, not owned"
            block = blocks.owned[number]
            assert (block.zone, block.cpu) == (zone.index, lists.cpu), (
                f"block {number} of cpu {block.cpu} is recorded by cpu {lists.cpu}"
            )
        listed = {pfn for pages in lists.pcp.lists for pfn in pages}
        assert lists.mergeable <= listed, f"cpu {lists.cpu} has marks on pages that are not listed"
        for pfn in lists.mergeable:
            owner = blocks.owner_of(pfn)
            assert owner in (None, lists.cpu), (
                f"page {pfn} of cpu {owner}'s block is mergeable on a list of cpu {lists.cpu}"
            )
