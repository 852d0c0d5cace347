"""A made-up host whose memory is full: page cache churn, atomic requests, huge-page faults.

Nothing is fitted to a recording or to posted figures: every rate and share is a parameter with a
round value. What it can show is which mechanism does what, and how fast.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.events import advance_elastic
from pagealloc_model.allocator.lru import place_on_lists
from pagealloc_model.allocator.state import (
    State,
    make_state,
    maximal_buddies,
    place_buddies,
    thp_reclaim_bits,
    with_pressure,
)
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.made_up_machine import made_up_machine
from pagealloc_model.studies.workload.run import managed_spans

KERNEL_BITS = at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM | pr.GFP_IO
FILE_BITS = KERNEL_BITS | pr.GFP_NORETRY | pr.FILE << pr.CLASS_SHIFT
HUGE_BITS = pr.GFP_IO | at.GFP_NOMEMALLOC | pr.ANON << pr.CLASS_SHIFT
"""Of a fault for a huge page, but for those that say how it may reclaim (S8.5)."""
ATOMIC_BITS = at.GFP_HIGH | at.GFP_KSWAPD_RECLAIM
SECOND = 1_000_000_000
LOG_ROWS = 1 << 18


@dataclass(frozen=True, kw_only=True)
class FullHost:
    """What a host is and does.

    Attributes:
        gib: memory.
        nr_cpus: CPUs, each with an equal part of the load.
        free_per_mille: pages free at first, anywhere in movable blocks.
        kernel_percent: pageblocks full of kernel memory.
        scattered_per_mille: movable pageblocks with a kernel page in them, which nothing moves.
        anon_percent: movable pages that are anonymous; the others are page cache.
        cache_pages_per_s: page cache filled by reading, never freed but by reclaim.
        atomic_per_s: atomic requests.
        atomic_order_weights: how they spread over orders 0 to 3.
        atomic_ms: mean life of most, ms.
        lasting_per_mille: atomic allocations that live on for `lasting_s`.
        lasting_s: their mean life, s.
        atomic_pause_s: no atomic request is made from the first of these seconds to the second.
        reserved_blocks: pageblocks on the HighAtomic lists at first, wholly free, as a burst of
            atomic requests leaves them that is long past.
        kernel_per_s: GFP_KERNEL requests of orders 1 to 3, spread and living as atomic ones, which
            reclaim and compact themselves where they find no page.
        huge_per_s: faults for huge pages.
        huge_s: their mean life, s.
        thp_defrag: setting of transparent_hugepage/defrag that they are made under.
        thp_madvised: their memory is madvised.
        thp_local_first: they first ask for a page of their own node alone (S8.5).
        working_set_pages: pages of files that are read again and again, at random; as many as fit
            are in the page cache at first.
        reads_per_s: those reads. What is no longer in the page cache is read anew (S10.7).
        seconds: length.
        seed: of times and places.
    """

    gib: float = 64
    nr_cpus: int = 32
    free_per_mille: int = 15
    kernel_percent: int = 10
    scattered_per_mille: int = 0
    anon_percent: int = 50
    cache_pages_per_s: int = 100_000
    atomic_per_s: int = 50_000
    atomic_order_weights: tuple[int, int, int, int] = (4, 3, 2, 1)
    atomic_ms: float = 2.0
    lasting_per_mille: int = 5
    lasting_s: float = 10.0
    atomic_pause_s: tuple[int, int] = (0, 0)
    reserved_blocks: int = 0
    kernel_per_s: int = 0
    huge_per_s: int = 20
    huge_s: float = 2.0
    thp_defrag: str = "always"
    thp_madvised: bool = True
    thp_local_first: bool = False
    working_set_pages: int = 0
    reads_per_s: int = 0
    seconds: int = 20
    seed: int = 0


def run_full_host(
    host: FullHost,
    policy: Policy | None = None,
    *,
    rules: KernelRules,
    assumptions: Assumptions | None = None,
) -> pd.DataFrame:
    """What becomes of a full host's reserve and huge pages, second by second.

    Args:
        host: what it is and does.
        policy: what it runs under.
        rules: the kernel generation.
        assumptions: what reclaim and compaction find.

    Returns:
        Columns second; reserved_blocks; whole_blocks, free huge buddies in the reserve; crumbs,
        free pages of the reserve in smaller ones; free_pages and free_whole_blocks, all; score and
        score_without_reserve, percent of the free pages that lie in smaller pieces than huge pages,
        with and without the reserve's own (S9.6, S9.10); and counters since the start:
        blocks_taken, reserved so far; blocks_given_back, of them; failed_order_1 to 3, requests
        that failed, which are atomic; thp_fault_alloc, thp_fault_fallback, compact_success,
        compact_fail, pgscan_kswapd, requests_failed of any order, workingset_refault_file,
        pgsteal_kswapd, pgscan_direct, compact_stall, compact_daemon_wake,
        compact_daemon_migrate_scanned, pgmigrate_success, allocstall; refills, and refill_probes,
        the free lists that they looked at (S6.7).
    """
    policy = policy or Policy()
    assumptions = assumptions or Assumptions(reclaim="elastic")
    machine = made_up_machine(host.gib, host.nr_cpus, rules)
    state = _full_state(machine, host, rules, policy, assumptions)
    events, objects = _demand(machine, host)
    places = np.full(objects + host.working_set_pages, -1, np.int32)
    leads = np.full(len(places), -1, np.int32)
    _place_working_set(state, host, objects, places)
    events = np.concatenate([events, _reads(machine, host, objects)])
    events = events[np.argsort(events["time_ns"], kind="stable")]
    rows = []
    position = 0
    for second in range(1, host.seconds + 1):
        until = second * SECOND
        stop = int(np.searchsorted(events["time_ns"], until))
        while position < stop or state.next_due_ns <= until:
            position = advance_elastic(state.arrays(places), events, leads, position, stop, until)
            state.st[at.LOG_ROWS] = 0
        rows.append((second, *_sample(state)))
    return pd.DataFrame(rows, columns=["second", *COLUMNS])


COUNTED = (
    pr.THP_FAULT_ALLOC,
    pr.THP_FAULT_FALLBACK,
    pr.COMPACT_SUCCESS,
    pr.COMPACT_FAIL,
    pr.PGSCAN_KSWAPD,
    pr.DEMAND_FAILED,
    pr.WORKINGSET_REFAULT_FILE,
    pr.PGSTEAL_KSWAPD,
    pr.PGSCAN_DIRECT,
    pr.COMPACT_STALL,
    pr.DAEMON_WAKE,
    pr.DAEMON_MIGRATE_SCANNED,
    pr.PGMIGRATE_SUCCESS,
)
COLUMNS = (
    "reserved_blocks",
    "whole_blocks",
    "crumbs",
    "free_pages",
    "free_whole_blocks",
    "score",
    "score_without_reserve",
    "blocks_taken",
    "blocks_given_back",
    "failed_order_1",
    "failed_order_2",
    "failed_order_3",
    "thp_fault_alloc",
    "thp_fault_fallback",
    "compact_success",
    "compact_fail",
    "pgscan_kswapd",
    "requests_failed",
    "workingset_refault_file",
    "pgsteal_kswapd",
    "pgscan_direct",
    "compact_stall",
    "compact_daemon_wake",
    "compact_daemon_migrate_scanned",
    "pgmigrate_success",
    "allocstall",
    "refills",
    "refill_probes",
)


def _sample(state: State) -> tuple[int, ...]:
    machine = state.machine
    buddies = state.free_buddies()
    reserve, everything = buddies[:, :, at.HIGHATOMIC].sum(axis=0), buddies.sum(axis=(0, 2))
    sizes, all_sizes = (each << np.arange(len(each)) for each in (reserve, everything))
    order = machine.pageblock_order
    words = state.pressure_words(0, pr.SCALARS)
    outcomes = words[pr.OUTCOMES :].reshape(at.ORDERS, pr.OUTCOME_WORDS)
    moved_blocks = state.sites()[..., at.SITE_OBJECTS].sum(axis=(0, 1))
    return (
        int(state.block_counts()[:, at.HIGHATOMIC].sum()),
        int(sizes[order:].sum() >> order),
        int(sizes[:order].sum()),
        int(all_sizes.sum()),
        int(all_sizes[order:].sum() >> order),
        _share_in_pieces(all_sizes, order),
        _share_in_pieces(all_sizes - sizes, order),
        int(moved_blocks[at.SITE_RESERVE]),
        int(moved_blocks[at.SITE_UNRESERVE]),
        *(int(each) for each in outcomes[1:4, 0] - outcomes[1:4, 1]),
        *(int(words[word]) for word in COUNTED),
        int(words[pr.ALLOCSTALL : pr.ALLOCSTALL + len(machine.zone_types)].sum()),
        int(state.sites()[..., at.SITE_REFILL, at.SITE_ACQUISITIONS].sum()),
        int(state.st[at.REFILL_PROBES]),
    )


def _share_in_pieces(sizes: np.ndarray, order: int) -> int:
    """Percent of the free pages that lie in buddies below an order; 0 if nothing is free."""
    free = int(sizes.sum())
    return int(sizes[:order].sum()) * 100 // free if free else 0


def _full_state(
    machine: Machine, host: FullHost, rules: KernelRules, policy: Policy, assumptions: Assumptions
) -> State:
    """All memory in use but for the free share, movable pages on LRU lists in random order."""
    rng = np.random.default_rng(host.seed)
    state = make_state(machine, rules, policy, assumptions, log_rows=LOG_ROWS)
    state = with_pressure(state, rules, policy, assumptions, seed=host.seed)
    block_pages = 1 << machine.pageblock_order
    is_kernel = rng.random(len(state.blocks)) < host.kernel_percent / 100
    state.blocks["migratetype"][is_kernel] = at.UNMOVABLE
    managed = np.zeros(len(state.pages), bool)
    for first, end in managed_spans(machine):
        managed[first:end] = True
    movable = managed & ~np.repeat(is_kernel, block_pages)
    free = movable & (rng.random(len(managed)) < host.free_per_mille / 1000)
    free |= np.repeat(_reserve_blocks(state, managed, is_kernel, host), block_pages)
    types = state.blocks["migratetype"]
    pfns, orders = maximal_buddies(free, types, machine.pageblock_order, machine.max_order)
    place_buddies(state.arrays(), pfns.astype(np.int32), orders.astype(np.int8))
    state.pages["where"][managed & ~free] = at.ALLOCATED
    movable &= ~free
    movable[_scattered_pages(is_kernel, block_pages, host)] = False
    state.pages["tag"][movable] = 1
    listed = rng.permutation(np.flatnonzero(movable)).astype(np.int32)
    is_anon = rng.random(len(listed)) < host.anon_percent / 100
    lists = np.where(is_anon, pr.INACTIVE_ANON, pr.INACTIVE_FILE).astype(np.int8)
    place_on_lists(state.arrays(), listed, lists)
    return state


def _reserve_blocks(
    state: State, managed: np.ndarray, is_kernel: np.ndarray, host: FullHost
) -> np.ndarray:
    """Make the blocks of the first reserve HighAtomic ones; returns which they are, bool."""
    rng = np.random.default_rng((host.seed, 3))
    whole = managed.reshape(len(is_kernel), -1).all(axis=1) & ~is_kernel
    chosen = rng.permutation(np.flatnonzero(whole))[: host.reserved_blocks]
    is_reserved = np.zeros(len(is_kernel), bool)
    is_reserved[chosen] = True
    state.blocks["migratetype"][is_reserved] = at.HIGHATOMIC
    block_pages = len(managed) // len(is_kernel)
    for zone in range(len(state.machine.zones)):
        own = int(np.count_nonzero(is_reserved & (state.blocks["zone"] == zone + 1)))
        region = at.ZONES + zone * at.ZONE_STRIDE
        state.st[region + at.ZONE_RESERVED_HIGHATOMIC] = own * block_pages
    return is_reserved


def _scattered_pages(is_kernel: np.ndarray, block_pages: int, host: FullHost) -> np.ndarray:
    """Page frames, one in each movable block that is to have a kernel page."""
    rng = np.random.default_rng((host.seed, host.scattered_per_mille))
    has_one = ~is_kernel & (rng.random(len(is_kernel)) < host.scattered_per_mille / 1000)
    chosen = np.flatnonzero(has_one)
    return chosen * block_pages + rng.integers(0, block_pages, len(chosen))


def _place_working_set(state: State, host: FullHost, first: int, places: np.ndarray) -> None:
    """Make pages of the page cache objects of the working set, numbered from `first` on."""
    cached = np.flatnonzero(state.folios["place"] == pr.INACTIVE_FILE + 1)
    chosen = np.random.default_rng((host.seed, 1)).permutation(cached)[: host.working_set_pages]
    numbers = first + np.arange(len(chosen))
    state.folios["object"][chosen] = numbers + 1
    places[numbers] = chosen


def _reads(machine: Machine, host: FullHost, first: int) -> np.ndarray:
    """Uses of the working set, each of a random page of it."""
    rng = np.random.default_rng((host.seed, 2))
    count = host.reads_per_s * host.seconds if host.working_set_pages else 0
    reads = np.zeros(count, at.EVENT)
    reads["operation"] = at.USE
    reads["time_ns"] = np.sort(rng.integers(1, host.seconds * SECOND, count))
    reads["object"] = first + rng.integers(0, max(host.working_set_pages, 1), count)
    reads["bits"] = FILE_BITS
    reads["migratetype"] = at.MOVABLE
    reads["cpu"] = rng.integers(0, host.nr_cpus, count)
    reads["zone"] = machine.type_index("Normal")
    return reads


def _outside(
    pause_s: tuple[int, int], asked: np.ndarray, lives: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the requests that do not fall into a pause, numbered without gaps, and their lives."""
    begin, end = (second * SECOND for second in pause_s)
    kept = (asked["time_ns"] < begin) | (asked["time_ns"] >= end)
    numbers = asked["object"][: np.count_nonzero(kept)].copy()
    asked, lives = asked[kept], lives[kept]
    asked["object"] = numbers
    return asked, lives


