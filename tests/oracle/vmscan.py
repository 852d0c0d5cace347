"""What reclaim scans, and how it shrinks the lists of a node (S10.3, S10.6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.oracle.compaction import Gates
from tests.oracle.lru import LISTS, ElasticMemory, Folio, Kind
from tests.oracle.machine import Purpose
from tests.oracle.request import PLAIN, Mark
from tests.oracle.rules import OracleRules
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


SKIPPED_MAX = 32768
"""Folios of too high zones that one taking passes over, where there is a limit."""
LEAST_COST_NS = 1000
"""Time that a cluster takes at least."""


@dataclass(frozen=True)
class Cluster:
    """What came of a cluster, in pages.

    Attributes:
        looked: looked at on inactive lists, those of too high zones included.
        freed: freed.
    """

    looked: int
    freed: int


class Reclaimer:
    """Scans a node's lists and frees what it may.

    Attributes:
        zones: the node's.
    """

    def __init__(
        self,
        zones: list[Zone],
        memory: ElasticMemory,
        gates: Gates,
        rules: OracleRules,
        note_progress: Callable[[int, int], None],
    ) -> None:
        self.zones = zones
        self.node = zones[0].node
        self.memory = memory
        self.options = memory.options
        self.gates = gates
        self.rules = rules
        self.lru = memory.lrus[self.node]
        self._note_progress = note_progress

    @property
    def may_swap(self) -> bool:
        """can_age_anon_pages(): return whether there is swap at all."""
        return self.options.anon_scan_percent > 0

    def shrink_node(self, control: ScanControl) -> Iterator[int]:
        """shrink_node(): make a round, and more of them while compaction lacks room.

        Yields the time that each cluster takes, ns; it is up to the caller when to go on.
        """
        has_reclaimed = False
        while True:
            before = control.reclaimed
            prepare_scan_control(self.memory, self.zones, control)
            yield from self._shrink_lruvec(control)
            has_reclaimed |= control.reclaimed > before
            if not self._should_continue_reclaim(control, control.reclaimed - before):
                break
        if has_reclaimed:
            self._note_progress(control.order, control.highest)
        elif control.cache_trim:
            control.cache_trim_failed = True

    def age(self, control: ScanControl) -> None:
        """kswapd_age_node(): feed the inactive anonymous list, if it is short."""
        if self.may_swap and self.lru.inactive_is_low(Kind.ANON):
            self._shrink_active_list(Kind.ANON, CLUSTER, control)

    def _shrink_lruvec(self, control: ScanControl) -> Iterator[int]:
        """shrink_lruvec(): scan cluster by cluster until the counts are used up, or it suffices."""
        get_scan_count(self.memory, self.node, control)
        freed = 0
        stops_at_goal = control.is_kswapd or control.priority != LOWEST_PRIORITY
        left = control.left
        while left[Kind.ANON, False] or left[Kind.FILE, True] or left[Kind.FILE, False]:
            cluster = self._shrink_lists(control)
            freed += cluster.freed
            yield self._cost_ns(cluster, control)
            if not stops_at_goal or freed < control.goal:
                continue
            anon, file = (left[kind, False] + left[kind, True] for kind in (Kind.ANON, Kind.FILE))
            if not anon or not file:
                break
            self._end_the_smaller(control, Kind.ANON if file > anon else Kind.FILE)
        control.reclaimed += freed
        self.age(control)

    def _cost_ns(self, cluster: Cluster, control: ScanControl) -> int:
        """No kernel function: return the time that a cluster takes; active lists take none."""
        cost = cluster.looked * self.options.reclaim_scan_ns
        options = self.options
        each = options.kswapd_free_ns if control.is_kswapd else options.reclaim_free_ns
        return max(cost + cluster.freed * each, LEAST_COST_NS)

    def _shrink_lists(self, control: ScanControl) -> Cluster:
        """Part of shrink_lruvec(): take up to a cluster of each list."""
        looked = freed = 0
        for kind, active in LISTS:
            budget = min(control.left[kind, active], CLUSTER)
            control.left[kind, active] -= budget
            if not budget:
                continue
            if not active:
                cluster = self._shrink_inactive_list(kind, budget, control)
                looked += cluster.looked
                freed += cluster.freed
            elif kind in control.may_deactivate:
                self._shrink_active_list(kind, budget, control)
            else:
                control.skipped_deactivate = True
        return Cluster(looked, freed)

    @staticmethod
    def _end_the_smaller(control: ScanControl, smaller: Kind) -> None:
        """Part of shrink_lruvec(): end one class; the other's scan ends where this one's did."""
        larger = Kind.FILE if smaller is Kind.ANON else Kind.ANON
        target = sum(control.targets[smaller, active] for active in (False, True)) + 1
        left = sum(control.left[smaller, active] for active in (False, True))
        percent = left * 100 // target
        for active in (False, True):
            control.left[smaller, active] = 0
            wanted = control.targets[larger, active] * (100 - percent) // 100
            had = control.targets[larger, active] - control.left[larger, active]
            control.left[larger, active] = max(wanted - had, 0)

    def _isolate_lru_folios(
        self, kind: Kind, budget: int, control: ScanControl, *, active: bool
    ) -> tuple[list[Folio], int]:
        """isolate_lru_folios(): take folios off a list's tail, passing over too high zones.

        Returns the folios in order, and the pages looked at, the passed over included.
        """
        taken: list[Folio] = []
        skipped: list[Folio] = []
        cap = SKIPPED_MAX if self.rules.lru_skips_capped else None
        while sum(folio.size for folio in taken) < budget:
            pfn = self.lru.tail(kind, active=active)
            if pfn is None:
                break
            folio = self.memory.folios[pfn]
            self.lru.remove(folio)
            too_high = self.memory.zone_of(folio).type > control.highest
            passes_over = too_high and (cap is None or len(skipped) < cap)
            (skipped if passes_over else taken).append(folio)
        for folio in skipped:
            self.lru.lruvec_add_folio(folio)
        return taken, sum(folio.size for folio in taken + skipped)

    def _shrink_active_list(self, kind: Kind, budget: int, control: ScanControl) -> None:
        """shrink_active_list(): move pages to the inactive list."""
        taken, _ = self._isolate_lru_folios(kind, budget, control, active=True)
        for folio in taken:
            folio.active = False
            self.lru.lruvec_add_folio(folio)
            self.memory.counts["pgdeactivate"] += folio.size

    def _shrink_inactive_list(self, kind: Kind, budget: int, control: ScanControl) -> Cluster:
        """shrink_inactive_list(): free what may go."""
        taken, looked = self._isolate_lru_folios(kind, budget, control, active=False)
        who = "kswapd" if control.is_kswapd else "direct"
        free: list[Folio] = []
        freed = 0
        for folio in taken:
            control.scanned += folio.size
            if self._is_referenced(folio):
                folio.active = True
                self.lru.lruvec_add_folio(folio)
                self.memory.counts["pgactivate"] += folio.size
                self.memory.workingset.workingset_activation(folio)
            elif self._is_dirty(folio):
                self.lru.lruvec_add_folio(folio)
            else:
                self.memory.workingset.workingset_eviction(folio)
                self.memory.forget_isolated(folio)
                freed += folio.size
                if self.rules.frees_backwards and folio.size > 1:
                    self.memory.free(control.cpu, [folio])
                else:
                    free.append(folio)
        if self.rules.frees_backwards:
            free.reverse()
        self.memory.free(control.cpu, free)
        self.memory.counts[f"pgscan_{who}"] += looked
        self.memory.counts[f"pgsteal_{who}"] += freed
        return Cluster(looked, freed)

    def _should_continue_reclaim(self, control: ScanControl, reclaimed: int) -> bool:
        """should_continue_reclaim(): return whether compaction needs yet more room."""
        order, highest = control.order, control.highest
        is_urgent = order > self.gates.costly_order or control.priority < LOWEST_PRIORITY - 2
        if not (control.may_compact and order and is_urgent) or not reclaimed:
            return False
        for zone in self.zones[: highest + 1]:
            if not zone.spec.managed:
                continue
            if zone.watermarks.ok_at(order, Mark.MIN, highest, PLAIN):
                return False
            if self.gates.is_suitable(zone, order, highest, Mark.MIN):
                return False
        inactive = self.lru.pages[Kind.FILE, False]
        if self.may_swap:
            inactive += self.lru.pages[Kind.ANON, False]
        return inactive > self.options.gap(order)

    def _is_referenced(self, folio: Folio) -> bool:
        """Part of folio_check_references(): draw; returns whether a folio is in use."""
        shares = {
            Kind.FILE: self.options.file_referenced_per_mille,
            Kind.ANON: self.options.anon_referenced_per_mille,
        }
        return folio.happens(Purpose.REFERENCED, shares[folio.kind], self.options.seed)

    def _is_dirty(self, folio: Folio) -> bool:
        """Part of folio_check_dirty_writeback(): draw; returns whether it is dirty."""
        share = self.options.file_dirty_per_mille
        return folio.kind is Kind.FILE and folio.happens(Purpose.DIRTY, share, self.options.seed)
