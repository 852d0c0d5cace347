"""Reclaim and compaction as they are judged: random machines, operations, and what is compared."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import operations as op
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.from_source.compiled_tree import (
    CompiledTree,
    KernelCompaction,
    KernelReclaim,
)
from pagealloc_model.allocator.lru import place_on_lists
from pagealloc_model.allocator.state import State, with_pressure
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.verdict.kernel_judge.random_machines import random_beginning
from pagealloc_model.verdict.kernel_judge.sides import (
    MOST_LISTED,
    Begin,
    Difference,
    Sides,
    allocator_lines,
    differing_pages,
    differing_words,
    functions_named,
    word_lines,
)

NO_OBJECTS = np.zeros(0, np.int32)


@dataclass(frozen=True, kw_only=True)
class PressurePart:
    """Operations of reclaim or of compaction: how they are taken, and what is compared then."""

    kernel: type[KernelReclaim | KernelCompaction]
    take: Callable[..., object]
    answers: tuple[str, ...]
    counters: Mapping[int, str]
    zone_fields: Mapping[int, str]
    node_fields: Mapping[int, str]
    other_lines: Callable[[State, State], list[str]]
    words: Callable[[np.void, State], str]
    has_stalls: bool = False
    functions: Callable[[np.void], tuple[str, ...]] = lambda _: ()
    most_lines: int | None = None

    def differences(self, model: State, kernel: State) -> list[str]:
        """One line for each thing that differs; none where the two are the same."""
        base, machine = int(model.st[at.PRESSURE_BASE]), model.machine
        counters = dict(self.counters)
        if self.has_stalls:
            for number, name in enumerate(machine.zone_types):
                counters[pr.ALLOCSTALL + number] = f"allocstall_{name}"
        lines = word_lines("", counters, model.st[base:], kernel.st[base:])
        zones = [machine.zone_title(number) for number in range(len(machine.zones))]
        nodes = [f"node {number}" for number in range(len(machine.nodes))]
        for titles, first, stride, fields in (
            (zones, pr.ZONES_BASE, pr.ZONE_WORDS, self.zone_fields),
            (nodes, pr.NODES_BASE, pr.NODE_WORDS, self.node_fields),
        ):
            for number, title in enumerate(titles):
                word = int(model.st[base + first]) + number * stride
                lines += word_lines(title, fields, model.st[word:], kernel.st[word:])
        return [*lines, *self.other_lines(model, kernel)][: self.most_lines]


class PressureSides(Sides):
    """Operations of reclaim or compaction on both sides, each with its answers."""

    def __init__(self, tree: CompiledTree, begin: Begin, count: int) -> None:
        """Begin twice, with room for the answers of `count` operations."""
        self._part = PARTS[tree.part.name]
        super().__init__(tree, begin, self._part.kernel)
        answers = len(self._part.answers)
        self._answers = np.zeros((2, count) if answers == 1 else (2, count, answers), np.int64)

    def same_answers(self, operations: np.ndarray, low: int, high: int) -> bool:
        """Take operations[low:high] on both; whether their answers are the same."""
        mine, theirs = self._answers
        self._part.take(self.model.arrays(self.places), operations, mine, low, high)
        self.kernel.take(operations, theirs, low, high)
        return np.array_equal(mine[low:high], theirs[low:high])

    def same_states(self) -> bool:
        """True if nothing that is compared differs."""
        return not self._part.differences(self.model, self.kernel.state)

    def describe(self, operations: np.ndarray, position: int) -> Difference:
        """The difference that the operation just taken has made."""
        unit, _ = self._tree.built(self.kernel.configuration)
        self.kernel.store(pages=True)
        operation = operations[position]
        pairs = self._answers[:, position].reshape(2, -1).T
        lines = [
            f"{name}: model {mine}, kernel {theirs}"
            for name, (mine, theirs) in zip(self._part.answers, pairs, strict=True)
            if mine != theirs
        ]
        lines += self.broken_lines()
        lines += self._part.differences(self.model, self.kernel.state)
        return Difference(
            position=position,
            event=self._part.words(operation, self.model),
            lines=tuple(lines),
            places=tuple(
                place
                for name in self._part.functions(operation)
                for place in functions_named(unit, name)
            ),
        )


RECLAIM_ORDERS = (0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9)
KERNEL = at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM | pr.GFP_IO | pr.GFP_FS
REQUESTS = (
    KERNEL,
    KERNEL,
    KERNEL & ~pr.GFP_FS,
    KERNEL & ~(pr.GFP_FS | pr.GFP_IO),
    KERNEL | at.GFP_THISNODE,
    KERNEL | at.GFP_MEMALLOC,
    KERNEL | at.GFP_MEMALLOC,
    at.GFP_KSWAPD_RECLAIM | at.GFP_HIGH,
    at.GFP_KSWAPD_RECLAIM,
)
SHARES = tuple(
    dict(
        zip((op.TAKE, op.LET_GO, op.USE, op.WAKE, op.RUN, op.END_NAP, op.RECLAIM), row, strict=True)
    )
    for row in ((60, 6, 4, 10, 10, 5, 5), (20, 2, 10, 20, 20, 8, 20), (30, 30, 2, 15, 12, 8, 3))
)
"""Weights of the operations of reclaim, of which one set holds for a machine."""


def random_reclaim(rng: random.Random, rules: KernelRules, count: int) -> tuple[Begin, np.ndarray]:
    """Any machine under any policy, its movable pages on LRU lists, kswapds asleep."""
    literal = random_beginning(rng, rules)
    share = rng.choice((0, 100, 300, 700, 1000))
    elastic = ElasticAssumptions(
        file_referenced_per_mille=share,
        anon_referenced_per_mille=rng.choice((0, 300, 700, 1000)),
        file_dirty_per_mille=rng.choice((0, 0, 200, 1000)),
        anon_scan_percent=rng.choice((0, 0, 30, 50, 100)),
    )
    assumptions = replace(literal.assumptions, reclaim="elastic", elastic=elastic)
    literal = replace(literal, assumptions=assumptions)
    machine, image = literal.machine, literal.image
    draws = np.random.default_rng(rng.randrange(1 << 32))
    listed = image.allocated_pfn[image.movable[image.allocated_pfn]]
    pfns = draws.permutation(listed).astype(np.int32)
    weights = draws.dirichlet(np.full(pr.LRU_LISTS, 0.5))
    seed = rng.randrange(1 << 30)
    lists = draws.choice(pr.LRU_LISTS, len(pfns), p=weights).astype(np.int8)
    failures = [rng.choice((0, 0, 0, 14, 15, 16)) for _ in machine.nodes]

    def begin() -> tuple[State, np.ndarray]:
        state = with_pressure(literal.state(), rules, literal.policy, assumptions, seed=seed)
        state.st[at.LOG_PAGES] = 0
        place_on_lists(state.arrays(NO_OBJECTS), pfns, lists)
        nodes = int(state.st[int(state.st[at.PRESSURE_BASE]) + pr.NODES_BASE])
        for node, failed in enumerate(failures):
            state.st[nodes + node * pr.NODE_WORDS + pr.KSWAPD_FAILURES] = failed
        return state, NO_OBJECTS

    shares = rng.choice(SHARES)
    types = len(machine.zone_types)
    rows = []
    for kind in rng.choices(list(shares), weights=list(shares.values()), k=count):
        migratetype = rng.choice((at.MOVABLE, at.MOVABLE, at.UNMOVABLE, at.RECLAIMABLE))
        rows.append(
            (
                kind,
                rng.randrange(len(machine.nodes)),
                rng.randrange(types) if rng.random() < 0.4 else types - 1,
                min(rng.choice(RECLAIM_ORDERS), machine.pageblock_order),
                rng.choice(REQUESTS),
                migratetype,
                rng.choice((pr.ANON, pr.FILE, pr.FILE)) if migratetype == at.MOVABLE else pr.KERNEL,
                rng.randrange(machine.end_pfn),
            )
        )
    return begin, np.array(rows, op.RECLAIM_OPERATION)


RUN_EVERY, NAP_EVERY, RECLAIM_EVERY = 64, 4096, 1024
"""Requests and frees between two runs of each kswapd, ends of its nap, and direct reclaims."""


def recorded_reclaim(demand: Demand, nodes: int) -> np.ndarray:
    """Return `RECLAIM_OPERATION` records: requests, frees, and reclaim between them.

    Requests are made once. Each kswapd runs, if it is woken, and naps end in regular turns; each
    request that failed in the recording, and one of many others, reclaims directly.
    """
    start = demand.starting_places()
    taken: dict[int, int] = {}
    rows: list[tuple[int, ...]] = []
    for number, event in enumerate(demand.events):
        operation, bits, object_number = (
            int(event[name]) for name in ("operation", "bits", "object")
        )
        request = (int(event["zone"]), int(event["order"]), bits, int(event["migratetype"]))
        kind = bits >> pr.CLASS_SHIFT & 3
        if operation in (at.ALLOC, at.HIDDEN_ALLOC):
            taken[object_number] = len(rows)
            rows.append((op.TAKE, 0, *request, kind, 0))
        elif operation == at.FREE and bits & pr.FREED_BY_RECLAIM != pr.FREED_BY_RECLAIM:
            if object_number in taken:
                page = -1 - taken.pop(object_number)
            elif start[object_number] >= 0:
                page = int(start[object_number])
            else:
                continue
            rows.append((op.LET_GO, 0, 0, 0, 0, 0, 0, page))
        elif operation != at.RECORDED_FAILURE:
            continue
        if operation == at.RECORDED_FAILURE or (
            operation == at.ALLOC and number % RECLAIM_EVERY == 0
        ):
            rows.append((op.RECLAIM, 0, *request, kind, 0))
        for every, step in ((RUN_EVERY, op.RUN), (NAP_EVERY, op.END_NAP)):
            if number % every == 0:
                rows += [(step, node, 0, 0, 0, 0, 0, 0) for node in range(nodes)]
    return np.array(rows, op.RECLAIM_OPERATION)


_REQUEST = "order {order}, up to zone {zone}, gfp {bits:#x}"
RECLAIM_STEPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (f"allocate {_REQUEST}, {{migratetype}}, class {{class}}", ("get_page_from_freelist",)),
    ("free {page}", ()),
    ("use {page}", ()),
    (f"wake kswapd on node {{node}}, {_REQUEST}", ("wakeup_kswapd", "pgdat_balanced")),
    (
        "run kswapd on node {node}",
        ("balance_pgdat", "kswapd_try_to_sleep", "shrink_node", "shrink_lruvec"),
    ),
    ("end its nap on node {node}", ("kswapd_try_to_sleep", "balance_pgdat")),
    (
        f"reclaim {_REQUEST}",
        ("do_try_to_free_pages", "shrink_zones", "shrink_node", "shrink_lruvec"),
    ),
)
"""Operations of reclaim by kind: in words, and functions of the tree that it runs."""


def reclaim_words(operation: np.void, state: State) -> str:
    """An operation of reclaim as a line."""
    values: dict[str, object] = {name: operation[name].item() for name in operation.dtype.names}
    page = int(operation["page"])
    values["page"] = (
        f"the page that operation {-1 - page} took"
        if page < 0
        else f"the page in use from {page} on"
    )
    values["zone"] = state.machine.zone_types[int(operation["zone"])]
    values["migratetype"] = state.machine.migratetypes[int(operation["migratetype"])]
    return RECLAIM_STEPS[int(operation["kind"])][0].format(**values)


COUNTERS = {
    pr.COUNTERS + number: name
    for number, name in enumerate(pr.COUNTER_NAMES)
    if name.startswith(("pgscan", "pgsteal", "pgactivate", "pgdeactivate", "pageout", "kswapd"))
}


def _reclaim_lines(model: State, kernel: State) -> list[str]:
    """Differences of folios and, but for the clock and kswapd's own, the allocator."""
    base, machine = int(model.st[at.PRESSURE_BASE]), model.machine
    in_use = model.pages["where"] == at.ALLOCATED
    listed = in_use & (model.folios["place"] > 0)
    lines = [
        f"page {pfn}: {name}: model {mine[name][pfn]}, kernel {theirs[name][pfn]}"
        for name in ("kind", "scans", "writes", "place")
        for mine, theirs in ((model.folios, kernel.folios),)
        for pfn in np.flatnonzero(in_use & (mine[name] != theirs[name]))[:3]
    ]
    lines += [
        f"page {pfn}: {name} on its LRU list: model {model.pages[name][pfn]}, "
        f"kernel {kernel.pages[name][pfn]}"
        for name in ("next", "prev")
        for pfn in np.flatnonzero(listed & (model.pages[name] != kernel.pages[name]))[:3]
    ]
    own = [at.NOW, at.EVENT_CPU, at.KSWAPD_RUNS, at.COUNT_KSWAPD_WAKES, at.LOG_ROWS, at.LOG_DROPPED]
    own += [
        at.ZONES + zone * at.ZONE_STRIDE + at.ZONE_REMEMBERED_BOOST
        for zone in range(len(machine.zones))
    ]
    nodes = int(model.st[at.NODE_BASE])
    own += range(nodes, nodes + len(machine.nodes) * at.NODE_STRIDE)
    words = differing_words(model, kernel)
    words = words[(words < base) & ~np.isin(words, own)]
    if len(words) or len(differing_pages(model, kernel)):
        lines += allocator_lines(model, kernel)
    return lines


