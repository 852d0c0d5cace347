"""The kernels and the oracle, written apart from one specification, do the same thing."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pagealloc_model.allocator.pcp import high_limits, zone_batchsize
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy
from pagealloc_model.recording.machine import Zone
from pagealloc_model.recording.proc.zoneinfo import PageSet
from tests.allocator.agreement import assert_agreement
from tests.allocator.invariants import broken_invariants
from tests.oracle import RULES, OracleMachine, OraclePolicy
from tests.oracle.elastic_scenarios import random_of_kind
from tests.oracle.random_scenarios import LITERAL
from tests.oracle.scenarios import one_zone
from tests.oracle.vmstat import page_set_size

NUMBERS = st.integers(0, (1 << 32) - 1)

EXAMPLES = {"compaction": 4, "pageblocks": 4}
"""Scenarios of kinds of which one takes seconds; `-m long` has a hundred longer ones."""

OWNERSHIP_MECHANISMS = ("claimed", "recorded", "recovered", "ended", "remote_frees", "merges")
"""What runs under ownership have to come across besides."""
MECHANISMS = {
    "elastic": {
        *("pgscan_kswapd", "pgsteal_kswapd", "pgscan_direct", "pgsteal_direct", "pgactivate"),
        *("pgdeactivate", "pageoutrun", "kswapd_low_wmark_hit_quickly", "allocstall_0"),
        *("kswapd_high_wmark_hit_quickly", "allocstall_1", "compact_stall", "compact_fail"),
        *("compact_success", "compact_isolated", "compact_daemon_wake", "pgmigrate_success"),
        *("compact_daemon_migrate_scanned", "compact_daemon_free_scanned", "pgmigrate_fail"),
        *("thp_fault_alloc", "thp_fault_fallback", "oom_kill", "captured", "deferred"),
        *("dropped_frees", "freed_by_model", "absorbed", "absorbed_frees", "tried_failures"),
        *("succeeded_failures", "demand_failed", "forced_by_nofail", "in_base_pages"),
    },
    "owning_elastic": {*OWNERSHIP_MECHANISMS, "captured", "pgmigrate_success"},
    "used_elastic": {
        *("workingset_refault_file", "workingset_activate_file", "added_reads", "spared_reads"),
        *("pgactivate", "pgmigrate_success"),
    },
    "hurried_elastic": {"taken_while_reclaiming", "pgsteal_direct"},
    "linked_elastic": {
        *("thp_fault_alloc", "thp_fault_fallback", "tried_failures", "succeeded_failures"),
        *("absorbed", "absorbed_frees", "in_base_pages"),
    },
}
"""What a run over scenarios has to come across, by the oracle's counters."""

ELASTIC = {
    "elastic": (range(100, 108), 60),
    "told_elastic": ((27, 32, 38, 57), 80),
    "used_elastic": (range(200, 212), 120),
    "cma_elastic": ((0, 5, 11), 60),
    "owning_elastic": (range(100, 106), 60),
    "hiding_elastic": ((4, 7), 20),
    "scheduled_elastic": (range(100, 106), 60),
    "linked_elastic": (range(8), 100),
    "hurried_elastic": ((3, 15, 28, 122, 123), 100),
}
"""Numbers of the scenarios under pressure that always run, and their steps."""

MANAGED = (1, 256, 3840, 4096, 8191, 8192, 100_000, 262_144, 261_000, 1 << 20, 16_000_000)
"""Zone sizes from one page to 61 GiB."""


@pytest.mark.parametrize("kind", LITERAL)
def test_model_and_oracle_agree(kind: str) -> None:
    """At every step; the state is sound at the end."""
    for number in random.Random(kind).sample(range(1 << 32), EXAMPLES.get(kind, 8)):
        model = assert_agreement(random_of_kind(kind, number, steps=300))
        assert broken_invariants(model.state) == [], number


@pytest.mark.long
@settings(max_examples=40, phases=(Phase.generate,))  # to shrink a scenario takes minutes
@given(st.sampled_from(list(LITERAL)), NUMBERS)
def test_model_and_oracle_agree_for_long(kind: str, number: int) -> None:
    assert_agreement(random_of_kind(kind, number, steps=1000))


