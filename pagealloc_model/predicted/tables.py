"""Predictions of a replay, as the tables that predictions and measurements share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator import sites
from pagealloc_model.allocator.state import State
from pagealloc_model.base.arrays import parts
from pagealloc_model.base.memo import Memo
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.lock_costs import LockCosts
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.recording.machine import FALLING_BACK, Machine
from pagealloc_model.recording.state_file import ON_FREE_LIST, ON_PCP_LIST, MachineState


def named_sites(log: np.ndarray) -> np.ndarray:
    """The site of each hold, a row of `sites.NAMES`, of a log without rows of pages."""
    site, found_nothing = log["kind"], log["objects"] == 0
    site = np.where(found_nothing & (site == at.SITE_REFILL), sites.EMPTY_REFILL, site)
    empty_alloc = found_nothing & (site == at.SITE_BUDDY_ALLOC)
    return np.where(empty_alloc, sites.EMPTY_BUDDY_ALLOC, site)


FALLBACK_KINDS = {at.CLAIM_BLOCK: "claim_block", at.CLAIM: "claim", at.STEAL: "steal"}
LITERAL = "a literal replay repeats the recorded reclaim and cannot know this under another policy"
UNKNOWN_COUNTERS = (
    "thp_fault_alloc",
    "thp_fault_fallback",
    "compact_stall",
    "compact_success",
    "compact_fail",
    "pgscan_kswapd",
    "pgsteal_kswapd",
    "allocstall_normal",
)

LOCK_COLUMNS = ("lock_acquisitions", "lock_hand_overs", "lock_drain_holds")
"""Of pcp->lock: to allocate or free; taken over from another CPU; to drain only."""

OWNERSHIP_COLUMNS = {
    "blocks_claimed": at.BLOCKS_CLAIMED,
    "blocks_recorded": at.BLOCKS_RECORDED,
    "blocks_recovered": at.BLOCKS_RECOVERED,
    "ownerships_ended": at.OWNERSHIPS_ENDED,
    "remote_frees": at.REMOTE_FREES,
    "list_splits": at.LIST_SPLITS,
    "list_merges": at.LIST_MERGES,
    "merge_entries": at.MERGE_ENTRIES,
    "recorded_entries": at.RECORDED_ENTRIES,
}
"""Columns that ownership adds, by counter."""

PHASES = ("recover", "claim", "chunk", "classic")


def _zone_names(machine: Machine) -> np.ndarray:
    return np.array([zone.name for zone in machine.zones], object)


def _nodes(machine: Machine) -> np.ndarray:
    return np.array([zone.node for zone in machine.zones])


def _grid(
    machine: Machine, time_ns: np.ndarray, **axes: Sequence[object] | np.ndarray
) -> tuple[pd.DataFrame, list[int]]:
    """Columns time_ns, node, zone and each axis's labels, in C order; numbers of the zones."""
    zones = [index for index, zone in enumerate(machine.zones) if zone.managed]
    shape = (len(time_ns), len(zones), *map(len, axes.values()))
    time, zone, *others = np.indices(shape).reshape(len(shape), -1)
    columns = {
        "time_ns": time_ns[time],
        "node": _nodes(machine)[zones][zone],
        "zone": _zone_names(machine)[zones][zone],
    }
    for (name, labels), place in zip(axes.items(), others, strict=True):
        columns[name] = np.asarray(labels)[place]
    return pd.DataFrame(columns), zones


@dataclass(frozen=True, kw_only=True, eq=False)
class Samples:
    """Copies of the state's counters at instants.

    Attributes:
        time_ns: int64, shape (samples,).
        free_buddies: int64, shape (samples, zones, orders, migratetypes).
        blocks: int64, shape (samples, zones, migratetypes).
        pcp: int64, shape (samples, zones, cpus, 2): count and high.
        boosts: int64, shape (samples, zones), pages.
        list_locks: int64, shape (samples, zones, 3), cumulative, see `LOCK_COLUMNS`.
        ownership: int64, shape (samples, zones, SET_STRIDE or 0 without ownership), cumulative.
        counters: int64, shape (samples, `pressure_layout.SCALARS`), no words of a literal replay.
    """

    time_ns: np.ndarray
    free_buddies: np.ndarray
    blocks: np.ndarray
    pcp: np.ndarray
    boosts: np.ndarray
    list_locks: np.ndarray
    ownership: np.ndarray
    counters: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int64))


