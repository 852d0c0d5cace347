"""Uses of files' pages: marks, ages, and pages that are read again (S10.7)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.oracle.folios import Folio, Kind

if TYPE_CHECKING:
    from tests.oracle.elastic_memory import ElasticMemory


@dataclass(frozen=True)
class Shadow:
    """What reclaim leaves in the place of an object of a file: which node took it, at which age."""

    node: int
    age: int


class Workingset:
    """The ages of nodes, and what reclaim took of files.

    Attributes:
        ages: by node: pages that reclaim took or that became active.
        shadows: by object, of those of which reclaim took all that was left.
    """

    def __init__(self, memory: ElasticMemory) -> None:
        self._memory = memory
        self.ages: Counter[int] = Counter()
        self.shadows: dict[int, Shadow] = {}

    def workingset_activation(self, folio: Folio) -> None:
        """workingset_age_nonresident(): count pages that became active."""
        self.ages[self._node(folio)] += folio.size

    def workingset_eviction(self, folio: Folio) -> None:
        """workingset_eviction(): take up that reclaim takes a folio, still in its object.

        The age left behind does not count the folio itself.
        """
        node = self._node(folio)
        number = folio.object
        if folio.kind is Kind.FILE:
            is_last = number is not None and self._memory.objects[number] == [folio]
            if is_last:
                self.shadows[number] = Shadow(node, self.ages[node])
        self.ages[node] += folio.size

    def folio_mark_accessed(self, folio: Folio) -> None:
        """folio_mark_accessed(): note a use of a folio."""
        if not folio.marked:
            folio.marked = True
        elif folio.on_lru and folio.kind is Kind.FILE and not folio.active:
            folio.marked = False
            self._activate(folio)
            self._memory.counts["pgactivate"] += folio.size

    def workingset_refault(self, folio: Folio, shadow: Shadow) -> None:
        """workingset_refault(): count a folio just read again; it is on the inactive list.

        It becomes active if it would have stayed in more memory.
        """
        self._memory.counts["workingset_refault_file"] += folio.size
        if not folio.on_lru or folio.kind is not Kind.FILE or not self._is_recent(shadow):
            return
        self._activate(folio)
        self._memory.counts["workingset_activate_file"] += folio.size

    def _is_recent(self, shadow: Shadow) -> bool:
        """workingset_test_recent(): return whether little was evicted or activated since."""
        pages = self._memory.lrus[shadow.node].pages
        size = pages[Kind.FILE, True]
        if self._memory.options.anon_scan_percent:
            size += pages[Kind.ANON, False] + pages[Kind.ANON, True]
        return self.ages[shadow.node] - shadow.age <= size

    def _activate(self, folio: Folio) -> None:
        """folio_activate(): move a folio to the head of the active list."""
        lru = self._memory.lru_of(folio)
        lru.remove(folio)
        folio.active = True
        lru.lruvec_add_folio(folio)
        self.workingset_activation(folio)

    def _node(self, folio: Folio) -> int:
        """No kernel function: return the node that a folio lies in."""
        return self._memory.zone_of(folio).node
