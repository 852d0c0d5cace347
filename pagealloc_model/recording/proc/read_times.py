"""read_ns.json of a snapshot: when each of its state files was read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.given_file import json_of

READ_TIMES_FILE = "read_ns.json"

_TODO = "restore the file, or delete it to take the time at which the snapshot began"

ReadTimes = Mapping[str, tuple[int, int]]
"""File name -> CLOCK_MONOTONIC in ns before it was opened and after its last byte was read."""


def format_read_times(times: ReadTimes) -> str:
    """Return the text that `parse_read_times` reads."""
    return json.dumps({name: list(span) for name, span in times.items()}) + "\n"


def parse_read_times(text: str, path: Path) -> ReadTimes:
    """Read the times of a snapshot's files.

    Args:
        text: the file's content.
        path: where it is, for errors.

    Raises:
        RecordingError: it is no JSON object of pairs of times in order.
    """
    content = json_of(text, path, todo=_TODO)
    if not isinstance(content, dict):
        raise _odd(path, "is not a JSON object")
    for name, span in content.items():
        if not (
            isinstance(span, list)
            and len(span) == 2
            and all(type(each) is int for each in span)
            and 0 <= span[0] <= span[1] < 1 << 63
        ):
            raise _odd(path, f"{name!r} has no two times in ns, the earlier one first")
    return {name: (span[0], span[1]) for name, span in content.items()}


def _odd(path: Path, what: str) -> RecordingError:
    return RecordingError(path, what, todo=_TODO)
