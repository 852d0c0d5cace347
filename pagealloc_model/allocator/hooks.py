"""Decisions of the model replaced by functions of one's own, without a copy of the package.

The kernels are imported a second time, with the functions in place, and compiled for them alone:
replays without hooks lose nothing. Compiling takes about as long as setting the package up; it is
done once for each combination of functions and each event loop, the literal and the elastic one,
and kept on disk by their fingerprint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

from pagealloc_model.allocator import layout as at
from pagealloc_model.base.jit import cache_directory, function_digest, guest, kernels_with

KERNELS = "pagealloc_model.allocator"
LITERAL_LOOP = ("events", "advance")
ELASTIC_LOOP = ("events", "advance_elastic")
"""Module and name of each event loop."""

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
    kept = cache_directory() / f"hooks-{hooks.fingerprint}"
    return any(kept.glob("events.advance-*"))


def advance_with(hooks: Hooks, loop: tuple[str, str] = LITERAL_LOOP) -> Callable[..., int]:
    """An event loop of kernels with hooks in place; takes what the function that `loop` names does.

    Raises:
        UsageError: a hook has no fingerprint.
    """
    return _imported(hooks, hooks.fingerprint, loop)


@lru_cache(maxsize=8)
def _imported(hooks: Hooks, fingerprint: str, loop: tuple[str, str]) -> Callable[..., int]:
    replacements = []
    for module, name, make in _REPLACED:
        if function := getattr(hooks, name):
            hook = guest(getattr(function, "py_func", function))
            replacements.append((module, partial(make, hook=hook)))
    return kernels_with(KERNELS, replacements, loop, f"hooks-{fingerprint}", keep=(__name__,))


def _fallback(module: Any, hook: Any) -> dict[str, Function]:
    kernel = module.find_suitable_fallback
    free_list_at = import_module(f"{KERNELS}.layout").free_list_at

    def find_suitable_fallback(m: at.Arrays, zone: int, order: int, migratetype: int) -> int:
        other = hook(kernel(m, zone, order, migratetype), order, migratetype)
        if other < 0 or other >= at.PCP_TYPES or other == migratetype:
            return -1
        return other if m.st[free_list_at(zone, order, other) + at.HEAD] >= 0 else -1

    return {"find_suitable_fallback": find_suitable_fallback}


def _reserve(module: Any, hook: Any) -> dict[str, Function]:
    kernel = module.reserve_highatomic_pageblock
    zone_at = import_module(f"{KERNELS}.layout").zone_at

    def reserve_highatomic_pageblock(
        m: at.Arrays, zone: int, cpu: int, pfn: int, order: int
    ) -> None:
        region = zone_at(zone)
        reserved = m.st[region + at.ZONE_RESERVED_HIGHATOMIC]
        if hook(order, reserved, m.st[region + at.ZONE_MANAGED]):
            kernel(m, zone, cpu, pfn, order)

    return {"reserve_highatomic_pageblock": reserve_highatomic_pageblock}


def _refill(module: Any, hook: Any) -> dict[str, Function]:
    kernel = module.nr_pcp_alloc

    def nr_pcp_alloc(m: at.Arrays, pcp: int, zone: int, order: int) -> int:
        wanted = kernel(m, pcp, zone, order)
        count, high = m.st[pcp + at.PCP_COUNT], m.st[pcp + at.PCP_HIGH]
        return max(hook(wanted, order, count, high, m.st[pcp + at.PCP_BATCH]), 1)

    return {"nr_pcp_alloc": nr_pcp_alloc}


def _drain(module: Any, hook: Any) -> dict[str, Function]:
    kernel = module.overflow_of_free

    def overflow_of_free(m: at.Arrays, pcp: int, zone: int, order: int) -> int:
        pages = kernel(m, pcp, zone, order)
        count, high = m.st[pcp + at.PCP_COUNT], m.st[pcp + at.PCP_HIGH]
        wanted = hook(pages, order, count, high, m.st[pcp + at.PCP_BATCH])
        return wanted if wanted > 0 else -1

    return {"overflow_of_free": overflow_of_free}


_REPLACED = (
    ("fallback", "fallback", _fallback),
    ("highatomic", "reserve", _reserve),
    ("pcp", "refill", _refill),
    ("pcp", "drain", _drain),
)
"""Module, hook, and what makes the replacement; each module before those that import from it."""
