"""How fast a perf.data is read, beside perf's own tools on the same file.

Usage: python benchmarks/reading.py [RECORDING] [--json]

Each measurement is a process of its own on one core, with the file in the page cache. They take
turns, short ones more often, and the best of each counts, in CPU seconds (user and system) so that
others on the machine weigh less. Of ours it is the call that reads the file: starting Python and
loading the compiled kernels come before it, compiling them is done before anything is measured. Of
perf's tools it is the whole process, which starts in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pagealloc_model as pm
from pagealloc_model.recording.trace.perf_file import open_perf_file
from tests.perf_data_writer import records_in, write_perf_data

ROUNDS = 2
SHORT_RUNS = 4
"""Runs of ours in each round."""

PEERS = {
    "perf script": ("script", "-i", "FILE"),
    "perf kmem --page stat": ("kmem", "--page", "-i", "FILE", "stat"),
}
_READ = """
import resource, sys
from pagealloc_model.recording.trace.perf_data import read_perf_data
read_perf_data(sys.argv[1])
def spent():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
begun = spent()
trace = read_perf_data(sys.argv[2])
print(spent() - begun)
"""
Row = dict[str, object]


def reading(event_file: Path) -> list[Row]:
    """Events a second of the reader and of perf's tools, uncompressed and as recorded."""
    events = _samples(event_file)
    small = Path(str(pm.open("xfree").event_file))
    with tempfile.TemporaryDirectory(prefix="pagealloc-reading-") as directory:
        plain = uncompressed(event_file, Path(directory) / "perf.data")
        runs: dict[str, Callable[[], float]] = {
            "plain": lambda: min(_our_seconds(small, plain) for _ in range(SHORT_RUNS)),
            "recorded": lambda: min(_our_seconds(small, event_file) for _ in range(SHORT_RUNS)),
        }
        for name, words in PEERS.items() if shutil.which("perf") else ():
            command = [str(plain) if word == "FILE" else word for word in words]
            runs[name] = partial(perf_seconds, command, directory)
        best = {name: min(times) for name, times in in_turns(runs).items()}
    rates = {name: events / seconds for name, seconds in best.items()}
    rows = [
        row("read perf.data, uncompressed", rates["plain"], peer, rates[peer])
        for peer in PEERS
        if peer in rates
    ]
    return [
        *(rows or [row("read perf.data, uncompressed", rates["plain"])]),
        row("read perf.data, as recorded (-z)", rates["recorded"]),
    ]


def uncompressed(event_file: Path, copy: Path) -> Path:
    """A copy with the same records, none of them compressed."""
    file = open_perf_file(event_file)
    write_perf_data(
        copy,
        attrs=file.attrs,
        features={number: file.feature(number) for number in file.features},
        records=b"".join(records_in(file)),
        compress=False,
    )
    return copy


def _samples(event_file: Path) -> int:
    """All events, those of tables too."""
    trace = pm.open(event_file).trace
    tables = (name for name in trace.tables if name != "kmem:mm_page_alloc_extfrag")
    return len(trace) + sum(len(trace.tables[name]["time_ns"]) for name in tables)


class PeerFailed(Exception):
    """One of perf's tools did not get through the file."""


def in_turns(runs: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Times of each, in rounds; a peer that fails is said on stderr and left out."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name in list(times):
            try:
                times[name].append(runs[name]())
            except PeerFailed as failure:
                print(f"{name}: left out: {failure}", file=sys.stderr)
                del times[name]
    return times


def _our_seconds(small: Path, path: Path) -> float:
    command = [sys.executable, "-c", _READ, str(small), str(path)]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, preexec_fn=on_one_core
    )
    return float(done.stdout)


def perf_seconds(words: Sequence[str], directory: str, program: str = "perf") -> float:
    """Return the CPU seconds of one run of a program, in a directory."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    quiet = subprocess.DEVNULL
    done = subprocess.run(
        [program, *words],
        cwd=directory,
        stdout=quiet,
        stderr=quiet,
        check=False,
        preexec_fn=on_one_core,
    )
    if done.returncode:
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"code {done.returncode}"
        raise PeerFailed(f"it ended with {how} on this file")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def on_one_core() -> None:
    """Keep this process on one core."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def row(name: str, value: float, peer: str | None = None, peer_value: float | None = None) -> Row:
    """One figure beside its peer's."""
    return {
        "name": name,
        "value": value,
        "unit": "events/s",
        "peer": peer,
        "peer_value": peer_value,
        "ratio": value / peer_value if peer_value else None,
    }


def print_rates(description: str, rates: Callable[[Path], list[Row]]) -> None:
    """Measure a recording's event file, which the command line names, and print the figures."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("recording", nargs="?", default="kbuild")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = rates(pm.open(options.recording).event_file)
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    for each in rows:
        beside = f"  {each['ratio']:6.1f} x {each['peer']}" if each["ratio"] else ""
        print(f"  {each['name']:<34} {each['value']:>14,.0f} {each['unit']}{beside}")


if __name__ == "__main__":
    print_rates("speed of reading a perf.data", reading)
