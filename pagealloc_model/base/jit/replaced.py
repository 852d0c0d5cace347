"""Kernels imported a second time, with functions of one's own in place of some of theirs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from threading import Lock
from typing import Any

from pagealloc_model.base.jit.options import inner, kept_in

Replacement = tuple[str, Callable[[Any], dict[str, Callable[..., Any]]]]
"""A module of the kernels, and what makes functions in place of some of that module's, by name."""

_importing = Lock()


def kernels_with(
    package: str,
    replacements: Sequence[Replacement],
    function: tuple[str, str],
    subdirectory: str,
    keep: tuple[str, ...] = (),
) -> Callable[..., Any]:
    """Return a function of kernels some of whose functions are others.

    Kernels that are imported already stay as they are.

    Args:
        package: its modules are the kernels.
        replacements: each module before those that import from it.
        function: module and name of what is returned.
        subdirectory: of the kept machine code.
        keep: modules of the package that are not imported anew.
    """
    with _importing, _imported_anew(package, keep), kept_in(subdirectory):
        for module_name, make in replacements:
            module = import_module(f"{package}.{module_name}")
            for name, replacement in make(module).items():
                setattr(module, name, inner(replacement))
        module_name, name = function
        return getattr(import_module(f"{package}.{module_name}"), name)  # type: ignore[no-any-return]


@contextmanager
def _imported_anew(package: str, keep: tuple[str, ...]) -> Iterator[None]:
    """Let the package's modules be imported again, and put the present ones back."""
    before = _modules(package, keep)
    try:
        for name in before:
            del sys.modules[name]
        yield
    finally:
        for name in _modules(package, keep):
            del sys.modules[name]
        sys.modules.update(before)
        for name, module in before.items():
            setattr(sys.modules[package], name.rpartition(".")[2], module)


def _modules(package: str, keep: tuple[str, ...]) -> dict[str, Any]:
    return {
        name: module
        for name, module in sys.modules.items()
        if name.rpartition(".")[0] == package
        and not hasattr(module, "__path__")
        and name not in keep
    }
