"""A model that takes the oracle's steps, and its state in the oracle's words."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.events import advance
from pagealloc_model.allocator.state import State, make_state, note_isolated_blocks, place_buddies
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.ownership_options import OwnershipOptions
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.predicted.run import kept_pages, taken_pages
from pagealloc_model.recording.machine import Machine, Zone
from tests.oracle import Oracle, OracleMachine, OraclePolicy, OracleRules, steps
from tests.oracle.machine import Event, Work
from tests.oracle.ownership import OwnershipCount, PhaseCount
from tests.oracle.rules import OracleOwnership
from tests.oracle.scenarios import live_objects

COUNTERS = {
    "claimed": at.BLOCKS_CLAIMED,
    "recorded": at.BLOCKS_RECORDED,
    "recovered": at.BLOCKS_RECOVERED,
    "ended": at.OWNERSHIPS_ENDED,
    "remote_frees": at.REMOTE_FREES,
    "busy_frees": at.REMOTE_BUSY,
    "splits": at.LIST_SPLITS,
    "merges": at.LIST_MERGES,
    "merge_looks": at.MERGE_ENTRIES,
    "recorded_looks": at.RECORDED_ENTRIES,
}
"""The model's word for each of the oracle's counts."""


def model_ownership(options: OracleOwnership | None) -> dict[str, Any]:
    """Policy fields that say the same."""
    if options is None:
        return {}
    return {
        "pageblock_ownership": "pcp_buddy",
        "ownership": OwnershipOptions(**asdict(options)),
    }


def list_count(state: State) -> int:
    """Lists of a page set."""
    if state.st[at.OWNERSHIP]:
        return at.PCP_TYPES * (state.machine.pageblock_order + 1)
    of_huge_pages = 2 if state.machine.thp else 0
    return at.PCP_TYPES * (int(state.st[at.POLICY_COSTLY_ORDER]) + 1) + of_huge_pages


def dump_ownership(state: State) -> dict[str, Any]:
    """Owners, recorded lists, marks and counts as `tests.oracle.dump` has them."""
    cpus = range(state.machine.nr_cpus)
    sets = [
        (zone, cpu) for zone, spec in enumerate(state.machine.zones) if spec.managed for cpu in cpus
    ]
    counts = {
        (*key, name): count for key in sets for name, count in asdict(_count(state, *key)).items()
    }
    if not state.st[at.OWNERSHIP]:
        return {"owners": {}, "recorded": {}, "mergeable": {}, "ownership_counts": counts}
    return {
        "owners": _owners(state),
        "recorded": {key: _recorded(state, *key) for key in sets},
        "mergeable": {
            (zone, cpu, index): _marked(state, zone, cpu, index)
            for zone, cpu in sets
            for index in range(list_count(state))
        },
        "ownership_counts": counts,
    }


def _scalar(state: State, word: int) -> int:
    return int(state.st[state.st[at.OWNERSHIP] + word])


def _blocks(state: State) -> np.ndarray:
    first = _scalar(state, at.OWNED_BLOCKS)
    words = state.st[first : first + len(state.blocks) * at.OWNED_BLOCK_WORDS]
    return words.reshape(-1, at.OWNED_BLOCK_WORDS)


def _set(state: State, zone: int, cpu: int) -> np.ndarray:
    """Words of a CPU's part in a zone; zeros where no block is ever owned."""
    if not state.st[at.OWNERSHIP]:
        return np.zeros(at.OWNED_SET_STRIDE, np.int64)
    number = zone * state.machine.nr_cpus + cpu
    first = _scalar(state, at.OWNED_SETS) + number * at.OWNED_SET_STRIDE
    return state.st[first : first + at.OWNED_SET_STRIDE]


def _owners(state: State) -> dict[int, tuple[int, bool]]:
    recorded = _blocks(state)[:, at.BLOCK_IS_RECORDED]
    first = _scalar(state, at.OWNERS)
    owners = state.st[first : first + len(state.blocks)]
    return {
        int(number): (int(owners[number]) - 1, bool(recorded[number]))
        for number in np.flatnonzero(owners)
    }


def _recorded(state: State, zone: int, cpu: int) -> list[int]:
    blocks = _blocks(state)
    head, _, entries = _set(state, zone, cpu)[at.SET_RECORDED :][: at.LIST_WORDS]
    found = []
    number = int(head)
    while number >= 0:
        found.append(number)
        number = int(blocks[number, at.BLOCK_NEXT])
    assert len(found) == entries
    return found


