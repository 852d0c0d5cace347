"""What set-up compiles is what the package calls."""

from __future__ import annotations

import pytest

from pagealloc_model.compile_kernels import KERNELS, compile_kernel


@pytest.mark.parametrize("name", KERNELS)
def test_every_group_compiles(name: str) -> None:
    assert compile_kernel(name) > 0
