"""Text of perf script, trace-cmd and tracefs to a Trace."""

from __future__ import annotations

import re
import warnings
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.files import first_bytes, is_compressed, lines_of
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.base.text import LONGEST_TEXT, as_name, count_of, unescaped
from pagealloc_model.recording.trace import columns as trace_columns
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.formats import gfp_word, stable_gfp_bits
from pagealloc_model.recording.trace.layout import MAIN_FIELDS, OPTIONAL_FIELDS
from pagealloc_model.recording.trace.perf_arguments import header_words, recorded_scope
from pagealloc_model.recording.trace.side_tables import KEY_COLUMNS, column_name, preceding_rows

_FIELD = re.compile(r"\b(\w+)=(0x[0-9a-fA-F]+|-?\d+|[^\s,()]+)")
_LOCK = re.compile(r"^\s*(0x[0-9a-fA-F]+) ")
_DERIVED = frozenset({"page", "pageblock_order", "fragmenting"})
_CONTENTION_FLAGS = {"SPIN": 1, "READ": 2, "WRITE": 4, "RT": 8, "PERCPU": 16, "MUTEX": 32}
_GFP_FIELDS = {"gfp_flags", "gfp_mask"}
_INTEGER = re.compile(r"0x[0-9a-fA-F]{1,16}|-?(?:0|[1-9]\d{0,18})")
_LARGEST_SIGNED = 2**63 - 1


class EventRows:
    """Collects events in the order they come; main events as columns, all others as tables.

    `main` holds the main events' columns, row after row, and `count` says how many rows.
    """

    def __init__(self) -> None:
        self.main = array("q")
        self.count = 0
        self.tables: dict[str, list[tuple[int, int, int, int, Any]]] = {}

    def add(
        self, event: str, time_ns: int, cpu: int, tid: int, main: Iterable[int], fields: Any
    ) -> None:
        """Take one event: of a main one its other columns, of one that gets a table its fields."""
        kind = trace_columns.EVENT_NAMES.get(event)
        if kind is None or kind is trace_columns.Event.EXTFRAG:
            self.tables.setdefault(event, []).append((time_ns, cpu, tid, self.count, fields))
        if kind is not None:
            self.main.extend((time_ns, cpu, tid, kind, *main))
            self.count += 1

    def columns(
        self, columns_of: Callable[[str, Sequence[Any]], Mapping[str, np.ndarray]]
    ) -> tuple[dict[str, np.ndarray], dict[str, Mapping[str, np.ndarray]]]:
        """Columns of a Trace in time order, ties as they came, and its tables.

        `columns_of` makes columns of an event's fields, in the order in which these came.
        """
        rows = np.array(self.main, np.int64).reshape(-1, len(trace_columns.COLUMN_TYPES))
        main_order = np.argsort(rows[:, 0], kind="stable")
        main = dict(zip(trace_columns.COLUMN_TYPES, rows[main_order].T, strict=True))
        tables: dict[str, Mapping[str, np.ndarray]] = {}
        for event, taken in self.tables.items():
            if taken:
                *keys, fields = zip(*taken, strict=True)
                order = np.argsort(keys[0], kind="stable")
                time_ns, cpu, tid, before = np.array(keys, np.int64)[:, order]
                row = preceding_rows(time_ns, before, main["time_ns"], main_order)
                tables[event] = {
                    **dict(
                        zip(KEY_COLUMNS, (time_ns, np.int16(cpu), np.int32(tid), row), strict=True)
                    ),
                    **{column_name(n): c[order] for n, c in columns_of(event, fields).items()},
                }
        return main, tables


def _text_columns(event: str, rows: Sequence[Mapping[str, str]]) -> dict[str, np.ndarray]:
    """Columns of the fields that all rows have."""
    names = (name for name in rows[0] if all(name in row for row in rows))
    return {name: _column([row[name] for row in rows]) for name in names}


