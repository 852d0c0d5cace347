"""The model's elastic kernels taken one step at a time, with an elastic oracle's inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.events import advance_elastic
from pagealloc_model.allocator.lru import AGES
from pagealloc_model.allocator.objects import REQUEST, OpenFailures, link_replacements
from pagealloc_model.allocator.state import with_cpu_spans, with_pressure
from pagealloc_model.measured.folios import huge_attempts
from pagealloc_model.policy.assumptions import Assumptions, ElasticAssumptions
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import ELASTIC_SETTINGS
from tests.allocator.model_driver import (
    FAR,
    OBJECTS,
    dump_state,
    event_fields,
    model_policy,
    named,
    one_event,
    request_fields,
    state_like,
)
from tests.allocator.small_state import put_on_list
from tests.oracle.cpu_time import CpuSpan
from tests.oracle.dump import Dump
from tests.oracle.elastic import Demand, ElasticOracle
from tests.oracle.elastic_scenarios import DEFRAG_FIXES
from tests.oracle.lru import LISTS
from tests.oracle.steps import Step

LOG_ROWS = 1 << 18
THP_SETTINGS = {
    None: None,
    0: "never",
    at.GFP_DIRECT_RECLAIM: "always",
    at.GFP_DIRECT_RECLAIM | pr.GFP_NORETRY: "always",
}
"""Policy's word for the bits that huge-page requests get."""
KSWAPD = {
    "phase": pr.KSWAPD_PHASE,
    "due": pr.KSWAPD_DUE,
    "failures": pr.KSWAPD_FAILURES,
    "wanted_order": pr.KSWAPD_WANTED_ORDER,
}
RUNNING_KSWAPD = {
    "order": pr.KSWAPD_SCAN + pr.SC_ORDER,
    "highest": pr.KSWAPD_HIGHEST,
    "priority": pr.KSWAPD_SCAN + pr.SC_PRIORITY,
    "boost_left": pr.KSWAPD_BOOST_LEFT,
    "total": pr.KSWAPD_SCAN + pr.SC_RECLAIMED,
}
KCOMPACTD = {
    "due": pr.KCOMPACTD_DUE,
    "order": pr.KCOMPACTD_ORDER,
    "highest": pr.KCOMPACTD_HIGHEST,
    "proactive_due": pr.PROACTIVE_DUE,
}
COMPACTION = {
    "migrate_async": pr.ZONE_MIGRATE_ASYNC,
    "migrate_sync": pr.ZONE_MIGRATE_SYNC,
    "free": pr.ZONE_FREE_FROM,
    "considered": pr.ZONE_CONSIDERED,
    "shift": pr.ZONE_DEFER_SHIFT,
    "order_failed": pr.ZONE_ORDER_FAILED,
    "flush": pr.ZONE_FLUSH_SKIPS,
}
"""The model's word for each of the oracle's, in its regions for nodes and zones."""


