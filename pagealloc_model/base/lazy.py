"""Methods that functions of later rooms carry out."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

PACKAGE = __name__.partition(".")[0]


class LazyMethod:
    """A method that is a function elsewhere in the package, imported when it is first asked for.

    A room imports no later room, yet a user looks for `rec.measure()` at the recording. The
    function's first argument is the object, or its attribute `of`.
    """

    def __init__(self, module: str, function: str, of: str = "") -> None:
        self._module, self._function, self._of = module, function, of

    def __get__(self, instance: Any, owner: type) -> Any:
        function = getattr(import_module(f"{PACKAGE}.{self._module}"), self._function)
        if instance is None:
            return function
        return partial(function, getattr(instance, self._of) if self._of else instance)