def _column(values: list[str]) -> np.ndarray:
    """Numbers where all values are, contention flags as their bits, else text."""
    if all(_INTEGER.fullmatch(value) for value in values):
        numbers = [int(value, 0) for value in values]
        if min(numbers) >= -_LARGEST_SIGNED and max(numbers) <= _LARGEST_SIGNED:
            return np.array(numbers, np.int64)
        if min(numbers) >= 0:
            return np.array(numbers, np.uint64)
    flags = [value.split("|") for value in values]
    if _CONTENTION_FLAGS.keys() >= {name for names in flags for name in names}:
        return np.array([sum(map(_CONTENTION_FLAGS.get, names)) for names in flags], np.int64)
    return np.array([as_name(unescaped(value), LONGEST_TEXT) for value in values], object)


FIELDS = "comm,pid,tid,cpu,time,event,trace"
_LINES_PER_REPORT = 1 << 14
_LONGEST_LINE, _MOST_SILENT = 1 << 14, 1 << 20
_MOST_NAMED = 20
_SOME_BACK = 0.125
"""Share of lines whose time may be before the last one's, as where CPUs stand one by one."""
_FEW = 4
_STALLS = ("vmscan:mm_vmscan_direct_reclaim_", "compaction:mm_compaction_")
RECORD_THESE = f"record with {tp.RECORD_ESSENTIAL}"
_RECORD_AGAIN = f"make the text with: perf script --ns --header -F {FIELDS}"

_OUR_EVENT = re.compile(r"\b(?:mm_page_|mm_vmscan_|mm_compaction_)\w{1,60}:")
_NO_TASK = re.compile(r"^\s*-(\d{1,9})\s+\[\d{1,5}\]")
_CUT_OFF, _AS_MADE = "has no task name: it was cut off", "give the text as the tracer wrote it"
_FIELDS_OF_OURS = re.compile(r"\bpfn=")
_TIMED = re.compile(r"(?:^|\s)(?P<seconds>[0-8]?\d{1,9})\.(?P<fraction>\d{6,9}): +(?:\d+ +)?")
_TIMED_EVENT = re.compile(_TIMED.pattern + r"(?P<name>[\w-]+:[\w-]+): ?(?P<body>.*)")
_LOST = re.compile(r"PERF_RECORD_LOST lost (\d{1,15})\b")
_OTHER_RECORD = re.compile(r"PERF_RECORD_\w+")
_CPU = re.compile(r"\[(\d{1,9})\]\s*(?:[A-Za-z]{1,2}\s*)?$")
"""Behind the CPU, `-F misc` puts a letter or two for the mode."""
_THREAD = re.compile(
    r"^\s*(?:(?P<comm>\S.{0,255}?)\s+)?(?P<first>-?\d{1,9})(?:/(?P<tid>-?\d{1,9}))?\s*$"
)
_CALL_CHAIN = re.compile(r"^(?:\t|\s+[0-9a-f]+(?: |$))")
_RELEASE = re.compile(r"^# os release : (\S+)")
_NR_CPUS = re.compile(r"^# nrcpus online : (\d{1,6})")
_COMMAND_LINE = re.compile(r"^# cmdline : (.{1,4000})")
_PERF_SCRIPT_FIELD = re.compile(r"\b(\w+)=(\S*)")
MAIN_COLUMNS = ("pfn", "order", "gfp", "migratetype", "percpu_refill")
ABSENT = {"order": 0, "gfp": 0}
"""The value for a column that an event lacks; -1 for the others."""
_FIELDS_OF = {
    kind: tuple(zip(MAIN_COLUMNS, fields, strict=True)) for kind, fields in MAIN_FIELDS.items()
}
_LARGEST = (2**62, 2**15, 2**31, 6, 2**52, trace_columns.LARGEST_ORDER + 1, 2**32, 16, 2, 2)
"""Exclusive bounds of the main columns, in their order."""
_OUT_OF_RANGE = "has a field out of any kernel's range"
_NULL_PAGES = frozenset({"(null)", "(nil)", "0", "0x0", "0000000000000000"})


