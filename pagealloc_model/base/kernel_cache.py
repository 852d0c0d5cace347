"""Where an entry point's machine code is kept: numba's files, in a directory of our own choice.

numba's own cache forgets a function when any line of its file changes, does not see a change in a
callee of another file, and must know its directory when the function is decorated. Here the
directory's name says it all (see `jit`), and it is asked for on first use. This rests on numba's
insides, as `one_program` does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, NullCache, _CacheLocator
from numba.core.dispatcher import Dispatcher
from numba.core.runtime import rtsys


class _Kept(_CacheLocator):
    """A directory that a fingerprint names: what lies there is never out of date."""

    def __init__(self, directory: Path, file: str) -> None:
        self.directory = directory
        self._py_file = file

    def get_cache_path(self) -> str:
        """The directory."""
        return str(self.directory)

    def get_source_stamp(self) -> str:
        """The fingerprint says it all."""
        return self.directory.name

    def get_disambiguator(self) -> str:
        """No other function is kept in the directory."""
        return "kernel"


class _KeptCache(FunctionCache):
    """numba's files for one function, in a directory of our own.

    Args:
        function: the Python function.
        directory: where the files are; made when the first is written.
    """

    def __init__(self, function: Callable[..., Any], directory: Path) -> None:
        here = _Kept(directory, function.__code__.co_filename)

        class Here(_Kept):
            @classmethod
            def from_function(cls, *_: Any) -> _Kept:
                return here

        class Files(CompileResultCacheImpl):
            _locator_classes = (Here,)

        self._impl_class = Files
        super().__init__(function)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what was compiled for these types, None if nothing was.

        numba would first import all that it can compile (0.4 s); machine code that is there needs
        only its runtime.
        """
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)
        return None

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """The key of numba, and the fields of named tuples, whose types do not tell their order."""
        given = getattr(sig, "args", sig)
        fields = tuple(each.fields for each in given if isinstance(each, types.BaseNamedTuple))
        return fields, super()._index_key(sig, codegen)


class EntryCache(NullCache):
    """The disk cache of an entry point, opened on first use.

    When an entry point is decorated, not all that it refers to exists yet.

    Args:
        function: the Python function.
        directory: makes the directory's name.
    """

    def __init__(self, function: Callable[..., Any], directory: Callable[[], Path]) -> None:
        self._function = function
        self._directory = directory
        self._opened: FunctionCache | None = None

    def _open(self) -> FunctionCache:
        if self._opened is None:
            self._opened = _KeptCache(self._function, self._directory())
        return self._opened

    @property
    def cache_path(self) -> str:
        """Where the files are."""
        return self._open().cache_path  # type: ignore[no-any-return]

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what was compiled for these types, None if nothing was."""
        try:
            return self._open().load_overload(sig, target_context)
        except ModuleNotFoundError:
            # A hook's module may be gone, or never was one: then it is compiled once more.
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled."""
        self._open().save_overload(sig, data)

    def flush(self) -> None:
        """Forget what was compiled."""
        self._open().flush()


def keep(entry_point: Dispatcher, directory: Callable[[], Path]) -> None:
    """Keep an entry point's machine code in a directory that is asked for on first use."""
    entry_point._cache = EntryCache(entry_point.py_func, directory)
