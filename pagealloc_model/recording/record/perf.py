"""The perf program: finding it, its arguments, its process, and what its complaints mean."""

from __future__ import annotations

import contextlib
import ctypes
import fnmatch
import itertools
import os
import re
import resource
import select
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pagealloc_model.base.errors import RecordingError, UsageError
from pagealloc_model.base.files import new_file
from pagealloc_model.recording.lock_profile import CLOCK_EVENT
from pagealloc_model.recording.record.children import clean_environment
from pagealloc_model.recording.record.host import CAP_SYS_NICE, Host, read_or_none
from pagealloc_model.recording.record.kswapd_sleep import LONGEST_S
from pagealloc_model.recording.record.timely import PRIORITY
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.perf_file import open_perf_file

if TYPE_CHECKING:
    from pagealloc_model.recording.record.carried_state import MovingReading

_KNOWN = {
    r"No space left on device": (
        "the disk is full",
        "free some space, or name another disk with -o",
    ),
    r"Permission error mapping pages|perf_event_mlock_kb|failed to mmap with 1 ": (
        "the ring buffers may not be locked in memory",
        "use a smaller --buffer, or raise /proc/sys/kernel/perf_event_mlock_kb",
    ),
    r"failed to mmap|Cannot allocate memory": (
        "there is no memory for the ring buffers",
        "use a smaller --buffer",
    ),
    r"Too many open files|Too many events are opened": (
        "too many events are opened",
        "raise the limit with ulimit -n, or record fewer with --events",
    ),
    r"perf_event_paranoid|[Aa]ccess to performance monitoring|[Nn]o permission|not permitted"
    r"|Permission denied": (
        "the kernel refuses perf",
        "run as root outside a container, or: sysctl kernel.perf_event_paranoid=-1",
    ),
    r"unknown tracepoint|can't access trace events|invalid or unsupported event|syntax error": (
        "perf cannot read an event",
        "leave it out with --events, or update perf",
    ),
    r"[Uu]nknown option|unknown switch": ("perf lacks an option", "update perf"),
}


def explain_failure(log: str, code: int, seen: str = "") -> str:
    """One line on why perf failed, or on what is `seen` to be wrong with its file."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for pattern, (what, todo) in _KNOWN.items():
        for line in lines:
            if re.search(pattern, line):
                return f"{what} (perf: {line[:100]}); {todo}"
    ended = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    said = f" saying: {lines[-1][:100]}" if lines else ""
    what = f"perf.data {seen}" if seen else f"perf {ended}{said}"
    return f"{what}; try the same perf record by hand"


def why_unusable(event_file: Path) -> str:
    """The reason why a perf.data cannot be read, "" if it can."""
    try:
        return "" if open_perf_file(event_file).records.size else "has no events"
    except RecordingError as error:
        return error.what


_PR_SET_PDEATHSIG = 1
_FILES = 1 << 20
_POLL_S = 0.1
_ANSWERS = 4096
_LIBC = ctypes.CDLL(None)


class PerfProcess:
    """Perf in a process group of its own, so that Ctrl-C reaches only us; it writes to a new file.

    It ends by itself, having emptied its buffers, if we are killed. With the right to, it runs at
    real-time priority, so that a busy machine does not keep it from emptying the buffers.
    """

    def __init__(
        self, arguments: Iterable[str], events: Iterable[str], output: Path, log: Path, host: Host
    ) -> None:
        def prepare() -> None:
            """In the new process: end with our own, allow a file for each event on each CPU."""
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, _FILES))

        self._log = log
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        control = ("-D", "-1", "--control", f"fd:{orders},{answers}")
        self.arguments = [*arguments, *control, *events]
        with new_file(output.parent, output.name) as stdout, log.open("wb") as stderr:
            self._process = subprocess.Popen(
                self.arguments,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                # Perf has our ends, too: a pipe that is closed with us would end it (6.1) before
                # it has emptied its buffers.
                pass_fds=(orders, answers, self._orders, self._answers),
                env=clean_environment(),
                process_group=0,
                preexec_fn=prepare,
            )
        os.close(orders)
        os.close(answers)
        os.set_blocking(self._orders, False)
        if host.has_capability(CAP_SYS_NICE):
            # A control group may keep real time to itself.
            with contextlib.suppress(OSError):
                os.sched_setscheduler(self._process.pid, os.SCHED_FIFO, os.sched_param(PRIORITY))

    @property
    def ended(self) -> bool:
        """Perf is gone."""
        return self._process.poll() is not None

    def ask(self, order: str, check: Callable[[], None]) -> None:
        """Give an order ("enable", "disable") and wait until it is carried out.

        `check` is called meanwhile, and may raise.
        """
        with contextlib.suppress(BrokenPipeError):
            os.write(self._orders, f"{order}\n".encode())
        while not select.select([self._answers], [], [], _POLL_S)[0]:
            if self.ended:
                raise UsageError(f"nothing was recorded: {self.failure()}")
            check()
        if not os.read(self._answers, _ANSWERS):
            raise UsageError(f"nothing was recorded: {self.failure()}")

    def flush(self) -> None:
        """Let perf write out what its buffers hold; by itself it waits until one is half full."""
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            if select.select([self._answers], [], [], 0)[0]:
                os.read(self._answers, _ANSWERS)
            os.write(self._orders, b"ping\n")

    def stop(self) -> None:
        """Let perf write out what it holds, and wait for its end."""
        if not self.ended:
            self._process.send_signal(signal.SIGINT)
        self._process.wait()

    def failure(self, seen: str = "") -> str:
        """Wait for perf's end; one line on why, or on what is `seen` to be wrong with its file."""
        code = self._process.wait()
        return explain_failure(self._log.read_text("utf-8", "replace"), code, seen)

    def close(self) -> None:
        """End perf if it still runs, whatever becomes of its file."""
        if not self.ended:
            self._process.kill()
            self._process.wait()
        os.close(self._orders)
        os.close(self._answers)