def read_perf_script(
    path: str | Path, progress: Report | None = None, *, needs_pages: bool = True
) -> trace_columns.Trace:
    """Read `perf script` text, plain or packed by gzip, xz or zstd.

    Without `needs_pages` events of other kinds alone will do.

    The lines need time, cpu, event and trace fields; comm, pid and tid are used if there. With
    `pid` and `tid` ("77/83") the thread id counts; a single number is taken as the thread id.
    A last line without its end was cut, and is left out with a note.
    """
    return ScriptReader(Path(path), needs_pages=needs_pages).read(progress)


def event_of(line: str) -> tuple[str, int] | None:
    """Name and time in ns of the event on a line, None if there is none."""
    event = _TIMED_EVENT.search(line)
    return None if event is None else (event["name"], _nanoseconds(event))


class ScriptReader:
    """Collects columns, losses and what the header says, line by line.

    `number` is the current line's, for errors; `losses` are (CPU, time in ns, events lost) of each
    loss record.
    """

    _todo = _RECORD_AGAIN
    _foreign = "is not perf script output"

    def __init__(
        self, path: Path, rows: EventRows | None = None, *, needs_pages: bool = True
    ) -> None:
        self.path = path
        self._needs_pages = needs_pages
        self.rows = rows or EventRows()
        self.number = self._heard = 0
        self.release = ""
        self.nr_cpus = 0
        self.comms: dict[int, str] = {}
        self.losses: list[tuple[int, int, int]] = []
        self._passed_over = self._strange = self._first_strange = 0
        self._notes: tuple[str, ...] = ()
        self._command_line: list[str] = []
        self._heads: dict[str, tuple[int, int]] = {}
        self._gfp: dict[str, int] = {}
        self._dropped: set[str] = set()

    def read(self, progress: Report | None = None) -> trace_columns.Trace:
        """Read the whole file; return the trace. A last line without its end is left out."""
        size = self.path.stat().st_size if progress and not is_compressed(self.path) else 0
        done = 0
        for number, line in enumerate(lines_of(self.path), 1):
            self.number = number
            if not line.endswith("\n"):
                # What it says may be part of a longer number or name.
                cut = f"the text {trace_columns.CUT} in line {number}, which is left out"
                self._notes = (cut,)
                break
            self.line(line.rstrip("\r\n"))
            if number - self._heard > _MOST_SILENT:
                raise self._error(f"is the last of {_MOST_SILENT} without an event")
            done += len(line)
            if size and progress and number % _LINES_PER_REPORT == 0:
                progress(min(done / size, 1))
        return self._finish()

    def line(self, line: str) -> None:
        """Take one line: an event, a loss, a header comment or part of a call chain."""
        if len(line) > _LONGEST_LINE:
            raise self._error(self._foreign)
        if event := _TIMED_EVENT.search(line):
            cpu, thread = self._head(line[: event.start()])
            self._event(event["name"], _nanoseconds(event), cpu, thread, event["body"])
        elif timed := _TIMED.search(line):
            # A loss is kept, other records of --show-*-events are passed over.
            if lost := _LOST.match(line, timed.end()):
                cpu, _ = self._head(line[: timed.start()])
                self.losses.append((cpu, _nanoseconds(timed), int(lost[1])))
            elif not _OTHER_RECORD.match(line, timed.end()):
                if _NO_TASK.match(line):
                    raise self._error(_CUT_OFF, _AS_MADE)
                if _FIELDS_OF_OURS.search(line, timed.end()):
                    raise self._lacks("names no event", "event")
                self._passed_over += 1
        elif release := _RELEASE.match(line):
            self.release = unescaped(release[1])
        elif nr_cpus := _NR_CPUS.match(line):
            self.nr_cpus = int(nr_cpus[1])
        elif command_line := _COMMAND_LINE.match(line):
            self._command_line = header_words(command_line[1])
        elif line.strip() and not line.startswith("#") and not _CALL_CHAIN.match(line):
            if _OUR_EVENT.search(line):
                raise self._lacks("has no time", "time")
            if not _OTHER_RECORD.search(line):
                self._strange_line()

    def _head(self, text: str) -> tuple[int, int]:
        """CPU and thread id of what stands before the time."""
        known = self._heads.get(text)
        if known is not None:
            return known
        cpu = _CPU.search(text)
        if cpu is None:
            raise self._lacks("has no [cpu]", "cpu")
        if int(cpu[1]) >= _LARGEST[1]:
            raise self._error(_OUT_OF_RANGE)
        match = _THREAD.match(text[: cpu.start()])
        thread = int(match["tid"] or match["first"]) if match else -1
        if match and match["comm"] and match["comm"] != f":{thread}":
            self.comms[thread] = unescaped(match["comm"])
        self._heads[text] = (int(cpu[1]), thread)
        return self._heads[text]

    def _event(
        self, name: str, time_ns: int, cpu: int, thread: int, body: str, in_interrupt: int = -1
    ) -> None:
        """Take one event: a row of the main columns, of a table, or of both."""
        self._heard = self.number
        kind = trace_columns.EVENT_NAMES.get(name)
        main: tuple[int, ...] = ()
        fields: dict[str, str] = {}
        if kind is not None:
            main = (*self._main_values(kind, dict(_PERF_SCRIPT_FIELD.findall(body))), in_interrupt)
            row = (time_ns, cpu, thread, kind, *main)
            if not all(-1 <= n < bound for n, bound in zip(row, _LARGEST, strict=True)):
                raise self._error(_OUT_OF_RANGE)
        if kind is None or kind is trace_columns.Event.EXTFRAG:
            fields = {name: value for name, value in _FIELD.findall(body) if name not in _DERIVED}
            if lock := _LOCK.match(body):
                fields["lock_addr"] = lock[1]
            for gfp in _GFP_FIELDS & fields.keys():
                fields[gfp] = str(self._gfp_word(fields[gfp]))
        self.rows.add(name, time_ns, cpu, thread, main, fields)

    def _main_values(self, kind: trace_columns.Event, fields: dict[str, str]) -> list[int]:
        """The values of a main event's `MAIN_COLUMNS`."""
        values = []
        try:
            for column, name in _FIELDS_OF[kind]:
                if name is None or (name not in fields and name in OPTIONAL_FIELDS):
                    values.append(ABSENT.get(column, -1))
                elif column == "gfp":
                    values.append(self._gfp_word(fields[name]))
                else:
                    values.append(int(fields[name], 0))
        except KeyError as error:
            raise self._lacks(f"has no {error.args[0]}", "trace") from None
        except ValueError:
            raise self._error("has a field that is not a number") from None
        # T2: a failed allocation prints pfn 0 with a null page; unparsed text the raw -1.
        failed = values[0] == 2**64 - 1 or (
            values[0] == 0 and fields.get("page", "0") in _NULL_PAGES
        )
        if failed and kind == trace_columns.Event.ALLOC:
            values[0] = -1
        return values

    def _gfp_word(self, text: str) -> int:
        known = self._gfp.get(text)
        if known is not None:
            return known
        self._gfp[text], left_out = gfp_word(text, _version(self.release))
        self._dropped |= {as_name(unescaped(name)) for name in left_out}
        return self._gfp[text]

    def _error(self, what: str, todo: str = "") -> RecordingError:
        return RecordingError(self.path, f"line {self.number} {what}", todo=todo or self._todo)

    def _lacks(self, what: str, field: str) -> RecordingError:
        return self._error(what, f"add {field} to perf script's -F: {_RECORD_AGAIN}")

    def _finish(self) -> trace_columns.Trace:
        """The trace of all lines, in time order."""
        if not self.rows.count and (self._needs_pages or not self.rows.tables):
            raise self._no_event()
        times = np.array(self.rows.main, np.int64)[:: len(trace_columns.COLUMN_TYPES)]
        back = np.count_nonzero(times[1:] < times[:-1])
        if back and (times[0] == 0 or back > max(_SOME_BACK * len(times), _MOST_NAMED)):
            what = "holds differences of times, not times"
            raise RecordingError(self.path, what, todo=_RECORD_AGAIN)
        columns, tables = self.rows.columns(_text_columns)
        if self._dropped:
            warnings.warn(
                f"{self.path}: gfp flags whose bits depend on the kernel are dropped: "
                f"{', '.join(sorted(self._dropped)[:_MOST_NAMED])}",
                stacklevel=3,
            )
        return trace_columns.Trace(
            **columns,
            comms=self.comms,
            gfp_bits=stable_gfp_bits(_version(self.release)),
            tables=tables,
            losses=self._all_losses(columns["time_ns"], columns["cpu"])
            if len(times)
            else trace_columns.Losses.of(()),
            source=str(self.path),
            release=self.release,
            nr_cpus=self.nr_cpus,
            scope=recorded_scope(self._command_line, self.nr_cpus),
            notes=(*self._notes, *self._passed_over_words()),
        )

    def _strange_line(self) -> None:
        """Take a line that has nothing of an event."""
        self._strange += 1
        self._first_strange = self._first_strange or self.number

    def _passed_over_words(self) -> tuple[str, ...]:
        """How many lines were of no use, if any."""
        count = self._passed_over + self._strange
        return (f"{count_of(count, 'line')} passed over: no event that is used",) if count else ()

    def _no_event(self) -> RecordingError:
        """The error for a text without main events: what it has, and what to record."""
        if self.rows.tables:
            names = sorted(name.rpartition(":")[2] for name in self.rows.tables)
            what = f"holds no page-allocator event, only {', '.join(names[:_FEW])}"
            has_stalls = any(name.startswith(_STALLS) for name in self.rows.tables)
            todo = f"{RECORD_THESE}{', or ask pagealloc stalls' if has_stalls else ''}"
            return RecordingError(self.path, what, todo=todo)
        if self._passed_over:
            what = "holds no page-allocator event, only other events"
            return RecordingError(self.path, what, todo=RECORD_THESE)
        if self._strange:
            self.number = self._first_strange
            return self._error(self._foreign)
        return RecordingError(self.path, "holds no page-allocator event", todo=self._todo)

    def _all_losses(self, time_ns: np.ndarray, cpu: np.ndarray) -> trace_columns.Losses:
        """The losses, by times and CPUs of the main events in time order."""
        return trace_columns.losses_by_time(self.losses, time_ns, cpu)


