"""Runs of loads: what an exit drains, what batches and reclaim do to it."""

from __future__ import annotations

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.loads.run import Memory, Run, block_use, managed_pages
from pagealloc_model.loads.run import run as run_demand
from pagealloc_model.loads.scenarios import exit_avalanche
from pagealloc_model.policy.policy import Policy
from tests.allocator.invariants import broken_invariants
from tests.loads.test_scenarios import NEWER, RULES, machine


@pytest.fixture(scope="module")
def runs() -> dict[bool, Run]:
    scenario = exit_avalanche(machine(), pages=6000, reclaimers=1)
    return {
        batched: run_demand(
            scenario, Policy(pcp_free_batched=batched, pcp_drain_batched=batched), rules=RULES
        )
        for batched in (False, True)
    }


def test_an_exit_drains_thousands_of_pages_at_once_unless_batched(runs: dict[bool, Run]) -> None:
    longest = {
        batched: run.transactions_full.query("site == 'drain'").groupby("cause")["pages"].max()
        for batched, run in runs.items()
    }
    assert longest[False]["commit"] == 2016
    assert longest[False]["drain_all"] > 63
    assert longest[True].max() == 63
    assert runs[False].unlogged == runs[False].failed == 0


def test_batches_shorten_waits(runs: dict[bool, Run]) -> None:
    waits = {
        batched: run.lock_times().acquisitions["wait_ns"].max() for batched, run in runs.items()
    }
    assert waits[True] < waits[False]


def test_reclaim_caps_what_an_exit_drains() -> None:
    """S4.6: RECLAIM_ACTIVE limits the lists to 4 batches, so a drain is 3 of them at most."""
    scenario = exit_avalanche(machine(), pages=6000, reclaim_active=True)
    run = run_demand(scenario, Policy(pcp_free_batched=False), rules=RULES)
    commits = run.transactions_full.query("cause == 'commit'")["pages"]
    assert commits.max() <= 3 * 63


def test_memory_begins_as_described() -> None:
    machine = pm.synthetic.synthetic_machine(1, 1, NEWER)
    managed = managed_pages(machine)
    pages = np.arange(len(managed))
    types = np.full(len(managed) >> 9, at.MOVABLE, np.int8)
    types[4:6] = at.HIGHATOMIC
    free = managed & ((pages % 3 == 0) | (types[pages >> 9] == at.HIGHATOMIC))
    movable = managed & ~free & (pages % 3 == 1)
    listed = np.flatnonzero(movable)[::-1]
    memory = Memory(
        block_types=types,
        free=free,
        movable=movable,
        listed=listed,
        is_file=listed % 2 == 0,
        objects=(np.array([1]), listed[:1]),
    )
    requests = pm.synthetic.Requests(machine)
    requests.ask(np.array([5]), gfp=pm.synthetic.Gfp.KERNEL, migratetype=at.UNMOVABLE)
    requests.reserve_objects(1)
    run = pm.synthetic.run(
        requests.demand("one", start_ns=0),
        rules=NEWER,
        assumptions=pm.Assumptions(reclaim="elastic"),
        memory=memory,
        at_ns=[1],
    )
    assert broken_invariants(run.final) == []
    assert run.places[1] == listed[0]
    assert list(run.free.iloc[0][["reserved_blocks", "whole_blocks", "partly_used"]]) == [2, 2, 0]
    use = block_use(run.final)
    blocks = use.first_pfn >> 9
    assert np.array_equal(use.free, free.reshape(-1, 512).sum(axis=1)[blocks])
    assert np.array_equal(use.movable, movable.reshape(-1, 512).sum(axis=1)[blocks])
    assert int(use.fixed[managed[use.first_pfn]].sum()) == int((managed & ~free & ~movable).sum())
