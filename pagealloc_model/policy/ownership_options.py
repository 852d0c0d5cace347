"""Choices that the pcp buddy allocator leaves open, each choice a switch with a default (S12.6)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from pagealloc_model.policy.policy_fields import Given, Setting, check_setting, documented, setting

_RFC = '"[RFC 2/2] mm: page_alloc: per-cpu pageblock buddy allocator"'
_COVER = '"[RFC 0/2] mm: page_alloc: pcp buddy allocator"'


def _option(meaning: str, default: Setting, *, kernel_name: str = "pcp buddy", **about: Any) -> Any:
    """A field of OwnershipOptions; unlike a policy's it always has a value."""
    return setting(kernel_name, meaning, default=default, starts_unset=False, **about)


_refill = partial(_option, group="ownership: refill")
_free = partial(_option, group="ownership: frees")
_drain = partial(_option, group="ownership: merging and drains")
_life = partial(_option, group="ownership: when it ends")
_ablation = partial(_option, group="ownership: parts left out")


@documented
@dataclass(frozen=True, kw_only=True)
class OwnershipOptions(metaclass=Given):
    """Open choices of pageblock ownership; the defaults are the model's reading of the posts.

    Each field's metadata is as that of `Policy`'s fields; `source` says what its default rests on,
    a post or, where none settles it, that it is open.

    Raises:
        PolicyError: a value outside its range, of the wrong kind, or no choice of its field.
    """

    fit_test: str = _refill(
        "a whole block is claimed if it fits under pcp->high, under high_max, or always",
        "high",
        choices=("high", "high_max", "always"),
        kernel_name="pcp->high limit",
        source=f"S12.4; {_COVER}: if a block does not fit the pcp->high limit",
    )
    claims_up_to_order: int = _refill(
        "largest request for which whole blocks are claimed",
        10,
        unit="order",
        maximum=10,
        source="S12.6 (7): open; the default excludes none",
    )
    owning_types: str = _refill(
        "migratetypes whose blocks can be owned",
        "all",
        choices=("all", "movable"),
        source="S12.6 (7): open; the posts name no type that is left out",
    )
    pressure_claims: bool = _refill(
        "blocks are claimed under RECLAIM_ACTIVE and BELOW_HIGH too",
        True,
        source="S12.6 (13): open; S12.4 degrades only by the limit and by lack of whole blocks",
    )
    recover_limit: int = _refill(
        "entries of the list of recorded blocks that one refill looks at; 0 is all",
        0,
        unit="blocks",
        maximum=1 << 16,
        source=f"S12.6 (16); {_RFC} as reviewed: the walk has no bound",
    )
    recorded_lists: str = _refill(
        "recorded blocks of a CPU are on one list, or on one for each migratetype",
        "one",
        choices=("one", "per_type"),
        kernel_name="pcp->owned_blocks",
        source=f"S12.6 (12); {_RFC}: one list, a list for each type was asked for in review",
    )
    chunk_search: str = _refill(
        "phase 2 takes the largest buddies that fit what is wanted, or the smallest sufficient",
        "largest",
        choices=("largest", "smallest"),
        source=f"S12.3; {_RFC}: chunks larger than the request are pulled",
    )
    cma_first: bool = _refill(
        "requests for which CMA pages come first skip the phases before the classic one",
        False,
        source=f"S12.6 (7); {_RFC}: a reviewer noted the shift towards Movable over CMA",
    )
    remote_free: str = _free(
        "frees wait for pcp->lock, try it and else go to the zone, or, on another CPU than the "
        "owner, take no lock",
        "spin",
        choices=("spin", "trylock", "lockless"),
        kernel_name="pcp->lock",
        source="S12.9; the RFC waits, series on top of it try (April 2026) or use no lock (May)",
    )
    remote_overflow: str = _free(
        "a list that remote frees push above its limit is drained by the CPU that frees, or at the "
        "owner's next free",
        "freer",
        choices=("freer", "owner"),
        source="S12.6 (4): open; the default is today's code run on the owner's pageset",
    )
    remote_counts: bool = _free(
        "remote frees change the owner's free_count, alloc_factor and high-order flag",
        True,
        source="S12.6 (5): open; the default is today's code run on the owner's pageset",
    )
    plain_frees: str = _free(
        "pages that a refill took unowned from an owned block are freed to the owner or locally",
        "owner",
        choices=("owner", "local"),
        source=f"S12.6 (6); {_COVER}: all frees into an owned block go to its owner",
    )
    merges_at: str = _drain(
        "buddies on the lists merge before a drain, or at every free",
        "drain",
        choices=("drain", "free"),
        source=f"S12.6 (10); {_RFC}: a bottom-up merge pass runs on drain",
    )
    drain_from: str = _drain(
        "drains return the largest chunks first, or begin at the freed page's list",
        "largest",
        choices=("largest", "freed_list"),
        source=f"S12.5; {_RFC}: larger chunks are freed under zone->lock",
    )
    fragments: str = _drain(
        "drained fragments of owned blocks go to the tail of the zone's lists, or as usual",
        "tail",
        choices=("tail", "as_usual"),
        source=f"S12.6 (17); {_COVER}: pages of partial blocks are queued last",
    )
    recorded_cap: int = _drain(
        "blocks that a CPU can have recorded in a zone; beyond it ownership ends; 0 is no cap",
        0,
        unit="blocks",
        maximum=1 << 16,
        kernel_name="pcp->owned_blocks",
        source=f"S12.6 (12); {_RFC} as reviewed: a list without a cap",
    )
    ownership_ends: str = _life(
        "ownership of a block ends once it is whole again, once it is drained, or with age",
        "whole",
        choices=("whole", "drained", "aged"),
        source="S12.6 (2): open in the RFC; a later series on top: a merge clears the owner",
    )
    type_change: str = _life(
        "an owned block whose type changes among the three stays owned or not",
        "keep",
        choices=("keep", "end"),
        source="S12.6 (8): open",
    )
    full_drain: str = _life(
        "a full drain leaves blocks owned, or ends ownership of the recorded ones",
        "keep",
        choices=("keep", "end"),
        kernel_name="drain_pages_zone()",
        source="S12.6 (11): open",
    )
    offline_owner: str = _life(
        "a CPU that goes offline loses its blocks, or keeps them for when it returns",
        "end",
        choices=("end", "keep"),
        kernel_name="page_alloc_cpu_dead()",
        source="S12.6 (9): open",
    )
    routes_frees: bool = _ablation(
        "frees go to the owner's lists; otherwise to those of the CPU that frees",
        True,
        source="S12.1; left out, what remains is coarse refills and merging",
    )
    claims_blocks: bool = _ablation(
        "refills claim whole blocks; otherwise only chunks",
        True,
        source="S12.3; left out, nothing is owned and refills are merely chunky",
    )
    recovers: bool = _ablation(
        "refills take fragments of recorded blocks back first",
        True,
        source="S12.3; left out, fragments stay in the zone until they are whole",
    )

    def __post_init__(self) -> None:
        """Check every value against its field's range."""
        for option in fields(self):
            check_setting(f"ownership.{option.name}", option.metadata, getattr(self, option.name))

    def given(self) -> dict[str, Setting]:
        """The options that differ from their defaults."""
        return {
            option.name: value
            for option in fields(self)
            if (value := getattr(self, option.name)) != option.default
        }
