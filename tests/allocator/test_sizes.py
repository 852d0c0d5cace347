"""Sizes of per-CPU lists, as computed for zones of every size, against the oracle."""

from __future__ import annotations

import pytest

from pagealloc_model.allocator.pcp import high_limits, zone_batchsize
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy
from pagealloc_model.recording.machine import PerCpuPages, Zone
from tests.oracle import RULES, OracleMachine, OraclePolicy
from tests.oracle.scenarios import one_zone
from tests.oracle.vmstat import page_set_size

MANAGED = (1, 256, 3840, 4096, 8191, 8192, 100_000, 262_144, 261_000, 1 << 20, 16_000_000)
"""Zone sizes from one page to 61 GiB."""


def model_size(machine: OracleMachine, rules: str, policy: Policy) -> tuple[int, int, int]:
    spec = machine.zones[0]
    zone = Zone(
        name=spec.name,
        start_pfn=0,
        spanned=spec.spanned,
        present=spec.present,
        managed=spec.managed,
        min=spec.min,
        low=spec.low,
        high=spec.high,
    )
    batch = zone_batchsize(zone.managed)
    return batch, *high_limits(zone, batch, machine.nr_cpus, policy, KernelRules.preset(rules))


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("managed", MANAGED)
@pytest.mark.parametrize("nr_cpus", [1, 4, 64])
@pytest.mark.parametrize("fraction", [None, 8, 100])
def test_page_set_sizes(rules: str, managed: int, nr_cpus: int, fraction: int | None) -> None:
    low = managed // 50
    machine = one_zone(nr_cpus=nr_cpus, managed=managed, low=low, high=low)
    policy = OraclePolicy(percpu_pagelist_high_fraction=fraction or 0)
    expected = page_set_size(machine.zones[0], machine, RULES[rules], policy)
    found = model_size(machine, rules, Policy(percpu_pagelist_high_fraction=fraction))
    assert found == (expected.batch, expected.high_min, expected.high_max)


@pytest.mark.parametrize("rules", [name for name in RULES if name != "6.1"])
def test_bounds_that_cross_stay_crossed(rules: str) -> None:
    """S4.3: a low watermark above an eighth of a zone gives high_min > high_max."""
    machine = one_zone(managed=4000, low=2000, high=2400)
    expected = page_set_size(machine.zones[0], machine, RULES[rules], OraclePolicy())
    assert expected.high_min > expected.high_max
    found = model_size(machine, rules, Policy())
    assert found == (expected.batch, expected.high_min, expected.high_max)


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
    found = PerCpuPages(cpu=0, count=0, high=300, batch=63, high_min=high_min, high_max=high_max)
    sizes = {"start_pfn": 0, "spanned": 100_000, "present": 100_000, "managed": 100_000}
    zone = Zone(name="Normal", min=100, low=200, high=300, pagesets=(found,), **sizes)
    assert high_limits(zone, 63, 1, Policy(), KernelRules.preset(rules)) == limits
