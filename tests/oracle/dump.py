"""The oracle's state as plain dicts and lists, to be compared with another implementation's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.oracle.pcp_6_1 import FixedPerCpuPages

if TYPE_CHECKING:
    from tests.oracle.oracle_state import OracleState
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
