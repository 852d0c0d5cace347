"""A model that takes the oracle's steps, and its state in the oracle's words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.events import advance
from pagealloc_model.allocator.state import State, make_state, note_isolated_blocks, place_buddies
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.predicted.page_balance import taken_pages
from pagealloc_model.recording.machine import Machine
from tests.oracle import Oracle, OracleMachine, OraclePolicy, OracleRules, Request
from tests.oracle.dump import Dump
from tests.oracle.literal import Pages
from tests.oracle.machine import Event, Work
from tests.oracle.page_alloc import Allocator
from tests.oracle.scenarios import live_objects
from tests.oracle.steps import Step

FAR = 1 << 62  # a time at which no decay tick is due
LOG_ROWS = 1 << 22  # room for what one step can log on the scenarios' machines
OBJECTS = 1 << 14  # room for the objects of a scenario

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

ALLOCATIONS = {
    (False, False): at.ALLOC,
    (True, False): at.HIDDEN_ALLOC,
    (False, True): at.ALLOC_IN_ZONE,
    (True, True): at.HIDDEN_ALLOC_IN_ZONE,
}
"""Operations by whether the request is hidden, and whether one zone is to serve it."""

REQUESTS = {
    "fail_as_recorded": at.RECORDED_FAILURE,
    "begin_request": at.BEGIN_REQUEST,
    "begin_reclaim": at.RECLAIM_BEGIN,
    "reclaim_in_vain": at.RECLAIM_IN_VAIN,
}
"""Operations of the oracle's calls that take a request and give nothing."""

CALLS: dict[str, tuple[int, dict[str, str]]] = {
    "tick": (at.TICK, {"cpu": "cpu"}),
    "tick_as_recorded": (at.TICK, {"cpu": "cpu"}),
    "hold_drained": (at.HOLD_DRAINED, {"cpu": "cpu"}),
    "drain_all": (at.DRAIN_ALL, {}),
    "drain_zone": (at.DRAIN_ZONE, {"zone": "zone", "offset": "cpu", "cpu": "by"}),
    "drain_local": (at.DRAIN_LOCAL, {"zone": "zone", "cpu": "cpu"}),
    "kill_cpu": (at.CPU_DIES, {"offset": "cpu", "cpu": "by"}),
    "revive_cpu": (at.CPU_RETURNS, {"offset": "cpu", "cpu": "cpu"}),
    "start_kswapd": (at.KSWAPD_START, {"offset": "node", "zone": "highest_zone", "cpu": "cpu"}),
    "stop_kswapd": (at.KSWAPD_STOP, {"offset": "node", "cpu": "cpu"}),
    "set_pcp_high": (at.SET_PCP_HIGH, {"zone": "zone", "cpu": "cpu", "offset": "high"}),
    "set_boost": (at.SET_BOOST, {"zone": "zone", "offset": "pages", "cpu": "cpu"}),
    "grow": (at.GROW, {"zone": "zone", "offset": "pfn", "order": "order", "cpu": "cpu"}),
}
"""Operations of the other calls that give nothing, and the argument in each field of an event."""

