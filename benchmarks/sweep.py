"""Sweeps: two cores over one, a thousand points, a restart, a cluster.

Usage: python benchmarks/sweep.py [threads | points | cluster ...]

`threads`: the same sweep by one thread, by two, and by two processes. `points`: 1,000 policies on
the shipped recording; the process is killed half-way and started again. `cluster`: the same rows by
threads and by a Dask cluster of two processes. Nothing is taken from the user's cache. Times are
wall-clock times: let nothing else run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd

import pagealloc_model as pm

RECORDING = "kbuild"
THOUSAND = {"pcp_batch": range(1, 251), "pcp_batch_scale_max": [0, 2, 4, 6]}
Rows = list[tuple[str, float, str]]
"""What, value, unit."""

ONE_OF_TWO = """
import sys, time
import pagealloc_model as pm
recording = pm.open(sys.argv[1])
pm.replay(recording)
print("ready", flush=True)
input()
begun = time.perf_counter()
pm.sweep([recording], {"pcp_batch": range(1, int(sys.argv[2]) + 1)}, workers=1, cache=False)
print(time.perf_counter() - begun)
"""
IN_ANOTHER_PROCESS = """
import sys
import pagealloc_model as pm
from sweep import RECORDING, THOUSAND
pm.sweep([RECORDING], THOUSAND, cache=sys.argv[1])
"""


def threads(path: str = RECORDING, points: int = 160, rounds: int = 3) -> Rows:
    """The shortest of several runs by one thread and by two, taken in turn.

    Two processes that make half each, and share nothing, say what the machine's two cores give.
    """
    recording = pm.open(path)
    pm.replay(recording)
    times: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(rounds):
        for workers, taken in times.items():
            begun = time.perf_counter()
            pm.sweep([recording], {"pcp_batch": range(1, points + 1)}, workers=workers, cache=False)
            taken.append(time.perf_counter() - begun)
    one, two = min(times[1]), min(times[2])
    apart = min(_two_processes(path, points // 2) for _ in range(rounds))
    return [
        (f"{points} points, one thread", one, "s"),
        (f"{points} points, two threads", two, "s"),
        ("two threads over one", one / two, "times"),
        (f"{points // 2} points by each of two processes at once, the later", apart, "s"),
        ("two processes over one thread", one / apart, "times"),
    ]


def _two_processes(path: str, points: int) -> float:
    command = [sys.executable, "-c", ONE_OF_TWO, path, str(points)]
    both = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in both:
        assert process.stdout is not None
        process.stdout.readline()
    for process in both:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return max(float(process.communicate()[0]) for process in both)


def points() -> Rows:
    """1,000 points in all, killed after some and restarted; then once more, all known."""
    with tempfile.TemporaryDirectory() as directory:
        cache = Path(directory)
        here = Path(__file__).parent
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(here), str(here.parent)])}
        begun = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-c", IN_ANOTHER_PROCESS, directory], env=environment
        ) as process:
            while len(list(cache.rglob("*.json"))) < 400 and process.poll() is None:
                time.sleep(0.2)
            process.send_signal(signal.SIGKILL)
        killed_after = time.perf_counter() - begun
        kept = {file: file.stat().st_mtime_ns for file in cache.rglob("*.json")}
        begun = time.perf_counter()
        result = pm.sweep([RECORDING], THOUSAND, cache=cache)
        rest = time.perf_counter() - begun
        begun = time.perf_counter()
        again = pm.sweep([RECORDING], THOUSAND, cache=cache)
        known = time.perf_counter() - begun
        made_twice = sum(file.stat().st_mtime_ns != kept[file] for file in kept)
    return [
        ("points", len(result.rows), ""),
        ("points that failed", len(result.failed), ""),
        ("time until killed", killed_after, "s"),
        ("finished when killed", len(kept), "points"),
        ("of these made again", made_twice, "points"),
        ("taken from the cache by the restart", result.reused, "points"),
        ("time of the restart", rest, "s"),
        ("time in all", killed_after + rest, "s"),
        ("time of the same sweep, all points known", known, "s"),
        ("points made by it", len(again.rows) - again.reused, ""),
    ]


def cluster(points: int = 40) -> Rows:
    """The same points by threads and by two worker processes."""
    from distributed import Client, LocalCluster

    vary = {"pcp_batch": range(1, points + 1)}
    local = pm.sweep([RECORDING], vary, cache=False).rows
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            worker_dashboard_address=None,
        ) as made,
        Client(made, set_as_default=False) as client,
    ):
        begun = time.perf_counter()
        remote = pm.sweep([RECORDING], vary, client=client, cache=False).rows
        taken = time.perf_counter() - begun
    columns = [name for name in local if name not in ("seconds", "finished")]
    differing = (local[columns].fillna(-1) != remote[columns].fillna(-1)).any(axis=1)
    return [
        ("rows by threads", len(local), ""),
        ("rows by the cluster", len(remote), ""),
        ("rows that differ", int(differing.sum()), ""),
        ("time on the cluster, its workers' start included", taken, "s"),
    ]


PARTS: dict[str, Callable[[], Rows]] = {
    "threads": threads,
    "points": points,
    "cluster": cluster,
}


def main() -> None:
    """Measure and print."""
    chosen = sys.argv[1:] or list(PARTS)
    for name in chosen:
        print(f"{name} (load before: {os.getloadavg()[0]:.1f})", flush=True)
        table = pd.DataFrame(PARTS[name](), columns=["what", "value", "unit"])
        print(table.to_string(index=False, header=False, float_format="{:,.2f}".format), flush=True)


if __name__ == "__main__":
    main()
