"""Superpageblocks, worked out by hand: parts of lists, searches, what is refused (S14)."""

from __future__ import annotations

import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.invariants import broken_invariants
from pagealloc_model.allocator.superpageblocks import RANGES, TAINTS
from pagealloc_model.base.errors import PolicyError
from pagealloc_model.policy.policy import Policy
from tests.allocator.small_state import BLOCK, Small, one_zone

SPAN = 1 << 10
"""Pages of a superpageblock of order 10: two blocks of 512."""


def small(blocks: int = 8, order: int = 10) -> Small:
    """One zone; single pages are not cached, so that each request goes to the buddy."""
    policy = Policy(superpageblock_order=order, pcp_batch=1, pcp_high_min=0, pcp_high_max=0)
    return Small("7.2", one_zone(blocks), policy)


def parts_broken(target: Small) -> list[str]:
    """What is wrong with parts and counts; the machines here are not whole otherwise."""
    words = ("parts", "tainting")
    return [each for each in broken_invariants(target.state) if any(w in each for w in words)]


def test_clean_buddies_come_before_tainted_ones() -> None:
    """Block 2, unmovable, taints the second of four superpageblocks."""
    target = small()
    target.tag(2, at.UNMOVABLE)
    target.put_free(3, 3 * BLOCK, 0, 3 * BLOCK + 64, 64)
    assert target.list(3, at.MOVABLE) == [0, 64, 3 * BLOCK, 3 * BLOCK + 64]
    assert not parts_broken(target)


def test_movable_pages_are_cut_from_large_clean_buddies_before_small_tainted_ones() -> None:
    target = small()
    target.tag(2, at.UNMOVABLE)
    target.put_free(0, 3 * BLOCK + 8)
    target.put_free(5, 64)
    assert target.alloc(0, at.MOVABLE) == 64
    target.put_allocated(5, 64)
    assert not parts_broken(target)


def test_kernel_pages_claim_a_small_tainted_buddy_before_a_large_clean_one() -> None:
    """Though nothing else of the block would suit: its other pages are in use and movable."""
    target = small()
    target.tag(2, at.UNMOVABLE)
    target.put_allocated(0, *range(3 * BLOCK, 3 * BLOCK + 8), movable=True)
    target.put_free(0, 3 * BLOCK + 8)
    target.put_free(10, 0)
    assert target.alloc(0, at.UNMOVABLE) == 3 * BLOCK + 8
    assert target.block_type(3) == at.UNMOVABLE
    assert target.block_type(0) == at.MOVABLE


def test_a_claim_in_a_clean_superpageblock_taints_it() -> None:
    target = small()
    target.put_free(9, 0, BLOCK)
    target.put_free(3, 2 * SPAN, SPAN)
    assert target.alloc(0, at.UNMOVABLE) == 0
    assert not parts_broken(target)
    st = target.state.st
    base = st[at.SUPERPAGEBLOCKS]
    counts = st[st[base + TAINTS] :][: st[base + RANGES]]
    assert counts.tolist() == [1, 0, 0, 0]
    assert target.list(9, at.MOVABLE) == [BLOCK]
    assert target.alloc(4, at.MOVABLE) == BLOCK, "nothing clean is large enough"


def test_a_tainted_superpageblock_becomes_clean_again() -> None:
    """A movable request claims its only unmovable block, which is free."""
    target = small()
    target.tag(2, at.UNMOVABLE)
    target.put_free(3, 3 * BLOCK, 0)
    target.put_free(9, 2 * BLOCK)
    assert target.list(3, at.MOVABLE) == [0, 3 * BLOCK]
    assert target.alloc(9, at.MOVABLE) == 2 * BLOCK
    assert target.block_type(2) == at.MOVABLE
    assert not parts_broken(target)
    assert target.alloc(3, at.MOVABLE) == 0


@pytest.mark.parametrize(
    ("rules", "policy", "words"),
    [
        ("7.2", Policy(superpageblock_order=9), "give 0 or 10 and more"),
        ("6.1", Policy(superpageblock_order=10), "lists_match_blocks"),
        (
            "7.2",
            Policy(superpageblock_order=10, pageblock_ownership="pcp_buddy"),
            "not together with pageblock_ownership",
        ),
    ],
)
def test_what_cannot_have_them_is_refused(rules: str, policy: Policy, words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        Small(rules, one_zone(), policy)
