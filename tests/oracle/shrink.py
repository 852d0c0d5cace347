"""Reclaim's rounds over a node's LRU lists (S10.6)."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.oracle.compaction_gates import Gates
from tests.oracle.draws import Purpose
from tests.oracle.elastic_memory import ElasticMemory
from tests.oracle.folios import Folio, Kind
from tests.oracle.lru import LISTS, NodeLru
from tests.oracle.request import PLAIN, Mark
from tests.oracle.zone import Zone

CLUSTER = 32
"""Pages taken up at a time."""

FIRST_PRIORITY = 12
"""At this one a list's share to look at is its 4096th part."""

Key = tuple[Kind, bool]
"""A list: class, and whether it is the active one."""


@dataclass(kw_only=True)
class Control:
    """What a run of reclaim goes by, and what it came to.

    Attributes:
        who: "kswapd" or "direct".
        order: wanted in the end.
        highest: highest type of zone to free in.
        priority: lists are looked at by this power of two.
        goal: pages to free.
        may_swap: ANON may go.
        may_compact: the request allows compaction.
        all_active: active lists may shrink, short inactive ones or not.
        no_cache_trim: a large cache does not spare ANON any more.
        scanned: pages looked at in zones allowed.
        freed: pages freed.
        spared_active: some active list was left alone.
        cache_trim_failed: a round that spared ANON for a large cache freed nothing.
        ready: compaction may do the rest.
    """

    who: str
    order: int
    highest: int
    priority: int = FIRST_PRIORITY
    goal: int = CLUSTER
    may_swap: bool = True
    may_compact: bool = True
    all_active: bool = False
    no_cache_trim: bool = False
    scanned: int = 0
    freed: int = 0
    spared_active: bool = False
    cache_trim_failed: bool = False
    ready: bool = False


