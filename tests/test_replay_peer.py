"""The plain C program that the model's speed is shown beside does what it is said to do."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import make_state
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.predicted.carrier import ModelCarrier
from pagealloc_model.predicted.prepared import prepare
from pagealloc_model.predicted.start.image import start_state
from pagealloc_model.recording.machine import Machine, Zone
from pagealloc_model.recording.recorded_machine import effective_policy

DRAINS = (at.SITE_DRAIN_COMMIT, at.SITE_DRAIN_DECAY, at.SITE_DRAIN_ALL)
PAGES = 4096
BLOCK = 512


@pytest.fixture
def replay_peer(checkout: Path) -> ModuleType:
    """benchmarks/replay_peer.py, which is no part of the package."""
    place = checkout / "benchmarks" / "replay_peer.py"
    found = importlib.util.spec_from_file_location("replay_peer", place)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["replay_peer"] = module
    found.loader.exec_module(module)
    return module


def test_without_a_compiler_there_is_no_program(
    replay_peer: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert replay_peer.compiled(tmp_path) is None


def test_no_page_is_lost(replay_peer: ModuleType, tmp_path: Path) -> None:
    """All that was allocated is freed again: what is not in the buddy is on per-CPU lists."""
    program = replay_peer.compiled(tmp_path)
    if program is None:
        pytest.skip("no C compiler")
    zone = Zone(
        name="Normal",
        start_pfn=0,
        spanned=PAGES,
        present=PAGES,
        managed=PAGES,
        min=8,
        low=10,
        high=12,
    )
    state = make_state(Machine(zones=(zone,), nr_cpus=1), KernelRules.preset("6.18"))
    events = np.zeros(2 * PAGES, at.EVENT)
    count = 0
    for number in range(0, PAGES, 4):
        order = (number // 4) % 3
        events[count : count + 2]["object"] = number
        events[count : count + 2]["order"] = order
        events[count + 1]["operation"] = at.FREE
        count += 2
    events = np.concatenate([events[:count:2], events[1:count:2]])
    lists = state.zone_region(0)[at.ZONE_LISTS :].reshape(at.ORDERS, at.MIGRATETYPES, -1)
    lists[9, at.UNMOVABLE, : at.ENTRIES] = 0, PAGES - BLOCK
    for first in range(0, PAGES, BLOCK):
        page = state.pages[first]
        page["order"], page["where"], page["tag"] = 9, at.BUDDY, at.UNMOVABLE
        page["prev"] = first - BLOCK if first else -1
        page["next"] = first + BLOCK if first + BLOCK < PAGES else -1
    state.blocks["migratetype"] = at.UNMOVABLE
    state.zone_region(0)[at.ZONE_FREE] = PAGES
    file = tmp_path / "demand"
    replay_peer.write_demand(file, state, events, np.full(PAGES, -1, np.int32))
    done = replay_peer.run(program, file)
    assert done.allocations == done.frees == PAGES // 4
    assert done.refills > 0
    assert done.drains > 0
    assert done.listed_pages > 0
    assert done.free_pages + done.listed_pages == PAGES


@pytest.mark.parametrize("name", ["kbuild", "xfree"])
def test_it_does_what_the_model_does(replay_peer: ModuleType, tmp_path: Path, name: str) -> None:
    """The same refills, drains and pages: a time beside it is one of the same work."""
    program = replay_peer.compiled(tmp_path)
    if program is None:
        pytest.skip("no C compiler")
    recording = pm.open(name)
    rules, assumptions = pm.replay(recording, seed=11).rules, pm.Assumptions()
    prepared = prepare(recording, rules, assumptions, 11)
    policy = effective_policy(recording, pm.Policy(), elastic=False)
    demand, machine = prepared.demand, prepared.machine
    state = start_state(machine, demand, prepared.image, rules, policy, assumptions)
    file = tmp_path / "demand"
    replay_peer.write_demand(file, state, demand.events, demand.starting_places())
    done = replay_peer.run(program, file)
    carrier, places, position = ModelCarrier(state), demand.starting_places(), 0
    while position < len(demand.events):
        position = carrier.advance(demand.events, places, position, len(demand.events), -1)
        state.st[at.LOG_ROWS] = 0
    sets = [
        state.pcp_region(zone, cpu)
        for zone in range(len(machine.zones))
        for cpu in range(machine.nr_cpus)
    ]
    holds = sum(
        words[at.PCP_SITES :].reshape(at.SITES, -1)[:, at.SITE_ACQUISITIONS] for words in sets
    )
    assert done.refills == holds[at.SITE_REFILL]
    assert done.drains == sum(holds[site] for site in DRAINS)
    assert done.listed_pages == sum(words[at.PCP_COUNT] for words in sets)
    assert done.free_pages == sum(
        state.zone_region(zone)[at.ZONE_FREE] for zone in range(len(machine.zones))
    )
