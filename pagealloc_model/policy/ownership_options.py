"""What the pcp buddy allocator leaves open, each choice a switch with a default (S12.6)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from pagealloc_model.policy.policy_fields import (
    BOOL,
    CHOICE,
    INT,
    Given,
    Setting,
    check_setting,
    documented,
    setting,
)

_RFC = '"[RFC 2/2] mm: page_alloc: per-cpu pageblock buddy allocator"'
_COVER = '"[RFC 0/2] mm: page_alloc: pcp buddy allocator"'


def _option(
    meaning: str,
    default: Setting,
    *,
    source: str,
    group: str,
    kernel_name: str = "pcp buddy",
    choices: tuple[str, ...] = (),
    unit: str = "",
    maximum: int = 1,
) -> Any:
    """A field of OwnershipOptions; unlike a policy's it always has a value."""
    kind = CHOICE if choices else BOOL if isinstance(default, bool) else INT
    return setting(
        kernel_name,
        meaning,
        source=source,
        group=group,
        unit=unit,
        maximum=maximum,
        default=default,
        kind=kind,
        choices=choices,
        starts_unset=False,
    )


_REFILL = "ownership: refill"
_FREE = "ownership: frees"
_DRAIN = "ownership: merging and drains"
_LIFE = "ownership: when it ends"
_ABLATION = "ownership: parts left out"


