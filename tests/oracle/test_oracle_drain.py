"""Drains and decay of per-CPU lists by hand (S4.7-S4.9, S5.6)."""

from __future__ import annotations

from dataclasses import replace

from tests.oracle import OraclePolicy
from tests.oracle.pcp_bench import TUNED, holds, page_set, ready, take
from tests.oracle.scenarios import (
    events_named,
    one_zone,
    oracle,
)


def test_commit_chunks() -> None:
    """S4.7: 28 pages in one hold, or by 4 (7.2); the policy overrides the rules."""
    sizes = {}
    for rules, batched in (("6.12", None), ("7.2", None), ("6.12", True), ("7.2", False)):
        policy = OraclePolicy(
            pcp_batch=4, pcp_high_min=32, pcp_high_max=32, pcp_free_batched=batched
        )
        target = ready(policy, rules)
        pfns = take(target, 64)
        target.drain_all()
        target.events.clear()
        for pfn in pfns[:32]:
            target.free(0, pfn, 0)
        sizes[rules, batched] = [event[3] for event in events_named(target, "hold")]
        assert page_set(target).count == 4
        target.check()
    assert sizes == {
        ("6.12", None): [28],
        ("7.2", None): [4] * 7,
        ("6.12", True): [4] * 7,
        ("7.2", False): [28],
    }


def test_drains_exhaust_a_list_then_go_on_with_the_next() -> None:
    """S5.6: from list 4 on: list 4 tail first, list 13, then wrapping to list 0."""
    target = oracle(one_zone(8), "6.12", TUNED)
    target.put_pcp(0, 0, 0, 1)
    target.put_pcp(0, 0, 0, 3)
    target.put_pcp(0, 0, 4, 10)
    target.put_pcp(0, 0, 4, 20)
    target.put_pcp(0, 0, 13, 1024)
    seen: list[tuple[int, int]] = []
    objects = page_set(target).free_pcppages_bulk(
        517, 4, lambda pfn, order: seen.append((pfn, order))
    )
    assert seen == [(20, 1), (10, 1), (1024, 9), (3, 0)]
    assert objects == 4
    assert page_set(target).count == 1


def test_a_huge_page_overshoots_the_budget() -> None:
    target = oracle(one_zone(8), "6.12", TUNED)
    target.put_pcp(0, 0, 13, 1024)
    target.put_pcp(0, 0, 13, 2048)
    seen: list[int] = []
    page_set(target).free_pcppages_bulk(1, 13, lambda pfn, _order: seen.append(pfn))
    assert seen == [2048]
    assert page_set(target).count == 512


def test_full_drains_go_by_the_largest_batch() -> None:
    """S4.9: 300 pages with batch 4, S 5: 128 + 128 + 44; CPU by CPU."""
    target = oracle(one_zone(8, nr_cpus=2), "7.2", TUNED)
    for cpu, count in ((0, 300), (1, 3)):
        for pfn in range(count):
            target.put_pcp(0, cpu, 1, cpu * 1024 + pfn)
    target.drain_all()
    assert holds(target) == [("drain", "drain_all", size) for size in (128, 128, 44, 3)]
    target.check()
    target.events.clear()
    target.drain_all()
    assert target.events == []


def test_full_drains_go_by_batch_where_asked() -> None:
    """S4.9: 10 pages with batch 4: 4 + 4 + 2."""
    target = oracle(one_zone(8), "7.2", replace(TUNED, pcp_drain_batched=True))
    for pfn in range(10):
        target.put_pcp(0, 0, 1, pfn)
    target.drain_all()
    assert holds(target) == [("drain", "drain_all", size) for size in (4, 4, 2)]


def test_decay_goes_by_batch_or_not_as_asked() -> None:
    """S4.8: 12 pages above the limit, in one hold."""
    target = oracle(one_zone(8), "7.2", replace(TUNED, pcp_decay_batched=False))
    for pfn in range(100):
        target.put_pcp(0, 0, 1, pfn)
    target.set_pcp_high(0, 0, 100)
    target.tick(0)
    assert holds(target) == [("drain", "decay", 12)]


def test_decay_lowers_high_by_an_eighth_and_drains_the_rest() -> None:
    """S4.8: high 100 -> 88; 100 pages: 12 above, in chunks of 4; from list 0 on."""
    target = oracle(one_zone(8), "7.2", TUNED)
    for pfn in range(100):
        target.put_pcp(0, 0, 1, pfn)
    target.set_pcp_high(0, 0, 100)
    target.tick(0)
    assert page_set(target).high == 100 - 12
    assert holds(target) == [("drain", "decay", 4)] * 3
    assert page_set(target).count == 88
    target.tick(0)
    assert page_set(target).high == 77
    target.check()


def test_decay_is_bounded_by_what_one_visit_may_free() -> None:
    """S4.8: 400 pages at high 256: 400 - 128 = 272 is above 256 - 32."""
    target = oracle(one_zone(8), "7.2", TUNED)
    for pfn in range(400):
        target.put_pcp(0, 0, 1, pfn)
    target.set_pcp_high(0, 0, 256)
    target.tick(0)
    assert page_set(target).high == 272
    assert page_set(target).count == 272


def test_decay_stops_at_high_min() -> None:
    target = oracle(one_zone(8), "7.2", TUNED)
    target.set_pcp_high(0, 0, 33)
    target.tick(0)
    assert page_set(target).high == 32
    target.tick(0)
    assert page_set(target).high == 32
    assert target.events == []
