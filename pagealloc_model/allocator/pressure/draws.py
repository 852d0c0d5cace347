"""Seeded draws by counter: the same whatever else happens, so that policies share them."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.pressure.pressure_offsets import value_of
from pagealloc_model.base.jit import inner

REFERENCED, DIRTY, MIGRATES, CONTENDS = 1, 2, 3, 4
_MASK = (1 << 31) - 1


@inner
def mixed(value: int) -> int:
    """A well mixed number of 31 bits: two rounds of multiply and shift, in 62 bits."""
    value &= _MASK
    for _ in range(2):
        value ^= value >> 16
        value = (value * 0x45D9F3B) & _MASK
    return value ^ (value >> 16)


@inner
def draw(st: np.ndarray, key: int, purpose: int, number: int) -> int:
    """A number below 1000 for the `number`-th question of a purpose about a key."""
    return mixed(mixed(mixed(value_of(st, pr.SEED) + key) + purpose) + number) % 1000


@inner
def key_of(folios: np.ndarray, pfn: int) -> int:
    """What draws about a folio go by: its object, or its page if no event is about it."""
    number = int(folios[pfn]["object"])
    return number if number > 0 else -1 - pfn


@inner
def is_referenced(folios: np.ndarray, st: np.ndarray, pfn: int) -> bool:
    """Whether a scan finds a folio in use."""
    share = pr.FILE_REFERENCED if int(folios[pfn]["kind"]) == pr.FILE else pr.ANON_REFERENCED
    number = int(folios[pfn]["scans"])
    folios[pfn]["scans"] = (number + 1) & 255
    return draw(st, key_of(folios, pfn), REFERENCED, number) < value_of(st, share)


@inner
def is_dirty(folios: np.ndarray, st: np.ndarray, pfn: int) -> bool:
    """Whether a scan finds a page of a file not written back yet."""
    if int(folios[pfn]["kind"]) != pr.FILE:
        return False
    number = int(folios[pfn]["writes"])
    folios[pfn]["writes"] = (number + 1) & 255
    return draw(st, key_of(folios, pfn), DIRTY, number) < value_of(st, pr.FILE_DIRTY)


@inner
def migration_fails(folios: np.ndarray, st: np.ndarray, pfn: int) -> bool:
    """Whether an attempt to move a folio fails."""
    is_file = int(folios[pfn]["kind"]) == pr.FILE
    share = pr.FILE_MIGRATION_FAILS if is_file else pr.ANON_MIGRATION_FAILS
    number = int(folios[pfn]["moves"])
    folios[pfn]["moves"] = (number + 1) & 255
    return draw(st, key_of(folios, pfn), MIGRATES, number) < value_of(st, share)
