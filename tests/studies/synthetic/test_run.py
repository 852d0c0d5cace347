"""The runner: samples at instants, what is kept, and memory at first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.studies.synthetic.run import Memory, block_use, managed_pages

RULES = pm.KernelRules.preset("7.2")


@pytest.fixture(scope="module")
def demand() -> pm.synthetic.Demand:
    return pm.synthetic.scenario("churn", gib=1, nr_cpus=2, pages=3000, rules=RULES)


def test_instants_and_parts_change_nothing_but_the_samples(demand: pm.synthetic.Demand) -> None:
    whole = pm.synthetic.run(demand, rules=RULES)
    times = demand.events["time_ns"]
    first, end = int(times[len(times) // 3]), int(times[-1]) + 1
    parts = replace(demand, parts=lambda: iter(np.array_split(demand.events, 7)))
    split = pm.synthetic.run(
        parts, rules=RULES, at_ns=[first, end], look=lambda state: int(state.st[at.COUNT_ALLOC])
    )
    assert split.samples.time_ns.tolist() == [first, end]
    asked = (demand.events["operation"] == at.ALLOC) & (times < first)
    assert split.seen[0] == asked.sum()
    assert np.array_equal(split.log, whole.log)
    assert np.array_equal(split.places, whole.places)
    alone = pm.synthetic.run(demand, rules=RULES, at_ns=[first])
    assert alone.events == (times < first).sum()
    assert np.array_equal(alone.samples.free_buddies[0], split.samples.free_buddies[0])


def test_holds_that_are_not_kept_are_counted(demand: pm.synthetic.Demand) -> None:
    kept = pm.synthetic.run(demand, rules=RULES)
    counted = pm.synthetic.run(demand, rules=RULES, keep_holds=False)
    assert len(counted.log) == 0 < len(kept.log)
    assert counted.transactions.equals(kept.transactions)
    refills = kept.holds().query("site in ('refill', 'empty_refill')")
    last = counted.counts.iloc[-1]
    assert (last["refills"], last["refill_pages"]) == (len(refills), refills["pages"].sum())


def test_memory_begins_as_described() -> None:
    machine = pm.synthetic.synthetic_machine(1, 1, RULES)
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
        rules=RULES,
        assumptions=pm.Assumptions(reclaim="elastic"),
        memory=memory,
        at_ns=[1],
    )
    assert pm.synthetic.broken_invariants(run.final) == []
    assert run.places[1] == listed[0]
    assert run.free.iloc[0][["reserved_blocks", "whole_blocks", "crumbs"]].tolist() == [2, 2, 0]
    use = block_use(run.final)
    blocks = use.first_pfn >> 9
    assert np.array_equal(use.free, free.reshape(-1, 512).sum(axis=1)[blocks])
    assert np.array_equal(use.movable, movable.reshape(-1, 512).sum(axis=1)[blocks])
    assert int(use.fixed[managed[use.first_pfn]].sum()) == int((managed & ~free & ~movable).sum())
