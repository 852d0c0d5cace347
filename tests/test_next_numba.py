"""numba's newest release, which may be none that this package was written for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.allocator.test_plain_numba import SMALL, outcome

IMPORTED = ("numba", "numpy", "pandas")
"""What the kernels need to be imported; each as this environment has it, but numba."""

pytestmark = pytest.mark.long


def newest_numba(directory: Path) -> tuple[Path, str]:
    """An environment with numba's newest release, and which it is; skips without an index."""
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        pytest.skip("uv is not installed beside this Python")
    python = directory / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, directory], check=True)
    others = [name for name in IMPORTED if name != "numba"]
    tried = subprocess.run(
        [uv, "pip", "install", "--prerelease=allow", "--python", python, "numba", *others],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        pytest.skip(f"no package index gave numba: {tried.stderr.strip().splitlines()[-1]}")
    found = re.search(r"^ \+ numba==(\S+)$", tried.stderr, re.MULTILINE)
    assert found, tried.stderr
    return python, found[1]


@pytest.mark.xfail(strict=False, reason="a release that came after this package's")
def test_numbas_newest_release_compiles_kernels_in_its_own_way(
    checkout: Path, tmp_path: Path
) -> None:
    """A few kernels, with public options only; a failure names the release and its last line."""
    python, release = newest_numba(tmp_path / "environment")
    _, expected, _ = outcome(SMALL, tmp_path / "cache", plain=False)
    done = subprocess.run(
        [python, "-c", SMALL],
        cwd=checkout,
        env=os.environ
        | {
            "PAGEALLOC_CACHE": str(tmp_path / "cache"),
            "PAGEALLOC_PLAIN_NUMBA": "1",
            "PYTHONPATH": str(checkout),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    last = (done.stderr.strip().splitlines() or [""])[-1]
    print(f"numba {release}: {last or 'compiles the kernels'}")
    assert done.returncode == 0, f"numba {release}: {last}"
    assert done.stdout.split() == ["True", expected], f"numba {release}: another outcome"
