"""A made-up host whose memory is full: what its reserve does under the policies that govern it."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from pagealloc_model.notebooks.studies.others.full_host import FullHost, run_full_host

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.state import thp_reclaim_bits
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy

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


DIRECT, KSWAPD, NORETRY = at.GFP_DIRECT_RECLAIM, at.GFP_KSWAPD_RECLAIM, pr.GFP_NORETRY


@pytest.mark.parametrize(
    ("setting", "madvised", "otherwise"),
    [
        ("always", DIRECT, DIRECT | NORETRY),
        ("defer", KSWAPD, KSWAPD),
        ("defer+madvise", DIRECT, KSWAPD),
        ("madvise", DIRECT, 0),
        ("never", 0, 0),
    ],
)
def test_how_a_fault_may_reclaim(setting: str, madvised: int, otherwise: int) -> None:
    """vma_thp_gfp_mask(), mm/huge_memory.c, 6.12 and 7.2."""
    assert thp_reclaim_bits(setting, True) == madvised
    assert thp_reclaim_bits(setting, False) == otherwise


def test_faults_that_may_not_reclaim_take_what_is_free() -> None:
    """Under `madvise`, where memory is not: no stall in compaction, and fewer huge pages."""
    host = replace(SMALL, huge_per_s=40)
    tables = [
        run_full_host(replace(host, thp_defrag="madvise", thp_madvised=madvised), rules=RULES)
        for madvised in (False, True)
    ]
    light, waits = (table.set_index("second").loc[3] for table in tables)
    assert light["compact_success"] + light["compact_fail"] == 0
    assert waits["compact_success"] + waits["compact_fail"] > 0
    assert light["thp_fault_alloc"] < waits["thp_fault_alloc"]


def test_a_working_set_larger_than_the_cache_is_read_again_and_scanned_for() -> None:
    """Less memory for the page cache: more of it is read again, and kswapd scans more."""
    reads = replace(SMALL, working_set_pages=300_000, reads_per_s=60_000, cache_pages_per_s=0)
    tables = [
        run_full_host(replace(reads, anon_percent=share), rules=RULES).set_index("second")
        for share in (50, 80)
    ]
    ample, short = (table.loc[3] for table in tables)
    assert 0 < ample["pgscan_kswapd"] < short["pgscan_kswapd"]
    assert ample["workingset_refault_file"] < short["workingset_refault_file"]


def test_a_working_set_that_fits_settles_among_the_active_pages() -> None:
    reads = replace(SMALL, working_set_pages=10_000, reads_per_s=50_000, cache_pages_per_s=0)
    table = run_full_host(reads, rules=RULES).set_index("second")
    assert table.loc[3, "workingset_refault_file"] == table.loc[2, "workingset_refault_file"]
    assert table.loc[3, "workingset_refault_file"] < 10_000


def test_a_first_reserve_is_free_and_counts_as_whole_blocks_in_the_score() -> None:
    """fragmentation_score_zone(), mm/compaction.c 6.12: buddies of all types."""
    idle = replace(SMALL, atomic_per_s=0, reserved_blocks=10, huge_per_s=0, free_per_mille=50)
    end = run_full_host(replace(idle, cache_pages_per_s=100), rules=RULES).iloc[-1]
    assert end["reserved_blocks"] == end["whole_blocks"] == 10
    assert end["blocks_taken"] == end["partly_used"] == 0
    assert end["score"] < 90 < end["score_without_reserve"]
    assert end["free_pages"] > 10 * 512


def test_the_reserve_does_not_grow_while_atomic_requests_pause() -> None:
    paused = replace(SMALL, atomic_pause_s=(0, 2))
    table = run_full_host(paused, rules=RULES).set_index("second")
    assert table.loc[2, "blocks_taken"] == 0 < table.loc[3, "blocks_taken"]


def test_requests_of_the_kernel_compact_themselves() -> None:
    light = replace(SMALL, thp_defrag="madvise", thp_madvised=False, atomic_per_s=0)
    counts = []
    for rate in (0, 500):
        end = run_full_host(replace(light, kernel_per_s=rate), rules=RULES).set_index("second")
        counts.append(end.loc[3, "compact_success"] + end.loc[3, "compact_fail"])
    assert counts[0] == 0 < counts[1]
