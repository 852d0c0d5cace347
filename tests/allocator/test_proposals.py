"""A proposal that no kernel has: owned pageblocks (S12)."""

from __future__ import annotations

import numpy as np
import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import make_state
from pagealloc_model.base.errors import PolicyError
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.ownership_options import OwnershipOptions
from pagealloc_model.policy.policy import Policy
from tests.allocator.conservation import conserve, misplaced_pages
from tests.allocator.small_state import one_zone


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


@pytest.mark.long
def test_no_page_is_lost_over_many_operations() -> None:
    for seed, options in enumerate(OPTIONS):
        assert conserve(owning(**options), operations=200_000, chunk=50_000, seed=seed).broken == ()


def test_kernels_that_they_cannot_be_added_to_are_refused() -> None:
    with pytest.raises(PolicyError, match=r"pcp_buddy: not with rules 6\.1"):
        make_state(one_zone(), KernelRules.preset("6.1"), owning())
