"""Functions that kernels call, kept on disk as they were lowered: an edit lowers what it reaches.

An entry point is compiled with all that it calls (see `one_program`), and most of that time is
numba's, for reading, typing and lowering some 250 functions one by one. What a function was lowered
to rests on it and on what it calls, so that it is kept under a digest of both; entry points with
functions in common share it, in this process and in others. Optimising is the entry point's, and
the same as without. This rests on numba's insides, as `one_program` does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from numba import types
from numba.core.caching import NullCache
from numba.core.compiler import compile_result
from numba.core.dispatcher import Dispatcher
from numba.core.environment import Environment
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature

from pagealloc_model.base.kernel_cache import read_kept, write_kept
from pagealloc_model.base.one_program import InnerLibrary, callable_by_kernels

SUFFIX = ".lowered"


@dataclass(frozen=True, eq=False)
class _Lowered:
    """What is kept of a function.

    Attributes:
        bitcode: of its module.
        descriptor: numba's, without types of variables.
        signature: its types.
        calls: module, name and argument types of each function that it calls, in order.
        set_apart: as in `InnerLibrary`.
        direct: as in `InnerLibrary`.
    """

    bitcode: bytes
    descriptor: Any
    signature: Any
    calls: tuple[tuple[str, str, tuple[Any, ...]], ...]
    set_apart: str
    direct: bool


class InnerCache(NullCache):
    """The disk cache of one function that only kernels call.

    Args:
        function: its dispatcher.
        fingerprint: makes a text that names all that the function is compiled from.
        directory: makes the directory that the files lie in.
    """

    def __init__(
        self,
        function: Dispatcher,
        fingerprint: Callable[[Dispatcher], str],
        directory: Callable[[], Path],
    ) -> None:
        self._function = function
        self._fingerprint = fingerprint
        self._directory = directory

    def identity(self, arguments: tuple[Any, ...]) -> str:
        """Return what names the function with these argument types everywhere, "" if nothing can.

        A function that is not found by its name in its module is not kept: another may have its
        name there, or none.
        """
        plain = self._function.py_func
        if _found(plain.__module__, plain.__name__) is not self._function:
            return ""
        if not all(map(_is_plain, arguments)):
            return ""
        fields = tuple(each.fields for each in arguments if isinstance(each, types.BaseNamedTuple))
        words = f"{plain.__module__} {plain.__name__} {arguments} {fields}"
        return sha256(f"{words} {self._fingerprint(self._function)}".encode()).hexdigest()[:24]

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what was lowered for these types, None if nothing was."""
        file = self._file(sig)
        kept: _Lowered | None = None if file is None else read_kept(file)
        # what cannot be restored, for whatever reason, is lowered anew
        with suppress(Exception):
            return None if kept is None else self._restored(kept, target_context)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was lowered, if all that it calls can be found again."""
        file = self._file(sig)
        library = data.library
        calls = tuple(getattr(each, "found_as", None) for each in library._linking_libraries)
        if file is None or None in calls or library._reload_init:
            return
        data.fndesc.typemap = data.fndesc.calltypes = None
        kept = _Lowered(
            bitcode=library._final_module.as_bitcode(),
            descriptor=data.fndesc,
            signature=data.signature,
            calls=calls,
            set_apart=library.set_apart,
            direct=library.direct,
        )
        with suppress(OSError):
            write_kept(file, dumps(kept))

    def _file(self, sig: Any) -> Path | None:
        arguments, _ = normalize_signature(sig)
        identity = self.identity(arguments)
        return self._directory() / f"{identity}{SUFFIX}" if identity else None

    def _restored(self, kept: _Lowered, context: Any) -> Any:
        """The function as numba has it once it is lowered, with all that it calls."""
        library = InnerLibrary(context.codegen(), kept.descriptor.qualname)
        library._final_module = llvm.parse_bitcode(kept.bitcode)
        library.set_apart, library.direct = kept.set_apart, kept.direct
        plain = self._function.py_func
        library.found_as = (plain.__module__, plain.__name__, tuple(kept.signature.args))
        for module, name, arguments in kept.calls:
            callee = _found(module, name)
            callee.compile(arguments)
            library.add_linking_library(callee.overloads[arguments].library)
        library.finalize()
        environment = Environment.from_fndesc(kept.descriptor)
        handle = callable_by_kernels(kept.descriptor, environment, library)
        return compile_result(
            typing_context=context.typing_context,
            target_context=context,
            entry_point=handle,
            typing_error=None,
            type_annotation="",
            library=library,
            call_helper=None,
            signature=kept.signature,
            objectmode=False,
            lifted=(),
            fndesc=kept.descriptor,
            environment=environment,
            metadata={},
            reload_init=[],
        )


def keep(
    function: Dispatcher,
    fingerprint: Callable[[Dispatcher], str],
    directory: Callable[[], Path],
) -> None:
    """Keep what a function is lowered to; see `InnerCache`."""
    cache = InnerCache(function, fingerprint, directory)
    function._cache = cache
    function.identity = cache.identity


def _found(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


def _is_plain(given: Any) -> bool:
    """Whether a type's text tells all about it."""
    if isinstance(given, types.BaseTuple):
        return all(map(_is_plain, given))
    if isinstance(given, types.Array):
        return isinstance(given.dtype, types.Number | types.Boolean | types.Record)
    plain = types.Number | types.Boolean | types.Record | types.NoneType | types.Literal
    return isinstance(given, plain)
