"""A made-up host that builds a kernel: its demand, its start, and what a step counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pagealloc_model.notebooks.studies.defrag_mode.build_host import (
    BuildHost,
    memory_after_boot,
    requests_of,
    run_build_host,
)

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.state import make_state, with_pressure
from pagealloc_model.base.errors import UsageError
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.recording.machine import synthetic_machine
from tests.allocator.invariants import broken_invariants

RULES = KernelRules.preset("6.15")
SMALL = BuildHost(
    gib=1, nr_cpus=2, busy_cpus=1, scale=200, steps=2, huge_per_s=64, burst_huge_pages=32
)


MACHINE = synthetic_machine(SMALL.gib, SMALL.nr_cpus, RULES)


def events_of(host: BuildHost) -> np.ndarray:
    return requests_of(MACHINE, host).demand("build").events


def test_a_step_asks_for_what_the_host_says() -> None:
    events = events_of(SMALL)
    assert (np.diff(events["time_ns"]) >= 0).all()
    huge = events[events["operation"] == at.RECORDED_FAILURE]
    steps = np.bincount(huge["time_ns"] // SMALL.step_ns)
    assert steps.tolist() == [SMALL.bursts * SMALL.burst_huge_pages] * SMALL.steps
    assert (huge["order"] == MACHINE.pageblock_order).all()
    pages = (events["bits"] >> pr.CLASS_SHIFT & 3 == pr.FILE).sum()
    wanted = SMALL.cache_pages_per_s * SMALL.steps * SMALL.step_ns / 1e9
    assert pages == pytest.approx(wanted, rel=0.1)


def test_what_outlives_a_build_is_there_at_full_number_and_stays() -> None:
    """150 pages/s of one compiler in 197.47 s are 29,620, of which 7 in 1,000 are 207."""
    assert SMALL.lasting_pages == 207
    without = replace(SMALL, kernel_lasting_per_mille=0)
    lasting = []
    for host in (SMALL, without):
        events = events_of(host)
        kernel = events[events["migratetype"] == at.UNMOVABLE]
        allocated = kernel["object"][kernel["operation"] == at.ALLOC]
        freed = kernel["object"][kernel["operation"] == at.FREE]
        lasting.append(len(np.setdiff1d(allocated, freed)))
    assert lasting[0] - lasting[1] == SMALL.steps * 207


def test_some_kernel_requests_are_of_order_1() -> None:
    many = replace(SMALL, kernel_order_1_per_mille=500, steps=1)
    events = events_of(many)
    kernel = events[(events["migratetype"] == at.UNMOVABLE) & (events["operation"] == at.ALLOC)]
    jobs = len(kernel) - many.lasting_pages
    assert (kernel["order"] == 1).sum() / jobs == pytest.approx(0.5, abs=0.15)


def test_base_pages_come_in_place_of_the_huge_page_they_follow() -> None:
    demand = requests_of(MACHINE, SMALL).demand("build")
    events, leads = demand.events, demand.leads
    huge, counts = np.unique(leads[leads >= 0], return_counts=True)
    assert (counts == 1 << MACHINE.pageblock_order).all()
    failed = events[events["operation"] == at.RECORDED_FAILURE]["object"]
    assert set(failed.tolist()) == set(huge.tolist())


def test_memory_is_full_and_in_whole_blocks_after_boot() -> None:
    elastic = Assumptions(reclaim="elastic")
    state = with_pressure(make_state(MACHINE, RULES), RULES, Policy(), elastic)
    memory_after_boot(MACHINE, SMALL).put_into(state, np.zeros(0, np.int32))
    assert broken_invariants(state) == []
    buddies = state.free_buddies()[:, :, at.MOVABLE].sum(axis=0)
    assert buddies[: MACHINE.pageblock_order].sum() == 0
    assert buddies[MACHINE.pageblock_order :].sum() > 0


def test_every_huge_page_asked_for_is_served_or_refused_and_runs_repeat() -> None:
    table = run_build_host(SMALL, rules=RULES)
    requests = SMALL.bursts * SMALL.burst_huge_pages
    assert (table["thp_fault_alloc"] + table["thp_fault_fallback"] == requests).all()
    assert table["requests_failed"].sum() < 10, "reads ahead, which may not retry, can fail"
    without_reads = run_build_host(replace(SMALL, cache_pages_per_s=0), rules=RULES)
    assert (without_reads["requests_failed"] == 0).all()
    assert table.equals(run_build_host(SMALL, rules=RULES))


def test_the_ban_on_fallbacks_keeps_kernel_memory_out_of_movable_blocks() -> None:
    small = BuildHost(
        gib=1,
        nr_cpus=2,
        busy_cpus=2,
        scale=100,
        steps=2,
        burst_huge_pages=64,
        kernel_free_percent=0,
        free_percent=0,
    )
    vanilla = run_build_host(small, rules=RULES)
    banned = run_build_host(small, Policy(defrag_mode=True), rules=RULES)
    assert banned["mixed_blocks"].sum() < vanilla["mixed_blocks"].sum()


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [({"busy_cpus": 9}, "busy_cpus=9"), ({"scale": 0}, "scale=0"), ({"free_percent": 101}, "101")],
)
def test_what_is_no_host_is_refused(changed: dict[str, int], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        BuildHost(**changed)
