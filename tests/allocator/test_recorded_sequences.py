"""The first events of shipped recordings, from their own start, on the model and on the oracle."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.events import advance
from pagealloc_model.allocator.state import State
from pagealloc_model.diagnosis.budget import TRUTHS, imposed
from pagealloc_model.measured.rules import recorded_rules
from pagealloc_model.policy.policy import Policy
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.predicted.prepared import prepare
from pagealloc_model.predicted.start.image import start_state
from pagealloc_model.recording.machine import Machine
from tests.allocator.agreement import assert_same_state
from tests.allocator.model_driver import (
    ALLOCATIONS,
    CALLS,
    DIVERGENCE,
    REQUESTS,
    TOLD,
    dump_state,
    named,
)
from tests.oracle import (
    RULES,
    Bits,
    Oracle,
    OracleAssumptions,
    OracleMachine,
    OraclePolicy,
    OracleZone,
    Request,
)
from tests.oracle.literal import Pages
from tests.small_recordings import LITERAL

OPERATIONS = {operation: (call, words) for call, (operation, words) in CALLS.items()}
REQUEST_CALLS = {operation: call for call, operation in REQUESTS.items()}
ASKED = {operation: asked for asked, operation in ALLOCATIONS.items()}
"""The oracle's calls by the model's operation; of allocations, whether hidden and in one zone."""


def oracle_machine(machine: Machine) -> OracleMachine:
    zones = tuple(OracleZone(**vars(zone)) for zone in machine.zones)
    others = {field.name: getattr(machine, field.name) for field in fields(Machine)}
    return OracleMachine(**others | {"zones": zones})


def oracle_like(state: State, rules: str) -> Oracle:
    """An oracle with every page, type and counter where a state has it, of recorded reclaim."""
    st = state.st
    oracle = Oracle(
        oracle_machine(state.machine),
        RULES[rules],
        OraclePolicy(),
        OracleAssumptions(
            kswapd_recorded=bool(st[at.KSWAPD_RECORDED]),
            direct_reclaim_recorded=bool(st[at.DIRECT_RECLAIM_RECORDED]),
            drains_recorded=bool(st[at.DRAINS_RECORDED]),
        ),
    )
    for block in np.flatnonzero(state.blocks["zone"]).tolist():
        oracle.set_block_type(block, int(state.blocks["migratetype"][block]))
    for pfn in np.flatnonzero(state.pages["where"] == at.ALLOCATED).tolist():
        order, is_movable = int(state.pages["order"][pfn]), bool(state.pages["tag"][pfn])
        oracle.put_allocated(pfn, order, is_movable)
    for zone in range(len(state.machine.zones)):
        _place_zone(oracle, state, zone)
    oracle.settle_counters()
    return oracle


def _place_zone(oracle: Oracle, state: State, zone: int) -> None:
    mine, region = oracle.zones[zone], state.zone_region(zone)
    lists = region[at.ZONE_LISTS :].reshape(-1, at.LIST_WORDS)
    for order, migratetype in mine.buddy.lists:
        words = lists[order * at.MIGRATETYPES + migratetype]
        for pfn in state.list_pages(words):
            oracle.put_free(pfn, order, migratetype)
    mine.watermarks.boost = int(region[at.ZONE_BOOST])
    mine.flags.below_high = bool(region[at.ZONE_BELOW_HIGH])
    for cpu, pcp in enumerate(mine.pcp):
        words = state.pcp_region(zone, cpu)
        pcp.batch, pcp.high = int(words[at.PCP_BATCH]), int(words[at.PCP_HIGH])
        pcp.high_min, pcp.high_max = int(words[at.PCP_HIGH_MIN]), int(words[at.PCP_HIGH_MAX])
        pcp.free_high_batch = bool(state.st[at.FREE_HIGH_BATCH])
        for index in range(len(pcp.lists)):
            first = at.PCP_LISTS + index * at.LIST_WORDS
            for pfn in state.list_pages(words[first : first + at.LIST_WORDS]):
                oracle.put_pcp(zone, cpu, index, pfn)


class RecordedOracle:
    """An oracle and where it has put each object of a demand.

    Attributes:
        objects: pages of each object, in the order they were handed out.
    """

    def __init__(self, oracle: Oracle, places: np.ndarray, orders: np.ndarray) -> None:
        self.oracle = oracle  # it takes one event after the other
        self.objects: dict[int, Pages] = {
            number: ((int(places[number]), int(orders[number])),)
            for number in np.flatnonzero(places >= 0).tolist()
        }
        self._chains: set[int] = set()

    def take(self, event: np.void) -> None:
        oracle = self.oracle
        values = {name: int(event[name]) for name in event.dtype.names}
        operation, number, cpu, order = (
            values[name] for name in ("operation", "object", "cpu", "order")
        )
        if operation == at.FREE:
            self._free(values)
        elif operation in ASKED:
            is_hidden, in_zone = ASKED[operation]
            only_zone = values["offset"] if in_zone else None
            request = self._request(values, only_zone)
            self._give(number, order, oracle.alloc_as_recorded(request, is_hidden=is_hidden))
        elif operation in REQUEST_CALLS:
            getattr(oracle, REQUEST_CALLS[operation])(self._request(values))
        elif operation == at.ISOLATE_FREE:
            (piece,) = oracle.isolate(cpu, values["zone"], (order,), wanted=values["offset"])
            self._give(number, order, piece)
        elif operation == at.CAPTURE:
            pages = oracle.capture(cpu, values["offset"], order, values["migratetype"])
            self._give(number, order, pages)
        else:
            call, words = OPERATIONS[operation]
            given = {word: values[field] for field, word in words.items()}
            if "node" in given:
                given["node"] = oracle.machine.nodes[given["node"]]
            getattr(oracle, call)(**given)

    @staticmethod
    def _request(values: dict[str, int], only_zone: int | None = None) -> Request:
        return Request(
            cpu=values["cpu"],
            order=values["order"],
            migratetype=values["migratetype"],
            highest_zone=values["zone"],
            bits=Bits(values["bits"] & ~at.REQUEST_RECLAIMED),
            reclaim=(values["bits"] & at.REQUEST_RECLAIMED) >> at.RECLAIM_SHIFT,
            only_zone=only_zone,
        )

    def _give(self, number: int, order: int, pages: Pages) -> None:
        self.objects[number] = pages
        if pages and pages != ((pages[0][0], order),):
            self._chains.add(number)

    def _free(self, values: dict[str, int]) -> None:
        cpu, number, order, bits = (values[name] for name in ("cpu", "object", "order", "bits"))
        batched, interrupts = bits & at.FREED_IN_BATCH > 0, bits & at.INTERRUPTS_HOLDER > 0
        pages = self.objects.get(number, ())
        if not pages:
            self.oracle.free_nothing(cpu, order, batched=batched)
        elif number not in self._chains:
            pfn = pages[0][0] + values["offset"]
            self.oracle.free(cpu, pfn, order, batched=batched, interrupts=interrupts)
        else:
            rest = max(len(pages) - (1 << order), 0)
            for pfn, _ in reversed(pages[rest:]):
                self.oracle.free(cpu, pfn, 0, batched=batched, interrupts=interrupts)
            self.objects[number] = pages[:rest]


EVENTS = 6000  # events of each recording, and how many lie between two comparisons of all lists

BETWEEN = 1000


def begun(name: str, truths: tuple[str, ...] = ()) -> tuple[State, Demand, str]:
    """A recording's start, its demand with truths imposed on it, and its rules."""
    recording = pm.open(name)
    rules = recorded_rules(recording).rules
    prepared = prepare(recording, rules, LITERAL, 0)
    chosen = tuple(each for each in TRUTHS if each.name in truths)
    if chosen:
        prepared = imposed(recording, prepared, chosen).prepared
    state = start_state(
        prepared.machine,
        prepared.demand,
        prepared.image,
        rules,
        Policy(),
        LITERAL,
    )
    state.st[at.NEXT_TICK] = state.st[at.TICK_BASE] = at.NEVER
    return state, prepared.demand, rules.name


