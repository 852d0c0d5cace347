"""Random machines and operations for the judge of compaction."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.state import State
from pagealloc_model.allocator.pressure import compaction_operations as words
from pagealloc_model.allocator.pressure.lru_start import place_on_lists
from pagealloc_model.allocator.pressure.pressure_state import with_pressure
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.verdict.kernel_judge.random_machines import Beginning, random_beginning

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
