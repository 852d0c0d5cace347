"""What a user waits for: opening, the first picture, another policy, validating, a sweep.

Usage: python benchmarks/waits.py [RECORDING ...] [--json]

Each step is a process of its own, as a user starts it; kernels, and Python's byte code, are
compiled before.
Seconds of the clock count; CPU seconds stand beside, for machines on which others run. `reading` is
the peer: what one pass over the event file takes, without starting Python.
"""

from __future__ import annotations

import argparse
import compileall
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

import pagealloc_model as pm
from pagealloc_model.base import jit
from pagealloc_model.cli.compile_kernels import KERNELS, compile_kernel

LARGE, SHIPPED = "exit", "kbuild"
POINTS = 100

_PICTURE = """
import sys
import pagealloc_model as pm
pm.explore(pm.open(sys.argv[1]))
"""
_SWEEP = """
import sys
import pagealloc_model as pm
pm.sweep([pm.open(sys.argv[1])], {"pcp_batch": range(1, int(sys.argv[2]) + 1)}, cache=False)
"""
_POLICY = """
import sys, time
import pagealloc_model as pm
recording = pm.open(sys.argv[1])
pm.replay(recording)
def spent():
    return time.perf_counter(), time.process_time()
found = []
for batch in (31, 15, 7):
    begun = spent()
    replay = pm.replay(recording, pm.Policy(pcp_batch=batch))
    for table in ("free_pages", "pageblocks", "pcp", "lock", "transactions", "fallbacks"):
        getattr(replay, table)
    found.append([late - early for early, late in zip(begun, spent())])
print(*min(found))
"""
_READ = """
import sys, time
from pagealloc_model.recording.event_files import read_events
from pathlib import Path
read_events(Path(sys.argv[2]))
begun = time.perf_counter(), time.process_time()
read_events(Path(sys.argv[1]))
print(time.perf_counter() - begun[0], time.process_time() - begun[1])
"""
_CLI = ("-m", "pagealloc_model.cli")
STEPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("open", "pagealloc info R", (*_CLI, "info", "R")),
    ("first picture", "pm.explore(pm.open(R))", ("-c", _PICTURE, "R")),
    ("validate", "pagealloc validate R", (*_CLI, "validate", "R")),
    (f"sweep of {POINTS} points", "pm.sweep([R], ...)", ("-c", _SWEEP, "R", str(POINTS))),
)
"""What a step is called, what a user types, and the command; R stands for the recording."""


def measured(paths: Sequence[str] = ()) -> pd.DataFrame:
    """Seconds of each step on each recording.

    Returns:
        recording, events, step, command, `s` of the clock and `CPU s`.
    """
    for name in KERNELS:
        compile_kernel(name)
    compileall.compile_dir(Path(pm.__file__).parent, quiet=1)
    rows = [row for path in paths or (default_recording(),) for row in _rows(path)]
    return pd.DataFrame(rows)


def default_recording() -> str:
    """Return the recording of a million events, or the largest that ships."""
    full = Path(os.environ.get("PAGEALLOC_RECORDINGS", "")) / LARGE
    return str(full) if full.exists() else SHIPPED


def _rows(path: str) -> list[dict[str, object]]:
    recording = pm.open(path)
    about = {"recording": recording.name, "events": len(recording.trace)}
    events = (str(recording.event_file), str(pm.open("xfree").event_file))
    with tempfile.TemporaryDirectory(prefix="pagealloc-waits-") as folder:
        cache = Path(folder)
        kept = jit.kernels_directory()
        (cache / kept.name).symlink_to(kept)
        read = _said(cache, "-c", _READ, *events)
        rows = [_row("reading", "one pass over the event file", read)]
        for step, words, command in STEPS:
            print(f"  {recording.name}: {step}", file=sys.stderr)
            given = [path if word == "R" else word for word in command]
            rows.append(_row(step, words, _spent(cache, *given)))
        other = _said(cache, "-c", _POLICY, path)
        rows.append(_row("another policy", "pm.replay(R, policy) and its tables", other))
    return [about | row for row in rows]


def _row(step: str, words: str, spent: tuple[float, float]) -> dict[str, object]:
    return {"step": step, "command": f"`{words}`", "s": spent[0], "CPU s": spent[1]}


def _spent(cache: Path, *words: str) -> tuple[float, float]:
    """Seconds of the clock and of CPU that a process takes."""
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    _output(cache, *words)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - begun, cpu


def _said(cache: Path, *words: str) -> tuple[float, float]:
    """The two numbers that a process prints."""
    clock, cpu = map(float, _output(cache, *words).split())
    return clock, cpu


def _output(cache: Path, *words: str) -> str:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PAGEALLOC_CACHE": str(cache),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="what a user waits for, in seconds")
    parser.add_argument("recordings", nargs="*", metavar="RECORDING")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = measured(options.recordings)
    text = rows.to_json(orient="records", indent=2) if options.json else rows.to_string(index=False)
    print(text)


if __name__ == "__main__":
    main()
