"""The kernel's own reclaim judges the model's: it agrees, and what does not is found and named."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree
from pagealloc_model.allocator.from_source.extraction import RECLAIM
from pagealloc_model.allocator.from_source.source_tree import SourceTree
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.verdict.kernel_judge.reclaim import (
    COUNTERS,
    ReclaimSides,
    judge_reclaim,
    judge_recorded_reclaim,
    random_pressed,
    random_reclaim,
)
from pagealloc_model.verdict.kernel_judge.side_by_side import Verdict

EVERY_FAULT = pytest.mark.skipif(
    not os.environ.get("PAGEALLOC_ALL_FAULTS"),
    reason="a changed tree takes minutes; PAGEALLOC_ALL_FAULTS=1 judges them",
)


def judged(tree: SourceTree, rules: str, operations: int, seed: int = 0) -> Verdict:
    return judge_reclaim(tree, KernelRules.named(rules), operations=operations, seed=seed)


@pytest.mark.parametrize("series", ["6.1", "6.12", "7.2", "7.3"])
def test_the_model_reclaims_as_the_kernel_does(
    kernel_source: Callable[[str], SourceTree], series: str
) -> None:
    verdict = judged(kernel_source(series), series, 40_000)
    assert verdict.difference is None, verdict
    assert (verdict.operations, verdict.part) == (40_000, "reclaim")


@pytest.mark.long
@pytest.mark.parametrize("series", ["6.1", "6.12", "7.2", "7.3"])
def test_they_agree_for_long(kernel_source: Callable[[str], SourceTree], series: str) -> None:
    verdict = judged(kernel_source(series), series, 500_000, seed=random.randrange(1 << 30))
    assert verdict.difference is None, verdict


@pytest.mark.parametrize("series", ["6.12", pytest.param("7.3", marks=pytest.mark.long)])
def test_a_recording_is_reclaimed_as_by_the_kernel(
    kernel_source: Callable[[str], SourceTree], shipped: Callable[[str], Path], series: str
) -> None:
    recording = pm.open(str(shipped("highatomic_stock")))
    rules = KernelRules.preset(series)
    verdict = judge_recorded_reclaim(kernel_source(series), rules, recording)
    assert verdict.difference is None, verdict
    assert verdict.operations > 10_000


def test_a_repeated_round_may_have_nothing_to_look_at(
    kernel_source: Callable[[str], SourceTree],
) -> None:
    tree, rules = CompiledTree(kernel_source("6.1"), RECLAIM), KernelRules.preset("6.1")
    rng = random.Random("7 85 reclaim")
    pressed = random_pressed(rng, rules)
    operations = random_reclaim(rng, pressed, 10_000)
    sides = ReclaimSides(tree, pressed, len(operations))
    assert sides.agree_after(operations, 0, 7_732)
    assert sides.agree_after(operations, 7_732, 7_733)
    sides.close()


def test_operations_reach_what_is_compared(kernel_source: Callable[[str], SourceTree]) -> None:
    tree = CompiledTree(kernel_source("6.12"), RECLAIM)
    reached = dict.fromkeys(COUNTERS.values(), 0)
    for seed in range(4):
        rng = random.Random(seed)
        pressed = random_pressed(rng, KernelRules.preset("6.12"))
        operations = random_reclaim(rng, pressed, 3_000)
        sides = ReclaimSides(tree, pressed, len(operations))
        assert sides.agree_after(operations, 0, len(operations))
        st = sides.model.st
        base = int(st[at.PRESSURE_BASE])
        for word, name in COUNTERS.items():
            reached[name] += int(st[base + word])
        sides.close()
    unreached = {name for name, count in reached.items() if not count}
    assert unreached <= {"pgscan_direct_throttle"}, reached


@pytest.mark.long
@EVERY_FAULT
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "if (sc->order && sc->nr_reclaimed >= compact_gap(sc->order))",
            "if (sc->order && sc->nr_reclaimed >= 2 * compact_gap(sc->order))",
        ),
        ("if (nr_boost_reclaim && !nr_reclaimed)", "if (false)"),
        ("if (reclaim_order < alloc_order)", "if (true)"),
        ("return inactive_lru_pages > pages_for_compaction;", "return false;"),
        ("if (nr_file > nr_anon) {", "if (nr_file >= nr_anon) {"),
        ("remaining = schedule_timeout(HZ/10);", "remaining = 1;"),
    ],
)
def test_another_reclaim_is_found(
    patched: Callable[[str, str, str, str], SourceTree], old: str, new: str
) -> None:
    verdict = judged(patched("6.12", "mm/vmscan.c", old, new), "6.12", 40_000)
    assert verdict.difference is not None
    assert verdict.shortest


@pytest.mark.long
@EVERY_FAULT
@pytest.mark.parametrize(
    "rule",
    [
        "free_counts_as_reclaimable",
        "fruitless_reclaim_repeated",
        "boosted_runs_never_fail",
        "revived_when_balanced",
        "ready_by_high_mark",
    ],
)
def test_a_wrong_rule_of_reclaim_is_found(
    kernel_source: Callable[[str], SourceTree], rule: str
) -> None:
    value = getattr(KernelRules.preset("6.12"), rule)
    verdict = judged(kernel_source("6.12"), f"6.12,{rule}={str(not value).lower()}", 100_000)
    assert verdict.difference is not None
