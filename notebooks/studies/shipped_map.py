"""The map of the gate's effect that comes with the package.

Making it takes minutes (`pressure.py map`), so notebooks and documentation read it.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from pagealloc_model.notebooks.studies.gate_effects import gate_effects
from pagealloc_model.notebooks.studies.pressure_map import design, run_map

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.recording import shipped_recordings_directory

FILE = "gate_map.csv"
POINTS = 3
"""Hosts of each load, `defrag` and proactiveness."""
SEEDS = 3


def made_map() -> pd.DataFrame:
    """Effects at all points."""
    hosts = design(POINTS)
    return gate_effects(hosts, run_map(hosts, SEEDS))


def write_map(effects: pd.DataFrame) -> Path:
    """Put a map in place of the one in data/.

    Raises:
        UsageError: there is no data directory.
    """
    path = _path()
    effects.to_csv(path, index=False, float_format="%.6g")
    return path


def shipped_map() -> pd.DataFrame:
    """Effects at all points, as `gate_effects` returns them.

    Raises:
        UsageError: the file was left out of this copy.
    """
    path = _path()
    if not path.is_file():
        raise UsageError(f"{path} is missing; write it with pressure.py map")
    return pd.read_csv(path)


def _path() -> Path:
    data = shipped_recordings_directory()
    if data is None:
        raise UsageError("data/ was left out of this copy; it would hold the map")
    return data / FILE
