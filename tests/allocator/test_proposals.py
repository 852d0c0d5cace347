"""A proposal that no kernel has: owned pageblocks (S12)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.events import advance
from pagealloc_model.allocator.state import make_state, place_buddies
from pagealloc_model.base.errors import PolicyError
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.ownership_options import OwnershipOptions
from pagealloc_model.policy.policy import Policy
from tests.allocator.conservation import conserve, misplaced_pages
from tests.allocator.invariants import broken_invariants, owners
from tests.allocator.small_state import BLOCK, KERNEL, one_zone


def owning(**options: object) -> Policy:
    return Policy(pageblock_ownership="pcp_buddy", ownership=OwnershipOptions(**options))


OPTIONS: tuple[dict[str, object], ...] = (
    {},
    {"fit_test": "always"},
    {"fit_test": "always", "ownership_ends": "aged", "merges_at": "free"},
    {"fit_test": "always", "ownership_ends": "drained", "full_drain": "end", "type_change": "end"},
    {"fit_test": "always", "drain_from": "freed_list", "fragments": "as_usual"},
    {"fit_test": "high_max", "offline_owner": "keep", "plain_frees": "local"},
    {"fit_test": "always", "remote_free": "trylock"},
    {"fit_test": "always", "remote_free": "lockless"},
    {"fit_test": "always", "remote_overflow": "owner"},
    {"fit_test": "always", "recorded_cap": 2, "recover_limit": 1, "recorded_lists": "per_type"},
    {"fit_test": "always", "remote_counts": False, "chunk_search": "smallest"},
    {"fit_test": "always", "routes_frees": False, "pressure_claims": False},
    {"fit_test": "always", "recovers": False, "owning_types": "movable", "claims_up_to_order": 0},
    {"claims_blocks": False},
)


@pytest.mark.parametrize("number", range(len(OPTIONS)))
def test_no_page_is_lost_or_in_two_places(number: int) -> None:
    options = OPTIONS[number]
    rules = ("6.12", "7.2")[number % 2]
    done = conserve(owning(**options), operations=4000, chunk=500, seed=number, rules=rules)
    assert done.broken == ()
    assert done.checks == 8
    claims = options.get("claims_blocks", True)
    assert (done.state.owned_sets().sum(axis=(0, 1))[at.BLOCKS_CLAIMED] > 0) == claims


def test_the_random_operations_do_everything() -> None:
    """A check that looks at nothing would pass: types change, CPUs die, blocks are recovered."""
    done = conserve(owning(fit_test="always"), operations=8000, chunk=2000, seed=5)
    assert done.broken == ()
    state = done.state
    counts = state.owned_sets().sum(axis=(0, 1))
    phases = counts[at.SET_PHASES : at.BLOCKS_CLAIMED].reshape(at.PHASES, at.PHASE_STRIDE)
    assert (phases > 0).all()
    assert (counts[at.BLOCKS_CLAIMED : at.OWNED_SET_STRIDE] > 0).sum() == 9, "all but busy locks"
    assert (state.sites()[:, :, :, at.SITE_ACQUISITIONS].sum(axis=(0, 1)) > 0)[
        [at.SITE_DRAIN_ALL, at.SITE_RESERVE]
    ].all()
    assert state.st[at.FALLBACKS : at.FALLBACKS + 2000].sum() > 0


def test_a_page_in_two_places_is_found() -> None:
    state = conserve(owning(), operations=100, chunk=100).state
    page = int(np.flatnonzero(state.pages["where"] == at.ALLOCATED)[0])
    state.pages["where"][page] = at.NOWHERE
    assert misplaced_pages(state)[0] == f"page {page} is in 0 places"


class Lockless:
    """CPU 0 has taken a block page by page but for the last, and CPU 1 freed its pages 3 and 5."""

    def __init__(self, **options: object) -> None:
        policy = owning(fit_test="always", remote_free="lockless", **options)
        machine, rules = replace(one_zone(), nr_cpus=2), KernelRules.preset("7.2")
        self.state = make_state(machine, rules, policy)
        self.state.st[at.NEXT_TICK] = at.NEVER
        self.places = np.full(BLOCK + 8, -1, np.int32)
        place_buddies(
            self.state.arrays(), np.array([0, BLOCK], np.int32), np.array([9, 9], np.int8)
        )
        for number in range(BLOCK - 1):
            assert self.alloc(number) == number
        self.free(3, 5)

    def take(self, **fields: int) -> None:
        events = np.zeros(1, at.EVENT)
        for name, value in fields.items():
            events[name] = value
        self.state.st[at.LOG_ROWS] = 0
        assert advance(self.state.arrays(self.places), events, 0, 1, -1) == 1
        assert broken_invariants(self.state) == []

    def alloc(self, number: int) -> int:
        """CPU 0 asks for a page; which it is."""
        self.take(operation=at.ALLOC, object=number, migratetype=at.MOVABLE, bits=KERNEL)
        return int(self.places[number])

    def free(self, *numbers: int, cpu: int = 1) -> None:
        for number in numbers:
            self.take(operation=at.FREE, object=number, cpu=cpu)

    def counted(self) -> tuple[int, int]:
        """Pages in CPU 0's count, and on its lockless list."""
        lockless = self.state.lockless_lists()[0, 0, at.LOCKLESS_PAGES]
        return int(self.state.pcp_region(0, 0)[at.PCP_COUNT]), int(lockless)


