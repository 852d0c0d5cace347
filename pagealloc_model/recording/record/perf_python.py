"""perf's own Python bindings: events as they come, and perf's interpreter inside perf script."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import mmap
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from pagealloc_model.base.errors import RecordingError, UsageError
from pagealloc_model.base.files import is_compressed
from pagealloc_model.recording.record import emit_events
from pagealloc_model.recording.record.host import Host, read_or_none
from pagealloc_model.recording.record.perf import default_buffer, find_perf, is_built_with
from pagealloc_model.recording.trace import formats as print_formats
from pagealloc_model.recording.trace import perf_data, perf_file, trace_text
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import EVENT_NAMES, Losses, Trace, losses_by_time
from pagealloc_model.recording.trace.layout import MAIN_FIELDS, OPTIONAL_FIELDS

_STANDARD_ERROR = 2


def _opened(perf: ModuleType, names: Sequence[str], buffer_bytes: int) -> Any:
    """Events of all CPUs, each CPU's in a buffer of its own; they are on from the start.

    The newer generation of the module parses names, as the perf command does; the older one wants
    every attribute spelled out, and lets the first event report tasks.
    """
    cpus, threads = perf.cpu_map(), perf.thread_map(-1)
    by_name = hasattr(perf, "parse_events")
    try:
        if by_name:
            events = perf.parse_events(",".join(names), cpus, threads)
            for event in events:
                event.tracking = False
            events.config()
            for event in events:
                # Without the id in it, samples of several events cannot be told apart.
                event.read_format = perf.FORMAT_ID
        else:
            carried = perf.SAMPLE_TID | perf.SAMPLE_TIME | perf.SAMPLE_ID | perf.SAMPLE_CPU
            events = perf.evlist(cpus, threads)
            for index, name in enumerate(names):
                number = perf.tracepoint(*name.split(":", 1))
                if number < 0:
                    raise UsageError(f"this kernel has no tracepoint {name}, or does not show it")
                event = perf.evsel(
                    type=perf.TYPE_TRACEPOINT,
                    config=number,
                    freq=0,
                    sample_period=1,
                    sample_type=carried | perf.SAMPLE_RAW,
                    read_format=perf.FORMAT_ID,
                    sample_id_all=1,
                    comm=index == 0,
                    task=index == 0,
                )
                events.add(event)
        events.open()
        # Keep what perf's own library says about every mapping off standard error.
        standard_error, nowhere = os.dup(_STANDARD_ERROR), os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, _STANDARD_ERROR)
            events.mmap(buffer_bytes // os.sysconf("SC_PAGE_SIZE"))
        finally:
            os.dup2(standard_error, _STANDARD_ERROR)
            os.close(nowhere)
            os.close(standard_error)
        if by_name:
            events.enable()
    except OSError as error:
        raise UsageError(
            f"the events cannot be opened ({error.strerror or error}); "
            "see what is in the way with: pagealloc doctor"
        ) from None
    return events


_END_OF_SIGNED, _END_OF_WORD = 1 << 63, 1 << 64


class _DeclaredRows(trace_text.EventRows):
    """Events whose fields come as numbers and bytes, of events that were declared."""

    def __init__(self) -> None:
        super().__init__()
        self._fields: dict[str, Sequence[print_formats.Field | str]] = {}
        self._places: dict[str, list[int | None]] = {}

    def declare(self, event: str, fields: Sequence[print_formats.Field | str]) -> list[str]:
        """Say which fields an event's rows will hold; returns their names."""
        names = [field if isinstance(field, str) else field.name for field in fields]
        self._fields[event], self.tables[event] = fields, []
        wanted = MAIN_FIELDS[EVENT_NAMES[event]] if event in EVENT_NAMES else ()
        for name in wanted:
            if name is not None and name not in {*names, *OPTIONAL_FIELDS}:
                raise ValueError(f"{event} has no field {name}")
        self._places[event] = [names.index(n) if n in names else None for n in wanted]
        return names

    def take(self, event: str, time_ns: int, cpu: int, tid: int, values: Sequence[Any]) -> None:
        """Take one event; perf hands scripts no common_flags, so its context is unknown."""
        main = [
            trace_text.ABSENT.get(name, -1) if place is None else _as_signed(values[place])
            for name, place in zip(trace_text.MAIN_COLUMNS, self._places[event], strict=False)
        ]
        self.add(event, time_ns, cpu, tid, (*main, -1), values)

    def finished(self) -> dict[str, Any]:
        """Columns and tables of a Trace, by name."""
        main, tables = self.columns(self._field_columns)
        main["gfp"] = main["gfp"] & 0xFFFFFFFF
        # An int comes without its sign where the source does not say how wide it is.
        main["migratetype"] = main["migratetype"].astype(np.uint32).view(np.int32)
        return {**main, "tables": tables}

    def _field_columns(self, event: str, rows: Sequence[Sequence[Any]]) -> dict[str, np.ndarray]:
        """Columns of texts and of numbers in their field's own type; a field of others has none."""
        columns: dict[str, np.ndarray] = {}
        for field, values in zip(self._fields[event], zip(*rows, strict=True), strict=True):
            name = field if isinstance(field, str) else field.name
            if all(isinstance(value, int) for value in values):
                words = np.array([_as_signed(value) for value in values], np.int64)
                if not isinstance(field, str):
                    unsigned = words.view(np.uint64).astype(f"<u{field.size}")
                    words = unsigned.view(f"<i{field.size}") if field.signed else unsigned
                elif np.any(words < 0):  # of an unknown type, all ones on top
                    words = words.view(np.uint64)
                columns[name] = words
            elif all(isinstance(value, str | bytes | bytearray) for value in values):
                texts = [
                    value
                    if isinstance(value, str)
                    else bytes(value).split(b"\0", 1)[0].decode("utf-8", "replace")
                    for value in values
                ]
                columns[name] = np.array(texts, object)
        return columns


