"""Slabs of reclaimable caches that shrinkers can empty, listed by node (S10.8)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.offsets import zone_at
from pagealloc_model.allocator.core.page_lists import list_add, list_del
from pagealloc_model.allocator.pressure.draws import slab_survives
from pagealloc_model.allocator.pressure.lru import page_zone
from pagealloc_model.allocator.pressure.pressure_offsets import node_pressure_at, value_of
from pagealloc_model.base.jit import inner


@inner
def slab_words(m: at.MachineArrays, pfn: int) -> int:
    """No kernel function: return the offset of the words of the node that a slab lies in."""
    return node_pressure_at(m, m.st[zone_at(page_zone(m, pfn)) + at.ZONE_NODE])


@inner
def join_slabs(m: at.MachineArrays, pfn: int) -> None:
    """No kernel function: put a new slab at its node's list's head.

    One that survives has an object that no shrinker counts.
    """
    words = slab_words(m, pfn)
    objects = value_of(m, pr.SLAB_OBJECTS) - slab_survives(m, pfn)
    m.folios[pfn]["slab"] = objects
    m.st[words + pr.SLAB_FREEABLE] += objects
    list_add(m.pages, m.st, words + pr.SLAB_LIST, pfn)


@inner
def leave_slabs(m: at.MachineArrays, pfn: int) -> None:
    """No kernel function: take a slab off its list, if it is on it, with what objects it has."""
    objects = int(m.folios[pfn]["slab"])
    if objects == 0:
        return
    words = slab_words(m, pfn)
    m.folios[pfn]["slab"] = 0
    m.st[words + pr.SLAB_FREEABLE] -= objects
    list_del(m.pages, m.st, words + pr.SLAB_LIST, pfn)


@inner
def lose_object(m: at.MachineArrays, words: int) -> int:
    """No kernel function: take an object off the slab at a list's tail, which goes to the head.

    So objects of one slab lie as far apart as can be. `words`: of the node. A slab without objects
    to lose is off the list. Returns it if it is empty, else -1.
    """
    slab = m.st[words + pr.SLAB_LIST + at.TAIL]
    if int(m.folios[slab]["slab"]) == 1:
        leave_slabs(m, slab)
        return -1 if slab_survives(m, slab) else slab
    m.folios[slab]["slab"] -= 1
    m.st[words + pr.SLAB_FREEABLE] -= 1
    list_del(m.pages, m.st, words + pr.SLAB_LIST, slab)
    list_add(m.pages, m.st, words + pr.SLAB_LIST, slab)
    return -1
