"""A recording larger than memory: what a replay of it with its tables takes under a limit.

Usage: python benchmarks/long_recording.py [--events N] [--limit MIB] [--directory DIR] [--json]

A recording's events are repeated to N (100 million) in a mapped columnar file. Processes of their
own replay it: one as anyone would, one that is made to keep all in memory. Each is in a memory
control group of its own, so that files' pages count as well, where this user may make one;
elsewhere only what no file stands behind is limited. DIR takes 30 bytes an event, TMPDIR 110.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
from size import full_recording, resident_mib
from store import repeated

import pagealloc_model as pm
from pagealloc_model.base import working_arrays
from pagealloc_model.cli.replay import TABLES
from pagealloc_model.recording.trace.store_write import write_store

MIB = 1 << 20
EVENTS = 100_000_000
LIMIT_MIB = 1024
GROUPS = {
    Path("/sys/fs/cgroup/memory"): "memory.limit_in_bytes",
    Path("/sys/fs/cgroup"): "memory.max",
}
"""Where memory control groups are made (version 1, 2), and the file that takes the limit."""
Row = dict[str, object]


def long_recording(events: int, directory: Path) -> Path:
    """A recording whose events are those of another over and over, in mapped columns."""
    source = pm.open(full_recording())
    path = directory / "long"
    source.to_columns(path)
    (path / "events.arrow").unlink()
    trace = repeated(source.trace, events, directory)
    write_store(trace, path / "events.arrow", source=None, compress=False)
    _out_of_memory(path / "events.arrow")
    return path


def _out_of_memory(path: Path) -> None:
    """Have a file's pages written and dropped, so that who reads them next is charged for them."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def memory_group(limit: int) -> Iterator[Path | None]:
    """A control group of so many bytes; None where none can be made."""
    for place, limit_file in GROUPS.items():
        group = place / f"pagealloc-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit_file).write_text(str(limit))
            yield group
            return
        except OSError:
            continue
        finally:
            group.rmdir()
    yield None


def replayed(path: str, group: str, limit: int, in_memory: bool) -> Row:
    """A replay with all its tables, in this process.

    Args:
        path: the recording.
        group: control group to join, "" for none.
        limit: without a group, bytes that no file stands behind, at most.
        in_memory: keep what is made of the events in memory, however many they are.
    """
    if group:
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    else:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    if in_memory:
        working_arrays.ROWS_IN_MEMORY = sys.maxsize
    with _watched("RssAnon") as peak:
        begun, begun_cpu = time.perf_counter(), time.process_time()
        recording = pm.open(path)
        run = pm.replay(recording, pm.Policy(pcp_batch=31))
        rows = {name: len(getattr(run, name)) for name in TABLES}
        seconds, cpu = time.perf_counter() - begun, time.process_time() - begun_cpu
    events = len(recording.trace)
    return {
        "columns MiB": recording.event_file.stat().st_size / MIB,
        "CPU s": cpu,
        "events/s of CPU": events / cpu,
        "seconds": seconds,
        "events/s": events / seconds,
        "anonymous MiB": peak[0],
        "resident MiB": resident_mib("VmHWM"),
        "table rows": sum(rows.values()),
    }


@contextmanager
def _watched(which: str) -> Iterator[list[float]]:
    """The most of a line of /proc/self/status while the block runs, MiB, in a list of one."""
    peak = [resident_mib(which)]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            peak[0] = max(peak[0], resident_mib(which))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def measured(
    events: int = EVENTS, limit_mib: int = LIMIT_MIB, directory: Path | None = None
) -> pd.DataFrame:
    """Both ways, one row each.

    Args:
        events: of the recording.
        limit_mib: that a replay may have.
        directory: where the recording is kept meanwhile; None: the temporary one.
    """
    with tempfile.TemporaryDirectory(dir=directory) as name:
        return _both_ways(events, limit_mib, Path(name))


def _both_ways(events: int, limit_mib: int, directory: Path) -> pd.DataFrame:
    path = long_recording(events, directory)
    rows = []
    for way, in_memory in (("in files", False), ("kept in memory", True)):
        with memory_group(limit_mib * MIB) as group:
            arguments = (str(path), str(group or ""), limit_mib * MIB, in_memory)
            command = [sys.executable, __file__, "--alone", json.dumps(arguments)]
            done = subprocess.run(command, capture_output=True, text=True)
        limited = "all" if group else "anonymous"
        about = {"events": events, "what is made": way, "limit MiB": limit_mib, "of": limited}
        rows.append(about | _outcome(done))
    return pd.DataFrame(rows)


def _outcome(done: subprocess.CompletedProcess[str]) -> Row:
    if done.returncode == 0:
        return {"outcome": "done", **json.loads(done.stdout)}
    if done.returncode < 0:
        return {"outcome": f"ended by signal {-done.returncode}"}
    return {"outcome": done.stderr.strip().splitlines()[-1]}


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--alone"]:
        print(json.dumps(replayed(*json.loads(sys.argv[2]))))
        return
    parser = argparse.ArgumentParser(description="replaying a recording larger than memory")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--limit", type=int, default=LIMIT_MIB, metavar="MIB")
    parser.add_argument("--directory", type=Path, help="on a disk; default: the temporary one")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = measured(options.events, options.limit, options.directory)
    if options.json:
        print(rows.to_json(orient="records", indent=2))
    else:
        print(rows.T.to_string(header=False, float_format="{:,.2f}".format))


if __name__ == "__main__":
    main()
