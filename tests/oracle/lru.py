"""Folios under pressure: the LRU lists, the refaults, and the memory that holds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from math import isqrt
from typing import TYPE_CHECKING

from tests.oracle.buddy import PageList
from tests.oracle.machine import Purpose, draw
from tests.oracle.rules import ElasticOptions
from tests.oracle.zone import Zone

if TYPE_CHECKING:
    from tests.oracle.elastic import ElasticOracle


DRAWS = 256  # the number of a draw begins again after this many


class Kind(IntEnum):
    """Class of an allocated page."""

    KERNEL = 0
    RECLAIMABLE = 1
    ANON = 2
    FILE = 3


@dataclass(eq=False)
class Folio:
    """One allocation of some order."""

    pfn: int  # first page
    order: int  # its size
    kind: Kind  # its class
    object: int | None = None  # number of the object it is a piece of; None if no event is about it
    offset: int = 0  # its distance from the object's beginning, in pages
    movable: bool = False  # requested as MOVABLE
    active: bool = False  # on the active list, if on any
    marked: bool = False  # used since it was read or last activated (S10.7)
    draws: Counter[Purpose] = field(default_factory=Counter)  # how often each purpose was drawn

    @property
    def size(self) -> int:
        """folio_nr_pages(): return its pages."""
        return 1 << self.order

    @property
    def on_lru(self) -> bool:
        return self.movable and self.kind >= Kind.ANON

    @property
    def _key(self) -> int:
        return -1 - self.pfn if self.object is None else self.object + 1

    def happens(self, purpose: Purpose, per_mille: int, seed: int) -> bool:
        """Draw once more; returns whether it happens.

        The 16 pages that a fault maps around its own are used together: those of as many objects
        in a row, or page frames where no object is known.
        """
        number = self.draws[purpose] % DRAWS
        self.draws[purpose] += 1
        key = self._key
        if purpose is Purpose.REFERENCED:
            key = -1 - self.pfn // 16 if self.object is None else (self.object + 1) // 16
        return draw(seed, key, purpose, number) < per_mille

    def cannot_move(self, options: ElasticOptions) -> bool:
        """Whether a folio stays where it is until it is freed (S9.9).

        It is drawn for its object and its distance from the object's beginning.
        """
        anon, file = options.anon_migration_fails_per_mille, options.file_migration_fails_per_mille
        share = anon if self.kind is Kind.ANON else file
        return draw(options.seed, self._key, Purpose.MIGRATES, self.offset) < share


LISTS = tuple((kind, active) for kind in (Kind.ANON, Kind.FILE) for active in (False, True))
"""In the order in which dumps number them."""


class NodeLru:
    """Folios by first page; head first."""

    def __init__(self, memory: ElasticMemory) -> None:
        self.lists = {key: PageList() for key in LISTS}  # see `LISTS`
        self.pages = dict.fromkeys(LISTS, 0)  # base pages on each
        self._memory = memory
        self._pages_of_type: Counter[tuple[Kind, bool, int]] = Counter()

    def lruvec_add_folio(self, folio: Folio) -> None:
        """lruvec_add_folio(): put a folio at the head of its list."""
        self.lists[folio.kind, folio.active].push_head(folio.pfn)
        self._count(folio, folio.size)

    def remove(self, folio: Folio) -> None:
        """lruvec_del_folio(): take a folio off its list."""
        self.lists[folio.kind, folio.active].remove(folio.pfn)
        self._count(folio, -folio.size)

    def of_kind(self, kind: Kind) -> int:
        return self.pages[kind, False] + self.pages[kind, True]

    def pages_up_to(self, kind: Kind, highest: int, *, active: bool) -> int:
        """lruvec_lru_size(): return a list's pages in zones up to a type."""
        return sum(self._pages_of_type[kind, active, zone] for zone in range(highest + 1))

    def pages_in(self, kind: Kind, zone_type: int) -> int:
        """The pages of a class in the node's zone of a type."""
        return sum(self._pages_of_type[kind, active, zone_type] for active in (False, True))

    def inactive_is_low(self, kind: Kind) -> bool:
        """inactive_is_low(): return whether the inactive list is short beside the active one."""
        ratio = max(1, isqrt(10 * (self.of_kind(kind) >> 18)))
        return self.pages[kind, False] * ratio < self.pages[kind, True]

    def _count(self, folio: Folio, pages: int) -> None:
        """update_lru_size(): count pages that came or went."""
        self.pages[folio.kind, folio.active] += pages
        zone_type = self._memory.zone_of(folio).type
        self._pages_of_type[folio.kind, folio.active, zone_type] += pages


