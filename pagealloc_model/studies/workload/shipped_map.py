"""The maps of the gate's effect that come with the package.

Making them takes minutes (`benchmarks/pressure.py map`), so notebooks and README read them.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.recording import shipped_recordings_directory
from pagealloc_model.studies.workload.gate_effects import gate_effects
from pagealloc_model.studies.workload.pressure_map import (
    AXES,
    FAULTS,
    LIGHT_FAULTS,
    NEAR_AXES,
    NEAR_FAULTS,
    Axis,
    design,
    run_map,
)

FILE = "gate_map.csv"
DESIGNS: dict[str, tuple[int, tuple[Axis, ...], tuple[str, ...]]] = {
    "wide": (40, AXES, FAULTS),
    "near": (24, NEAR_AXES, NEAR_FAULTS),
    "light": (24, AXES, LIGHT_FAULTS),
}
"""Points, axes and kinds of fault by name."""
SEEDS = 3


def made_map() -> pd.DataFrame:
    """Effects at all points of both designs, with their design's name in the first column."""
    tables = []
    for name, (points, axes, faults) in DESIGNS.items():
        hosts = design(points, axes, faults)
        effects = gate_effects(hosts, run_map(hosts, SEEDS))
        effects.insert(0, "design", name)
        tables.append(effects)
    return pd.concat(tables, ignore_index=True)


def write_map(effects: pd.DataFrame) -> Path:
    """Put a map in place of the one in data/.

    Raises:
        UsageError: there is no data directory.
    """
    path = _path()
    effects.to_csv(path, index=False, float_format="%.6g")
    return path


def shipped_map(name: str = "wide") -> pd.DataFrame:
    """Effects at the points of one design, as `gate_effects` returns them.

    Args:
        name: "wide", "near" or "light".

    Raises:
        UsageError: no such design, or the file was left out of this copy.
    """
    if name not in DESIGNS:
        raise UsageError(f"no map {name!r}; there are {', '.join(DESIGNS)}")
    path = _path()
    if not path.is_file():
        raise UsageError(f"{path} is missing; write it with python benchmarks/pressure.py map")
    effects = pd.read_csv(path)
    return effects[effects["design"] == name].drop(columns="design").reset_index(drop=True)


def _path() -> Path:
    data = shipped_recordings_directory()
    if data is None:
        raise UsageError("data/ was left out of this copy; it would hold the map")
    return data / FILE
