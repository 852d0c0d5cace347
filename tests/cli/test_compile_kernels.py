"""What set-up compiles is what the package calls; what older versions left is removed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pagealloc_model.base import jit
from pagealloc_model.cli.compile_kernels import (
    KEPT_DAYS,
    KERNELS,
    compile_kernel,
    remove_old_kernels,
)


def incremented(value: int) -> int:
    """A kernel."""
    return value + 1


@pytest.mark.parametrize("name", KERNELS)
def test_every_group_compiles(name: str) -> None:
    compile_kernel(name)
    assert compile_kernel(name).startswith("from cache (")


FIRST_GROUPS = """
from pagealloc_model.cli.compile_kernels import FIRST, compile_kernel
for name in FIRST:
    compile_kernel(name)
"""
FIRST_NOTEBOOK = """
import json, pathlib
for cell in json.loads(pathlib.Path("notebooks/00_start_here.ipynb").read_text())["cells"]:
    if cell["cell_type"] == "code":
        exec("".join(cell["source"]))
validation._repr_html_()
"""


def test_the_first_notebook_calls_what_is_compiled_first(checkout: Path, tmp_path: Path) -> None:
    used = {}
    for name, program in (("first", FIRST_GROUPS), ("notebook", FIRST_NOTEBOOK)):
        kept = shutil.copytree(jit.cache_base() / "kernels", tmp_path / name / "kernels")
        for file in kept.iterdir():
            os.utime(file, (0, 0))
        environment = os.environ | {"PAGEALLOC_CACHE": str(tmp_path / name)}
        subprocess.run([sys.executable, "-c", program], cwd=checkout, env=environment, check=True)
        used[name] = {file.name for file in kept.glob("*.kernel") if file.stat().st_mtime > 0}
    assert used["notebook"] and used["notebook"] <= used["first"]
    assert not any("advance_elastic" in name for name in used["first"])


def test_only_kernels_that_nobody_loaded_are_removed(tmp_path: Path) -> None:
    """Neither those loaded of late, nor what is no directory of kernels."""
    now_s, old_s = 1e9, 1e9 - (KEPT_DAYS + 1) * 86400
    old = [f"kernels-{16 * 'a'}", f"kernels/events.advance-{16 * 'a'}-{16 * 'b'}.kernel"]
    recent = {
        f"kernels-{16 * '0'}": now_s,
        f"kernels/events.advance-{16 * '0'}-{16 * 'b'}.kernel": now_s,
        "kernels/mine": old_s,
        "kernels-of-mine": old_s,
        f"mine/events.advance-{16 * 'a'}-{16 * 'b'}.kernel": old_s,
    }
    for name, written_s in (recent | dict.fromkeys(old, old_s)).items():
        if name.endswith(".kernel"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("")
        else:
            (tmp_path / name).mkdir(parents=True)
            (tmp_path / name / "kept").write_text("")
        os.utime(tmp_path / name, (written_s, written_s))
    removed = remove_old_kernels(tmp_path, now_s)
    assert removed == [tmp_path / name for name in old]
    assert all((tmp_path / name).exists() for name in recent)
    assert not any((tmp_path / name).exists() for name in old)


def test_loading_kernels_counts_as_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEALLOC_CACHE", str(tmp_path))
    assert jit.entry(incremented)(1) == 2
    (kernel,) = (tmp_path / "kernels").glob("*.kernel")
    os.utime(kernel, (0, 0))
    again = jit.entry(incremented)
    assert again(1) == 2
    assert sum(again.stats.cache_hits.values()) == 1
    assert kernel.stat().st_mtime > time.time() - 3600