USUAL_EVENTS = "default"
"""Stands for the usual set in a list of events."""
_SHORTEST_INTERVAL_S = 0.02

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SMALLEST_BUFFER = 1 << 16


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """One call of `pagealloc record`.

    What brings the machine into the state that the recording begins with is done once the ring
    buffers exist, so that they find memory.

    Attributes:
        seconds: length of the recording; None: until the command ends or a signal arrives.
        events: event names and patterns, "default" for the usual set.
        locks: whether to record lock contention.
        call_chains: whether the page allocator's events come with the kernel's call chains.
        probes: whether to set kprobes; None: where the kernel permits it.
        profile: whether to profile the machine, untraced, after the recording.
        live_s: seconds between lines with rates; None: no such lines.
        interval_s: seconds between snapshots.
        buffer_bytes: ring buffer of one CPU, a power of two; None: by the machine's memory.
        set_up: command to run once the ring buffers exist; () for none, as for `command`.
        before_copies: called after the set-up, before kswapd is waited for and pages' flags are
            copied: what is set there is in the copies.
        settle_s: longest wait until kswapd sleeps, s; 0: none.
        read_state: reads the machine's state into a file, right after the first event may come
            and before the last may, or gives what all events are to make the file of; None: no
            state is read. It raises `PageallocError`.
    """

    destination: Path
    command: tuple[str, ...] = ()
    seconds: float | None = None
    events: tuple[str, ...] = (USUAL_EVENTS,)
    locks: bool = True
    call_chains: bool = False
    probes: bool | None = None
    profile: bool = False
    anonymise: bool = False
    live_s: float | None = None
    interval_s: float = 1.0
    buffer_bytes: int | None = None
    set_up: tuple[str, ...] = ()
    before_copies: Callable[[], None] = lambda: None
    settle_s: float = LONGEST_S
    read_state: Callable[[Path], MovingReading | None] | None = None

    def __post_init__(self) -> None:
        if self.command and self.seconds is not None:
            raise UsageError("a recording ends after --seconds or with a command; give one")
        if self.profile and not self.command and self.seconds is None:
            raise UsageError("--profile needs a command, which is run once more, or --seconds")
        if not 0 <= self.settle_s < float("inf"):
            raise UsageError(f"--settle {self.settle_s:g}: give seconds, or 0 for no wait")
        for name, value, least in (
            ("--seconds", self.seconds, 0.0),
            ("--live", self.live_s, 0.0),
            ("--interval", self.interval_s, _SHORTEST_INTERVAL_S),
        ):
            if value is not None and not (value > 0 and least <= value < float("inf")):
                raise UsageError(
                    f"{name} {value} is no length of time; give "
                    + (f"{least} seconds or more" if least else "more than 0 seconds")
                )


