"""Tables as Parquet files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pandas as pd

from pagealloc_model.base.errors import UsageError


def write_parquet(table: pd.DataFrame, path: str | Path) -> None:
    """Write a table under a temporary name, then give it its own.

    Args:
        table: without an index of its own.
        path: replaced if it exists.

    Raises:
        UsageError: it cannot be written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as directory:
            partial = Path(directory) / path.name
            table.to_parquet(partial, index=False)
            os.replace(partial, path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror or error})") from None
