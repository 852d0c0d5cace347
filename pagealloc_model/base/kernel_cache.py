"""Machine code on disk: files of our own, checked before use.

numba's own cache forgets a function when any line of its file changes, does not see a change in a
callee of another file, must know its directory when the function is decorated, and fails on a
damaged file. Here the file's name says what it rests on (see `jit`), and it is asked for on first
use. This rests on numba's insides, as `one_program` does.
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

SUFFIX = ".kernel"
"""Of a file with an entry point's machine code."""


class EntryCache(NullCache):
    """An entry point's machine code on disk: a file for each combination of argument types.

    A file begins with the digest of the rest. One that is damaged, or that neither this user nor
    root owns, counts as missing.

    Args:
        function: the Python function.
        stem: makes the beginning of the files' paths, which says what the machine code rests on;
            asked for on first use, when all that the function refers to exists.
    """

    def __init__(self, function: Callable[..., Any], stem: Callable[[], Path]) -> None:
        self.function = function
        self._stem = stem

    def _file(self, sig: Any, context: Any) -> Path:
        given = getattr(sig, "args", sig)
        # The name of a named tuple's type does not tell the order of its fields.
        fields = [each.fields for each in given if isinstance(each, types.BaseNamedTuple)]
        key = f"{[str(each) for each in given]} {fields} {context.codegen().magic_tuple()}"
        stem = self._stem()
        return stem.with_name(
            f"{stem.name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}{SUFFIX}"
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what was compiled for these types, None if nothing was.

        numba would first import all that it can compile (0.4 s); machine code that is there needs
        only its runtime.
        """
        rtsys.initialize(target_context)
        kept = read_kept(self._file(sig, target_context))
        # A hook's module may be gone, or never was one: then it is compiled once more.
        with suppress(ModuleNotFoundError):
            return None if kept is None else CompileResult._rebuild(target_context, *kept)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled, where that can be written and holds no addresses."""
        if not data.library.has_dynamic_globals:
            with suppress(OSError):
                write_kept(self._file(sig, data.target_context), dumps(data._reduce()))


def read_kept(file: Path) -> Any:
    """What a file keeps, None if it is missing, damaged or another user's; it counts as used."""
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
    with suppress(ModuleNotFoundError):
        return pickle.loads(rest)
    return None


def write_kept(file: Path, data: bytes) -> None:
    """Put a file in place at once."""
    file.parent.mkdir(parents=True, exist_ok=True)
    written = file.with_suffix(f".{os.getpid()}")
    try:
        with written.open("xb") as opened:
            opened.write(hashlib.sha256(data).digest() + data)
        written.replace(file)
    finally:
        written.unlink(missing_ok=True)