def _marked(state: State, zone: int, cpu: int, index: int) -> list[int]:
    lists = state.pcp_region(zone, cpu)[at.PCP_LISTS : at.PCP_SITES].reshape(-1, at.LIST_WORDS)
    pages = state.list_pages(lists[index])
    return [pfn for pfn in pages if state.pages[pfn]["flags"] & at.MERGEABLE]


def _count(state: State, zone: int, cpu: int) -> OwnershipCount:
    words = _set(state, zone, cpu)
    locks = state.pcp_region(zone, cpu)
    return OwnershipCount(
        phases=tuple(_phase(words, phase) for phase in range(at.PHASES)),
        lock_acquisitions=int(locks[at.PCP_LOCKS]),
        lock_drain_holds=int(locks[at.PCP_DRAIN_LOCKS]),
        lock_handovers=int(locks[at.PCP_LOCK_HANDOVERS]),
        **{name: int(words[word]) for name, word in COUNTERS.items()},
    )


def _phase(words: np.ndarray, phase: int) -> PhaseCount:
    first = at.SET_PHASES + phase * at.PHASE_STRIDE
    return PhaseCount(
        refills=int(words[first + at.PHASE_REFILLS]),
        objects=int(words[first + at.PHASE_OBJECTS]),
        pages=int(words[first + at.PHASE_PAGES]),
    )


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


FAR = 1 << 62
"""A time at which no decay tick is due."""

LOG_ROWS = 1 << 22
"""Room for what one step can log on the scenarios' machines."""

OBJECTS = 1 << 14
"""Room for the objects of a scenario."""

HOLDS = {
    at.SITE_REFILL: ("refill", ""),
    at.SITE_DRAIN_COMMIT: ("drain", "commit"),
    at.SITE_DRAIN_DECAY: ("drain", "decay"),
    at.SITE_DRAIN_ALL: ("drain", "drain_all"),
    at.SITE_BUDDY_ALLOC: ("buddy_alloc", ""),
    at.SITE_DIRECT_FREE: ("direct_free", ""),
    at.SITE_RESERVE: ("reserve", ""),
    at.SITE_UNRESERVE: ("unreserve", ""),
    at.SITE_BOOST_RESET: ("boost_reset", ""),
}
"""The oracle's site and cause of each of the model's sites."""


def model_machine(machine: OracleMachine) -> Machine:
    """The same machine, in the model's words."""
    zones = tuple(
        Zone(
            node=each.node,
            name=each.name,
            start_pfn=each.start_pfn,
            spanned=each.spanned,
            present=each.present,
            managed=each.managed,
            min=each.min,
            low=each.low,
            high=each.high,
            boost=each.boost,
            lowmem_reserve=each.lowmem_reserve,
        )
        for each in machine.zones
    )
    return Machine(
        zones=zones,
        nr_cpus=machine.nr_cpus,
        cpu_nodes=machine.cpu_nodes,
        distances=machine.distances,
        pageblock_order=machine.pageblock_order,
        max_order=machine.max_order,
        migratetypes=machine.migratetypes,
        thp=machine.thp,
    )


def model_policy(policy: OraclePolicy, rules: OracleRules) -> Policy:
    """The same policy; the rules' field that sweeps may change comes along."""
    return Policy(
        highatomic_gate_order=policy.highatomic_gate_order,
        highatomic_reserve_percent=policy.highatomic_reserve_percent,
        highatomic_from_pcp=rules.highatomic_from_pcp,
        highatomic_fastpath=policy.highatomic_fastpath,
        highatomic_slowpath_only=policy.highatomic_slowpath_only,
        refill_mode_persists=policy.refill_mode_persists,
        superpageblock_order=policy.superpageblock_order,
        costly_order=policy.costly_order,
        pcp_batch=policy.pcp_batch,
        pcp_high_min=policy.pcp_high_min,
        pcp_high_max=policy.pcp_high_max,
        percpu_pagelist_high_fraction=policy.percpu_pagelist_high_fraction or None,
        pcp_batch_scale_max=policy.pcp_batch_scale_max,
        pcp_free_batched=policy.pcp_free_batched,
        pcp_decay_batched=policy.pcp_decay_batched,
        pcp_drain_batched=policy.pcp_drain_batched,
        watermark_boost_factor=policy.watermark_boost_factor,
        **model_ownership(policy.ownership),
    )