def _as_signed(value: int) -> int:
    """A number as the 64 bits hold it."""
    number = int(value)
    return number if number < _END_OF_SIGNED else number - _END_OF_WORD


_DISTRIBUTION_PLACES = (
    "/usr/lib/python3/dist-packages",
    "/usr/lib64/python{0}.{1}/site-packages",
    "/usr/lib/python{0}.{1}/site-packages",
)
_WHATEVER_ITS_VERSION = "/usr/lib*/python3*/*-packages/perf.cpython-*.so"
_TODO = "install Debian's linux-perf for its Python, or run: make perf-python"


def module_words(module: ModuleType) -> str:
    """The state of perf's Python here, in one line; recordings are read without it."""
    generation = "parse_events" if hasattr(module, "parse_events") else "evsel"
    files = "live and from files" if hasattr(module, "session") else "live only"
    scripts = f"perf script -s {'runs' if runs_scripts() else 'does not run'} Python"
    return f"{module.__file__} ({generation}, {files}); {scripts}"


@cache
def load_perf_module() -> ModuleType:
    """The module: this environment's own, else the distribution's if it fits this Python."""
    name = f"perf{sysconfig.get_config_var('EXT_SUFFIX')}"
    places = (Path(place.format(*sys.version_info)) / name for place in _DISTRIBUTION_PLACES)
    specs = [importlib.util.find_spec("perf")]
    specs += [importlib.util.spec_from_file_location("perf", p) for p in places if p.is_file()]
    problem = ""
    for spec in specs:
        if spec is None or spec.loader is None:
            continue
        try:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        except ImportError as error:
            problem = f"{spec.origin} cannot be loaded ({error})"
            continue
        if hasattr(module, "evlist"):
            return module
    if not problem:
        this = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
        problem = f"no Python module of perf for {this}"
        for file in Path("/").glob(_WHATEVER_ITS_VERSION[1:]):
            if tag := re.search(r"cpython-(\d)(\d+)", file.name):
                other = f"Python {tag[1]}.{tag[2]} ({file})"
                problem = f"perf's Python module is for {other}, not for {this}"
                break
    raise UsageError(f"{problem}; {_TODO}")


