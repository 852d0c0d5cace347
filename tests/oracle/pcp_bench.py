"""A zone whose per-CPU lists can be watched, for the tests."""

from __future__ import annotations

from tests.oracle import Migratetype, Oracle, OraclePolicy
from tests.oracle.pcp import PerCpuPages
from tests.oracle.scenarios import KERNEL, events_named, one_zone, oracle, put_free_memory

MOVABLE = Migratetype.MOVABLE

TUNED = OraclePolicy(pcp_batch=4, pcp_high_min=32, pcp_high_max=256)
"""Small numbers that the examples can follow."""

FIXED = OraclePolicy(pcp_batch=4, pcp_high_min=32, pcp_high_max=32)
"""No auto tuning."""


def page_set(target: Oracle, cpu: int = 0) -> PerCpuPages:
    """The only zone's page set of a CPU."""
    return target.zones[0].pcp[cpu]


def ready(
    policy: OraclePolicy = TUNED, rules: str = "6.12", blocks: int = 8, nr_cpus: int = 1
) -> Oracle:
    """An oracle with one zone of free memory, far above its watermarks."""
    target = oracle(one_zone(blocks, nr_cpus=nr_cpus), rules, policy)
    put_free_memory(target, 0)
    return target


def take(target: Oracle, count: int, order: int = 0) -> list[int]:
    """Allocate on CPU 0; the pages got."""
    pfns = [target.alloc(0, order, MOVABLE, 0, KERNEL) for _ in range(count)]
    return [pfn for pfn in pfns if pfn is not None]


def holds(target: Oracle) -> list[tuple[object, ...]]:
    """(site, cause, objects) of every hold so far."""
    return [event[1:] for event in events_named(target, "hold")]