@dataclass(frozen=True, kw_only=True, eq=False)
class Prediction(Memo):
    """The course of a demand under a policy; tables are DataFrames, made on first use.

    Attributes:
        policy: in effect.
        rules: those of the kernel.
        assumptions: ours.
        samples: counters at every sample instant.
        log: `layout.LOG` records: every zone->lock hold that was kept.
        places: int32 by object, where the model put it, -1 where nowhere.
        final: the state at the end.
    """

    policy: Policy
    rules: KernelRules
    assumptions: Assumptions
    samples: Samples
    log: np.ndarray
    places: np.ndarray
    final: State = field(repr=False)

    @property
    def machine(self) -> Machine:
        """The machine that it ran on."""
        return self.final.machine

    @property
    def fallback_counts(self) -> np.ndarray:
        """int64, shape `layout.FALLBACK_SHAPE`."""
        return self.final.fallback_counts()

    @property
    def divergence(self) -> dict[str, int]:
        """Deviations of an elastic replay from what was asked, by name; none of a literal one."""
        return self.final.divergence()

    @cached_property
    def free_pages(self) -> pd.DataFrame:
        """Free buddies and pages by time, zone, order and migratetype."""
        types = np.array(self.machine.migratetypes, object)
        orders = np.arange(self.machine.max_order + 1)
        frame, zones = _grid(self.machine, self.samples.time_ns, order=orders, migratetype=types)
        buddies = self.samples.free_buddies[:, zones, : len(orders), : len(types)].ravel()
        return frame.assign(buddies=buddies, pages=buddies << frame["order"])

    @cached_property
    def pageblocks(self) -> pd.DataFrame:
        """Pageblocks by time, zone and migratetype."""
        types = np.array(self.machine.migratetypes, object)
        frame, zones = _grid(self.machine, self.samples.time_ns, migratetype=types)
        return frame.assign(blocks=self.samples.blocks[:, zones, : len(types)].ravel())

    @cached_property
    def pcp(self) -> pd.DataFrame:
        """Per-CPU list counts and limits by time, zone and CPU."""
        cpus = np.arange(self.machine.nr_cpus)
        frame, zones = _grid(self.machine, self.samples.time_ns, cpu=cpus)
        count, high = self.samples.pcp[:, zones].reshape(-1, 2).T
        return frame.assign(count=count, high=high.astype(float))

    @cached_property
    def boosts(self) -> pd.DataFrame:
        """time_ns, node, zone, pages: watermark boosts (S1.7)."""
        frame, zones = _grid(self.machine, self.samples.time_ns)
        return frame.assign(pages=self.samples.boosts[:, zones].ravel())

    @cached_property
    def list_use(self) -> pd.DataFrame:
        """pcp->lock, and the work of pageblock ownership, by time and zone, cumulative (S12.8).

        `LOCK_COLUMNS` and `OWNERSHIP_COLUMNS`, Int64, NA without ownership.
        """
        frame, zones = _grid(self.machine, self.samples.time_ns)
        for place, name in enumerate(LOCK_COLUMNS):
            frame[name] = pd.array(self.samples.list_locks[:, zones, place].ravel(), dtype="Int64")
        for name, counter in OWNERSHIP_COLUMNS.items():
            frame[name] = self._owned(zones, counter)
        return frame

    @cached_property
    def refill_phases(self) -> pd.DataFrame:
        """Refills by phase, time and zone, cumulative; NA without ownership (S12.3)."""
        pieces = []
        frame, zones = _grid(self.machine, self.samples.time_ns)
        for number, phase in enumerate(PHASES):
            first = at.SET_PHASES + number * at.PHASE_STRIDE
            names = ("refills", "objects", "pages")
            counts = {name: self._owned(zones, first + word) for word, name in enumerate(names)}
            pieces.append(frame.assign(phase=phase, **counts))
        return pd.concat(pieces, ignore_index=True)

    def _owned(self, zones: list[int], counter: int) -> pd.array:
        counters = self.samples.ownership
        if counters.shape[-1] == 0:
            return pd.array([pd.NA] * (len(counters) * len(zones)), dtype="Int64")
        return pd.array(counters[:, zones, counter].ravel(), dtype="Int64")

    @cached_property
    def transactions_full(self) -> pd.DataFrame:
        """Every zone->lock hold, one row each."""
        log = self.log[self.log["kind"] < at.SITES]
        site, zone = named_sites(log), log["zone"]
        types = np.array([*self.machine.migratetypes, ""], object)
        return pd.DataFrame(
            {
                "time_ns": log["time_ns"],
                "node": _nodes(self.machine)[zone],
                "zone": _zone_names(self.machine)[zone],
                "cpu": log["cpu"].astype(np.int64),
                "site": sites.NAMES[site],
                "cause": sites.CAUSES_BY_CODE[site],
                "objects": log["objects"],
                "pages": log["pages"],
                "order": log["order"].astype(np.int64),
                "migratetype": types[log["migratetype"]],
            }
        )

    def holds(self, costs: LockCosts | None = None) -> pd.DataFrame:
        """`transactions_full` with splits, merges, inserts, scanned, and hold_ns by costs."""
        log = self.log[self.log["kind"] < at.SITES]
        names = ("splits", "merges", "inserts", "scanned")
        held = (costs or LockCosts()).hold_ns(log)
        return self.transactions_full.assign(**{name: log[name] for name in names}, hold_ns=held)

    @cached_property
    def transactions(self) -> pd.DataFrame:
        """Histogram of transaction sizes by zone, CPU, site and cause."""
        counts = TransactionCounts(self.machine)
        for part in parts(len(self.log)):
            counts.add(self.log[part])
        return counts.transactions

    @cached_property
    def fallbacks(self) -> pd.DataFrame:
        """Fallbacks by types, orders and kind (S6.6)."""
        counts = self.fallback_counts
        names = FALLING_BACK
        rows = [
            (names[wanted], names[other], order, found, FALLBACK_KINDS[kind], count)
            for (wanted, other, kind, order, found), count in zip(
                np.argwhere(counts).tolist(), counts[counts > 0].tolist(), strict=True
            )
        ]
        columns = ["alloc_migratetype", "fallback_migratetype", "alloc_order", "fallback_order"]
        return pd.DataFrame(rows, columns=[*columns, "kind", "count"])

    @property
    def refill_probes(self) -> tuple[int, int]:
        """Free lists that refills looked at (S6.7): in all, since the start, and at most in one.

        Zeros under pageblock ownership, whose refills are not counted, and of a kernel build.
        """
        return int(self.final.st[at.REFILL_PROBES]), int(self.final.st[at.REFILL_PROBES_MOST])