def runs_scripts() -> bool:
    """True where the perf command on PATH was built with Python."""
    path = shutil.which("perf")
    try:
        return path is not None and is_built_with(path, "libpython")
    except UsageError:
        return False


_FORK = 7
_AT_A_TIME = 4096
_WAIT_MS = 50
_LATE_LOSSES_S = 0.02


def live(
    seconds: float = 5.0,
    events: Sequence[str] = tuple(EVENT_NAMES),
    *,
    buffer_bytes: int | None = None,
    host: Host | None = None,
) -> Trace:
    """Sample tracepoints of this machine through perf's Python module.

    Every event of every CPU is asked for, and Python takes some 100,000 a second: what a buffer
    could not hold meanwhile is in `losses`. The trace starts once all CPUs are watched and ends
    where all of them were read. Its clock is perf's own, which snapshots do not use.

    Args:
        seconds: how long.
        events: names of tracepoints, the six of the page allocator by default.
        buffer_bytes: ring buffer of each CPU, a power of two; None: what `pagealloc record` takes.
        host: the machine, for tests.

    Raises:
        UsageError: perf's module is not there, or this user or kernel does not permit it; the
            text says what to do.
    """
    host = host or Host()
    perf = load_perf_module()
    if host.tracefs is None:
        raise UsageError("tracefs cannot be read; run as root, with tracefs mounted")
    formats = {}
    for name in dict.fromkeys((*events, tp.PAGE_ALLOC)):
        system, _, event = name.partition(":")
        text = read_or_none(host.tracefs / "events" / system / event / "format")
        if text is None:
            what = f"this kernel has no tracepoint {name}, or does not show it to this user"
            raise UsageError(what)
        try:
            formats[name] = print_formats.parse_format(system, text)
            if name == tp.PAGE_ALLOC:
                gfp_bits = print_formats.gfp_bits_from_print_fmt(formats[name].print_fmt)
        except ValueError as error:
            raise UsageError(f"this kernel's {name} is not supported: {error}") from None
    rows = _DeclaredRows()
    kinds = {formats[n].id: (n, rows.declare(n, formats[n].column_fields)) for n in events}
    buffers = _opened(perf, tuple(events), buffer_bytes or default_buffer(host))
    comms, losses = _sample(perf, buffers, rows, kinds, seconds)
    return Trace(
        **rows.finished(),
        comms=comms,
        gfp_bits=gfp_bits,
        gfp_from_format=True,
        losses=losses,
        source="live",
        release=host.release,
        nr_cpus=host.cpus,
        clock="perf",
    )


def _sample(
    perf: ModuleType,
    buffers: Any,
    rows: _DeclaredRows,
    kinds: Mapping[int, tuple[str, Sequence[str]]],
    seconds: float,
) -> tuple[dict[int, str], Losses]:
    """Take events out of the buffers for that long; returns names of threads, and losses."""
    cpus, comms = tuple(perf.cpu_map()), _thread_names()
    from_ns = until_ns = np.iinfo(np.int64).max
    last_ns = 0
    last_on: dict[int, int] = {}
    losses: list[tuple[int, int, int, int]] = []

    def read(cpu: int) -> int:
        """Take events of one CPU, a limited number: a busy one does not hold up the others."""
        nonlocal last_ns
        for taken in range(_AT_A_TIME):
            event = buffers.read_on_cpu(cpu)
            if event is None:
                return taken
            if isinstance(event, perf.sample_event):
                time_ns = last_on[cpu] = event.sample_time
                last_ns = max(last_ns, time_ns)
                if from_ns < time_ns <= until_ns:
                    name, fields = kinds[event.common_type]
                    values = [getattr(event, field) for field in fields]
                    rows.take(name, time_ns, cpu, event.sample_tid, values)
            elif isinstance(event, perf.lost_event):
                start_ns = min(last_on.get(cpu, from_ns), event.sample_time)
                losses.append((cpu, start_ns, event.sample_time, event.lost))
            elif isinstance(event, perf.comm_event):
                comms[event.tid] = event.comm
            elif isinstance(event, perf.task_event) and event.type == _FORK and event.ptid in comms:
                comms[event.tid] = comms[event.ptid]  # a forked thread's first name
        return _AT_A_TIME

    # Events were turned on one after the other: those up to a page taken now are left out, and
    # all that waits is read, however much it is, unless a buffer ran over.
    with mmap.mmap(-1, mmap.PAGESIZE) as page:
        page[0] = 1
    for cpu in cpus:
        while read(cpu) == _AT_A_TIME and not losses:
            pass
    from_ns = last_ns
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(InterruptedError):
            buffers.poll(_WAIT_MS)
        for cpu in cpus:
            read(cpu)
    until_ns = last_ns
    for wait_s in (_LATE_LOSSES_S, 0):
        # Each CPU up to the end of the trace, however far behind it is.
        for cpu in cpus:
            while last_on.get(cpu, 0) <= until_ns and read(cpu):
                pass
        # A loss is only reported with the next event, so give every CPU time for one.
        time.sleep(wait_s)
    inside = [loss for loss in losses if loss[2] > from_ns and loss[1] <= until_ns]
    return comms | _thread_names(), Losses.of(inside)


