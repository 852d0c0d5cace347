"""The model's reclaim judged by the kernel's own: random operations, or a recording's demand."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.from_source.build import DECIDED_BY_SOURCE
from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree, KernelReclaim
from pagealloc_model.allocator.from_source.extraction import RECLAIM as PART
from pagealloc_model.allocator.from_source.source_tree import SourceTree
from pagealloc_model.allocator.lru import place_on_lists
from pagealloc_model.allocator.operations import (
    END_NAP,
    LET_GO,
    RECLAIM,
    RECLAIM_OPERATION,
    RUN,
    TAKE,
    USE,
    WAKE,
    take_reclaim_operations,
)
from pagealloc_model.allocator.state import State, with_pressure
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.predicted.prepared import Prepared, prepare
from pagealloc_model.recording.recorded_machine import recorded_policy
from pagealloc_model.recording.recording import Recording
from pagealloc_model.verdict.kernel_judge.random_machines import Beginning, random_beginning
from pagealloc_model.verdict.kernel_judge.side_by_side import (
    Difference,
    Scenario,
    Verdict,
    differences,
    differing_pages,
    differing_words,
    functions_named,
    judge_scenarios,
    word_lines,
)

NO_OBJECTS = np.zeros(0, np.int32)
ORDERS = (0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9)
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
SHARES = (
    {TAKE: 60, LET_GO: 6, USE: 4, WAKE: 10, RUN: 10, END_NAP: 5, RECLAIM: 5},
    {TAKE: 20, LET_GO: 2, USE: 10, WAKE: 20, RUN: 20, END_NAP: 8, RECLAIM: 20},
    {TAKE: 30, LET_GO: 30, USE: 2, WAKE: 15, RUN: 12, END_NAP: 8, RECLAIM: 3},
)
"""How often each operation comes, of which one set holds for a machine."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PressedBeginning:
    """A state that scenarios of reclaim begin with, and how to make it again.

    Attributes:
        beginning: machine, policy and image, its assumptions with those of reclaim.
        seed: of the draws about folios.
        pfns: int32, movable pages in use that begin on LRU lists.
        lists: int8, their lists.
        failures: of each node's kswapd.
    """

    beginning: Beginning
    seed: int
    pfns: np.ndarray
    lists: np.ndarray
    failures: tuple[int, ...]

    def state(self) -> State:
        """A fresh state of an elastic replay, kswapds asleep."""
        given = self.beginning
        state = with_pressure(
            given.state(), given.rules, given.policy, given.assumptions, seed=self.seed
        )
        state.st[at.LOG_PAGES] = 0
        place_on_lists(state.arrays(NO_OBJECTS), self.pfns, self.lists)
        base = int(state.st[at.PRESSURE_BASE])
        nodes = int(state.st[base + pr.NODES_BASE])
        for node, failures in enumerate(self.failures):
            state.st[nodes + node * pr.NODE_WORDS + pr.KSWAPD_FAILURES] = failures
        return state


def random_pressed(rng: random.Random, rules: KernelRules) -> PressedBeginning:
    """Any machine under any policy, its movable pages on LRU lists."""
    beginning = random_beginning(rng, rules)
    given = beginning.assumptions
    share = rng.choice((0, 100, 300, 700, 1000))
    beginning = replace(
        beginning,
        assumptions=replace(
            given,
            reclaim="elastic",
            elastic=ElasticAssumptions(
                file_referenced_per_mille=share,
                anon_referenced_per_mille=rng.choice((0, 300, 700, 1000)),
                file_dirty_per_mille=rng.choice((0, 0, 200, 1000)),
                anon_scan_percent=rng.choice((0, 0, 30, 50, 100)),
            ),
        ),
    )
    image = beginning.image
    is_listed = image.movable[image.allocated_pfn]
    pfns = image.allocated_pfn[is_listed]
    picked = np.random.default_rng(rng.randrange(1 << 32))
    pfns = picked.permutation(pfns).astype(np.int32)
    weights = picked.dirichlet(np.full(pr.LRU_LISTS, 0.5))
    return PressedBeginning(
        beginning=beginning,
        seed=rng.randrange(1 << 30),
        pfns=pfns,
        lists=picked.choice(pr.LRU_LISTS, len(pfns), p=weights).astype(np.int8),
        failures=tuple(rng.choice((0, 0, 0, 14, 15, 16)) for _ in beginning.machine.nodes),
    )


