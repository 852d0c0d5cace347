"""Reclaim's scan of LRU lists: balance, shrink, a pass's budgets (S10.5)."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.oracle.draws import Purpose
from tests.oracle.elastic_memory import ElasticMemory
from tests.oracle.folios import Folio, Kind

CLUSTER = 32
"""Pages taken up at a time."""

SCANNED_KINDS = (Kind.FILE, Kind.ANON)
"""In the order in which a pass scans them."""


@dataclass
class Scan:
    """What a scan came to, in pages.

    Attributes:
        scanned: looked at.
        freed: found free to go.
        folios: those, to be freed by the caller.
    """

    scanned: int = 0
    freed: int = 0
    folios: list[Folio] = field(default_factory=list)


class Reclaimer:
    """Scans a node's lists and frees what it may."""

    def __init__(self, memory: ElasticMemory) -> None:
        self.memory = memory
        self.options = memory.options

    def get_scan_count(
        self, node: int, priority: int, *, files_only: bool = False
    ) -> dict[Kind, int]:
        """get_scan_count(): return the pages that a pass looks at."""
        lru = self.memory.lrus[node]
        left = {kind: lru.of_kind(kind) >> priority for kind in SCANNED_KINDS}
        left[Kind.ANON] = left[Kind.ANON] * self.options.anon_scan_percent // 100
        if files_only:
            left[Kind.ANON] = 0
        return left

    def cluster(
        self, node: int, left: dict[Kind, int], highest: int, goal: int, who: str
    ) -> Scan | None:
        """Part of shrink_lruvec(): scan one cluster of what is left of a pass.

        Returns None if nothing is left.

        Args:
            node: whose lists.
            left: budgets; lowered.
            highest: highest type of zone to free in.
            goal: pages to free at most, but for a folio's size.
            who: "kswapd" or "direct".
        """
        for kind in SCANNED_KINDS:
            budget = min(left[kind], CLUSTER)
            if budget <= 0:
                continue
            self._shrink_active_list(node, kind, budget)
            scan = self._shrink_inactive_list(node, kind, budget, highest, goal)
            left[kind] -= scan.scanned
            if scan.scanned == 0:
                left[kind] = 0
            self.memory.counts[f"pgscan_{who}"] += scan.scanned
            self.memory.counts[f"pgsteal_{who}"] += scan.freed
            return scan
        return None

    def cost_ns(self, scan: Scan) -> int:
        """No kernel function: return the time a scan takes."""
        options = self.options
        return scan.scanned * options.reclaim_scan_ns + scan.freed * options.reclaim_free_ns

    def _shrink_active_list(self, node: int, kind: Kind, budget: int) -> None:
        """shrink_active_list(): feed a short inactive list from the active one."""
        lru = self.memory.lrus[node]
        moved = 0
        while moved < budget and lru.inactive_is_low(kind):
            folio = self._tail(node, kind, active=True)
            if folio is None:
                break
            self._move(folio, active=False)
            moved += folio.size
        self.memory.counts["pgdeactivate"] += moved

    def _shrink_inactive_list(
        self, node: int, kind: Kind, budget: int, highest: int, goal: int
    ) -> Scan:
        """shrink_inactive_list(): look at an inactive list's tail, free what it may."""
        scan = Scan()
        while scan.scanned < budget and scan.freed < goal:
            folio = self._tail(node, kind, active=False)
            if folio is None:
                break
            scan.scanned += folio.size
            if self.memory.zone_of(folio).type > highest:
                self._move(folio, active=False)
            elif self._is_referenced(folio):
                self._move(folio, active=True)
                self.memory.counts["pgactivate"] += folio.size
            elif self._is_dirty(folio):
                self._move(folio, active=False)
            else:
                self.memory.forget(folio)
                scan.folios.append(folio)
                scan.freed += folio.size
        return scan

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

    def _tail(self, node: int, kind: Kind, *, active: bool) -> Folio | None:
        """No kernel function: return the last folio of a list."""
        pfn = self.memory.lrus[node].tail(kind, active=active)
        return None if pfn is None else self.memory.folios[pfn]

    def _move(self, folio: Folio, *, active: bool) -> None:
        """No kernel function: move a folio to the head of its list of now."""
        lru = self.memory.lru_of(folio)
        lru.remove(folio)
        folio.active = active
        lru.lruvec_add_folio(folio)