def _nanoseconds(timed: re.Match[str]) -> int:
    return int(timed["seconds"]) * 10**9 + int(timed["fraction"].ljust(9, "0"))


def _version(release: str) -> tuple[int, int] | None:
    match = re.match(r"(\d{1,4})\.(\d{1,4})", release)
    return (int(match[1]), int(match[2])) if match else None


MAKE_WITH = "trace-cmd report -t FILE (nanoseconds), or give the trace.dat itself"

_LINE = re.compile(
    r"^\s*(?P<comm>.{1,64}?)-(?P<tid>\d{1,9})\s+(?:\(\s*[\d-]{1,9}\)\s+)?\[(?P<cpu>\d{1,5})\]\s*"
    r"(?:(?P<flags>[^\s\d]\S{3,9})\s+)?(?P<seconds>[0-8]?\d{1,9})\.(?P<fraction>\d{6,9}): "
    r"(?:(?P<name>\w+): *)?(?P<body>.*)"
)
"""What stands before the event, its name and its fields. Other tracers and triggers write something
else there: a stack's beginning, a function, a system call."""
_COLUMN = re.compile(r"^#[ |/_-]{1,80}=> (\S[^=]{0,60}?)\s*$")
"""A line of the header, which names one of the characters of the flags."""
_LATENCY = re.compile(r"^# \w{1,40} latency trace v")
_NO_CONTEXT = re.compile(r"^\s*mm_\w{1,60}:")
_WHOLE_NUMBER = re.compile(r"\[\d{1,5}\]\s*(?:[^\s\d]\S{3,9}\s+)?\d{1,20}: ")
_TRACER = re.compile(r"^# tracer: (\w{1,40})")
_TRACE_TEXT_LOST = re.compile(
    r"^CPU:(?P<cpu>\d{1,4}) \[(?:LOST )?(?:(?P<count>\d{1,15}) )?EVENTS(?: DROPPED)?\]"
)
_IN_BUFFER = re.compile(r"^# entries-in-buffer/entries-written: (\d{1,15})/(\d{1,15})")
_TRACE_TEXT_NR_CPUS = re.compile(r"^(?:cpus=|# entries-in-buffer.*#P:)(\d{1,6})\s*$")
_LOST_BY_BPFTRACE = re.compile(r"^Lost (\d{1,15}) events")
_PASSED_OVER = re.compile(
    r"^(?:#|Attaching \d|ERROR: .*RLIMIT_MEMLOCK|\s*=> |\s*<(?:user )?stack trace|version = |cpus=|"
    r"CPU \d{1,5} is empty|\s*$)"
)
_SYSTEMS = {
    "mm_page_": "kmem",
    "mm_zone_": "kmem",
    "mm_compaction_": "compaction",
    "mm_vmscan_": "vmscan",
    "mm_migrate_": "migrate",
    "contention_": "lock",
    "contended_": "lock",
    "compact_retry": "oom",
    "reclaim_retry_zone": "oom",
    "workqueue_": "workqueue",
    "sched_": "sched",
}
"""Subsystems of the events that are used, by how their names begin; the others stay without."""
_IN_INTERRUPT = frozenset("hHsZz")
_FLAG_OF_CONTEXT, _FLAGS = 2, (4, 5)
"""Place of the context among the flags, and how many there are, where no header says."""
_CONTEXT = "hardirq/softirq"
_UNKNOWN_CONTEXT = (
    "the header does not say which flag is hardirq/softirq: whether in an interrupt is not known"
)
_NO_CLOCK = (
    "text of ftrace does not name its clock: snapshots can be placed among its events only if it "
    "was recorded with trace_clock mono"
)
_MICROSECONDS = "times are exact to a microsecond only"


