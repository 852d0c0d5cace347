"""How much of each LRU list a round of reclaim looks at (S10.6)."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.oracle.elastic_memory import ElasticMemory
from tests.oracle.folios import Kind
from tests.oracle.lru import LISTS
from tests.oracle.request import Mark
from tests.oracle.zone import Zone

LOWEST_PRIORITY = 12
CLUSTER = 32
"""Pages taken up at a time."""
MOST_SWAPPINESS = 200

ListKey = tuple[Kind, bool]
"""Class, and whether the list is the active one."""


@dataclass(kw_only=True)
class ScanControl:
    """What a reclaimer is after, and what it has come across (the kernel's scan_control).

    Attributes:
        order: power of two of pages that are wanted.
        highest: highest type of zone to free in.
        goal: pages to free.
        is_kswapd: kswapd reclaims, and no request.
        may_compact: compaction may follow.
        cpu: CPU that frees.
        may_swap: anonymous pages may go.
        priority: lists are looked at in parts of one in two to this.
        scanned: pages looked at, in zones allowed.
        reclaimed: pages freed.
        may_deactivate: classes whose active list may shrink.
        force_deactivate: all may.
        skipped_deactivate: some active list was left alone.
        cache_trim: the cache is so large that anonymous pages are spared.
        no_cache_trim: that is no longer asked.
        cache_trim_failed: a round that spared them freed nothing.
        file_is_tiny: there is so little cache that only anonymous pages are looked at.
        compaction_ready: a zone was left out as compaction can do the rest.
        left: pages to look at yet, by list.
        targets: what each list began with.
    """

    order: int
    highest: int
    goal: int
    is_kswapd: bool
    may_compact: bool
    cpu: int
    may_swap: bool = True
    priority: int = LOWEST_PRIORITY
    scanned: int = 0
    reclaimed: int = 0
    may_deactivate: set[Kind] = field(default_factory=set)
    force_deactivate: bool = False
    skipped_deactivate: bool = False
    cache_trim: bool = False
    no_cache_trim: bool = False
    cache_trim_failed: bool = False
    file_is_tiny: bool = False
    compaction_ready: bool = False
    left: dict[ListKey, int] = field(default_factory=lambda: dict.fromkeys(LISTS, 0))
    targets: dict[ListKey, int] = field(default_factory=lambda: dict.fromkeys(LISTS, 0))


def prepare_scan_control(memory: ElasticMemory, zones: list[Zone], control: ScanControl) -> None:
    """prepare_scan_control(): look at the sizes of a node's lists before a round."""
    lru = memory.lrus[zones[0].node]
    control.may_deactivate = {
        kind
        for kind in (Kind.ANON, Kind.FILE)
        if control.force_deactivate or lru.inactive_is_low(kind)
    }
    large = lru.pages[Kind.FILE, False] >> control.priority > 0
    control.cache_trim = (
        large and Kind.FILE not in control.may_deactivate and not control.no_cache_trim
    )
    managed = [zone for zone in zones if zone.spec.managed]
    free = sum(zone.counters.free.read() for zone in managed)
    high = sum(zone.watermarks.wmark_pages(Mark.HIGH) for zone in managed)
    control.file_is_tiny = (
        lru.of_kind(Kind.FILE) + free <= high
        and Kind.ANON not in control.may_deactivate
        and lru.pages[Kind.ANON, False] >> control.priority > 0
    )


def get_scan_count(memory: ElasticMemory, node: int, control: ScanControl) -> None:
    """get_scan_count(): set how many pages of each list a round looks at."""
    percent = memory.options.anon_scan_percent
    swappiness = MOST_SWAPPINESS * percent // (100 + percent)
    shares = {Kind.ANON: swappiness, Kind.FILE: MOST_SWAPPINESS - swappiness}
    if not percent or not control.may_swap:
        shares = {Kind.ANON: 0, Kind.FILE: MOST_SWAPPINESS}
    elif control.priority == 0 and swappiness:
        shares = dict.fromkeys(shares, MOST_SWAPPINESS)
    elif control.file_is_tiny:
        shares = {Kind.ANON: MOST_SWAPPINESS, Kind.FILE: 0}
    elif control.cache_trim:
        shares = {Kind.ANON: 0, Kind.FILE: MOST_SWAPPINESS}
    for kind, active in LISTS:
        pages = memory.lrus[node].pages_up_to(kind, control.highest, active=active)
        control.left[kind, active] = (pages >> control.priority) * shares[kind] // MOST_SWAPPINESS
    control.targets = dict(control.left)
