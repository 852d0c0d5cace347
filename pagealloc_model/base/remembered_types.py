"""What numba finds out about types of calls, remembered: kernels ask the same thousands of times.

Which of numba's implementations `a + b` or `array[index]` has for given types rests on the types
and on how it compiles. It asks some eight of them in turn, for each of ten thousand places of the
event loop, once for the types and again to lower it. This rests on numba's insides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core.targetconfig import ConfigStack
from numba.core.types import Dispatcher
from numba.core.types.functions import BaseFunction

_FOUND = "_found_for_kernels"
_ways: dict[Any, int] = {}
"""Numbers of ways to compile: of numba's flags."""


class _Now:
    """How the function is compiled that is compiled now: numba's flags, and their number."""

    flags: Any = None
    way = 0


@contextmanager
def remembered_types(is_kernel: Callable[[Any], bool]) -> Iterator[None]:
    """Remember types of calls while a kernel's function is compiled; numba's own are not.

    Args:
        is_kernel: whether a dispatcher is that of a kernel, which has one type.
    """
    before = _Now.flags, _Now.way, BaseFunction.get_call_type, Dispatcher.get_call_type
    _Now.flags = ConfigStack.top_or_none()
    _Now.way = _ways.setdefault(_Now.flags.copy(), len(_ways))
    if before[0] is None:
        BaseFunction.get_call_type = _remembering(before[2], lambda _: True)
        Dispatcher.get_call_type = _remembering(before[3], lambda of: is_kernel(of.dispatcher))
    try:
        yield
    finally:
        _Now.flags, _Now.way, BaseFunction.get_call_type, Dispatcher.get_call_type = before


def _remembering(asked: Callable[..., Any], remembers: Callable[[Any], bool]) -> Callable[..., Any]:
    def get_call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
        if ConfigStack.top_or_none() is not _Now.flags or not remembers(self):
            return asked(self, context, args, kws)
        found = self.__dict__.setdefault(_FOUND, {})
        named = tuple((name, kind._code) for name, kind in kws.items())
        key = (_Now.way, named, *[kind._code for kind in args])
        if key not in found:
            found[key] = asked(self, context, args, kws)
        return found[key]

    return get_call_type