PAGE_SET = {
    "count": at.PCP_COUNT,
    "high": at.PCP_HIGH,
    "high_min": at.PCP_HIGH_MIN,
    "high_max": at.PCP_HIGH_MAX,
    "batch": at.PCP_BATCH,
    "alloc_factor": at.PCP_ALLOC_FACTOR,
    "free_count": at.PCP_FREE_COUNT,
    "prev_free_high_order": at.PCP_PREV_FREE_HIGH_ORDER,
    "free_factor": at.PCP_FREE_FACTOR,
}
ZONE = {
    "nr_free": at.ZONE_FREE,
    "free_highatomic": at.ZONE_FREE_HIGHATOMIC,
    "reserved_highatomic": at.ZONE_RESERVED_HIGHATOMIC,
    "boost": at.ZONE_BOOST,
    "below_high": at.ZONE_BELOW_HIGH,
    "reclaim_active": at.ZONE_RECLAIM_ACTIVE,
    "boosted": at.ZONE_BOOSTED,
}
DIVERGENCE = {
    "forced": at.COUNT_FORCED,
    "in_base_pages": at.COUNT_IN_BASE_PAGES,
    "failed": at.COUNT_FAILED,
}
TOLD = {
    "recorded_failures": at.COUNT_RECORDED_FAILURE,
    "hidden": at.COUNT_HIDDEN,
    "orphan_frees": at.COUNT_ORPHAN_FREE,
}
LOCKS = {
    "lock_acquisitions": at.PCP_LOCKS,
    "lock_drain_holds": at.PCP_DRAIN_LOCKS,
    "lock_handovers": at.PCP_LOCK_HANDOVERS,
}
OWNERSHIP = {
    "claimed": at.BLOCKS_CLAIMED,
    "recorded": at.BLOCKS_RECORDED,
    "recovered": at.BLOCKS_RECOVERED,
    "ended": at.OWNERSHIPS_ENDED,
    "remote_frees": at.REMOTE_FREES,
    "splits": at.LIST_SPLITS,
    "merges": at.LIST_MERGES,
    "merge_looks": at.MERGE_ENTRIES,
    "recorded_looks": at.RECORDED_ENTRIES,
}
HELD_BACK = {"free": at.PCP_FREE_DELTA, "cma": at.PCP_FREE_CMA_DELTA, "expire": at.PCP_EXPIRE}
PHASE = {"refills": at.PHASE_REFILLS, "objects": at.PHASE_OBJECTS, "pages": at.PHASE_PAGES}
"""The model's word for each of the oracle's, in its regions for page sets, zones and so on."""


def named(words: np.ndarray, places: Mapping[str, int]) -> dict[str, int]:
    """Words of a region by the oracle's names."""
    return {name: int(words[place]) for name, place in places.items()}


def dump_state(state: State) -> Dump:
    """A state as `tests.oracle.dump.dump_state` has the oracle's."""
    machine, zones, page_sets = state.machine, range(len(state.machine.zones)), _page_sets(state)
    lists = {(*key, index): pages for key in page_sets for index, pages in _lists(state, *key)}
    pcp = {key: named(state.pcp_region(*key), PAGE_SET) for key in page_sets}
    for words in pcp.values():
        words["free_high_batch"] = int(state.st[at.FREE_HIGH_BATCH])
        if state.st[at.RULE_PCP_AUTO_TUNED]:
            del words["free_factor"]
        else:
            words["free_count"] = 0
    free = {
        zone: state.zone_region(zone)[at.ZONE_LISTS :].reshape(-1, at.MIGRATETYPES, at.LIST_WORDS)
        for zone in zones
    }
    dump: Dump = {
        "free": {
            (zone, order, migratetype): state.list_pages(free[zone][order, migratetype])
            for zone in zones
            for order in range(machine.max_order + 1)
            for migratetype in range(len(machine.migratetypes))
        },
        "pcp": lists,
        "pcp_state": pcp,
        "blocks": {
            int(block): int(state.blocks[block]["migratetype"])
            for block in np.flatnonzero(state.blocks["zone"])
        },
        "zones": {zone: named(state.zone_region(zone), ZONE) for zone in zones},
    }
    if not state.st[at.RULE_LISTS_MATCH_BLOCKS]:
        tags = state.pages["tag"]
        dump["pcp_types"] = {key: tags[pfns].tolist() for key, pfns in lists.items()}
    return dump


