"""The oracle's state as plain dicts and lists, to be compared with another implementation's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.oracle.allocator import Oracle
    from tests.oracle.pcp import PerCpuPages
    from tests.oracle.zone import Zone


def dump_state(oracle: Oracle) -> dict[str, Any]:
    """Everything that two implementations must agree on.

    Returns:
        A dict of dicts:
        `free`: (zone, order, migratetype) -> pfns, head first, empty lists included;
        `pcp`: (zone, cpu, index) -> pfns, head first, empty lists included;
        `pcp_state`: (zone, cpu) -> scalars;
        `blocks`: pageblock number -> migratetype;
        `zones`: zone -> counters and flags;
        `divergence`: counts `forced`, `in_base_pages` and `failed`.
    """
    return {
        "free": {
            (zone.index, *key): list(pages)
            for zone in oracle.zones
            for key, pages in zone.buddy.lists.items()
        },
        "pcp": {
            (zone.index, cpu, index): list(pages)
            for zone in oracle.zones
            for cpu, pcp in enumerate(zone.pcp)
            for index, pages in enumerate(pcp.lists)
        },
        "pcp_state": {
            (zone.index, cpu): _page_set(pcp)
            for zone in oracle.zones
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


def _page_set(pcp: PerCpuPages) -> dict[str, int | bool]:
    return {
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


def _zone(zone: Zone) -> dict[str, int | bool]:
    return {
        "nr_free": zone.buddy.nr_free,
        "free_highatomic": zone.buddy.free_highatomic,
        "reserved_highatomic": zone.reserve.reserved,
        "boost": zone.watermarks.boost,
        "below_high": zone.flags.below_high,
        "reclaim_active": zone.flags.reclaim_active,
        "boosted": zone.fallback.boosted,
    }
