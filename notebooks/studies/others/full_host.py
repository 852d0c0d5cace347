"""A made-up host whose memory is full: page cache churn, atomic requests, huge-page faults.

Nothing is fitted to a recording or to posted figures: every rate and share is a parameter with a
round value. What it can show is which mechanism does what, and how fast.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

import pagealloc_model as pm

GFP, TYPE = pm.synthetic.Gfp, pm.synthetic.Migratetype
SECOND = 1_000_000_000
COUNTED = (
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


@dataclass(frozen=True, kw_only=True)
class FullHost:
    """Size and load of a host.

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
    policy: pm.Policy | None = None,
    *,
    rules: pm.KernelRules,
    assumptions: pm.Assumptions | None = None,
) -> pd.DataFrame:
    """A full host's reserve and huge pages, second by second.

    Returns:
        Columns second; reserved_blocks; whole_blocks, free huge buddies in the reserve;
        partly_used, its other free pages; free_pages and free_whole_blocks, all; score and
        score_without_reserve, percent of the free pages that lie in smaller pieces than huge pages,
        with and without the reserve's own (S9.6, S9.10); and counters since the start:
        blocks_taken, reserved so far; blocks_given_back, of them; failed_order_1 to 3, requests
        that failed, which are atomic; thp_fault_alloc, thp_fault_fallback, compact_success,
        compact_fail, pgscan_kswapd, requests_failed of any order, workingset_refault_file,
        pgsteal_kswapd, pgscan_direct, compact_stall, compact_daemon_wake,
        compact_daemon_migrate_scanned, pgmigrate_success, allocstall; refills, and refill_probes,
        the free lists that they looked at (S6.7).
    """
    machine = pm.synthetic.synthetic_machine(host.gib, host.nr_cpus, rules)
    requests = _requests(machine, host)
    memory = _memory(machine, host, requests)
    run = pm.synthetic.run(
        requests.demand("full host", seed=host.seed, start_ns=0),
        policy,
        rules=rules,
        assumptions=assumptions or pm.Assumptions(reclaim="elastic"),
        memory=memory,
        at_ns=[second * SECOND for second in range(1, host.seconds + 1)],
        keep_holds=False,
    )
    free, counts = run.free, run.counts
    block_pages = 1 << machine.pageblock_order
    in_pieces = free["free_pages"] - free["free_blocks"] * block_pages
    not_reserved = free["free_pages"] - free["partly_used"] - free["whole_blocks"] * block_pages
    table = free[["reserved_blocks", "whole_blocks", "partly_used", "free_pages"]].copy()
    table["free_whole_blocks"] = free["free_blocks"]
    table["score"] = in_pieces * 100 // free["free_pages"].clip(lower=1)
    without = in_pieces - free["partly_used"]
    table["score_without_reserve"] = without * 100 // not_reserved.clip(lower=1)
    table["blocks_taken"] = counts["blocks_reserved"]
    table["blocks_given_back"] = counts["blocks_unreserved"]
    failed = [f"failed_order_{order}" for order in (1, 2, 3)]
    table = table.join(counts[[*failed, *COUNTED]]).reset_index(drop=True)
    table.insert(0, "second", np.arange(1, host.seconds + 1))
    return table