def dump_literal(state: State) -> Dump:
    """A state as `tests.oracle.dump.dump_literal` has the oracle's.

    What each CPU did to the counters matters only where they lag or lists expire; probes are not
    counted under ownership.
    """
    st, machine = state.st, state.machine
    nodes = st[st[at.NODE_BASE] : st[at.ZONELIST_BASE]].reshape(-1, at.NODE_STRIDE)
    page_sets = _page_sets(state)
    owning = page_sets if st[at.OWNERSHIP] else []
    sets = np.zeros((len(machine.zones) * machine.nr_cpus, at.OWNED_SET_STRIDE), np.int64)
    blocks, owners = np.zeros((0, at.OWNED_BLOCK_WORDS), np.int64), np.zeros(0, np.int64)
    if owning:
        first = st[st[at.OWNERSHIP] :]
        sets = st[first[at.OWNED_SETS] :][: sets.size].reshape(sets.shape)
        owners = st[first[at.OWNERS] :][: len(state.blocks)]
        blocks = st[first[at.OWNED_BLOCKS] :][: len(owners) * at.OWNED_BLOCK_WORDS]
        blocks = blocks.reshape(len(owners), -1)
    lockless = dict.fromkeys(owning, np.full(at.LOCKLESS_WORDS, -1))
    lists = state.lockless_lists()
    lockless |= {key: lists[key] for key in np.ndindex(lists.shape[:2])}
    zones = {zone: state.zone_region(zone) for zone, _ in page_sets}
    dump: Dump = {
        "divergence": named(st, DIVERGENCE),
        "told": named(st, TOLD),
        "kswapd": {
            node: bool(nodes[index, at.NODE_KSWAPD_ACTIVE])
            for index, node in enumerate(machine.nodes)
        },
        "counters": {
            zone: {
                "free": int(words[at.ZONE_FREE] - words[at.ZONE_FREE_UNFOLDED]),
                "cma": int(words[at.ZONE_FREE_CMA] - words[at.ZONE_FREE_CMA_UNFOLDED]),
                **named(words, {"free_cma": at.ZONE_FREE_CMA, "threshold": at.ZONE_THRESHOLD}),
            }
            for zone, words in zones.items()
        },
        "owners": {
            int(number): (int(owners[number]) - 1, bool(blocks[number, at.BLOCK_IS_RECORDED]))
            for number in np.flatnonzero(owners)
        },
        "recorded": {
            (zone, cpu): _recorded(blocks, sets[zone * machine.nr_cpus + cpu])
            for zone, cpu in owning
        },
        "mergeable": {
            (*key, index): [pfn for pfn in pages if state.pages[pfn]["flags"] & at.MERGEABLE]
            for key in owning
            for index, pages in _lists(state, *key)
        },
        "lockless": {
            key: [(pfn, int(state.pages[pfn]["order"])) for pfn in state.list_pages(lockless[key])]
            for key in owning
        },
        "ownership_counts": {},
    }
    for zone, cpu in page_sets:
        words = sets[zone * machine.nr_cpus + cpu]
        phases = words[at.SET_PHASES :][: at.PHASES * at.PHASE_STRIDE].reshape(at.PHASES, -1)
        counts = named(words, OWNERSHIP) | named(state.pcp_region(zone, cpu), LOCKS)
        counts |= {"phases": tuple(named(phase, PHASE) for phase in phases)}
        dump["ownership_counts"] |= {(zone, cpu, name): count for name, count in counts.items()}
    if st[at.COUNTS_BY_CPU]:
        dump["cpus"] = {}
        for key in page_sets:
            words = state.pcp_region(*key)
            held = named(words, HELD_BACK)
            held["changed"] = bool(words[at.PCP_TOUCHED] or held["free"] or held["cma"])
            dump["cpus"][key] = held
    if not owning:
        dump["probes"] = {"all": int(st[at.REFILL_PROBES]), "most": int(st[at.REFILL_PROBES_MOST])}
    return dump


def _page_sets(state: State) -> list[tuple[int, int]]:
    zones = [index for index, zone in enumerate(state.machine.zones) if zone.managed]
    return [(zone, cpu) for zone in zones for cpu in range(state.machine.nr_cpus)]


