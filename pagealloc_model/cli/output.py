"""Results to stdout and to files that appear whole or not at all."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagealloc_model.base.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd


def json_text(value: object) -> str:
    """JSON with NA and NaN as null, and NumPy numbers as numbers."""
    return json.dumps(_plain(value), indent=1, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    import pandas as pd

    return None if value is pd.NA or value is pd.NaT else str(value)


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A table as JSON-ready rows."""
    return [_plain(row) for row in table.to_dict("records")]


def write_directory(directory: Path, files: Mapping[str, str]) -> None:
    """Write files into a new directory, which appears under its name once all are written.

    Args:
        directory: must not exist, or be empty.
        files: text by file name.

    Raises:
        UsageError: the directory has files already, or cannot be made.
    """
    with new_directory(directory) as partial:
        for name, text in files.items():
            (partial / name).write_text(text, encoding="utf-8")


@contextmanager
def new_directory(directory: Path) -> Iterator[Path]:
    """A directory to write into, which appears under its name once the block has ended well.

    Args:
        directory: must not exist, or be empty.

    Yields:
        The same under another name.

    Raises:
        UsageError: the directory has files already, or cannot be made or written.
    """
    directory = directory.absolute()
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory}: exists and is not empty; name another directory with -o")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    except OSError as error:
        raise UsageError(f"{directory}: cannot be made ({error.strerror})") from None
    try:
        yield partial
        partial.chmod(0o777 & ~_umask())
        partial.rename(directory)
    except OSError as error:
        raise UsageError(f"{directory}: cannot be written ({error.strerror})") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _umask() -> int:
    """The process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