def _memory(
    machine: pm.synthetic.Machine, host: FullHost, requests: pm.synthetic.Requests
) -> pm.synthetic.Memory:
    """All memory in use but for the free share, movable pages on LRU lists in random order.

    Pages of files become the objects of the working set, which is read again and again.
    """
    rng = np.random.default_rng(host.seed)
    managed = pm.synthetic.managed_pages(machine)
    block_pages = 1 << machine.pageblock_order
    blocks = len(managed) // block_pages
    is_kernel = rng.random(blocks) < host.kernel_percent / 100
    types = np.where(is_kernel, TYPE.UNMOVABLE, TYPE.MOVABLE).astype(np.int8)
    movable = managed & ~np.repeat(is_kernel, block_pages)
    free = movable & (rng.random(len(managed)) < host.free_per_mille / 1000)
    whole = np.flatnonzero(managed.reshape(blocks, -1).all(axis=1) & ~is_kernel)
    reserved = np.random.default_rng((host.seed, 3)).permutation(whole)[: host.reserved_blocks]
    types[reserved] = TYPE.HIGHATOMIC
    free.reshape(blocks, -1)[reserved] = True
    movable &= ~free
    movable[_scattered_pages(is_kernel, block_pages, host)] = False
    listed = rng.permutation(np.flatnonzero(movable))
    is_file = rng.random(len(listed)) >= host.anon_percent / 100
    cached = np.sort(listed[is_file])
    chosen = np.random.default_rng((host.seed, 1)).permutation(cached)[: host.working_set_pages]
    numbers = requests.reserve_objects(host.working_set_pages)
    _read(requests, host, numbers)
    return pm.synthetic.Memory(
        block_types=types,
        free=free,
        movable=movable,
        listed=listed,
        is_file=is_file,
        objects=(numbers[: len(chosen)], chosen),
    )


def _scattered_pages(is_kernel: np.ndarray, block_pages: int, host: FullHost) -> np.ndarray:
    """Page frames, one in each movable block that is to have a kernel page."""
    rng = np.random.default_rng((host.seed, host.scattered_per_mille))
    has_one = ~is_kernel & (rng.random(len(is_kernel)) < host.scattered_per_mille / 1000)
    chosen = np.flatnonzero(has_one)
    return chosen * block_pages + rng.integers(0, block_pages, len(chosen))


def _read(requests: pm.synthetic.Requests, host: FullHost, working_set: np.ndarray) -> None:
    """Reads of random pages of the working set."""
    rng = np.random.default_rng((host.seed, 2))
    count = host.reads_per_s * host.seconds if len(working_set) else 0
    times = np.sort(rng.integers(1, host.seconds * SECOND, count))
    if count:
        pages = working_set[rng.integers(0, len(working_set), count)]
        requests.read(times, pages, cpu=rng.integers(0, host.nr_cpus, count))


def _requests(machine: pm.synthetic.Machine, host: FullHost) -> pm.synthetic.Requests:
    """Page cache, atomic requests, faults for huge pages, the kernel's requests."""
    rng = np.random.default_rng(host.seed + 1)
    requests = pm.synthetic.Requests(machine)
    faults = pm.synthetic.huge_gfp(
        host.thp_defrag, madvised=host.thp_madvised, local_first=host.thp_local_first
    )
    kinds = (
        (host.cache_pages_per_s, GFP.FILE, TYPE.MOVABLE, np.inf),
        (host.atomic_per_s, GFP.ATOMIC, TYPE.UNMOVABLE, host.atomic_ms / 1000),
        (host.huge_per_s, faults, TYPE.MOVABLE, host.huge_s),
        (host.kernel_per_s, GFP.KERNEL, TYPE.UNMOVABLE, host.atomic_ms / 1000),
    )
    for number, (rate, gfp, migratetype, life) in enumerate(kinds):
        count = rate * host.seconds
        times = np.sort(rng.integers(1, host.seconds * SECOND, count))
        cpus = rng.integers(0, host.nr_cpus, count)
        orders: np.ndarray | int = 0
        lives = rng.exponential(life, count) if np.isfinite(life) else np.full(count, np.inf)
        if number == 1:
            weights = np.array(host.atomic_order_weights, float)
            orders = rng.choice(4, count, p=weights / weights.sum())
            lasting = rng.random(count) < host.lasting_per_mille / 1000
            lives[lasting] = rng.exponential(host.lasting_s, int(lasting.sum()))
            begin, end = (second * SECOND for second in host.atomic_pause_s)
            awake = (times < begin) | (times >= end)
            times, cpus, orders, lives = times[awake], cpus[awake], orders[awake], lives[awake]
        elif number == 2:
            orders = machine.pageblock_order
        elif number == 3:
            weights = np.array(host.atomic_order_weights[1:], float)
            orders = 1 + rng.choice(3, count, p=weights / weights.sum())
        ends = times + np.floor(lives * SECOND) + 1
        requests.ask(times, ends, gfp=gfp, migratetype=migratetype, order=orders, cpu=cpus)
    return requests