def is_trace_text(begins: bytes) -> bool:
    """A file that begins so is text of ftrace."""
    lines = begins.decode("utf-8", "replace").splitlines()
    if lines and (lines[0].startswith("# tracer:") or _TRACE_TEXT_NR_CPUS.match(lines[0])):
        return True
    return any(_LINE.match(line) or _TRACE_TEXT_LOST.match(line) for line in lines[:-1] or lines)


def read_trace_text(
    path: str | Path, progress: Report | None = None, *, needs_pages: bool = True
) -> trace_columns.Trace:
    """Read text of ftrace, plain or packed by gzip, xz or zstd.

    Without `needs_pages` events of other kinds alone will do.

    A last line without its end was cut, and is left out with a note.
    """
    return _TextReader(Path(path), needs_pages=needs_pages).read(progress)


class _TextReader(ScriptReader):
    """The same for lines of ftrace."""

    _todo = f"make the text with: {MAKE_WITH}"
    _foreign = "is no text of ftrace"

    def __init__(self, path: Path, *, needs_pages: bool = True) -> None:
        super().__init__(path, needs_pages=needs_pages)
        self._first_ns: dict[int, int] = {}
        self._last_ns: dict[int, int] = {}
        self._missed: Counter[int] = Counter()
        self._gaps: list[tuple[int, int, int, int]] = []
        self._overwritten = 0
        self._anywhere = 0
        self._exact = True
        self._columns: list[str] = []
        self._tracer = ""
        self._is_latency = False
        self._context_unknown = False

    def line(self, line: str) -> None:
        """Take one line: an event, a loss, or what is passed over."""
        if len(line) > _LONGEST_LINE:
            raise self._error(self._foreign)
        event = _LINE.match(line)
        if event is None:
            if lost := _TRACE_TEXT_LOST.match(line):
                self._missed[int(lost["cpu"])] += int(lost["count"] or 1)
                return
            if dropped := _LOST_BY_BPFTRACE.match(line):
                self._anywhere += int(dropped[1])
                return
            if counts := _IN_BUFFER.match(line):
                self._overwritten = max(int(counts[2]) - int(counts[1]), 0)
            if cpus := _TRACE_TEXT_NR_CPUS.search(line):
                self.nr_cpus = int(cpus[1])
            elif line.startswith("#"):
                self._header(line)
            elif _OUR_EVENT.search(line):
                raise self._unreadable_event(line)
            elif not _PASSED_OVER.match(line):
                self._strange_line()
            return
        if event["name"] is None:
            # a stack's beginning is part of its event
            self._passed_over += not _PASSED_OVER.match(event["body"])
            return
        cpu, thread, name = int(event["cpu"]), int(event["tid"]), event["name"]
        if cpu >= _LARGEST[1]:
            raise self._error("has a CPU out of any kernel's range")
        self._exact = self._exact and len(event["fraction"]) == 9
        time_ns = _nanoseconds(event)
        if cpu in self._missed:
            self._gaps.append((cpu, self._last_ns.get(cpu, -1), time_ns, self._missed.pop(cpu)))
        self._last_ns[cpu] = time_ns
        self._first_ns.setdefault(cpu, time_ns)
        if not event["comm"].startswith("<"):
            self.comms[thread] = event["comm"]
        context = self._in_interrupt(event["flags"])
        systems = (f"{system}:" for begin, system in _SYSTEMS.items() if name.startswith(begin))
        self._event(next(systems, "") + name, time_ns, cpu, thread, event["body"], context)

    def _header(self, line: str) -> None:
        """Take a line of the header: the tracer, or the name of a character of the flags."""
        if _LATENCY.match(line):
            self._is_latency = True
        elif tracer := _TRACER.match(line):
            self._tracer = tracer[1]
            self._columns = []
        elif (column := _COLUMN.match(line)) and len(self._columns) < _MOST_NAMED:
            self._columns.append(column[1])

    def _in_interrupt(self, flags: str | None) -> int:
        """1 for an event in an interrupt, 0 for one that is not, -1 if that is not known."""
        if flags is None:
            return -1
        place = _FLAG_OF_CONTEXT if len(flags) in _FLAGS else -1
        if self._columns:
            place = -1
            if _CONTEXT in self._columns and len(self._columns) == len(flags):
                place = self._columns.index(_CONTEXT)
        if place < 0:
            self._context_unknown = True
            return -1
        return int(flags[place] in _IN_INTERRUPT)

    def _unreadable_event(self, line: str) -> RecordingError:
        """The error for a line that has an event which is used, in no form that can be read."""
        if self._tracer.startswith("function_graph"):
            todo = "record with the nop tracer (echo nop > /sys/kernel/tracing/current_tracer)"
            return self._error(f"is of the tracer {self._tracer}, which gives no times", todo)
        if _NO_TASK.match(line):
            return self._error(_CUT_OFF, _AS_MADE)
        tracing = "/sys/kernel/tracing"
        if self._is_latency:
            todo = f"record again after echo 0 > {tracing}/options/latency-format"
            return self._error("is in the latency format, whose times are not the clock's", todo)
        if _NO_CONTEXT.match(line):
            todo = f"record again after echo 1 > {tracing}/options/context-info"
            return self._error("has no task, CPU and time", todo)
        if _WHOLE_NUMBER.search(line):
            todo = (
                f"record again after echo mono > {tracing}/trace_clock, or with trace-cmd -C mono"
            )
            return self._error("has a clock that gives no seconds", todo)
        return self._error("is no text of ftrace")

    def _finish(self) -> trace_columns.Trace:
        unknown = (_UNKNOWN_CONTEXT,) if self._context_unknown else ()
        self._notes += (*(() if self._exact else (_MICROSECONDS,)), *unknown, _NO_CLOCK)
        return super()._finish()

    def _all_losses(self, time_ns: np.ndarray, cpu: np.ndarray) -> trace_columns.Losses:
        """Where the text marks them; what was overwritten before is missing at the beginning.

        bpftrace does not say where it lost events: that counts for the whole time.
        """
        first, last = int(time_ns[0]), int(time_ns[-1])
        gaps = [
            (n, max(begin, first), max(end, first), count) for n, begin, end, count in self._gaps
        ]
        gaps += [(n, self._last_ns.get(n, first), last, count) for n, count in self._missed.items()]
        overwritten = self._overwritten - sum(count for *_, count in gaps)
        if overwritten > 0:
            gaps.append((-1, first, max(first, *self._first_ns.values()), overwritten))
        if self._anywhere:
            gaps.append((-1, first, last, self._anywhere))
        return trace_columns.Losses.of(gaps)


