"""What a function computes, as a digest: the same in every process, another one after an edit."""

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

_NUMBERS = (Number, Enum, np.dtype, np.ufunc, numba.types.Type)
_PLAIN = (*_NUMBERS, str, bytes, type(None), type(Ellipsis), type)


def function_digest(function: Callable[..., Any]) -> str:
    """Digest of a function's bytecode, its constants and everything it refers to.

    Names, comments and line numbers do not count; values of globals and of enclosing functions do,
    and functions that are called, as they are now: numba compiles them in. Bytecode is that of the
    Python that runs.

    Args:
        function: plain, or compiled by numba.

    Raises:
        UsageError: it refers to a value that has no identity but its address.
    """
    digest = hashlib.sha256()
    for part in _of_function(function, set()):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _of_function(function: Any, seen: set[int]) -> Iterator[str]:
    plain = getattr(function, "py_func", function)
    if not isinstance(plain, FunctionType):
        raise UsageError(f"{function!r} is no function written in Python, so it has no fingerprint")
    if id(plain) in seen:
        yield "recursion"
        return
    seen.add(id(plain))
    yield from _of_code(plain.__code__, plain.__globals__, seen)
    for cell in plain.__closure__ or ():
        yield from _of_value("a value of the enclosing function", cell.cell_contents, seen)
    yield from _of_value("a default", plain.__defaults__, seen)
    yield from _of_value("a default", sorted((plain.__kwdefaults__ or {}).items()), seen)


def _of_code(code: CodeType, names: dict[str, Any], seen: set[int]) -> Iterator[str]:
    yield f"{code.co_argcount} {code.co_flags} {code.co_code.hex()}"
    yield getattr(code, "co_exceptiontable", b"").hex()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _of_code(constant, names, seen)
        else:
            yield from _of_value("a constant", constant, seen)
    for name in code.co_names:
        yield name
        if name in names:
            yield from _of_value(f"the global {name!r}", names[name], seen)


def _of_value(what: str, value: Any, seen: set[int]) -> Iterator[str]:
    yield type(value).__name__
    if isinstance(value, (np.ndarray, np.generic)):
        yield f"{value.dtype} {value.shape} {value.tobytes().hex()}"
    elif isinstance(value, _PLAIN):
        yield repr(value)
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _of_value(what, each, seen)
        yield "end"
    elif isinstance(value, frozenset):
        yield from sorted(" ".join(_of_value(what, each, seen)) for each in value)
    elif isinstance(value, ModuleType):
        yield value.__name__
    elif callable(value) and isinstance(getattr(value, "py_func", value), FunctionType):
        yield from _of_function(value, seen)
    elif callable(value) and getattr(value, "__module__", None) and hasattr(value, "__name__"):
        yield f"{value.__module__}.{value.__name__}"
    else:
        raise UsageError(
            f"a function refers to {what}, a {type(value).__name__}: numbers, strings, tuples, "
            "arrays and functions make a fingerprint"
        )
