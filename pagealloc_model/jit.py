"""The one place for jit options, and for where compiled kernels are kept.

Reference counting is compiled out (`_nrt=False`, a private option of numba, hence the pinned
version): kernels take a few arrays and allocate nothing. Each entry point is compiled as one
program with all it calls (see `one_program`). numba's disk cache does not see that a callee in
another file changed, so the cache lives in a directory named by a fingerprint of all kernel
sources.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

from pagealloc_model import one_program

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

_INNER = {
    "nopython": True,
    "nogil": True,
    "_nrt": False,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "error_model": "numpy",
}
_ENTRY = {
    "nogil": True,
    "_nrt": False,
    "cache": True,
    "error_model": "numpy",
    "pipeline_class": one_program.EntryCompiler,
}


def kernel_fingerprint() -> str:
    """Hash of every kernel source and of numba's version; names the cache and the model."""
    package = Path(__file__).parent
    digest = hashlib.sha256(numba.__version__.encode())
    kernels = [*package.glob("allocator/*.py"), *package.glob("trace/*.py")]
    for source in [Path(__file__), Path(one_program.__file__), *sorted(kernels)]:
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def cache_directory() -> Path:
    """Where compiled kernels are kept: PAGEALLOC_CACHE, XDG_CACHE_HOME or ~/.cache."""
    chosen = os.environ.get("PAGEALLOC_CACHE")
    if chosen:
        base = Path(chosen)
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pagealloc_model"
    directory = base / f"kernels-{kernel_fingerprint()}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if os.access(directory, os.W_OK):
            return directory
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="pagealloc_model-kernels-"))


def inner(function: Kernel) -> Kernel:
    """Compile a function that only kernels call."""
    if numba.config.DISABLE_JIT:
        return function
    return one_program.inner_dispatcher(function, _INNER)  # type: ignore[no-any-return]


def entry(function: Kernel, subdirectory: str = "") -> Kernel:
    """Compile a function that Python calls; kept on disk, with hooks in a place of its own."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(cache_directory() / subdirectory)
    try:
        return numba.njit(**_ENTRY)(function)  # type: ignore[no-any-return]
    finally:
        numba.config.CACHE_DIR = before
