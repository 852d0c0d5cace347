"""Digests of what functions compute: the same in every process, another one after an edit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from enum import Enum
from numbers import Number
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numba
import numpy as np

from pagealloc_model.base.errors import UsageError

_PLAIN = (
    *(Number, Enum, np.dtype, np.ufunc, numba.types.Type),
    *(str, bytes, type(None), type(Ellipsis), type),
)
_KNOWN_BY_VERSION = ("llvmlite", "math", "numba", "numpy", "operator")
"""Packages that nobody edits between two versions."""


def function_digest(
    function: Callable[..., Any], compiled_as: Callable[[Any], str] = lambda _: ""
) -> str:
    """Digest of a function's bytecode, its constants and everything it refers to, as it is now.

    Names, docstrings, comments and line numbers do not count.

    Args:
        function: plain, or compiled by numba.
        compiled_as: what else counts of each function that is reached, such as its jit options.

    Raises:
        UsageError: it refers to a value that has no identity but its address.
    """
    parts = _Walk(compiled_as).of_function(function)
    return hashlib.sha256("".join(f"{part}\0" for part in parts).encode()).hexdigest()


def _plain(function: Any) -> Any:
    """The Python function that numba compiles, or that makes an intrinsic's code."""
    if isinstance(function, FunctionType):
        return function
    return getattr(function, "py_func", getattr(function, "__wrapped__", function))


class _Walk:
    """A walk from one function through all that it refers to; its methods yield what counts."""

    def __init__(self, compiled_as: Callable[[Any], str]) -> None:
        self.compiled_as = compiled_as
        self.seen: dict[int, int] = {}

    def of_function(self, function: Any) -> Iterator[str]:
        plain = _plain(function)
        if not isinstance(plain, FunctionType):
            raise UsageError(
                f"{function!r} is no function written in Python, so it has no fingerprint"
            )
        if id(plain) in self.seen:
            yield f"function {self.seen[id(plain)]} again"
            return
        self.seen[id(plain)] = len(self.seen)
        yield self.compiled_as(function)
        yield from self.of_code(plain.__code__, plain.__globals__, plain.__doc__)
        for cell in plain.__closure__ or ():
            yield from self.of_value("a value of the enclosing function", cell.cell_contents)
        yield from self.of_value("a default", plain.__defaults__)
        yield from self.of_value("a default", sorted((plain.__kwdefaults__ or {}).items()))

    def of_code(
        self, code: CodeType, names: dict[str, Any], docstring: str | None
    ) -> Iterator[str]:
        yield f"{code.co_argcount} {code.co_flags} {code.co_code.hex()}"
        yield getattr(code, "co_exceptiontable", b"").hex()
        for position, constant in enumerate(code.co_consts):
            if isinstance(constant, CodeType):
                yield from self.of_code(constant, names, None)
            elif position or docstring is None or constant != docstring:
                yield from self.of_value("a constant", constant)
        for name in code.co_names:
            yield name
            if name in names:
                value = names[name]
                if isinstance(value, ModuleType):
                    yield from self.of_module(value, code.co_names, ())
                else:
                    yield from self.of_value(f"the global {name!r}", value)

    def of_module(
        self, module: ModuleType, names: tuple[str, ...], within: tuple[ModuleType, ...]
    ) -> Iterator[str]:
        """Code with such names may take these from a module."""
        yield module.__name__
        if module.__name__.partition(".")[0] in _KNOWN_BY_VERSION or module in within:
            return
        for name in names:
            value = vars(module).get(name, module)
            if value is module:
                continue
            yield name
            if isinstance(value, ModuleType):
                yield from self.of_module(value, names, (*within, module))
            else:
                yield from self.of_value(f"{module.__name__}.{name}", value)

    def of_value(self, what: str, value: Any) -> Iterator[str]:
        yield type(value).__name__
        if isinstance(value, (np.ndarray, np.generic)):
            yield f"{value.dtype} {value.shape} {value.tobytes().hex()}"
        elif isinstance(value, _PLAIN):
            yield f"{value!r} {getattr(value, '_fields', '')}"
        elif isinstance(value, (tuple, list)):
            for item in value:
                yield from self.of_value(what, item)
            yield "end"
        elif isinstance(value, frozenset):
            yield from sorted(" ".join(self.of_value(what, item)) for item in value)
        elif isinstance(value, ModuleType):
            yield value.__name__
        elif callable(value) and isinstance(_plain(value), FunctionType):
            yield from self.of_function(value)
        elif callable(value) and getattr(value, "__module__", None) and hasattr(value, "__name__"):
            yield f"{value.__module__}.{value.__name__}"
        else:
            raise UsageError(
                f"a function refers to {what}, a {type(value).__name__}: numbers, strings, tuples, "
                "arrays and functions make a fingerprint"
            )
