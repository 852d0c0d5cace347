"""How kernels are compiled in this process: as one program or numba's way, checked or not."""

from __future__ import annotations

import os
import warnings

import numba

CHECKED = bool(os.environ.get("PAGEALLOC_CHECKED"))

KNOWN_NUMBA = ("0.64", "0.65", "0.66", "0.67", "0.68")
"""Releases whose insides `compiler` and `cache` may rest on; the suite is run with the newest."""

_WISHED = bool(os.environ.get("PAGEALLOC_PLAIN_NUMBA"))
PLAIN = _WISHED or numba.__version__.rpartition(".")[0] not in KNOWN_NUMBA

if PLAIN and not _WISHED:
    warnings.warn(
        f"numba {numba.__version__} is none of {', '.join(KNOWN_NUMBA)}: it compiles kernels in "
        "its own way, which takes minutes and gives the same results more slowly",
        RuntimeWarning,
        stacklevel=1,
    )