@pytest.mark.parametrize("truths", [(), ("zone", "boosts")])
@pytest.mark.parametrize("name", ["kbuild", "xfree", "highatomic_stock", "highatomic_gate3"])
def test_they_agree_on_recorded_events(name: str, truths: tuple[str, ...]) -> None:
    state, demand, rules = begun(name, truths)
    places = demand.starting_places()
    follower = RecordedOracle(oracle_like(state, rules), places, demand.objects["order"])
    assert_agreement(state, follower, "at the start")
    for first in range(0, min(EVENTS, len(demand.events)), BETWEEN):
        end = min(first + BETWEEN, len(demand.events))
        state.st[at.LOG_ROWS] = 0
        assert advance(state.arrays(places), demand.events, first, end, -1) == end
        for event in demand.events[first:end]:
            follower.take(event)
        assert_agreement(state, follower, f"after event {end}")
        assert_same_places(places, follower)


def assert_agreement(state: State, follower: RecordedOracle, when: str) -> None:
    """Compare everything; blocks of holes are the oracle's alone."""
    mine = dump_state(state)
    mine |= {"told": named(state.st, TOLD), "divergence": named(state.st, DIVERGENCE)}
    theirs = follower.oracle.dump()
    theirs["blocks"] = {block: theirs["blocks"][block] for block in mine["blocks"]}
    assert_same_state(mine, theirs, when)


def assert_same_places(places: np.ndarray, follower: RecordedOracle) -> None:
    """Each object in one piece lies where the oracle has put it."""
    whole = [number for number, pages in follower.objects.items() if len(pages) == 1]
    mine = [follower.objects[number][0][0] for number in whole]
    theirs = places[whole]
    theirs = np.where(theirs < -1, at.CHAINED - theirs, theirs)
    assert theirs.tolist() == mine
