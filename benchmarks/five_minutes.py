"""From a clone to a recording of one's own: seconds of each step, as a newcomer meets them.

Usage: python benchmarks/five_minutes.py [--json]

The checkout is cloned anew, and each step is what README says: install, compile the kernels, a line
on a shipped recording, record this machine for some seconds, look at that, check the model on it.
What the model keeps on disk begins empty, kernels included; packages come from uv's cache where it
has them. Recording needs root and perf; without them the table ends before it.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

PROJECT = Path(__file__).resolve().parent.parent
RECORDED_S = 5
SHIPPED = "highatomic_stock"
STEPS = (
    ("clone", ("git", "clone", "--quiet", "--depth", "1", PROJECT.as_uri(), ".")),
    ("install", ("make", "--silent", "install")),
    ("compile the kernels", ("make", "--silent", "kernels")),
    ("a line on a shipped recording", (".venv/bin/pagealloc", "validate", SHIPPED, "--brief")),
    (
        f"record {RECORDED_S} s",
        (".venv/bin/pagealloc", "record", "-o", "mine", "--seconds", str(RECORDED_S)),
    ),
    ("info", (".venv/bin/pagealloc", "info", "mine")),
    ("validate", (".venv/bin/pagealloc", "validate", "mine")),
)
"""What a step is called, and its command in the clone."""


def measured() -> pd.DataFrame:
    """step, seconds of the clock, CPU seconds; one row per step, and one for all."""
    with tempfile.TemporaryDirectory(prefix="pagealloc-five-minutes-") as folder:
        rows = list(_rows(Path(folder)))
    whole = ("all", sum(row[1] for row in rows), sum(row[2] for row in rows))
    table = pd.DataFrame([*rows, whole], columns=["step", "seconds", "CPU seconds"])
    return table.round({"seconds": 1, "CPU seconds": 1})


def _rows(folder: Path) -> Iterator[tuple[str, float, float]]:
    clone = folder / "clone"
    clone.mkdir()
    environment = {**os.environ, "PAGEALLOC_CACHE": str(folder / "cache")}
    environment.pop("VIRTUAL_ENV", None)
    for words, command in STEPS:
        if words.startswith("record") and not _can_record():
            return
        begun, cpu = time.perf_counter(), _spent()
        done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{words}: {' '.join(command)} failed:\n{done.stderr[-2000:]}")
        yield words, time.perf_counter() - begun, _spent() - cpu


def _can_record() -> bool:
    return os.geteuid() == 0 and shutil.which("perf") is not None


def _spent() -> float:
    """CPU seconds of all commands that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="seconds from a clone to a recording of one's own")
    parser.add_argument("--json", action="store_true")
    in_json = parser.parse_args().json
    rows = measured()
    print(rows.to_json(orient="records", indent=2) if in_json else rows.to_string(index=False))


if __name__ == "__main__":
    main()
