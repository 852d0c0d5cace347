"""Lists that a CPU keeps of another node's zone are drained after quiet ticks (S4.8)."""

from __future__ import annotations

import pytest

from tests.oracle import Migratetype, Oracle, OracleAssumptions, OraclePolicy
from tests.oracle.scenarios import BLOCK, KERNEL, one_zone, oracle, put_free_blocks, two_nodes

MOVABLE = Migratetype.MOVABLE
NORMAL_0, NORMAL_1 = 1, 3
NORMAL = 1

POLICY = OraclePolicy(pcp_batch=4, pcp_high_min=32, pcp_high_max=32)

LAGGED = OracleAssumptions(counters="lagged")


def remote_pages(
    count: int, rules: str = "6.12", assumptions: OracleAssumptions | None = None
) -> Oracle:
    """CPU 0 has freed pages of node 1, one after another; they are on its list."""
    target = oracle(two_nodes(), rules, POLICY, assumptions)
    target.put_allocated(8 * BLOCK, 9, movable=True)
    for page in range(count):
        target.free(0, 8 * BLOCK + page, 0)
    return target


def touch(target: Oracle, cpu: int = 0) -> None:
    """A lock hold in node 1's zone by a CPU: an order without a per-CPU list."""
    target.put_allocated(9 * BLOCK, 4, movable=True)
    target.free(cpu, 9 * BLOCK, 4)
    target.events.clear()


def listed(target: Oracle) -> int:
    return int(target.dump()["pcp_state"][NORMAL_1, 0]["count"])


def expire(target: Oracle) -> int:
    return int(target.dump_counters()["cpus"][NORMAL_1, 0]["expire"])


@pytest.mark.parametrize("rules", ["6.1", "6.12", "7.2"])
def test_the_third_tick_drains_a_batch(rules: str) -> None:
    """The tick that sees the change counts: 3 becomes 2, then 1, then 0.

    The drain is a change too, so the countdown starts again.
    """
    target = remote_pages(6, rules)
    touch(target)
    seen = []
    for _ in range(6):
        target.tick(0)
        seen.append((expire(target), listed(target)))
    assert seen == [(2, 6), (1, 6), (0, 2), (2, 2), (1, 2), (0, 0)]
    holds = [event for event in target.events if event[0] == "hold"]
    assert holds == [("hold", "drain", "decay", 4), ("hold", "drain", "decay", 2)]


def test_a_change_starts_the_count_again() -> None:
    target = remote_pages(6)
    touch(target)
    target.tick(0)
    target.tick(0)
    assert expire(target) == 1
    touch_again = target.alloc(0, 4, MOVABLE, NORMAL, KERNEL)
    assert touch_again == 9 * BLOCK
    target.tick(0)
    assert (expire(target), listed(target)) == (2, 6)


def test_freeing_to_the_list_is_no_change_of_the_zone() -> None:
    """Only counters restart the countdown; without one, nothing expires."""
    target = remote_pages(6)
    for _ in range(5):
        target.tick(0)
    assert (expire(target), listed(target)) == (0, 6)


def test_what_another_cpu_does_is_its_own_change() -> None:
    target = remote_pages(6)
    touch(target, cpu=1)
    target.tick(0)
    assert expire(target) == 0
    assert target.dump_counters()["cpus"][NORMAL_1, 1]["changed"]


def test_lists_of_the_own_node_do_not_expire() -> None:
    target = oracle(two_nodes(), "6.12", POLICY)
    target.put_allocated(8 * BLOCK, 9, movable=True)
    for page in range(6):
        target.free(1, 8 * BLOCK + page, 0)
    touch(target, cpu=1)
    for _ in range(5):
        target.tick(1)
        assert target.dump_counters()["cpus"][NORMAL_1, 1]["expire"] == 0
    assert target.dump()["pcp_state"][NORMAL_1, 1]["count"] == 6


def test_on_one_node_nothing_is_remote() -> None:
    target = oracle(one_zone(4), "6.12", POLICY)
    put_free_blocks(target, 0, 1)
    target.alloc(0, 4, MOVABLE, 0, KERNEL)
    assert target.dump_counters()["cpus"][0, 0]["changed"]
    target.tick(0)
    assert target.dump_counters()["cpus"][0, 0]["expire"] == 0


def test_an_empty_list_keeps_its_countdown() -> None:
    """Without pages the countdown stands still."""
    target = remote_pages(0)
    touch(target)
    target.tick(0)
    target.tick(0)
    assert expire(target) == 3
    target.free(0, 8 * BLOCK, 0)
    target.tick(0)
    assert expire(target) == 2


def test_a_drain_for_all_counts_as_the_draining_cpus() -> None:
    target = remote_pages(6)
    target.drain_all(by=1)
    changed = target.dump_counters()["cpus"]
    assert [changed[NORMAL_1, cpu]["changed"] for cpu in (0, 1)] == [False, True]


def test_the_ticks_own_decay_counts_for_the_next_tick() -> None:
    """The limit falls from 40 to 35 and 5 pages go; the countdown starts a tick later."""
    policy = OraclePolicy(pcp_batch=4, pcp_high_min=16, pcp_high_max=64)
    target = oracle(two_nodes(), "6.12", policy)
    target.put_allocated(8 * BLOCK, 9, movable=True)
    target.set_pcp_high(NORMAL_1, 0, 64)
    for page in range(40):
        target.free(0, 8 * BLOCK + page, 0)
    assert listed(target) == 40
    target.set_pcp_high(NORMAL_1, 0, 40)
    target.tick(0)
    assert (expire(target), listed(target)) == (0, 35)
    target.tick(0)
    assert expire(target) == 2


def test_lagging_counters_forget_what_they_passed_on_at_once() -> None:
    """16 pages exceed the threshold, so the tick finds nothing; one page is kept, and found."""
    target = remote_pages(6, assumptions=LAGGED)
    touch(target)
    target.tick(0)
    assert expire(target) == 0
    target.zones[NORMAL_1].buddy.take(9 * BLOCK, 0)
    target.tick(0)
    assert expire(target) == 2


def test_changes_that_cancel_out_leave_no_trace_where_counters_lag() -> None:
    """One page out and in again; exact counters remember that something happened."""
    for assumptions, expected in ((LAGGED, 0), (OracleAssumptions(), 2)):
        target = remote_pages(6, assumptions=assumptions)
        put_free_blocks(target, 10, 1)
        buddy = target.zones[NORMAL_1].buddy
        buddy.take(10 * BLOCK, 0)
        buddy.free(10 * BLOCK, 0, MOVABLE)
        target.tick(0)
        assert expire(target) == expected
