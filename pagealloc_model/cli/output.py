"""Results to stdout and to files that appear whole or not at all."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagealloc_model.base.new_directory import new_directory as new_directory

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