def state_like(oracle: Oracle, log_rows: int = LOG_ROWS) -> State:
    """A state with every page, type and counter where the oracle has it; no tick is due."""
    state = make_state(
        model_machine(oracle.machine),
        KernelRules.preset(oracle.rules.name),
        model_policy(oracle.policy, oracle.rules),
        Assumptions(
            free_high_batch=oracle.machine.free_high_batch,
            counters=oracle.assumptions.counters,
        ),
        log_rows=log_rows,
    )
    dump = oracle.dump()
    for block, migratetype in dump["blocks"].items():
        state.blocks[block]["migratetype"] = migratetype
    for (_, order, migratetype), pfns in dump["free"].items():
        put_on_list(state, order, migratetype, pfns)
    for pfn, order in live_objects(oracle):
        record = state.pages[pfn]
        record["where"], record["order"] = at.ALLOCATED, order
        record["tag"] = oracle.allocated.is_movable(pfn)
    note_isolated_blocks(state)
    _copy_counters(state, dump)
    state.st[at.NEXT_TICK] = state.st[at.TICK_BASE] = FAR
    state.st[at.LOG_PAGES] = 1
    state.st[at.KSWAPD_RECORDED] = oracle.assumptions.kswapd_recorded
    state.st[at.DIRECT_RECLAIM_RECORDED] = oracle.assumptions.direct_reclaim_recorded
    state.st[at.DRAINS_RECORDED] = oracle.assumptions.drains_recorded
    return state


def put_on_list(state: State, order: int, migratetype: int, pfns: list[int]) -> None:
    """Append free buddies to a list, whatever the types of their blocks."""
    types = state.blocks["migratetype"]
    before = types.copy()
    types[[pfn >> state.machine.pageblock_order for pfn in pfns]] = migratetype
    orders = np.full(len(pfns), order, np.int8)
    place_buddies(state.arrays(), np.array(pfns, np.int32), orders)
    types[:] = before


def _copy_counters(state: State, dump: dict[str, Any]) -> None:
    for zone, found in dump["zones"].items():
        region = state.zone_region(zone)
        region[at.ZONE_RESERVED_HIGHATOMIC] = found["reserved_highatomic"]
        region[at.ZONE_BOOST] = found["boost"]
        region[at.ZONE_BELOW_HIGH] = found["below_high"]
    for (zone, cpu), found in dump["pcp_state"].items():
        region = state.pcp_region(zone, cpu)
        assert found["count"] == 0, "scenarios start with empty per-CPU lists"
        region[at.PCP_HIGH] = found["high"]
        region[at.PCP_ALLOC_FACTOR] = found["alloc_factor"]
        region[at.PCP_FREE_COUNT] = found["free_count"]
        if "free_factor" in found:
            region[at.PCP_FREE_FACTOR] = found["free_factor"]
        region[at.PCP_PREV_FREE_HIGH_ORDER] = found["prev_free_high_order"]


