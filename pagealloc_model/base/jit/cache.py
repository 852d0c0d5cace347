"""Entry points kept on disk: machine code for each combination of argument types.

Rests on insides of numba that KNOWN_NUMBA of `settings` have.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from numba import types
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from pagealloc_model.base.jit.sealed import is_own_directory, read_sealed, write_sealed


class EntryCache(NullCache):
    """An entry point's machine code on disk: a file for each combination of argument types.

    A file that is damaged, or that somebody else may have written, counts as missing (`sealed`).
    `stem` makes the beginning of the files' paths; it is asked for on first use, when all that the
    function refers to exists.
    """

    def __init__(self, function: Callable[..., Any], stem: Callable[[], Path]) -> None:
        self.function = function
        self._stem = stem

    def _file(self, sig: Any, context: Any) -> Path:
        kinds = getattr(sig, "args", sig)
        # The name of a named tuple's type does not tell the order of its fields.
        fields = [kind.fields for kind in kinds if isinstance(kind, types.BaseNamedTuple)]
        key = f"{[str(kind) for kind in kinds]} {fields} {context.codegen().magic_tuple()}"
        stem = self._stem()
        return stem.with_name(f"{stem.name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.kernel")

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The code compiled for these types, or None; its file counts as used.

        numba would first import all that it can compile (0.4 s); this needs only its runtime.
        """
        rtsys.initialize(target_context)
        code = read_sealed(self._file(sig, target_context))
        if code is None:
            return None
        # A hook's module may be gone, or never was one: then it is compiled once more.
        with suppress(ModuleNotFoundError):
            return CompileResult._rebuild(target_context, *pickle.loads(code))
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled, where that can be written and holds no addresses."""
        if data.library.has_dynamic_globals:
            return
        file = self._file(sig, data.target_context)
        if is_own_directory(file.parent):
            with suppress(OSError):
                write_sealed(file, dumps(data._reduce()))
