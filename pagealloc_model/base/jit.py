"""The one place for jit options, and for where compiled kernels are kept.

Reference counting is compiled out (`_nrt=False`, a private option of numba, hence the pinned
version): kernels take a few arrays and allocate nothing. Each entry point is compiled as one
program with all it calls (see `one_program`). numba's disk cache does not see that a callee in
another file changed, so the cache lives in a directory named by a fingerprint of all kernel
sources.

Machine code does not test indices. With PAGEALLOC_CHECKED set it does: an index below zero or
beyond its array, or two arrays of one call that overlap, end the call with an exception. The tests
replay recordings that way.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import wraps
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np

from pagealloc_model.base import one_program

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

CHECKED = bool(os.environ.get("PAGEALLOC_CHECKED"))
"""Whether machine code tests its indices and its arrays."""

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
    return _inner(function, one_program.InnerCompiler)


def hot(function: Kernel) -> Kernel:
    """Compile a function that nearly every event goes through: it is part of its callers."""
    return _inner(function, one_program.HotCompiler)


def cold(function: Kernel) -> Kernel:
    """Compile a function that few events go through: it stays out of its callers."""
    return _inner(function, one_program.ColdCompiler)


def guest(function: Kernel) -> Kernel:
    """Compile a caller's function for kernels: its indices may count from an array's end."""
    return _inner(function, one_program.GuestCompiler)


def _inner(function: Kernel, compiler: Any) -> Kernel:
    if numba.config.DISABLE_JIT:
        return function
    return one_program.inner_dispatcher(function, _INNER | _checks(), compiler)  # type: ignore[no-any-return]


def _checks() -> dict[str, Any]:
    return {"boundscheck": CHECKED}


def entry(function: Kernel, subdirectory: str = "") -> Kernel:
    """Compile a function that Python calls; kept on disk, with hooks in a place of its own."""
    before = numba.config.CACHE_DIR
    kept = cache_directory() / ("checked" if CHECKED else "") / subdirectory
    numba.config.CACHE_DIR = str(kept)
    try:
        compiled = numba.njit(**_ENTRY, **_checks())(function)
    finally:
        numba.config.CACHE_DIR = before
    return _with_arrays_apart(compiled) if CHECKED else compiled  # type: ignore[no-any-return]


def _with_arrays_apart(entry_point: Callable[..., Any]) -> Callable[..., Any]:
    """An entry point that refuses arrays with memory in common, one of which it may write.

    Raises:
        ValueError: from the entry point, with such arrays.
    """

    @wraps(entry_point)
    def refusing(*arguments: Any) -> Any:
        arrays = [each for each in arguments if isinstance(each, np.ndarray)]
        for one, other in combinations(arrays, 2):
            if np.may_share_memory(one, other) and (one.flags.writeable or other.flags.writeable):
                raise ValueError(f"{entry_point.__name__}: two of its arrays overlap")
        return entry_point(*arguments)

    return refusing
