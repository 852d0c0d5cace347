"""The one place for jit options, and for where compiled kernels are kept.

Reference counting is compiled out (`_nrt=False`, a private option of numba): kernels take a few
arrays and allocate nothing. Each entry point is compiled as one program with all it calls (see
`one_program`), and kept under a fingerprint of all that it reaches: an edit elsewhere compiles
nothing anew.

With PAGEALLOC_PLAIN_NUMBA set, or with a release of numba that is not KNOWN_NUMBA, numba compiles
kernels in its own way, to the same results.

With PAGEALLOC_CHECKED set, machine code tests its indices: one below zero or beyond its array, or
two arrays of one call that overlap, end the call with an exception.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from functools import lru_cache, partial, wraps
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet, ref

import llvmlite
import numba
import numpy as np

from pagealloc_model.base.function_digest import function_digest

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

CHECKED = bool(os.environ.get("PAGEALLOC_CHECKED"))

KNOWN_NUMBA = ("0.64", "0.65", "0.66", "0.67", "0.68")
"""Releases whose insides `one_program` may rest on; the suite is run with the newest."""

_WISHED = bool(os.environ.get("PAGEALLOC_PLAIN_NUMBA"))
PLAIN = _WISHED or numba.__version__.rpartition(".")[0] not in KNOWN_NUMBA

if not PLAIN:
    from pagealloc_model.base import one_program
elif not _WISHED:
    warnings.warn(
        f"numba {numba.__version__} is none of {', '.join(KNOWN_NUMBA)}: it compiles kernels in "
        "its own way, which takes minutes and gives the same results more slowly",
        RuntimeWarning,
        stacklevel=1,
    )

_OURS = (Path(__file__), Path(__file__).with_name("one_program.py"))
_entry_points: WeakSet[Any] = WeakSet()
_PUBLIC = {"nogil": True, "error_model": "numpy"}
_ENTRY = _PUBLIC | {"_nrt": False}
_INNER = _ENTRY | {"nopython": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


@lru_cache(maxsize=1)
def kernel_fingerprint() -> str:
    """Hash of every kernel source and of numba's version: the model's version."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256(numba.__version__.encode())
    kernels = [*package.rglob("allocator/**/*.py"), *package.rglob("trace/**/*.py")]
    for source in [*_OURS, *sorted(kernels)]:
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


@lru_cache(maxsize=1)
def _how_compiled() -> str:
    """All that every machine code rests on: the files that compile it, versions, settings."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in _OURS))
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
    rests_on = f"{_how_compiled()} {function_digest(entry_point, one_program.compiled_as)}"
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


def _writable(directory: Path) -> Path:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if os.access(directory, os.W_OK):
            os.utime(directory)
            return directory
    except OSError:
        pass
    if directory not in _instead_of:
        _instead_of[directory] = Path(tempfile.mkdtemp(prefix="pagealloc_model-kernels-"))
    return _instead_of[directory]


_instead_of: dict[Path, Path] = {}


def compilations() -> Counter[str]:
    """The number of times each entry point was compiled in this process, not loaded from disk."""
    counts: Counter[str] = Counter()
    for entry_point in _entry_points:
        counts[entry_name(entry_point)] += sum(entry_point.stats.cache_misses.values())
    return counts


def entry_name(entry_point: Any) -> str:
    """Name of an entry point: its file's and its own."""
    function = entry_point.py_func
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}"


def _kernel(function: Kernel, role: str) -> Kernel:
    """Compile a function that only kernels call."""
    if numba.config.DISABLE_JIT:
        return function
    if PLAIN:
        return numba.njit(**_PUBLIC, boundscheck=CHECKED)(function)  # type: ignore[no-any-return]
    return one_program.InnerDispatcher(  # type: ignore[return-value]
        py_func=function,
        targetoptions=_INNER | {"boundscheck": CHECKED},
        pipeline_class=one_program.COMPILERS[role],
    )


inner = partial(_kernel, role="inner")
hot = partial(_kernel, role="hot")
"""For a function that nearly every event goes through: it is part of its callers."""
cold = partial(_kernel, role="cold")
"""For a function that few events go through: it stays out of its callers."""
guest = partial(_kernel, role="guest")
"""For a caller's function that kernels call: its indices may count from an array's end."""


def entry(function: Kernel, subdirectory: str = "") -> Kernel:
    """Compile a function that Python calls, kept on disk; with hooks in a `subdirectory`."""
    compiled: Any = function
    if numba.config.DISABLE_JIT:
        pass
    elif PLAIN:  # kept with the fingerprint of all sources of kernels
        above = cache_directory() / ("plain-checked" if CHECKED else "plain")
        before = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = str(above / subdirectory)
        try:
            compiled = numba.njit(**_PUBLIC, boundscheck=CHECKED, cache=True)(function)
        finally:
            numba.config.CACHE_DIR = before
    else:
        options = _ENTRY | {"boundscheck": CHECKED}
        options |= {"pipeline_class": one_program.COMPILERS["entry"]}
        compiled = numba.njit(**options)(function)
        itself = ref(compiled)

        def stem() -> Path:
            above = cache_directory() / subdirectory if subdirectory else kernels_directory()
            return above / f"{entry_name(itself())}-{entry_fingerprint(itself())}"

        compiled._cache = one_program.EntryCache(function, stem)
    if compiled is not function:
        _entry_points.add(compiled)
    return _with_arrays_apart(compiled) if CHECKED else compiled  # type: ignore[return-value]


def _with_arrays_apart(entry_point: Callable[..., Any]) -> Callable[..., Any]:
    """An entry point that refuses arrays with memory in common, one of which it may write."""

    @wraps(entry_point)
    def refusing(*arguments: Any) -> Any:
        rows = [argument if isinstance(argument, tuple) else (argument,) for argument in arguments]
        arrays = [part for row in rows for part in row if isinstance(part, np.ndarray)]
        for one, other in combinations(arrays, 2):
            if np.may_share_memory(one, other) and (one.flags.writeable or other.flags.writeable):
                raise ValueError(f"{entry_point.__name__}: two of its arrays overlap")
        return entry_point(*arguments)

    return refusing
