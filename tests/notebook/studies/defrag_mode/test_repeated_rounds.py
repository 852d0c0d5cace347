"""Rounds replayed: less memory, what blocks hold, and what outlives a round."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pagealloc_model.notebooks.studies.defrag_mode.recorded_load import with_less_memory
from pagealloc_model.notebooks.studies.defrag_mode.repeated_rounds import (
    HugeFaults,
    RepeatedRounds,
    repeated_rounds,
)

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.base.errors import UsageError
from pagealloc_model.loads.run import block_use
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.recording.machine import GIB_PAGES, PAGE_KB, min_free_kbytes_at_boot
from tests.notebook.studies.defrag_mode.test_recorded_load import made_ready

SLAB = "mixed_6.1"
"""A kernel with SLUB: reclaimable slabs are asked for and not freed."""
RECLAIMING = pm.Policy(defrag_mode=False, thp_defrag="always")


def run(survivors: str, rounds: int = 6, **options: object) -> RepeatedRounds:
    return repeated_rounds(
        pm.open(SLAB), RECLAIMING, rounds=rounds, rules="7.3", survivors=survivors, **options
    )


def test_slabs_that_outlive_a_round_spread_over_blocks_and_cost_huge_pages() -> None:
    """The null model, nothing but files' pages outlives a round, keeps blocks apart."""
    mixed = np.zeros(2, int)
    for seed in range(3):
        stays, null = (run(survivors, seed=seed).rounds for survivors in ("stay", "gone"))
        assert (stays["huge_served"] <= stays["huge_asked"]).all()
        mixed += [stays["mixed_blocks"].iloc[-1], null["mixed_blocks"].iloc[-1]]
        grown, null_grown = (
            rounds["mixed_blocks"].iloc[-1] - rounds["mixed_blocks"].iloc[0]
            for rounds in (stays, null)
        )
        assert 0 <= null_grown <= grown / 5
        assert stays["reclaimable_pages"].is_monotonic_increasing
        assert stays["reclaimable_pages"].iloc[-1] > stays["reclaimable_pages"].iloc[0] > 0
    assert mixed[0] > 2 * mixed[1]


def test_the_same_seed_repeats_a_run_and_blocks_hold_all_pages() -> None:
    result = run("stay", 2)
    assert result.rounds.equals(run("stay", 2).rounds)
    for use in result.use:
        total = use.free + use.movable + use.reclaimable + use.unmovable
        assert (total == 1 << result.machine.pageblock_order).all()
    pages = result.fixed_pages
    last = result.rounds.iloc[-1]
    own = pages[(pages["round"] == 2) & (pages["block_type"] == "movable")]
    assert own["pages"].sum() == last["fixed_in_movable"]
    assert (own[["none", "few", "some", "many", "all"]].sum(axis=1) == last["blocks_movable"]).all()


def test_blocks_larger_buddies_span_are_counted_each() -> None:
    result = run("stay", 1)
    whole = 1 << result.machine.pageblock_order
    assert (result.use[0].free == whole).sum() * whole >= result.rounds["free_block_pages"].iloc[0]


def test_less_memory_takes_out_blocks_that_nothing_else_needs() -> None:
    full = made_ready("kbuild").prepared
    rules = KernelRules.preset("6.18")
    less = with_less_memory(full, 4, rules)
    managed = sum(zone.managed for zone in less.machine.zones)
    assert 0 <= 4 * GIB_PAGES - managed < 1 << full.machine.pageblock_order
    assert min_free_kbytes_at_boot(less.machine) // PAGE_KB == pytest.approx(
        sum(zone.min for zone in less.machine.zones if zone.name != "Movable"), abs=3
    )
    gone = np.repeat(less.image.block_types < 0, 1 << full.machine.pageblock_order)
    places = full.demand.starting_places()
    assert not gone[places[places >= 0]].any()
    assert not less.image.free[gone[: len(less.image.free)]].any()
    assert less.lru[gone[: len(less.lru)]].sum() == 0


def test_sizes_that_cannot_be_had_are_refused_with_those_that_can() -> None:
    full = made_ready("kbuild").prepared
    rules = KernelRules.preset("6.18")
    with pytest.raises(UsageError, match=r"begins with 3\.\d+ GiB in use"):
        with_less_memory(full, 1, rules)
    with pytest.raises(UsageError, match="more than the"):
        with_less_memory(full, 100, rules)
    recording = pm.open("kbuild")
    for options, complaint in (
        ({"rounds": 0}, "0 rounds"),
        ({"survivors": "all"}, "survivors=all"),
        ({"free_mib": 1.0}, "free_mib=1"),
    ):
        with pytest.raises(UsageError, match=complaint):
            repeated_rounds(recording, **options)


def test_files_are_read_until_so_much_is_free() -> None:
    result = repeated_rounds(
        pm.open("kbuild"), rounds=1, gib=3.4, free_mib=300, faults=HugeFaults(per_round=0)
    )
    assert result.rounds["free_pages"].iloc[0] * PAGE_KB / 1024 == pytest.approx(300, abs=150)


def test_a_buddy_of_two_blocks_is_free_in_both() -> None:
    from pagealloc_model.allocator.state import make_state, with_pressure
    from pagealloc_model.loads.run import free_everything
    from pagealloc_model.recording.machine import synthetic_machine

    rules = KernelRules.preset("7.3")
    machine = synthetic_machine(0.125, 1, rules)
    elastic = replace(pm.Assumptions(), reclaim="elastic")
    state = make_state(machine, rules, pm.Policy(), elastic)
    state = with_pressure(state, rules, pm.Policy(), elastic)
    free_everything(state)
    use = block_use(state)
    assert (use.free == 512).all()
    assert (use.migratetype == at.MOVABLE).all()


def test_rounds_begin_with_what_the_daemons_were_doing() -> None:
    from pagealloc_model.predicted.start.elastic import DaemonsAtStart

    began = DaemonsAtStart(node=0, start_ns=7, run=(3, 9), looks_ns=70)
    ready = made_ready(SLAB)
    ready = replace(ready, prepared=replace(ready.prepared, daemons=(began,)))
    state = ready.begin(ready.demand.starting_places(), ready.demand.leads).state
    node = int(state.st[int(state.st[at.PRESSURE_BASE]) + pr.NODES_BASE])
    assert state.st[node + pr.KSWAPD_WOKEN] == 1
    assert state.st[node + pr.KSWAPD_WANTED_ORDER] == 3
    assert state.st[node + pr.PROACTIVE_DUE] == 70
