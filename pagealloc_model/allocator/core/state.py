"""The model's state: its arrays, and how they are set up."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.pageset_sizes import set_pageset
from pagealloc_model.allocator.core.superpageblocks import superpageblock_words
from pagealloc_model.allocator.core.zonelists import node_orders, zonelist
from pagealloc_model.allocator.ownership.ownership_words import check_rules, ownership_words
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy, policy_numbers
from pagealloc_model.recording.machine import PMD_ORDER, ZONE_TYPES_MAX, Machine, Zone

LOG_ROWS_DEFAULT = 1 << 18
PAGE_SHIFT = 12
THRESHOLD_MAX = 125
"""Largest number of pages a CPU holds back from a zone's counter (S1.10)."""


@dataclass(frozen=True, kw_only=True)
class State:
    """The arrays every kernel works on (see `layout`), plus what they were made from.

    `folios` is empty but in an elastic replay (see `pressure_layout`).
    """

    pages: np.ndarray
    blocks: np.ndarray
    st: np.ndarray
    log: np.ndarray
    machine: Machine
    folios: np.ndarray = field(default_factory=lambda: np.zeros(0, pr.FOLIO))

    @property
    def is_elastic(self) -> bool:
        """No kernel function: return whether the state has what an elastic replay needs."""
        return len(self.folios) > 0

    @property
    def next_due_ns(self) -> int:
        """No kernel function: return when something besides events is due next.

        It is a tick, kswapd or kcompactd.
        """
        due = int(self.st[at.NEXT_TICK])
        if self.is_elastic:
            nodes = len(self.machine.nodes)
            first = int(self.st[int(self.st[at.PRESSURE_BASE]) + pr.NODES_BASE])
            words = self.st[first : first + nodes * pr.NODE_WORDS].reshape(nodes, -1)
            dues = words[:, [pr.KSWAPD_DUE, pr.KCOMPACTD_DUE, pr.PROACTIVE_DUE]]
            due = min(due, int(dues.min()))
        return due

    def arrays(self, places: np.ndarray | None = None) -> at.MachineArrays:
        """No kernel function: return the arrays as kernels take them.

        Args:
            places: int32, where each object lives; none for kernels that touch no object.
        """
        if places is None:
            places = np.zeros(0, np.int32)
        return at.MachineArrays(self.pages, self.blocks, self.st, self.log, self.folios, places)

    def pressure_words(self, first: int, words: int) -> np.ndarray:
        """No kernel function: return words of an elastic replay from one on, int64.

        The first is a scalar or counter. The result is empty in a literal replay.
        """
        if not self.is_elastic:
            return np.zeros(0, np.int64)
        start = int(self.st[at.PRESSURE_BASE]) + first
        return self.st[start : start + words].copy()

    def copy(self) -> State:
        """No kernel function: return a state that can be advanced without changing this one."""
        return State(
            pages=self.pages.copy(),
            blocks=self.blocks.copy(),
            st=self.st.copy(),
            log=np.zeros_like(self.log),
            machine=self.machine,
            folios=self.folios.copy(),
        )

    def zone_region(self, zone: int) -> np.ndarray:
        """No kernel function: return a view of a zone's words."""
        start = at.ZONES + zone * at.ZONE_STRIDE
        return self.st[start : start + at.ZONE_STRIDE]

    def zone_words(self, word: int) -> np.ndarray:
        """No kernel function: return one word of every zone, shape (zones,)."""
        end = at.ZONES + len(self.machine.zones) * at.ZONE_STRIDE
        return self.st[at.ZONES + word : end : at.ZONE_STRIDE].copy()

    def pcp_region(self, zone: int, cpu: int) -> np.ndarray:
        """No kernel function: return a view of a CPU's words for a zone."""
        start = int(self.st[at.PCP_BASE]) + (zone * self.machine.nr_cpus + cpu) * at.PCP_STRIDE
        return self.st[start : start + at.PCP_STRIDE]

    def free_buddies(self) -> np.ndarray:
        """No kernel function: return free buddies, shape (zones, orders, migratetypes)."""
        nr_zones = len(self.machine.zones)
        regions = self.st[at.ZONES : at.ZONES + nr_zones * at.ZONE_STRIDE]
        lists = regions.reshape(nr_zones, at.ZONE_STRIDE)[:, at.ZONE_LISTS :]
        shape = (nr_zones, at.ORDERS, at.MIGRATETYPES, at.LIST_WORDS)
        return lists.reshape(shape)[..., at.ENTRIES].copy()

    def block_counts(self) -> np.ndarray:
        """No kernel function: return numbers of pageblocks, shape (zones, migratetypes)."""
        shape = (len(self.machine.zones) + 1, at.MIGRATETYPES)
        cells = self.blocks["zone"].astype(np.intp) * at.MIGRATETYPES + self.blocks["migratetype"]
        counts = np.bincount(cells, minlength=shape[0] * shape[1])
        return counts.astype(np.int64, copy=False).reshape(shape)[1:]

    def pcp_words(self, first: int, words: int) -> np.ndarray:
        """No kernel function: return words of every pageset, shape (zones, cpus, words).

        They begin with word `first`.
        """
        nr_zones, nr_cpus = len(self.machine.zones), self.machine.nr_cpus
        base = int(self.st[at.PCP_BASE])
        regions = self.st[base : base + nr_zones * nr_cpus * at.PCP_STRIDE]
        table = regions.reshape(nr_zones, nr_cpus, at.PCP_STRIDE)
        return table[:, :, first : first + words].copy()

    def sites(self) -> np.ndarray:
        """No kernel function: return lock-site counters.

        Their shape is (zones, cpus, sites, SITE_WORDS), see `layout`.
        """
        shape = (len(self.machine.zones), self.machine.nr_cpus, at.SITES, at.SITE_WORDS)
        return self.pcp_words(at.PCP_SITES, at.SITES * at.SITE_WORDS).reshape(shape)

    def list_pages(self, words: np.ndarray) -> list[int]:
        """No kernel function: return the page frames of one list, head first.

        Args:
            words: the list's head, tail and entries.
        """
        found = []
        pfn = int(words[at.HEAD])
        while pfn >= 0 and len(found) <= len(self.pages):
            found.append(pfn)
            pfn = int(self.pages[pfn]["next"])
        return found


