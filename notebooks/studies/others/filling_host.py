"""A made-up host that fills up from empty, then replaces what it has: where kernel memory ends up.

Nothing is fitted to a recording or to posted figures: every share is a parameter with a round
value. Pages are freed as a host drops them, at random; reclaim itself does not run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

import pagealloc_model as pm

GFP, TYPE = pm.synthetic.Gfp, pm.synthetic.Migratetype
GAP_NS = 200
GIGABYTE_ORDER = 18
TYPES = (TYPE.UNMOVABLE, TYPE.MOVABLE, TYPE.RECLAIMABLE)


@dataclass(frozen=True, kw_only=True)
class FillingHost:
    """Size and content of a host.

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
    """State of a host at the end.

    Attributes:
        run: what it did.
        order: of the ranges that it is looked at in; 18 is 1 GiB.
    """

    run: pm.synthetic.Run
    order: int = GIGABYTE_ORDER

    @cached_property
    def gigabytes(self) -> pd.DataFrame:
        """One row for each aligned range that the Normal zone has all of."""
        zone = next(zone for zone in self.run.machine.zones if zone.name == "Normal")
        use = pm.synthetic.block_use(self.run.final)
        table = pd.DataFrame({"kernel_pages": use.fixed, "free_pages": use.buddy})
        first, end = -(-zone.start_pfn >> self.order), zone.end_pfn >> self.order
        numbers = use.first_pfn >> self.order
        table = table.groupby(numbers).sum().loc[first : end - 1]
        table.insert(0, "first_pfn", table.index.to_numpy() << self.order)
        return table.reset_index(drop=True)

    @property
    def tainted(self) -> int:
        """The number of ranges with kernel pages."""
        return int((self.gigabytes["kernel_pages"] > 0).sum())

    @property
    def movable(self) -> int:
        """The number without: whole pages of 1 GiB, once what is in them has been moved."""
        return len(self.gigabytes) - self.tainted

    @property
    def empty(self) -> int:
        """The number that are wholly free."""
        return int((self.gigabytes["free_pages"] == 1 << self.order).sum())


def run_filling_host(
    host: FillingHost, policy: pm.Policy | None = None, *, rules: pm.KernelRules
) -> FilledHost:
    """Fill a host's memory, replace part of it, and look at its gigabytes."""
    machine = pm.synthetic.synthetic_machine(host.gib, host.nr_cpus, rules)
    demand = _demand(machine, host)
    return FilledHost(run=pm.synthetic.run(demand, policy, rules=rules, keep_holds=False))


def list_costs(filled: FilledHost) -> pd.DataFrame:
    """List heads, or words of bitmaps, that finding one page takes as free pages are kept.

    The page is a single one of the type's own lists of the Normal zone. Kept in: one set of lists;
    one for tainted and one for clean ranges (S14); one for every range, those that suit the type
    looked through from the lowest address on. A bitmap has a bit for each order whose list has a
    buddy, and is read as one word.

    Returns:
        migratetype; one_set, two_sets, every_range: list heads looked at; two_bitmaps,
        every_bitmap: words.
    """
    machine, order = filled.run.machine, filled.order
    zone = next(zone for zone in machine.zones if zone.name == "Normal")
    first = zone.start_pfn >> order
    count = -(-zone.end_pfn >> order) - first
    pfns, orders, types = pm.synthetic.buddies(filled.run.final)
    own = (pfns >= zone.start_pfn) & (types < len(TYPES))
    has = np.zeros((count, len(TYPES), machine.max_order + 1), bool)
    has[(pfns[own] >> order) - first, types[own], orders[own]] = True
    use = pm.synthetic.block_use(filled.run.final)
    fixed = (use.first_pfn >= zone.start_pfn) & (use.migratetype != TYPE.MOVABLE)
    is_tainted = np.zeros(count, bool)
    is_tainted[(use.first_pfn[fixed] >> order) - first] = True
    rows = []
    for migratetype in TYPES:
        by_class = [has[is_tainted == side, migratetype] for side in (False, True)]
        if migratetype != TYPE.MOVABLE:
            by_class = by_class[1:]
        sets = np.array([bits.any(axis=0) for bits in by_class])
        ordered = np.concatenate(by_class)
        rows.append(
            {
                "migratetype": int(migratetype),
                "one_set": _looked_at(has[:, migratetype].any(axis=0)[None]),
                "two_sets": _looked_at(sets),
                "every_range": _looked_at(ordered),
                "two_bitmaps": _words_read(sets),
                "every_bitmap": _words_read(ordered),
            }
        )
    return pd.DataFrame(rows)


def _looked_at(sets: np.ndarray) -> int:
    """Heads looked at, set after set and order after order, up to the first list with a buddy."""
    heads = np.flatnonzero(sets.ravel())
    return int(heads[0]) + 1 if len(heads) else sets.size


def _words_read(sets: np.ndarray) -> int:
    """Words read, one for each set, up to the first with a bit."""
    words = np.flatnonzero(sets.any(axis=1))
    return int(words[0]) + 1 if len(words) else len(sets)


def _demand(machine: pm.synthetic.Machine, host: FillingHost) -> pm.synthetic.Demand:
    """Objects live until their host is full and then for an exponential time.

    It is as long as it takes, on average, to allocate all that is in use anew.
    """
    for shares in (host.movable_orders, host.kernel_orders):
        if sum(share for _, share in shares) != 1000:
            raise pm.UsageError(f"shares of orders {shares}: make them 1000 together")
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
    freed = ends < wanted
    reclaimable = rng.random(count) < host.reclaimable_per_mille / 1000
    kernel_types = np.where(reclaimable, TYPE.RECLAIMABLE, TYPE.UNMOVABLE)
    turns = np.argsort(np.concatenate([begins, ends[freed]]), kind="stable")
    times = np.empty(len(turns))
    times[turns] = GAP_NS * (1 + np.arange(len(turns)))
    frees = np.full(count, np.inf)
    frees[freed] = times[count:]
    requests = pm.synthetic.Requests(machine)
    requests.ask(
        times[:count],
        frees,
        gfp=GFP.KERNEL,
        migratetype=np.where(is_kernel, kernel_types, TYPE.MOVABLE),
        order=orders,
        cpu=rng.integers(0, host.nr_cpus, count),
    )
    return requests.demand("filling", start_ns=0)
