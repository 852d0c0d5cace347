"""What numba finds out about types again and again, remembered while kernels are compiled.

Which of numba's implementations `a + b` or `array[index]` has for given types rests on the types
and on how it compiles. It asks some eight of them in turn, for each of ten thousand places of the
event loop, once for the types and again to lower it. For each function it also looks whether more
can be compiled than for the last one. This rests on numba's insides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from numba.core import base
from numba.core.targetconfig import ConfigStack
from numba.core.types import Dispatcher, Module
from numba.core.types.functions import BaseFunction
from numba.core.typing.context import BaseContext

_ways: dict[Any, int] = {}
"""Numbers of ways to compile: of numba's flags."""
_calls: dict[tuple[Any, ...], Any] = {}
"""Signature by way to compile, and by numba's numbers of types, which it never gives twice."""
_attributes: dict[tuple[int, str], Any] = {}
"""Type of an attribute by the number of the type that has it."""


class _Now:
    """How the function is compiled that is compiled now: numba's flags, and their number."""

    flags: Any = None
    way = 0


@contextmanager
def remembered_types(is_kernel: Callable[[Any], bool]) -> Iterator[None]:
    """Remember types while a kernel's function is compiled; numba's own functions are not.

    Args:
        is_kernel: whether a dispatcher is that of a kernel, which has one type.
    """
    before = _Now.flags, _Now.way
    _Now.flags = ConfigStack.top_or_none()
    _Now.way = _ways.setdefault(_Now.flags.copy(), len(_ways))
    try:
        if before[0] is None:
            with _replaced(is_kernel):
                yield
        else:
            yield
    finally:
        _Now.flags, _Now.way = before


@contextmanager
def _replaced(is_kernel: Callable[[Any], bool]) -> Iterator[None]:
    functions = BaseFunction.get_call_type, Dispatcher.get_call_type
    attributes, has_loc = BaseContext.resolve_getattr, base._has_loc
    BaseFunction.get_call_type = _call_types(functions[0], lambda _: True)
    Dispatcher.get_call_type = _call_types(functions[1], lambda of: is_kernel(of.dispatcher))
    BaseContext.resolve_getattr = _attribute_types(attributes)
    base._has_loc = cache(has_loc)
    try:
        yield
    finally:
        BaseFunction.get_call_type, Dispatcher.get_call_type = functions
        BaseContext.resolve_getattr, base._has_loc = attributes, has_loc


@contextmanager
def nothing_new(*contexts: Any) -> Iterator[None]:
    """Let numba's contexts not look whether more can be compiled than before."""
    for each in contexts:
        each.refresh = _nothing
    try:
        yield
    finally:
        for each in contexts:
            del each.refresh


def _nothing() -> None:
    pass


def _call_types(asked: Callable[..., Any], remembers: Callable[[Any], bool]) -> Callable[..., Any]:
    def get_call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
        if ConfigStack.top_or_none() is not _Now.flags or not remembers(self):
            return asked(self, context, args, kws)
        named = tuple((name, kind._code) for name, kind in kws.items())
        key = (_Now.way, self._code, named, *[kind._code for kind in args])
        if key not in _calls:
            _calls[key] = asked(self, context, args, kws)
        return _calls[key]

    return get_call_type


def _attribute_types(asked: Callable[..., Any]) -> Callable[..., Any]:
    def resolve_getattr(self: Any, typ: Any, attr: str) -> Any:
        if isinstance(typ, Module):
            return asked(self, typ, attr)
        key = typ._code, attr
        if key not in _attributes:
            _attributes[key] = asked(self, typ, attr)
        return _attributes[key]

    return resolve_getattr