def random_reclaim(rng: random.Random, pressed: PressedBeginning, count: int) -> np.ndarray:
    """`RECLAIM_OPERATION` records."""
    machine = pressed.beginning.machine
    shares = rng.choice(SHARES)
    kinds = rng.choices(list(shares), weights=list(shares.values()), k=count)
    largest = machine.pageblock_order
    types, frames = len(machine.zone_types), machine.end_pfn
    rows = []
    for kind in kinds:
        migratetype = rng.choice((at.MOVABLE, at.MOVABLE, at.UNMOVABLE, at.RECLAIMABLE))
        of_lists = migratetype == at.MOVABLE
        rows.append(
            (
                kind,
                rng.randrange(len(machine.nodes)),
                rng.randrange(types) if rng.random() < 0.4 else types - 1,
                min(rng.choice(ORDERS), largest),
                rng.choice(REQUESTS),
                migratetype,
                rng.choice((pr.ANON, pr.FILE, pr.FILE)) if of_lists else pr.KERNEL,
                rng.randrange(frames),
            )
        )
    return np.array(rows, RECLAIM_OPERATION)


OPERATIONS = ("allocate", "free", "use", "wake kswapd", "run kswapd", "end its nap", "reclaim")
COUNTERS = {
    pr.COUNTERS + number: name
    for number, name in enumerate(pr.COUNTER_NAMES)
    if name.startswith(("pgscan", "pgsteal", "pgactivate", "pgdeactivate", "pageout", "kswapd"))
}
NODE_FIELDS = {
    pr.KSWAPD_PHASE: "how kswapd sleeps",
    pr.KSWAPD_WOKEN: "whether it is woken",
    pr.KSWAPD_FAILURES: "kswapd_failures",
    pr.KSWAPD_WANTED_ORDER: "kswapd_order",
    pr.KSWAPD_WANTED_HIGHEST: "kswapd_highest_zoneidx",
    pr.KCOMPACTD_ORDER: "kcompactd_max_order",
    pr.KCOMPACTD_HIGHEST: "kcompactd_highest_zoneidx",
    **{pr.NODE_PAGES + number: f"pages on LRU list {number}" for number in range(pr.LRU_LISTS)},
    **{
        pr.NODE_LISTS + number: f"LRU list {number // at.LIST_WORDS}"
        for number in range(pr.LRU_LISTS * at.LIST_WORDS)
    },
}
FOLIO_FIELDS = ("kind", "scans", "writes", "place")
FUNCTIONS = {
    "allocate": ("get_page_from_freelist",),
    "wake kswapd": ("wakeup_kswapd", "pgdat_balanced"),
    "run kswapd": ("balance_pgdat", "kswapd_try_to_sleep", "shrink_node", "shrink_lruvec"),
    "end its nap": ("kswapd_try_to_sleep", "balance_pgdat"),
    "reclaim": ("do_try_to_free_pages", "shrink_zones", "shrink_node", "shrink_lruvec"),
}
"""Functions of the tree that an operation runs."""


