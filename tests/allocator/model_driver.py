"""The model's kernels taken one step at a time, with the oracle's inputs and outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.events import advance
from pagealloc_model.allocator.state import State, make_state, note_isolated_blocks, place_buddies
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.recording.machine import Machine, Zone
from tests.allocator.model_dump import dump_counters, dump_state, dump_told
from tests.allocator.ownership_driver import model_ownership
from tests.oracle import Oracle, OracleMachine, OraclePolicy, OracleRules
from tests.oracle.machine import Event, Work
from tests.oracle.scenarios import live_objects
from tests.oracle.steps import (
    Alloc,
    BeginRequest,
    Capture,
    DrainAll,
    DrainZone,
    Failed,
    Free,
    FreeNothing,
    FreeSingly,
    Grow,
    HoldDrained,
    Isolate,
    KillCpu,
    KswapdStart,
    KswapdStop,
    Live,
    ReclaimBegin,
    Replayed,
    ReviveCpu,
    SetBoost,
    SetPcpHigh,
    Step,
    Tick,
)

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

    def take(self, step: Step) -> Live:
        """One step; the pages it is given, if any."""
        self.now += 1
        self.state.st[at.LOG_ROWS] = 0
        given: Live = ()
        match step:
            case Replayed() | Alloc():
                given = self._alloc(step)
            case Failed():
                self._fail(step)
            case BeginRequest():
                self._advance(operation=at.BEGIN_REQUEST, object=-1, **_request(step))
            case HoldDrained():
                self._advance(
                    operation=at.HOLD_DRAINED, object=-1, cpu=step.cpu, bits=at.INTERRUPTS_HOLDER
                )
            case Isolate():
                given = self._isolate(step)
            case Capture():
                given = self._capture(step)
            case Free():
                bits = at.INTERRUPTS_HOLDER if step.interrupts else 0
                bits |= at.FREED_IN_BATCH if step.batched else 0
                self._free(step.cpu, step.pfn, step.order, bits)
            case FreeSingly():
                order = (len(step.pages) - 1).bit_length()
                bits = at.FREED_IN_BATCH if step.batched else 0
                self._free(step.cpu, step.pages[0][0], order, bits)
            case FreeNothing():
                self._free_nothing(step)
            case Tick(is_recorded=True):
                self._advance(operation=at.TICK, cpu=step.cpu)
            case Tick():
                self._tick(step.cpu)
            case DrainAll():
                self._advance(operation=at.DRAIN_ALL)
            case KillCpu():
                self._advance(operation=at.CPU_DIES, cpu=step.by, offset=step.cpu)
            case ReviveCpu():
                self._advance(operation=at.CPU_RETURNS, cpu=step.cpu, offset=step.cpu)
            case KswapdStart():
                node = self.state.machine.nodes.index(step.node)
                self._advance(operation=at.KSWAPD_START, offset=node, zone=step.highest_zone)
            case KswapdStop():
                node = self.state.machine.nodes.index(step.node)
                self._advance(operation=at.KSWAPD_STOP, offset=node)
            case SetPcpHigh():
                self._advance(
                    operation=at.SET_PCP_HIGH, zone=step.zone, cpu=step.cpu, offset=step.high
                )
            case SetBoost():
                self._advance(operation=at.SET_BOOST, zone=step.zone, offset=step.pages)
            case DrainZone():
                self._advance(operation=at.DRAIN_ZONE, zone=step.zone, offset=step.cpu, cpu=step.by)
            case Grow():
                self._advance(
                    operation=at.GROW,
                    zone=step.zone,
                    offset=step.pfn,
                    order=step.order,
                    cpu=step.cpu,
                )
            case ReclaimBegin():
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
        assert advance(self.state.arrays(self._object_pfn), events, 0, 1, -1) == 1

    def _alloc(self, step: Replayed | Alloc) -> Live:
        number = self._objects
        is_hidden, zone = False, None
        if isinstance(step, Replayed):
            is_hidden, zone = step.is_hidden, step.only_zone
        operation = at.HIDDEN_ALLOC if is_hidden else at.ALLOC
        if zone is not None:
            operation = at.HIDDEN_ALLOC_IN_ZONE if is_hidden else at.ALLOC_IN_ZONE
        self._advance(operation=operation, object=number, offset=zone or 0, **_request(step))
        given = self._given(int(self._object_pfn[number]), step.order)
        self._own(given)
        return given

    def _fail(self, step: Failed) -> None:
        self._advance(operation=at.RECORDED_FAILURE, object=-1, **_request(step))

    def _free_nothing(self, step: FreeNothing) -> None:
        bits = at.FREED_IN_BATCH if step.batched else 0
        self._advance(
            operation=at.FREE, object=self._objects, cpu=step.cpu, order=step.order, bits=bits
        )
        self._objects += 1

    def _isolate(self, step: Isolate) -> Live:
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

    def _capture(self, step: Capture) -> Live:
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

    def _given(self, place: int, order: int) -> Live:
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

    def _own(self, pages: Live) -> None:
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


def _request(step: Alloc | Replayed | Failed | BeginRequest) -> dict[str, int]:
    reclaimed = 0 if isinstance(step, BeginRequest) else step.reclaimed
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
