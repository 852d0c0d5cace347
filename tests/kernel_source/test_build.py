"""A kernel tree in a policy's place: recorded demand through its own compiled code."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pagealloc_model.notebooks.studies.others.replay_agreement import patch_and_policy_text
from pytest import MonkeyPatch

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.base.errors import PolicyError
from pagealloc_model.cli import main
from pagealloc_model.kernel_source import compiled_tree
from pagealloc_model.kernel_source.build import PressedKernelState
from pagealloc_model.kernel_source.compiled_tree import CompiledTree, Configuration
from pagealloc_model.kernel_source.extraction import ELASTIC
from pagealloc_model.kernel_source.source_tree import SourceTree
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.policy import Policy
from pagealloc_model.predicted.replay import Replay
from tests.allocator.invariants import broken_invariants, broken_pieces
from tests.allocator.small_state import Pressed, bits_of
from tests.allocator.test_invariants import REQUESTS, hostile
from tests.kernel_source import Patched, Sources
from tests.small_recordings import shipped_recording, write_recording

ORDER_GATE = """\
--- a/mm/page_alloc.c
+++ b/mm/page_alloc.c
@@ -2070 +2070,3 @@
 \tunsigned long max_managed, flags;
+\tif (order <= PAGE_ALLOC_COSTLY_ORDER)
+\t\treturn;
"""

TABLES = ("free_pages", "pageblocks", "pcp", "lock", "transactions", "fallbacks", "outcomes")

PLAIN = pm.Assumptions(reclaim="literal", plain_demand=True)  # demand as a kernel build has it


def assert_same(model: Replay, kernel: Replay) -> None:
    assert np.array_equal(model.places, kernel.places)
    assert model.divergence == kernel.divergence
    for name in TABLES:
        pd.testing.assert_frame_equal(getattr(model, name), getattr(kernel, name))


@pytest.fixture
def highatomic() -> pm.Recording:
    """The load that ran with the gate, as if it had run without: then the reserve fills."""
    recording = shipped_recording("highatomic_gate3")
    sysctl = {**recording.meta["sysctl"], "highatomic_gate_order": "0"}
    return replace(recording, meta={**recording.meta, "sysctl": sysctl})


def test_a_recording_goes_through_the_kernel_s_code_as_through_the_model(
    kernel_source: Sources, highatomic: pm.Recording
) -> None:
    build = pm.KernelBuild(kernel_source("6.12").path)
    kernel = pm.replay(highatomic, build, rules="6.12")
    assert_same(pm.replay(highatomic, rules="6.12", assumptions=PLAIN), kernel)
    assert (kernel.log["kind"] == at.SITE_RESERVE).any(), "the recording is about the reserve"
    assert kernel.kernel.startswith("6.12.")
    assert kernel.provenance["kernel_source"] == kernel.kernel
    assert any("slowpath" in line for line in kernel.not_covered)


def test_a_patch_does_what_a_patched_tree_and_the_policy_do(
    kernel_source: Sources, highatomic: pm.Recording, tmp_path: Path
) -> None:
    source, gate = kernel_source("6.12").path, pm.Policy(highatomic_gate_order=3)
    said = patch_and_policy_text(highatomic, source, ORDER_GATE, gate)
    assert "identical: " in said
    assert "6.12." in said
    assert "highatomic_gate_order=3" in said
    stock = pm.Policy(highatomic_gate_order=0)
    assert "different: " in patch_and_policy_text(highatomic, source, ORDER_GATE, stock)
    assert "identical: " in patch_and_policy_text(highatomic, source, None, stock)
    missing = patch_and_policy_text(highatomic, tmp_path, ORDER_GATE, gate)
    assert missing.startswith("skipped: ")
    assert "/usr/src" in missing
    assert "\n" not in missing


def test_settings_of_the_kernel_reach_it(kernel_source: Sources, highatomic: pm.Recording) -> None:
    policy = pm.Policy(pcp_batch=15, pcp_high_min=60, pcp_high_max=240, costly_order=2)
    build = pm.KernelBuild(kernel_source("6.12").path, policy)
    assert_same(
        pm.replay(highatomic, policy, rules="6.12", assumptions=PLAIN),
        pm.replay(highatomic, build, rules="6.12"),
    )


@pytest.mark.parametrize(
    "setting",
    ["highatomic_gate_order", "pcp_decay_batched", "pcp_drain_batched", "refill_mode_persists"],
)
def test_what_only_the_source_decides_is_no_setting(setting: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="change its source"):
        pm.KernelBuild(tmp_path, pm.Policy(**{setting: 1}))


def test_commands_take_a_kernel_source(
    kernel_source: Sources, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = write_recording(tmp_path / "small")
    source = ["--kernel-source", str(kernel_source("6.12").path)]
    assert main(["replay", str(recording), *source, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kernel_source"].startswith("6.12.")
    assert found["not_covered"]
    assert main(["validate", str(recording), *source]) == 0
    text = capsys.readouterr().out
    assert "kernel" in text.split("metric, scope")[1].splitlines()[0]
    assert "Left to the shim" in text
    patch = tmp_path / "gate.patch"
    patch.write_text(ORDER_GATE)
    assert main(["replay", str(recording), *source, "--tree-patch", str(patch), "--json"]) == 0
    assert f"with {patch}" in json.loads(capsys.readouterr().out)["kernel_source"]
    assert main(["validate", str(recording), "--tree-patch", str(patch)]) == 2
    assert "needs --kernel-source" in capsys.readouterr().err


def test_a_fingerprint_is_of_sources_and_settings_wherever_they_lie(
    patched: Patched, kernel_source: Sources
) -> None:
    original = pm.KernelBuild(kernel_source("6.12").path)
    path, old = "mm/page_alloc.c", "max_nr_free = high - batch;"
    copy = pm.KernelBuild(patched("6.12", path, old, old).path)
    assert copy.fingerprint == original.fingerprint
    assert copy.fingerprint == pm.KernelBuild(copy.path, pm.Policy()).fingerprint
    assert copy.fingerprint != pm.KernelBuild(copy.path, pm.Policy(pcp_batch=15)).fingerprint
    text = copy.source.root / path
    text.write_text(text.read_text().replace(old, "max_nr_free = high - 2 * batch;"))
    assert copy.fingerprint != original.fingerprint
    makefile = copy.source.root / "Makefile"
    changed = copy.fingerprint
    makefile.write_text(makefile.read_text().replace("PATCHLEVEL = 12", "PATCHLEVEL = 13"))
    assert copy.fingerprint != changed, "rules go by the release"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> pm.Recording:
    return pm.open(write_recording(tmp_path_factory.mktemp("build_sweep") / "small"))


def test_builds_are_points_like_policies(
    kernel_source: Sources, small: pm.Recording, tmp_path: Path
) -> None:
    path = kernel_source("6.12").path
    stock, gated = pm.KernelBuild(path), pm.KernelBuild(path, patch=ORDER_GATE)
    axes = {"policy": [None, stock, gated], "pcp_batch": [4, 31]}
    first = pm.sweep([small], vary=axes, rules="6.12", cache=tmp_path).to_pandas()
    assert list(first["error"]) == [""] * 6
    by_batch = first.set_index(["policy", "pcp_batch"])["zone_lock_acquisitions"]
    names = [None, *first["policy"].dropna().unique()]
    assert len(names) == 3
    model = first[first["policy"].isna()].set_index("pcp_batch")["zone_lock_acquisitions"]
    for name in names[1:]:
        assert by_batch[name].equals(model)
    assert model[4] > model[31]
    again = pm.sweep([small], vary=axes, rules="6.12", cache=tmp_path).to_pandas()
    assert again.drop(columns="seconds").equals(first.drop(columns="seconds"))


THREADS = 16


def test_threads_share_no_library(monkeypatch: MonkeyPatch) -> None:
    all_here = threading.Barrier(THREADS)
    built: list[Configuration] = []

    def build(self: CompiledTree, configuration: Configuration) -> tuple[SimpleNamespace, object]:
        built.append(configuration)
        path = Path(self._directory.name) / "unit.so"
        path.write_bytes(bytes(1 << 20))
        return SimpleNamespace(), path

    monkeypatch.setattr(CompiledTree, "_build", build)
    monkeypatch.setattr(compiled_tree.ctypes, "CDLL", str)
    tree = CompiledTree(SimpleNamespace())  # type: ignore[arg-type]
    configuration = Configuration(zone_types=("Normal",))

    def load(_: int) -> str:
        all_here.wait()
        return str(tree.load(configuration))

    with ThreadPoolExecutor(THREADS) as threads:
        loaded = list(threads.map(load, range(THREADS)))
    assert len(built) == 1
    assert len(set(loaded)) == THREADS


OWN = pm.Assumptions(reclaim="elastic", elastic=ElasticAssumptions())
LONG = [pytest.param(each, marks=pytest.mark.long) for each in ("6.1", "7.2")]


@dataclass
class Asked(Pressed):
    """A small state under pressure whose allocator is a kernel's own code."""

    kernel: PressedKernelState = field(init=False)

    def hand_over(self, tree: CompiledTree) -> None:
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
@settings(max_examples=3, phases=(Phase.generate,))
@given(st.lists(REQUESTS, min_size=40, max_size=80))
def test_what_is_free_is_seen_at_every_step(
    kernel_source: Sources, rules: str, requests: list[tuple[int, tuple[int, int], int, int]]
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


def assert_same_outcome(model: Replay, kernel: Replay) -> None:
    assert np.array_equal(model.places, kernel.places)
    for name in ("vmstat", "outcomes", "free_pages", "pageblocks", "fallbacks"):
        pd.testing.assert_frame_equal(getattr(model, name), getattr(kernel, name))


@pytest.mark.parametrize("series", ["6.12", "7.3", *LONG])
def test_a_pressed_recording_goes_through_the_kernel_s_code_as_through_the_model(
    kernel_source: Sources, series: str
) -> None:
    recording = shipped_recording("highatomic_stock")
    build = pm.KernelBuild(kernel_source(series).path)
    kernel = pm.replay(recording, build, rules=series, assumptions=OWN)
    assert_same_outcome(pm.replay(recording, rules=series, assumptions=OWN), kernel)
    assert kernel.vmstat.groupby("name")["value"].max()["compact_success"] > 0
    assert "they are the model's" in kernel.not_covered[0]


def test_a_patch_to_the_source_decides_under_pressure_too(kernel_source: Sources) -> None:
    recording = shipped_recording("highatomic_stock")
    path = kernel_source("6.12").path
    patched, stock = (
        pm.replay(
            recording, pm.KernelBuild(path, patch=each), rules="6.12", assumptions=OWN, seed=2
        )
        for each in (ORDER_GATE, None)
    )
    gate = pm.Policy(highatomic_gate_order=3)
    assert_same_outcome(pm.replay(recording, gate, rules="6.12", assumptions=OWN, seed=2), patched)
    assert not (patched.log["kind"] == at.SITE_RESERVE).any()
    assert (stock.log["kind"] == at.SITE_RESERVE).any()


def test_a_policy_of_the_model_s_compaction_for_reserved_blocks_is_refused(
    kernel_source: Sources,
) -> None:
    recording = shipped_recording("highatomic_stock")
    build = pm.KernelBuild(kernel_source("6.12").path, pm.Policy(kcompactd_unreserves=True))
    with pytest.raises(PolicyError, match="kcompactd_unreserves"):
        pm.replay(recording, build, rules="6.12", assumptions=OWN)