class ElasticDriver:
    """A state that takes an elastic oracle's steps."""

    def __init__(self, oracle: ElasticOracle) -> None:
        options = oracle.options
        own = {name: getattr(options, name) for name in ELASTIC_SETTINGS if hasattr(options, name)}
        policy = replace(
            model_policy(oracle.policy, oracle.rules),
            defrag_mode=oracle.policy.defrag_mode,
            **{name: getattr(oracle.policy, name) for name in DEFRAG_FIXES},
            defrag_kswapd_assist=options.assists,
            defrag_watermarks=options.block_watermarks,
            compaction_proactiveness=options.proactiveness,
            thp_defrag=THP_SETTINGS[options.thp_bits],
            **own,
        )
        names = [each.name for each in fields(ElasticAssumptions) if hasattr(options, each.name)]
        shares = ElasticAssumptions(**{name: getattr(options, name) for name in names})
        self.state = with_pressure(
            state_like(oracle, log_rows=LOG_ROWS),
            KernelRules.preset(oracle.rules.name),
            policy,
            Assumptions(reclaim="elastic", elastic=shares),
            seed=options.seed,
            start_ns=0,
        )
        self.state = with_cpu_spans(
            self.state, *map(self._spans, (options.kswapd_spans, options.kcompactd_spans))
        )
        self.state.st[at.NEXT_TICK] = self.state.st[at.TICK_BASE] = FAR
        self.state.st[at.LOG_PAGES] = 0
        self.places = np.full(OBJECTS, -1, np.int32)
        self.leads = np.full(OBJECTS, -1, np.int32)
        self.failures = OpenFailures()
        self.linked: list[int] = []  # objects whose leads tasks' requests told
        for folio in oracle.memory.folios.values():
            record, of_folio = self.state.pages[folio.pfn], self.state.folios[folio.pfn]
            record["where"], record["order"] = at.ALLOCATED, folio.order
            record["tag"], of_folio["kind"] = folio.movable, folio.kind
            if folio.object is not None:
                of_folio["object"] = folio.object + 1
                self.places[folio.object] = folio.pfn
        for lru in oracle.memory.lrus.values():
            for number, key in enumerate(LISTS):
                for pfn in reversed(list(lru.lists[key])):
                    put_on_list(self.state, pfn, number)

    def _spans(self, of_nodes: Mapping[int, tuple[CpuSpan, ...]]) -> dict[int, np.ndarray]:
        """Spans by the place of their node; a node without any has none."""
        nodes = self.state.machine.nodes
        return {nodes.index(node): np.array(own) for node, own in of_nodes.items() if own}

    def take(self, time_ns: int, step: Step) -> None:
        events = one_event(time_ns, self.event_fields(step))
        done = 0
        while not done:
            self.state.st[at.LOG_ROWS] = 0
            arrays = self.state.arrays(self.places)
            done = advance_elastic(arrays, events, self.leads, 0, 1, -1)

    def event_fields(self, step: Step) -> dict[str, int]:
        """Fields of a step's event; an object's failure in front is kept."""
        words = step.words
        if step.call == "free_object":
            return {
                "operation": at.FREE,
                "object": words["number"],
                "offset": words["offset"],
                "order": words["order"],
                "cpu": words["cpu"],
                "bits": pr.FREED_BY_RECLAIM if words["by_reclaim"] else 0,
            }
        if "demand" not in words:
            return event_fields(step, self.state.machine)
        demand: Demand = words["demand"]
        event = request_fields(demand) | {"object": demand.number}
        event["bits"] |= int(demand.kind) << pr.CLASS_SHIFT
        if step.call == "use_object":
            return event | {"operation": at.USE, "offset": int(words["recorded"])}
        if demand.task >= 0:
            self._link(demand, event["bits"], failed=step.call == "fail_object")
        elif demand.number >= 0:
            self.leads[demand.number] = demand.lead
        if step.call == "fail_object":
            return event | {"operation": at.RECORDED_FAILURE}
        return event | {"operation": at.HIDDEN_ALLOC if words["is_hidden"] else at.ALLOC}

    def _link(self, demand: Demand, bits: int, *, failed: bool) -> None:
        request = np.zeros(1, REQUEST)
        request["task"], request["object"] = demand.task, demand.number
        request["kind"], request["order"], request["failed"] = demand.kind, demand.order, failed
        own = np.array([bits], np.uint32)
        request["attempt"] = huge_attempts(own, request["order"], request["kind"])
        link_replacements(request, *self.failures.of(request), self.leads)
        if demand.number >= 0:
            self.linked.append(demand.number)

    def dump(self) -> Dump:
        return dump_state(self.state)

    def unreserve_holds(self) -> int:
        """How often zone->lock was taken to give reserved blocks back (S7.4, S9.10)."""
        sites = self.state.sites()
        return int(sites[..., at.SITE_UNRESERVE, at.SITE_ACQUISITIONS].sum())

    def dump_elastic(self) -> Dump:
        state = self.state
        lists = [(node, number) for node in state.machine.nodes for number in range(pr.LRU_LISTS)]
        in_use = state.pages["where"] == at.ALLOCATED
        return {
            "lru": {
                (node, number): state.list_pages(
                    self._node(node)[pr.NODE_LISTS + number * at.LIST_WORDS :][: at.LIST_WORDS]
                )
                for node, number in lists
            },
            "lru_pages": {
                (node, number): int(self._node(node)[pr.NODE_PAGES + number])
                for node, number in lists
            },
            "folios": self._folios(np.flatnonzero(in_use)),
            "marked": {"all": np.flatnonzero(in_use & (state.folios["referenced"] != 0)).tolist()},
            "ages": self._by_node(lambda words: int(words[pr.NODE_AGE])),
            "shadows": self._shadows(),
            "pieces": self._pieces(),
            "kswapd": self._by_node(
                lambda words: (
                    named(words, KSWAPD)
                    | (named(words, RUNNING_KSWAPD) if words[pr.KSWAPD_PHASE] == pr.RUNNING else {})
                )
            ),
            "kcompactd": self._by_node(lambda words: named(words, KCOMPACTD)),
            "compaction": {
                zone: named(self._region(pr.ZONES_BASE, zone, pr.ZONE_WORDS), COMPACTION)
                for zone in range(len(state.machine.zones))
            },
            "leads": {"all": {number: int(self.leads[number]) for number in self.linked}},
            "skipped": {"blocks": np.flatnonzero(state.folios["skip"]).tolist()},
            "counts": {"all": self._counts()},
            "divergence": {"all": self._nonzero(pr.DROPPED_FREES, pr.DIVERGENCE_NAMES)},
            "outcomes": {
                "all": {
                    (kind, order, name): count
                    for kind in range(pr.CLASSES)
                    for order in range(at.ORDERS)
                    for name, count in self._nonzero(
                        pr.OUTCOMES + (kind * at.ORDERS + order) * pr.OUTCOME_WORDS,
                        pr.OUTCOME_NAMES,
                    ).items()
                }
            },
        }

    def _region(self, base: int, index: int, size: int) -> np.ndarray:
        st = self.state.st
        first = int(st[st[at.PRESSURE_BASE] + base]) + index * size
        return st[first : first + size]

    def _node(self, node: int) -> np.ndarray:
        return self._region(pr.NODES_BASE, self.state.machine.nodes.index(node), pr.NODE_WORDS)

    def _by_node(self, value: Callable[[np.ndarray], Any]) -> dict[int, Any]:
        return {node: value(self._node(node)) for node in self.state.machine.nodes}

    def _folios(self, heads: np.ndarray) -> dict[int, tuple[Any, ...]]:
        def column(name: str) -> list[int]:
            return self.state.folios[name][heads].tolist()

        orders = self.state.pages["order"][heads].tolist()
        numbers = [number - 1 if number else None for number in column("object")]
        others = [column(name) for name in ("offset", "scans", "writes")]
        rows = zip(orders, column("kind"), numbers, *others, strict=True)
        return dict(zip(heads.tolist(), rows, strict=True))

    def _shadows(self) -> dict[int, tuple[int, int]]:
        nodes = self.state.machine.nodes
        ages = AGES // len(nodes)
        shadows = {}
        for number in np.flatnonzero(self.places < pr.LOST).tolist():
            left = pr.LOST - 1 - int(self.places[number])
            shadows[number] = nodes[left // ages], left % ages
        return shadows

    def _pieces(self) -> dict[int, list[tuple[int, int]]]:
        found = {}
        for number in np.flatnonzero(self.places >= 0).tolist():
            pieces = found[number] = []
            pfn = int(self.places[number])
            while pfn >= 0:
                pieces.append((int(self.state.folios[pfn]["offset"]), pfn))
                pfn = int(self.state.folios[pfn]["sibling"]) - 1
        return found

    def _counts(self) -> dict[str, int]:
        types = range(len(self.state.machine.zone_types))
        counts = self._nonzero(pr.COUNTERS, pr.COUNTER_NAMES)
        # The oracle has no slabs; as long as all survive, only their count of objects tells.
        counts.pop("slabs_scanned", None)
        return counts | self._nonzero(pr.ALLOCSTALL, [f"allocstall_{zone}" for zone in types])

    def _nonzero(self, first: int, names: tuple[str, ...] | list[str]) -> dict[str, int]:
        """Words from one on by name, without those that are 0."""
        base = int(self.state.st[at.PRESSURE_BASE]) + first
        words = self.state.st[base : base + len(names)].tolist()
        return {name: word for name, word in zip(names, words, strict=True) if word}
