"""A made-up host whose memory is full: what its reserve does under the policies that govern it."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy
from pagealloc_model.studies.workload.full_host import FullHost, run_full_host

SMALL = FullHost(
    gib=2,
    nr_cpus=2,
    cache_pages_per_s=20_000,
    atomic_per_s=10_000,
    huge_per_s=5,
    seconds=3,
)
RULES = KernelRules.preset("6.18")


def run(**changed: int | str) -> pd.DataFrame:
    return run_full_host(SMALL, Policy(**changed), rules=RULES).set_index("second")


def test_atomic_requests_fill_the_reserve_and_the_gate_keeps_it_empty() -> None:
    stock, gated = run(), run(highatomic_gate_order=3)
    assert stock.loc[3, "reserved_blocks"] > 0
    assert gated.loc[3, "reserved_blocks"] == 0
    assert stock.loc[3, "pgscan_kswapd"] > 0


def test_the_same_host_does_the_same_again() -> None:
    pd.testing.assert_frame_equal(run(), run())


def test_scattered_kernel_pages_leave_fewer_huge_pages() -> None:
    pinned = replace(SMALL, scattered_per_mille=1000)
    table = run_full_host(pinned, Policy(thp_defrag="always"), rules=RULES).set_index("second")
    none = run(thp_defrag="always")
    assert table.loc[3, "thp_fault_alloc"] < none.loc[3, "thp_fault_alloc"]


def test_the_reserve_holds_what_was_taken_and_not_given_back() -> None:
    end = run().loc[3]
    assert end["blocks_taken"] - end["blocks_given_back"] == end["reserved_blocks"]
