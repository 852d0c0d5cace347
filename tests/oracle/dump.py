"""The oracle's state as plain dicts and lists, and what always holds in it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tests.oracle.kswapd import Phase
from tests.oracle.machine import Migratetype, Purpose, is_mergeable
from tests.oracle.ownership import MergingLists, OwnedPageblocks
from tests.oracle.ownership_refill import OwningZone
from tests.oracle.pcp import FixedPerCpuPages
from tests.oracle.vmstat import LARGEST_STAT_THRESHOLD

if TYPE_CHECKING:
    from tests.oracle.elastic import ElasticOracle
    from tests.oracle.page_alloc import OracleState
    from tests.oracle.pcp import PerCpuPages
    from tests.oracle.zone import Zone


def dump_state(oracle: OracleState) -> dict[str, Any]:
    """Everything that two implementations must agree on; zones without pages have no page sets.

    Returns:
        A dict of dicts:
        `free`: (zone, order, migratetype) -> pfns, head first, empty lists included;
        `pcp`: (zone, cpu, index) -> pfns, head first, empty lists included;
        `pcp_state`: (zone, cpu) -> scalars, `free_factor` only where the limit is fixed;
        `blocks`: pageblock number -> migratetype;
        `zones`: zone -> counters and flags;
        `pcp_types` (only where lists need not match blocks): as `pcp`, the types pages carry;
        `divergence`: counts `forced`, `in_base_pages` and `failed`.
    """
    populated = [zone for zone in oracle.zones if zone.spec.managed]
    state = {
        "free": {
            (zone.index, *key): list(pages)
            for zone in oracle.zones
            for key, pages in zone.buddy.lists.items()
        },
        "pcp": {
            (zone.index, cpu, index): list(pages)
            for zone in populated
            for cpu, pcp in enumerate(zone.pcp)
            for index, pages in enumerate(pcp.lists)
        },
        "pcp_state": {
            (zone.index, cpu): _page_set(pcp)
            for zone in populated
            for cpu, pcp in enumerate(zone.pcp)
        },
        "blocks": oracle.blocks.as_dict(),
        "zones": {zone.index: _zone(zone) for zone in oracle.zones},
        "divergence": {
            "forced": oracle.forced,
            "in_base_pages": oracle.in_base_pages,
            "failed": oracle.failed,
        },
    }
    if not oracle.rules.free_lists_match_blocks:
        state["pcp_types"] = {
            key: [oracle.zones[key[0]].cached_types.of(pfn) for pfn in pages]
            for key, pages in state["pcp"].items()
        }
    return state


def dump_counters(oracle: OracleState) -> dict[str, Any]:
    """What several nodes, lagging counters and CMA add to the state.

    Returns:
        A dict of dicts:
        `kswapd`: node -> whether a run is under way;
        `counters`: zone -> `free` and `cma` as CPUs read them before the floor at 0, `free_cma`
        the true number of free CMA pages, `threshold` in force;
        `cpus`: (zone, cpu) -> `free` and `cma` kept back, `changed` since the last tick, `expire`.
    """
    populated = [zone for zone in oracle.zones if zone.spec.managed]
    return {
        "kswapd": {node: kswapd.active for node, kswapd in oracle.kswapd.items()},
        "counters": {
            zone.index: {
                "free": zone.counters.free.shared,
                "cma": zone.counters.cma.shared,
                "free_cma": zone.counters.cma.total,
                "threshold": zone.counters.free.threshold,
            }
            for zone in populated
        },
        "cpus": {
            (zone.index, cpu): {
                "free": zone.counters.free.pending[cpu],
                "cma": zone.counters.cma.pending[cpu],
                "changed": zone.counters.has_changed(cpu),
                "expire": pcp.expire,
            }
            for zone in populated
            for cpu, pcp in enumerate(zone.pcp)
        },
    }


def _page_set(pcp: PerCpuPages) -> dict[str, int | bool]:
    state = {
        "count": pcp.count,
        "high": pcp.high,
        "high_min": pcp.high_min,
        "high_max": pcp.high_max,
        "batch": pcp.batch,
        "alloc_factor": pcp.alloc_factor,
        "free_count": pcp.free_count,
        "prev_free_high_order": pcp.prev_free_high_order,
        "free_high_batch": pcp.free_high_batch,
    }
    if isinstance(pcp, FixedPerCpuPages):
        state["free_factor"] = pcp.free_factor
    return state


def _zone(zone: Zone) -> dict[str, int | bool]:
    return {
        "nr_free": zone.counters.free.total,
        "free_highatomic": zone.counters.highatomic,
        "reserved_highatomic": zone.reserve.reserved,
        "boost": zone.watermarks.boost,
        "below_high": zone.flags.below_high,
        "reclaim_active": zone.flags.reclaim_active,
        "boosted": zone.fallback.boosted,
    }


def dump_ownership(oracle: OracleState) -> dict[str, Any]:
    """Owners, recorded lists and marks, as far as pageblocks are owned at all; and counts.

    Returns:
        A dict of dicts:
        `owners`: pageblock number -> (CPU, whether it is recorded), owned blocks only;
        `recorded`: (zone, cpu) -> recorded blocks, oldest first;
        `mergeable`: (zone, cpu, index) -> the pages of the list that carry the mark, head first;
        `ownership_counts`: (zone, cpu, field of `OwnershipCount`) -> count.
    """
    cpus = range(oracle.machine.nr_cpus)
    populated = [zone for zone in oracle.zones if zone.spec.managed]
    return _dump_owners(oracle) | {
        "ownership_counts": {
            (zone.index, cpu, name): count
            for zone in populated
            for cpu in cpus
            for name, count in asdict(oracle.ownership_counters.at(zone.index, cpu)).items()
        }
    }


def _dump_owners(oracle: OracleState) -> dict[str, Any]:
    if not isinstance(oracle.blocks, OwnedPageblocks):
        return {"owners": {}, "recorded": {}, "mergeable": {}}
    blocks = oracle.blocks
    zones = [zone for zone in oracle.zones if isinstance(zone, OwningZone) and zone.spec.managed]
    return {
        "owners": {number: (block.cpu, block.recorded) for number, block in blocks.owned().items()},
        "recorded": {
            (zone.index, lists.cpu): blocks.recorded(zone.index, lists.cpu)
            for zone in zones
            for lists in zone.lists
        },
        "mergeable": {
            (zone.index, lists.cpu, index): [pfn for pfn in pages if pfn in lists.mergeable]
            for zone in zones
            for lists in zone.lists
            for index, pages in enumerate(lists.pcp.lists)
        },
    }


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


def check_ownership(oracle: OracleState) -> None:
    """Raise AssertionError with a sentence on the first thing that is wrong."""
    blocks = oracle.blocks
    if not isinstance(blocks, OwnedPageblocks):
        return
    _check_owners(oracle, blocks)
    for zone in oracle.zones:
        assert isinstance(zone, OwningZone)
        _check_whole_buddies(zone, blocks)
        for lists in zone.lists:
            _check_recorded(zone, lists.cpu, blocks)
            _check_marks(lists, blocks)


def _check_owners(oracle: OracleState, blocks: OwnedPageblocks) -> None:
    for number, block in blocks.owned().items():
        assert 0 <= block.cpu < oracle.machine.nr_cpus, f"block {number} belongs to {block.cpu}"
        migratetype = blocks.type_of(number << blocks.order)
        assert is_mergeable(migratetype), f"block {number} of type {migratetype} is owned"
        zone = oracle.zone_of(number << blocks.order).index
        assert zone == block.zone, f"block {number} lies in zone {zone}, not {block.zone}"
        is_listed = number in blocks.recorded(block.zone, block.cpu)
        assert is_listed == block.recorded, f"block {number} is recorded: {block.recorded}"


def _check_recorded(zone: OwningZone, cpu: int, blocks: OwnedPageblocks) -> None:
    owned = blocks.owned()
    for number in blocks.recorded(zone.index, cpu):
        assert number in owned, f"block {number} is recorded, not owned"
        block = owned[number]
        assert (block.zone, block.cpu) == (zone.index, cpu), (
            f"block {number} of cpu {block.cpu} is recorded by cpu {cpu}"
        )


def _check_whole_buddies(zone: OwningZone, blocks: OwnedPageblocks) -> None:
    for (order, _), pages in zone.buddy.lists.items():
        for pfn in pages if order >= blocks.order else ():
            for start in range(pfn, pfn + (1 << order), blocks.pages):
                owner = blocks.owner_of(start)
                assert owner is None, f"the free block of page {start} belongs to cpu {owner}"


def _check_marks(lists: MergingLists, blocks: OwnedPageblocks) -> None:
    listed = {pfn for pages in lists.pcp.lists for pfn in pages}
    assert lists.mergeable <= listed, f"cpu {lists.cpu} has marks on pages that are not listed"
    for pfn in lists.mergeable:
        owner = blocks.owner_of(pfn)
        assert owner in (None, lists.cpu), (
            f"page {pfn} of cpu {owner}'s block is mergeable on a list of cpu {lists.cpu}"
        )


def check(oracle: OracleState) -> None:
    """Raise AssertionError with a sentence on the first thing that is wrong."""
    for zone in oracle.zones:
        _check_free_lists(zone)
        _check_counts(zone)
        _check_merged(zone)
    _check_reserves(oracle)
    _check_places(oracle)
    check_ownership(oracle)


def _check_free_lists(zone: Zone) -> None:
    for (order, migratetype), pages in zone.buddy.lists.items():
        for pfn in pages:
            last = pfn + (1 << order) - 1
            assert pfn % (1 << order) == 0, f"free buddy {pfn} is not aligned to order {order}"
            assert zone.spec.spans(pfn), f"free buddy {pfn} lies outside its zone"
            assert zone.spec.spans(last), f"free buddy {pfn} reaches out of its zone"
            for page in range(pfn, last + 1, zone.blocks.pages):
                found = zone.blocks.type_of(page)
                assert _may_list(zone, found, migratetype), (
                    f"page {page} in a block of type {found} is on a list of type {migratetype}"
                )


def _may_list(zone: Zone, block_type: int, list_type: int) -> bool:
    """Whether free pages of such a block may be on such a list; loose lists swap some types."""
    if zone.rules.free_lists_match_blocks:
        return block_type == list_type
    swapped = all(each <= Migratetype.HIGHATOMIC for each in (block_type, list_type))
    return swapped or block_type == list_type


def _check_counts(zone: Zone) -> None:
    free = sum(
        len(pages) << order
        for (order, migratetype), pages in zone.buddy.lists.items()
        if not zone.machine.is_isolate(migratetype)
    )
    highatomic = _free_of_type(zone, Migratetype.HIGHATOMIC)
    cma = _free_of_type(zone, zone.machine.cma)
    counters = zone.counters
    counted = counters.free.total
    assert counted == free, f"zone {zone.index} counts {counted} free pages"
    assert counters.highatomic == highatomic, f"zone {zone.index}: free highatomic pages"
    assert counters.cma.total == cma, f"zone {zone.index}: free CMA pages"
    for kept in (*counters.free.pending, *counters.cma.pending):
        assert abs(kept) <= LARGEST_STAT_THRESHOLD, f"a CPU keeps back {kept} pages"
    for cpu, pcp in enumerate(zone.pcp):
        listed = sum(len(pages) << pcp.layout.order(index) for index, pages in enumerate(pcp.lists))
        assert pcp.count == listed, f"zone {zone.index} cpu {cpu} counts {pcp.count}, has {listed}"


def _free_of_type(zone: Zone, wanted: int | None) -> int:
    return sum(
        len(pages) << order
        for (order, migratetype), pages in zone.buddy.lists.items()
        if migratetype == wanted
    )


def _check_merged(zone: Zone) -> None:
    """No two free buddies lie side by side that a free would have merged (S5.3, S5.4).

    Blocks that the reserve gave back whole stand beside free neighbours until one is used, and so
    do loose lists' blocks whose tag has changed.
    """
    returned = zone.reserve.returned_whole
    checked = zone.buddy.max_order
    if not zone.rules.free_lists_match_blocks:
        checked = min(checked, zone.blocks.order)
    for (order, migratetype), pages in zone.buddy.lists.items():
        for pfn in pages if order < checked else ():
            neighbour = pfn ^ (1 << order)
            buddy = zone.buddy.at(neighbour)
            if buddy is None or buddy.order != order or {pfn, neighbour} & returned:
                continue
            mergeable = is_mergeable(buddy.migratetype) and is_mergeable(migratetype)
            kept_apart = buddy.migratetype != migratetype and not mergeable
            assert kept_apart and order >= zone.blocks.order, (
                f"free buddies {pfn} and {neighbour} of order {order} are not merged"
            )


def _check_reserves(oracle: OracleState) -> None:
    """Loose lists lose HIGHATOMIC tags to fallbacks that the reserve is not told of."""
    reserved = sum(zone.reserve.reserved for zone in oracle.zones)
    types = oracle.blocks.as_dict().values()
    tagged = sum(each == Migratetype.HIGHATOMIC for each in types) * oracle.blocks.pages
    agrees = reserved == tagged if oracle.rules.free_lists_match_blocks else reserved >= tagged
    assert agrees, f"{reserved} pages reserved, {tagged} in HIGHATOMIC blocks"


def _check_places(oracle: OracleState) -> None:
    """Every page laid out at the start is in exactly one place."""
    owner = dict.fromkeys(oracle.allocated.pages(), "allocated")
    for zone in oracle.zones:
        for (order, migratetype), pages in zone.buddy.lists.items():
            for pfn in pages:
                _own(owner, pfn, order, f"free list {order}/{migratetype}")
        for cpu, pcp in enumerate(zone.pcp):
            for index, pages in enumerate(pcp.lists):
                for pfn in pages:
                    _own(owner, pfn, pcp.layout.order(index), f"list {index} of cpu {cpu}")
    assert len(owner) == oracle.placed_pages, (
        f"{len(owner)} pages are somewhere, {oracle.placed_pages} were laid out"
    )


def _own(owner: dict[int, str], pfn: int, order: int, place: str) -> None:
    for page in range(pfn, pfn + (1 << order)):
        assert page not in owner, f"page {page} is on {place} and also {owner[page]}"
        owner[page] = place