def lock(machine: Machine, edges: np.ndarray, log: np.ndarray) -> pd.DataFrame:
    """zone->lock use by time bin (int64 edges), zone and site, of a log's holds."""
    log = log[log["kind"] < at.SITES]
    number, names = pd.factorize(sites.NAMES)
    frame, managed = _grid(machine, edges[:-1], site=names)
    place = np.full(len(machine.zones), -1)
    place[managed] = np.arange(len(managed))
    bins = np.searchsorted(edges, log["time_ns"], "right") - 1
    zones = place[log["zone"]]
    inside = (bins >= 0) & (bins < len(edges) - 1) & (zones >= 0)
    cells = (bins * len(managed) + zones) * len(names) + number[named_sites(log)]
    amounts = (np.ones(len(log)), log["objects"], log["pages"])
    for name, amount in zip(("acquisitions", "objects", "pages"), amounts, strict=True):
        sums = np.bincount(cells[inside], amount[inside], minlength=len(frame))
        frame[name] = sums.astype(np.int64)
    return frame.assign(hold_ns=np.nan, wait_ns=np.nan, max_hold_ns=np.nan)


def outcome_counts(counters: np.ndarray) -> np.ndarray:
    """`pressure_layout.OUTCOMES` of each sample: (samples, classes, orders, words)."""
    shape = (pr.CLASSES, at.ORDERS, pr.OUTCOME_WORDS)
    words = counters[:, pr.OUTCOMES : pr.OUTCOMES + int(np.prod(shape))]
    return words.reshape(-1, *shape)