COMPACTION_KINDS = (
    *[pr.JUDGED_DIRECT] * 10,
    *[pr.JUDGED_WAKE] * 4,
    *[pr.JUDGED_TIME] * 3,
    *(pr.JUDGED_NODE, pr.JUDGED_RESET, pr.JUDGED_KSWAPD),
    *[pr.JUDGED_TAKE] * 4,
    *[pr.JUDGED_FREE] * 4,
)
COMPACTION_STEPS = (
    "direct compaction for order {order}, {type}, up to zone {highest}, priority {priority}, "
    "flags {flags:#x}, on CPU {cpu}, page {kept}",
    "wake of kcompactd of node {node} for order {order}, up to zone {highest}{again}",
    "time passes, node {node}, {count}",
    "compaction of a node, node {node}, {count}",
    "skip marks cleared, node {node}, {count}",
    "kswapd runs or not, node {node}, {count}",
    "pages taken from {zone}: {count} of order {order}, {type}",
    "pages freed in {zone}: {count} per mille, on CPU {cpu}",
)
OBJECTS = 1 << 17
"""Places for objects that operations make."""


def random_compaction(
    rng: random.Random, rules: KernelRules, count: int
) -> tuple[Begin, np.ndarray]:
    """Any machine of a few blocks under any policy that concerns compaction.

    On one machine in three most requests compact asynchronously for movable pages; they seldom come
    to move a folio otherwise.
    """
    literal = random_beginning(rng, rules)
    policy = replace(
        literal.policy,
        compaction_proactiveness=rng.choice((0, 20, 20, 60, 96, 100)),
        extfrag_threshold=rng.choice((0, 300, 500)),
        defrag_mode=rng.choice((0, 1)) if rules.async_source_by_order else None,
    )
    literal = replace(
        literal,
        policy=policy,
        assumptions=replace(literal.assumptions, counters="exact"),
        kswapd_recorded=True,
        direct_reclaim_recorded=False,
    )
    elastic = ElasticAssumptions(
        compact_scan_ns=0,
        compact_migrate_ns=0,
        anon_migration_fails_per_mille=rng.choice((0, 20, 300)),
        file_migration_fails_per_mille=rng.choice((0, 50, 300)),
        compaction_contended_per_mille=0,
    )
    assumptions = replace(literal.assumptions, elastic=elastic)
    seed = rng.randrange(1 << 30)

    def begin() -> tuple[State, np.ndarray]:
        state = literal.state()
        state.st[at.LOG_PAGES] = 0
        state = with_pressure(state, rules, policy, assumptions, seed=seed, start_ns=0)
        places = np.full(OBJECTS, pr.LOST, np.int32)
        _press(state, places, np.random.default_rng(seed))
        return state, places

    state, _ = begin()
    is_hurried = seed % 3 == 0
    machine = state.machine
    zones = [index for index, zone in enumerate(machine.zones) if zone.managed]
    operations = np.zeros((count, op.OPERATION_WORDS), np.int64)
    number = int(state.folios["object"].max()) + 1
    types = len(machine.zone_types)
    for row in operations:
        kind = rng.choice(COMPACTION_KINDS)
        zone = rng.choice(zones)
        row[op.KIND] = kind
        row[op.ZONE] = zone
        row[op.NODE] = zone // types
        row[op.CPU] = rng.randrange(machine.nr_cpus)
        row[op.HIGHEST] = rng.randrange(types)
        row[op.OBJECT] = number
        row[op.ORDER] = rng.choice((1, 2, 3, 4, 5, 7, 9, 9, machine.max_order))
        row[op.TYPE] = rng.choice((at.UNMOVABLE, at.MOVABLE, at.MOVABLE, at.RECLAIMABLE))
        if kind == pr.JUDGED_DIRECT:
            row[op.PRIORITY] = rng.choice((pr.ASYNC, pr.SYNC_LIGHT, pr.SYNC_LIGHT, pr.SYNC_FULL))
            if is_hurried and number % 4:
                row[op.PRIORITY], row[op.TYPE] = pr.ASYNC, at.MOVABLE
            row[op.FLAGS] = rng.choice((at.WMARK_MIN, at.WMARK_LOW))
            if row[op.TYPE] == at.MOVABLE and machine.migratetypes.count("CMA"):
                row[op.FLAGS] |= at.ALLOC_CMA
            promotes = rules.defrag_promotes_order
            if promotes and row[op.TYPE] != at.MOVABLE and rng.random() < 0.3:
                row[op.FLAGS] |= at.ALLOC_NOFRAGMENT
                row[op.ORDER] = rng.choice((0, 1, 3, 5))
            row[op.KEEP] = rng.random() < 0.3
            number += 1
        elif kind == pr.JUDGED_WAKE and rng.random() < 0.4:
            row[op.COUNT] = rng.choice((1, 3, 5, 9, machine.max_order))
            row[op.PRIORITY] = rng.randrange(types)
        elif kind == pr.JUDGED_KSWAPD:
            row[op.COUNT] = rng.randrange(2)
        elif kind == pr.JUDGED_TAKE:
            row[op.ORDER] = rng.choice((0, 0, 0, 1, 2, 3))
            row[op.COUNT] = min(rng.choice((10, 100, 500)), OBJECTS - number - count)
            number += max(int(row[op.COUNT]), 0)
        elif kind == pr.JUDGED_FREE:
            row[op.COUNT] = rng.choice((50, 300, 500))
    return begin, operations


