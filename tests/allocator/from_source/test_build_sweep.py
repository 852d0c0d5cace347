"""A sweep over kernels: a build, a patched build and the model as values of one axis."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import pagealloc_model as pm
from pagealloc_model.allocator.from_source.source_tree import SourceTree
from tests.allocator.from_source.test_build import ORDER_GATE
from tests.small_recordings import write_recording


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> pm.Recording:
    return pm.open(write_recording(tmp_path_factory.mktemp("build_sweep") / "small"))


def test_builds_are_points_like_policies(
    kernel_source: Callable[[str], SourceTree], small: pm.Recording, tmp_path: Path
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
