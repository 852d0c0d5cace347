"""The model's state in the oracle's form."""

from __future__ import annotations

from typing import Any

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import State
from tests.allocator.ownership_driver import list_count


def dump_state(state: State) -> dict[str, Any]:
    """A state as `Oracle.dump` has its own."""
    zones, cpus = range(len(state.machine.zones)), range(state.machine.nr_cpus)
    populated = _populated(state)
    zone_of = state.blocks["zone"]
    dump: dict[str, Any] = {
        "free": {key: pfns for zone in zones for key, pfns in _free_lists(state, zone)},
        "pcp": {
            key: pfns
            for zone in populated
            for cpu in cpus
            for key, pfns in _lists(state, zone, cpu)
        },
        "pcp_state": {
            (zone, cpu): _pageset(state, zone, cpu) for zone in populated for cpu in cpus
        },
        "blocks": {
            int(block): int(state.blocks[block]["migratetype"]) for block in np.flatnonzero(zone_of)
        },
        "zones": {zone: _zone(state, zone) for zone in zones},
        "divergence": {
            "forced": int(state.st[at.COUNT_FORCED]),
            "in_base_pages": int(state.st[at.COUNT_IN_BASE_PAGES]),
            "failed": int(state.st[at.COUNT_FAILED]),
        },
    }
    if not state.st[at.RULE_LISTS_MATCH_BLOCKS]:
        tags = state.pages["tag"]
        dump["pcp_types"] = {key: tags[pfns].tolist() for key, pfns in dump["pcp"].items()}
    return dump


def _free_lists(state: State, zone: int) -> list[tuple[tuple[int, int, int], list[int]]]:
    lists = state.zone_region(zone)[at.ZONE_LISTS :].reshape(-1, at.MIGRATETYPES, at.LIST_WORDS)
    return [
        ((zone, order, migratetype), state.list_pages(lists[order, migratetype]))
        for order in range(state.machine.max_order + 1)
        for migratetype in range(len(state.machine.migratetypes))
    ]


def _lists(state: State, zone: int, cpu: int) -> list[tuple[tuple[int, int, int], list[int]]]:
    lists = state.pcp_region(zone, cpu)[at.PCP_LISTS : at.PCP_SITES].reshape(-1, at.LIST_WORDS)
    indexes = range(list_count(state))
    return [((zone, cpu, index), state.list_pages(lists[index])) for index in indexes]


def _pageset(state: State, zone: int, cpu: int) -> dict[str, int | bool]:
    region = state.pcp_region(zone, cpu)
    tuned = bool(state.st[at.RULE_PCP_AUTO_TUNED])
    found = {
        "count": int(region[at.PCP_COUNT]),
        "high": int(region[at.PCP_HIGH]),
        "high_min": int(region[at.PCP_HIGH_MIN]),
        "high_max": int(region[at.PCP_HIGH_MAX]),
        "batch": int(region[at.PCP_BATCH]),
        "alloc_factor": int(region[at.PCP_ALLOC_FACTOR]),
        "free_count": int(region[at.PCP_FREE_COUNT]) if tuned else 0,
        "prev_free_high_order": bool(region[at.PCP_PREV_FREE_HIGH_ORDER]),
        "free_high_batch": bool(state.st[at.FREE_HIGH_BATCH]),
    }
    if not tuned:
        found["free_factor"] = int(region[at.PCP_FREE_FACTOR])
    return found


def _zone(state: State, zone: int) -> dict[str, int | bool]:
    region = state.zone_region(zone)
    return {
        "nr_free": int(region[at.ZONE_FREE]),
        "free_highatomic": int(region[at.ZONE_FREE_HIGHATOMIC]),
        "reserved_highatomic": int(region[at.ZONE_RESERVED_HIGHATOMIC]),
        "boost": int(region[at.ZONE_BOOST]),
        "below_high": bool(region[at.ZONE_BELOW_HIGH]),
        "reclaim_active": bool(region[at.ZONE_RECLAIM_ACTIVE]),
        "boosted": bool(region[at.ZONE_BOOSTED]),
    }


def dump_told(state: State) -> dict[str, int]:
    """What `Oracle.dump` has of what a recording told."""
    return {
        "recorded_failures": int(state.st[at.COUNT_RECORDED_FAILURE]),
        "hidden": int(state.st[at.COUNT_HIDDEN]),
        "orphan_frees": int(state.st[at.COUNT_ORPHAN_FREE]),
    }


def dump_counters(state: State) -> dict[str, Any]:
    """What `Oracle.dump_counters` has of its own."""
    st, machine = state.st, state.machine
    zones, cpus = _populated(state), range(machine.nr_cpus)
    nodes = st[st[at.NODE_BASE] : st[at.ZONELIST_BASE]].reshape(-1, at.NODE_STRIDE)
    return {
        "kswapd": {
            node: bool(nodes[index, at.NODE_KSWAPD_ACTIVE])
            for index, node in enumerate(machine.nodes)
        },
        "counters": {zone: _counters(state, zone) for zone in zones},
        "cpus": {(zone, cpu): _held_back(state, zone, cpu) for zone in zones for cpu in cpus},
    }


def _populated(state: State) -> list[int]:
    return [index for index, zone in enumerate(state.machine.zones) if zone.managed]


def _counters(state: State, zone: int) -> dict[str, int]:
    region = state.zone_region(zone)
    return {
        "free": int(region[at.ZONE_FREE] - region[at.ZONE_FREE_UNFOLDED]),
        "cma": int(region[at.ZONE_FREE_CMA] - region[at.ZONE_FREE_CMA_UNFOLDED]),
        "free_cma": int(region[at.ZONE_FREE_CMA]),
        "threshold": int(region[at.ZONE_THRESHOLD]),
    }


def _held_back(state: State, zone: int, cpu: int) -> dict[str, int | bool]:
    region = state.pcp_region(zone, cpu)
    free, cma = int(region[at.PCP_FREE_DELTA]), int(region[at.PCP_FREE_CMA_DELTA])
    return {
        "free": free,
        "cma": cma,
        "changed": bool(region[at.PCP_TOUCHED]) or free != 0 or cma != 0,
        "expire": int(region[at.PCP_EXPIRE]),
    }