def parse_size(text: str) -> int:
    """Bytes of a buffer size such as "64M", a power of two; a UsageError of any other text."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip().upper())
    size = int(match[1]) * _UNITS[match[2]] if match else 0
    if size < _SMALLEST_BUFFER or size & (size - 1):
        raise UsageError(f"--buffer {text} is no power of two from 64K up; give one such as 64M")
    return size


def size_text(size: int) -> str:
    """A size as `parse_size` reads it."""
    unit = next(unit for unit in ("G", "M", "K", "") if size % _UNITS[unit] == 0)
    return f"{size // _UNITS[unit]}{unit}"


_OLDEST_VERSION = (5, 12)
_INSTALL = "install it (Debian: linux-perf, Ubuntu: linux-tools-$(uname -r), Fedora: perf)"
_LARGEST_BUFFER = 1 << 26
_LEAST_BUFFER = 1 << 20
_MEMORY_SHARE = 32
_ANSWER_TIMEOUT_S = 30


@dataclass(frozen=True, kw_only=True)
class PerfTool:
    """An installed perf: the command, its version such as "6.1.187", and if it has zstd."""

    path: str
    version: str
    compresses: bool


def find_perf() -> PerfTool:
    """The perf on PATH; a UsageError if there is none that can be used."""
    path = shutil.which("perf")
    if path is None:
        raise UsageError(f"perf is not installed; {_INSTALL}")
    answer = _ask(path, "version")
    version = re.search(r"perf version (\S+)", answer.stdout)
    if answer.returncode or version is None:
        said = " ".join(f"{answer.stdout} {answer.stderr}".split())
        raise UsageError(f"{path} does not work ({said[:80] or 'it says nothing'}); {_INSTALL}")
    numbers = re.match(r"(\d+)\.(\d+)", version[1])
    if numbers and (int(numbers[1]), int(numbers[2])) < _OLDEST_VERSION:
        raise UsageError(
            f"perf {version[1]} is too old to be started and stopped on the event; "
            "install {}.{} or newer".format(*_OLDEST_VERSION)
        )
    return PerfTool(path=path, version=version[1], compresses=is_built_with(path, "zstd"))


def is_built_with(path: str, library: str) -> bool:
    """True where a perf names a library among what it was built with."""
    built = _ask(path, "version", "--build-options").stdout
    return re.search(rf"^\s*{library}: \[ on", built, re.MULTILINE) is not None


def _ask(path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [path, *arguments],
            env=clean_environment(),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_ANSWER_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{path} does not work ({error}); {_INSTALL}") from None


def default_buffer(host: Host) -> int:
    """Bytes of one CPU's ring buffer: 64 MiB, less where all would take over 3% of memory."""
    most = host.available_memory // _MEMORY_SHARE // host.cpus
    size = _LARGEST_BUFFER
    while size > _LEAST_BUFFER and size > most:
        size //= 2
    return size


def record_arguments(tool: PerfTool, buffer_bytes: int) -> list[str]:
    """The command line of a recording of all CPUs, but for its events.

    It is written as through a pipe: what perf wrote until it was killed, or until the disk was
    full, can be read, which in a file's own layout needs its end.
    """
    arguments = [tool.path, "record", "-a", "-k", "CLOCK_MONOTONIC", "-m", size_text(buffer_bytes)]
    return [*arguments, "--kernel-callchains", "-o", "-", *["-z=1"] * tool.compresses]


def available_events(tracefs: Path) -> frozenset[str]:
    """Names of all tracepoints of the running kernel."""
    return frozenset((read_or_none(tracefs / "available_events") or "").split())


