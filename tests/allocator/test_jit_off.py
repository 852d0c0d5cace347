"""Compiled kernels and the same source run by Python give bit-identical states and logs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.allocator.event_sequence import plain_digest

EVENTS = 2500


def test_without_jit_the_outcome_is_bit_identical(checkout: Path) -> None:
    interpreted = subprocess.run(
        [sys.executable, "-m", "tests.allocator.event_sequence", str(EVENTS)],
        cwd=checkout,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert interpreted.stdout.strip() == plain_digest(EVENTS)
