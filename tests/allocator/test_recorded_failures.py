"""What a request that failed in the recording leaves behind (S10.4)."""

from __future__ import annotations

import numpy as np
import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.events import advance
from tests.allocator.small_state import Small, one_zone

BLOCK = 512


def after_a_failure(bits: int) -> Small:
    """A page on a list and two reserved blocks with free pages; then an order-9 request fails."""
    small = Small("7.2", machine=one_zone())
    for block in (6, 7):
        small.tag(block, at.HIGHATOMIC)
        small.put_free(9, block * BLOCK)
    small.zone[at.ZONE_RESERVED_HIGHATOMIC] = 2 * BLOCK
    small.put_allocated(0, 3, movable=True)
    small.free(3)
    assert small.pageset[at.PCP_COUNT] == 1
    events = np.zeros(1, at.EVENT)
    events["operation"] = at.RECORDED_FAILURE
    events["order"] = 9
    events["migratetype"] = at.MOVABLE
    events["bits"] = at.GFP_DIRECT_RECLAIM | bits
    state = small.state
    places = np.full(1, -1, np.int32)
    advance(state.arrays(places), events, 0, 1, -1)
    assert state.st[at.COUNT_RECORDED_FAILURE] == 1
    return small


@pytest.mark.parametrize(("reclaimed", "listed", "reserved"), [(0, 1, 2), (1, 0, 1)])
def test_it_made_room_if_reclaim_ran_for_it(reclaimed: int, listed: int, reserved: int) -> None:
    small = after_a_failure(reclaimed << at.RECLAIM_SHIFT)
    assert small.pageset[at.PCP_COUNT] == listed
    assert small.zone[at.ZONE_RESERVED_HIGHATOMIC] == reserved * BLOCK


@pytest.mark.parametrize(("bits", "runs"), [(0, 0), (at.GFP_KSWAPD_RECLAIM, 1)])
def test_it_found_no_page_and_may_have_woken_kswapd(bits: int, runs: int) -> None:
    """Free order-9 pages of the reserve are none to it, and none to kswapd."""
    small = after_a_failure(bits)
    assert small.zone[at.ZONE_BELOW_HIGH] == 1
    assert small.state.st[at.KSWAPD_RUNS] == runs