class ReclaimSides:
    """Both sides.

    Attributes:
        model: the model's state.
        kernel: the kernel's.
    """

    def __init__(
        self, tree: CompiledTree, pressed: PressedBeginning | RecordedBeginning, count: int
    ) -> None:
        """Begin twice, with room for the answers of `count` operations."""
        self._tree = tree
        self.model = pressed.state()
        self.kernel = KernelReclaim(tree, pressed.state())
        self._answers = np.zeros((2, count), np.int64)

    def agree_after(self, operations: np.ndarray, low: int, high: int) -> bool:
        """Take operations[low:high] on both; whether answers and states are the same then."""
        mine, theirs = self._answers
        take_reclaim_operations(self.model.arrays(NO_OBJECTS), operations, mine, low, high)
        self.kernel.take(operations, theirs, low, high)
        if not np.array_equal(mine[low:high], theirs[low:high]):
            return False
        self.kernel.store(pages=True)
        return self.kernel.broken_assertion is None and not self._lines(most=1)

    def _lines(self, most: int = 40) -> list[str]:
        """What differs, one line each."""
        model, kernel = self.model, self.kernel.state
        base = int(model.st[at.PRESSURE_BASE])
        zone_types = enumerate(model.machine.zone_types)
        stalls = {pr.ALLOCSTALL + number: f"allocstall_{name}" for number, name in zone_types}
        lines = word_lines("", COUNTERS | stalls, model.st[base:], kernel.st[base:])
        for node in range(len(model.machine.nodes)):
            first = int(model.st[base + pr.NODES_BASE]) + node * pr.NODE_WORDS
            words = model.st[first:], kernel.st[first:]
            lines += word_lines(f"node {node}", NODE_FIELDS, *words)
        if len(lines) < most:
            lines += self._folio_lines()
        if len(lines) < most and (
            len(_allocator_words(model, kernel)) or len(differing_pages(model, kernel))
        ):
            lines += differences(model, kernel)
        return lines[:most]

    def _folio_lines(self) -> list[str]:
        model, kernel = self.model, self.kernel.state
        in_use = model.pages["where"] == at.ALLOCATED
        listed = in_use & (model.folios["place"] > 0)
        mine, theirs = model.folios, kernel.folios
        lines = [
            f"page {pfn}: {name}: model {mine[name][pfn]}, kernel {theirs[name][pfn]}"
            for name in FOLIO_FIELDS
            for pfn in np.flatnonzero(in_use & (mine[name] != theirs[name]))[:3]
        ]
        return lines + [
            f"page {pfn}: {name} on its LRU list: model {model.pages[name][pfn]}, "
            f"kernel {kernel.pages[name][pfn]}"
            for name in ("next", "prev")
            for pfn in np.flatnonzero(listed & (model.pages[name] != kernel.pages[name]))[:3]
        ]

    def describe(self, operations: np.ndarray, position: int) -> Difference:
        """The difference that the operation just taken has made."""
        unit, _ = self._tree.built(self.kernel.configuration)
        self.kernel.store(pages=True)
        mine, theirs = self._answers[:, position]
        lines = [f"the answer: model {mine}, kernel {theirs}"] if mine != theirs else []
        broken = self.kernel.broken_assertion
        if broken is not None:
            lines.append(f"the kernel's assertion does not hold: not ({broken[0]})")
        name = OPERATIONS[int(operations[position]["kind"])]
        return Difference(
            position=position,
            event=operation_words(operations[position], self.model),
            lines=(*lines, *self._lines()),
            places=tuple(
                place for each in FUNCTIONS.get(name, ()) for place in functions_named(unit, each)
            ),
        )

    def close(self) -> None:
        """Give the kernel's memory back."""
        self.kernel.close()


def _allocator_words(model: State, kernel: State) -> np.ndarray:
    """Offsets of the allocator's words that differ, but for the clock and kswapd's own."""
    found = differing_words(model, kernel)
    own = [at.NOW, at.EVENT_CPU, at.KSWAPD_RUNS, at.COUNT_KSWAPD_WAKES, at.LOG_ROWS, at.LOG_DROPPED]
    for node in range(len(model.machine.nodes)):
        first = int(model.st[at.NODE_BASE]) + node * at.NODE_STRIDE
        own += range(first, first + at.NODE_STRIDE)
    for zone in range(len(model.machine.zones)):
        own.append(at.ZONES + zone * at.ZONE_STRIDE + at.ZONE_REMEMBERED_BOOST)
    return found[(found < model.st[at.PRESSURE_BASE]) & ~np.isin(found, own)]


def operation_words(operation: np.void, state: State) -> str:
    """An operation as a line."""
    name = OPERATIONS[int(operation["kind"])]
    zone = state.machine.zone_types[int(operation["zone"])]
    request = f"order {operation['order']}, up to zone {zone}, gfp {int(operation['bits']):#x}"
    if name == "allocate":
        kind = state.machine.migratetypes[int(operation["migratetype"])]
        return f"{name} {request}, {kind}, class {operation['class']}"
    if name in ("free", "use"):
        page = int(operation["page"])
        if page < 0:
            return f"{name} the page that operation {-1 - page} took"
        return f"{name} the page in use from {page} on"
    if name == "reclaim":
        return f"{name} {request}"
    node = f"node {operation['node']}"
    return f"{name} on {node}, {request}" if name == "wake kswapd" else f"{name} on {node}"


SCENARIO = 10_000
"""Operations on one machine."""

COMPARED_EVERY = 1_000
"""Operations between two comparisons of the whole state; a difference is then narrowed down."""


