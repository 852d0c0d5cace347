"""An elastic replay by a kernel tree: its allocator under the model's reclaim and compaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.from_source.build import PressedKernelState
from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree
from pagealloc_model.allocator.from_source.extraction import ELASTIC
from pagealloc_model.allocator.from_source.source_tree import SourceTree
from pagealloc_model.allocator.invariants import broken_invariants, broken_pieces
from pagealloc_model.base.errors import PolicyError
from pagealloc_model.policy.policy import Policy
from pagealloc_model.predicted.replay import Replay
from tests.allocator.small_state import Pressed, bits_of
from tests.allocator.test_invariants import REQUESTS, hostile

OWN = pm.Assumptions(reclaim="elastic")
LONG = [pytest.param(each, marks=pytest.mark.long) for each in ("6.1", "7.2")]

GATE = """\
--- a/mm/page_alloc.c
+++ b/mm/page_alloc.c
@@ -2070 +2070,3 @@
 \tunsigned long max_managed, flags;
+\tif (order <= PAGE_ALLOC_COSTLY_ORDER)
+\t\treturn;
"""


@dataclass
class Asked(Pressed):
    """A small state under pressure whose allocator is a kernel's own code."""

    kernel: PressedKernelState = field(init=False)

    def hand_over(self, tree: CompiledTree) -> None:
        """Let the kernel carry the state on from here."""
        self.kernel = PressedKernelState(tree, self.state, self.leads)
        self.state = self.kernel.state

    def _advance(self, events: np.ndarray, high: int, until_ns: int, low: int = 0) -> int:
        return self.kernel.advance(events, self.places, low, high, until_ns)


@lru_cache
def elastic_tree(tree: SourceTree) -> CompiledTree:
    """The compiled code of a tree, as elastic replays have it."""
    return CompiledTree(tree, ELASTIC)


def assert_sound(asked: Asked) -> None:
    """Every page is in one place, and the model sees as free what is."""
    whole = asked.kernel.whole()
    assert broken_invariants(whole) == []
    assert broken_pieces(whole, asked.places) == []
    seen, free = asked.state.pages["where"] == at.BUDDY, whole.pages["where"] == at.BUDDY
    heads = np.flatnonzero(free)
    assert seen[heads].all()
    assert (asked.state.pages["order"][heads] == whole.pages["order"][heads]).all()
    assert seen.sum() == free.sum()
    assert (asked.state.blocks == whole.blocks).all()


def assert_alike(model: Pressed, asked: Asked) -> None:
    """The same pages for the same objects, the same lists, the same counts of what was done."""
    np.testing.assert_array_equal(model.places, asked.places)
    np.testing.assert_array_equal(model.state.free_buddies(), asked.state.free_buddies())
    for name in pr.COUNTER_NAMES:
        assert model.count(name) == asked.count(name), name


@pytest.mark.parametrize("rules", ["6.12", "7.3", *LONG])
@settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(REQUESTS, min_size=40, max_size=80))
def test_what_is_free_is_seen_at_every_step(
    kernel_source: Callable[[str], SourceTree],
    rules: str,
    requests: list[tuple[int, tuple[int, int], int, int]],
) -> None:
    model, asked = hostile(Policy(), rules), hostile(Policy(), rules, kind_of_state=Asked)
    asked.hand_over(elastic_tree(kernel_source(rules)))
    live: list[tuple[int, int]] = []
    for step, (order, (migratetype, kind), bits, wait) in enumerate(requests):
        number = model.alloc(order, migratetype, bits_of(kind, bits))
        assert asked.alloc(order, migratetype, bits_of(kind, bits)) == number
        live.append((number, order))
        assert_sound(asked)
        if step % 3 == 2:
            number, size = live.pop(step % len(live))
            for each in (model, asked):
                each.free(number, size)
        for each in (model, asked):
            each.let_pass(wait * 400_000)
        assert_sound(asked)
        assert_alike(model, asked)
    asked.kernel.close()


def assert_same(model: Replay, kernel: Replay) -> None:
    """Same places, counters and outcomes."""
    assert np.array_equal(model.places, kernel.places)
    for name in ("vmstat", "outcomes", "free_pages", "pageblocks", "fallbacks"):
        pd.testing.assert_frame_equal(getattr(model, name), getattr(kernel, name))


@pytest.mark.parametrize("series", ["6.12", "7.3", *LONG])
def test_a_recording_goes_through_the_kernel_s_code_as_through_the_model(
    kernel_source: Callable[[str], SourceTree], shipped: Callable[[str], Path], series: str
) -> None:
    recording = pm.open(str(shipped("highatomic_stock")))
    build = pm.KernelBuild(kernel_source(series).path)
    kernel = pm.replay(recording, build, rules=series, assumptions=OWN)
    assert_same(pm.replay(recording, rules=series, assumptions=OWN), kernel)
    assert kernel.vmstat.groupby("name")["value"].max()["compact_success"] > 0
    assert "they are the model's" in kernel.not_covered[0]


def test_a_patch_to_the_source_decides_under_pressure_too(
    kernel_source: Callable[[str], SourceTree], shipped: Callable[[str], Path]
) -> None:
    recording = pm.open(str(shipped("highatomic_stock")))
    path = kernel_source("6.12").path
    patched, stock = (
        pm.replay(recording, pm.KernelBuild(path, patch=each), rules="6.12", assumptions=OWN)
        for each in (GATE, None)
    )
    gate = pm.Policy(highatomic_gate_order=3)
    assert_same(pm.replay(recording, gate, rules="6.12", assumptions=OWN), patched)
    assert not (patched.log[:, 0] == at.SITE_RESERVE).any()
    assert (stock.log[:, 0] == at.SITE_RESERVE).any()


def test_a_policy_of_the_model_s_compaction_for_reserved_blocks_is_refused(
    kernel_source: Callable[[str], SourceTree], shipped: Callable[[str], Path]
) -> None:
    recording = pm.open(str(shipped("highatomic_stock")))
    build = pm.KernelBuild(kernel_source("6.12").path, pm.Policy(kcompactd_unreserves=True))
    with pytest.raises(PolicyError, match="kcompactd_unreserves"):
        pm.replay(recording, build, rules="6.12", assumptions=OWN)
