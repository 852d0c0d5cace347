"""How fast the columnar form of a recording opens, how large it is, what importing it takes.

Usage: python benchmarks/store.py [RECORDING] [--events N] [--directory DIR] [--json]

The recording is imported as it is, then its events are repeated to N (100 million), written in
both forms, and opened by a fresh process each: opening with all imports, then the first use of
every column. The mapped form is replayed, too. On a busy machine, look at CPU times. DIR needs 60
bytes an event, TMPDIR 120.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pagealloc_model as pm
from pagealloc_model.base.arrays import on_disk
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Trace
from pagealloc_model.recording.trace.store import write_store

OPENING = """
import json, sys, time
def now():
    return time.perf_counter(), time.process_time()
begun = now()
import pagealloc_model as pm
trace = pm.open(sys.argv[1]).trace
rows = len(trace)
opened = now()
for name in sys.argv[2:]:
    getattr(trace, name).max()
used = now()
print(json.dumps([b - a for pair in ((begun, opened), (opened, used)) for a, b in zip(*pair)]))
"""
FORMS = {"compressed": True, "uncompressed": False}
Row = dict[str, object]


def peak_anonymous_mib(action: Callable[[], object]) -> float:
    """How much more memory than before an action takes that no file stands behind."""
    begun = peak = _anonymous_mib()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, _anonymous_mib())

    watcher = threading.Thread(target=watch)
    watcher.start()
    action()
    done.set()
    watcher.join()
    return peak - begun


def _anonymous_mib() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no RssAnon")


def repeated(trace: Trace, rows: int, directory: Path) -> Trace:
    """The main events over and over, one repetition after the other in time."""
    new_array = on_disk(directory)
    columns = {name: new_array(rows, dtype) for name, dtype in COLUMN_TYPES.items()}
    first, last = trace.span_ns
    for number, begin in enumerate(range(0, rows, len(trace))):
        count = min(len(trace), rows - begin)
        for name, column in columns.items():
            column[begin : begin + count] = getattr(trace, name)[:count]
        columns["time_ns"][begin : begin + count] += number * (last - first + 1)
    return Trace(**columns, comms=trace.comms, gfp_bits=trace.gfp_bits, clock=trace.clock)


def importing(recording: pm.Recording, directory: Path) -> list[Row]:
    """One recording into both forms, beside its perf.data."""
    events, size = len(recording.trace), recording.event_file.stat().st_size
    rows = [row("perf.data", size / events, "B/event")]
    for form, compress in FORMS.items():
        path = directory / form
        begun = time.perf_counter()
        recording.to_columns(path, compress=compress)
        seconds = time.perf_counter() - begun
        bytes_written = (path / "events.arrow").stat().st_size
        rows += [
            row(f"{form} store", bytes_written / events, "B/event"),
            row(f"{form} import", events / seconds, "events/s"),
        ]
    anonymous = peak_anonymous_mib(lambda: recording.to_columns(directory / "again"))
    in_memory = peak_anonymous_mib(lambda: pm.open(recording.path).trace)
    begun = time.perf_counter()
    events = len(pm.open(recording.path).trace)
    reading = time.perf_counter() - begun
    return [
        *rows,
        row("import, memory", anonymous, "MiB"),
        row("read perf.data, memory", in_memory, "MiB"),
        row("read perf.data", events / reading, "events/s"),
    ]


def replaying(path: Path) -> list[Row]:
    """A replay of a long recording: its memory, and how fast it is with all preparations."""
    begun = time.process_time()
    anonymous = peak_anonymous_mib(lambda: pm.replay(pm.open(path)))
    seconds = time.process_time() - begun
    return [
        row("uncompressed, replay, memory", anonymous, "MiB"),
        row("uncompressed, replay, CPU time", seconds, "s"),
    ]


def opening(recording: pm.Recording, events: int, directory: Path) -> list[Row]:
    """A long recording in both forms: its size, and how soon it is there."""
    trace = repeated(recording.trace, events, directory)
    rows = []
    for form, compress in FORMS.items():
        recording.to_columns(directory / f"long {form}")
        path = directory / f"long {form}" / "events.arrow"
        path.unlink()
        begun = time.perf_counter()
        write_store(trace, path, source=None, compress=compress)
        seconds = time.perf_counter() - begun
        opened, opened_cpu, used, used_cpu = _fresh_process(path)
        rows += [
            row(f"{form}, {events} events", path.stat().st_size / events, "B/event"),
            row(f"{form}, write", seconds, "s"),
            row(f"{form}, open", opened, "s"),
            row(f"{form}, open, CPU time", opened_cpu, "s"),
            row(f"{form}, first use of all columns", used, "s"),
            row(f"{form}, first use of all columns, CPU time", used_cpu, "s"),
        ]
        if not compress:
            rows += replaying(path.parent)
        path.unlink()
    return rows


def _fresh_process(path: Path) -> list[float]:
    """Seconds and CPU seconds of opening, then of using every column."""
    command = [sys.executable, "-c", OPENING, str(path), *COLUMN_TYPES]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)


def row(name: str, value: float, unit: str) -> Row:
    """One figure."""
    return {"name": name, "value": value, "unit": unit}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="the columnar form: size, import, opening")
    parser.add_argument("recording", nargs="?", default="kbuild")
    parser.add_argument("--events", type=int, default=100_000_000)
    parser.add_argument("--directory", type=Path, help="on a disk; default: the temporary one")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    recording = pm.open(options.recording)
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        rows = [*importing(recording, Path(name)), *opening(recording, options.events, Path(name))]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{recording.name}: {len(recording.trace)} page-allocator events")
    for each in rows:
        print(f"  {each['name']:<44} {each['value']:>14,.2f} {each['unit']}")


if __name__ == "__main__":
    main()
