"""The model's state: its arrays, how they are set up, and the start image put into them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.buddy import __add_to_free_list, change_pageblock_range
from pagealloc_model.allocator.layout import pcp_at, zone_at
from pagealloc_model.allocator.lists import list_add_tail
from pagealloc_model.allocator.ownership import ownership_words
from pagealloc_model.allocator.pcp import order_to_pindex, set_pageset
from pagealloc_model.base.errors import PolicyError
from pagealloc_model.base.jit import entry
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy, policy_numbers
from pagealloc_model.recording.machine import PMD_ORDER, ZONE_TYPES_MAX, Machine, Zone


def node_orders(machine: Machine) -> tuple[tuple[int, ...], ...]:
    """find_next_best_node(): return the order in which requests try the nodes with memory.

    The result is by node index.

    A node's own memory comes first, then repeatedly the node with the least distance; nodes
    numbered below the own one and nodes with CPUs are put back by one each. Ties go to the node
    that fewer lists made before name first of several at one distance, then to the lower number.
    """
    count = len(machine.nodes)
    has_memory = [
        any(zone.managed for zone in machine.zones if zone.node == node) for node in machine.nodes
    ]
    has_cpus = [machine.cpus_of_node(node) > 0 for node in range(count)]
    load = [0] * count
    orders = []
    for local in range(count):
        left = [node for node in range(count) if has_memory[node]]
        previous = local
        order: list[int] = []
        while left:
            costs = {
                node: (
                    machine.distance(local, node) + (node < local) + has_cpus[node],
                    load[node],
                )
                for node in left
            }
            nearest = local if local in left else min(left, key=lambda node: costs[node])
            if machine.distance(local, nearest) != machine.distance(local, previous):
                load[nearest] += 1
            left.remove(nearest)
            order.append(nearest)
            previous = nearest
        orders.append(tuple(order))
    return tuple(orders)


def build_zonelists(machine: Machine) -> list[int]:
    """build_zonelists() and build_zonerefs_node(): return all zonelists, each ended by -1.

    They are zones with managed pages by node, highest type first, of one length (see
    `layout.node_zonelist`): those of each node and highest zone type, then the same for requests
    with THISNODE.
    """
    types = len(machine.zone_types)
    words = []
    for nodes in (*node_orders(machine), *((node,) for node in range(len(machine.nodes)))):
        for highest_type in range(types):
            zones = [
                zone
                for node in nodes
                for zone in range(node * types + highest_type, node * types - 1, -1)
                if machine.zones[zone].managed
            ]
            words += [*zones, *[-1] * (len(machine.zones) + 1 - len(zones))]
    return words


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
        """Return whether the state has what an elastic replay needs."""
        return len(self.folios) > 0

    @property
    def next_due_ns(self) -> int:
        """Return when something besides events is due next."""
        due = int(self.st[at.NEXT_TICK])
        if self.is_elastic:
            nodes = len(self.machine.nodes)
            first = int(self.st[int(self.st[at.PRESSURE_BASE]) + pr.NODES_BASE])
            words = self.st[first : first + nodes * pr.NODE_WORDS].reshape(nodes, -1)
            dues = words[:, [pr.KSWAPD_DUE, pr.KCOMPACTD_DUE, pr.PROACTIVE_DUE]]
            due = min(due, int(dues.min()))
        return due

    def arrays(self, places: np.ndarray | None = None) -> at.Arrays:
        """Return the arrays as kernels take them.

        Args:
            places: int32, where each object lives; none for kernels that touch no object.
        """
        if places is None:
            places = np.zeros(0, np.int32)
        return at.Arrays(self.pages, self.blocks, self.st, self.log, self.folios, places)

    def pressure_words(self, first: int, words: int) -> np.ndarray:
        """Return words of an elastic replay from one on, int64."""
        if not self.is_elastic:
            return np.zeros(0, np.int64)
        start = int(self.st[at.PRESSURE_BASE]) + first
        return self.st[start : start + words].copy()

    def copy(self) -> State:
        """Return a state that can be advanced without changing this one."""
        return State(
            pages=self.pages.copy(),
            blocks=self.blocks.copy(),
            st=self.st.copy(),
            log=np.zeros_like(self.log),
            machine=self.machine,
            folios=self.folios.copy(),
        )

    def zone_region(self, zone: int) -> np.ndarray:
        """Return a view of a zone's words."""
        start = at.ZONES + zone * at.ZONE_STRIDE
        return self.st[start : start + at.ZONE_STRIDE]

    def zone_words(self, word: int) -> np.ndarray:
        """Return one word of every zone, shape (zones,)."""
        end = at.ZONES + len(self.machine.zones) * at.ZONE_STRIDE
        return self.st[at.ZONES + word : end : at.ZONE_STRIDE].copy()

    def pcp_region(self, zone: int, cpu: int) -> np.ndarray:
        """Return a view of a CPU's words for a zone."""
        start = int(self.st[at.PCP_BASE]) + (zone * self.machine.nr_cpus + cpu) * at.PCP_STRIDE
        return self.st[start : start + at.PCP_STRIDE]

    def free_buddies(self) -> np.ndarray:
        """Return free buddies, shape (zones, orders, migratetypes)."""
        nr_zones = len(self.machine.zones)
        regions = self.st[at.ZONES : at.ZONES + nr_zones * at.ZONE_STRIDE]
        lists = regions.reshape(nr_zones, at.ZONE_STRIDE)[:, at.ZONE_LISTS :]
        shape = (nr_zones, at.ORDERS, at.MIGRATETYPES, at.LIST_WORDS)
        return lists.reshape(shape)[..., at.ENTRIES].copy()

    def block_counts(self) -> np.ndarray:
        """Return numbers of pageblocks, shape (zones, migratetypes)."""
        shape = (len(self.machine.zones) + 1, at.MIGRATETYPES)
        cells = self.blocks["zone"].astype(np.intp) * at.MIGRATETYPES + self.blocks["migratetype"]
        counts = np.bincount(cells, minlength=shape[0] * shape[1])
        return counts.astype(np.int64, copy=False).reshape(shape)[1:]

    def kept_pages(self) -> int:
        """Return the pages of the allocator: free, on CPUs' lists, and held by compaction."""
        free = self.free_buddies().sum(axis=(0, 2)) << np.arange(at.ORDERS)
        held = int(self.st[at.ISOLATED_PAGES])
        if self.is_elastic:
            first = int(self.st[int(self.st[at.PRESSURE_BASE]) + pr.COMPACTORS_BASE])
            runs = first + np.arange(1 + len(self.machine.nodes)) * pr.COMPACTOR_WORDS
            held += int(self.st[runs + pr.RUN_HELD].sum())
        held += int(self.lockless_lists()[..., at.LOCKLESS_PAGES].sum())
        return int(free.sum()) + int(self.pcp_words(at.PCP_COUNT, 1).sum()) + held

    def pcp_words(self, first: int, words: int) -> np.ndarray:
        """Return words of every pageset, shape (zones, cpus, words)."""
        nr_zones, nr_cpus = len(self.machine.zones), self.machine.nr_cpus
        base = int(self.st[at.PCP_BASE])
        regions = self.st[base : base + nr_zones * nr_cpus * at.PCP_STRIDE]
        table = regions.reshape(nr_zones, nr_cpus, at.PCP_STRIDE)
        return table[:, :, first : first + words].copy()

    def owned_sets(self) -> np.ndarray:
        """Return a view of all CPUs' words of ownership, shape (zones, cpus, OWNED_SET_STRIDE)."""
        first = int(self.st[self.st[at.OWNERSHIP] + at.OWNED_SETS])
        shape = (len(self.machine.zones), self.machine.nr_cpus, at.OWNED_SET_STRIDE)
        return self.st[first : first + prod(shape)].reshape(shape)

    def lockless_lists(self) -> np.ndarray:
        """Return a view of lockless lists, shape (zones or 0, cpus, LOCKLESS_WORDS)."""
        base = int(self.st[at.OWNERSHIP])
        shape = (len(self.machine.zones), self.machine.nr_cpus, at.LOCKLESS_WORDS)
        if not base or self.st[base + at.OPTION_REMOTE_FREE] != at.REMOTE_FREE_IS_LOCKLESS:
            shape = (0, *shape[1:])
        first = int(self.st[base + at.OWNED_BLOCKS]) + len(self.blocks) * at.OWNED_BLOCK_WORDS
        return self.st[first : first + prod(shape)].reshape(shape)

    def sites(self) -> np.ndarray:
        """Return lock-site counters."""
        shape = (len(self.machine.zones), self.machine.nr_cpus, at.SITES, at.SITE_WORDS)
        return self.pcp_words(at.PCP_SITES, at.SITES * at.SITE_WORDS).reshape(shape)

    def fallback_counts(self) -> np.ndarray:
        """Return fallbacks by requested type, type taken from, kind and orders.

        The shape is `layout.FALLBACK_SHAPE`.
        """
        words = self.st[at.FALLBACKS : at.FALLBACKS + prod(at.FALLBACK_SHAPE)]
        return words.reshape(at.FALLBACK_SHAPE).copy()

    def divergence(self) -> dict[str, int]:
        """Return counts of disagreements of demand and an elastic replay; none of a literal one."""
        words = self.pressure_words(pr.DROPPED_FREES, len(pr.DIVERGENCE_NAMES))
        return dict(zip(pr.DIVERGENCE_NAMES, words.tolist(), strict=False))

    def list_pages(self, words: np.ndarray) -> list[int]:
        """Return the page frames of one list, head first.

        Args:
            words: the list's head, tail and entries.
        """
        pfns = []
        pfn = int(words[at.HEAD])
        while pfn >= 0 and len(pfns) <= len(self.pages):
            pfns.append(pfn)
            pfn = int(self.pages[pfn]["next"])
        return pfns


