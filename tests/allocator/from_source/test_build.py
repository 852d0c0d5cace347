"""A kernel tree in a policy's place: recorded demand through its own compiled code."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pagealloc_model.notebooks.studies.agreement import patch_and_policy_text

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.from_source.source_tree import SourceTree
from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.cli import main
from pagealloc_model.predicted.replay import Replay
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

PLAIN = pm.Assumptions(plain_demand=True)
"""Demand as a kernel build has it."""


def assert_same(model: Replay, kernel: Replay) -> None:
    """Same places, transactions, tables and divergences."""
    assert np.array_equal(model.places, kernel.places)
    assert model.divergence == kernel.divergence
    for name in TABLES:
        pd.testing.assert_frame_equal(getattr(model, name), getattr(kernel, name))


@pytest.fixture
def highatomic(shipped: Callable[[str], Path]) -> pm.Recording:
    """The load that ran with the gate, as if it had run without: then the reserve fills."""
    assert shipped("highatomic_gate3")
    recording = shipped_recording("highatomic_gate3")
    sysctl = {**recording.meta["sysctl"], "highatomic_gate_order": "0"}
    return replace(recording, meta={**recording.meta, "sysctl": sysctl})


def test_a_recording_goes_through_the_kernel_s_code_as_through_the_model(
    kernel_source: Callable[[str], SourceTree], highatomic: pm.Recording
) -> None:
    build = pm.KernelBuild(kernel_source("6.12").path)
    kernel = pm.replay(highatomic, build, rules="6.12")
    assert_same(pm.replay(highatomic, rules="6.12", assumptions=PLAIN), kernel)
    assert (kernel.log[:, 0] == at.SITE_RESERVE).any(), "the recording is about the reserve"
    assert kernel.kernel.startswith("6.12.")
    assert kernel.provenance["kernel_source"] == kernel.kernel
    assert any("slowpath" in line for line in kernel.not_covered)


def test_a_patched_source_is_the_policy_of_the_same_name(
    patched: Callable[[str, str, str, str], SourceTree],
    kernel_source: Callable[[str], SourceTree],
    highatomic: pm.Recording,
) -> None:
    """The order gate: no block for atomic requests of costly order or below."""
    tree = patched(
        "6.12",
        "mm/page_alloc.c",
        "	max_managed = ALIGN((zone_managed_pages(zone) / 100), pageblock_nr_pages);\n",
        "	max_managed = ALIGN((zone_managed_pages(zone) / 100), pageblock_nr_pages);\n"
        "	if (order <= PAGE_ALLOC_COSTLY_ORDER)\n		return;\n",
    )
    policy = pm.Policy(highatomic_gate_order=3)
    gate = pm.replay(highatomic, policy, rules="6.12", assumptions=PLAIN)
    kernel = pm.replay(highatomic, pm.KernelBuild(tree.path), rules="6.12")
    assert_same(gate, kernel)
    stock = pm.replay(highatomic, pm.KernelBuild(kernel_source("6.12").path), rules="6.12")
    assert len(stock.log) != len(kernel.log), "the patch changes something"
    text = pm.compare(stock, kernel).to_text()
    assert "code:" in text


def test_a_patch_does_what_a_patched_tree_and_the_policy_do(
    kernel_source: Callable[[str], SourceTree], highatomic: pm.Recording, tmp_path: Path
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


def test_settings_of_the_kernel_reach_it(
    kernel_source: Callable[[str], SourceTree], highatomic: pm.Recording
) -> None:
    policy = pm.Policy(pcp_batch=15, pcp_high_min=60, pcp_high_max=240, costly_order=2)
    build = pm.KernelBuild(kernel_source("6.12").path, policy)
    assert_same(
        pm.replay(highatomic, policy, rules="6.12", assumptions=PLAIN),
        pm.replay(highatomic, build, rules="6.12"),
    )


def test_what_only_the_source_decides_is_no_setting(
    kernel_source: Callable[[str], SourceTree],
) -> None:
    with pytest.raises(PolicyError, match="change its source"):
        pm.KernelBuild(kernel_source("6.12").path, pm.Policy(highatomic_gate_order=3))


def test_a_build_without_a_tree_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no mm/page_alloc\.c"):
        pm.KernelBuild(tmp_path)


def test_commands_take_a_kernel_source(
    kernel_source: Callable[[str], SourceTree],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
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
    assert main(["replay", str(recording), *source, "--patch", str(patch), "--json"]) == 0
    assert f"with {patch}" in json.loads(capsys.readouterr().out)["kernel_source"]
    assert main(["validate", str(recording), "--patch", str(patch)]) == 2
    assert "needs --kernel-source" in capsys.readouterr().err


def test_a_fingerprint_is_of_sources_and_settings_wherever_they_lie(
    patched: Callable[[str, str, str, str], SourceTree],
    kernel_source: Callable[[str], SourceTree],
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