def _thread_names() -> dict[int, str]:
    """Names of all threads that are there now."""
    names = {0: "swapper"}
    for task in Path("/proc").glob("[0-9]*/task/[0-9]*"):
        name = read_or_none(task / "comm")
        if name:
            names[int(os.path.basename(task))] = name.rstrip("\n")
    return names


_EVENT_NAME = re.compile(r"(?<![\w-])[\w-]+:[\w-]+")


def read_with_perf_session(path: str | Path) -> Trace:
    """Read a recording with `perf.session`, sample by sample, to check the package's own reader.

    What the events' fields are is taken from the recording's own format data. The trace has
    neither call chains nor command names nor losses.
    """
    perf = load_perf_module()
    if not hasattr(perf, "session"):
        raise UsageError(
            f"{perf.__file__} samples live only; a module that reads files comes with kernels "
            "after 7.2, and the package's own reader needs none"
        )
    file = perf_file.open_perf_file(path)
    layouts = perf_data.attr_layouts(file)
    rows = _DeclaredRows()
    fields = {
        point.event_name: rows.declare(point.event_name, point.column_fields)
        for point in layouts.formats
        if point
    }

    def take(sample: Any) -> None:
        name = _EVENT_NAME.search(str(sample.evsel))
        if name is not None and name[0] in fields:
            values = [getattr(sample, field) for field in fields[name[0]]]
            rows.take(name[0], sample.sample_time, sample.sample_cpu, sample.sample_tid, values)

    try:
        perf.session(perf.data(str(path)), sample=take).process_events()
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        what = f"perf's module cannot read it ({error})"
        raise RecordingError(path, what, todo=perf_file.RECORD_AGAIN) from None
    return Trace(
        **rows.finished(),
        gfp_bits=layouts.gfp_bits,
        gfp_from_format=True,
        source=str(path),
        release=file.release,
        nr_cpus=file.nr_cpus,
        clock=perf_file.clock_name(file.attrs),
        notes=("perf.session reports no losses: the package's own reader does",),
    )


_FIELDS = ("-F", "comm,tid,cpu,time,event,trace")
_FATAL_FIRST = frozenset((tp.PAGE_FREE, tp.PAGE_FREE_BATCHED, tp.PAGE_PCPU_DRAIN))
"""Events whose text begins with a page: perf's Python crashes where one of them is the first."""
_LOST_SAMPLES = re.compile(r"LOST_SAMPLES events:\s+(\d+)\s*$")
_WITHOUT_ALLOCATIONS = f"has no {tp.PAGE_ALLOC} events"
_RECORD_WITH = f"record with {perf_data.RECORDING_COMMAND}"
_NO_THREAD = "999999999"
"""More than any thread's id can be: leaves out all samples."""


