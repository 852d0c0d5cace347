"""Text of ftrace to a Trace: `trace-cmd report`, and tracefs's `trace` and `trace_pipe`.

docs/record/page_events.bt makes bpftrace print such lines.

Like `perf script` text it carries no format data (see `perf_script`); unlike it, it names events
without their subsystem, marks losses where they happened, and mostly says whether the CPU was in an
interrupt. Which clock its times are of it does not say.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.recording.trace.columns import EVENT_NAMES, Losses, Trace
from pagealloc_model.recording.trace.perf_script import ScriptReader

MAKE_WITH = "trace-cmd report -t FILE (nanoseconds), or give the trace.dat itself"

_LINE = re.compile(
    r"^\s*(?P<comm>.{1,64}?)-(?P<tid>\d{1,9})\s+(?:\(\s*[\d-]{1,9}\)\s+)?\[(?P<cpu>\d{1,5})\]\s*"
    r"(?:(?P<flags>[^\s\d]\S{3,7})\s+)?(?P<seconds>\d{1,10})\.(?P<fraction>\d{6,9}): "
    r"(?P<name>\w+): *(?P<body>.*)$"
)
_LOST = re.compile(
    r"^CPU:(?P<cpu>\d{1,5}) \[(?:LOST )?(?:(?P<count>\d{1,15}) )?EVENTS(?: DROPPED)?\]"
)
_IN_BUFFER = re.compile(r"^# entries-in-buffer/entries-written: (\d{1,15})/(\d{1,15})")
_NR_CPUS = re.compile(r"^(?:cpus=|# entries-in-buffer.*#P:)(\d{1,6})\s*$")
_LOST_BY_BPFTRACE = re.compile(r"^Lost (\d{1,15}) events")
_PASSED_OVER = re.compile(
    r"^(?:#|Attaching \d|ERROR: .*RLIMIT_MEMLOCK|\s*=> |\s*<stack trace|version = |cpus=|\s*$)"
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
"""Subsystems of the events that are used, by how their names begin."""
_IN_INTERRUPT = frozenset("hHsZz")
_FLAG_OF_CONTEXT = 2
_LONGEST_LINE = 1 << 14
_NO_CLOCK = (
    "text of ftrace does not name its clock: snapshots can be placed among its events only if it "
    "was recorded with trace_clock mono"
)
_MICROSECONDS = "times are exact to a microsecond only"


def is_trace_text(begins: bytes) -> bool:
    """Whether a file that begins so is text of ftrace."""
    lines = begins.decode("utf-8", "replace").splitlines()
    if lines and (lines[0].startswith("# tracer:") or _NR_CPUS.match(lines[0])):
        return True
    return any(_LINE.match(line) or _LOST.match(line) for line in lines[:-1] or lines)


def read_trace_text(path: str | Path, progress: Report | None = None) -> Trace:
    """Read text of ftrace, plain or packed by gzip, xz or zstd.

    A last line without its end was cut, and is left out with a note.

    Args:
        path: the text file.
        progress: called with the share done, 0 to 1, unless the text is packed.

    Returns:
        The trace. gfp bits above 0x800000 are 0, with a warning if any name had them.

    Raises:
        RecordingError: a line is none of ftrace's, a gfp name is unknown, or the file holds no
            page-allocator event.
    """
    return _TextReader(Path(path)).read(progress)


class _TextReader(ScriptReader):
    """The same for lines of ftrace."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._last_ns: dict[int, int] = {}
        self._missed: dict[int, int] = {}
        self._gaps: list[tuple[int, int, int, int]] = []
        self._overwritten = 0
        self._anywhere = 0
        self._first_of_cpu: dict[int, int] = {}
        self._exact = True

    def line(self, line: str) -> None:
        """Take one line: an event, a loss, or what is passed over."""
        if len(line) > _LONGEST_LINE:
            raise self._error("is no text of ftrace", "")
        event = _LINE.match(line)
        if event is None:
            self._other_line(line)
            return
        cpu, thread = int(event["cpu"]), int(event["tid"])
        if cpu >= 1 << 15:
            raise self._error("has a CPU out of any kernel's range", "")
        self._exact = self._exact and len(event["fraction"]) == 9
        time_ns = int(event["seconds"]) * 10**9 + int(event["fraction"].ljust(9, "0"))
        if cpu in self._missed:
            before = self._last_ns.get(cpu, -1)
            self._gaps.append((cpu, before, time_ns, self._missed.pop(cpu)))
        self._last_ns[cpu] = time_ns
        self._first_of_cpu.setdefault(cpu, time_ns)
        if not event["comm"].startswith("<"):
            self.comms[thread] = event["comm"]
        name, body = event["name"], event["body"]
        kind = EVENT_NAMES.get(f"kmem:{name}")
        if kind is None:
            table = self._table(_with_system(name))
            table.add(time_ns, cpu, thread, self.row_count, body)
            return
        flags = event["flags"]
        context = -1 if flags is None else int(flags[_FLAG_OF_CONTEXT] in _IN_INTERRUPT)
        self._row(kind, time_ns, cpu, thread, body, context)

    def _other_line(self, line: str) -> None:
        if lost := _LOST.match(line):
            cpu = int(lost["cpu"])
            self._missed[cpu] = self._missed.get(cpu, 0) + int(lost["count"] or 1)
            return
        if dropped := _LOST_BY_BPFTRACE.match(line):
            self._anywhere += int(dropped[1])
            return
        if counts := _IN_BUFFER.match(line):
            self._overwritten = max(int(counts[2]) - int(counts[1]), 0)
        if cpus := _NR_CPUS.search(line):
            self.nr_cpus = int(cpus[1])
        elif not _PASSED_OVER.match(line):
            raise self._error("is no text of ftrace, or its clock gives no seconds", "")

    def _error(self, what: str, todo: str) -> RecordingError:
        return RecordingError(
            self.path, f"line {self.number} {what}", todo=f"make the text with: {MAKE_WITH}"
        )

    def finish(self) -> Trace:
        """The trace of all lines, in time order."""
        if not self.row_count:
            raise RecordingError(
                self.path, "holds no page-allocator event", todo=f"make the text with: {MAKE_WITH}"
            )
        self.notes = (*self.notes, *(() if self._exact else (_MICROSECONDS,)), _NO_CLOCK)
        return super().finish()

    def _all_losses(self, time_ns: np.ndarray, cpu: np.ndarray) -> Losses:
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
            gaps.append((-1, first, max(first, *self._first_of_cpu.values()), overwritten))
        if self._anywhere:
            gaps.append((-1, first, last, self._anywhere))
        columns = np.array(gaps, np.int64).reshape(-1, 4)
        return Losses(
            cpu=columns[:, 0].astype(np.int16),
            start_ns=columns[:, 1],
            end_ns=columns[:, 2],
            count=columns[:, 3],
            event=("",) * len(gaps),
        )


def _with_system(name: str) -> str:
    """An event's name as tables have it; that of one that nothing uses stays as it is."""
    return next((f"{of}:{name}" for begin, of in _SYSTEMS.items() if name.startswith(begin)), name)
