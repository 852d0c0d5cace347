"""Random operations: those of their seed, of every kind, to all ends."""

from __future__ import annotations

import random

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import operations as words
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.kernel_source.random_operations import (
    random_beginning,
    random_compaction,
    random_operations,
)
from pagealloc_model.policy.kernel_rules import KernelRules


def test_operations_are_those_of_their_seed_and_of_every_kind() -> None:
    rules = KernelRules.preset("6.12")
    kinds: set[int] = set()
    for seed in range(6):
        made = []
        for _ in range(2):
            rng = random.Random(seed)
            made.append(random_operations(rng, random_beginning(rng, rules), 3000))
        assert np.array_equal(*made)
        assert (np.diff(made[0]["time_ns"]) >= 0).all()
        kinds |= set(made[0]["operation"].tolist())
    assert kinds == set(range(at.TICK + 1)) - {at.GROW}


def test_operations_of_compaction_come_to_all_ends() -> None:
    """Direct runs end in every way that there is but by contention drawn; no kernel is needed."""
    results: set[int] = set()
    counted: set[str] = set()
    for scenario in range(12):
        rng = random.Random(f"0 {scenario} compaction")
        begin, operations = random_compaction(rng, KernelRules.named("6.12"), 300)
        state, places = begin()
        found = np.zeros((300, 2), np.int64)
        words.take_compaction_operations(state.arrays(places), operations, found, 0, 300)
        results |= set(found[operations[:, words.KIND] == pr.JUDGED_DIRECT, 0].tolist())
        counters = state.pressure_words(pr.COUNTERS, len(pr.COUNTER_NAMES))
        counted |= {name for name, value in zip(pr.COUNTER_NAMES, counters, strict=True) if value}
        assert int((state.pages["where"] == pr.HELD).sum()) == 0
        assert int(state.st[at.CAPTURE_ZONE]) == 0
    assert results == {
        *(pr.SKIPPED, pr.DEFERRED, pr.COMPLETE, pr.PARTIAL_SKIPPED, pr.CONTENDED, pr.SUCCESS)
    }
    assert counted >= {"compact_daemon_wake", "compact_daemon_free_scanned", "pgmigrate_fail"}
