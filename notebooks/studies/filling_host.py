"""A made-up host that fills up from empty, then replaces what it has: where kernel memory ends up.

Nothing is fitted to a recording or to posted figures: every share is a parameter with a round
value. Pages are freed as a host drops them, at random; reclaim itself does not run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.events import advance
from pagealloc_model.allocator.state import State, make_state, maximal_buddies, place_buddies
from pagealloc_model.base.errors import UsageError
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.made_up_machine import made_up_machine
from pagealloc_model.studies.workload.run import managed_spans

BITS = at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM | pr.GFP_IO | pr.GFP_FS
GAP_NS = 200
LOG_ROWS = 1 << 18
GIGABYTE_ORDER = 18
KERNEL_TYPES = (at.UNMOVABLE, at.RECLAIMABLE)


@dataclass(frozen=True, kw_only=True)
class FillingHost:
    """What a host is and holds.

    Attributes:
        gib: memory; the Normal zone has all of it but 4 GiB.
        nr_cpus: CPUs; each object is allocated and freed by one of them.
        used_per_mille: pages in use once it is full.
        kernel_per_mille: of the pages in use, those that are the kernel's.
        reclaimable_per_mille: of the kernel's pages, those of reclaimable blocks.
        movable_orders: order and share of the movable pages, per mille, of their objects.
        kernel_orders: the same of the kernel's pages.
        turnover_percent: pages allocated once it is full, of those in use; as many are freed.
        seed: of sizes, types, CPUs and lives.
    """

    gib: float = 242
    nr_cpus: int = 32
    used_per_mille: int = 985
    kernel_per_mille: int = 50
    reclaimable_per_mille: int = 400
    movable_orders: tuple[tuple[int, int], ...] = ((0, 100), (2, 300), (4, 400), (9, 200))
    kernel_orders: tuple[tuple[int, int], ...] = ((0, 500), (1, 200), (2, 150), (3, 150))
    turnover_percent: int = 100
    seed: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class FilledHost:
    """What a host looks like at the end.

    Attributes:
        gigabytes: one row for each aligned GiB of the Normal zone: kernel_pages in use, free_pages.
        failed: requests that found no page.
        in_base_pages: requests that were served in single pages, for want of a buddy.
        refills: refills of per-CPU lists.
        refill_pages: pages that they got.
        refill_probes: free lists, or parts of them, that they looked at (S6.7, S14.6).
        fallbacks: claims and steals.
        state: the model's arrays.
    """

    gigabytes: pd.DataFrame
    failed: int
    in_base_pages: int
    refills: int
    refill_pages: int
    refill_probes: int
    fallbacks: int
    state: State

    @property
    def tainted(self) -> int:
        """How many GiB hold kernel pages."""
        return int((self.gigabytes["kernel_pages"] > 0).sum())

    @property
    def movable(self) -> int:
        """How many GiB hold none: whole pages of 1 GiB, once what is in them has been moved."""
        return len(self.gigabytes) - self.tainted

    @property
    def empty(self) -> int:
        """How many GiB are wholly free."""
        return int((self.gigabytes["free_pages"] == 1 << GIGABYTE_ORDER).sum())


def run_filling_host(
    host: FillingHost, policy: Policy | None = None, *, rules: KernelRules
) -> FilledHost:
    """Fill a host's memory, replace part of it, and look at its gigabytes.

    Args:
        host: what it is and holds.
        policy: what it runs under.
        rules: the kernel generation.

    Raises:
        PolicyError: a policy that the rules do not go with.
        UsageError: no memory or no CPU, or shares of orders that do not add up to 1000.
    """
    machine = made_up_machine(host.gib, host.nr_cpus, rules)
    events, objects = _demand(machine, host)
    state = _empty_state(machine, policy or Policy(), rules)
    places = np.full(objects, -1, np.int32)
    refills = pages = 0
    position = 0
    while position < len(events):
        position = advance(state.arrays(places), events, position, len(events), -1)
        log = state.log[: state.st[at.LOG_ROWS]]
        own = log[log[:, 0] == at.SITE_REFILL]
        refills += len(own)
        pages += int(own[:, 7].sum())
        state.st[at.LOG_ROWS] = 0
    kinds = state.st[at.FALLBACKS : at.FALLBACKS + np.prod(at.FALLBACK_SHAPE)]
    return FilledHost(
        gigabytes=gigabytes(state),
        failed=int(state.st[at.COUNT_FAILED]),
        in_base_pages=int(state.st[at.COUNT_IN_BASE_PAGES]),
        refills=refills,
        refill_pages=pages,
        refill_probes=int(state.st[at.REFILL_PROBES]),
        fallbacks=int(kinds.sum()),
        state=state,
    )


def gigabytes(state: State, order: int = GIGABYTE_ORDER) -> pd.DataFrame:
    """What each aligned range of the Normal zone holds.

    Args:
        state: of a run.
        order: of the ranges; 18 is 1 GiB.

    Returns:
        first_pfn; kernel_pages: in use by requests that were not for movable pages; free_pages: in
        the buddy. Ranges that the zone has only a part of are left out.
    """
    zone = next(each for each in state.machine.zones if each.name == "Normal")
    ranges = range(-(-zone.start_pfn >> order), zone.end_pfn >> order)
    rows = []
    for number in ranges:
        pages = state.pages[number << order : (number + 1) << order]
        size = np.left_shift(1, pages["order"], dtype=np.int64)
        is_kernel = (pages["where"] == at.ALLOCATED) & (pages["tag"] == 0)
        rows.append(
            (
                number << order,
                int(size[is_kernel].sum()),
                int(size[pages["where"] == at.BUDDY].sum()),
            )
        )
    return pd.DataFrame(rows, columns=["first_pfn", "kernel_pages", "free_pages"])


def list_costs(state: State, order: int = GIGABYTE_ORDER) -> pd.DataFrame:
    """List heads, or words of bitmaps, that finding one page takes as free pages are kept.

    The page is a single one of the type's own lists of the Normal zone. Kept in: one set of lists;
    one for tainted and one for clean ranges (S14); one for every range, those that suit the type
    looked through from the lowest address on. A bitmap has a bit for each order whose list has a
    buddy, and is read as one word.

    Args:
        state: of a run.
        order: of the ranges.

    Returns:
        migratetype; one_set, two_sets, every_range: list heads looked at; two_bitmaps,
        every_bitmap: words.
    """
    zone = next(each for each in state.machine.zones if each.name == "Normal")
    first = zone.start_pfn >> order
    count = -(-zone.end_pfn >> order) - first
    span = state.pages[zone.start_pfn : zone.end_pfn]
    pfns = np.flatnonzero(span["where"] == at.BUDDY)
    free = span[pfns]
    has = np.zeros((count, at.PCP_TYPES, state.machine.max_order + 1), bool)
    known = free["tag"] < at.PCP_TYPES
    ranges = ((pfns + zone.start_pfn) >> order) - first
    has[ranges[known], free["tag"][known], free["order"][known]] = True
    blocks = state.blocks["migratetype"][zone.start_pfn >> state.machine.pageblock_order :]
    per_range = 1 << (order - state.machine.pageblock_order)
    is_tainted = np.zeros(count, bool)
    is_tainted[np.flatnonzero(blocks != at.MOVABLE) // per_range] = True
    rows = []
    for migratetype in range(at.PCP_TYPES):
        by_class = [has[is_tainted == side, migratetype] for side in (False, True)]
        if migratetype != at.MOVABLE:
            by_class = by_class[1:]
        sets = [each.any(axis=0) for each in by_class]
        ordered = np.concatenate(by_class)
        rows.append(
            {
                "migratetype": migratetype,
                "one_set": _looked_at(has[:, migratetype].any(axis=0)[None]),
                "two_sets": _looked_at(np.array(sets)),
                "every_range": _looked_at(ordered),
                "two_bitmaps": _words_read(np.array(sets)),
                "every_bitmap": _words_read(ordered),
            }
        )
    return pd.DataFrame(rows)


def _looked_at(sets: np.ndarray) -> int:
    """Heads looked at, set after set and order after order, up to the first list with a buddy."""
    found = np.flatnonzero(sets.ravel())
    return int(found[0]) + 1 if len(found) else sets.size


def _words_read(sets: np.ndarray) -> int:
    """Words read, one for each set, up to the first with a bit."""
    found = np.flatnonzero(sets.any(axis=1))
    return int(found[0]) + 1 if len(found) else len(sets)


def _empty_state(machine: Machine, policy: Policy, rules: KernelRules) -> State:
    """All memory free, in the largest buddies, all blocks Movable."""
    state = make_state(machine, rules, policy, Assumptions(), log_rows=LOG_ROWS)
    free = np.zeros(len(state.pages), bool)
    for first, end in managed_spans(machine):
        free[first:end] = True
    types = state.blocks["migratetype"]
    pfns, orders = maximal_buddies(free, types, machine.pageblock_order, machine.max_order)
    place_buddies(state.arrays(), pfns.astype(np.int32), orders.astype(np.int8))
    return state


def _demand(machine: Machine, host: FillingHost) -> tuple[np.ndarray, int]:
    """Events in time order, and the number of objects.

    Objects live until their host is full and then for an exponential time: as long as it takes, on
    average, to allocate all that is in use anew.
    """
    for shares in (host.movable_orders, host.kernel_orders):
        if sum(share for _, share in shares) != 1000:
            raise UsageError(f"shares of orders {shares}: make them 1000 together")
    rng = np.random.default_rng(host.seed)
    in_use = sum(zone.managed for zone in machine.zones) * host.used_per_mille // 1000
    wanted = in_use * (100 + host.turnover_percent) // 100
    kernel = host.kernel_per_mille
    kinds = [(order, 0, share * (1000 - kernel)) for order, share in host.movable_orders]
    kinds += [(order, 1, share * kernel) for order, share in host.kernel_orders]
    weights = np.array([share / (1 << order) for order, _, share in kinds])
    mean = sum(share for _, _, share in kinds) / weights.sum()
    drawn = rng.choice(len(kinds), int(wanted / mean * 1.01), p=weights / weights.sum())
    orders = np.array([order for order, _, _ in kinds], np.int8)[drawn]
    is_kernel = np.array([kind for _, kind, _ in kinds], bool)[drawn]
    begins = np.cumsum(np.left_shift(1, orders, dtype=np.int64))
    count = min(int(np.searchsorted(begins, wanted)), len(begins))
    begins, orders, is_kernel = begins[:count], orders[:count], is_kernel[:count]
    ends = np.maximum(begins, in_use) + rng.exponential(in_use, count)
    freed = np.flatnonzero(ends < wanted)
    events = np.zeros(count + len(freed), at.EVENT)
    asked = events[:count]
    asked["object"] = np.arange(count)
    asked["operation"] = at.ALLOC
    asked["order"] = orders
    asked["bits"] = BITS
    asked["migratetype"] = at.MOVABLE
    reclaimable = rng.random(count) < host.reclaimable_per_mille / 1000
    asked["migratetype"][is_kernel] = np.where(reclaimable[is_kernel], *KERNEL_TYPES[::-1])
    asked["zone"] = machine.type_index("Normal")
    asked["cpu"] = rng.integers(0, host.nr_cpus, count)
    events[count:] = asked[freed]
    events["operation"][count:] = at.FREE
    events["bits"][count:] = 0
    events = events[np.argsort(np.concatenate([begins, ends[freed]]), kind="stable")]
    events["time_ns"] = GAP_NS * (1 + np.arange(len(events)))
    return events, count
