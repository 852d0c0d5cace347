"""Ranges freed page by page or in chunks: the same memory in the end, by other ways."""

from __future__ import annotations

import numpy as np
import pytest
from pagealloc_model.notebooks.studies.contiguous_frees import contiguous_frees

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.base.errors import UsageError
from pagealloc_model.policy.kernel_rules import KernelRules
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
    drains = [(run.log[:, 0] == at.SITE_DRAIN_COMMIT).sum() for run in runs]
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
