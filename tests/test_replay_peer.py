"""The plain C program that the model's speed is shown beside does what it is said to do."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
from pytest import MonkeyPatch

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.measured.rules import choose_rules
from pagealloc_model.predicted.carrier import ModelCarrier
from pagealloc_model.predicted.prepared import prepare
from pagealloc_model.predicted.start.image import start_state
from pagealloc_model.recording.recorded_machine import effective_policy

DRAINS = (at.SITE_DRAIN_COMMIT, at.SITE_DRAIN_DECAY, at.SITE_DRAIN_ALL)


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
    replay_peer: ModuleType, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert replay_peer.compiled(tmp_path) is None


@pytest.mark.parametrize("name", ["kbuild", "xfree"])
def test_it_does_what_the_model_does(replay_peer: ModuleType, tmp_path: Path, name: str) -> None:
    """The same refills, drains and pages: a time beside it is one of the same work."""
    program = replay_peer.compiled(tmp_path)
    if program is None:
        pytest.skip("no C compiler")
    recording = pm.open(name)
    rules, assumptions = choose_rules(recording, None).rules, pm.Assumptions(reclaim="literal")
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