def _press(state: State, places: np.ndarray, rng: np.random.Generator) -> None:
    """Make allocated pages objects, and draw skip marks, scanner positions and deferral."""
    allocated = np.flatnonzero(state.pages["where"] == at.ALLOCATED)
    numbers = np.arange(len(allocated))
    places[numbers] = allocated
    state.folios["object"][allocated] = numbers + 1
    movable = allocated[state.pages["tag"][allocated] == 1].astype(np.int32)
    lists = rng.choice([pr.INACTIVE_ANON, pr.INACTIVE_FILE], len(movable)).astype(np.int8)
    place_on_lists(state.arrays(places), movable, lists)
    order = state.machine.pageblock_order
    state.folios["skip"][:: 1 << order] = rng.random(len(state.blocks)) < rng.choice((0, 0.3))
    base = int(state.st[int(state.st[at.PRESSURE_BASE]) + pr.ZONES_BASE])
    positions = (
        *(pr.ZONE_MIGRATE_ASYNC, pr.ZONE_MIGRATE_SYNC, pr.ZONE_FREE_FROM),
        *(pr.ZONE_INIT_MIGRATE, pr.ZONE_INIT_FREE),
    )
    for index, zone in enumerate(state.machine.zones):
        region = state.st[base + index * pr.ZONE_WORDS :]
        if not zone.managed or rng.random() < 0.3:
            continue
        pfns = rng.integers(zone.start_pfn, zone.end_pfn, len(positions)) >> order << order
        region[list(positions)] = sorted(pfns) if rng.random() < 0.5 else pfns
        region[pr.ZONE_CONSIDERED] = rng.integers(0, 64)
        region[pr.ZONE_DEFER_SHIFT] = rng.integers(0, 7)
        region[pr.ZONE_ORDER_FAILED] = rng.integers(0, state.machine.max_order + 2)
        region[pr.ZONE_FLUSH_SKIPS] = rng.integers(0, 2)


