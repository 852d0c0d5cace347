"""Pageblock ownership: invariants over random operations, and cases worked out by hand."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from pagealloc_model.notebooks.studies.conservation import BLOCK_ORDER, conserve, misplaced_pages

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.events import advance
from pagealloc_model.allocator.invariants import broken_invariants, owners, set_words
from pagealloc_model.allocator.ownership import ownership_words
from pagealloc_model.allocator.state import make_state
from pagealloc_model.base.errors import PolicyError
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.ownership_options import OwnershipOptions
from pagealloc_model.policy.policy import Policy
from pagealloc_model.recording.machine import Machine, Zone
from pagealloc_model.studies.synthetic.memory import free_everything


def owning(**options: object) -> Policy:
    return Policy(pageblock_ownership="pcp_buddy", ownership=OwnershipOptions(**options))


OPTIONS: tuple[dict[str, object], ...] = (
    {},
    {"fit_test": "always"},
    {"fit_test": "always", "ownership_ends": "aged", "merges_at": "free"},
    {"fit_test": "always", "ownership_ends": "drained", "full_drain": "end", "type_change": "end"},
    {"fit_test": "always", "drain_from": "freed_list", "fragments": "as_usual"},
    {"fit_test": "high_max", "offline_owner": "keep", "plain_frees": "local"},
    {"fit_test": "always", "remote_busy_per_1000": 300, "remote_busy": "local"},
    {"fit_test": "always", "remote_busy_per_1000": 500, "remote_overflow": "owner"},
    {"fit_test": "always", "recorded_cap": 2, "recover_limit": 1, "recorded_lists": "per_type"},
    {"fit_test": "always", "remote_counts": False, "chunk_search": "smallest"},
    {"fit_test": "always", "routes_frees": False, "pressure_claims": False},
    {"fit_test": "always", "recovers": False, "owning_types": "movable", "claims_up_to_order": 0},
    {"claims_blocks": False},
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("rules", ["6.12", "7.2"])
def test_no_page_is_lost_or_in_two_places(options: dict[str, object], rules: str) -> None:
    done = conserve(
        owning(**options), operations=4000, chunk=500, seed=len(str(options)), rules=rules
    )
    assert done.broken == ()
    assert done.checks == 8
    counts = set_words(done.state).sum(axis=(0, 1))
    claims = options.get("claims_blocks", True)
    assert (counts[at.BLOCKS_CLAIMED] > 0) == claims
    assert counts[at.REMOTE_FREES] > 0 or not claims or not options.get("routes_frees", True)


def test_the_random_operations_do_everything() -> None:
    """A check that looks at nothing would pass: types change, CPUs die, blocks are recovered."""
    done = conserve(owning(fit_test="always"), operations=8000, chunk=2000, seed=5)
    assert done.broken == ()
    state = done.state
    counts = set_words(state).sum(axis=(0, 1))
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


@pytest.mark.long
def test_no_page_is_lost_over_many_operations() -> None:
    for seed, options in enumerate(OPTIONS):
        assert conserve(owning(**options), operations=200_000, chunk=50_000, seed=seed).broken == ()


class Zone64:
    """A zone of 8 blocks of 64 pages, two CPUs, and what a test asks of it."""

    def __init__(self, **options: object) -> None:
        pages = 8 << BLOCK_ORDER
        zone = Zone(
            name="DMA32",
            start_pfn=0,
            spanned=pages,
            present=pages,
            managed=pages,
            min=0,
            low=0,
            high=0,
        )
        policy = Policy(
            pcp_batch=4,
            pcp_high_min=100,
            pcp_high_max=100,
            pageblock_ownership="pcp_buddy",
            ownership=OwnershipOptions(**options),
        )
        single = Machine(zones=(zone,), nr_cpus=2, pageblock_order=BLOCK_ORDER, max_order=8)
        self.state = make_state(single, KernelRules.preset("7.2"), policy)
        free_everything(self.state)
        self.places = np.full(1000, -1, np.int32)
        self.asked = 0

    def do(self, operation: int, cpu: int = 0, **fields: int) -> None:
        """Apply one event."""
        events = np.zeros(1, at.EVENT)
        events["operation"] = operation
        events["cpu"] = cpu
        for name, value in fields.items():
            events[name] = value
        state = self.state
        advance(state.arrays(self.places), events, 0, 1, -1)
        assert broken_invariants(state) == []

    def take(self, cpu: int = 0, order: int = 0) -> int:
        """Allocate Movable pages; the object's number."""
        number = self.asked
        self.asked += 1
        self.do(at.ALLOC, cpu, object=number, order=order, migratetype=at.MOVABLE)
        return number

    def put(self, number: int, cpu: int = 0, order: int = 0, **fields: int) -> None:
        """Free an object."""
        self.do(at.FREE, cpu, object=number, order=order, **fields)

    def owner(self, number: int) -> int:
        """Owner of the block an object lies in, -1 for none."""
        block = int(self.places[number]) >> BLOCK_ORDER
        return int(owners(self.state)[block]) - 1

    def count(self, cpu: int, counter: int) -> int:
        return int(set_words(self.state)[0, cpu, counter])

    def listed(self, cpu: int) -> int:
        return int(self.state.pcp_region(0, cpu)[at.PCP_COUNT])

    def free(self) -> int:
        return int(self.state.zone_region(0)[at.ZONE_FREE])