def _recorded(blocks: np.ndarray, of_cpu: np.ndarray) -> list[int]:
    """Recorded blocks of a CPU, oldest first."""
    number, _, entries = of_cpu[at.SET_RECORDED :][: at.LIST_WORDS].tolist()
    recorded = []
    while number >= 0:
        recorded.append(number)
        number = int(blocks[number, at.BLOCK_NEXT])
    assert len(recorded) == entries
    return recorded


def _lists(state: State, zone: int, cpu: int) -> list[tuple[int, list[int]]]:
    if state.st[at.OWNERSHIP]:
        count = at.PCP_TYPES * (state.machine.pageblock_order + 1)
    else:
        of_huge_pages = 2 if state.machine.thp else 0
        count = at.PCP_TYPES * (int(state.st[at.POLICY_COSTLY_ORDER]) + 1) + of_huge_pages
    lists = state.pcp_region(zone, cpu)[at.PCP_LISTS : at.PCP_SITES].reshape(-1, at.LIST_WORDS)
    return [(index, state.list_pages(lists[index])) for index in range(count)]


def model_policy(policy: OraclePolicy, rules: OracleRules) -> Policy:
    """The same policy; the rules' field that sweeps may change comes along."""
    elastic = ("defrag_mode", "defrag_atomic_falls_back", "defrag_promotes_order")
    silent = (*elastic, "promoted_fall_back_afresh", "ownership")
    names = [field.name for field in fields(OraclePolicy) if field.name not in silent]
    found: dict[str, Any] = {name: getattr(policy, name) for name in names}
    found["percpu_pagelist_high_fraction"] = policy.percpu_pagelist_high_fraction or None
    if policy.ownership is not None:
        found["pageblock_ownership"] = "pcp_buddy"
        found["ownership"] = policy.ownership
    return Policy(**found, highatomic_from_pcp=rules.highatomic_from_pcp)


def state_like(oracle: Allocator, log_rows: int = LOG_ROWS) -> State:
    """A state with every page, type and counter where the oracle has it; no tick is due."""
    state = make_state(
        oracle.machine,
        KernelRules.preset(oracle.rules.name),
        model_policy(oracle.policy, oracle.rules),
        Assumptions(
            free_high_batch=oracle.machine.free_high_batch, counters=oracle.assumptions.counters
        ),
        log_rows=log_rows,
    )
    dump = oracle.dump()
    for block, migratetype in dump["blocks"].items():
        state.blocks[block]["migratetype"] = migratetype
    for (_, order, migratetype), pfns in dump["free"].items():
        _put_on_list(state, order, migratetype, pfns)
    for pfn, order in live_objects(oracle):
        record = state.pages[pfn]
        record["where"], record["order"] = at.ALLOCATED, order
        record["tag"] = oracle.allocated.is_movable(pfn)
    note_isolated_blocks(state)
    for zone, found in dump["zones"].items():
        region = state.zone_region(zone)
        for name in ("reserved_highatomic", "boost", "below_high"):
            region[ZONE[name]] = found[name]
    for (zone, cpu), found in dump["pcp_state"].items():
        assert found["count"] == 0, "scenarios start with empty per-CPU lists"
        region = state.pcp_region(zone, cpu)
        for name in ("high", "alloc_factor", "free_count", "prev_free_high_order", "free_factor"):
            if name in found:
                region[PAGE_SET[name]] = found[name]
    state.st[at.NEXT_TICK] = state.st[at.TICK_BASE] = FAR
    state.st[at.LOG_PAGES] = 1
    state.st[at.KSWAPD_RECORDED] = oracle.assumptions.kswapd_recorded
    state.st[at.DIRECT_RECLAIM_RECORDED] = oracle.assumptions.direct_reclaim_recorded
    state.st[at.DRAINS_RECORDED] = oracle.assumptions.drains_recorded
    return state