def make_state(
    machine: Machine,
    rules: KernelRules,
    policy: Policy | None = None,
    assumptions: Assumptions | None = None,
    *,
    start_ns: int = 0,
    log_rows: int = LOG_ROWS_DEFAULT,
) -> State:
    """No kernel function: return a state with every scalar set and no page anywhere.

    Blocks belong to zones, their type is Movable.

    Args:
        machine: zones and CPUs; watermarks as they should be, policy applied.
        rules: the kernel generation.
        policy: swept fields; None means as recorded.
        assumptions: ours.
        start_ns: time of the first decay tick period.
        log_rows: capacity of the log.

    Raises:
        PolicyError: pageblock ownership or superpageblocks in a kernel that they cannot be added
            to, or more `lowmem_reserve_ratio`s than zone types.
    """
    policy = policy or Policy()
    check_rules(policy, rules)
    assumptions = assumptions or Assumptions()
    machine = machine.with_watermarks(policy, rules).with_lowmem_reserve(policy)
    nr_zones = len(machine.zones)
    pcp_base = at.ZONES + nr_zones * at.ZONE_STRIDE
    node_base = pcp_base + nr_zones * machine.nr_cpus * at.PCP_STRIDE
    lists = _zonelists(machine)
    behind = [
        *[0] * (len(machine.nodes) * at.NODE_STRIDE),
        *lists,
        *machine.cpu_node_indices,
        *[0] * (machine.nr_cpus * at.CPU_STRIDE),
    ]
    end_pfn = machine.end_pfn
    nr_blocks = -(-end_pfn >> machine.pageblock_order)
    owned_base = node_base + len(behind)
    owned = ownership_words(policy, nr_zones * machine.nr_cpus, nr_blocks, owned_base)
    ranges_base = owned_base + len(owned)
    ranges = superpageblock_words(policy, rules, machine, ranges_base)
    st = np.concatenate([np.zeros(node_base, np.int64), behind, owned, ranges])
    st[at.PCP_BASE] = pcp_base
    st[at.NODE_BASE] = node_base
    st[at.ZONELIST_BASE] = node_base + len(machine.nodes) * at.NODE_STRIDE
    st[at.CPU_NODE_BASE] = st[at.ZONELIST_BASE] + len(lists)
    st[at.CPU_BASE] = st[at.CPU_NODE_BASE] + machine.nr_cpus
    st[at.OWNERSHIP] = owned_base if len(owned) else 0
    st[at.SUPERPAGEBLOCKS] = ranges_base if len(ranges) else 0
    state = State(
        pages=np.zeros(nr_blocks << machine.pageblock_order, at.PAGE),
        blocks=np.zeros(nr_blocks, at.BLOCK),
        st=st,
        log=np.zeros((log_rows, at.LOG_COLUMNS), np.int64),
        machine=machine,
    )
    _set_scalars(st, machine, rules, policy, assumptions, start_ns)
    for index, zone in enumerate(machine.zones):
        _set_zone(state, index, zone)
        _set_zone_counters(state, index, zone, assumptions)
        for cpu in range(machine.nr_cpus):
            set_pageset(state.pcp_region(index, cpu), machine, zone, cpu, rules, policy)
    return state


