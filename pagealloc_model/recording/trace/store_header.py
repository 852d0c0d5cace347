"""What the header of a columnar store says: its version, what it was made from, what is in it.

A store is one Arrow file. Each field of its schema is one column of a Trace, a list, which a row
continues: the n-th row holds the n-th piece of every column that is that long. So columns of
different lengths lie in one file, and each can be read alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pagealloc_model.base.compressed import first_bytes
from pagealloc_model.recording.trace.columns import COLUMN_TYPES

STORE_VERSION = 1
MAGIC = b"ARROW1"
HEADER_KEY = b"pagealloc_model"

CALLCHAINS = "callchains"
COMMS = "comms"
LOSSES = "losses"
TABLES = "tables"
THREAD_NAMES = "thread_names"
SAMPLED = "sampled"
LOSS_COLUMNS = ("cpu", "start_ns", "end_ns", "count", "event")
COMM_COLUMNS = ("tid", "name")
THREAD_NAME_COLUMNS = ("time_ns", "tid", "parent", "name")
KNOWN_FIELDS = (
    "gfp_bits",
    "gfp_from_format",
    "declared_types",
    "release",
    "nr_cpus",
    "clock",
    "notes",
    SAMPLED,
)
"""Fields of a Trace that stand in the header itself."""


@dataclass(frozen=True, kw_only=True)
class StoreSource:
    """The event file that a store was made from.

    Attributes:
        file: its name without directories.
        size: its bytes.
        sha256: of its content, in hexadecimal.
    """

    file: str
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class StoreHeader:
    """The header of a store.

    Attributes:
        package: version of the package that wrote it.
        written_at: when, UTC, ISO 8601.
        source: what it was made from, None for a part of another store.
        compressed: whether columns must be unpacked, and come in pieces.
        lengths: values in each column, by field name.
        trace: the fields of the Trace that are no columns, JSON values.
        losses_at_end: `Losses.at_end`.
    """

    package: str
    written_at: str
    source: StoreSource | None
    compressed: bool
    lengths: Mapping[str, int]
    trace: Mapping[str, Any]
    losses_at_end: int = 0
    version: int = field(default=STORE_VERSION)

    def to_json(self) -> bytes:
        """As it stands in the file."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def from_json(text: bytes) -> StoreHeader:
        """Read it back.

        Raises:
            ValueError: it is damaged, of another version, or its columns disagree in length.
        """
        words = json.loads(text)
        version = words.get("version") if isinstance(words, dict) else None
        if not isinstance(version, int):
            raise ValueError("its header names no version")
        if version != STORE_VERSION:
            raise ValueError(f"its columns are of layout {version}, not {STORE_VERSION}")
        try:
            source = words.pop("source")
            header = StoreHeader(**words, source=StoreSource(**source) if source else None)
            if set(header.trace) | {SAMPLED} != set(KNOWN_FIELDS):  # older stores are complete
                raise ValueError("its header lacks a part")
            _check_lengths(header.lengths)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"its header is damaged ({error})") from None
        return header


def is_store(path: Path) -> bool:
    """Whether a file begins as a store does.

    Raises:
        RecordingError: it cannot be read.
    """
    return first_bytes(path, len(MAGIC)) == MAGIC


def group_of(name: str) -> str:
    """The group of columns of one length that a field belongs to, "" for the main columns."""
    if name in COLUMN_TYPES:
        return ""
    return name if name == CALLCHAINS else name.rpartition("/")[0]


def columns_of(group: str, names: Iterable[str]) -> dict[str, str]:
    """Column name -> field name, of the fields in a group."""
    return {name.rpartition("/")[2]: name for name in names if group_of(name) == group}


def _check_lengths(lengths: Mapping[str, int]) -> None:
    first: dict[str, str] = {}
    for name, length in lengths.items():
        known = first.setdefault(group_of(name), name)
        if lengths[known] != length:
            raise ValueError(f"column {name} has {length} rows, {known} has {lengths[known]}")
