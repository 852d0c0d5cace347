"""The model's elastic kernels taken one step at a time, with an elastic oracle's inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.events import advance_elastic
from pagealloc_model.allocator.lru import AGES
from pagealloc_model.allocator.state import with_pressure
from pagealloc_model.policy.assumptions import Assumptions, ElasticAssumptions
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import ELASTIC_SETTINGS
from tests.allocator.model_driver import FAR, dump_state, model_policy, state_like
from tests.allocator.small_state import put_on_list
from tests.oracle.elastic import ElasticOracle
from tests.oracle.elastic_scenarios import Ask, ElasticStep, GiveBack, Pass, Tell, Use
from tests.oracle.lru import LISTS, Folio
from tests.oracle.rules import ElasticOptions
from tests.oracle.steps import DrainAll, Grow, SetPcpHigh

OBJECTS = 1 << 14
LOG_ROWS = 1 << 18
THP_SETTINGS = {
    None: None,
    0: "never",
    at.GFP_DIRECT_RECLAIM: "always",
    at.GFP_DIRECT_RECLAIM | pr.GFP_NORETRY: "always",
}
"""Policy's word for the bits that huge-page requests get."""


def model_assumptions(options: ElasticOptions) -> Assumptions:
    """The same shares and costs, in the model's words."""
    names = (
        "file_referenced_per_mille",
        "anon_referenced_per_mille",
        "file_dirty_per_mille",
        "anon_scan_percent",
        "reclaim_scan_ns",
        "reclaim_free_ns",
        "kswapd_free_ns",
        "kswapd_wake_ns",
        "compact_scan_ns",
        "compact_migrate_ns",
        "anon_migration_fails_per_mille",
        "file_migration_fails_per_mille",
        "compaction_contended_per_mille",
        "base_pages_per_huge",
        "thp_madvised",
    )
    shares = {name: getattr(options, name) for name in names}
    return Assumptions(reclaim="elastic", elastic=ElasticAssumptions(**shares))