def read_with_perf_script(path: str | Path) -> Trace:
    """Read a recording with `perf script -s`, some 30,000 events a second.

    To check the package's own reader, or for a file that it refuses. The trace has no call
    chains. Losses that perf places nowhere span the whole recording. Tables hold numbers as perf
    gives them: one below zero in a field of four bytes is 2**32 too large.
    """
    path = Path(path)
    perf = find_perf().path
    if not runs_scripts():
        raise UsageError(f"{perf} was built without Python; install Debian's linux-perf")
    if is_compressed(path):
        raise RecordingError(path, "is packed, which perf does not read", todo="unpack it first")
    script = (perf, "script", "-f", "--ns")
    rows, names, ended = _DeclaredRows(), [], False
    text = trace_text.ScriptReader(path, rows)
    start_ns, last_ns = -1, -1
    # The header, and the events before the first that perf's Python can begin with.
    for text.number, line in enumerate(_output(path, [*script, "--header", *_FIELDS]), 1):
        if (event := trace_text.event_of(line)) is not None:
            name, time_ns = event
            if name not in _FATAL_FIRST and time_ns > last_ns:
                start_ns = time_ns
                break
            last_ns = time_ns
        text.line(line)
    else:
        raise RecordingError(path, _WITHOUT_ALLOCATIONS, todo=_RECORD_WITH)
    rows.tables.clear()  # their fields are text, of events that need not come again
    attrs: list[perf_file.EventAttr] = []
    comms, gfp_bits = {0: "swapper"}, {}
    since = ("--time", f"{start_ns // 10**9}.{start_ns % 10**9:09d},")
    for line in _output(path, [*script, "-s", emit_events.__file__, *since]):
        match json.loads(line):
            case [int(number), time_ns, cpu, tid, values]:
                rows.take(names[number], time_ns, cpu, tid, values)
            case ["event", _, name, fields, attr]:
                attrs.append(perf_file.parse_attr(bytes.fromhex(attr)))
                names.append(name)
                try:
                    if problem := perf_data.attr_problem(attrs[-1], name):
                        raise ValueError(problem)
                    rows.declare(name, fields)
                except ValueError as error:
                    raise RecordingError(path, str(error), todo=_RECORD_WITH) from None
            case ["name", tid, comm] if comm != f":{tid}":
                comms[tid] = comm
            case ["gfp", bits]:
                gfp_bits = print_formats.with_zone_names(bits)
            case ["end"]:
                ended = True
    if not ended:
        raise RecordingError(path, "perf ended before the file did", todo=perf_file.RECORD_AGAIN)
    if tp.PAGE_ALLOC not in names:
        raise RecordingError(path, _WITHOUT_ALLOCATIONS, todo=_RECORD_WITH)
    columns = rows.finished()
    for line in _output(path, [*script, *_FIELDS, "--show-lost-events", "--tid", _NO_THREAD]):
        text.line(line)
    losses, notes = text.losses, ()
    # By the kernel's own count; perf 6.1 does not tell it of what came through a pipe.
    counted, tells, of_one_event = 0, False, False
    for line in _output(path, [perf, "report", "-f", "--stats"]):
        if line.endswith(" stats:"):
            tells, of_one_event = True, not line.startswith("Aggregated")
        lost = _LOST_SAMPLES.search(line)
        if lost and of_one_event:
            counted += int(lost[1])
    if not tells:
        notes = ("perf does not tell how much was lost after the last loss on record",)
    elif counted > (placed := sum(count for _, _, count in losses)):
        losses = [*losses, (-1, int(columns["time_ns"][-1]), counted - placed)]
    return Trace(
        **columns,
        comms=text.comms | comms,
        gfp_bits=gfp_bits,
        gfp_from_format=True,
        losses=losses_by_time(losses, columns["time_ns"], columns["cpu"]),
        source=str(path),
        release=text.release,
        nr_cpus=text.nr_cpus,
        clock=perf_file.clock_name(attrs),
        sampled=perf_data.sampled_events(attrs, names),
        notes=notes,
    )


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
            complaints.seek(0)
            lines = ["it does not say why", *(line.strip() for line in complaints if line.strip())]
            why = f"it crashed with signal {-code}" if code < 0 else lines[-1][:120]
            raise RecordingError(path, f"perf cannot read it ({why})", todo=perf_file.RECORD_AGAIN)
