"""The parts of the golden results, and the surroundings in which all of them run."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.golden.expected_results import Outcome, shortened

PARTS = {
    "recordings": "tests.golden.recordings",
    "replay": "tests.golden.replays",
    "commands": "tests.golden.commands",
    "figures": "tests.golden.figures",
    "notebooks": "tests.golden.notebooks",
}
"""Modules of parts.

`cases` and `QUICK_CASES` are names, `run` gives a case's outcome. With `BY_RECORDING`, cases share
work by recording, their first word.
"""
COMPILED = ("kernels", "functions")
"""What may be taken from the user's own cache; all else there could hide a change."""
SURROUNDINGS = {"COLUMNS": "80", "PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8"}


def module_of(part: str) -> Any:
    return import_module(PARTS[part])


def chosen_cases(
    part: str, only: str | None = None, *, full: bool = False, quick: bool = False
) -> list[str]:
    """Cases of a part whose name holds some words."""
    module = module_of(part)
    cases = getattr(module, "QUICK_CASES", []) if quick else module.cases(full)
    return [case for case in cases if only is None or only in case]


@contextmanager
def alone() -> Iterator[None]:
    """An environment of its own, with a cache that holds compiled kernels and nothing else."""
    before = dict(os.environ)
    own = Path(before.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pagealloc_model"
    base = Path(before.get("PAGEALLOC_CACHE") or own)
    with tempfile.TemporaryDirectory(prefix="golden-cache-") as made:
        for name in COMPILED:
            (base / name).mkdir(parents=True, exist_ok=True)
            (Path(made) / name).symlink_to((base / name).resolve())
        os.environ.update(SURROUNDINGS, PAGEALLOC_CACHE=made)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


@contextmanager
def _no_point_known() -> Iterator[None]:
    """Finished points of sweeps in a place of its own: a case's are not known to the next."""
    from pagealloc_model.sweeps import records

    with (
        tempfile.TemporaryDirectory(prefix="golden-points-") as made,
        patch.object(records, "cache_directory", lambda: Path(made)),
    ):
        yield


def outcomes(part: str, cases: Sequence[str]) -> dict[str, Outcome]:
    found = {}
    for case in cases:
        try:
            with _no_point_known():
                outcome = module_of(part).run(case)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{where.filename.rpartition('/')[2]}:{where.lineno}"
            outcome = {"failed": f"{type(error).__name__} at {place}: {error}".replace("\n", " ")}
        found[case] = shortened(outcome)
    return found
