"""A recording larger than memory: what a replay of it with its tables takes under a limit.

Usage: python benchmarks/long_recording.py [--events N] [--limit MIB] [--directory DIR] [--json]
                                           [--in-files]

A recording's events are repeated to N (100 million) in a mapped columnar file. Processes of their
own replay it: literally and elastically as anyone would, and one that is made to keep all in memory
(not with --in-files). Each is in a memory control group of its own, so that files' pages count as
well, where this user may make one; elsewhere only what no file stands behind is limited. DIR takes
30 bytes an event; TMPDIR 25 at most, on a file system from whose files pieces can be cut.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pandas as pd
from size import full_recording, resident_mib

import pagealloc_model as pm
from pagealloc_model.base import arrays
from pagealloc_model.cli.predictions import TABLES
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Trace
from pagealloc_model.recording.trace.store import write_store

MIB = 1 << 20
EVENTS = 100_000_000
LIMIT_MIB = 1024
GROUPS = {
    Path("/sys/fs/cgroup/memory"): "memory.limit_in_bytes",
    Path("/sys/fs/cgroup"): "memory.max",
}
"""Where memory control groups are made (version 1, 2), and the file that takes the limit."""
WAYS = (("literal", False), ("elastic", False), ("literal", True))
"""Mode of reclaim, and whether all is kept in memory."""
Row = dict[str, object]


def repeated(trace: Trace, rows: int, directory: Path) -> Trace:
    """The main events over and over, one repetition after the other in time."""
    new_array = arrays.on_disk(directory)
    columns = {name: new_array(rows, dtype) for name, dtype in COLUMN_TYPES.items()}
    first, last = trace.span_ns
    for number, begin in enumerate(range(0, rows, len(trace))):
        count = min(len(trace), rows - begin)
        for name, column in columns.items():
            column[begin : begin + count] = getattr(trace, name)[:count]
        columns["time_ns"][begin : begin + count] += number * (last - first + 1)
    return Trace(**columns, comms=trace.comms, gfp_bits=trace.gfp_bits, clock=trace.clock)


def long_recording(events: int, directory: Path) -> Path:
    """A recording whose events are those of another over and over, in mapped columns."""
    source = pm.open(full_recording())
    path = directory / "long"
    source.to_columns(path)
    file = path / "events.arrow"
    file.unlink()
    write_store(repeated(source.trace, events, directory), file, source=None, compress=False)
    with memory_group(LIMIT_MIB * MIB) as group:
        if group:
            _out_of_memory(file)
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


def replayed(path: str, reclaim: str, group: str, limit: int, in_memory: bool) -> Row:
    """A replay with all its tables, in this process."""
    if group:
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    else:
        # beside what libraries keep for as many threads as there are CPUs
        limit += int(resident_mib("VmData") * MIB)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    if in_memory:
        arrays.ROWS_IN_MEMORY = sys.maxsize
    with _most(lambda: resident_mib("RssAnon")) as peak, _most(working_files_mib) as room:
        begun, begun_cpu = time.perf_counter(), time.process_time()
        recording = pm.open(path)
        assumptions = pm.Assumptions(reclaim=reclaim)
        run = pm.replay(recording, pm.Policy(pcp_batch=31), assumptions=assumptions)
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
        "TMPDIR MiB": room[0],
        "table rows": sum(rows.values()),
    }


def working_files_mib() -> float:
    """What this process's working files take up on the disk, MiB; they have no names."""
    blocks: dict[int, int] = {}
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found, target = each.stat(), os.readlink(each)
            if target.startswith(tempfile.gettempdir()) and target.endswith(" (deleted)"):
                blocks[found.st_ino] = found.st_blocks
    return sum(blocks.values()) * 512 / MIB


@contextmanager
def _most(value: Callable[[], float]) -> Iterator[list[float]]:
    """The most of a value while the block runs, in a list of one."""
    peak = [value()]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.1):
            peak[0] = max(peak[0], value())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def measured(
    events: int = EVENTS,
    limit_mib: int = LIMIT_MIB,
    directory: Path | None = None,
    in_files: bool = False,
) -> pd.DataFrame:
    """All ways, one row each."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=directory) as name:
        path = long_recording(events, Path(name))
        print(f"{path}: made in {time.perf_counter() - begun:.0f} s", file=sys.stderr)
        ways = WAYS[:2] if in_files else WAYS
        return pd.DataFrame([_one_way(path, events, limit_mib, *way) for way in ways])


def _one_way(path: Path, events: int, limit_mib: int, reclaim: str, in_memory: bool) -> Row:
    with memory_group(limit_mib * MIB) as group:
        arguments = (str(path), reclaim, str(group or ""), limit_mib * MIB, in_memory)
        command = [sys.executable, __file__, "--alone", json.dumps(arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
    limited = "all" if group else "anonymous"
    way = "kept in memory" if in_memory else "in files"
    about = {"events": events, "reclaim": reclaim, "what is made": way}
    return about | {"limit MiB": limit_mib, "of": limited} | _outcome(done)


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
    parser.add_argument("--in-files", action="store_true", help="do not keep all in memory, too")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = measured(options.events, options.limit, options.directory, options.in_files)
    if options.json:
        print(rows.to_json(orient="records", indent=2))
    else:
        print(rows.T.to_string(header=False, float_format="{:,.2f}".format))


if __name__ == "__main__":
    main()
