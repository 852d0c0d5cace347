"""Loads made for one question: contiguous frees, refills that steal, huge faults beside rounds."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from pagealloc_model.notebooks.studies.defrag_mode.repeated_rounds import HugeFaults, fault_events
from pagealloc_model.notebooks.studies.others.refill_steals import refills_that_steal
from pagealloc_model.notebooks.studies.pcp_batching.contiguous_frees import contiguous_frees

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.base.errors import UsageError
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy
from pagealloc_model.recording.machine import synthetic_machine

MACHINE = synthetic_machine(1, 2, KernelRules.preset("7.2"))


@pytest.mark.parametrize("in_chunks", [False, True])
def test_every_page_is_freed_once(in_chunks: bool) -> None:
    events = contiguous_frees(MACHINE, ranges=5, pages=16, in_chunks=in_chunks).events
    freed = events[events["operation"] == at.FREE]
    pages = [
        (row["object"], row["offset"] + page)
        for row in freed
        for page in range(1 << int(row["order"]))
    ]
    assert sorted(pages) == [(number, page) for number in range(5) for page in range(16)]


def test_chunks_spare_the_lock() -> None:
    runs = [
        pm.synthetic.run(contiguous_frees(MACHINE, ranges=20, in_chunks=in_chunks), rules="7.2")
        for in_chunks in (False, True)
    ]
    drains = [(run.log["kind"] == at.SITE_DRAIN_COMMIT).sum() for run in runs]
    assert drains[0] > 20
    assert drains[1] == 0
    assert [run.failed for run in runs] == [0, 0]
    singles, chunk = (run.final.pcp_words(at.PCP_COUNT, 1).sum() for run in runs)
    free = [
        np.sum(run.samples.free_buddies[-1] * (1 << np.arange(at.ORDERS))[:, None]) for run in runs
    ]
    assert free[0] + singles == free[1] + chunk


@pytest.mark.parametrize(("ranges", "pages"), [(0, 512), (1, 0), (1, 100), (1, 4096)])
def test_ranges_that_no_buddy_holds_are_refused(ranges: int, pages: int) -> None:
    with pytest.raises(UsageError, match="a power of two pages up to 1024"):
        contiguous_frees(MACHINE, ranges=ranges, pages=pages)


RULES = KernelRules.preset("6.12")
ORDERS = 11


def stolen(migratetype: int, persists: bool) -> SimpleNamespace:
    policy = Policy(refill_mode_persists=persists, watermark_boost_factor=0)
    run = refills_that_steal(migratetype, policy, rules=RULES, requests=500, gib=0.5)
    refills = run.holds().query("site == 'refill'")
    return SimpleNamespace(
        refills=len(refills),
        pages=refills["pages"].sum(),
        scanned=refills["scanned"].sum(),
        probes=run.refill_probes[0],
        stolen=run.fallbacks.query("kind == 'steal'")["count"].sum(),
    )


@pytest.mark.parametrize("migratetype", [at.MOVABLE, at.UNMOVABLE])
def test_lists_looked_at_are_those_worked_out_by_hand(migratetype: int) -> None:
    """A search anew: the own lists, both other types for a claim, then the steal.

    Only order 0 has free pages, so that no other order's lists are looked at (S6.7). A claim looks
    there before it is asked whether it may, so for Movable requests too. The steal finds its page
    on the second list of order 0.
    """
    once, types = stolen(migratetype, persists=False), 2
    assert once.stolen == once.pages
    assert once.probes == once.pages * (ORDERS + types + types)
    lasting = stolen(migratetype, persists=True)
    assert (lasting.pages, lasting.stolen) == (once.pages, once.stolen)
    searches = lasting.refills * (ORDERS + types)
    assert lasting.probes == searches + types * lasting.pages


def test_claims_that_fail_scan_a_block_for_each_page_or_for_each_refill() -> None:
    anew, lasting = (stolen(at.UNMOVABLE, persists=persists) for persists in (False, True))
    assert anew.scanned == anew.pages * 512
    assert lasting.scanned == lasting.refills * 512


ORDER, SPAN = 9, 10_000_000_000


def events_of(faults: HugeFaults) -> tuple[np.ndarray, np.ndarray]:
    machine = synthetic_machine(1, 2, KernelRules.preset("7.2"))
    return fault_events(faults, 0, SPAN, machine)


@pytest.mark.parametrize("beside", [True, False])
def test_so_many_are_asked_for_then_and_no_more_are_kept(beside: bool) -> None:
    faults = HugeFaults(per_round=20, kept=5, beside=beside)
    events, _ = events_of(faults)
    failures = events[events["operation"] == at.RECORDED_FAILURE]
    assert len(failures) == 20
    assert ((failures["time_ns"] < SPAN) == beside).all()
    huge = events[events["order"] == ORDER]
    alive = np.cumsum(np.where(huge["operation"] == at.FREE, -1, 1))
    assert alive.max() == 5 + 1
    assert alive[-1] == 0
    assert events["time_ns"].max() < SPAN + faults.pause_ns()


def test_base_pages_stand_for_the_one_they_follow_and_go_with_it() -> None:
    _, whole = events_of(HugeFaults(per_round=3, kept=1))
    assert (np.bincount(whole[whole >= 0], minlength=3) == 1 << ORDER).all()
    events, leads = events_of(HugeFaults(per_round=3, kept=1, touched=9))
    assert (np.bincount(leads[leads >= 0], minlength=3) == 9).all()
    frees = events[events["operation"] == at.FREE]
    freed_at = dict(zip(frees["object"].tolist(), frees["time_ns"].tolist(), strict=True))
    assert all(
        freed_at[number] == freed_at[int(lead)] for number, lead in enumerate(leads) if lead >= 0
    )


def test_none_are_no_load_and_fewer_are_refused() -> None:
    assert len(events_of(HugeFaults(per_round=0))[0]) == 0
    with pytest.raises(UsageError, match="per_round=-1"):
        HugeFaults(per_round=-1)
    with pytest.raises(UsageError, match="1 us or more"):
        HugeFaults(touched=-1)