def judge_reclaim(
    tree: SourceTree,
    rules: KernelRules,
    *,
    operations: int,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Verdict:
    """Random operations of reclaim on random machines until a difference, or until enough.

    Arguments and errors are those of `judge`.
    """
    compiled = CompiledTree(tree, PART)

    def begin(number: int, most: int) -> Scenario:
        rng = random.Random(f"{seed} {number} reclaim")
        pressed = random_pressed(rng, rules)
        taken = random_reclaim(rng, pressed, min(SCENARIO, most))
        return Scenario(
            sides=lambda: ReclaimSides(compiled, pressed, len(taken)),
            operations=taken,
            compared_every=COMPARED_EVERY,
            words=partial(operation_words, state=pressed.state()),
        )

    return judge_scenarios(
        begin,
        rules,
        tree.release,
        operations=operations,
        seed=seed,
        part=PART.name,
        progress=progress,
    )


RECORDED_STEP = 1 << 12
"""Operations between two comparisons of the whole state."""

RUN_EVERY = 64
NAP_EVERY = 4096
RECLAIM_EVERY = 1024
"""Requests and frees between two runs of each kswapd, ends of its nap, and direct reclaims."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedBeginning:
    """Where a recording begins, as an elastic replay has it; nobody owns its pages."""

    prepared: Prepared
    rules: KernelRules
    policy: Policy
    assumptions: Assumptions

    def state(self) -> State:
        """A fresh state, daemons under way."""
        state = self.prepared.state(self.rules, self.policy, self.assumptions)
        state.st[at.LOG_PAGES] = 0
        state.folios["object"] = 0
        return state


def recorded_operations(demand: Demand, nodes: int) -> np.ndarray:
    """Return `RECLAIM_OPERATION` records: requests, frees, and reclaim between them.

    Requests are made once. Each kswapd runs, if it is woken, and naps end in regular turns; each
    request that failed in the recording, and one of many others, reclaims directly.

    Args:
        demand: of an elastic replay.
        nodes: how many the machine has.
    """
    start = demand.starting_places()
    taken: dict[int, int] = {}
    rows: list[tuple[int, ...]] = []
    for number, event in enumerate(demand.events):
        operation, order = int(event["operation"]), int(event["order"])
        number_of_object = int(event["object"])
        bits = int(event["bits"])
        request = (int(event["zone"]), order, bits, int(event["migratetype"]))
        kind = bits >> pr.CLASS_SHIFT & 3
        if operation in (at.ALLOC, at.HIDDEN_ALLOC):
            taken[number_of_object] = len(rows)
            rows.append((TAKE, 0, *request, kind, 0))
        elif operation == at.FREE and bits & pr.FREED_BY_RECLAIM != pr.FREED_BY_RECLAIM:
            if number_of_object in taken:
                page = -1 - taken.pop(number_of_object)
            elif start[number_of_object] >= 0:
                page = int(start[number_of_object])
            else:
                continue
            rows.append((LET_GO, 0, 0, 0, 0, 0, 0, page))
        elif operation != at.RECORDED_FAILURE:
            continue
        if operation == at.RECORDED_FAILURE or (
            operation == at.ALLOC and number % RECLAIM_EVERY == 0
        ):
            rows.append((RECLAIM, 0, *request, kind, 0))
        for every, step in ((RUN_EVERY, RUN), (NAP_EVERY, END_NAP)):
            if number % every == 0:
                rows += [(step, node, 0, 0, 0, 0, 0, 0) for node in range(nodes)]
    return np.array(rows, RECLAIM_OPERATION)


def judge_recorded_reclaim(
    tree: SourceTree,
    rules: KernelRules,
    recording: Recording,
    *,
    progress: Callable[[float], None] | None = None,
) -> Verdict:
    """A recording's requests and frees through the reclaim of both sides.

    Arguments and errors are those of `judge_recorded`.
    """
    compiled = CompiledTree(tree, PART)
    assumptions = Assumptions(reclaim="elastic")
    beginning = RecordedBeginning(
        prepared=prepare(recording, rules, assumptions, 0),
        rules=rules,
        policy=replace(recorded_policy(recording), **dict.fromkeys(DECIDED_BY_SOURCE)),
        assumptions=assumptions,
    )
    prepared = beginning.prepared
    operations = recorded_operations(prepared.demand, len(prepared.machine.nodes))
    state = beginning.state()
    scenario = Scenario(
        sides=lambda: ReclaimSides(compiled, beginning, len(operations)),
        operations=operations,
        compared_every=RECORDED_STEP,
        words=lambda row: operation_words(row, state),
        recorded=True,
    )
    return judge_scenarios(
        lambda *_: scenario,
        rules,
        tree.release,
        operations=len(operations),
        seed=0,
        part=PART.name,
        progress=progress,
    )
