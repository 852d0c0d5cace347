"""A release of numba that lacks what kernels are compiled with: numba's own way, and a line."""

from __future__ import annotations

import subprocess
import sys

import pytest

LACKING = """
import sys
import numba
{change}
from pagealloc_model.base import jit
print(jit.PLAIN)
"""


@pytest.mark.parametrize(
    "change, said",
    [
        ("import numba.core.base as module; del module._has_loc", "'_has_loc'"),
        ("sys.modules['numba.core.ssa'] = None", "numba.core.ssa"),
        ("numba.__version__ = '0.69.0'", "0.69.0 is not 0.68.x"),
    ],
)
def test_a_release_without_our_insides_compiles_in_its_own_way(change: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LACKING.format(change=change)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "True\n", done.stderr
    assert said in done.stderr
    assert "compiles kernels in its own way" in done.stderr
