"""Folios and the objects they are pieces of (S10.5)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import IntEnum

from tests.oracle.draws import Purpose, draw

DRAWS = 256
"""The number of a draw begins again after this many."""


class Kind(IntEnum):
    """Class of an allocated page."""

    KERNEL = 0
    RECLAIMABLE = 1
    ANON = 2
    FILE = 3


@dataclass(eq=False)
class Folio:
    """One allocation of some order.

    Attributes:
        pfn: first page.
        order: its size.
        kind: its class.
        object: number of the object it is a piece of; None if no event is about it.
        offset: its distance from the object's beginning, in pages.
        movable: requested as MOVABLE.
        active: on the active list, if on any.
        marked: used since it was read or last activated (S10.7).
        draws: how often each purpose was drawn.
    """

    pfn: int
    order: int
    kind: Kind
    object: int | None = None
    offset: int = 0
    movable: bool = False
    active: bool = False
    marked: bool = False
    draws: Counter[Purpose] = field(default_factory=Counter)

    @property
    def size(self) -> int:
        """folio_nr_pages(): return its pages."""
        return 1 << self.order

    @property
    def on_lru(self) -> bool:
        """No kernel function: return whether pages like it are on LRU lists."""
        return self.movable and self.kind >= Kind.ANON

    @property
    def _key(self) -> int:
        """No kernel function: return what draws are keyed by."""
        return -1 - self.pfn if self.object is None else self.object + 1

    def happens(self, purpose: Purpose, per_mille: int, seed: int) -> bool:
        """No kernel function: draw once more; returns whether it happens."""
        number = self.draws[purpose] % DRAWS
        self.draws[purpose] += 1
        return draw(seed, self._key, purpose, number) < per_mille

    def cannot_move(self, per_mille: int, seed: int) -> bool:
        """No kernel function: return whether a folio stays where it is until it is freed (S9.9).

        It is drawn for its object and its distance from the object's beginning.
        """
        return draw(seed, self._key, Purpose.MIGRATES, self.offset) < per_mille

    def halves(self) -> tuple[Folio, Folio]:
        """No kernel function: return the lower and upper half.

        Both remember what was drawn.
        """
        order = self.order - 1
        lower = replace(self, order=order, draws=Counter(self.draws))
        upper = replace(
            lower,
            pfn=self.pfn + (1 << order),
            offset=self.offset + (1 << order),
            draws=Counter(self.draws),
        )
        return lower, upper