def _put_on_list(state: State, order: int, migratetype: int, pfns: list[int]) -> None:
    """Append free buddies to a list, whatever the types of their blocks."""
    types = state.blocks["migratetype"]
    before = types.copy()
    types[[pfn >> state.machine.pageblock_order for pfn in pfns]] = migratetype
    orders = np.full(len(pfns), order, np.int8)
    place_buddies(state.arrays(), np.array(pfns, np.int32), orders)
    types[:] = before


def request_fields(request: Request) -> dict[str, int]:
    return {
        "cpu": request.cpu,
        "order": request.order,
        "migratetype": request.migratetype,
        "zone": request.highest_zone,
        "bits": int(request.bits) | request.reclaim << at.RECLAIM_SHIFT,
    }


def event_fields(step: Step, machine: OracleMachine | Machine) -> dict[str, int]:
    """Fields of the event that is the same as one of the oracle's calls that give nothing."""
    if step.call in REQUESTS:
        request = request_fields(step.words["request"])
        return {"operation": REQUESTS[step.call], "object": -1, **request}
    operation, words = CALLS[step.call]
    given = {"cpu": 0, **step.words}
    if "node" in given:
        given["node"] = machine.nodes.index(given["node"])
    return {"operation": operation, **{field: given[word] for field, word in words.items()}}


def one_event(time_ns: int, event: Mapping[str, int]) -> np.ndarray:
    events = np.zeros(1, at.EVENT)
    for name, value in {"time_ns": time_ns, **event}.items():
        events[name] = value
    return events