@dataclass
class Round:
    """One round over a node's lists.

    Attributes:
        targets: pages to look at, by list.
        left: what is left of that.
        shrinkable: classes whose active lists may shrink.
        spares_anon: the cache is large.
        freed: pages freed in it.
    """

    targets: dict[Key, int]
    shrinkable: set[Kind]
    spares_anon: bool
    freed: int = 0
    left: dict[Key, int] = field(init=False)

    def __post_init__(self) -> None:
        """Nothing was looked at yet."""
        self.left = dict(self.targets)

    @property
    def goes_on(self) -> bool:
        """Part of shrink_lruvec(): return whether there is something to look at."""
        lists = ((Kind.ANON, False), (Kind.FILE, False), (Kind.FILE, True))
        return any(self.left[key] for key in lists)

    def left_of(self, kind: Kind) -> int:
        """No kernel function: return what is left to look at of a class."""
        return self.left[kind, False] + self.left[kind, True]

    def end_in_proportion(self) -> None:
        """Part of shrink_lruvec(): let the goal end the round, the classes in proportion."""
        anon, file = self.left_of(Kind.ANON), self.left_of(Kind.FILE)
        if not anon or not file:
            self.left = dict.fromkeys(self.left, 0)
            return
        ended, other = (Kind.ANON, Kind.FILE) if file > anon else (Kind.FILE, Kind.ANON)
        target = self.targets[ended, False] + self.targets[ended, True] + 1
        percent = self.left_of(ended) * 100 // target
        for active in (False, True):
            self.left[ended, active] = 0
            key = other, active
            had = self.targets[key] - self.left[key]
            self.left[key] = max(self.targets[key] * (100 - percent) // 100 - had, 0)


class NodeReclaim:
    """Shrinks a node, cluster by cluster: `begin`, `cluster` until nothing is left, `end`."""

    def __init__(self, node: int, zones: list[Zone], memory: ElasticMemory, gates: Gates) -> None:
        self.node = node
        self.zones = [zone for zone in zones if zone.spec.managed]
        self.memory = memory
        self.options = memory.options
        self.gates = gates
        self.reclaimable = False
        self.round: Round | None = None

    @property
    def lru(self) -> NodeLru:
        """No kernel function: return the node's lists."""
        return self.memory.lrus[self.node]

    @property
    def has_swap(self) -> bool:
        """can_reclaim_anon_pages(): return whether anonymous pages can go at all."""
        return self.options.anon_scan_percent > 0

    def up_to(self, highest: int) -> list[Zone]:
        """No kernel function: return the node's zones with pages up to a type."""
        return [zone for zone in self.zones if zone.type <= highest]

    def begin(self, control: Control) -> None:
        """shrink_node(): begin with the first round."""
        self.reclaimable = False
        self._begin_round(control)

    def cluster(self, control: Control, cpu: int) -> int | None:
        """Part of shrink_lruvec(): take up to a cluster of each list.

        Returns the time that took, ns; None if nothing is left to look at.
        """
        now = self.round
        if not now.goes_on:
            return None
        looked = freed = 0
        for kind, active in LISTS:
            budget = min(now.left[kind, active], CLUSTER)
            now.left[kind, active] -= budget
            if not budget:
                continue
            if not active:
                seen, gone = self._shrink_inactive_list(kind, budget, control, cpu)
                looked += seen
                freed += gone
            elif kind in now.shrinkable:
                self._shrink_active_list(kind, budget, control.highest)
            else:
                control.spared_active = True
        now.freed += freed
        self.memory.counts[f"pgscan_{control.who}"] += looked
        self.memory.counts[f"pgsteal_{control.who}"] += freed
        in_full = control.who == "direct" and control.priority == FIRST_PRIORITY
        if now.freed >= control.goal and not in_full:
            now.end_in_proportion()
        options = self.options
        return max(looked * options.reclaim_scan_ns + freed * options.reclaim_free_ns, 1000)

    def end(self, control: Control) -> bool:
        """Part of shrink_node(): end a round; returns whether another follows."""
        control.freed += self.round.freed
        self.age_anon(control.highest)
        self.reclaimable |= self.round.freed > 0
        if self._should_continue_reclaim(control):
            self._begin_round(control)
            return True
        if not self.reclaimable and self.round.spares_anon:
            control.cache_trim_failed = True
        return False

    def age_anon(self, highest: int) -> None:
        """kswapd_age_node(): feed a short inactive list of anonymous pages."""
        if self.has_swap and self.lru.inactive_is_low(Kind.ANON):
            self._shrink_active_list(Kind.ANON, CLUSTER, highest)

    def _begin_round(self, control: Control) -> None:
        """prepare_scan_control(), get_scan_count(): look what a round is to look at."""
        lru, priority = self.lru, control.priority
        kinds = (Kind.ANON, Kind.FILE)
        shrinkable = {kind for kind in kinds if control.all_active or lru.inactive_is_low(kind)}
        is_large = (
            lru.pages[Kind.FILE, False] >> priority > 0
            and Kind.FILE not in shrinkable
            and not control.no_cache_trim
        )
        free = sum(zone.counters.free.read() for zone in self.zones)
        marks = sum(zone.watermarks.wmark_pages(Mark.HIGH) for zone in self.zones)
        is_tiny = (
            lru.of_kind(Kind.FILE) + free <= marks
            and Kind.ANON not in shrinkable
            and lru.pages[Kind.ANON, False] >> priority > 0
        )
        sizes = {key: self._size(key, control.highest) >> priority for key in LISTS}
        shares = self._shares(control, is_tiny=is_tiny, is_large=is_large)
        targets = {
            (kind, active): size * shares[kind] // 200 for (kind, active), size in sizes.items()
        }
        self.round = Round(targets, shrinkable, is_large)

    def _shares(self, control: Control, *, is_tiny: bool, is_large: bool) -> dict[Kind, int]:
        """Part of get_scan_count(): return what of each class to look at, in 200th parts."""
        percent = self.options.anon_scan_percent
        swappiness = 200 * percent // (100 + percent)
        if not (control.may_swap and self.has_swap):
            return {Kind.ANON: 0, Kind.FILE: 200}
        if control.priority == 0 and swappiness:
            return {Kind.ANON: 200, Kind.FILE: 200}
        if is_tiny:
            return {Kind.ANON: 200, Kind.FILE: 0}
        if is_large:
            return {Kind.ANON: 0, Kind.FILE: 200}
        return {Kind.ANON: swappiness, Kind.FILE: 200 - swappiness}

    def _size(self, key: Key, highest: int) -> int:
        """lruvec_lru_size(): return the pages of a list in zones up to a type."""
        folios = (self.memory.folios[pfn] for pfn in self.lru.lists[key])
        return sum(each.size for each in folios if self.memory.zone_of(each).type <= highest)

    def _should_continue_reclaim(self, control: Control) -> bool:
        """should_continue_reclaim(): return whether another round helps compaction."""
        order, highest = control.order, control.highest
        presses = control.priority < FIRST_PRIORITY - 2 or order > self.gates.costly_order
        if not (order and control.may_compact and presses and self.round.freed):
            return False
        for zone in self.up_to(highest):
            if zone.watermarks.ok_at(order, Mark.MIN, highest, PLAIN):
                return False
            if self.gates.is_suitable(zone, order, highest, Mark.MIN):
                return False
        inactive = self.lru.pages[Kind.FILE, False]
        if self.has_swap:
            inactive += self.lru.pages[Kind.ANON, False]
        return inactive > self.options.gap(order)

    def _shrink_active_list(self, kind: Kind, budget: int, highest: int) -> None:
        """shrink_active_list(): move the active list's tail to the inactive list."""
        for folio in self._take_tail(kind, budget, highest, active=True)[0]:
            folio.active = False
            self.lru.lruvec_add_folio(folio)
            self.memory.counts["pgdeactivate"] += folio.size

    def _shrink_inactive_list(
        self, kind: Kind, budget: int, control: Control, cpu: int
    ) -> tuple[int, int]:
        """shrink_inactive_list(): free of an inactive list's tail what may go.

        Returns the pages seen, and those freed.
        """
        taken, seen = self._take_tail(kind, budget, control.highest, active=False)
        gone = []
        for folio in taken:
            control.scanned += folio.size
            if self._is_referenced(folio):
                folio.active = True
                self.lru.lruvec_add_folio(folio)
                self.memory.counts["pgactivate"] += folio.size
            elif self._is_dirty(folio):
                self.lru.lruvec_add_folio(folio)
            else:
                self.lru.lruvec_add_folio(folio)
                self.memory.forget(folio)
                gone.append(folio)
        self.memory.free(cpu, gone)
        return seen, sum(folio.size for folio in gone)

    def _take_tail(
        self, kind: Kind, budget: int, highest: int, *, active: bool
    ) -> tuple[list[Folio], int]:
        """isolate_lru_folios(): take folios from a list's tail, up to a number of pages.

        Those in too high zones go to its head. Returns the folios taken, and the pages seen.
        """
        taken: list[Folio] = []
        seen = pages = 0
        for pfn in reversed(list(self.lru.lists[kind, active])):
            if pages >= budget:
                break
            folio = self.memory.folios[pfn]
            seen += folio.size
            self.lru.remove(folio)
            if self.memory.zone_of(folio).type > highest:
                self.lru.lruvec_add_folio(folio)
                continue
            pages += folio.size
            taken.append(folio)
        return taken, seen

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
