"""What compiled kernels rest on, as fingerprints, and the directories that keep them."""

from __future__ import annotations

import atexit
import hashlib
import os
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np

from pagealloc_model.base.jit.digest import function_digest
from pagealloc_model.base.jit.sealed import is_own_directory
from pagealloc_model.base.jit.settings import PLAIN

_COMPILED_BY = tuple(
    Path(__file__).with_name(f"{name}.py") for name in ("cache", "compiler", "options", "sealed")
)


@lru_cache(maxsize=1)
def kernel_fingerprint() -> str:
    """Hash of every kernel source and of numba's version: the model's version."""
    package = Path(__file__).parents[2]
    digest = hashlib.sha256(numba.__version__.encode())
    kernels = [*package.rglob("allocator/**/*.py"), *package.rglob("trace/**/*.py")]
    for source in [*_COMPILED_BY, *sorted(kernels)]:
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


@lru_cache(maxsize=1)
def _how_compiled() -> str:
    """All that every machine code rests on: the files that compile it, versions, settings."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in _COMPILED_BY))
    settings = (numba.config.OPT, numba.config.BOUNDSCHECK)
    versions = (numba.__version__, np.__version__, llvmlite.__version__, sys.version)
    return f"{digest.hexdigest()} {versions} {settings}"


def entry_fingerprint(entry_point: Any) -> str:
    """Hash of all that an entry point's machine code rests on; in numba's own way of all kernels.

    Raises:
        UsageError: a kernel refers to a value that has no identity but its address.
    """
    if PLAIN:
        return kernel_fingerprint()
    from pagealloc_model.base.jit.compiler import compiled_as  # absent from numba's own way

    rests_on = f"{_how_compiled()} {function_digest(entry_point, compiled_as)}"
    return hashlib.sha256(rests_on.encode()).hexdigest()[:16]


def cache_base() -> Path:
    """Directory of all that this package keeps: PAGEALLOC_CACHE, XDG_CACHE_HOME or ~/.cache."""
    if chosen := os.environ.get("PAGEALLOC_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pagealloc_model"


def cache_directory() -> Path:
    """Where kernels with hooks and results are, which any change of a kernel makes worthless."""
    return _writable(cache_base() / f"kernels-{kernel_fingerprint()}")


def kernels_directory() -> Path:
    """Where compiled kernels are kept: a file's name holds its entry point and fingerprint."""
    return _writable(cache_base() / "kernels")


def sources_directory() -> Path:
    """Where kernel sources taken out of tarballs are kept."""
    return _writable(cache_base() / "sources")


def _writable(directory: Path) -> Path:
    """The directory, or one in its place, for this user or at last for this process alone."""
    for_user = Path(tempfile.gettempdir()) / f"pagealloc_model-{os.geteuid()}"
    if is_own_directory(directory):
        return directory
    if is_own_directory(for_user) and is_own_directory(for_user / directory.name):
        return for_user / directory.name
    return _of_process() / directory.name


@lru_cache(maxsize=1)
def _of_process() -> Path:
    """A directory that is removed when this process ends."""
    made = tempfile.TemporaryDirectory(prefix="pagealloc_model-")
    atexit.register(made.cleanup)
    return Path(made.name)
