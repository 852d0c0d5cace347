"""Short hashes of arrays and tables, and texts without what differs by machine, path or time."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import pagealloc_model as pm

CHECKOUT = Path(__file__).resolve().parents[2]
DIGITS = 16
EXACT_DIGITS = 12
"""Digits of a float in a text: the last ones depend on how wide the processor adds."""
FLOAT = re.compile(r"-?\d+\.\d{9,}(?:e[+-]?\d+)?")
VARYING = (
    (re.compile(r'("model": )"[0-9a-f]{16}"'), r'\1"FINGERPRINT"'),
    (re.compile(r"\(model [0-9a-f]{16}\)"), "(model FINGERPRINT)"),
    (re.compile(r"[\d,]+ bytes"), "BYTES bytes"),
    (re.compile(r'("seconds": )[\d.e-]+(?=,\s*"finished")'), r"\1SECONDS"),
    (re.compile(r'("key": )"[0-9a-f]{40}"'), r'\1"KEY"'),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?"), "DATE"),
)
"""Patterns of what differs between two runs, and what stands in its place."""


def hash_of_bytes(*parts: bytes) -> str:
    """The first digits of the SHA-256 of byte strings and their lengths."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()[:DIGITS]


def hash_of_array(values: np.ndarray) -> str:
    """Of an array's shape and values; the width of integers does not count."""
    values = np.asarray(values)
    if values.dtype.names:
        return hash_of_bytes(*(_bytes(values[name]) for name in sorted(values.dtype.names)))
    return hash_of_bytes(repr(values.shape).encode(), _bytes(values))


def hash_of_table(table: pd.DataFrame) -> str:
    """Of a table's column names and values, floats exact, and of its index if that has a name."""
    if any(table.index.names):
        table = table.reset_index()
    columns = (_bytes(table.iloc[:, place].to_numpy()) for place in range(table.shape[1]))
    return hash_of_bytes(repr([str(name) for name in table.columns]).encode(), *columns)


def hash_of_value(value: Any) -> str:
    """Of plain values, arrays and tables, nested in any way; a mapping's order does not count."""
    if isinstance(value, pd.DataFrame):
        return hash_of_table(value)
    if isinstance(value, pd.Series):
        return hash_of_table(value.to_frame())
    if isinstance(value, np.ndarray):
        return hash_of_array(value)
    if isinstance(value, Mapping):
        items = sorted((str(key), hash_of_value(each)) for key, each in value.items())
        return hash_of_bytes(repr(items).encode())
    if isinstance(value, (list, tuple)):
        return hash_of_bytes(*(hash_of_value(each).encode() for each in value))
    return hash_of_bytes(_spelled(value).encode())


def _bytes(values: np.ndarray) -> bytes:
    """Values as bytes that say their kind: integers as int64, floats as float64, others as text."""
    kind = values.dtype.kind
    if kind in "iub":
        return b"i" + np.ascontiguousarray(values, np.int64).tobytes()
    if kind == "f":
        return b"f" + np.ascontiguousarray(values, np.float64).tobytes()
    return b"t" + json.dumps([_spelled(each) for each in values.ravel().tolist()]).encode()


def _spelled(value: Any) -> str:
    if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)):
        return "<NA>"
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, str) else repr(value)


def normal_text(text: str, folder: Path | None = None) -> str:
    """A text without the version, paths, dates and the last digits of floats."""
    if folder is not None:
        text = text.replace(str(folder.resolve()), "FOLDER").replace(str(folder), "FOLDER")
    text = text.replace(str(CHECKOUT), "CHECKOUT").replace(str(Path.home()), "HOME")
    text = text.replace(pm.__version__, "VERSION")
    for pattern, stand_in in VARYING:
        text = pattern.sub(stand_in, text)
    text = FLOAT.sub(lambda number: f"{float(number[0]):.{EXACT_DIGITS}g}", text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