class TransactionCounts:
    """A histogram of zone->lock holds that grows with its bins, not with the holds."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._counts: Counter[int] = Counter()

    def add(self, log: np.ndarray) -> None:
        """Count the transactions among log rows."""
        log = log[log["kind"] < at.SITES]
        list_of = log["zone"].astype(np.int64) * self._machine.nr_cpus + log["cpu"]
        place = list_of * len(sites.NAMES) + named_sites(log)
        keys, counts = np.unique(place << 32 | log["objects"], return_counts=True)
        self._counts.update(dict(zip(keys.tolist(), counts.tolist(), strict=True)))

    @property
    def transactions(self) -> pd.DataFrame:
        """The table that `Replay.transactions` is."""
        keys, machine = np.array(list(self._counts), np.int64), self._machine
        list_of, site = np.divmod(keys >> 32, len(sites.NAMES))
        zone, cpu = np.divmod(list_of, machine.nr_cpus)
        frame = pd.DataFrame(
            {
                "node": _nodes(machine)[zone],
                "zone": _zone_names(machine)[zone],
                "cpu": cpu,
                "site": sites.NAMES[site],
                "cause": sites.CAUSES_BY_CODE[site],
                "objects": keys & ((1 << 32) - 1),
                "transactions": np.array(list(self._counts.values()), np.int64),
            }
        )
        by = ["node", "zone", "cpu", "site", "cause", "objects"]
        return frame.sort_values(by).reset_index(drop=True)


def pageblock_map(state: State) -> pd.DataFrame:
    """One row per pageblock, by address, of a state such as a replay's `final`.

    Columns: pfn (of its first page, as the kernel numbers it), node, zone, migratetype, free_pages
    (in the buddy), pcp_pages (on per-CPU lists), pages (its size).
    """
    machine = state.machine
    order = machine.pageblock_order
    where = np.ascontiguousarray(state.pages["where"])
    in_zone = np.flatnonzero(state.blocks["zone"])
    zones = state.blocks["zone"][in_zone].astype(np.intp) - 1
    types = np.array(machine.migratetypes, object)

    def pages_at(place: int) -> np.ndarray:
        """Pages of the runs that begin at a place, by pageblock."""
        heads = np.flatnonzero(where == place)
        orders = state.pages["order"][heads].astype(np.int64)
        small = orders <= order
        weights = 1 << orders[small]
        counts = np.bincount(heads[small] >> order, weights, minlength=len(state.blocks))
        for head, larger in zip(heads[~small] >> order, orders[~small] - order, strict=True):
            counts[head : head + (1 << larger)] += 1 << order
        return counts[in_zone].astype(np.int64)

    return pd.DataFrame(
        {
            "pfn": machine.frames.numbers(in_zone << order),
            "node": _nodes(machine)[zones],
            "zone": _zone_names(machine)[zones],
            "migratetype": types[state.blocks["migratetype"][in_zone]],
            "free_pages": pages_at(at.BUDDY),
            "pcp_pages": pages_at(at.ON_PCP),
            "pages": 1 << order,
        }
    )


def recorded_pageblock_map(
    predicted: pd.DataFrame, kernel: MachineState, machine: Machine
) -> pd.DataFrame:
    """A `pageblock_map` of the kernel's own state, for the pageblocks of a predicted one."""
    order = kernel.pageblock_order
    types = np.array(machine.migratetypes, object)
    first = predicted["pfn"].to_numpy() >> order

    def pages_on(kind: int) -> np.ndarray:
        """Pages of the lists of a kind, by pageblock."""
        heads, lists = kernel.list_of_entries(kind)
        orders = kernel.list_order[lists].astype(np.int64)
        counts = np.zeros(len(kernel.block_type), np.int64)
        small = orders <= order
        np.add.at(counts, heads[small] >> order, np.int64(1) << orders[small])
        for head, larger in zip(heads[~small] >> order, orders[~small] - order, strict=True):
            counts[head : head + (1 << larger)] += 1 << order
        return counts[first]

    return predicted.assign(
        migratetype=types[kernel.block_type[first]],
        free_pages=pages_on(ON_FREE_LIST),
        pcp_pages=pages_on(ON_PCP_LIST),
    )