def choose_events(
    available: frozenset[str], patterns: Iterable[str], *, locks: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Events to record by a user's patterns, and names that this kernel lacks.

    The two essential events are always recorded.
    """
    wanted = list(tp.ESSENTIAL)
    for pattern in patterns:
        if pattern == USUAL_EVENTS:
            wanted += tp.USUAL
            continue
        matches = sorted(fnmatch.filter(available, pattern))
        if not matches:
            raise UsageError(
                f"--events {pattern}: this kernel has no such tracepoint; "
                "give a name or pattern that `perf list tracepoint` shows"
            )
        wanted += matches
    names = [name for name in dict.fromkeys(wanted) if locks or name not in tp.LOCKS]
    return (
        tuple(name for name in names if name in available),
        tuple(name for name in names if name not in available),
    )


def event_arguments(
    names: Iterable[str], host: Host, *, call_chains: bool = False
) -> Iterator[str]:
    """The words that make perf record some events.

    A lock's contention comes with the end of the kernel's call chain, with `call_chains` each
    event of kmem with all of it. Of the workqueue's events only those of the periodic counter
    update are kept, which is when per-CPU lists decay (S4.8); where the kernel hides that
    function's address, none: they are too frequent.
    """
    for name in names:
        if name == tp.WORKQUEUE_EXECUTE_START:
            symbols = (read_or_none(host.proc / "kallsyms") or "").splitlines()
            ending = f" {tp.TICK_FUNCTION}"
            address = next((int(s.split()[0], 16) for s in symbols if s.endswith(ending)), 0)
            if address:
                yield from ("-e", name, "--filter", f"function == {address:#x}")
        elif name == tp.CONTENTION_BEGIN:
            yield from ("-e", f"{name}/call-graph=fp,max-stack=12/")
        elif call_chains and name.startswith("kmem:"):
            yield from ("-e", f"{name}/call-graph=fp/")
        else:
            yield from ("-e", name)


def without_addresses(arguments: Iterable[str]) -> list[str]:
    """Arguments for perf as they are kept with a recording: filters name the function."""
    return [tp.TICK_FILTER if word.startswith("function == ") else word for word in arguments]


_SAMPLE_PERIOD = 200_000
"""Cycles or, where there is no counter of them, nanoseconds from one sample to the next."""
_TICK_NS = 10_000_000
_BUSY_FIELDS = (0, 1, 2, 5, 6)


def record_profile(
    tool: PerfTool, host: Host, command: tuple[str, ...], seconds: float, folded: Path
) -> dict[str, object]:
    """Profile the machine while a command runs or for a time, and write the folded chains."""
    samples = folded.with_name("profile.data")
    workload = command or ("sleep", f"{seconds}")
    arguments = [tool.path, "record", "-a", "-c", f"{_SAMPLE_PERIOD}", "-e", "cycles", "-g"]
    passed_on = clean_environment()
    own = (f"{name}={value}" for name, value in os.environ.items() if name not in passed_on)
    arguments += ["--kernel-callchains", "-o", str(samples), "--", "env", *own, *workload]
    busy_ns, begun = _busy_ns(host), time.monotonic()
    done = subprocess.run(
        arguments, env=passed_on, capture_output=True, text=True, errors="replace", check=False
    )
    elapsed = time.monotonic() - begun
    busy_ns = _busy_ns(host) - busy_ns
    if not samples.exists():
        said = ["it says nothing", *done.stderr.strip().splitlines()]
        raise UsageError(f"--profile: perf could not profile: {said[-1]}")
    arguments = [tool.path, "script", "-i", str(samples), "-F", "event,ip,sym"]
    with subprocess.Popen(
        arguments,
        env=passed_on,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        errors="replace",
    ) as script:
        assert script.stdout is not None
        event, chains = folded_chains(script.stdout)
    samples.unlink()
    lines = (f"{';'.join(reversed(chain))} {count}\n" for chain, count in sorted(chains.items()))
    folded.write_text("".join(lines), encoding="utf-8")
    total = sum(chains.values())
    by_clock = event.startswith(CLOCK_EVENT)
    return {
        "event": event,
        "sample_ns": _SAMPLE_PERIOD if by_clock else busy_ns / max(total, 1),
        "samples": total,
        "seconds": round(elapsed, 3),
        "repeats_command": bool(command),
        "rc": done.returncode if command else None,
    }


def _busy_ns(host: Host) -> int:
    """CPU time of all CPUs so far that was not idle."""
    words = (host.proc / "stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
    return sum(int(words[field]) for field in _BUSY_FIELDS) * _TICK_NS


def folded_chains(lines: Iterable[str]) -> tuple[str, Counter[tuple[str, ...]]]:
    """The event sampled, and how often each call chain was seen, innermost first.

    Lines are what `perf script -F event,ip,sym` prints: a blank one ends a sample.
    """
    event, name = "", ""
    chain: list[str] = []
    chains: Counter[tuple[str, ...]] = Counter()
    for line in itertools.chain(lines, ("\n",)):
        words = line.split()
        if words and not line.startswith("\t"):
            name = words[-1].rstrip(":")
        elif words:
            chain.append(" ".join(words[1:]) or words[0])
        elif name:
            event = event or name
            chains[tuple(chain) or ("[user]",)] += 1
            name, chain = "", []
    return event, chains
