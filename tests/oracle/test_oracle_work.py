"""Work units of a hold of zone->lock, by hand (S11.1)."""

from __future__ import annotations

from tests.oracle.machine import Work
from tests.oracle.scenarios import KERNEL, one_zone, oracle


def test_a_refill_splits_a_buddy_once_per_order() -> None:
    """One page from an order-9 buddy: nine halvings, nothing merged."""
    target = oracle(one_zone(2, high=0))
    target.set_block_type(0, 1)
    target.put_free(0, 9, 1)
    target.alloc_as_recorded(0, 4, 1, 0, KERNEL)
    assert target.work[-1] == Work(splits=5)


def test_a_free_merges_and_lists_once() -> None:
    """Freed beside a free half, an order-8 page makes one order-9 buddy."""
    target = oracle(one_zone(2))
    target.set_block_type(0, 1)
    target.put_free(256, 8, 1)
    target.put_allocated(0, 8, movable=True)
    target.free(0, 0, 8)
    assert target.work == [Work(merges=1, inserts=1)]


def test_a_claim_scans_its_block_twice() -> None:
    """It looks at 256 used pages and one buddy, to judge and then to move (S6.3)."""
    target = oracle(one_zone(2))
    target.set_block_type(0, 1)
    target.put_free(0, 8, 1)
    target.put_allocated(256, 8, movable=False)
    pages = target.alloc_as_recorded(0, 4, 0, 0, KERNEL)
    assert pages == ((0, 4),)
    assert target.work[-1] == Work(splits=4, inserts=1, scanned=2 * 257)
