"""Entry points kept on disk: machine code for each combination of argument types.

Rests on insides of numba that KNOWN_NUMBA of `settings` have.
"""

from __future__ import annotations

import hashlib
import os
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


class EntryCache(NullCache):
    """An entry point's machine code on disk: a file for each combination of argument types.

    A file begins with the digest of the rest. One that is damaged, or that neither this user nor
    root owns, counts as missing. `stem` makes the beginning of the files' paths; it is asked for on
    first use, when all that the function refers to exists.
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
        file = self._file(sig, target_context)
        try:
            with file.open("rb") as opened:
                owner = os.fstat(opened.fileno()).st_uid
                digest, rest = opened.read(hashlib.sha256().digest_size), opened.read()
        except OSError:
            return None
        if owner not in (0, os.geteuid()) or digest != hashlib.sha256(rest).digest():
            return None
        with suppress(OSError):
            os.utime(file)
        # A hook's module may be gone, or never was one: then it is compiled once more.
        with suppress(ModuleNotFoundError):
            return CompileResult._rebuild(target_context, *pickle.loads(rest))
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled, where that can be written and holds no addresses."""
        if data.library.has_dynamic_globals:
            return
        file, code = self._file(sig, data.target_context), dumps(data._reduce())
        written = file.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                with written.open("xb") as opened:
                    opened.write(hashlib.sha256(code).digest() + code)
                written.replace(file)
            finally:
                written.unlink(missing_ok=True)