@documented
@dataclass(frozen=True, kw_only=True)
class OwnershipOptions(metaclass=Given):
    """Open choices of pageblock ownership; the defaults are the model's reading of the posts.

    Each field's metadata is as that of `Policy`'s fields; `source` says what its default rests on,
    a post or, where none settles it, that it is open.

    Raises:
        PolicyError: a value outside its range, of the wrong kind, or no choice of its field.
    """

    fit_test: str = _option(
        "a whole block is claimed if it fits under pcp->high, under high_max, or always",
        "high",
        choices=("high", "high_max", "always"),
        kernel_name="pcp->high limit",
        source=f"S12.4; {_COVER}: if a block does not fit the pcp->high limit",
        group=_REFILL,
    )
    claims_up_to_order: int = _option(
        "largest request for which whole blocks are claimed",
        10,
        unit="order",
        maximum=10,
        source="S12.6 (7): open; the default excludes none",
        group=_REFILL,
    )
    owning_types: str = _option(
        "migratetypes whose blocks can be owned",
        "all",
        choices=("all", "movable"),
        source="S12.6 (7): open; the posts name no type that is left out",
        group=_REFILL,
    )
    pressure_claims: bool = _option(
        "blocks are claimed under RECLAIM_ACTIVE and BELOW_HIGH too",
        True,
        source="S12.6 (13): open; S12.4 degrades only by the limit and by lack of whole blocks",
        group=_REFILL,
    )
    recover_limit: int = _option(
        "entries of the list of recorded blocks that one refill looks at; 0 is all",
        0,
        unit="blocks",
        maximum=1 << 16,
        source=f"S12.6 (16); {_RFC} as reviewed: the walk has no bound",
        group=_REFILL,
    )
    recorded_lists: str = _option(
        "recorded blocks of a CPU are on one list, or on one for each migratetype",
        "one",
        choices=("one", "per_type"),
        kernel_name="pcp->owned_blocks",
        source=f"S12.6 (12); {_RFC}: one list, a list for each type was asked for in review",
        group=_REFILL,
    )
    chunk_search: str = _option(
        "phase 2 takes the largest buddies that fit what is wanted, or the smallest sufficient",
        "largest",
        choices=("largest", "smallest"),
        source=f"S12.3; {_RFC}: chunks larger than the request are pulled",
        group=_REFILL,
    )
    cma_first: bool = _option(
        "requests for which CMA pages come first skip the phases before the classic one",
        False,
        source=f"S12.6 (7); {_RFC}: a reviewer noted the shift towards Movable over CMA",
        group=_REFILL,
    )
    remote_busy: str = _option(
        "a free that finds the owner's pcp->lock taken goes to the zone, to the list of the CPU "
        "that frees, or waits",
        "zone",
        choices=("zone", "local", "spin"),
        kernel_name="pcp->lock",
        source="S12.6 (3); a later series on top: by trylock, else directly to the zone",
        group=_FREE,
    )
    remote_busy_per_1000: int = _option(
        "share of remote frees that find the owner's pcp->lock taken",
        0,
        unit="1/1000",
        maximum=1000,
        kernel_name="pcp->lock",
        source="S12.6 (3): open; depends on timing, which the model does not know",
        group=_FREE,
    )
    remote_overflow: str = _option(
        "a list that remote frees push above its limit is drained by the CPU that frees, or at the "
        "owner's next free",
        "freer",
        choices=("freer", "owner"),
        source="S12.6 (4): open; the default is today's code run on the owner's pageset",
        group=_FREE,
    )
    remote_counts: bool = _option(
        "remote frees change the owner's free_count, alloc_factor and high-order flag",
        True,
        source="S12.6 (5): open; the default is today's code run on the owner's pageset",
        group=_FREE,
    )
    plain_frees: str = _option(
        "pages that a refill took unowned from an owned block are freed to the owner or locally",
        "owner",
        choices=("owner", "local"),
        source=f"S12.6 (6); {_COVER}: all frees into an owned block go to its owner",
        group=_FREE,
    )
    merges_at: str = _option(
        "buddies on the lists merge before a drain, or at every free",
        "drain",
        choices=("drain", "free"),
        source=f"S12.6 (10); {_RFC}: a bottom-up merge pass runs on drain",
        group=_DRAIN,
    )
    drain_from: str = _option(
        "drains return the largest chunks first, or begin at the freed page's list",
        "largest",
        choices=("largest", "freed_list"),
        source=f"S12.5; {_RFC}: larger chunks are freed under zone->lock",
        group=_DRAIN,
    )
    fragments: str = _option(
        "drained fragments of owned blocks go to the tail of the zone's lists, or as usual",
        "tail",
        choices=("tail", "as_usual"),
        source=f"S12.6 (17); {_COVER}: pages of partial blocks are queued last",
        group=_DRAIN,
    )
    recorded_cap: int = _option(
        "blocks that a CPU can have recorded in a zone; beyond it ownership ends; 0 is no cap",
        0,
        unit="blocks",
        maximum=1 << 16,
        kernel_name="pcp->owned_blocks",
        source=f"S12.6 (12); {_RFC} as reviewed: a list without a cap",
        group=_DRAIN,
    )
    ownership_ends: str = _option(
        "ownership of a block ends once it is whole again, once it is drained, or with age",
        "whole",
        choices=("whole", "drained", "aged"),
        source="S12.6 (2); a later series on top: merging to a whole block clears the owner",
        group=_LIFE,
    )
    type_change: str = _option(
        "an owned block whose type changes among the three stays owned or not",
        "keep",
        choices=("keep", "end"),
        source="S12.6 (8): open",
        group=_LIFE,
    )
    full_drain: str = _option(
        "a full drain leaves blocks owned, or ends ownership of the recorded ones",
        "keep",
        choices=("keep", "end"),
        kernel_name="drain_pages_zone()",
        source="S12.6 (11): open",
        group=_LIFE,
    )
    offline_owner: str = _option(
        "a CPU that goes offline loses its blocks, or keeps them for when it returns",
        "end",
        choices=("end", "keep"),
        kernel_name="page_alloc_cpu_dead()",
        source="S12.6 (9): open",
        group=_LIFE,
    )
    routes_frees: bool = _option(
        "frees go to the owner's lists; otherwise to those of the CPU that frees",
        True,
        source="S12.1; left out, what remains is coarse refills and merging",
        group=_ABLATION,
    )
    claims_blocks: bool = _option(
        "refills claim whole blocks; otherwise only chunks",
        True,
        source="S12.3; left out, nothing is owned and refills are merely chunky",
        group=_ABLATION,
    )
    recovers: bool = _option(
        "refills take fragments of recorded blocks back first",
        True,
        source="S12.3; left out, fragments stay in the zone until they are whole",
        group=_ABLATION,
    )

    def __post_init__(self) -> None:
        """Check every value against its field's range."""
        for each in fields(self):
            check_setting(f"ownership.{each.name}", each.metadata, getattr(self, each.name))

    def given(self) -> dict[str, Setting]:
        """The options that differ from their defaults."""
        return {
            each.name: value
            for each in fields(self)
            if (value := getattr(self, each.name)) != each.default
        }