_UNPACK = "unpack it, and give the recording's directory"
_JOIN = (
    "join it with a trace by pagealloc attach, or put it into a directory and ask pagealloc explain"
)
_TAR, _TAR_PLACE = b"ustar", 257
_KINDS = (
    (b"PK\x03\x04", "is a zip archive", _UNPACK),
    (b"\xff\xfe", "is UTF-16 text", "save it as UTF-8, or give the perf.data itself"),
    (b"\xfe\xff", "is UTF-16 text", "save it as UTF-8, or give the perf.data itself"),
    (b"\x7fELF", "is a program", "give what perf record wrote"),
    (b"PAR1", "is a Parquet table", "give what it was made from"),
    (b"BZh", "is packed by bzip2", "unpack it (perf archive makes .tar.bz2 of symbols, no events)"),
    (b"Page block order:", "is a copy of /proc/pagetypeinfo", _JOIN),
)
_COPIES = (
    (re.compile(rb"Node +\d{1,4}, zone +\w{1,20}(?: +\d{1,12}){4,16} *\n"), "buddyinfo"),
    (re.compile(rb"Node +\d{1,4}, zone +\w{1,20} *\n"), "zoneinfo"),
)
_PERF_TRACE = re.compile(rb"(?m)^ *\d{1,12}\.\d{3} .{0,80}\b(?:kmem|vmscan|compaction):\w{1,60}\(")
_FAILURE = re.compile(rb"page allocation failure|invoked oom-killer|Mem-Info:")


def refuse_foreign(path: Path) -> None:
    """Refuse a file of a known kind that holds no events."""
    begins = first_bytes(path, 512)
    for magic, what, todo in _KINDS:
        if begins.startswith(magic):
            raise RecordingError(path, what, todo=todo)
    for pattern, name in _COPIES:
        if pattern.match(begins):
            raise RecordingError(path, f"is a copy of /proc/{name}", todo=_JOIN)
    if _FAILURE.search(begins):
        what = "is a log with a failed allocation, not a trace"
        raise RecordingError(path, what, todo=f"pagealloc explain {path.name} says why it failed")
    if _PERF_TRACE.search(begins):
        what = "is what perf trace prints, which has no CPUs and not all fields"
        raise RecordingError(path, what, todo=f"{RECORD_THESE} (perf record -a)")
    if begins[_TAR_PLACE : _TAR_PLACE + len(_TAR)] == _TAR:
        raise RecordingError(path, "is a tar archive", todo=_UNPACK)
    if not begins.strip(b"\0"):
        what = "holds nothing but zeros" if begins else "is empty"
        raise RecordingError(path, what, todo="copy it again from where it was recorded")