class Workingset:
    """The ages of nodes, and what reclaim took of files.

    Attributes:
        ages: by node: pages that reclaim took or that became active.
        shadows: by object of which reclaim took all that was left: node, and its age then.
    """

    def __init__(self, memory: ElasticMemory) -> None:
        self._memory = memory
        self.ages: Counter[int] = Counter()
        self.shadows: dict[int, tuple[int, int]] = {}

    def workingset_activation(self, folio: Folio) -> None:
        """workingset_age_nonresident(): count pages that became active."""
        self.ages[self._memory.zone_of(folio).node] += folio.size

    def workingset_eviction(self, folio: Folio) -> None:
        """workingset_eviction(): leave the age at which a folio goes, itself not counted."""
        node, number = self._memory.zone_of(folio).node, folio.object
        if folio.kind is Kind.FILE and self._memory.objects.get(number) == [folio]:
            self.shadows[number] = node, self.ages[node]
        self.ages[node] += folio.size

    def folio_mark_accessed(self, folio: Folio) -> None:
        """folio_mark_accessed(): note a use of a folio."""
        if not folio.marked:
            folio.marked = True
        elif folio.on_lru and folio.kind is Kind.FILE and not folio.active:
            folio.marked = False
            self._activate(folio, "pgactivate")

    def workingset_refault(self, folio: Folio, shadow: tuple[int, int]) -> None:
        """workingset_refault(): count a folio just read again; it is on the inactive list.

        It becomes active if it would have stayed in more memory.
        """
        self._memory.counts["workingset_refault_file"] += folio.size
        if folio.on_lru and folio.kind is Kind.FILE and self._is_recent(*shadow):
            self._activate(folio, "workingset_activate_file")

    def _is_recent(self, node: int, age: int) -> bool:
        """workingset_test_recent(): return whether little was evicted or activated since."""
        lru = self._memory.lrus[node]
        size = lru.pages[Kind.FILE, True]
        if self._memory.options.anon_scan_percent:
            size += lru.of_kind(Kind.ANON)
        return self.ages[node] - age <= size

    def _activate(self, folio: Folio, counter: str) -> None:
        """folio_activate(): move a folio to the head of the active list, and count that."""
        lru = self._memory.lru_of(folio)
        lru.remove(folio)
        folio.active = True
        lru.lruvec_add_folio(folio)
        self.workingset_activation(folio)
        self._memory.counts[counter] += folio.size


class ElasticMemory:
    """What pages in use are, and where their folios are listed."""

    def __init__(self, oracle: ElasticOracle) -> None:
        self._oracle = oracle
        self.options = oracle.options  # shares and costs
        self.folios: dict[int, Folio] = {}  # by first page
        self.objects: dict[int, list[Folio]] = {}  # pieces of each object, the newest first
        self.lrus = {node: NodeLru(self) for node in oracle.machine.nodes}  # by node
        self.counts: Counter[str] = Counter()  # counters under the kernel's names
        self.workingset = Workingset(self)  # ages, and what reclaim took of files
        self.seen: Counter[str] = Counter()  # what else happened, by name: deferrals, captures
        self.now = 0  # model time, ns
        self.requests = 0  # allocations so far

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
        """Add the newest piece of an object, at its list's head."""
        self.folios[folio.pfn] = folio
        if folio.object is not None:
            self.objects.setdefault(folio.object, []).insert(0, folio)
        if folio.on_lru:
            self.lru_of(folio).lruvec_add_folio(folio)

    def forget_isolated(self, folio: Folio) -> None:
        """Take a folio that is about to be freed from its object; it is on no list."""
        del self.folios[folio.pfn]
        if folio.object is not None:
            self.objects[folio.object].remove(folio)

    def free(self, cpu: int, folios: Iterable[Folio]) -> None:
        for folio in folios:
            self.free_pages(cpu, folio.pfn, folio.order)

    def free_pages(self, cpu: int, pfn: int, order: int) -> None:
        self._oracle.allocated.remove(pfn, order)
        self._oracle.act_as(cpu)
        self._oracle.zone_of(pfn).free(cpu, pfn, order)

    def take_out(self, number: int, offset: int, order: int) -> list[Folio]:
        """Take out an object's pieces in a range, halved until they fit."""
        pieces = []
        end = offset + (1 << order)
        waiting = list(self.objects.get(number, []))
        while waiting:
            piece = waiting.pop(0)
            if piece.offset >= end or piece.offset + piece.size <= offset:
                continue
            if offset <= piece.offset and piece.offset + piece.size <= end:
                if piece.on_lru:
                    self.lru_of(piece).remove(piece)
                self.forget_isolated(piece)
                pieces.append(piece)
            else:
                waiting[:0] = self._halves(piece)
        return pieces

    def _halves(self, piece: Folio) -> list[Folio]:
        """The lower and upper half that take a piece's place; they remember what was drawn."""
        order, pieces = piece.order - 1, self.objects[piece.object]
        halves = [
            replace(
                piece,
                order=order,
                pfn=piece.pfn + distance,
                offset=piece.offset + distance,
                draws=Counter(piece.draws),
            )
            for distance in (0, 1 << order)
        ]
        place = pieces.index(piece)
        pieces[place : place + 1] = halves
        if piece.on_lru:
            self.lru_of(piece).remove(piece)
        for half in halves:
            self.folios[half.pfn] = half
            if half.on_lru:
                self.lru_of(half).lruvec_add_folio(half)
        return halves

    def move(self, folio: Folio, target: int) -> None:
        """migrate_folio_move(): move an isolated folio to other pages, at the head of its list."""
        del self.folios[folio.pfn]
        self._oracle.allocated.add(target, folio.order, folio.movable)
        self._oracle.zone_of(target).note_taken(target, folio.order)
        folio.pfn = target
        self.folios[target] = folio
        self.lru_of(folio).lruvec_add_folio(folio)

    def zone_reclaimable_pages(self, zone: Zone) -> int:
        """zone_reclaimable_pages(): return pages of a zone that reclaim might free (S8.3)."""
        lru = self.lrus[zone.node]
        pages = lru.pages_in(Kind.FILE, zone.type)
        if self.options.anon_scan_percent:
            pages += lru.pages_in(Kind.ANON, zone.type)
        if not pages and self._oracle.rules.free_counts_as_reclaimable:
            return zone.counters.free.total
        return pages
