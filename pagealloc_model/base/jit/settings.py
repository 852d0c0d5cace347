"""How kernels are compiled in this process: as one program or numba's way, checked or not."""

from __future__ import annotations

import importlib
import os
import warnings
from contextlib import suppress


def _imported_from_the_root() -> None:
    """Import numba, which takes settings from a file of the working directory, from "/" instead.

    A stranger's recording may lie in the working directory, with such a file beside it.
    """
    here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chdir("/")
        config = importlib.import_module("numba.core.config")
        importlib.import_module("numba.extending")
        config._config_fname = os.devnull  # else it is read again at each compilation
    finally:
        with suppress(OSError):  # a directory that may be left and not entered again
            os.fchdir(here)
        os.close(here)


_imported_from_the_root()

import numba as numba  # noqa: E402

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
