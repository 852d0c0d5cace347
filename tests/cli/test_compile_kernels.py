"""What set-up compiles is what the package calls; what older versions left is removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pagealloc_model.cli.compile_kernels import (
    KEPT_DAYS,
    KERNELS,
    compile_kernel,
    remove_old_kernels,
)


@pytest.mark.parametrize("name", KERNELS)
def test_every_group_compiles(name: str) -> None:
    assert compile_kernel(name) > 0


def test_only_old_kernels_of_other_versions_are_removed(tmp_path: Path) -> None:
    """Neither the current ones, nor fresh ones, nor what is no directory of kernels."""
    now_s, old_s = 1e9, 1e9 - (KEPT_DAYS + 1) * 86400
    current, old, fresh = (f"kernels-{digit * 16}" for digit in "0af")
    for name, written_s in {
        current: old_s,
        old: old_s,
        fresh: now_s,
        "kernels-of-mine": old_s,
        "sweeps": old_s,
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "kept").write_text("")
        os.utime(tmp_path / name, (written_s, written_s))
    removed = remove_old_kernels(tmp_path / current, now_s)
    assert removed == [tmp_path / old]
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == sorted([current, fresh, "kernels-of-mine", "sweeps"])
