"""The kernels imported a second time, with functions of another's in place of some of theirs.

The model's own kernels are neither changed nor recompiled: what is imported here is compiled for
itself, kept on disk in a directory of its own, and forgotten by the import system again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from threading import Lock
from typing import Any

from pagealloc_model.base import jit

KERNELS = "pagealloc_model.allocator"
ROOMS = ("core", "ownership", "pressure")
"""Rooms of the kernels: what the event loops are made of."""
LITERAL_LOOP = ("core.replay", "advance")
ELASTIC_LOOP = ("pressure.elastic", "advance_elastic")
"""Module and name of each event loop."""

Replacement = tuple[str, Callable[[Any], dict[str, Callable[..., Any]]]]
"""A module of the kernels, and what makes functions in place of some of that module's, by name."""

_importing = Lock()


def loop_with(
    replacements: Sequence[Replacement], loop: tuple[str, str], subdirectory: str
) -> Callable[..., int]:
    """Return an event loop of kernels some of whose functions are others.

    Args:
        replacements: what is replaced, each module before those that import from it.
        loop: LITERAL_LOOP or ELASTIC_LOOP.
        subdirectory: where its machine code is kept; its name says what is replaced by what.
    """
    with _importing:
        kept = _kernel_modules()
        entry = jit.entry
        try:
            for name in kept:
                del sys.modules[name]
            jit.entry = partial(entry, subdirectory=subdirectory)  # type: ignore[assignment]
            for module_name, make in replacements:
                module = import_module(f"{KERNELS}.{module_name}")
                for name, function in make(module).items():
                    setattr(module, name, jit.inner(function))
            module_name, name = loop
            return getattr(import_module(f"{KERNELS}.{module_name}"), name)  # type: ignore[no-any-return]
        finally:
            jit.entry = entry
            for name in _kernel_modules():
                del sys.modules[name]
            sys.modules.update(kept)
            for name, module in kept.items():
                package, _, last = name.rpartition(".")
                setattr(sys.modules[package], last, module)


def _kernel_modules() -> dict[str, Any]:
    """The kernels' modules as they are imported."""
    rooms = tuple(f"{KERNELS}.{room}." for room in ROOMS)
    return {name: each for name, each in sys.modules.items() if name.startswith(rooms)}
