"""What reclaim asks of the shrinkers of a node's slab caches (S10.8)."""

from __future__ import annotations

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.pressure.folios import free_waiting, queue_free, remove_piece
from pagealloc_model.allocator.pressure.pressure_offsets import node_pressure_at, word_at
from pagealloc_model.allocator.pressure.slab_list import lose_object
from pagealloc_model.base.jit import inner


@inner
def count_objects(m: at.MachineArrays, node: int) -> int:
    """Part of do_shrink_slab(): return the objects that a shrinker says it could free.

    A policy's vfs_cache_pressure scales them.
    """
    objects = m.st[node_pressure_at(m, node) + pr.SLAB_FREEABLE]
    return objects * m.st[at.POLICY_VFS_CACHE_PRESSURE] // 100


@inner
def scan_objects(m: at.MachineArrays, node: int, objects: int) -> int:
    """Part of do_shrink_slab(): free objects, one of each slab in turn.

    A slab goes with its last object, if that is not in use. Returns the pages that became free.
    """
    words = node_pressure_at(m, node)
    freed = 0
    while objects > 0 and m.st[words + pr.SLAB_FREEABLE] > 0:
        objects -= 1
        slab = lose_object(m, words)
        if slab >= 0:
            freed += 1 << int(m.pages[slab]["order"])
            remove_piece(m, slab)
            queue_free(m, slab)
    free_waiting(m)
    return freed


@inner
def do_shrink_slab(m: at.MachineArrays, node: int, sc: int) -> int:
    """do_shrink_slab(): let a shrinker free its share for the priority of a pass, in batches.

    What is left of it is deferred to later passes; all of it, if reclaim may not enter file
    systems. Returns the pages that became free.
    """
    freeable = count_objects(m, node)
    if freeable == 0:
        return 0
    deferred = node_pressure_at(m, node) + pr.SLAB_DEFERRED
    priority = m.st[sc + pr.SC_PRIORITY]
    delta = (freeable >> priority) * 4 // pr.DEFAULT_SEEKS
    left = min((m.st[deferred] >> priority) + delta, 2 * freeable)
    scanned = 0
    freed = 0
    while m.st[sc + pr.SC_MAY_FS] and (left >= pr.SHRINK_BATCH or left >= freeable):
        batch = min(pr.SHRINK_BATCH, left)
        freed += scan_objects(m, node, batch)
        left -= batch
        scanned += batch
    m.st[deferred] = min(max(m.st[deferred] + delta - scanned, 0), 2 * freeable)
    m.st[word_at(m, pr.SLABS_SCANNED)] += scanned
    return freed


@inner
def shrink_slab(m: at.MachineArrays, node: int, sc: int) -> int:
    """shrink_slab(): call a node's shrinkers, of which the model has one.

    Returns the pages that became free; the caller counts them as reclaimed.
    """
    freed = do_shrink_slab(m, node, sc)
    m.st[word_at(m, pr.RECLAIMED_SLABS)] += freed
    return freed