def _demand(machine: Machine, host: FullHost) -> tuple[np.ndarray, int]:
    """Events of all kinds in time order, and the number of objects."""
    rng = np.random.default_rng(host.seed + 1)
    highest = machine.type_index("Normal")
    may_reclaim = thp_reclaim_bits(host.thp_defrag, host.thp_madvised)
    if host.thp_local_first:
        may_reclaim |= at.GFP_THISNODE | pr.GFP_NORETRY
    kinds = (
        (host.cache_pages_per_s, FILE_BITS, at.MOVABLE, np.inf),
        (host.atomic_per_s, ATOMIC_BITS, at.UNMOVABLE, host.atomic_ms / 1000),
        (host.huge_per_s, HUGE_BITS | may_reclaim, at.MOVABLE, host.huge_s),
        (host.kernel_per_s, KERNEL_BITS | pr.GFP_FS, at.UNMOVABLE, host.atomic_ms / 1000),
    )
    parts = []
    objects = 0
    for number, (rate, bits, migratetype, life) in enumerate(kinds):
        count = rate * host.seconds
        asked = np.zeros(count, at.EVENT)
        asked["time_ns"] = np.sort(rng.integers(1, host.seconds * SECOND, count))
        asked["object"] = objects + np.arange(count)
        asked["bits"] = bits
        asked["migratetype"] = migratetype
        asked["cpu"] = rng.integers(0, host.nr_cpus, count)
        asked["zone"] = highest
        lives = rng.exponential(life, count) if np.isfinite(life) else np.full(count, np.inf)
        if number == 1:
            weights = np.array(host.atomic_order_weights, float)
            asked["order"] = rng.choice(4, count, p=weights / weights.sum())
            lasting = rng.random(count) < host.lasting_per_mille / 1000
            lives[lasting] = rng.exponential(host.lasting_s, int(lasting.sum()))
            asked, lives = _outside(host.atomic_pause_s, asked, lives)
        elif number == 2:
            asked["order"] = machine.pageblock_order
        elif number == 3:
            weights = np.array(host.atomic_order_weights[1:], float)
            asked["order"] = 1 + rng.choice(3, count, p=weights / weights.sum())
        objects += len(asked)
        freed = asked[np.isfinite(lives)].copy()
        freed["operation"] = at.FREE
        freed["bits"] = 0
        freed["time_ns"] += (lives[np.isfinite(lives)] * SECOND).astype(np.int64) + 1
        parts += [asked, freed]
    events = np.concatenate(parts)
    return events[np.argsort(events["time_ns"], kind="stable")], objects
