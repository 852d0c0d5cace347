"""The open parameters of pageblock ownership (S12.6), all resolved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class OracleOwnership:
    """Named switches of the proposal; the defaults are its most likely reading.

    Attributes:
        fit_test: what a claimed block must fit under: the current limit of the lists, its upper
            bound, or nothing.
        ownership_ends: when a block is whole again only, with the first page drained from it, or
            at its owner's next tick after that.
        remote_busy: what a free does that finds its owner's lists locked: free to the zone, to the
            freer's own list, or wait.
        remote_busy_per_1000: how many remote frees of 1000 find them locked.
        remote_overflow: who drains lists that a remote free pushed over their limit.
        remote_counts: remote frees change alloc_factor, free_count and prev_free_high_order.
        plain_frees: where pages of an owned block go that were handed out as plain ones.
        owning_types: types of requests that claim blocks.
        claims_up_to_order: largest order of requests that claim blocks.
        type_change: whether a block stays owned when it changes between types 0 to 2.
        offline_owner: whether a dead CPU's blocks stay owned.
        merges_at: buddies on the lists are merged before a drain, or with every free instead.
        full_drain: whether a full drain ends the ownership of the blocks recorded by the lists.
        recorded_cap: most blocks recorded by a page set; 0: any number.
        recorded_lists: recorded blocks are on one list, or on one for each type.
        pressure_claims: blocks are claimed while the zone is below its high mark or reclaiming.
        recover_limit: most recorded blocks a refill looks at; 0: any number.
        fragments: where pages drained from owned blocks queue in the zone.
        chunk_search: chunks are sought from the largest that fits down, or from the smallest up.
        drain_from: drains take the largest pages first, or begin at the freed page's list.
        cma_first: where CMA would come before the own type, only the last phase runs.
        routes_frees: frees go to the block's owner.
        claims_blocks: refills claim blocks.
        recovers: refills recover what was drained from owned blocks.
    """

    fit_test: Literal["high", "high_max", "always"] = "high"
    ownership_ends: Literal["whole", "drained", "aged"] = "whole"
    remote_busy: Literal["zone", "local", "spin"] = "zone"
    remote_busy_per_1000: int = 0
    remote_overflow: Literal["freer", "owner"] = "freer"
    remote_counts: bool = True
    plain_frees: Literal["owner", "local"] = "owner"
    owning_types: Literal["all", "movable"] = "all"
    claims_up_to_order: int = 10
    type_change: Literal["keep", "end"] = "keep"
    offline_owner: Literal["end", "keep"] = "end"
    merges_at: Literal["drain", "free"] = "drain"
    full_drain: Literal["keep", "end"] = "keep"
    recorded_cap: int = 0
    recorded_lists: Literal["one", "per_type"] = "one"
    pressure_claims: bool = True
    recover_limit: int = 0
    fragments: Literal["tail", "as_usual"] = "tail"
    chunk_search: Literal["largest", "smallest"] = "largest"
    drain_from: Literal["largest", "freed_list"] = "largest"
    cma_first: bool = False
    routes_frees: bool = True
    claims_blocks: bool = True
    recovers: bool = True