class ModelDriver:
    """A state that takes an oracle's steps.

    Attributes:
        acquisitions: lock holds logged so far, shape (zones, cpus, sites); a free's drain counts
            for the CPU that frees, whose list it drains.
    """

    def __init__(self, oracle: Oracle) -> None:
        self.state = state_like(oracle)  # the model's arrays
        self.now = 0
        self.rows = np.zeros(0, at.LOG)  # log rows of the last step
        nr_zones = len(oracle.machine.zones)
        self.acquisitions = np.zeros((nr_zones, oracle.machine.nr_cpus, at.SITES), np.int64)
        self._places = np.full(OBJECTS, -1, np.int32)
        self._owner: dict[int, int] = {}
        self._objects = 0
        for pfn, order in live_objects(oracle):
            self._places[self._objects] = pfn
            self._own(((pfn, order),))

    def take(self, step: Step) -> Pages:
        """One step; the pages it is given, if any."""
        self.now += 1
        self.state.st[at.LOG_ROWS] = 0
        words, given = step.words, ()
        bits = at.FREED_IN_BATCH if words.get("batched") else 0
        if step.call == "alloc_as_recorded":
            given = self._alloc(words["request"], words["is_hidden"])
        elif step.call == "isolate":
            left = sum(1 << order for order in words["orders"])
            for order in words["orders"]:
                asked = {"cpu": words["cpu"], "zone": words["zone"], "offset": left}
                given += self._ask(order, operation=at.ISOLATE_FREE, **asked)
                left -= 1 << order
        elif step.call == "capture":
            asked = {"cpu": words["cpu"], "migratetype": words["migratetype"]}
            given = self._ask(words["order"], operation=at.CAPTURE, offset=words["zone"], **asked)
        elif step.call == "free":
            bits |= at.INTERRUPTS_HOLDER if words["interrupts"] else 0
            self._free(words["cpu"], words["pfn"], words["order"], bits)
        elif step.call == "free_singly":
            pages = words["pages"]
            self._free(words["cpu"], pages[0][0], (len(pages) - 1).bit_length(), bits)
        elif step.call == "free_nothing":
            event = {"object": self._objects, "cpu": words["cpu"], "order": words["order"]}
            self._advance(operation=at.FREE, bits=bits, **event)
            self._objects += 1
        elif step.call == "tick":
            self._tick(step.cpu)
        elif step.call == "hold_drained":
            event = event_fields(step, self.state.machine)
            self._advance(**event, object=-1, bits=at.INTERRUPTS_HOLDER)
        else:
            self._advance(**event_fields(step, self.state.machine))
        self._keep_log()
        return given

    @property
    def events(self) -> list[Event]:
        """What the last step did under zone->lock, in the oracle's words."""
        return [_event(row) for row in self.rows]

    @property
    def work(self) -> list[Work]:
        """What each hold of zone->lock in the last step did, in the oracle's words."""
        holds = self.rows[self.rows["kind"] < at.SITES]
        return [Work(*row) for row in holds[list(at.LOG_WORK[2:])].tolist()]

    def dump(self) -> Dump:
        return dump_state(self.state) | dump_literal(self.state)

    def _advance(self, **event: int) -> None:
        events = one_event(self.now, event)
        kept = self.state.kept_pages() - int(self.state.st[at.MISSING_PAGES])
        assert advance(self.state.arrays(self._places), events, 0, 1, -1) == 1
        left = self.state.kept_pages() - int(self.state.st[at.MISSING_PAGES])
        assert kept - taken_pages(events) == left, f"pages are lost by {events[0]}"

    def _alloc(self, request: Request, is_hidden: bool) -> Pages:
        zone = request.only_zone
        event = request_fields(request)
        order = event.pop("order")
        operation = ALLOCATIONS[is_hidden, zone is not None]
        return self._ask(order, operation=operation, offset=zone or 0, **event)

    def _ask(self, order: int, **event: int) -> Pages:
        """Let an event give pages to a new object, a buddy or single ones in a chain."""
        number = self._objects
        self._advance(object=number, order=order, **event)
        place = int(self._places[number])
        pages = [(place, order)] if place >= 0 else []
        pfn = at.CHAINED - place if place < -1 else -1
        while pfn >= 0:
            pages.append((pfn, 0))
            pfn = int(self.state.pages[pfn]["next"])
        self._own(tuple(reversed(pages)))
        return tuple(reversed(pages))

    def _own(self, pages: Pages) -> None:
        for pfn, order in pages:
            self._owner.update(dict.fromkeys(range(pfn, pfn + (1 << order)), self._objects))
        self._objects += 1

    def _free(self, cpu: int, pfn: int, order: int, bits: int) -> None:
        number = self._owner[pfn]
        place = int(self._places[number])
        offset = max(pfn - place, 0) if place >= 0 else 0
        event = {"object": number, "offset": offset, "cpu": cpu, "order": order, "bits": bits}
        self._advance(operation=at.FREE, **event)

    def _tick(self, cpu: int) -> None:
        st = self.state.st
        st[at.TICK_CPU] = cpu
        st[at.NEXT_TICK] = self.now
        no_events = np.zeros(0, at.EVENT)
        advance(self.state.arrays(self._places), no_events, 0, 0, self.now)
        assert st[at.NEXT_TICK] > self.now, "one tick was to run, and no more"

    def _keep_log(self) -> None:
        assert self.state.st[at.LOG_DROPPED] == 0
        rows = self.state.log[: int(self.state.st[at.LOG_ROWS])]
        self.rows = rows[rows["kind"] != at.LOG_LIST_FREE]
        holds = self.rows[self.rows["kind"] < at.SITES]
        cpus = np.where(holds["kind"] == at.SITE_DRAIN_COMMIT, holds["ran_on"], holds["cpu"])
        np.add.at(self.acquisitions, (holds["zone"], cpus, holds["kind"]), 1)


def _event(row: np.void) -> Event:
    kind = int(row["kind"])
    if kind < at.SITES:
        return ("hold", *HOLDS[kind], int(row["objects"]))
    pfn, order, migratetype = (int(row[name]) for name in ("pfn", "order", "migratetype"))
    if kind == at.LOG_EXTFRAG:
        found, other = int(row["fallback_order"]), int(row["fallback_migratetype"])
        return ("extfrag", pfn, order, found, migratetype, other, bool(row["change_ownership"]))
    return ("zone_locked" if kind == at.LOG_ZONE_LOCKED else "drain", pfn, order, migratetype)
