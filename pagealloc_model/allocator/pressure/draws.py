"""Seeded draws by counter: the same whatever else happens, so that policies share them."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.pressure.pressure_offsets import value_of
from pagealloc_model.base.jit import inner

REFERENCED, DIRTY, MIGRATES, CONTENDS, SURVIVES = 1, 2, 3, 4, 5
_MASK = (1 << 31) - 1


@inner
def mixed(value: int) -> int:
    """No kernel function: return a well mixed number of 31 bits.

    It takes two rounds of multiply and shift, in 62 bits.
    """
    value &= _MASK
    for _ in range(2):
        value ^= value >> 16
        value = (value * 0x45D9F3B) & _MASK
    return value ^ (value >> 16)


@inner
def draw(m: at.MachineArrays, key: int, purpose: int, number: int) -> int:
    """No kernel function: return a number below 1000 for a question of a purpose about a key."""
    return mixed(mixed(mixed(value_of(m, pr.SEED) + key) + purpose) + number) % 1000


@inner
def key_of(m: at.MachineArrays, pfn: int) -> int:
    """No kernel function: return what draws about a folio go by.

    It is the folio's object, or its page if no event is about it.
    """
    number = int(m.folios[pfn]["object"])
    return number if number > 0 else -1 - pfn


@inner
def is_referenced(m: at.MachineArrays, pfn: int) -> bool:
    """Part of folio_check_references(): draw; returns whether a scan finds a folio in use."""
    share = pr.FILE_REFERENCED if int(m.folios[pfn]["kind"]) == pr.FILE else pr.ANON_REFERENCED
    number = int(m.folios[pfn]["scans"])
    m.folios[pfn]["scans"] = (number + 1) & 255
    return draw(m, key_of(m, pfn), REFERENCED, number) < value_of(m, share)


@inner
def is_dirty(m: at.MachineArrays, pfn: int) -> bool:
    """Part of folio_check_dirty_writeback(): draw; returns whether a file's page is dirty."""
    if int(m.folios[pfn]["kind"]) != pr.FILE:
        return False
    number = int(m.folios[pfn]["writes"])
    m.folios[pfn]["writes"] = (number + 1) & 255
    return draw(m, key_of(m, pfn), DIRTY, number) < value_of(m, pr.FILE_DIRTY)


@inner
def migration_fails(m: at.MachineArrays, pfn: int) -> bool:
    """Part of migrate_pages(): draw; returns whether a folio cannot be moved (S10.5).

    The draw is one for each folio: what cannot move is so until it is freed.
    """
    is_file = int(m.folios[pfn]["kind"]) == pr.FILE
    share = pr.FILE_MIGRATION_FAILS if is_file else pr.ANON_MIGRATION_FAILS
    return draw(m, key_of(m, pfn), MIGRATES, int(m.folios[pfn]["offset"])) < value_of(m, share)


@inner
def slab_survives(m: at.MachineArrays, pfn: int) -> bool:
    """No kernel function: draw; returns whether a slab keeps an object that no shrinker frees.

    The draw is one for each slab (S10.8).
    """
    number = int(m.folios[pfn]["offset"])
    return draw(m, key_of(m, pfn), SURVIVES, number) < value_of(m, pr.SLAB_SURVIVORS)
