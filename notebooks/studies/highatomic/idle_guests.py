"""Tables of guests with an idle reserve whose snapshots alone were kept.

Usage: python notebooks/studies/highatomic/idle_guests.py reserve DIR
       python notebooks/studies/highatomic/idle_guests.py defer DIR MADVISED CACHE

`reserve`: the reserve over time in the runs of the plan idle_slowpath, finished in DIR. `defer`:
two sides under `defrag=defer`, A without the gate and B with it, in DIR, beside runs of
idle_reserve under `madvise` with their events in MADVISED (A without the gate, E with it), from
which they are predicted; replays are kept in CACHE. Both go to data/experiments.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from pagealloc_model.notebooks.studies.highatomic import idle_reserve_tables as idle
from pagealloc_model.notebooks.studies.highatomic.defer_guests import (
    DEFER,
    MADVISE,
    defer_changes,
    measured_rows,
    predicted_rows,
)
from pagealloc_model.notebooks.studies.highatomic.guest_reserve import (
    reserve_by_run,
    reserve_in_runs,
)


def runs_in(directory: Path, side: str = "") -> list[Path]:
    """Return the recordings of an experiment, of one side if it is named."""
    return sorted(directory.glob(f"runs/{side}*/recording"))


def reserve(directory: Path) -> pd.DataFrame:
    """Write the reserve over time; returns a row a run."""
    runs = {path.parent.name: path for path in runs_in(directory)}
    table = reserve_in_runs(runs)
    print(idle.write_table(idle.SLOWPATH_RESERVE, table))
    return reserve_by_run(table)


def defer(directory: Path, madvised: Path, cache: Path) -> pd.DataFrame:
    """Write every run, measured and predicted; returns the changes."""
    sides = {
        (MADVISE, 0): runs_in(madvised, "A"),
        (MADVISE, 3): runs_in(madvised, "E"),
        (DEFER, 0): runs_in(directory, "A"),
        (DEFER, 3): runs_in(directory, "B"),
    }
    predicted = predicted_rows({gate: sides[MADVISE, gate] for gate in (0, 3)}, cache)
    table = pd.DataFrame([*measured_rows(sides), *predicted])
    print(idle.write_table(idle.DEFER_RUNS, table))
    return defer_changes(table)


def main(what: str, *directories: str) -> None:
    """Print one of the tables."""
    makers = {"reserve": reserve, "defer": defer}
    table = makers[what](*(Path(path) for path in directories))
    print(table.round(3).to_string(index=False))


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("reserve", "defer"):
        print(__doc__)
        sys.exit(2)
    main(*sys.argv[1:])
