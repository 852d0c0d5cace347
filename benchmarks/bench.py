"""All speeds of design: reading, replaying, starting, memory, sliders, sweeps on two threads.

Usage: python benchmarks/bench.py [RECORDING] [--json] [--only PART ...]     (pagealloc bench)

What is being measured is said on stderr. A part whose tools are missing, or that fails, is one line
there; the others are measured.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable

import memory_floor
import pandas as pd
import policies
import start_up
import sweep
from reading import reading

import pagealloc_model as pm
from pagealloc_model.base.errors import PageallocError
from pagealloc_model.cli.arguments import json_text


class MissingTool(Exception):
    """What a part cannot do without."""


def _reading(path: str) -> pd.DataFrame:
    if shutil.which("perf") is None:
        print("reading: no perf command, so nothing stands beside", file=sys.stderr)
    rows = reading(pm.open(path).event_file)
    return pd.DataFrame(rows).rename(columns={"value": "events/s", "peer": "beside"})


def _slider(path: str) -> pd.DataFrame:
    if shutil.which("chromium") is None:
        raise MissingTool("no Chromium (Debian: chromium)")
    try:
        # Not at the top: the other parts do without Playwright.
        import slider
    except ImportError as error:
        raise MissingTool(f"no Python module {error.name}; make install brings it") from None
    return slider.redraws(pm.open(path))


PARTS: dict[str, Callable[[str], pd.DataFrame]] = {
    "reading": _reading,
    "replay": policies.measured,
    "floor": lambda _: memory_floor.measured(),
    "start": start_up.measured,
    "memory": start_up.memory,
    "slider": _slider,
    "sweep": lambda path: pd.DataFrame(sweep.threads(path), columns=["what", "value", "unit"]),
}
PEERS = {
    "reading": "perf script and perf kmem on the same file",
    "replay": "a plain C program on the same demand",
    "floor": "random access to the same memory",
    "start": "python, numba, pandas and pyarrow by themselves",
    "memory": "the kernel's struct page, and the recording's file",
    "slider": "the same replay without a browser",
    "sweep": "one thread, and two processes that share nothing",
}
"""What stands beside each part."""


def measured(names: list[str], path: str) -> dict[str, pd.DataFrame]:
    """The tables of the parts that could be measured, and how long each took, on stderr."""
    tables = {}
    for number, name in enumerate(names, 1):
        print(f"{number} of {len(names)}: {name}", file=sys.stderr)
        begun, cpu = time.perf_counter(), _cpu_seconds()
        try:
            tables[name] = PARTS[name](path)
        except (Exception, SystemExit) as error:
            print(f"{name}: left out: {_reason(error)}", file=sys.stderr)
        else:
            taken, used = time.perf_counter() - begun, _cpu_seconds() - cpu
            print(f"{name}: {taken:.0f} s, {used:.0f} s of CPU", file=sys.stderr)
    return tables


def _cpu_seconds() -> float:
    """CPU time of this process and of those it waited for, seconds."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in both)


def _reason(error: BaseException) -> str:
    """One line on why a part was not measured."""
    said = getattr(error, "stderr", None)
    lines = str(said or error).strip().splitlines() or [type(error).__name__]
    return lines[-1] if said else lines[0]


def main() -> int:
    """Measure the parts asked for and print them; 1 if one of them is missing."""
    parser = argparse.ArgumentParser(description="speeds of pagealloc_model on this machine")
    parser.add_argument("recording", nargs="?", default="kbuild")
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        pm.open(options.recording)
    except PageallocError as error:
        parser.error(str(error))
    load = os.getloadavg()[0]
    tables = measured(options.only, options.recording)
    if options.json:
        peers = {name: PEERS[name] for name in tables}
        about = {"recording": options.recording, "load_before": load}
        print(json_text(about | {"peers": peers, "parts": tables}))
        return len(tables) < len(options.only)
    print(f"{options.recording}; load before: {load:.1f}")
    for name, table in tables.items():
        text = table.to_string(index=False, float_format="{:,.2f}".format, na_rep="")
        print(f"\n{name}, beside {PEERS[name]}\n{text}")
    return len(tables) < len(options.only)


if __name__ == "__main__":
    sys.exit(main())