def seen_under_pressure(kind: str, numbers: Iterable[int], steps: int) -> set[str]:
    """Compare scenarios; what happened in them."""
    seen: Counter[str] = Counter()
    for number in numbers:
        oracle = assert_agreement(random_of_kind(kind, number, steps))
        seen += oracle.memory.counts + oracle.memory.seen + oracle.divergence
        seen["in_base_pages"] += oracle.in_base_pages
        for zone in oracle.zones:
            counts = oracle.ownership_counters.of(zone.index)
            seen += Counter({name: getattr(counts, name) for name in OWNERSHIP_MECHANISMS})
    return set(seen)


@pytest.mark.parametrize("kind", ELASTIC)
def test_they_agree_under_pressure(kind: str) -> None:
    told = kind in ("used_elastic", "linked_elastic", "hurried_elastic")
    wanted = MECHANISMS[kind] if told else {"pgmigrate_success"}
    assert not wanted - seen_under_pressure(kind, *ELASTIC[kind])


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "numbers", "steps"),
    [("elastic", range(60), 120), ("owning_elastic", range(100, 130), 80)],
)
def test_they_agree_on_every_mechanism(kind: str, numbers: range, steps: int) -> None:
    assert not MECHANISMS[kind] - seen_under_pressure(kind, numbers, steps)


@pytest.mark.parametrize(("left_out", "compactions"), [(False, 2), (True, 1)])
def test_a_reserved_block_alone_keeps_compaction_from_being_declined(
    left_out: bool, compactions: int
) -> None:
    """S9.10: without it the one before reclaim is declined; what reclaim frees is in pieces."""
    scenario = random_of_kind("hiding_elastic", 3, 3, ("6.12",))
    options = replace(scenario.options, index_without_highatomic=left_out)
    oracle = assert_agreement(replace(scenario, options=options))
    assert oracle.memory.counts["compact_stall"] == compactions


def model_size(machine: OracleMachine, rules: str, policy: Policy) -> tuple[int, int, int]:
    zone = machine.zones[0]
    batch = zone_batchsize(zone.managed)
    return batch, *high_limits(zone, batch, machine.nr_cpus, policy, KernelRules.preset(rules))


@pytest.mark.parametrize("rules", RULES)
def test_page_sets_are_as_large(rules: str) -> None:
    """S4.3; a low watermark above an eighth of a zone gives high_min > high_max."""
    for managed, nr_cpus, fraction, share in product(MANAGED, (1, 4, 64), (0, 8, 100), (50, 2)):
        low = managed // share
        machine = one_zone(nr_cpus=nr_cpus, managed=managed, low=low, high=low)
        policy = OraclePolicy(percpu_pagelist_high_fraction=fraction)
        expected = page_set_size(machine.zones[0], machine, RULES[rules], policy)
        found = model_size(machine, rules, Policy(percpu_pagelist_high_fraction=fraction or None))
        assert found == expected


@pytest.mark.parametrize(
    ("rules", "printed", "limits"),
    [
        ("6.1", None, (300, 300)),
        ("6.1", (252, 4000), (252, 252)),
        ("7.2", None, (252, 12500)),
        ("7.2", (260, 4000), (260, 4000)),
    ],
)
def test_limits_as_recorded(
    rules: str, printed: tuple[int, int] | None, limits: tuple[int, int]
) -> None:
    """S4.3: 6.1 prints `high` alone, and has no other limit; later kernels need what they print."""
    high_min, high_max = printed or (None, None)
    found = PageSet(cpu=0, count=0, high=300, batch=63, high_min=high_min, high_max=high_max)
    sizes = {"start_pfn": 0, "spanned": 100_000, "present": 100_000, "managed": 100_000}
    zone = Zone(name="Normal", min=100, low=200, high=300, pagesets=(found,), **sizes)
    assert high_limits(zone, 63, 1, Policy(), KernelRules.preset(rules)) == limits
