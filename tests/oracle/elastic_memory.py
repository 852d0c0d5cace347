"""Pages in use under reclaim and compaction: folios, objects, LRU lists (S10.5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tests.oracle.elastic_options import ElasticOptions
from tests.oracle.folios import Folio, Kind
from tests.oracle.lru import NodeLru
from tests.oracle.workingset import Workingset
from tests.oracle.zone import Zone

if TYPE_CHECKING:
    from tests.oracle.elastic import ElasticOracle


class ElasticMemory:
    """What pages in use are, and where their folios are listed.

    Attributes:
        options: shares and costs.
        folios: by first page.
        objects: pieces of each object, the newest first.
        lrus: by node.
        counts: counters under the kernel's names.
        workingset: ages, and what reclaim took of files.
        seen: what else happened, by name: deferrals, captures.
        now: model time, ns.
        requests: allocations so far.
    """

    def __init__(self, oracle: ElasticOracle, options: ElasticOptions) -> None:
        self._oracle = oracle
        self.options = options
        self.folios: dict[int, Folio] = {}
        self.objects: dict[int, list[Folio]] = {}
        self.lrus = {
            node: NodeLru(lambda folio: self.zone_of(folio).type) for node in oracle.machine.nodes
        }
        self.counts: Counter[str] = Counter()
        self.workingset = Workingset(self)
        self.seen: Counter[str] = Counter()
        self.now = 0
        self.requests = 0

    def act_as(self, cpu: int) -> None:
        """No kernel function: let a CPU do what follows."""
        self._oracle.act_as(cpu)

    def lru_of(self, folio: Folio) -> NodeLru:
        """folio_lruvec(): return the lists of the folio's node."""
        return self.lrus[self.zone_of(folio).node]

    def zone_of(self, folio: Folio) -> Zone:
        """folio_zone(): return the zone a folio lies in."""
        return self._oracle.zone_of(folio.pfn)

    def folio_around(self, pfn: int) -> Folio | None:
        """page_folio(): return the folio that a page is part of, or None."""
        for order in range(self._oracle.machine.max_order + 1):
            folio = self.folios.get(pfn >> order << order)
            if folio is not None and pfn < folio.pfn + folio.size:
                return folio
        return None

    def add(self, folio: Folio) -> None:
        """No kernel function: add the newest piece of an object, at its list's head."""
        self.folios[folio.pfn] = folio
        if folio.object is not None:
            self.objects.setdefault(folio.object, []).insert(0, folio)
        if folio.on_lru:
            self.lru_of(folio).lruvec_add_folio(folio)

    def forget(self, folio: Folio) -> None:
        """No kernel function: take a folio from its list and object.

        It is about to be freed.
        """
        if folio.on_lru:
            self.lru_of(folio).remove(folio)
        self.forget_isolated(folio)

    def forget_isolated(self, folio: Folio) -> None:
        """No kernel function: take a folio from its object; it is on no list."""
        del self.folios[folio.pfn]
        if folio.object is not None:
            self.objects[folio.object].remove(folio)

    def free(self, cpu: int, folios: Iterable[Folio]) -> None:
        """No kernel function: let a CPU free folios by the ordinary path, one by one."""
        for folio in folios:
            self.free_pages(cpu, folio.pfn, folio.order)

    def free_pages(self, cpu: int, pfn: int, order: int) -> None:
        """No kernel function: let a CPU free pages by the ordinary path."""
        self._oracle.allocated.remove(pfn, order)
        self.act_as(cpu)
        self._oracle.zone_of(pfn).free(cpu, pfn, order)

    def take_out(self, number: int, offset: int, order: int) -> list[Folio]:
        """No kernel function: take out the pieces of an object in a range of pages.

        Larger ones are halved until they fit.
        """
        found = []
        end = offset + (1 << order)
        waiting = list(self.objects.get(number, []))
        while waiting:
            piece = waiting.pop(0)
            if piece.offset >= end or piece.offset + piece.size <= offset:
                continue
            if offset <= piece.offset and piece.offset + piece.size <= end:
                self.forget(piece)
                found.append(piece)
            else:
                waiting[:0] = self._halve(piece)
        return found

    def move(self, folio: Folio, target: int) -> None:
        """migrate_folio_move(): move an isolated folio to other pages.

        It goes to the head of its list.
        """
        del self.folios[folio.pfn]
        self._oracle.allocated.add(target, folio.order, folio.movable)
        self._oracle.zone_of(target).note_taken(target, folio.order)
        folio.pfn = target
        self.folios[target] = folio
        self.lru_of(folio).lruvec_add_folio(folio)

    def free_target(self, cpu: int, pfn: int, order: int) -> None:
        """No kernel function: let a CPU free pages that held nothing.

        They go the ordinary path.
        """
        self.act_as(cpu)
        zone = self._oracle.zone_of(pfn)
        zone.note_taken(pfn, order)
        zone.free(cpu, pfn, order)

    def drain(self, zone: Zone, cpu: int) -> None:
        """drain_pages_zone(): let a CPU empty its own lists of a zone."""
        self.act_as(cpu)
        zone.drain_all(cpu)

    def drain_every_cpu(self, zone: Zone, by: int) -> None:
        """drain_all_pages(): let a CPU empty all lists of a zone."""
        self.act_as(by)
        for cpu in range(self._oracle.machine.nr_cpus):
            zone.drain_all(cpu)

    def zone_reclaimable_pages(self, zone: Zone) -> int:
        """zone_reclaimable_pages(): return pages of a zone that reclaim might free (S8.3)."""
        lru = self.lrus[zone.node]
        pages = lru.pages_in(Kind.FILE, zone.type)
        if self.options.anon_scan_percent:
            pages += lru.pages_in(Kind.ANON, zone.type)
        if not pages and self._oracle.reclaim_rules.free_counts_as_reclaimable:
            return zone.counters.free.total
        return pages

    def _halve(self, piece: Folio) -> tuple[Folio, Folio]:
        """No kernel function: cut a piece in two."""
        lower, upper = piece.halves()
        pieces = self.objects[piece.object]
        place = pieces.index(piece)
        pieces[place : place + 1] = [lower, upper]
        if piece.on_lru:
            self.lru_of(piece).remove(piece)
        for half in (lower, upper):
            self.folios[half.pfn] = half
            if half.on_lru:
                self.lru_of(half).lruvec_add_folio(half)
        return lower, upper