def _set_scalars(
    st: np.ndarray,
    machine: Machine,
    rules: KernelRules,
    policy: Policy,
    assumptions: Assumptions,
    start_ns: int,
) -> None:
    """No kernel function: set the scalars from machine, rules, policy and assumptions."""
    names = machine.migratetypes
    values = {
        at.NR_ZONES: len(machine.zones),
        at.NR_CPUS: machine.nr_cpus,
        at.PAGEBLOCK_ORDER: machine.pageblock_order,
        at.MAX_ORDER: machine.max_order,
        at.ZONE_TYPES: len(machine.zone_types),
        at.MOVABLE_TYPE: max(machine.type_index("Movable"), machine.type_index("Normal"), 0),
        at.ISOLATE: names.index("Isolate") if "Isolate" in names else -1,
        at.CMA: names.index("CMA") if "CMA" in names else -1,
        at.NR_NODES: len(machine.nodes),
        at.SKIPS_BUSY_NODES: rules.skips_busy_kswapd_nodes and len(machine.nodes) > 1,
        at.COUNTS_BY_CPU: assumptions.counters == "lagged" or len(machine.nodes) > 1,
        at.THP_LISTS: machine.thp,
        at.HUGE_ORDER: machine.pageblock_order if rules.huge_lists_hold_blocks else PMD_ORDER,
        at.FREE_HIGH_BATCH: assumptions.free_high_batch,
        at.FULL_DRAIN_CHUNK: _full_drain_chunk(rules, policy),
        at.WATERMARK_SUBTRACTS: at.ZONE_FREE_HIGHATOMIC
        if rules.watermark_subtracts_free
        else at.ZONE_RESERVED_HIGHATOMIC,
        at.BOOST_RETRY_MASK: at.GFP_HIGH
        if rules.boost_retry_by_high
        else at.GFP_ATOMIC | at.GFP_DIRECT_RECLAIM,
        at.BOOST_RETRY_BITS: at.GFP_HIGH if rules.boost_retry_by_high else at.GFP_ATOMIC,
        at.END_PFN: machine.end_pfn,
        at.NOW: start_ns,
        at.TICK_PERIOD: assumptions.decay_period_ns,
        at.TICK_STAGGER: min(12_000_000, assumptions.decay_period_ns // machine.nr_cpus),
    }
    for offset, value in values.items():
        st[offset] = int(value)
    set_switches(st, rules, policy)
    period = assumptions.decay_period_ns
    since_tick = (start_ns - assumptions.decay_phase_ns) % period
    st[at.TICK_BASE] = start_ns - since_tick + period
    cpu = min((period - since_tick - 1) // int(st[at.TICK_STAGGER]), machine.nr_cpus - 1)
    st[at.TICK_CPU] = cpu
    st[at.NEXT_TICK] = st[at.TICK_BASE] - cpu * st[at.TICK_STAGGER]


def set_switches(st: np.ndarray, rules: KernelRules, policy: Policy) -> None:
    """No kernel function: set the words of rules and of policy fields (see `layout`)."""
    for name, offset in at.RULE_WORDS.items():
        st[offset] = int(getattr(rules, name))
    numbers = policy_numbers(policy, rules)
    for name, offset in at.POLICY_WORDS.items():
        st[offset] = numbers[name]


def _full_drain_chunk(rules: KernelRules, policy: Policy) -> int:
    """No kernel function: return in what chunks a full drain goes."""
    if policy.pcp_drain_batched:
        return at.DRAINS_BATCH
    return at.DRAINS_SCALED_BATCH if rules.full_drain_batched else at.DRAINS_ALL


def _zonelists(machine: Machine) -> list[int]:
    """build_zonelists(): return all zonelists as words, each ended by -1, of one length.

    See `offsets.node_zonelist`. First come those of each node and highest zone type, then the same
    for requests with THISNODE.
    """
    every_node = node_orders(machine)
    one_node = tuple((node,) for node in range(len(machine.nodes)))
    words = []
    for orders in (every_node, one_node):
        for nodes in orders:
            for highest in range(len(machine.zone_types)):
                zones = zonelist(machine, nodes, highest)
                words += [*zones, *[-1] * (len(machine.zones) + 1 - len(zones))]
    return words


def _set_zone(state: State, index: int, zone: Zone) -> None:
    """No kernel function: set a zone's words."""
    region = state.zone_region(index)
    machine = state.machine
    region[at.ZONE_NODE], region[at.ZONE_TYPE] = divmod(index, len(machine.zone_types))
    region[at.ZONE_AVOIDS_FRAGMENTATION] = _avoids_fragmentation(machine, index)
    lists = region[at.ZONE_LISTS :].reshape(-1, at.LIST_WORDS)
    lists[:, at.HEAD] = -1
    lists[:, at.TAIL] = -1
    if not zone.managed:
        return
    region[at.ZONE_MANAGED] = zone.managed
    region[at.ZONE_START] = zone.start_pfn
    region[at.ZONE_END] = zone.end_pfn
    region[at.ZONE_MIN] = zone.min
    region[at.ZONE_LOW] = zone.low
    region[at.ZONE_HIGH] = zone.high
    region[at.ZONE_BOOST] = zone.boost
    for highest, pages in enumerate(zone.lowmem_reserve[:ZONE_TYPES_MAX]):
        region[at.ZONE_LOWMEM_RESERVE + highest] = pages
    order = machine.pageblock_order
    blocks = slice(zone.start_pfn >> order, -(-zone.end_pfn >> order))
    state.blocks["zone"][blocks] = index + 1
    state.blocks["migratetype"][blocks] = at.MOVABLE


def _avoids_fragmentation(machine: Machine, index: int) -> bool:
    """Part of alloc_flags_nofragment(): return whether requests set NOFRAGMENT (S2.7).

    They are those that prefer this zone, on the fast path.
    """
    below = machine.zones[index - 1] if index % len(machine.zone_types) else None
    populated_below = below is not None and below.present > 0
    return machine.zones[index].name == "Normal" and (len(machine.nodes) == 1 or populated_below)


def _set_zone_counters(state: State, index: int, zone: Zone, assumptions: Assumptions) -> None:
    """No kernel function: set how far a zone's counters may lag (S1.10).

    It is 0 everywhere where they are exact.
    """
    if assumptions.counters == "exact" or not zone.managed:
        return
    region = state.zone_region(index)
    asleep, awake = counter_thresholds(zone, state.machine.nr_cpus)
    drift = state.machine.nr_cpus * asleep
    region[at.ZONE_THRESHOLD] = region[at.ZONE_THRESHOLD_ASLEEP] = asleep
    region[at.ZONE_THRESHOLD_AWAKE] = asleep
    if drift > zone.low - zone.min:
        region[at.ZONE_DRIFT_MARK] = zone.high + drift
        region[at.ZONE_THRESHOLD_AWAKE] = awake


def counter_thresholds(zone: Zone, nr_cpus: int) -> tuple[int, int]:
    """calculate_normal_threshold() and calculate_pressure_threshold(): return both (S1.10).

    They are the pages a CPU may hold back from a zone's counters while kswapd sleeps and runs.

    Args:
        zone: watermarks and managed pages.
        nr_cpus: online CPUs.
    """
    size = zone.managed >> (27 - PAGE_SHIFT)
    asleep = 2 * nr_cpus.bit_length() * (1 + size.bit_length())
    awake = max((zone.low - zone.min) // nr_cpus, 1)
    return min(asleep, THRESHOLD_MAX), min(awake, THRESHOLD_MAX)
