"""Finished points on disk: one small file each, named by what the result depends on."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.jit import cache_directory
from pagealloc_model.studies.sweeps.record import Record


class ResultCache:
    """A directory of finished points; any number of processes may use it at a time.

    Args:
        directory: created with the first result.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @classmethod
    def of_this_user(cls) -> ResultCache:
        """The one beside this model's compiled kernels (`PAGEALLOC_CACHE` moves both)."""
        return cls(cache_directory() / "points")

    def load(self, key: str) -> Record | None:
        """A finished point; None if there is none, or its file is damaged."""
        try:
            return Record(**json.loads(self._file(key).read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def store(self, record: Record) -> None:
        """Keep a finished point; its file appears whole or not at all. Failed points are not kept.

        Raises:
            UsageError: it cannot be written.
        """
        if record.error:
            return
        file = self._file(record.key)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            descriptor, partial = tempfile.mkstemp(prefix=".", dir=file.parent)
            with os.fdopen(descriptor, "w", encoding="utf-8") as output:
                json.dump(vars(record), output)
            os.replace(partial, file)
        except OSError as error:
            raise UsageError(
                f"{file.parent}: finished points cannot be kept ({error.strerror}); name another "
                "directory, or set PAGEALLOC_CACHE"
            ) from None

    def _file(self, key: str) -> Path:
        return self.directory / key[:2] / f"{key}.json"


def chosen_cache(chosen: str | Path | bool) -> ResultCache | None:
    """The cache that a caller asks for: a directory, True for the user's own, False for none."""
    if isinstance(chosen, bool):
        return ResultCache.of_this_user() if chosen else None
    return ResultCache(Path(chosen))