def make_state(
    machine: Machine,
    rules: KernelRules,
    policy: Policy | None = None,
    assumptions: Assumptions | None = None,
    *,
    start_ns: int = 0,
    log_rows: int = LOG_ROWS_DEFAULT,
) -> State:
    """Return a state with every scalar set and no page anywhere.

    Blocks belong to zones, their type is Movable.

    Args:
        machine: zones and CPUs; watermarks as they should be, policy applied.
        rules: the kernel generation.
        policy: swept fields; None means as recorded.
        assumptions: ours.
        start_ns: time of the first decay tick period.
        log_rows: capacity of the log.

    Raises:
        PolicyError: pageblock ownership in a kernel that it cannot be added to, more
            `lowmem_reserve_ratio`s than zone types, or pageblocks that are not the machine's.
    """
    policy = policy or Policy()
    if policy.pageblock_order not in (None, machine.pageblock_order):
        raise PolicyError(
            f"policy pageblock_order={policy.pageblock_order}: only replays of recordings have it; "
            f"this machine's is {machine.pageblock_order}"
        )
    assumptions = assumptions or Assumptions()
    machine = machine.with_watermarks(policy, rules).with_lowmem_reserve(policy)
    types, nr_nodes = machine.migratetypes, len(machine.nodes)
    movable_type = max(machine.type_index("Movable"), machine.type_index("Normal"), 0)
    nr_zones, nr_cpus = len(machine.zones), machine.nr_cpus
    lists = build_zonelists(machine)
    nr_blocks = -(-machine.end_pfn >> machine.pageblock_order)
    pcp_base = at.ZONES + nr_zones * at.ZONE_STRIDE
    node_base = pcp_base + nr_zones * nr_cpus * at.PCP_STRIDE
    zonelist_base = node_base + nr_nodes * at.NODE_STRIDE
    cpu_node_base = zonelist_base + len(lists)
    cpu_base = cpu_node_base + nr_cpus
    owned_base = cpu_base + nr_cpus * at.CPU_STRIDE
    owned = ownership_words(policy, rules, nr_zones * nr_cpus, nr_blocks, owned_base)
    st = np.concatenate([np.zeros(owned_base, np.int64), owned])
    st[zonelist_base:cpu_base] = [*lists, *machine.cpu_node_indices]
    period = assumptions.decay_period_ns
    drain = at.DRAINS_SCALED_BATCH if rules.full_drain_batched else at.DRAINS_ALL
    values = {
        at.PCP_BASE: pcp_base,
        at.NODE_BASE: node_base,
        at.ZONELIST_BASE: zonelist_base,
        at.CPU_NODE_BASE: cpu_node_base,
        at.CPU_BASE: cpu_base,
        at.OWNERSHIP: owned_base if len(owned) else 0,
        at.NR_ZONES: nr_zones,
        at.NR_CPUS: nr_cpus,
        at.PAGEBLOCK_ORDER: machine.pageblock_order,
        at.MAX_ORDER: machine.max_order,
        at.ZONE_TYPES: len(machine.zone_types),
        at.MOVABLE_TYPE: movable_type,
        at.ISOLATE: types.index("Isolate") if "Isolate" in types else -1,
        at.CMA: types.index("CMA") if "CMA" in types else -1,
        at.NR_NODES: nr_nodes,
        at.SKIPS_BUSY_NODES: rules.skips_busy_kswapd_nodes and nr_nodes > 1,
        at.COUNTS_BY_CPU: assumptions.counters == "lagged" or nr_nodes > 1,
        at.THP_LISTS: machine.thp,
        at.HUGE_ORDER: machine.pageblock_order if rules.huge_lists_hold_blocks else PMD_ORDER,
        at.FREE_HIGH_BATCH: assumptions.free_high_batch,
        at.FULL_DRAIN_CHUNK: at.DRAINS_BATCH if policy.pcp_drain_batched else drain,
        at.WATERMARK_SUBTRACTS: at.ZONE_FREE_HIGHATOMIC
        if rules.watermark_subtracts_free
        else at.ZONE_RESERVED_HIGHATOMIC,
        at.BOOST_RETRY_MASK: at.GFP_HIGH
        if rules.boost_retry_by_high
        else at.GFP_ATOMIC | at.GFP_DIRECT_RECLAIM,
        at.BOOST_RETRY_BITS: at.GFP_HIGH if rules.boost_retry_by_high else at.GFP_ATOMIC,
        at.END_PFN: machine.end_pfn,
        at.NOW: start_ns,
        at.TICK_PERIOD: period,
        at.TICK_STAGGER: min(12_000_000, period // nr_cpus),
    }
    for offset, value in values.items():
        st[offset] = int(value)
    set_switches(st, rules, policy)
    since_tick = (start_ns - assumptions.decay_phase_ns) % period
    st[at.TICK_BASE] = start_ns - since_tick + period
    cpu = min((period - since_tick - 1) // int(st[at.TICK_STAGGER]), nr_cpus - 1)
    st[at.TICK_CPU] = cpu
    st[at.NEXT_TICK] = st[at.TICK_BASE] - cpu * st[at.TICK_STAGGER]
    state = State(
        pages=np.zeros(nr_blocks << machine.pageblock_order, at.PAGE),
        blocks=np.zeros(nr_blocks, at.BLOCK),
        st=st,
        log=np.zeros(log_rows, at.LOG),
        machine=machine,
    )
    for index, zone in enumerate(machine.zones):
        _set_zone(state, index, zone, assumptions)
        for cpu in range(nr_cpus):
            set_pageset(state.pcp_region(index, cpu), machine, zone, cpu, rules, policy)
    return state


def set_switches(st: np.ndarray, rules: KernelRules, policy: Policy) -> None:
    """Set the words of rules and of policy fields (see `layout`)."""
    for name, offset in at.RULE_WORDS.items():
        st[offset] = int(getattr(rules, name))
    numbers = policy_numbers(policy, rules)
    for name, offset in at.POLICY_WORDS.items():
        st[offset] = numbers[name]


def _set_zone(state: State, index: int, zone: Zone, assumptions: Assumptions) -> None:
    """Part of alloc_flags_nofragment(): set a zone's words; which zones set NOFRAGMENT (S2.7)."""
    region, machine = state.zone_region(index), state.machine
    below = machine.zones[index - 1] if index % len(machine.zone_types) else None
    populated_below = below is not None and below.present > 0
    region[at.ZONE_NODE], region[at.ZONE_TYPE] = divmod(index, len(machine.zone_types))
    is_split = zone.name == "Normal" and (len(machine.nodes) == 1 or populated_below)
    region[at.ZONE_AVOIDS_FRAGMENTATION] = is_split
    lists = region[at.ZONE_LISTS :].reshape(-1, at.LIST_WORDS)
    lists[:, [at.HEAD, at.TAIL]] = -1
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
    if assumptions.counters == "lagged":
        _set_thresholds(region, zone, machine.nr_cpus)


def _set_thresholds(region: np.ndarray, zone: Zone, nr_cpus: int) -> None:
    """refresh_zone_stat_thresholds(): set what CPUs may hold back of a zone's counters (S1.10)."""
    asleep, awake = counter_thresholds(zone, nr_cpus)
    drift = nr_cpus * asleep
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


GAP_CAP = 32
"""Pages to which newer kernels cap compact_gap (S9.1)."""


def with_pressure(
    state: State,
    rules: KernelRules,
    policy: Policy,
    assumptions: Assumptions,
    *,
    seed: int = 0,
    start_ns: int | None = None,
) -> State:
    """Return a state with room for LRU lists, kswapd and compaction.

    All of it is idle and empty.

    Args:
        state: a literal one; its arrays are taken over.
        rules: the kernel generation.
        policy: swept fields.
        assumptions: ours.
        seed: of the draws.
        start_ns: when the first half second until proactive compaction begins; None: now.
    """
    machine, elastic = state.machine, assumptions.elastic or ElasticAssumptions()
    nr_nodes = len(machine.nodes)
    base = len(state.st)
    nodes_base = base + pr.SCALARS
    zones_base = nodes_base + nr_nodes * pr.NODE_WORDS
    compactors_base = zones_base + len(machine.zones) * pr.ZONE_WORDS
    end = compactors_base + (1 + nr_nodes) * pr.COMPACTOR_WORDS
    st = np.zeros(end, np.int64)
    st[:base] = state.st
    set_switches(st, rules, policy)

    def by(value: int | bool | None, otherwise: int | bool | None) -> int:
        return int(otherwise or 0) if value is None else int(value)

    # What shared decisions read: defrag_mode, how kswapd's runs end.
    st[at.PRESSURE_BASE] = base
    st[at.KSWAPD_RECORDED] = 1
    st[at.BLOCK_WATERMARKS] = by(policy.defrag_watermarks, policy.defrag_mode)
    falls_back = by(policy.defrag_atomic_falls_back, rules.defrag_mode_fixes)
    types = enumerate(machine.zone_types)
    thp_bits = 0
    if policy.thp_defrag:
        thp_bits = thp_reclaim_bits(policy.thp_defrag, elastic.thp_madvised) + 1
    words = {
        pr.SEED: seed,
        pr.FILE_REFERENCED: elastic.file_referenced_per_mille,
        pr.ANON_REFERENCED: elastic.anon_referenced_per_mille,
        pr.FILE_DIRTY: elastic.file_dirty_per_mille,
        pr.ANON_SCAN_PERCENT: elastic.anon_scan_percent,
        pr.RECLAIM_SCAN_NS: elastic.reclaim_scan_ns,
        pr.KSWAPD_WAKE_NS: elastic.kswapd_wake_ns,
        pr.COMPACT_SCAN_NS: elastic.compact_scan_ns,
        pr.COMPACT_MIGRATE_NS: elastic.compact_migrate_ns,
        pr.ANON_MIGRATION_FAILS: elastic.anon_migration_fails_per_mille,
        pr.FILE_MIGRATION_FAILS: elastic.file_migration_fails_per_mille,
        pr.COMPACTION_CONTENDED: elastic.compaction_contended_per_mille,
        pr.BASE_PAGES_PER_HUGE: elastic.base_pages_per_huge,
        pr.SLAB_SURVIVORS: elastic.slab_survivors_per_mille,
        pr.SLAB_OBJECTS: slab_objects(machine.nr_cpus),
        pr.COMPACT_GAP_MAX: by(policy.compact_gap, GAP_CAP if rules.compact_gap_capped else 0),
        pr.KSWAPD_ASSISTS: by(policy.defrag_kswapd_assist, policy.defrag_mode),
        pr.THP_DEFRAG: thp_bits,
        pr.THP_MADVISED: elastic.thp_madvised,
        pr.DEFRAG_FIXES: bool(policy.defrag_mode) and falls_back,
        pr.NODES_BASE: nodes_base,
        pr.ZONES_BASE: zones_base,
        pr.COMPACTORS_BASE: compactors_base,
        pr.HIGHEST_NORMAL: max(
            (number for number, name in types if name in ("DMA", "DMA32", "Normal")), default=0
        ),
        pr.QUEUE_HEAD: -1,
        pr.QUEUE_TAIL: -1,
    }
    for offset, value in words.items():
        st[base + offset] = int(value)
    # Idle nodes: empty lists, kswapd asleep on the first CPU.
    nodes = st[nodes_base:zones_base].reshape(nr_nodes, pr.NODE_WORDS)
    lists = nodes[:, : pr.NODE_PAGES].reshape(nr_nodes, -1, at.LIST_WORDS)
    lists[:, :, [at.HEAD, at.TAIL]] = -1
    nodes[:, [pr.SLAB_LIST + at.HEAD, pr.SLAB_LIST + at.TAIL]] = -1
    nodes[:, [pr.KSWAPD_WANTED_HIGHEST, pr.KCOMPACTD_ZONE]] = -1
    nodes[:, [pr.KSWAPD_DUE, pr.KCOMPACTD_DUE]] = at.NEVER
    nodes[:, [pr.KSWAPD_HIGHEST, pr.KCOMPACTD_HIGHEST]] = len(machine.zone_types) - 1
    begun = int(st[at.NOW]) if start_ns is None else start_ns
    nodes[:, pr.PROACTIVE_DUE] = begun + 500_000_000
    nodes[:, pr.KSWAPD_FREE_NS] = elastic.kswapd_free_ns
    for node in range(nr_nodes):
        own = (cpu for cpu, of in enumerate(machine.cpu_node_indices) if of == node)
        nodes[node, pr.KSWAPD_CPU] = next(own, 0)
    # Zones never compacted, their scanners at the ends.
    zones = st[zones_base:compactors_base].reshape(-1, pr.ZONE_WORDS)
    zones[:, pr.ZONE_ORDER_FAILED] = machine.max_order + 1
    zones[:, pr.ZONE_PRESENT] = [zone.present for zone in machine.zones]
    for number, zone in enumerate(machine.zones):
        if zone.managed:
            last = (zone.end_pfn - 1) >> machine.pageblock_order << machine.pageblock_order
            starts = [pr.ZONE_MIGRATE_ASYNC, pr.ZONE_MIGRATE_SYNC, pr.ZONE_INIT_MIGRATE]
            zones[number, starts] = zone.start_pfn
            zones[number, [pr.ZONE_FREE_FROM, pr.ZONE_INIT_FREE]] = last
    runs = st[compactors_base:].reshape(-1, pr.COMPACTOR_WORDS)
    runs[:, pr.RUN_TARGETS : pr.RUN_TARGETS + at.ORDERS] = -1
    runs[:, pr.RUN_SOURCES] = -1
    return replace(state, st=st, folios=np.zeros(len(state.pages), pr.FOLIO))


def with_cpu_spans(
    state: State, kswapd: Mapping[int, np.ndarray], kcompactd: Mapping[int, np.ndarray]
) -> State:
    """Return an elastic state whose daemons work as long as they were on a CPU (S10.14).

    Args:
        state: its other arrays are taken over.
        kswapd: by node: int64, a row for each time on a CPU, by begin: when that begins, how long
            it is (above 0) and the wait behind it, ns. Nodes that the state has not are left out.
        kcompactd: likewise.
    """
    parts, end = [state.st], len(state.st)
    nodes = int(state.st[int(state.st[at.PRESSURE_BASE]) + pr.NODES_BASE])
    words = {}
    for daemon, spans_of in ((pr.KSWAPD_CPU_TIME, kswapd), (pr.KCOMPACTD_CPU_TIME, kcompactd)):
        for node, spans in spans_of.items():
            if node < len(state.machine.nodes):
                own = nodes + node * pr.NODE_WORDS + daemon
                words |= {own + pr.SPANS_FROM: end, own + pr.SPANS: len(spans)}
                parts.append(spans.ravel())
                end += spans.size
    st = np.concatenate(parts)
    st[list(words)] = list(words.values())
    return replace(state, st=st)


def slab_objects(nr_cpus: int) -> int:
    """Part of calculate_order(): return the objects SLUB wants in a slab at least (S10.8)."""
    return 4 * (nr_cpus.bit_length() + 1)


def thp_reclaim_bits(setting: str, madvised: bool) -> int:
    """vma_thp_gfp_mask(): return the bits by which faults for huge pages may reclaim (S8.5).

    Args:
        setting: of transparent_hugepage/defrag: always, defer, defer+madvise, madvise or never.
        madvised: the memory is.
    """
    direct, kswapd = at.GFP_DIRECT_RECLAIM, at.GFP_KSWAPD_RECLAIM
    with_advice, without = {
        "always": (direct, direct | pr.GFP_NORETRY),
        "defer": (kswapd, kswapd),
        "defer+madvise": (direct, kswapd),
        "madvise": (direct, 0),
        "never": (0, 0),
    }[setting]
    return with_advice if madvised else without


LISTED = at.record("int32 pfn; int8 zone order migratetype; int16 cpu")
"""A page on a per-CPU list of a type; records of one list come head first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ReadLists:
    """What a state file tells of a start beyond which pages are where.

    Attributes:
        buddies: `LISTED` records of the free lists' entries, those of one list head first; `cpu`
            is -1.
        pageset_words: by offset of a pageset's word: int64, shape (zones, cpus).
        zone_words: by offset of a zone's word: int64, shape (zones,).
    """

    buddies: np.ndarray
    pageset_words: Mapping[int, np.ndarray]
    zone_words: Mapping[int, np.ndarray]


@dataclass(frozen=True, kw_only=True, eq=False)
class StartImage:
    """Where every page is when a replay begins.

    Attributes:
        free: bool, one per page frame: in the buddy.
        movable: bool, one per page frame: allocated and migratable (T10.9).
        block_types: int8, migratetype of each pageblock, -1 where there is no memory.
        listed: `LISTED` records.
        pcp_high: int64, shape (zones, cpus): pcp->high; 0 leaves the machine's.
        allocated_pfn: int32, first pages of allocations: those that the recording frees later, and
            others of known order.
        allocated_order: int8, their orders.
        origin: plain lines on what this image was made from and how exact it is.
        read: the lists as a state file has them; None: free buddies are cut from `free`.
    """

    free: np.ndarray
    movable: np.ndarray
    block_types: np.ndarray
    listed: np.ndarray
    pcp_high: np.ndarray
    allocated_pfn: np.ndarray
    allocated_order: np.ndarray
    origin: tuple[str, ...] = ()
    read: ReadLists | None = None

    @cached_property
    def movable_pfns(self) -> np.ndarray:
        """Return the page frames that are `movable`, intp."""
        return np.flatnonzero(self.movable)

    def buddies(
        self, pageblock_order: int, max_order: int, barred: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the free buddies' first pages (int32) and orders (int8).

        Args:
            pageblock_order: S1.2.
            max_order: S1.1.
            barred: `LISTED` records of pages that are free too, since no list takes them.
        """
        key = pageblock_order, max_order
        if len(barred) or key not in self._buddies:
            free = self.free.copy() if len(barred) else self.free
            for page in barred:
                first = int(page["pfn"])
                free[first : first + (1 << int(page["order"]))] = True
            pfns, orders = maximal_buddies(free, self.block_types, *key)
            buddies = pfns.astype(np.int32), orders
            if len(barred):
                return buddies
            self._buddies[key] = buddies
        return self._buddies[key]

    @cached_property
    def _buddies(self) -> dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]:
        """Return the buddies made before, which need not be cut again."""
        return {}


BOTH_FREE = 0x0101
"""Two bools that are true."""


def maximal_buddies(
    free: np.ndarray, block_types: np.ndarray, pageblock_order: int, max_order: int
) -> tuple[np.ndarray, np.ndarray]:
    """Cut free pages into the buddies that merging leaves (S5.3, S5.4).

    Args:
        free: bool per page frame; length a multiple of the pageblock's pages.
        block_types: migratetype per pageblock; HIGHATOMIC and above merge with their like only.
        pageblock_order: S1.2.
        max_order: S1.1.

    Returns:
        First page frames (int64) and orders (int8), ascending by page frame.
    """
    firsts, orders = [], []
    level = np.ascontiguousarray(free)
    for order in range(max_order + 1):
        paired = len(level) // 2 * 2
        # A pair of free buddies, looked at as one number.
        above = level[:paired].view(np.uint16) == BOTH_FREE
        if order == max_order:
            above[:] = False
        elif order >= pageblock_order:
            step = 1 << (order - pageblock_order)
            types = block_types[::step][:paired].reshape(-1, 2)
            mergeable = (types < at.PCP_TYPES).all(axis=1) | (types[:, 0] == types[:, 1])
            above &= mergeable
        whole = level.copy()
        whole[:paired].view(np.uint16)[above] = 0
        numbers = np.flatnonzero(whole)
        firsts.append(numbers << order)
        orders.append(np.full(len(numbers), order, np.int8))
        level = above
    pfns = np.concatenate(firsts)
    sizes = np.concatenate(orders)
    ascending = np.argsort(pfns, kind="stable")
    return pfns[ascending], sizes[ascending]


@entry
def place_buddies(m: at.Arrays, pfns: np.ndarray, orders: np.ndarray) -> None:
    """Append free buddies to their lists' tails, in the order given (S5.3)."""
    block_order = m.st[at.PAGEBLOCK_ORDER]
    for index in range(len(pfns)):
        pfn = int(pfns[index])
        order = int(orders[index])
        block = pfn >> block_order
        zone = int(m.blocks[block]["zone"]) - 1
        if zone < 0:
            continue
        migratetype = int(m.blocks[block]["migratetype"])
        if order > block_order and m.st[at.RULE_LISTS_MATCH_BLOCKS]:  # from 6.12
            change_pageblock_range(m, pfn, order, migratetype)
        __add_to_free_list(m, zone, pfn, order, migratetype, True)
        if migratetype != m.st[at.ISOLATE]:
            # No CPU has pages of the start image to pass on.
            region = zone_at(zone)
            m.st[region + at.ZONE_FREE] += 1 << order
            if migratetype == at.HIGHATOMIC:
                m.st[region + at.ZONE_FREE_HIGHATOMIC] += 1 << order
            elif migratetype == m.st[at.CMA]:
                m.st[region + at.ZONE_FREE_CMA] += 1 << order


@entry
def place_read_buddies(m: at.Arrays, listed: np.ndarray) -> None:
    """No kernel function: append free buddies to the tails of their lists, in the order given."""
    for index in range(len(listed)):
        pfn = int(listed[index]["pfn"])
        order = int(listed[index]["order"])
        migratetype = int(listed[index]["migratetype"])
        zone = int(listed[index]["zone"])
        __add_to_free_list(m, zone, pfn, order, migratetype, True)
        if migratetype != m.st[at.ISOLATE]:
            region = zone_at(zone)
            m.st[region + at.ZONE_FREE] += 1 << order
            if migratetype == at.HIGHATOMIC:
                m.st[region + at.ZONE_FREE_HIGHATOMIC] += 1 << order
            elif migratetype == m.st[at.CMA]:
                m.st[region + at.ZONE_FREE_CMA] += 1 << order


@entry
def place_allocations(
    m: at.Arrays,
    movable_pfns: np.ndarray,
    movable: np.ndarray,
    firsts: np.ndarray,
    orders: np.ndarray,
) -> None:
    """Mark pages in use, and allocations that will be freed."""
    for index in range(len(movable_pfns)):
        pfn = int(movable_pfns[index])
        m.pages[pfn]["where"] = at.ALLOCATED
        m.pages[pfn]["tag"] = 1
    for index in range(len(firsts)):
        first = int(firsts[index])
        order = int(orders[index])
        for pfn in range(first, first + (1 << order)):
            m.pages[pfn]["where"] = at.NOWHERE
        m.pages[first]["where"] = at.ALLOCATED
        m.pages[first]["order"] = order
        m.pages[first]["tag"] = int(movable[first])


@entry
def place_listed(m: at.Arrays, listed: np.ndarray) -> None:
    """Append pages to the tails of per-CPU lists, in the order given."""
    block_order = m.st[at.PAGEBLOCK_ORDER]
    for index in range(len(listed)):
        pfn = int(listed[index]["pfn"])
        order = int(listed[index]["order"])
        cpu = int(listed[index]["cpu"])
        zone = int(listed[index]["zone"])
        lst = order_to_pindex(m, order, int(listed[index]["migratetype"]))
        if m.st[at.OWNERSHIP]:
            lst = 3 * order + int(listed[index]["migratetype"])
        pcp = pcp_at(m, zone, cpu)
        m.pages[pfn]["order"] = order
        m.pages[pfn]["where"] = at.ON_PCP
        m.pages[pfn]["tag"] = m.blocks[pfn >> block_order]["migratetype"]
        list_add_tail(m.pages, m.st, pcp + at.PCP_LISTS + lst * at.LIST_WORDS, pfn)
        m.st[pcp + at.PCP_COUNT] += 1 << order


def install(state: State, image: StartImage) -> None:
    """Put an image into a fresh state."""
    machine = state.machine
    state.blocks["zone"][image.block_types < 0] = 0
    state.blocks["migratetype"] = np.maximum(image.block_types, 0)
    note_isolated_blocks(state)
    place_allocations(
        state.arrays(),
        image.movable_pfns,
        image.movable,
        image.allocated_pfn,
        image.allocated_order,
    )
    costly, thp = state.st[at.POLICY_COSTLY_ORDER], state.st[at.THP_LISTS]
    order = image.listed["order"]
    eligible = (order <= costly) | ((order == state.st[at.HUGE_ORDER]) & bool(thp))
    if state.st[at.OWNERSHIP]:
        eligible &= order <= machine.pageblock_order
    barred = image.listed[~eligible]
    if image.read is None:
        pfns, orders = image.buddies(machine.pageblock_order, machine.max_order, barred)
        place_buddies(state.arrays(), pfns, orders)
    else:
        place_read_buddies(state.arrays(), image.read.buddies)
    place_listed(state.arrays(), np.ascontiguousarray(image.listed[eligible]))
    for zone, cpu in np.argwhere(image.pcp_high > 0):
        state.pcp_region(int(zone), int(cpu))[at.PCP_HIGH] = image.pcp_high[zone, cpu]
    block_pages = 1 << machine.pageblock_order
    reserved = state.block_counts()[:, at.HIGHATOMIC] * block_pages
    for zone in range(len(machine.zones)):
        state.zone_region(zone)[at.ZONE_RESERVED_HIGHATOMIC] = reserved[zone]
    if image.read is not None:
        _set_read_words(state, image.read)


def _set_read_words(state: State, read: ReadLists) -> None:
    """No kernel function: set words of zones and pagesets as a state file has them.

    Counters lag, as they do in the kernel, by what the file has of each CPU.
    """
    machine = state.machine
    state.st[at.COUNTS_BY_CPU] = 1
    for zone in range(len(machine.zones)):
        if machine.zones[zone].managed:
            _set_thresholds(state.zone_region(zone), machine.zones[zone], machine.nr_cpus)
        for word, by_zone in read.zone_words.items():
            state.zone_region(zone)[word] = by_zone[zone]
        for cpu in range(machine.nr_cpus):
            for word, by_cpu in read.pageset_words.items():
                state.pcp_region(zone, cpu)[word] = by_cpu[zone, cpu]


def note_isolated_blocks(state: State) -> None:
    """Note which zones have an isolated block, once types are set (S5.6)."""
    counts = state.block_counts()
    for zone in range(len(state.machine.zones)):
        isolated = state.st[at.ISOLATE] >= 0 and counts[zone, state.st[at.ISOLATE]] > 0
        state.zone_region(zone)[at.ZONE_HAS_ISOLATED] = isolated
