"""Decisions of the model replaced by functions of one's own, without a copy of the package.

The kernels are imported a second time, with the functions in place, and compiled for them alone:
the model's own kernels are neither changed nor recompiled, and replays without hooks lose nothing.
Compiling takes about as long as setting the package up; it is done once for each combination of
functions, and kept on disk by their fingerprint.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from threading import Lock
from typing import Any

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.base import jit
from pagealloc_model.base.function_digest import function_digest

KERNELS = "pagealloc_model.allocator"
Function = Callable[..., int]


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """Functions that decide in the model's place; None leaves a decision as it is.

    Each takes and returns integers, and is compiled by numba: no Python objects inside.

    Attributes:
        reserve: (order, reserved, managed) -> whether an atomic request of this order, just served,
            may reserve the pageblock of its page (S7.2). `reserved` and `managed` are pages of the
            zone; the kernel's cap holds as well.
        refill: (objects, order, count, high, batch) -> objects that a refill of a per-CPU list
            asks for (S4.4), at least 1; `objects` is what the kernel would ask for, `count` and
            `high` are the list's.
        drain: (pages, order, count, high, batch) -> pages that a free which overflows returns
            (S4.6); `pages` is what the kernel would return, -1 for none.
        fallback: (type, order, migratetype) -> the type to fall back to at this order of buddies,
            or -1 for none (S6.1); `type` is the kernel's choice, `migratetype` the requested one. A
            type without a buddy of this order counts as none.
    """

    reserve: Function | None = None
    refill: Function | None = None
    drain: Function | None = None
    fallback: Function | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The decisions replaced."""
        return tuple(name for name in vars(self) if getattr(self, name) is not None)

    @property
    def fingerprint(self) -> str:
        """Digest of what the functions compute, for caches of results: see `function_digest`.

        The same in every process of one Python version. It says nothing of the model around them.

        Raises:
            UsageError: a function refers to a value that has no identity but its address.
        """
        parts = [f"{name} {function_digest(getattr(self, name))}" for name in self.names]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def are_compiled(hooks: Hooks) -> bool:
    """Whether kernels with these hooks are on disk; else their first replay takes minutes.

    Raises:
        UsageError: a hook has no fingerprint.
    """
    kept = jit.cache_directory() / f"hooks-{hooks.fingerprint}"
    return any(kept.rglob("replay.advance*.nbc"))


_importing = Lock()


def advance_with(hooks: Hooks) -> Callable[..., int]:
    """The event loop of kernels with hooks in place; takes what `replay.advance` takes.

    Raises:
        UsageError: a hook has no fingerprint.
    """
    return _imported(hooks, hooks.fingerprint)


@lru_cache(maxsize=8)
def _imported(hooks: Hooks, fingerprint: str) -> Callable[..., int]:
    with _importing:
        package = import_module(KERNELS)
        kept = _kernel_modules()
        entry = jit.entry
        try:
            for name in kept:
                del sys.modules[name]
            jit.entry = partial(entry, subdirectory=f"hooks-{fingerprint}")  # type: ignore[assignment]
            for module, name, make in _REPLACED:
                function = getattr(hooks, name)
                if function is not None:
                    _replace(f"{KERNELS}.{module}", make, jit.guest(_plain(function)))
            return import_module(f"{KERNELS}.replay").advance  # type: ignore[no-any-return]
        finally:
            jit.entry = entry
            for name in _kernel_modules():
                del sys.modules[name]
            sys.modules.update(kept)
            for name, module in kept.items():
                setattr(package, name.rpartition(".")[2], module)


def _kernel_modules() -> dict[str, Any]:
    """The kernels' modules as they are imported."""
    return {name: each for name, each in sys.modules.items() if name.startswith(f"{KERNELS}.")}


def _plain(function: Function) -> Function:
    """The Python function behind a compiled one."""
    return getattr(function, "py_func", function)


def _replace(module_name: str, make: Callable[[Any, Any], tuple[str, Any]], hook: Any) -> None:
    """Put a function that asks the hook into a module's place of the kernel's.

    It must be done before others import it from there.
    """
    module = import_module(module_name)
    name, replacement = make(module, hook)
    setattr(module, name, jit.inner(replacement))


def _fallback(module: Any, hook: Any) -> tuple[str, Any]:
    kernel = module.find_fallback
    free_list_at = import_module(f"{KERNELS}.offsets").free_list_at

    def find_fallback(st: np.ndarray, zone: int, order: int, migratetype: int) -> int:
        other = hook(kernel(st, zone, order, migratetype), order, migratetype)
        if other < 0 or other >= at.PCP_TYPES or other == migratetype:
            return -1
        return other if st[free_list_at(zone, order, other) + at.HEAD] >= 0 else -1

    return "find_fallback", find_fallback


def _reserve(module: Any, hook: Any) -> tuple[str, Any]:
    kernel = module.reserve
    zone_at = import_module(f"{KERNELS}.offsets").zone_at

    def reserve(
        pages: np.ndarray,
        blocks: np.ndarray,
        st: np.ndarray,
        log: np.ndarray,
        zone: int,
        cpu: int,
        pfn: int,
        order: int,
    ) -> None:
        region = zone_at(zone)
        reserved = st[region + at.ZONE_RESERVED_HIGHATOMIC]
        if hook(order, reserved, st[region + at.ZONE_MANAGED]):
            kernel(pages, blocks, st, log, zone, cpu, pfn, order)

    return "reserve", reserve


def _refill(module: Any, hook: Any) -> tuple[str, Any]:
    kernel = module.refill_size

    def refill_size(st: np.ndarray, pcp: int, zone: int, order: int) -> int:
        wanted = kernel(st, pcp, zone, order)
        count, high, batch = st[pcp + at.PCP_COUNT], st[pcp + at.PCP_HIGH], st[pcp + at.PCP_BATCH]
        return max(hook(wanted, order, count, high, batch), 1)

    return "refill_size", refill_size


def _drain(module: Any, hook: Any) -> tuple[str, Any]:
    kernel = module.overflow_of_free

    def overflow_of_free(st: np.ndarray, pcp: int, zone: int, order: int) -> int:
        pages = kernel(st, pcp, zone, order)
        count, high, batch = st[pcp + at.PCP_COUNT], st[pcp + at.PCP_HIGH], st[pcp + at.PCP_BATCH]
        wanted = hook(pages, order, count, high, batch)
        return wanted if wanted > 0 else -1

    return "overflow_of_free", overflow_of_free


_REPLACED = (
    ("fallback_search", "fallback", _fallback),
    ("highatomic", "reserve", _reserve),
    ("pcp", "refill", _refill),
    ("pcp", "drain", _drain),
)
"""Module, hook, and what makes the replacement; each module before those that import from it."""
