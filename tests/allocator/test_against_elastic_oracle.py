"""Elastic replays: the kernels and the oracle, written apart from one page, do the same thing."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.allocator.elastic_agreement import assert_elastic_agreement
from tests.oracle.elastic_scenarios import (
    random_cma_elastic_scenario,
    random_elastic_scenario,
    random_owning_elastic_scenario,
    random_superpageblock_elastic_scenario,
    random_told_elastic_scenario,
    random_used_elastic_scenario,
)

MECHANISMS = {
    "pgscan_kswapd",
    "pgsteal_kswapd",
    "pgscan_direct",
    "pgsteal_direct",
    "pgactivate",
    "pgdeactivate",
    "pageoutrun",
    "kswapd_low_wmark_hit_quickly",
    "kswapd_high_wmark_hit_quickly",
    "allocstall_0",
    "allocstall_1",
    "compact_stall",
    "compact_fail",
    "compact_success",
    "compact_isolated",
    "compact_daemon_wake",
    "compact_daemon_migrate_scanned",
    "compact_daemon_free_scanned",
    "pgmigrate_success",
    "pgmigrate_fail",
    "thp_fault_alloc",
    "thp_fault_fallback",
    "oom_kill",
    "captured",
    "deferred",
    "dropped_frees",
    "freed_by_model",
    "absorbed",
    "absorbed_frees",
    "tried_failures",
    "succeeded_failures",
    "demand_failed",
    "forced_by_nofail",
    "in_base_pages",
}
"""What a run over scenarios has to come across, by the oracle's counters."""

USES = (
    "workingset_refault_file",
    "workingset_activate_file",
    "added_reads",
    "spared_reads",
    "pgactivate",
)
"""What a run with uses of files' pages has to come across."""

OWNERSHIP_MECHANISMS = ("claimed", "recorded", "recovered", "ended", "remote_frees", "merges")
"""What runs under ownership have to come across besides."""


def counts_of(scenarios: range, steps: int) -> Counter[str]:
    """Compare scenarios; what happened in them."""
    found: Counter[str] = Counter()
    for number in scenarios:
        scenario = random_elastic_scenario(number, steps=steps)
        oracle = assert_elastic_agreement(scenario)
        found += oracle.memory.counts + oracle.memory.seen + oracle.divergence
        found["in_base_pages"] += oracle.in_base_pages
    return found


def test_model_and_oracle_agree_under_pressure() -> None:
    found = counts_of(range(100, 108), steps=60)
    assert found["pgsteal_kswapd"] and found["pgsteal_direct"] and found["pgmigrate_success"]


def test_they_agree_on_uses_of_files() -> None:
    """Marks, ages, refaults, and reads that the recording does not show (S10.7)."""
    found: Counter[str] = Counter()
    for number in range(200, 212):
        oracle = assert_elastic_agreement(random_used_elastic_scenario(number, steps=120))
        found += oracle.memory.counts + oracle.divergence
    for name in USES:
        assert found[name], name


@pytest.mark.parametrize("number", [27, 32, 38, 57])
def test_they_agree_on_what_a_recording_tells(number: int) -> None:
    """Drains, limits, memory that comes and hidden requests, between those under pressure."""
    assert_elastic_agreement(random_told_elastic_scenario(number, steps=80))


@pytest.mark.parametrize("number", [0, 5, 11])
def test_they_agree_where_there_is_cma(number: int) -> None:
    assert_elastic_agreement(random_cma_elastic_scenario(number, steps=60))


@pytest.mark.parametrize("number", [3, 14, 38])
def test_they_agree_on_superpageblocks(number: int) -> None:
    """Lists in two parts under reclaim and compaction, whose searches leave them as they are."""
    assert_elastic_agreement(random_superpageblock_elastic_scenario(number, steps=80))


@given(st.integers(100, 129))
@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
def test_they_agree_where_pageblocks_are_owned(number: int) -> None:
    assert_elastic_agreement(random_owning_elastic_scenario(number, steps=60))


@pytest.mark.long
def test_blocks_are_claimed_lost_and_compacted_under_ownership() -> None:
    seen: Counter[str] = Counter()
    for number in range(100, 130):
        oracle = assert_elastic_agreement(random_owning_elastic_scenario(number, steps=80))
        seen += oracle.memory.counts + oracle.memory.seen
        for zone in oracle.zones:
            counts = oracle.ownership_counters.of(zone.index)
            seen += Counter({name: getattr(counts, name) for name in OWNERSHIP_MECHANISMS})
    assert not {*OWNERSHIP_MECHANISMS, "captured", "pgmigrate_success"} - set(seen)


@pytest.mark.long
def test_they_agree_on_every_mechanism() -> None:
    found = counts_of(range(60), steps=120)
    assert not MECHANISMS - set(found)