class ModelDriver:
    """A state that takes an oracle's steps.

    Attributes:
        state: the model's arrays.
        rows: log rows of the last step.
        acquisitions: lock holds logged so far, shape (zones, cpus, sites); a free's drain counts
            for the CPU that frees, whose list it drains.
    """

    def __init__(self, oracle: Oracle) -> None:
        """Start where the oracle is."""
        self.state = state_like(oracle)
        self.now = 0
        self.rows = np.zeros((0, at.LOG_COLUMNS), np.int64)
        nr_zones = len(oracle.machine.zones)
        self.acquisitions = np.zeros((nr_zones, oracle.machine.nr_cpus, at.SITES), np.int64)
        self._object_pfn = np.full(OBJECTS, -1, np.int32)
        self._owner: dict[int, int] = {}
        self._objects = 0
        for pfn, order in live_objects(oracle):
            self._object_pfn[self._objects] = pfn
            self._own(((pfn, order),))

    def take(self, step: steps.Step) -> steps.Live:
        """One step; the pages it is given, if any."""
        self.now += 1
        self.state.st[at.LOG_ROWS] = 0
        given: steps.Live = ()
        match step:
            case steps.Replayed() | steps.Alloc():
                given = self._alloc(step)
            case steps.Failed():
                self._fail(step)
            case steps.BeginRequest():
                self._advance(operation=at.BEGIN_REQUEST, object=-1, **_request(step))
            case steps.HoldDrained():
                self._advance(
                    operation=at.HOLD_DRAINED, object=-1, cpu=step.cpu, bits=at.INTERRUPTS_HOLDER
                )
            case steps.Isolate():
                given = self._isolate(step)
            case steps.Capture():
                given = self._capture(step)
            case steps.Free():
                bits = at.INTERRUPTS_HOLDER if step.interrupts else 0
                bits |= at.FREED_IN_BATCH if step.batched else 0
                self._free(step.cpu, step.pfn, step.order, bits)
            case steps.FreeSingly():
                order = (len(step.pages) - 1).bit_length()
                bits = at.FREED_IN_BATCH if step.batched else 0
                self._free(step.cpu, step.pages[0][0], order, bits)
            case steps.FreeNothing():
                self._free_nothing(step)
            case steps.Tick(is_recorded=True):
                self._advance(operation=at.TICK, cpu=step.cpu)
            case steps.Tick():
                self._tick(step.cpu)
            case steps.DrainAll():
                self._advance(operation=at.DRAIN_ALL)
            case steps.KillCpu():
                self._advance(operation=at.CPU_DIES, cpu=step.by, offset=step.cpu)
            case steps.ReviveCpu():
                self._advance(operation=at.CPU_RETURNS, cpu=step.cpu, offset=step.cpu)
            case steps.KswapdStart():
                node = self.state.machine.nodes.index(step.node)
                self._advance(operation=at.KSWAPD_START, offset=node, zone=step.highest_zone)
            case steps.KswapdStop():
                node = self.state.machine.nodes.index(step.node)
                self._advance(operation=at.KSWAPD_STOP, offset=node)
            case steps.SetPcpHigh():
                self._advance(
                    operation=at.SET_PCP_HIGH, zone=step.zone, cpu=step.cpu, offset=step.high
                )
            case steps.SetBoost():
                self._advance(operation=at.SET_BOOST, zone=step.zone, offset=step.pages)
            case steps.DrainZone():
                self._advance(operation=at.DRAIN_ZONE, zone=step.zone, offset=step.cpu, cpu=step.by)
            case steps.DrainLocal():
                self._advance(operation=at.DRAIN_LOCAL, zone=step.zone, cpu=step.cpu)
            case steps.ReclaimInVain():
                self._advance(operation=at.RECLAIM_IN_VAIN, **_request(step))
            case steps.Grow():
                self._advance(
                    operation=at.GROW,
                    zone=step.zone,
                    offset=step.pfn,
                    order=step.order,
                    cpu=step.cpu,
                )
            case steps.ReclaimBegin():
                self._advance(
                    operation=at.RECLAIM_BEGIN,
                    cpu=step.cpu,
                    order=step.order,
                    migratetype=step.migratetype,
                    zone=step.highest_zone,
                    bits=int(step.bits) | step.number << at.RECLAIM_SHIFT,
                )
        self._keep_log()
        return given

    @property
    def events(self) -> list[Event]:
        """What the last step did under zone->lock, in the oracle's words."""
        return [_event(row) for row in self.rows.tolist()]

    @property
    def work(self) -> list[Work]:
        """What each hold of zone->lock in the last step did, in the oracle's words."""
        holds = self.rows[self.rows[:, 0] < at.SITES]
        units = holds[:, at.LOG_WORK : at.LOG_WORK + at.WORK_UNITS]
        return [Work(*row) for row in units.tolist()]

    def dump(self) -> dict[str, Any]:
        """The state as `Oracle.dump` has it."""
        return {**dump_state(self.state), "told": dump_told(self.state)}

    def dump_counters(self) -> dict[str, Any]:
        """The state as `Oracle.dump_counters` has it."""
        return dump_counters(self.state)

    def _advance(self, **fields: int) -> None:
        events = np.zeros(1, at.EVENT)
        events["time_ns"] = self.now
        for name, value in fields.items():
            events[name] = value
        kept = kept_pages(self.state) - int(self.state.st[at.MISSING_PAGES])
        assert advance(self.state.arrays(self._object_pfn), events, 0, 1, -1) == 1
        left = kept_pages(self.state) - int(self.state.st[at.MISSING_PAGES])
        assert kept - taken_pages(events) == left, f"pages are lost by {events[0]}"

    def _alloc(self, step: steps.Replayed | steps.Alloc) -> steps.Live:
        number = self._objects
        is_hidden, zone = False, None
        if isinstance(step, steps.Replayed):
            is_hidden, zone = step.is_hidden, step.only_zone
        operation = at.HIDDEN_ALLOC if is_hidden else at.ALLOC
        if zone is not None:
            operation = at.HIDDEN_ALLOC_IN_ZONE if is_hidden else at.ALLOC_IN_ZONE
        self._advance(operation=operation, object=number, offset=zone or 0, **_request(step))
        given = self._given(int(self._object_pfn[number]), step.order)
        self._own(given)
        return given

    def _fail(self, step: steps.Failed) -> None:
        self._advance(operation=at.RECORDED_FAILURE, object=-1, **_request(step))

    def _free_nothing(self, step: steps.FreeNothing) -> None:
        bits = at.FREED_IN_BATCH if step.batched else 0
        self._advance(
            operation=at.FREE, object=self._objects, cpu=step.cpu, order=step.order, bits=bits
        )
        self._objects += 1

    def _isolate(self, step: steps.Isolate) -> steps.Live:
        left = sum(1 << order for order in step.orders)
        pieces: list[tuple[int, int]] = []
        for order in step.orders:
            number = self._objects
            self._advance(
                operation=at.ISOLATE_FREE,
                object=number,
                cpu=step.cpu,
                order=order,
                zone=step.zone,
                offset=left,
            )
            left -= 1 << order
            given = self._given(int(self._object_pfn[number]), order)
            self._own(given)
            pieces += given
        return tuple(pieces)

    def _capture(self, step: steps.Capture) -> steps.Live:
        number = self._objects
        self._advance(
            operation=at.CAPTURE,
            object=number,
            cpu=step.cpu,
            order=step.order,
            migratetype=step.migratetype,
            offset=step.zone,
        )
        given = self._given(int(self._object_pfn[number]), step.order)
        self._own(given)
        return given

    def _given(self, place: int, order: int) -> steps.Live:
        if place == -1:
            return ()
        if place >= 0:
            return ((place, order),)
        chain = []
        pfn = at.CHAINED - place
        while pfn >= 0:
            chain.append((pfn, 0))
            pfn = int(self.state.pages[pfn]["next"])
        return tuple(reversed(chain))

    def _own(self, pages: steps.Live) -> None:
        for pfn, order in pages:
            self._owner.update(dict.fromkeys(range(pfn, pfn + (1 << order)), self._objects))
        self._objects += 1

    def _free(self, cpu: int, pfn: int, order: int, bits: int) -> None:
        number = self._owner[pfn]
        offset = max(pfn - int(self._object_pfn[number]), 0)
        if self._object_pfn[number] < 0:
            offset = 0
        self._advance(
            operation=at.FREE,
            object=number,
            offset=offset,
            cpu=cpu,
            order=order,
            bits=bits,
        )

    def _tick(self, cpu: int) -> None:
        st = self.state.st
        st[at.TICK_CPU] = cpu
        st[at.NEXT_TICK] = self.now
        no_events = np.zeros(0, at.EVENT)
        advance(self.state.arrays(self._object_pfn), no_events, 0, 0, self.now)
        assert st[at.NEXT_TICK] > self.now, "one tick was to run, and no more"

    def _keep_log(self) -> None:
        assert self.state.st[at.LOG_DROPPED] == 0
        self.rows = self.state.log[: int(self.state.st[at.LOG_ROWS])].copy()
        holds = self.rows[self.rows[:, 0] < at.SITES]
        cpus = np.where(holds[:, 0] == at.SITE_DRAIN_COMMIT, holds[:, at.LOG_RAN_ON], holds[:, 3])
        np.add.at(self.acquisitions, (holds[:, 2], cpus, holds[:, 0]), 1)


def _request(
    step: steps.Alloc | steps.Replayed | steps.Failed | steps.BeginRequest | steps.ReclaimInVain,
) -> dict[str, int]:
    has_none = isinstance(step, (steps.BeginRequest, steps.ReclaimInVain))
    reclaimed = 0 if has_none else step.reclaimed
    return {
        "cpu": step.cpu,
        "order": step.order,
        "migratetype": step.migratetype,
        "zone": step.highest_zone,
        "bits": int(step.bits) | reclaimed << at.RECLAIM_SHIFT,
    }


def _event(row: list[int]) -> Event:
    kind, _, _, _, *rest = row[:10]
    if kind < at.SITES:
        return ("hold", *HOLDS[kind], rest[2])
    pfn, order, migratetype, fallback_order, fallback_type, change_ownership = rest
    if kind == at.LOG_EXTFRAG:
        owned = bool(change_ownership)
        return ("extfrag", pfn, order, fallback_order, migratetype, fallback_type, owned)
    return ("zone_locked" if kind == at.LOG_ZONE_LOCKED else "drain", pfn, order, migratetype)
