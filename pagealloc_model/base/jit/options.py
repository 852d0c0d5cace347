"""The one place for jit options: what a kernel's role makes of it.

Reference counting is compiled out (`_nrt=False`, a private option of numba): kernels take a few
arrays and allocate nothing. Each entry point is compiled as one program with all it calls (see
`compiler`), and kept under a fingerprint of all that it reaches: an edit elsewhere compiles
nothing anew.

With PAGEALLOC_PLAIN_NUMBA set, or with a release of numba that is not KNOWN_NUMBA, numba compiles
kernels in its own way, to the same results.

With PAGEALLOC_CHECKED set, machine code tests its indices: one below zero or beyond its array, or
two arrays of one call that overlap, end the call with an exception.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet, ref

import numba
import numpy as np

from pagealloc_model.base.jit.kept import cache_directory, entry_fingerprint, kernels_directory
from pagealloc_model.base.jit.settings import CHECKED, PLAIN

if not PLAIN:
    from pagealloc_model.base.jit import cache, compiler

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

_entry_points: WeakSet[Any] = WeakSet()
_PUBLIC = {"nogil": True, "error_model": "numpy"}
_ENTRY = _PUBLIC | {"_nrt": False}
_INNER = _ENTRY | {"nopython": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


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
    return compiler.InnerDispatcher(  # type: ignore[return-value]
        py_func=function,
        targetoptions=_INNER | {"boundscheck": CHECKED},
        pipeline_class=compiler.COMPILERS[role],
    )


inner = partial(_kernel, role="inner")
hot = partial(_kernel, role="hot")
"""For a function that nearly every event goes through: it is part of its callers."""
cold = partial(_kernel, role="cold")
"""For a function that few events go through: it stays out of its callers."""
guest = partial(_kernel, role="guest")
"""For a caller's function that kernels call: its indices may count from an array's end."""


_subdirectory = ""


@contextmanager
def kept_in(subdirectory: str) -> Iterator[None]:
    """Keep the entry points that are defined meanwhile in a directory of their own."""
    global _subdirectory
    before, _subdirectory = _subdirectory, subdirectory
    try:
        yield
    finally:
        _subdirectory = before


def entry(function: Kernel) -> Kernel:
    """Compile a function that Python calls, kept on disk."""
    compiled: Any = function
    subdirectory = _subdirectory
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
        options |= {"pipeline_class": compiler.COMPILERS["entry"]}
        compiled = numba.njit(**options)(function)
        itself = ref(compiled)

        def stem() -> Path:
            above = cache_directory() / subdirectory if subdirectory else kernels_directory()
            return above / f"{entry_name(itself())}-{entry_fingerprint(itself())}"

        compiled._cache = cache.EntryCache(function, stem)
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