def compaction_words(row: np.ndarray, state: State) -> str:
    """An operation of compaction as a line."""
    names = ("node", "order", "priority", "flags", "cpu", "count")
    words = (op.NODE, op.ORDER, op.PRIORITY, op.FLAGS, op.CPU, op.COUNT)
    values = {name: int(row[word]) for name, word in zip(names, words, strict=True)}
    again = f", then for order {row[op.COUNT]} while it works" if row[op.COUNT] else ""
    return COMPACTION_STEPS[int(row[op.KIND])].format(
        **values,
        again=again,
        kept="kept" if row[op.KEEP] else "freed",
        zone=state.machine.zone_title(int(row[op.ZONE])),
        type=state.machine.migratetypes[int(row[op.TYPE])],
        highest=state.machine.zone_types[int(row[op.HIGHEST])],
    )


COMPACTION_WORDS = (
    *(at.NOW, at.EVENT_CPU, at.LOG_ROWS, at.LOG_DROPPED),
    *(at.COUNT_SLOW_PATH, at.CAPTURE_ZONE, at.CAPTURE_ORDER, at.CAPTURE_TYPE, at.CAPTURED),
)
"""Words of the allocator that only one of the two keeps while compaction is judged."""


def _compaction_lines(model: State, kernel: State) -> list[str]:
    """Differences of skip marks, the allocator's lists and block types, and pages."""
    step = 1 << model.machine.pageblock_order
    skips = [side.folios["skip"][::step][: len(model.blocks)] != 0 for side in (model, kernel)]
    lines = [
        f"skip mark of pageblock {block}: model {bool(skips[0][block])}, "
        f"kernel {bool(skips[1][block])}"
        for block in np.flatnonzero((skips[0] != skips[1]) & (model.blocks["zone"] > 0))
    ][:MOST_LISTED]
    words = differing_words(model, kernel)
    words = words[(words < model.st[at.PRESSURE_BASE]) & ~np.isin(words, COMPACTION_WORDS)]
    if len(words) or (model.blocks["migratetype"] != kernel.blocks["migratetype"]).any():
        lines += allocator_lines(model, kernel, words)
    mine, theirs = model.pages, kernel.pages
    free = (mine["where"] == at.BUDDY) | (mine["where"] == at.ON_PCP)
    allocated = mine["where"] == at.ALLOCATED
    known = free | allocated
    differs = (mine["where"] != theirs["where"]) & (known | (theirs["where"] != 0))
    differs |= known & (mine["order"] != theirs["order"])
    for name in ("next", "prev"):
        differs |= free & (mine[name] != theirs[name])
    for name in ("object", "offset", "kind"):
        differs |= allocated & (model.folios[name] != kernel.folios[name])
    differs |= allocated & ((model.folios["place"] != 0) != (kernel.folios["place"] != 0))
    return lines + [
        f"page {pfn}: model {_page_words(model, pfn)}, kernel {_page_words(kernel, pfn)}"
        for pfn in np.flatnonzero(differs)[:MOST_LISTED]
    ]


