"""What reclaim scans, and how it shrinks the lists of a node (S10.3, S10.6)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.oracle.lru import LISTS, Folio, Kind
from tests.oracle.machine import Purpose
from tests.oracle.request import PLAIN, Mark

if TYPE_CHECKING:
    from tests.oracle.elastic import ElasticOracle

LOWEST_PRIORITY = 12
CLUSTER = 32  # pages taken up at a time
MOST_SWAPPINESS = 200
SKIPPED_MAX = 32768  # folios of too high zones that one taking passes over, where there is a limit
LEAST_COST_NS = 1000  # time that a cluster takes at least
ListKey = tuple[Kind, bool]  # class, and whether the list is the active one


@dataclass(kw_only=True)
class ScanControl:
    """What a reclaimer is after, and what it has come across (the kernel's scan_control)."""

    order: int  # power of two of pages that are wanted
    highest: int  # highest type of zone to free in
    goal: int  # pages to free
    is_kswapd: bool  # kswapd reclaims, and no request
    may_compact: bool  # compaction may follow
    cpu: int  # CPU that frees
    may_swap: bool = True  # anonymous pages may go
    priority: int = LOWEST_PRIORITY  # lists are looked at in parts of one in two to this
    scanned: int = 0  # pages looked at, in zones allowed
    reclaimed: int = 0  # pages freed
    may_deactivate: set[Kind] = field(default_factory=set)  # classes whose active list may shrink
    force_deactivate: bool = False  # all may
    skipped_deactivate: bool = False  # some active list was left alone
    cache_trim: bool = False  # the cache is so large that anonymous pages are spared
    no_cache_trim: bool = False  # that is no longer asked
    cache_trim_failed: bool = False  # a round that spared them freed nothing
    file_is_tiny: bool = False  # there is so little cache that only anonymous pages are looked at
    compaction_ready: bool = False  # a zone was left out as compaction can do the rest
    # pages to look at yet, by list
    left: dict[ListKey, int] = field(default_factory=lambda: dict.fromkeys(LISTS, 0))
    # what each list began with
    targets: dict[ListKey, int] = field(default_factory=lambda: dict.fromkeys(LISTS, 0))

    @property
    def success(self) -> int:
        """Part of do_try_to_free_pages(): return what there is to show."""
        return self.reclaimed or int(self.compaction_ready)


Cluster = tuple[int, int]
"""Pages looked at on inactive lists, those of too high zones included; and pages freed."""


class Reclaimer:
    """Scans a node's lists and frees what it may."""

    def __init__(self, oracle: ElasticOracle, node: int) -> None:
        self.oracle = oracle
        self.node = node
        self.zones = oracle.zones_of(node)  # the node's
        self.memory = oracle.memory
        self.options = oracle.options
        self.gates = oracle.gates
        self.rules = oracle.rules
        self.lru = oracle.memory.lrus[node]

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
            self._prepare_scan_control(control)
            yield from self._shrink_lruvec(control)
            has_reclaimed |= control.reclaimed > before
            if not self._should_continue_reclaim(control, control.reclaimed - before):
                break
        if has_reclaimed:
            self.oracle.kswapd[self.node].note_progress(control.order, control.highest)
        elif control.cache_trim:
            control.cache_trim_failed = True

    def age(self, control: ScanControl) -> None:
        """kswapd_age_node(): feed the inactive anonymous list, if it is short."""
        if self.may_swap and self.lru.inactive_is_low(Kind.ANON):
            self._shrink_active_list(Kind.ANON, CLUSTER, control)

    def _prepare_scan_control(self, control: ScanControl) -> None:
        """prepare_scan_control(): look at the sizes of the lists before a round."""
        lru = self.lru
        control.may_deactivate = {
            kind
            for kind in (Kind.ANON, Kind.FILE)
            if control.force_deactivate or lru.inactive_is_low(kind)
        }
        large = lru.pages[Kind.FILE, False] >> control.priority > 0
        control.cache_trim = (
            large and Kind.FILE not in control.may_deactivate and not control.no_cache_trim
        )
        managed = [zone for zone in self.zones if zone.spec.managed]
        free = sum(zone.counters.free.read() for zone in managed)
        high = sum(zone.watermarks.wmark_pages(Mark.HIGH) for zone in managed)
        control.file_is_tiny = (
            lru.of_kind(Kind.FILE) + free <= high
            and Kind.ANON not in control.may_deactivate
            and lru.pages[Kind.ANON, False] >> control.priority > 0
        )

    def _get_scan_count(self, control: ScanControl) -> None:
        """get_scan_count(): set how many pages of each list a round looks at."""
        percent = self.options.anon_scan_percent
        swappiness = MOST_SWAPPINESS * percent // (100 + percent)
        anon, file = swappiness, MOST_SWAPPINESS - swappiness
        if not percent or not control.may_swap:
            anon, file = 0, MOST_SWAPPINESS
        elif control.priority == 0 and swappiness:
            anon = file = MOST_SWAPPINESS
        elif control.file_is_tiny:
            anon, file = MOST_SWAPPINESS, 0
        elif control.cache_trim:
            anon, file = 0, MOST_SWAPPINESS
        for kind, active in LISTS:
            pages = self.lru.pages_up_to(kind, control.highest, active=active) >> control.priority
            share = anon if kind is Kind.ANON else file
            control.left[kind, active] = pages * share // MOST_SWAPPINESS
        control.targets = dict(control.left)

    def _shrink_lruvec(self, control: ScanControl) -> Iterator[int]:
        """shrink_lruvec(): scan cluster by cluster until the counts are used up, or it suffices.

        Yields the time that each takes kswapd; active lists take none.
        """
        self._get_scan_count(control)
        left = control.left
        total = 0
        stops_at_goal = control.is_kswapd or control.priority != LOWEST_PRIORITY
        while left[Kind.ANON, False] or left[Kind.FILE, True] or left[Kind.FILE, False]:
            clusters = self._shrink_lists(control)
            total += sum(freed for _, freed in clusters)
            yield max(sum(map(self._work_ns, clusters)), LEAST_COST_NS)
            if not stops_at_goal or total < control.goal:
                continue
            anon, file = (left[kind, False] + left[kind, True] for kind in (Kind.ANON, Kind.FILE))
            if not anon or not file:
                break
            self._end_the_smaller(control, Kind.ANON if file > anon else Kind.FILE)
        control.reclaimed += total
        self.age(control)

    def _work_ns(self, cluster: Cluster) -> int:
        """Work on a list's cluster, ns: where spans are known a large folio is one."""
        most = CLUSTER if self.options.kswapd_spans.get(self.node) else max(cluster)
        looked, freed = (min(pages, most) for pages in cluster)
        return looked * self.options.reclaim_scan_ns + freed * self.options.kswapd_free_ns

    def _shrink_lists(self, control: ScanControl) -> list[Cluster]:
        """Part of shrink_lruvec(): take up to a cluster of each list."""
        clusters = []
        for kind, active in LISTS:
            budget = min(control.left[kind, active], CLUSTER)
            control.left[kind, active] -= budget
            if not budget:
                continue
            if not active:
                clusters.append(self._shrink_inactive_list(kind, budget, control))
            elif kind in control.may_deactivate:
                self._shrink_active_list(kind, budget, control)
            else:
                control.skipped_deactivate = True
        return clusters

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
        pages = self.lru.lists[kind, active]
        while pages and sum(folio.size for folio in taken) < budget:
            folio = self.memory.folios[pages.tail]
            self.lru.remove(folio)
            too_high = self.memory.zone_of(folio).type > control.highest
            may_skip = not self.rules.lru_skips_capped or len(skipped) < SKIPPED_MAX
            (skipped if too_high and may_skip else taken).append(folio)
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
        options, seed = self.options, self.options.seed
        anon, file = options.anon_referenced_per_mille, options.file_referenced_per_mille
        free: list[Folio] = []
        freed = 0
        for folio in taken:
            control.scanned += folio.size
            is_file = folio.kind is Kind.FILE
            if folio.happens(Purpose.REFERENCED, file if is_file else anon, seed):
                folio.active = True
                self.lru.lruvec_add_folio(folio)
                self.memory.counts["pgactivate"] += folio.size
                self.memory.workingset.workingset_activation(folio)
            elif is_file and folio.happens(Purpose.DIRTY, options.file_dirty_per_mille, seed):
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
        return looked, freed

    def _should_continue_reclaim(self, control: ScanControl, reclaimed: int) -> bool:
        """should_continue_reclaim(): return whether compaction needs yet more room."""
        order, highest = control.order, control.highest
        is_urgent = order > self.gates.costly_order or control.priority < LOWEST_PRIORITY - 2
        if not (control.may_compact and order and is_urgent) or not reclaimed:
            return False
        for zone in self.zones[: highest + 1]:
            if not zone.spec.managed:
                continue
            if zone.watermarks.ok(order, Mark.MIN, highest, PLAIN):
                return False
            if self.gates.is_suitable(zone, order, highest, Mark.MIN):
                return False
        inactive = self.lru.pages[Kind.FILE, False]
        if self.may_swap:
            inactive += self.lru.pages[Kind.ANON, False]
        return inactive > self.gates.compact_gap(order)