def test_an_allocation_absorbs_pages_freed_elsewhere_newest_first() -> None:
    machine = Lockless()
    assert machine.counted() == (1, 2)
    assert [machine.alloc(BLOCK + each) for each in range(3)] == [3, 5, BLOCK - 1]
    assert machine.counted() == (0, 0)


@pytest.mark.parametrize(("merges_at", "taken", "largest"), [("drain", 3, 0), ("free", 5, 2)])
def test_absorbed_pages_merge_when_the_lists_do(merges_at: str, taken: int, largest: int) -> None:
    """Pages 1 to 3 and 5 are freed elsewhere, page 0 by the owner."""
    machine = Lockless(merges_at=merges_at)
    machine.free(1, 2)
    machine.free(0, cpu=0)
    assert machine.alloc(BLOCK) == taken
    on_lists = machine.state.pages["where"] == at.ON_PCP
    assert machine.state.pages["order"][on_lists].max() == largest
    assert machine.counted() == (5, 0)


def test_an_absorbed_page_is_plain_once_its_block_has_no_owner() -> None:
    machine = Lockless()
    owners(machine.state)[0] = 0
    machine.alloc(BLOCK)
    flags = machine.state.pages["flags"] & at.MERGEABLE
    assert (flags[5], flags[BLOCK - 1]) == (0, at.MERGEABLE)


def test_a_full_drain_visits_who_counts_pages_and_absorbs_there() -> None:
    machine = Lockless()
    machine.take(operation=at.DRAIN_ALL, cpu=1)
    assert machine.counted() == (0, 0)
    machine.free(7)
    machine.take(operation=at.DRAIN_ALL, cpu=1)
    assert machine.counted() == (0, 1)
    machine.take(operation=at.DRAIN_LOCAL, cpu=0)
    assert machine.counted() == (0, 0)


def test_a_dead_owner_leaves_no_page_behind() -> None:
    machine = Lockless()
    machine.take(operation=at.CPU_DIES, offset=0, cpu=1)
    assert machine.counted() == (0, 0)
    machine.free(7)
    assert machine.counted() == (0, 0)


def test_a_lockless_list_miscounted_is_found() -> None:
    machine = Lockless()
    machine.state.lockless_lists()[0, 0, at.LOCKLESS_PAGES] = 1
    assert broken_invariants(machine.state) == ["zone 0 cpu 0: lockless list: 2 pages, 1 counted"]


@pytest.mark.long
def test_no_page_is_lost_over_many_operations() -> None:
    for seed, options in enumerate(OPTIONS):
        assert conserve(owning(**options), operations=200_000, chunk=50_000, seed=seed).broken == ()


def test_kernels_that_they_cannot_be_added_to_are_refused() -> None:
    with pytest.raises(PolicyError, match=r"pcp_buddy: not with rules 6\.1"):
        make_state(one_zone(), KernelRules.preset("6.1"), owning())