def test_a_refill_takes_a_whole_block_and_the_cpu_owns_it() -> None:
    zone = Zone64()
    page = zone.take()
    assert zone.owner(page) == 0
    assert zone.listed(0) == 63
    assert zone.count(0, at.LIST_SPLITS) == BLOCK_ORDER
    assert zone.state.sites()[0, 0, at.SITE_REFILL].tolist()[:3] == [1, 1, 64]


def test_pages_are_freed_to_the_owner_and_counted_for_who_frees() -> None:
    zone = Zone64()
    page = zone.take()
    zone.put(page, cpu=1)
    assert (zone.listed(0), zone.listed(1)) == (64, 0)
    assert (zone.count(1, at.REMOTE_FREES), zone.count(0, at.REMOTE_FREES)) == (1, 0)
    words = zone.state.pcp_words(at.PCP_LOCKS, 2)[0]
    assert words.tolist() == [[1, 0], [1, 1]], "CPU 1 took CPU 0's lock over"


def test_without_routing_pages_stay_with_who_frees() -> None:
    zone = Zone64(routes_frees=False)
    page = zone.take()
    zone.put(page, cpu=1)
    assert (zone.listed(0), zone.listed(1)) == (63, 1)


def test_a_block_that_does_not_fit_is_taken_in_chunks_that_nobody_owns() -> None:
    zone = Zone64()
    pages = [zone.take() for _ in range(64)]
    zone.take(order=3)
    assert zone.count(0, at.BLOCKS_CLAIMED) == 2
    page = zone.take(order=2)
    assert zone.owner(pages[0]) == zone.owner(page) == 0
    crowded = Zone64(fit_test="high")
    crowded.state.pcp_region(0, 0)[at.PCP_HIGH_MAX] = 63
    crowded.state.pcp_region(0, 0)[at.PCP_HIGH_MIN] = 63
    page = crowded.take()
    assert crowded.owner(page) == -1
    assert crowded.listed(0) == 3, "a chunk of 4 pages, as one object"


def test_a_drained_block_is_merged_on_the_list_and_loses_its_owner() -> None:
    zone = Zone64()
    page = zone.take()
    zone.put(page, cpu=1)
    zone.do(at.DRAIN_ALL, cpu=1)
    assert zone.free() == 8 << BLOCK_ORDER
    assert zone.owner(page) == -1
    assert zone.count(1, at.LIST_MERGES) == BLOCK_ORDER
    assert zone.state.sites()[0, 0, at.SITE_DRAIN_ALL].tolist()[:3] == [1, 1, 64]


def test_fragments_are_recorded_queued_last_and_recovered() -> None:
    zone = Zone64()
    page = zone.take()
    zone.do(at.DRAIN_ALL)
    assert zone.owner(page) == 0
    assert zone.count(0, at.BLOCKS_RECORDED) == 1
    again = zone.take()
    assert zone.places[again] >> BLOCK_ORDER == zone.places[page] >> BLOCK_ORDER
    assert zone.count(0, at.BLOCKS_RECOVERED) == 1
    assert zone.count(0, at.BLOCKS_CLAIMED) == 1, "no other block is touched"
    fresh = Zone64(recovers=False)
    page = fresh.take()
    fresh.do(at.DRAIN_ALL)
    again = fresh.take()
    assert fresh.places[again] >> BLOCK_ORDER != fresh.places[page] >> BLOCK_ORDER


def test_a_dead_cpu_loses_its_blocks_or_keeps_them() -> None:
    zone = Zone64()
    page = zone.take()
    zone.do(at.CPU_DIES, cpu=1, offset=0)
    assert zone.owner(page) == -1
    keeping = Zone64(offline_owner="keep")
    page = keeping.take()
    keeping.do(at.CPU_DIES, cpu=1, offset=0)
    assert keeping.owner(page) == 0
    keeping.put(page, cpu=1)
    assert (keeping.listed(0), keeping.listed(1)) == (0, 1), "nobody frees to a dead CPU"
    keeping.do(at.CPU_RETURNS, cpu=1, offset=0)
    assert keeping.places[keeping.take()] >> BLOCK_ORDER == keeping.places[page] >> BLOCK_ORDER


def test_a_folio_batch_shares_a_lock_until_the_owner_changes() -> None:
    zone = Zone64()
    mine, theirs = [zone.take(0) for _ in range(3)], [zone.take(1) for _ in range(2)]
    before = zone.state.pcp_words(at.PCP_LOCKS, 1)[0, 0, 0]
    for number in (*mine[:2], *theirs, mine[2]):
        zone.put(number, bits=at.FREED_IN_BATCH)
    assert zone.state.pcp_words(at.PCP_LOCKS, 1)[0, 0, 0] - before == 3


def test_kernels_that_it_cannot_be_added_to_are_refused() -> None:
    with pytest.raises(PolicyError, match=r"pcp_buddy: not with rules 6\.1"):
        conserve(owning(), operations=1, chunk=1, rules="6.1")


def test_every_option_has_its_word() -> None:
    names = [each.name for each in fields(OwnershipOptions)]
    words = [getattr(at, f"OPTION_{name.upper()}") for name in names]
    assert words == list(at.OPTION_WORDS.values())
    policy = Policy(
        pageblock_ownership="pcp_buddy",
        ownership=OwnershipOptions(recorded_cap=7, ownership_ends="aged", recovers=False),
    )
    made = ownership_words(policy, pagesets=2, blocks=3, base=100)
    assert made[at.OPTION_RECORDED_CAP] == 7
    assert made[at.OPTION_OWNERSHIP_ENDS] == at.ENDS_AGED
    assert made[at.OPTION_RECOVERS] == 0