def _page_words(state: State, pfn: int) -> str:
    page, folio = state.pages[pfn], state.folios[pfn]
    where = {at.BUDDY: "free", at.ON_PCP: "on a CPU's list", at.ALLOCATED: "in use"}
    of = f" by object {folio['object']}" if int(page["where"]) == at.ALLOCATED else ""
    return f"{where.get(int(page['where']), 'part of another')}{of}, order {page['order']}"


KCOMPACTD_FIELDS = {
    pr.KCOMPACTD_ORDER: "kcompactd_max_order",
    pr.KCOMPACTD_HIGHEST: "kcompactd_highest_zoneidx",
}
PARTS = {
    "reclaim": PressurePart(
        kernel=KernelReclaim,
        take=op.take_reclaim_operations,
        answers=("the answer",),
        counters=COUNTERS,
        has_stalls=True,
        zone_fields={},
        node_fields={
            pr.KSWAPD_PHASE: "how kswapd sleeps",
            pr.KSWAPD_WOKEN: "whether it is woken",
            pr.KSWAPD_FAILURES: "kswapd_failures",
            pr.KSWAPD_WANTED_ORDER: "kswapd_order",
            pr.KSWAPD_WANTED_HIGHEST: "kswapd_highest_zoneidx",
            **KCOMPACTD_FIELDS,
            **{
                pr.NODE_PAGES + number: f"pages on LRU list {number}"
                for number in range(pr.LRU_LISTS)
            },
            **{
                pr.NODE_LISTS + number: f"LRU list {number // at.LIST_WORDS}"
                for number in range(pr.LRU_LISTS * at.LIST_WORDS)
            },
        },
        other_lines=_reclaim_lines,
        words=reclaim_words,
        functions=lambda operation: RECLAIM_STEPS[int(operation["kind"])][1],
        most_lines=40,
    ),
    "compaction": PressurePart(
        kernel=KernelCompaction,
        take=op.take_compaction_operations,
        answers=("result", "page"),
        counters={pr.COUNTERS + number: name for number, name in enumerate(pr.COUNTER_NAMES)},
        zone_fields={
            pr.ZONE_MIGRATE_ASYNC: "compact_cached_migrate_pfn[0]",
            pr.ZONE_MIGRATE_SYNC: "compact_cached_migrate_pfn[1]",
            pr.ZONE_FREE_FROM: "compact_cached_free_pfn",
            pr.ZONE_CONSIDERED: "compact_considered",
            pr.ZONE_DEFER_SHIFT: "compact_defer_shift",
            pr.ZONE_ORDER_FAILED: "compact_order_failed",
            pr.ZONE_FLUSH_SKIPS: "compact_blockskip_flush",
            pr.ZONE_INIT_MIGRATE: "compact_init_migrate_pfn",
            pr.ZONE_INIT_FREE: "compact_init_free_pfn",
        },
        node_fields=KCOMPACTD_FIELDS,
        other_lines=_compaction_lines,
        words=compaction_words,
    ),
}
"""By name of the part."""
