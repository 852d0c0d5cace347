"""Methods that functions of other rooms carry out."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

PACKAGE = __name__.partition(".")[0]


class CarriedOut:
    """A method that is a function elsewhere in the package, imported when it is first asked for.

    A room imports no later room, yet a user looks for `rec.measure()` at the recording. So the
    class says by name where the function is, as in `CarriedOut("measured.measured", "measure")`.
    The function's first argument is the object; the others, and its docstring, are the method's.
    """

    def __init__(self, module: str, function: str, of: str = "") -> None:
        """Name a function.

        Args:
            module: where it is, below this package.
            function: its name.
            of: attribute of the object that the function takes in place of the object, "" for none.
        """
        self._module = module
        self._function = function
        self._of = of

    def __get__(self, instance: Any, owner: type) -> Any:
        """Return the function, with the object as its first argument if there is one."""
        function = getattr(import_module(f"{PACKAGE}.{self._module}"), self._function)
        if instance is None:
            return function
        return partial(function, getattr(instance, self._of) if self._of else instance)
