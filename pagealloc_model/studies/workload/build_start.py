"""The memory of a host that has been up for a short while: full, and hardly fragmented."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.lru import place_on_lists
from pagealloc_model.allocator.state import (
    State,
    make_state,
    maximal_buddies,
    place_buddies,
    with_pressure,
)
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.recording.machine import Machine
from pagealloc_model.studies.workload.build_host import BuildHost
from pagealloc_model.studies.workload.run import managed_spans

LOG_ROWS = 1 << 18
_CACHE, _RESIDENT, _FREE, _KERNEL = range(4)


def state_after_boot(
    machine: Machine, host: BuildHost, rules: KernelRules, policy: Policy, assumptions: Assumptions
) -> State:
    """Whole pageblocks of kernel memory, resident programs, page cache and free memory.

    The page cache was read block by block: neighbours in memory are neighbours on the LRU list.

    Args:
        machine: the host's.
        host: shares of each.
        rules: the kernel generation.
        policy: what it runs under.
        assumptions: what reclaim and compaction find.
    """
    rng = np.random.default_rng(host.seed)
    state = make_state(machine, rules, policy, assumptions, log_rows=LOG_ROWS)
    state = with_pressure(state, rules, policy, assumptions, seed=host.seed)
    use = _uses(rng, len(state.blocks), host)
    state.blocks["migratetype"][use == _KERNEL] = at.UNMOVABLE
    managed = np.zeros(len(state.pages), bool)
    for first, end in managed_spans(machine):
        managed[first:end] = True
    of_page = np.repeat(use, 1 << machine.pageblock_order)[: len(managed)]
    unused = rng.random(len(managed)) < host.kernel_free_percent / 100
    free = managed & ((of_page == _FREE) | (of_page == _KERNEL) & unused)
    types = state.blocks["migratetype"]
    pfns, orders = maximal_buddies(free, types, machine.pageblock_order, machine.max_order)
    place_buddies(state.arrays(), pfns.astype(np.int32), orders.astype(np.int8))
    state.pages["where"][managed & ~free] = at.ALLOCATED
    listed = managed & ((of_page == _CACHE) | (of_page == _RESIDENT))
    state.pages["tag"][listed] = 1
    pfns = _block_by_block(rng, np.flatnonzero(listed), machine.pageblock_order)
    is_cache = of_page[pfns] == _CACHE
    lists = np.where(is_cache, pr.INACTIVE_FILE, pr.INACTIVE_ANON).astype(np.int8)
    place_on_lists(state.arrays(), pfns.astype(np.int32), lists)
    return state


def _uses(rng: np.random.Generator, blocks: int, host: BuildHost) -> np.ndarray:
    """What each pageblock is used for, int8."""
    movable = 1 - host.kernel_percent / 100
    resident, free = (movable * each / 100 for each in (host.resident_percent, host.free_percent))
    shares = [movable - resident - free, resident, free, host.kernel_percent / 100]
    return rng.choice(4, blocks, p=shares).astype(np.int8)


def _block_by_block(rng: np.random.Generator, pfns: np.ndarray, order: int) -> np.ndarray:
    """Pages of a block side by side and ascending, blocks in random order."""
    blocks = pfns >> order
    places = rng.permutation(int(blocks.max(initial=0)) + 1)
    return pfns[np.argsort(places[blocks], kind="stable")]
