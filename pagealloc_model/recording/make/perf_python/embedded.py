"""Recordings read by perf itself, through the Python inside it: slow, but it knows every layout."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from pagealloc_model.base.compressed import is_compressed
from pagealloc_model.base.errors import RecordingError, UsageError
from pagealloc_model.recording.make.perf_python import emit_events
from pagealloc_model.recording.make.perf_python.event_rows import EventRows
from pagealloc_model.recording.make.perf_python.module import runs_scripts
from pagealloc_model.recording.make.perf_tool import find_perf
from pagealloc_model.recording.trace.columns import Trace, losses_by_time
from pagealloc_model.recording.trace.formats import with_zone_names
from pagealloc_model.recording.trace.perf_file import (
    RECORD_AGAIN,
    EventAttr,
    clock_name,
    parse_attr,
)
from pagealloc_model.recording.trace.perf_samples import (
    RECORDING_COMMAND,
    attr_problem,
    sampled_events,
)
from pagealloc_model.recording.trace.trace_text import ScriptReader, event_of

_FIELDS = ("-F", "comm,tid,cpu,time,event,trace")
_FATAL_FIRST = frozenset(
    f"kmem:{name}" for name in ("mm_page_free", "mm_page_free_batched", "mm_page_pcpu_drain")
)
"""Events whose text begins with a page: perf's Python crashes where one of them is the first."""
_LOST_SAMPLES = re.compile(r"LOST_SAMPLES events:\s+(\d+)\s*$")
_ANY_CPU = -1
_NOT_COUNTED = "perf does not tell how much was lost after the last loss on record"
_NO_THREAD = "999999999"
"""More than any thread's id can be: leaves out all samples."""


def read_with_perf_script(path: str | Path) -> Trace:
    """Read a recording with `perf script -s`, some 30,000 events a second.

    To check the package's own reader, or for a file that it refuses. The trace has no call
    chains. Losses that perf places nowhere span the whole recording. Tables hold numbers as perf
    gives them: one below zero in a field of four bytes is 2**32 too large.

    Args:
        path: a perf.data, not packed.

    Raises:
        UsageError: perf is not there, or was built without Python.
        RecordingError: perf cannot read the file, or it cannot be used.
    """
    path = Path(path)
    perf = find_perf().path
    if not runs_scripts():
        raise UsageError(f"{perf} was built without Python; install Debian's linux-perf")
    if is_compressed(path):
        raise RecordingError(path, "is packed, which perf does not read", todo="unpack it first")
    script = (perf, "script", "-f", "--ns")
    text = ScriptReader(path)
    start_ns = _read_first_frees(text, _output(path, [*script, "--header", *_FIELDS]))
    events = _EmittedEvents(path, text)
    since = ("--time", f"{start_ns // 10**9}.{start_ns % 10**9:09d},")
    for line in _output(path, [*script, "-s", emit_events.__file__, *since]):
        events.take(json.loads(line))
    main, tables = events.finish()
    for line in _output(path, [*script, *_FIELDS, "--show-lost-events", "--tid", _NO_THREAD]):
        text.line(line)
    losses, notes = text.losses, ()
    counted = _lost_samples(path, perf)
    if counted is None:
        notes = (_NOT_COUNTED,)
    elif counted > (placed := sum(count for _, _, count in losses)):
        losses = [*losses, (_ANY_CPU, int(main["time_ns"][-1]), counted - placed)]
    return Trace(
        **main,
        comms=text.comms | events.comms,
        gfp_bits=events.gfp_bits,
        gfp_from_format=True,
        tables=tables,
        losses=losses_by_time(losses, main["time_ns"], main["cpu"]),
        source=str(path),
        release=text.release,
        nr_cpus=text.nr_cpus,
        clock=clock_name(events.attrs),
        sampled=sampled_events(events.attrs, events.names),
        notes=notes,
    )


def _read_first_frees(text: ScriptReader, lines: Iterator[str]) -> int:
    """Take in the header and the events before the first that perf's Python can begin with.

    Returns:
        That event's time; those before it are earlier.
    """
    last_ns = -1
    for text.number, line in enumerate(lines, 1):
        found = event_of(line)
        if found is not None:
            name, time_ns = found
            if name not in _FATAL_FIRST and time_ns > last_ns:
                return time_ns
            last_ns = time_ns
        text.line(line)
    raise _without_allocations(text.path)


def _lost_samples(path: Path, perf: str) -> int | None:
    """Events lost by the kernel's own count, None where perf does not tell.

    perf 6.1 does not for recordings that came through a pipe.
    """
    counted, sections, of_one_event = 0, 0, False
    for line in _output(path, [perf, "report", "-f", "--stats"]):
        if line.endswith(" stats:"):
            sections += 1
            of_one_event = not line.startswith("Aggregated")
        lost = _LOST_SAMPLES.search(line)
        if lost and of_one_event:
            counted += int(lost[1])
    return counted if sections else None


def _without_allocations(path: Path) -> RecordingError:
    todo = f"record with {RECORDING_COMMAND}"
    return RecordingError(path, "has no kmem:mm_page_alloc events", todo=todo)


def _output(path: Path, command: Sequence[str]) -> Iterator[str]:
    """Lines that a perf command prints about a file."""
    with (
        tempfile.TemporaryFile("w+", errors="replace") as complaints,
        subprocess.Popen(
            [*command, "-i", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            errors="replace",
        ) as running,
    ):
        assert running.stdout is not None
        for line in running.stdout:
            yield line.rstrip("\n")
        code = running.wait()
        if code:
            why = f"it crashed with signal {-code}" if code < 0 else _last_words(complaints)
            raise RecordingError(path, f"perf cannot read it ({why})", todo=RECORD_AGAIN)


def _last_words(complaints: IO[str]) -> str:
    complaints.seek(0)
    lines = [line.strip() for line in complaints if line.strip()]
    return lines[-1][:120] if lines else "it does not say why"


class _EmittedEvents:
    """What the script inside perf prints, taken line by line, after the events read as text."""

    def __init__(self, path: Path, first: ScriptReader) -> None:
        self.comms: dict[int, str] = {0: "swapper"}
        self.gfp_bits: dict[str, int] = {}
        self.attrs: list[EventAttr] = []
        self._path = path
        self.names: list[str] = []
        self._rows = EventRows(first.rows)
        self._ended = False

    def take(self, line: list[Any]) -> None:
        """Take one line; see `emit_events` for their forms."""
        match line:
            case [int(number), time_ns, cpu, tid, values]:
                self._rows.add(self.names[number], time_ns, cpu, tid, values)
            case ["event", _, name, fields, attr]:
                self._declare(name, fields, parse_attr(bytes.fromhex(attr)))
            case ["name", tid, comm] if comm != f":{tid}":
                self.comms[tid] = comm
            case ["gfp", bits]:
                self.gfp_bits = with_zone_names(bits)
            case ["end"]:
                self._ended = True

    def _declare(self, name: str, fields: list[str], attr: EventAttr) -> None:
        problem = attr_problem(attr, name)
        if not problem:
            try:
                self._rows.declare(name, fields)
            except ValueError as error:
                problem = str(error)
        if problem:
            raise RecordingError(self._path, problem, todo=f"record with {RECORDING_COMMAND}")
        self.names.append(name)
        self.attrs.append(attr)

    def finish(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Columns and tables of all lines."""
        if not self._ended:
            raise RecordingError(self._path, "perf ended before the file did", todo=RECORD_AGAIN)
        if "kmem:mm_page_alloc" not in self.names:
            raise _without_allocations(self._path)
        return self._rows.columns()
