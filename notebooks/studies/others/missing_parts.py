"""Costs in accuracy of each lack of a recording: parts of shipped ones are left out.

Usage: python notebooks/studies/others/missing_parts.py
(`make readme` writes the table into docs/formats.md)

Left out is what the replay would begin with; later snapshots stay whole, since errors are scored by
them.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from pagealloc_model.notebooks.studies.others.error_lines import short_cell

import pagealloc_model as pm
from pagealloc_model.recording.recorded_machine import start_snapshots

RECORDINGS = ("kbuild", "xfree", "highatomic_stock", "matrix_A1")
FLAGS, TYPES, BUDDIES = "kpageflags", "pagetypeinfo", "buddyinfo"
LACKS: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "kpageflags": (FLAGS,),
    "kpageflags, pagetypeinfo": (FLAGS, TYPES),
    "all but zoneinfo": (FLAGS, TYPES, BUDDIES),
}
METRICS = {
    "free_pages": "free pages",
    "order_distribution_tv": "orders",
    "refill_transactions": "refills",
    "drain_transactions": "drains",
}


def errors() -> pd.DataFrame:
    """Errors of literal replays, with the null model's, a row for each recording and lack."""
    rows = []
    for name in RECORDINGS:
        for lack, parts in LACKS.items():
            with tempfile.TemporaryDirectory() as directory:
                part = _without(pm.open(name), parts, Path(directory) / name)
                validation = pm.validate(part, assumptions=pm.Assumptions(reclaim="literal"))
            table = validation.errors.set_index("metric")
            cells = {title: short_cell(table.loc[[metric]]) for metric, title in METRICS.items()}
            rows.append({"recording": name, "left out": lack, **cells})
    return pd.DataFrame(rows)


def _without(recording: pm.Recording, parts: tuple[str, ...], place: Path) -> pm.Recording:
    """A copy of a recording whose start lacks some files."""
    shutil.copytree(recording.path, place)
    for file in _files_of_start(recording, parts):
        (place / file.relative_to(recording.path)).unlink()
    return pm.open(place)


def _files_of_start(recording: pm.Recording, parts: tuple[str, ...]) -> Iterator[Path]:
    """Files of these kinds that the replay would begin with."""
    if FLAGS in parts:
        yield from recording.path.glob(f"{FLAGS}*")
    last = max(snapshot.time_ns for snapshot in start_snapshots(recording))
    for snapshot in recording.dated_snapshots:
        if snapshot.time_ns <= last:
            yield from (file for part in parts for file in snapshot.directory.glob(part))


if __name__ == "__main__":
    print(errors().to_string(index=False))
