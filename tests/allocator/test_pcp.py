"""How many pages one hold of zone->lock takes from a CPU's lists (S4.7)."""

from __future__ import annotations

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.loads.demand import Gfp, Requests
from pagealloc_model.recording.machine import synthetic_machine

HUGE = 512
BATCH = 63
MOST_TO_FREE = (BATCH << 5) - 1 + HUGE
"""free_count is compared with batch << CONFIG_PCP_BATCH_SCALE_MAX before a page is added to it."""


def largest_overflow_drain(orders: np.ndarray, *, batched: bool, high: int = 1000) -> int:
    """Most pages in one hold of a drain by a free, where these are freed in turn."""
    machine = synthetic_machine(16, 1, pm.KernelRules.preset("7.2"))
    requests = Requests(machine)
    times = np.arange(len(orders), dtype=np.int64) * 1000
    requests.ask(times, times + 10**9, gfp=Gfp.USER, order=orders)
    policy = pm.Policy(pcp_free_batched=batched, pcp_high_min=high, pcp_high_max=high)
    run = pm.synthetic.run(requests.demand("frees", seed=0), policy, rules="7.2")
    return int(run.transactions_full.query("cause == 'commit'")["pages"].max())


@pytest.mark.parametrize("singles", [30, 62, 100])
def test_a_batch_may_end_with_a_huge_page(singles: int) -> None:
    """free_pcppages_bulk() counts a page once it is freed: up to batch - 1 pages, then 512."""
    orders = np.tile(np.array([0] * singles + [9], np.int8), 200)
    largest = largest_overflow_drain(orders, batched=True)
    assert BATCH < largest <= BATCH - 1 + HUGE


def test_single_pages_are_freed_in_batches_of_that_many() -> None:
    orders = np.zeros(20_000, np.int8)
    assert largest_overflow_drain(orders, batched=True) == BATCH
    assert largest_overflow_drain(orders, batched=False) > BATCH


def test_one_hold_of_all_passes_2016_pages_with_huge_ones() -> None:
    """2,527 pages are to be freed, five huge ones are, as on the recorded guest."""
    orders = np.array([0] * ((BATCH << 5) - 1) + [9] * 15, np.int8)
    largest = largest_overflow_drain(orders, batched=False, high=8000)
    assert largest == 5 * HUGE
    assert MOST_TO_FREE <= largest <= MOST_TO_FREE + HUGE - 1