class ElasticDriver:
    """A state that takes an elastic oracle's steps."""

    def __init__(self, oracle: ElasticOracle) -> None:
        """Start where the oracle is."""
        options = oracle.options
        policy = replace(
            model_policy(oracle.policy, oracle.rules),
            defrag_mode=oracle.policy.defrag_mode,
            defrag_atomic_falls_back=oracle.policy.defrag_atomic_falls_back,
            defrag_promotes_order=oracle.policy.defrag_promotes_order,
            promoted_fall_back_afresh=oracle.policy.promoted_fall_back_afresh,
            defrag_kswapd_assist=options.assists,
            defrag_watermarks=options.block_watermarks,
            compaction_proactiveness=options.proactiveness,
            thp_defrag=THP_SETTINGS[options.thp_bits],
            **{name: getattr(options, name) for name in ELASTIC_SETTINGS if hasattr(options, name)},
        )
        literal = state_like(oracle, log_rows=LOG_ROWS)
        self.state = with_pressure(
            literal,
            KernelRules.preset(oracle.rules.name),
            policy,
            model_assumptions(options),
            seed=options.seed,
            start_ns=0,
        )
        self.state.st[at.NEXT_TICK] = self.state.st[at.TICK_BASE] = FAR
        self.state.st[at.LOG_PAGES] = 0
        self.places = np.full(OBJECTS, -1, np.int32)
        self.leads = np.full(OBJECTS, -1, np.int32)
        for folio in oracle.memory.folios.values():
            self._put(folio)
        for lru in oracle.memory.lrus.values():
            for number, key in enumerate(LISTS):
                for pfn in reversed(list(lru.lists[key])):
                    put_on_list(self.state, pfn, number)

    def take(self, step: ElasticStep) -> None:
        """One step."""
        match step:
            case Ask():
                self._ask(step)
            case GiveBack():
                self._take(
                    step.time_ns,
                    operation=at.FREE,
                    object=step.number,
                    offset=step.offset,
                    order=step.order,
                    cpu=step.cpu,
                    bits=pr.FREED_BY_RECLAIM if step.by_reclaim else 0,
                )
            case Use():
                self._use(step)
            case Pass():
                self._take(step.time_ns, operation=at.TICK, cpu=step.cpu)
            case Tell():
                self._tell(step)

    def dump(self) -> dict[str, Any]:
        """The state as `Oracle.dump` has it, without what literal replays count."""
        found = dump_state(self.state)
        del found["divergence"]
        return found

    def unreserve_holds(self) -> int:
        """How often zone->lock was taken to give reserved blocks back (S7.4, S9.10)."""
        sites = self.state.sites()
        return int(sites[..., at.SITE_UNRESERVE, at.SITE_ACQUISITIONS].sum())

    def dump_elastic(self) -> dict[str, Any]:
        """The state as `dump_elastic` of the oracle has it."""
        state = self.state
        nodes = range(len(state.machine.nodes))
        return {
            "lru": {
                (name, number): self._lru(node, number)
                for node, name in enumerate(state.machine.nodes)
                for number in range(pr.LRU_LISTS)
            },
            "lru_pages": {
                (state.machine.nodes[node], number): int(self._node(node)[pr.NODE_PAGES + number])
                for node in nodes
                for number in range(pr.LRU_LISTS)
            },
            "folios": self._folios(),
            "marked": {"all": self._marked()},
            "ages": {
                name: int(self._node(node)[pr.NODE_AGE])
                for node, name in enumerate(state.machine.nodes)
            },
            "shadows": self._shadows(),
            "pieces": self._pieces(),
            "kswapd": {state.machine.nodes[node]: self._kswapd(node) for node in nodes},
            "kcompactd": {state.machine.nodes[node]: self._kcompactd(node) for node in nodes},
            "compaction": {
                zone: self._compaction(zone) for zone in range(len(state.machine.zones))
            },
            "skipped": {"blocks": np.flatnonzero(state.folios["skip"]).tolist()},
            "counts": {"all": self._counts()},
            "divergence": {"all": self._divergence()},
            "outcomes": {"all": self._outcomes()},
        }

    def _put(self, folio: Folio) -> None:
        record, mine = self.state.pages[folio.pfn], self.state.folios[folio.pfn]
        record["where"], record["order"], record["tag"] = at.ALLOCATED, folio.order, folio.movable
        mine["kind"] = folio.kind
        if folio.object is not None:
            mine["object"] = folio.object + 1
            self.places[folio.object] = folio.pfn

    def _tell(self, step: Tell) -> None:
        match step.step:
            case SetPcpHigh(zone=zone, cpu=cpu, high=high):
                self._take(step.time_ns, operation=at.SET_PCP_HIGH, zone=zone, cpu=cpu, offset=high)
            case Grow(zone=zone, pfn=pfn, order=order, cpu=cpu):
                self._take(
                    step.time_ns, operation=at.GROW, zone=zone, offset=pfn, order=order, cpu=cpu
                )
            case DrainAll():
                self._take(step.time_ns, operation=at.DRAIN_ALL)

    def _ask(self, step: Ask) -> None:
        demand = step.demand
        if demand.number >= 0:
            self.leads[demand.number] = demand.lead
        operation = at.HIDDEN_ALLOC if step.is_hidden else at.ALLOC
        self._take(
            step.time_ns,
            operation=at.RECORDED_FAILURE if step.recorded_failure else operation,
            object=demand.number,
            order=demand.order,
            cpu=demand.cpu,
            migratetype=demand.migratetype,
            zone=demand.highest_zone,
            bits=demand.bits | int(demand.kind) << pr.CLASS_SHIFT,
        )

    def _use(self, step: Use) -> None:
        demand = step.demand
        self._take(
            step.time_ns,
            operation=at.USE,
            object=demand.number,
            offset=int(step.recorded),
            order=demand.order,
            cpu=demand.cpu,
            migratetype=demand.migratetype,
            zone=demand.highest_zone,
            bits=demand.bits | int(demand.kind) << pr.CLASS_SHIFT,
        )

    def _take(self, time_ns: int, **fields: int) -> None:
        events = np.zeros(1, at.EVENT)
        for name, value in {"time_ns": time_ns, **fields}.items():
            events[name] = value
        state = self.state
        state.st[at.LOG_ROWS] = 0
        done = 0
        while not done:
            state.st[at.LOG_ROWS] = 0
            done = advance_elastic(
                state.arrays(self.places),
                events,
                self.leads,
                0,
                1,
                -1,
            )

    def _node(self, node: int) -> np.ndarray:
        st = self.state.st
        base = int(st[st[at.PRESSURE_BASE] + pr.NODES_BASE]) + node * pr.NODE_WORDS
        return st[base : base + pr.NODE_WORDS]

    def _lru(self, node: int, number: int) -> list[int]:
        words = self._node(node)[pr.NODE_LISTS + number * at.LIST_WORDS :][: at.LIST_WORDS]
        return self.state.list_pages(words)

    def _folios(self) -> dict[int, tuple[Any, ...]]:
        state = self.state
        heads = np.flatnonzero(state.pages["where"] == at.ALLOCATED)
        orders = state.pages["order"][heads].tolist()
        numbers = [number - 1 if number else None for number in self._column("object", heads)]
        names = ("kind", "offset", "scans", "writes")
        kinds, *others = (self._column(name, heads) for name in names)
        return dict(
            zip(heads.tolist(), zip(orders, kinds, numbers, *others, strict=True), strict=True)
        )

    def _column(self, name: str, heads: np.ndarray) -> list[int]:
        return self.state.folios[name][heads].tolist()

    def _marked(self) -> list[int]:
        in_use = self.state.pages["where"] == at.ALLOCATED
        return np.flatnonzero(in_use & (self.state.folios["referenced"] != 0)).tolist()

    def _shadows(self) -> dict[int, tuple[int, int]]:
        nodes = self.state.machine.nodes
        taken = np.flatnonzero(self.places < pr.LOST)
        left = {int(number): pr.LOST - 1 - int(self.places[number]) for number in taken}
        ages = AGES // len(nodes)
        return {number: (nodes[each // ages], each % ages) for number, each in left.items()}

    def _pieces(self) -> dict[int, list[tuple[int, int]]]:
        found = {}
        for number in np.flatnonzero(self.places >= 0).tolist():
            pieces = found[number] = []
            pfn = int(self.places[number])
            while pfn >= 0:
                pieces.append((int(self.state.folios[pfn]["offset"]), pfn))
                pfn = int(self.state.folios[pfn]["sibling"]) - 1
        return found

    def _kswapd(self, node: int) -> dict[str, int]:
        words = self._node(node)
        found = {
            "phase": int(words[pr.KSWAPD_PHASE]),
            "due": int(words[pr.KSWAPD_DUE]),
            "failures": int(words[pr.KSWAPD_FAILURES]),
            "wanted_order": int(words[pr.KSWAPD_WANTED_ORDER]),
        }
        if found["phase"] == pr.RUNNING:
            found |= {
                "order": int(words[pr.KSWAPD_SCAN + pr.SC_ORDER]),
                "highest": int(words[pr.KSWAPD_HIGHEST]),
                "priority": int(words[pr.KSWAPD_SCAN + pr.SC_PRIORITY]),
                "boost_left": int(words[pr.KSWAPD_BOOST_LEFT]),
                "total": int(words[pr.KSWAPD_SCAN + pr.SC_RECLAIMED]),
            }
        return found

    def _kcompactd(self, node: int) -> dict[str, int]:
        words = self._node(node)
        return {
            "due": int(words[pr.KCOMPACTD_DUE]),
            "order": int(words[pr.KCOMPACTD_ORDER]),
            "highest": int(words[pr.KCOMPACTD_HIGHEST]),
            "proactive_due": int(words[pr.PROACTIVE_DUE]),
        }

    def _compaction(self, zone: int) -> dict[str, int | bool]:
        st = self.state.st
        base = int(st[st[at.PRESSURE_BASE] + pr.ZONES_BASE]) + zone * pr.ZONE_WORDS
        words = st[base : base + pr.ZONE_WORDS]
        return {
            "migrate_async": int(words[pr.ZONE_MIGRATE_ASYNC]),
            "migrate_sync": int(words[pr.ZONE_MIGRATE_SYNC]),
            "free": int(words[pr.ZONE_FREE_FROM]),
            "considered": int(words[pr.ZONE_CONSIDERED]),
            "shift": int(words[pr.ZONE_DEFER_SHIFT]),
            "order_failed": int(words[pr.ZONE_ORDER_FAILED]),
            "flush": bool(words[pr.ZONE_FLUSH_SKIPS]),
        }

    def _word(self, offset: int) -> int:
        return int(self.state.st[self.state.st[at.PRESSURE_BASE] + offset])

    def _counts(self) -> dict[str, int]:
        found = {name: self._word(pr.COUNTERS + i) for i, name in enumerate(pr.COUNTER_NAMES)}
        # The oracle has no slabs; as long as all survive, only their count of objects tells.
        found.pop("slabs_scanned")
        types = len(self.state.machine.zone_types)
        found |= {f"allocstall_{i}": self._word(pr.ALLOCSTALL + i) for i in range(types)}
        return {name: value for name, value in found.items() if value}

    def _divergence(self) -> dict[str, int]:
        names = enumerate(pr.DIVERGENCE_NAMES)
        found = {name: self._word(pr.DROPPED_FREES + i) for i, name in names}
        return {name: value for name, value in found.items() if value}

    def _outcomes(self) -> dict[tuple[int, str], int]:
        found = {
            (order, name): self._word(pr.OUTCOMES + order * pr.OUTCOME_WORDS + i)
            for order in range(at.ORDERS)
            for i, name in enumerate(("asked", "served", "stalled"))
        }
        return {key: value for key, value in found.items() if value}
