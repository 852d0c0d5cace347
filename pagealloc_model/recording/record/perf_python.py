"""perf's own Python bindings: events as they come, and perf's interpreter inside perf script."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import numpy as np

from pagealloc_model.base.errors import RecordingError, UsageError
from pagealloc_model.base.files import is_compressed
from pagealloc_model.recording.record import emit_events
from pagealloc_model.recording.record.host import Host, read_or_none
from pagealloc_model.recording.record.perf import default_buffer, find_perf, is_built_with
from pagealloc_model.recording.trace.columns import (
    COLUMN_TYPES,
    EVENT_NAMES,
    Event,
    Losses,
    Trace,
    losses_by_time,
)
from pagealloc_model.recording.trace.formats import (
    Field,
    TracepointFormat,
    gfp_bits_from_print_fmt,
    parse_format,
    with_zone_names,
)
from pagealloc_model.recording.trace.layout import MAIN_FIELDS, OPTIONAL_FIELDS
from pagealloc_model.recording.trace.perf_file import (
    RECORD_AGAIN,
    EventAttr,
    clock_name,
    open_perf_file,
    parse_attr,
)
from pagealloc_model.recording.trace.perf_samples import (
    RECORDING_COMMAND,
    attr_layouts,
    attr_problem,
    sampled_events,
)
from pagealloc_model.recording.trace.side_tables import column_name, preceding_rows
from pagealloc_model.recording.trace.trace_text import ScriptReader, event_of

_STANDARD_ERROR = 2


def _opened(perf: ModuleType, events: Sequence[str], buffer_bytes: int) -> Any:
    """Events of all CPUs, each CPU's in a buffer of its own; they are on from the start."""
    cpus, threads = perf.cpu_map(), perf.thread_map(-1)
    by_name = hasattr(perf, "parse_events")
    make = _by_name if by_name else _by_number
    try:
        opened = make(perf, events, cpus, threads)
        opened.open()
        with _without_chatter():
            opened.mmap(buffer_bytes // os.sysconf("SC_PAGE_SIZE"))
        if by_name:
            opened.enable()
    except OSError as error:
        raise UsageError(
            f"the events cannot be opened ({error.strerror or error}); "
            "see what is in the way with: pagealloc doctor"
        ) from None
    return opened


def _by_name(perf: ModuleType, names: Sequence[str], cpus: Any, threads: Any) -> Any:
    """The newer generation parses names, as the perf command does."""
    events = perf.parse_events(",".join(names), cpus, threads)
    for each in events:
        each.tracking = False
    events.config()
    for each in events:
        # Without the id in it, samples of several events cannot be told apart.
        each.read_format = perf.FORMAT_ID
    return events


def _by_number(perf: ModuleType, names: Sequence[str], cpus: Any, threads: Any) -> Any:
    """The older generation wants every attribute spelled out; the first event reports tasks."""
    carried = perf.SAMPLE_TID | perf.SAMPLE_TIME | perf.SAMPLE_ID | perf.SAMPLE_CPU
    events = perf.evlist(cpus, threads)
    for index, name in enumerate(names):
        number = perf.tracepoint(*name.split(":", 1))
        if number < 0:
            raise UsageError(f"this kernel has no tracepoint {name}, or does not show it")
        events.add(
            perf.evsel(
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
        )
    return events


@contextlib.contextmanager
def _without_chatter() -> Iterator[None]:
    """Keep what perf's own library says about every mapping off standard error."""
    kept = os.dup(_STANDARD_ERROR)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, _STANDARD_ERROR)
        yield
    finally:
        os.dup2(kept, _STANDARD_ERROR)
        os.close(nowhere)
        os.close(kept)


Value = int | str | bytes | bytearray
_ABSENT = {"order": 0, "gfp": 0}
_MAIN_COLUMNS = ("pfn", "order", "gfp", "migratetype", "percpu_refill")
_CONTEXT_UNKNOWN = -1
"""perf hands scripts no common_flags."""
_FIXED = 4
_END_OF_SIGNED, _END_OF_WORD = 1 << 63, 1 << 64


class EventRows:
    """Collects events in the order they come; main events as columns, all others as tables."""

    def __init__(self, first: Iterable[int] = ()) -> None:
        self._main = array("q", first)
        self._main_count = len(self._main) // len(COLUMN_TYPES)
        self._places: dict[str, list[int | None]] = {}
        self._tables: dict[str, _Table] = {}

    def declare(self, event: str, fields: Sequence[Field | str]) -> None:
        """Say which fields an event's rows will hold."""
        names = [field if isinstance(field, str) else field.name for field in fields]
        kind = EVENT_NAMES.get(event)
        if kind is not None:
            for name in MAIN_FIELDS[kind]:
                if name is not None and name not in {*names, *OPTIONAL_FIELDS}:
                    raise ValueError(f"{event} has no field {name}")
            self._places[event] = [
                names.index(name) if name in names else None for name in MAIN_FIELDS[kind]
            ]
        if kind is None or kind is Event.EXTFRAG:
            kinds = [None if isinstance(field, str) else field for field in fields]
            self._tables[event] = _Table(names, kinds)

    def add(self, event: str, time_ns: int, cpu: int, tid: int, values: Sequence[Value]) -> None:
        """Take one event of a kind that was declared."""
        table = self._tables.get(event)
        if table is not None:
            table.add(time_ns, cpu, tid, self._main_count, values)
        places = self._places.get(event)
        if places is not None:
            self._main.extend((time_ns, cpu, tid, EVENT_NAMES[event]))
            self._main.extend(
                _ABSENT.get(name, -1) if place is None else _as_signed(values[place])
                for name, place in zip(_MAIN_COLUMNS, places, strict=True)
            )
            self._main.append(_CONTEXT_UNKNOWN)
            self._main_count += 1

    def columns(self) -> tuple[dict[str, np.ndarray], dict[str, Mapping[str, np.ndarray]]]:
        """The columns of a Trace in time order, ties as they came, and its tables."""
        rows = np.frombuffer(self._main, np.int64).reshape(-1, len(COLUMN_TYPES))
        order = np.argsort(rows[:, 0], kind="stable")
        sorted_rows = rows[order]
        main = {name: sorted_rows[:, place] for place, name in enumerate(COLUMN_TYPES)}
        main["gfp"] = main["gfp"] & 0xFFFFFFFF
        # An int comes without its sign where the source does not say how wide it is.
        main["migratetype"] = main["migratetype"].astype(np.uint32).view(np.int32)
        tables = {
            name: table.columns(main["time_ns"], order)
            for name, table in self._tables.items()
            if table.count
        }
        return main, tables


class _Table:
    """Rows of one tracepoint."""

    def __init__(self, names: Sequence[str], kinds: Sequence[Field | None]) -> None:
        self.count = 0
        self._fields = tuple(zip(names, kinds, strict=True))
        self._numbers = array("q")
        self._texts: dict[int, list[str]] = {}
        self._skipped: set[int] = set()

    def add(
        self, time_ns: int, cpu: int, tid: int, main_before: int, values: Sequence[Value]
    ) -> None:
        self._numbers.extend((time_ns, cpu, tid, main_before))
        for place, value in enumerate(values):
            if isinstance(value, int):
                self._numbers.append(_as_signed(value))
            else:
                self._numbers.append(0)
                self._add_text(place, value)
        self.count += 1

    def _add_text(self, place: int, value: object) -> None:
        if isinstance(value, bytes | bytearray):
            value = bytes(value).split(b"\0", 1)[0].decode("utf-8", "replace")
        if isinstance(value, str):
            self._texts.setdefault(place, []).append(value)
        else:
            self._skipped.add(place)

    def columns(self, main_time_ns: np.ndarray, main_order: np.ndarray) -> dict[str, np.ndarray]:
        rows = np.frombuffer(self._numbers, np.int64).reshape(self.count, -1)
        order = np.argsort(rows[:, 0], kind="stable")
        rows = rows[order]
        columns = {
            "time_ns": rows[:, 0].copy(),
            "cpu": rows[:, 1].astype(np.int16),
            "pid": rows[:, 2].astype(np.int32),
            "row": preceding_rows(rows[:, 0], rows[:, 3], main_time_ns, main_order),
        }
        for place, (name, kind) in enumerate(self._fields):
            if len(self._texts.get(place, ())) == self.count:
                columns[column_name(name)] = np.array(self._texts[place], object)[order]
            elif place not in self._texts and place not in self._skipped:
                words = rows[:, _FIXED + place].copy()
                columns[column_name(name)] = _as_declared(words, kind)
        return columns


def _as_signed(value: Value) -> int:
    """A number as the 64 bits hold it."""
    number = int(value)
    return number if number < _END_OF_SIGNED else number - _END_OF_WORD


def _as_declared(words: np.ndarray, field: Field | None) -> np.ndarray:
    """Numbers in their field's own type; unknown ones unsigned if they were all ones on top."""
    if field is None:
        return words.view(np.uint64) if np.any(words < 0) else words
    unsigned = words.view(np.uint64).astype(f"<u{field.size}")
    return unsigned.view(f"<i{field.size}") if field.signed else unsigned


_DISTRIBUTION_PLACES = (
    "/usr/lib/python3/dist-packages",
    "/usr/lib64/python{0}.{1}/site-packages",
    "/usr/lib/python{0}.{1}/site-packages",
)
_WHATEVER_ITS_VERSION = "/usr/lib*/python3*/*-packages/perf.cpython-*.so"
_TODO = "install Debian's linux-perf for its Python, or run: make perf-python"


@dataclass(frozen=True, kw_only=True)
class PerfPythonState:
    """What of perf's Python can be used here.

    Attributes:
        module: file of the importable module, "" if there is none for this Python.
        live: how it samples: "parse_events" (kernels after 6.12), "evsel", or "" without it.
        reads_files: whether it reads recordings (`perf.session`).
        embedded: whether the perf command runs Python scripts.
        lacking: what is not there and how to get it, one line; "" if the module is there.
    """

    module: str
    live: str
    reads_files: bool
    embedded: bool
    lacking: str

    @property
    def line(self) -> str:
        """The same in one line to print."""
        scripts = f"perf script -s {'runs' if self.embedded else 'does not run'} Python"
        if not self.module:
            return f"{self.lacking}; {scripts}"
        files = "live and from files" if self.reads_files else "live only"
        return f"{self.module} ({self.live}, {files}); {scripts}"


def perf_python_state() -> PerfPythonState:
    """What of perf's Python can be used here; recordings are read without any of it."""
    try:
        module = load_perf_module()
    except UsageError as error:
        return PerfPythonState(
            module="", live="", reads_files=False, embedded=runs_scripts(), lacking=str(error)
        )
    return PerfPythonState(
        module=str(module.__file__),
        live="parse_events" if hasattr(module, "parse_events") else "evsel",
        reads_files=hasattr(module, "session"),
        embedded=runs_scripts(),
        lacking="",
    )


@cache
def load_perf_module() -> ModuleType:
    """The module: this environment's own, else the distribution's if it fits this Python."""
    problem = ""
    for spec in _candidates():
        try:
            module = importlib.util.module_from_spec(spec)
            assert spec.loader is not None
            spec.loader.exec_module(module)
        except ImportError as error:
            problem = f"{spec.origin} cannot be loaded ({error})"
            continue
        if hasattr(module, "evlist"):
            return module
    raise UsageError(f"{problem or _nothing_found()}; {_TODO}")


def _candidates() -> Iterator[importlib.machinery.ModuleSpec]:
    own = importlib.util.find_spec("perf")
    if own is not None and own.loader is not None:
        yield own
    name = f"perf{sysconfig.get_config_var('EXT_SUFFIX')}"
    for place in _DISTRIBUTION_PLACES:
        file = Path(place.format(*sys.version_info)) / name
        if file.is_file():
            spec = importlib.util.spec_from_file_location("perf", file)
            assert spec is not None
            yield spec


def _nothing_found() -> str:
    this = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    for file in Path("/").glob(_WHATEVER_ITS_VERSION[1:]):
        tag = re.search(r"cpython-(\d)(\d+)", file.name)
        if tag:
            return f"perf's Python module is for Python {tag[1]}.{tag[2]} ({file}), not for {this}"
    return f"no Python module of perf for {this}"


def runs_scripts() -> bool:
    """Whether the perf command on PATH was built with Python."""
    path = shutil.which("perf")
    try:
        return path is not None and is_built_with(path, "libpython")
    except UsageError:
        return False


_ALLOC = "kmem:mm_page_alloc"
_FORK = 7
_AT_A_TIME = 4096
_WAIT_MS = 50
_LATE_LOSSES_MS = 20


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
    formats = {name: _format(host, name) for name in dict.fromkeys((*events, _ALLOC))}
    rows = EventRows()
    for name in events:
        rows.declare(name, formats[name].column_fields)
    buffers = _opened(perf, tuple(events), buffer_bytes or default_buffer(host))
    sampling = _Sampling(perf, buffers, rows, [formats[name] for name in events])
    sampling.run(seconds)
    main, tables = rows.columns()
    return Trace(
        **main,
        comms=sampling.comms,
        gfp_bits=_gfp_bits(formats[_ALLOC]),
        gfp_from_format=True,
        tables=tables,
        losses=sampling.losses(),
        source="live",
        release=host.release,
        nr_cpus=host.cpus,
        clock="perf",
    )


def _format(host: Host, name: str) -> TracepointFormat:
    """What the running kernel says of a tracepoint."""
    if host.tracefs is None:
        raise UsageError("tracefs cannot be read; run as root, with tracefs mounted")
    system, _, event = name.partition(":")
    text = read_or_none(host.tracefs / "events" / system / event / "format")
    if text is None:
        raise UsageError(f"this kernel has no tracepoint {name}, or does not show it to this user")
    try:
        return parse_format(system, text)
    except ValueError as error:
        raise UsageError(f"this kernel's {name} is not supported: {error}") from None


def _gfp_bits(alloc: TracepointFormat) -> dict[str, int]:
    try:
        return gfp_bits_from_print_fmt(alloc.print_fmt)
    except ValueError as error:
        raise UsageError(f"this kernel's {_ALLOC} is not supported: {error}") from None


class _Sampling:
    """Takes events out of the buffers, and remembers names and losses."""

    def __init__(
        self,
        perf: ModuleType,
        buffers: Any,
        rows: EventRows,
        formats: Sequence[TracepointFormat],
    ) -> None:
        self._perf = perf
        self._buffers = buffers
        self._cpus = tuple(perf.cpu_map())
        self._rows = rows
        self._kinds = {
            each.id: (each.event_name, tuple(field.name for field in each.column_fields))
            for each in formats
        }
        self.comms = _thread_names()
        self._last_ns = 0
        self._from_ns = 0
        self._until_ns = np.iinfo(np.int64).max
        self._last_on: dict[int, int] = {}
        self._losses: list[tuple[int, int, int, int]] = []

    def run(self, seconds: float) -> None:
        """Sample for that long."""
        self._from_ns = np.iinfo(np.int64).max
        self._read_all()
        self._from_ns = self._last_ns
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(InterruptedError):
                self._buffers.poll(_WAIT_MS)
            self._read_all()
        self._until_ns = self._last_ns
        self._read_rest()
        # A loss is only reported with the next event, so give every CPU time for one.
        time.sleep(_LATE_LOSSES_MS / 1000)
        self._read_rest()
        self.comms.update(_thread_names())

    def losses(self) -> Losses:
        """What the buffers could not hold."""
        return Losses.of(
            [row for row in self._losses if row[2] > self._from_ns and row[1] <= self._until_ns]
        )

    def _read_all(self) -> None:
        for cpu in self._cpus:
            self._read(cpu)

    def _read(self, cpu: int) -> int:
        """Take events of one CPU, a limited number: a busy one does not hold up the others."""
        for taken in range(_AT_A_TIME):
            event = self._buffers.read_on_cpu(cpu)
            if event is None:
                return taken
            self._take(cpu, event)
        return _AT_A_TIME

    def _read_rest(self) -> None:
        """Read each CPU up to the end of the trace, however far behind it is."""
        for cpu in self._cpus:
            while self._last_on.get(cpu, 0) <= self._until_ns and self._read(cpu):
                pass

    def _take(self, cpu: int, event: Any) -> None:
        perf = self._perf
        if isinstance(event, perf.sample_event):
            time_ns = event.sample_time
            self._last_on[cpu] = time_ns
            self._last_ns = max(self._last_ns, time_ns)
            if self._from_ns < time_ns <= self._until_ns:
                name, fields = self._kinds[event.common_type]
                values = [getattr(event, field) for field in fields]
                self._rows.add(name, time_ns, cpu, event.sample_tid, values)
        elif isinstance(event, perf.lost_event):
            end_ns = event.sample_time
            start_ns = min(self._last_on.get(cpu, self._from_ns), end_ns)
            self._losses.append((cpu, start_ns, end_ns, event.lost))
        elif isinstance(event, perf.comm_event):
            self.comms[event.tid] = event.comm
        elif isinstance(event, perf.task_event) and event.type == _FORK:
            self._name_child(event.tid, event.ptid)

    def _name_child(self, tid: int, parent: int) -> None:
        """A forked thread starts with its parent's name."""
        if parent in self.comms:
            self.comms[tid] = self.comms[parent]


def _thread_names() -> dict[int, str]:
    """Names of all threads that are there now."""
    names = {0: "swapper"}
    for task in Path("/proc").glob("[0-9]*/task/[0-9]*"):
        name = read_or_none(task / "comm")
        if name:
            names[int(os.path.basename(task))] = name.rstrip("\n")
    return names


_EVENT_NAME = re.compile(r"[\w-]+:[\w-]+")
_NOT_COUNTED = "perf.session reports no losses: the package's own reader does"


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
    file = open_perf_file(path)
    layouts = attr_layouts(file)
    rows, fields = EventRows(), {}
    for each in layouts.formats:
        if each is not None:
            rows.declare(each.event_name, each.column_fields)
            fields[each.event_name] = [field.name for field in each.column_fields]

    def take(sample: Any) -> None:
        name = _EVENT_NAME.search(str(sample.evsel))
        if name is not None and name[0] in fields:
            values = [getattr(sample, field) for field in fields[name[0]]]
            rows.add(name[0], sample.sample_time, sample.sample_cpu, sample.sample_tid, values)

    try:
        perf.session(perf.data(str(path)), sample=take).process_events()
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        what = f"perf's module cannot read it ({error})"
        raise RecordingError(path, what, todo=RECORD_AGAIN) from None
    main, tables = rows.columns()
    return Trace(
        **main,
        tables=tables,
        gfp_bits=layouts.gfp_bits,
        gfp_from_format=True,
        source=str(path),
        release=file.release,
        nr_cpus=file.nr_cpus,
        clock=file.clock,
        notes=(_NOT_COUNTED,),
    )


_FIELDS = ("-F", "comm,tid,cpu,time,event,trace")
_FATAL_FIRST = frozenset(
    f"kmem:{name}" for name in ("mm_page_free", "mm_page_free_batched", "mm_page_pcpu_drain")
)
"""Events whose text begins with a page: perf's Python crashes where one of them is the first."""
_LOST_SAMPLES = re.compile(r"LOST_SAMPLES events:\s+(\d+)\s*$")
_ANY_CPU = -1
_EMBEDDED_NOT_COUNTED = "perf does not tell how much was lost after the last loss on record"
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
        notes = (_EMBEDDED_NOT_COUNTED,)
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
    """Take in the header and the events before the first that perf's Python can begin with."""
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
