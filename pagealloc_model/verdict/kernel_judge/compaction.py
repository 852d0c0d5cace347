"""The model's compaction judged by the kernel's own code."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import operations as words
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree, KernelCompaction
from pagealloc_model.allocator.from_source.extraction import COMPACTION
from pagealloc_model.allocator.from_source.source_tree import SourceTree
from pagealloc_model.allocator.lru import place_on_lists
from pagealloc_model.allocator.operations import take_compaction_operations
from pagealloc_model.allocator.state import State, with_pressure
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.verdict.kernel_judge.random_machines import Beginning, random_beginning
from pagealloc_model.verdict.kernel_judge.side_by_side import (
    Difference,
    Scenario,
    Verdict,
    differences,
    differing_words,
    judge_scenarios,
    word_lines,
)

OBJECTS = 1 << 17
"""Places for objects that operations make."""

KINDS = (
    *[pr.JUDGED_DIRECT] * 10,
    *[pr.JUDGED_WAKE] * 4,
    *[pr.JUDGED_TIME] * 3,
    pr.JUDGED_NODE,
    pr.JUDGED_RESET,
    pr.JUDGED_KSWAPD,
    *[pr.JUDGED_TAKE] * 4,
    *[pr.JUDGED_FREE] * 4,
)

NAMES = (
    *("direct compaction", "wake of kcompactd", "time passes", "compaction of a node"),
    *("skip marks cleared", "kswapd runs or not", "pages taken", "pages freed"),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class PressedBeginning:
    """A state that scenarios of compaction begin with, and how to make it again.

    Attributes:
        beginning: zones, policy and where pages are.
        elastic: shares of folios that cannot move.
        seed: of draws, and of what is random below.
    """

    beginning: Beginning
    elastic: ElasticAssumptions
    seed: int

    def state(self) -> tuple[State, np.ndarray]:
        """A fresh state and the places of its objects."""
        beginning = self.beginning
        assumptions = replace(beginning.assumptions, elastic=self.elastic)
        literal = beginning.state()
        literal.st[at.LOG_PAGES] = 0
        state = with_pressure(
            literal, beginning.rules, beginning.policy, assumptions, seed=self.seed, start_ns=0
        )
        places = np.full(OBJECTS, pr.LOST, np.int32)
        rng = np.random.default_rng(self.seed)
        self._describe(state, places, rng)
        self._press(state, rng)
        return state, places

    def _describe(self, state: State, places: np.ndarray, rng: np.random.Generator) -> None:
        """Make every allocated page an object, movable ones on LRU lists."""
        allocated = np.flatnonzero(state.pages["where"] == at.ALLOCATED)
        numbers = np.arange(len(allocated))
        places[numbers] = allocated
        state.folios["object"][allocated] = numbers + 1
        movable = allocated[state.pages["tag"][allocated] == 1].astype(np.int32)
        lists = rng.choice([pr.INACTIVE_ANON, pr.INACTIVE_FILE], len(movable)).astype(np.int8)
        place_on_lists(state.arrays(places), movable, lists)

    def _press(self, state: State, rng: np.random.Generator) -> None:
        """Random skip marks, scanner positions and deferral."""
        order = state.machine.pageblock_order
        state.folios["skip"][:: 1 << order] = rng.random(len(state.blocks)) < rng.choice((0, 0.3))
        base = int(state.st[int(state.st[at.PRESSURE_BASE]) + pr.ZONES_BASE])
        for index, zone in enumerate(state.machine.zones):
            region = state.st[base + index * pr.ZONE_WORDS :]
            if not zone.managed or rng.random() < 0.3:
                continue
            pfns = rng.integers(zone.start_pfn, zone.end_pfn, 5) >> order << order
            for word, pfn in zip(
                (
                    *(pr.ZONE_MIGRATE_ASYNC, pr.ZONE_MIGRATE_SYNC, pr.ZONE_FREE_FROM),
                    *(pr.ZONE_INIT_MIGRATE, pr.ZONE_INIT_FREE),
                ),
                sorted(pfns) if rng.random() < 0.5 else pfns,
                strict=True,
            ):
                region[word] = pfn
            region[pr.ZONE_CONSIDERED] = rng.integers(0, 64)
            region[pr.ZONE_DEFER_SHIFT] = rng.integers(0, 7)
            region[pr.ZONE_ORDER_FAILED] = rng.integers(0, state.machine.max_order + 2)
            region[pr.ZONE_FLUSH_SKIPS] = rng.integers(0, 2)


def random_pressed_beginning(rng: random.Random, rules: KernelRules) -> PressedBeginning:
    """Any machine of a few blocks under any policy that concerns compaction."""
    beginning = random_beginning(rng, rules)
    policy = replace(
        beginning.policy,
        compaction_proactiveness=rng.choice((0, 20, 20, 60, 96, 100)),
        extfrag_threshold=rng.choice((0, 300, 500)),
        defrag_mode=rng.choice((0, 1)) if rules.async_source_by_order else None,
    )
    return PressedBeginning(
        beginning=replace(
            beginning,
            policy=policy,
            assumptions=replace(beginning.assumptions, counters="exact"),
            kswapd_recorded=True,
            direct_reclaim_recorded=False,
        ),
        elastic=ElasticAssumptions(
            compact_scan_ns=0,
            compact_migrate_ns=0,
            anon_migration_fails_per_mille=rng.choice((0, 20, 300)),
            file_migration_fails_per_mille=rng.choice((0, 50, 300)),
            compaction_contended_per_mille=0,
        ),
        seed=rng.randrange(1 << 30),
    )


def random_compaction(
    rng: random.Random, beginning: PressedBeginning, count: int, state: State
) -> np.ndarray:
    """Operations, int64, shape (count, OPERATION_WORDS); `state` is the one they begin with.

    On one machine in three most requests compact asynchronously for movable pages; they seldom come
    to move a folio otherwise.
    """
    is_hurried = beginning.seed % 3 == 0
    machine = state.machine
    zones = [index for index, zone in enumerate(machine.zones) if zone.managed]
    operations = np.zeros((count, words.OPERATION_WORDS), np.int64)
    number = int(state.folios["object"].max()) + 1
    types = len(machine.zone_types)
    for row in operations:
        kind = rng.choice(KINDS)
        zone = rng.choice(zones)
        row[words.KIND] = kind
        row[words.ZONE] = zone
        row[words.NODE] = zone // types
        row[words.CPU] = rng.randrange(machine.nr_cpus)
        row[words.HIGHEST] = rng.randrange(types)
        row[words.OBJECT] = number
        row[words.ORDER] = rng.choice((1, 2, 3, 4, 5, 7, 9, 9, machine.max_order))
        row[words.TYPE] = rng.choice((at.UNMOVABLE, at.MOVABLE, at.MOVABLE, at.RECLAIMABLE))
        if kind == pr.JUDGED_DIRECT:
            row[words.PRIORITY] = rng.choice((pr.ASYNC, pr.SYNC_LIGHT, pr.SYNC_LIGHT, pr.SYNC_FULL))
            if is_hurried and number % 4:
                row[words.PRIORITY], row[words.TYPE] = pr.ASYNC, at.MOVABLE
            row[words.FLAGS] = rng.choice((at.WMARK_MIN, at.WMARK_LOW))
            if row[words.TYPE] == at.MOVABLE and machine.migratetypes.count("CMA"):
                row[words.FLAGS] |= at.ALLOC_CMA
            promotes = beginning.beginning.rules.defrag_promotes_order
            if promotes and row[words.TYPE] != at.MOVABLE and rng.random() < 0.3:
                row[words.FLAGS] |= at.ALLOC_NOFRAGMENT
                row[words.ORDER] = rng.choice((0, 1, 3, 5))
            row[words.KEEP] = rng.random() < 0.3
            number += 1
        elif kind == pr.JUDGED_WAKE and rng.random() < 0.4:
            row[words.COUNT] = rng.choice((1, 3, 5, 9, machine.max_order))
            row[words.PRIORITY] = rng.randrange(types)
        elif kind == pr.JUDGED_KSWAPD:
            row[words.COUNT] = rng.randrange(2)
        elif kind == pr.JUDGED_TAKE:
            row[words.ORDER] = rng.choice((0, 0, 0, 1, 2, 3))
            row[words.COUNT] = min(rng.choice((10, 100, 500)), OBJECTS - number - count)
            number += max(int(row[words.COUNT]), 0)
        elif kind == pr.JUDGED_FREE:
            row[words.COUNT] = rng.choice((50, 300, 500))
    return operations


def operation_words(row: np.ndarray, state: State) -> str:
    """An operation as a line."""
    kind = int(row[words.KIND])
    node, zone = int(row[words.NODE]), state.machine.zone_title(int(row[words.ZONE]))
    migratetype = state.machine.migratetypes[int(row[words.TYPE])]
    highest = state.machine.zone_types[int(row[words.HIGHEST])]
    if kind == pr.JUDGED_DIRECT:
        return (
            f"{NAMES[kind]} for order {row[words.ORDER]}, {migratetype}, up to zone {highest}, "
            f"priority {row[words.PRIORITY]}, flags {row[words.FLAGS]:#x}, "
            f"on CPU {row[words.CPU]}, page {'kept' if row[words.KEEP] else 'freed'}"
        )
    if kind == pr.JUDGED_WAKE:
        line = f"{NAMES[kind]} of node {node} for order {row[words.ORDER]}, up to zone {highest}"
        if row[words.COUNT]:
            line += f", then for order {row[words.COUNT]} while it works"
        return line
    if kind == pr.JUDGED_TAKE:
        taken = f"{row[words.COUNT]} of order {row[words.ORDER]}, {migratetype}"
        return f"{NAMES[kind]} from {zone}: {taken}"
    if kind == pr.JUDGED_FREE:
        return f"{NAMES[kind]} in {zone}: {row[words.COUNT]} per mille, on CPU {row[words.CPU]}"
    return f"{NAMES[kind]}, node {node}, {row[words.COUNT]}"


ZONE_FIELDS = {
    pr.ZONE_MIGRATE_ASYNC: "compact_cached_migrate_pfn[0]",
    pr.ZONE_MIGRATE_SYNC: "compact_cached_migrate_pfn[1]",
    pr.ZONE_FREE_FROM: "compact_cached_free_pfn",
    pr.ZONE_CONSIDERED: "compact_considered",
    pr.ZONE_DEFER_SHIFT: "compact_defer_shift",
    pr.ZONE_ORDER_FAILED: "compact_order_failed",
    pr.ZONE_FLUSH_SKIPS: "compact_blockskip_flush",
    pr.ZONE_INIT_MIGRATE: "compact_init_migrate_pfn",
    pr.ZONE_INIT_FREE: "compact_init_free_pfn",
}
NODE_FIELDS = {
    pr.KCOMPACTD_ORDER: "kcompactd_max_order",
    pr.KCOMPACTD_HIGHEST: "kcompactd_highest_zoneidx",
}
OWN_WORDS = (
    *(at.NOW, at.EVENT_CPU, at.LOG_ROWS, at.LOG_DROPPED),
    *(at.COUNT_SLOW_PATH, at.CAPTURE_ZONE, at.CAPTURE_ORDER, at.CAPTURE_TYPE, at.CAPTURED),
)
"""Words of the allocator that only one of the two keeps while compaction is judged."""
LISTED_MAX = 12


def compaction_differences(model: State, kernel: State) -> list[str]:
    """One line for each thing that differs; nothing where the two are the same."""
    pressure = int(model.st[at.PRESSURE_BASE])
    counters = pressure + pr.COUNTERS
    names = dict(enumerate(pr.COUNTER_NAMES))
    lines = word_lines("", names, model.st[counters:], kernel.st[counters:])
    zones = [model.machine.zone_title(number) for number in range(len(model.machine.zones))]
    nodes = [f"node {number}" for number in range(len(model.machine.nodes))]
    for titles, base, stride, fields in (
        (zones, pr.ZONES_BASE, pr.ZONE_WORDS, ZONE_FIELDS),
        (nodes, pr.NODES_BASE, pr.NODE_WORDS, NODE_FIELDS),
    ):
        for number, title in enumerate(titles):
            first = int(model.st[pressure + base]) + number * stride
            lines += word_lines(title, fields, model.st[first:], kernel.st[first:])
    lines += _skip_lines(model, kernel)
    return lines + _allocator_lines(model, kernel) + _page_lines(model, kernel)


def _skip_lines(model: State, kernel: State) -> list[str]:
    step = 1 << model.machine.pageblock_order
    mine, theirs = model.folios["skip"][::step] != 0, kernel.folios["skip"][::step] != 0
    mine, theirs = mine[: len(model.blocks)], theirs[: len(model.blocks)]
    differs = (mine != theirs) & (model.blocks["zone"] > 0)
    return [
        f"skip mark of pageblock {block}: model {bool(mine[block])}, kernel {bool(theirs[block])}"
        for block in np.flatnonzero(differs)[:LISTED_MAX]
    ]


def _allocator_lines(model: State, kernel: State) -> list[str]:
    """What differs of zones, per-CPU lists, free lists and block types."""
    base = int(model.st[at.PRESSURE_BASE])
    words = differing_words(model, kernel)
    words = words[(words < base) & ~np.isin(words, OWN_WORDS)]
    types = (model.blocks["migratetype"] != kernel.blocks["migratetype"]).any()
    if not len(words) and not types:
        return []
    lines = [each for each in differences(model, kernel) if not each.startswith("word ")]
    more = [
        f"word {word} of the state: model {model.st[word]}, kernel {kernel.st[word]}"
        for word in words[:LISTED_MAX]
    ]
    return lines or more


def _page_lines(model: State, kernel: State) -> list[str]:
    """Pages that differ: free ones on lists, allocated ones by whose they are."""
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
    return [
        f"page {pfn}: model {_page(model, pfn)}, kernel {_page(kernel, pfn)}"
        for pfn in np.flatnonzero(differs)[:LISTED_MAX]
    ]


def _page(state: State, pfn: int) -> str:
    page, folio = state.pages[pfn], state.folios[pfn]
    where = {at.BUDDY: "free", at.ON_PCP: "on a CPU's list", at.ALLOCATED: "in use"}
    of = f" by object {folio['object']}" if int(page["where"]) == at.ALLOCATED else ""
    return f"{where.get(int(page['where']), 'part of another')}{of}, order {page['order']}"


SCENARIO = 1_000
"""Operations on one machine."""

COMPARED_EVERY = 50
"""Operations between two comparisons of the whole state; a difference is then narrowed down."""


class CompactionSides:
    """A state carried on by the model and, a copy of it, by the kernel's code."""

    def __init__(self, tree: CompiledTree, beginning: PressedBeginning, count: int) -> None:
        """Begin twice, for so many operations."""
        self.model, self.places = beginning.state()
        self.kernel = KernelCompaction(tree, beginning.state()[0])
        self.mine, self.theirs = (np.zeros((count, 2), np.int64) for _ in range(2))
        self._lines: list[str] = []

    def agree_after(self, operations: np.ndarray, low: int, high: int) -> bool:
        """Take operations[low:high] on both; return whether they are the same then."""
        self._lines = self._differences_after(operations, low, high)
        return not self._lines

    def describe(self, operations: np.ndarray, position: int) -> Difference:
        """Return the difference that the operation just taken has made."""
        return Difference(
            position=position,
            event=operation_words(operations[position], self.model),
            lines=tuple(self._lines),
            places=(),
        )

    def _differences_after(self, operations: np.ndarray, low: int, high: int) -> list[str]:
        """What differs after operations[low:high], one line each."""
        model, kernel = self.model, self.kernel
        take_compaction_operations(model.arrays(self.places), operations, self.mine, low, high)
        kernel.take(operations, self.theirs, low, high)
        kernel.store(pages=True)
        lines = [
            f"{name}: model {mine}, kernel {theirs}"
            for each in np.flatnonzero((self.mine != self.theirs).any(axis=1))[:1]
            for name, mine, theirs in zip(
                ("result", "page"), self.mine[each], self.theirs[each], strict=True
            )
            if mine != theirs
        ]
        if kernel.broken_assertion is not None:
            lines.append(
                f"the kernel's assertion does not hold: not ({kernel.broken_assertion[0]})"
            )
        return lines + compaction_differences(model, kernel.state)

    def close(self) -> None:
        """Give the kernel's memory back."""
        self.kernel.close()


def judge_compaction(
    tree: SourceTree,
    rules: KernelRules,
    *,
    operations: int,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Verdict:
    """Random operations of compaction on random machines until a difference, or until enough.

    They are direct compactions, wakes of kcompactd, quarters of a second that pass, compactions of
    whole nodes, and changes of memory between them. Arguments and errors are those of `judge`.
    """
    compiled = CompiledTree(tree, COMPACTION)

    def begin(number: int, most: int) -> Scenario:
        rng = random.Random(f"{seed} {number} compaction")
        beginning = random_pressed_beginning(rng, rules)
        state, _ = beginning.state()
        taken = random_compaction(rng, beginning, min(SCENARIO, most), state)
        return Scenario(
            sides=lambda: CompactionSides(compiled, beginning, len(taken)),
            operations=taken,
            compared_every=COMPARED_EVERY,
            words=partial(operation_words, state=beginning.state()[0]),
        )

    return judge_scenarios(
        begin,
        rules,
        tree.release,
        operations=operations,
        seed=seed,
        part=COMPACTION.name,
        progress=progress,
    )
