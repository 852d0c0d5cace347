"""One recording, from the first snapshot to its finished directory."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Any

from pagealloc_model.base.errors import PageallocError, UsageError
from pagealloc_model.base.text import count_of
from pagealloc_model.recording.lock_profile import PROFILE_FILE
from pagealloc_model.recording.provenance import ProvenanceCheck, believed_words
from pagealloc_model.recording.record.children import clean_environment, python_words
from pagealloc_model.recording.record.doctor import require_recordable
from pagealloc_model.recording.record.host import Host, machine_meta, read_or_none
from pagealloc_model.recording.record.perf import (
    RECENT_EVENTS,
    PerfProcess,
    Preparation,
    RecordOptions,
    available_events,
    choose_events,
    default_buffer,
    event_arguments,
    record_arguments,
    record_profile,
    size_text,
    why_unusable,
    without_addresses,
)
from pagealloc_model.recording.record.probes import KernelProbes
from pagealloc_model.recording.record.snapshots import (
    copy_kernel_symbols,
    copy_page_flags,
    copy_page_owners,
    take_snapshot,
)
from pagealloc_model.recording.recording import EVENT_FILE, META_FILE

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """While entered, a stop signal is only noted, and ends a wait; so does a child's end.

    Only the main thread can enter it.

    Attributes:
        requested: the first stop signal that came, None so far.
    """

    def __init__(self) -> None:
        self.requested: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in _STOPPING:
            self._before[number] = signal.signal(number, self._note)
        self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, _wake_only)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._read)
        os.close(self._write)

    def stopping(self) -> bool:
        """Whether a stop was requested."""
        return self.requested is not None

    def check(self) -> None:
        """Give up what has not begun to record yet."""
        if self.stopping():
            raise KeyboardInterrupt

    def wait(self, seconds: float) -> None:
        """Wait, but not beyond a signal."""
        if select.select([self._read], [], [], max(seconds, 0))[0]:
            with contextlib.suppress(BlockingIOError):
                os.read(self._read, 4096)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested is None:
            self.requested = signal.Signals(number)


def _wake_only(number: int, frame: FrameType | None) -> None:
    """A handler of its own, since an ignored signal would not end a wait."""


_MOST_RESERVED = 64 << 20
_RESERVED_SHARE = 10
_UNWRITTEN = 3


class Workspace:
    """A directory beside the destination that is gone afterwards, unless it was kept.

    Args:
        destination: the recording's final name, which must not exist.

    Attributes:
        recording: the directory to fill.
        log: a file beside it, for what perf says.
    """

    def __init__(self, destination: Path) -> None:
        self.destination = destination.absolute()
        self._keeps = False
        if os.path.lexists(self.destination):
            raise UsageError(f"{destination} exists; name a new directory with -o")
        if not self.destination.name:
            raise UsageError(f"{destination} is no name for a directory; name a new one with -o")

    def __enter__(self) -> Workspace:
        parent = self.destination.parent
        self._new_parents = [each for each in (parent, *parent.parents) if not each.exists()]
        try:
            parent.mkdir(parents=True, exist_ok=True)
            self._top = Path(tempfile.mkdtemp(prefix=f".{self.destination.name}.", dir=parent))
        except OSError as error:
            raise UsageError(
                f"{self.destination}: cannot be made ({error.strerror}); name another place with -o"
            ) from None
        self.recording = self._top / self.destination.name
        self.recording.mkdir()
        self.log = self._top / "perf.log"
        return self

    def __exit__(self, *error: object) -> None:
        if self._keeps:
            return
        shutil.rmtree(self._top, ignore_errors=True)
        if not self.destination.exists():
            for directory in self._new_parents:
                with contextlib.suppress(OSError):  # somebody else may use it by now
                    directory.rmdir()

    def second(self) -> Path:
        """A name for another version of the recording, which `keep` may be given."""
        directory = self._top / "second"
        directory.mkdir()
        return directory / self.destination.name

    def nearly_full(self, recent: int) -> bool:
        """Whether the disk has little more than what perf and the rest may need to finish."""
        usage = shutil.disk_usage(self._top)
        reserved = min(_MOST_RESERVED, usage.total // _RESERVED_SHARE)
        return usage.free < reserved + _UNWRITTEN * recent

    def keep(self, recording: Path, owner: tuple[int, int] | None) -> None:
        """Give a finished recording its owner and its name."""
        if owner is not None:
            _hand_over(recording, owner)
            for directory in self._new_parents:
                os.chown(directory, *owner)
        try:
            recording.rename(self.destination)
        except OSError as error:
            self._keeps = True
            raise UsageError(
                f"{self.destination} was made by something else meanwhile ({error.strerror}); "
                f"the recording is whole, in {recording}"
            ) from None


def calling_user(environment: Mapping[str, str], user: int) -> tuple[int, int] | None:
    """User and group that called sudo, None if it was not used to become root."""
    words = environment.get("SUDO_UID", ""), environment.get("SUDO_GID", "")
    if user != 0 or not all(word.isdecimal() for word in words):
        return None
    return int(words[0]), int(words[1])


def _hand_over(directory: Path, owner: tuple[int, int]) -> None:
    for top, _, files in os.walk(directory):
        os.chown(top, *owner)
        for name in files:
            os.chown(Path(top) / name, *owner, follow_symlinks=False)


_MIB = 1 << 20


class LiveRates:
    """Rates since the last line, from the counters of /proc/vmstat (T12.4)."""

    def __init__(self, host: Host, event_file: Path) -> None:
        self._host = host
        self._event_file = event_file
        self._start = self._then = time.monotonic()
        self._counts = self._read()

    def line(self) -> str:
        """One line on the time since the line before."""
        now, counts = time.monotonic(), self._read()
        passed = max(now - self._then, 1e-9)
        allocated, freed, written = (
            (new - old) / passed for new, old in zip(counts, self._counts, strict=True)
        )
        self._then, self._counts = now, counts
        return (
            f"{now - self._start:7.1f} s  allocated {allocated:10,.0f} pages/s  "
            f"freed {freed:10,.0f} pages/s  (vmstat)  "
            f"perf.data {counts[2] / _MIB:,.1f} MiB, {written / _MIB:+.1f} MiB/s"
        )

    def _read(self) -> tuple[int, int, int]:
        """Pages allocated and freed so far, and bytes of the event file."""
        allocated = freed = 0
        for line in (read_or_none(self._host.proc / "vmstat") or "").splitlines():
            name, _, value = line.partition(" ")
            if name.startswith("pgalloc_"):
                allocated += int(value)
            elif name == "pgfree":
                freed = int(value)
        try:
            size = self._event_file.stat().st_size
        except OSError:
            size = 0
        return allocated, freed, size


_LONGEST_WAIT_S = 0.2
_FLUSH_S = 1.0
_NEVER = float("inf")


class End(Enum):
    """What ended a recording."""

    COMMAND = "command"
    SECONDS = "seconds"
    SIGNAL = "signal"
    DISK = "disk nearly full"
    PERF = "perf"


_LARGEST_SUGGESTION = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A finished recording.

    Attributes:
        path: the recording.
        seconds: how long events were on.
        ended_by: what ended it, such as "command" or "SIGINT".
        command_code: exit code of the command, negative for a signal; None without one.
        snapshots: snapshots taken.
        buffer_bytes: ring buffer of one CPU.
        missing_events: tracepoints of the usual set that this kernel lacks.
        unset_probes: (event, why) of the kprobes that could not be set.
    """

    path: Path
    seconds: float
    ended_by: str
    command_code: int | None
    snapshots: int
    buffer_bytes: int
    missing_events: tuple[str, ...]
    unset_probes: tuple[tuple[str, str], ...]


def read_back(path: Path, owner: tuple[int, int] | None) -> dict[str, Any] | None:
    """What `pagealloc info --json` says of a recording, None if it cannot say.

    In a process of its own, as the user it belongs to: kernels compiled for the reading are then
    kept in that user's cache, not root's.
    """
    if owner is not None:
        # An installation that this user cannot run has no cache of theirs to spoil.
        with contextlib.suppress(PermissionError):
            home = {**clean_environment(), "HOME": _home(owner[0])}
            return _described(path, user=owner[0], group=owner[1], extra_groups=[], env=home)
    return _described(path)


def _described(path: Path, **process: Any) -> dict[str, Any] | None:
    answer = subprocess.run(
        python_words("pagealloc_model.cli", "info", "--json", str(path)),
        stdout=subprocess.PIPE,
        # its bar is for people; what it complains of comes back as "cannot be read back"
        stderr=None if sys.stderr.isatty() else subprocess.DEVNULL,
        check=False,
        **{"env": clean_environment(), **process},
    )
    return None if answer.returncode else json.loads(answer.stdout)


def _home(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_dir
    except KeyError:
        return "/"


def summary_lines(recorded: Recorded, content: Mapping[str, Any] | None) -> Iterator[str]:
    """What went otherwise than usual; then what is there, if it can be believed, how to see it.

    The last three are always there. Tracepoints that hardly any kernel has are not named; meta.json
    and `doctor` do.

    Args:
        recorded: the recording.
        content: of `read_back`.
    """
    yield from _odd(recorded)
    yield from _losses(recorded, content)
    files = [file for file in recorded.path.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files) / (1 << 20)
    events = "unknown number of events"
    if content is not None:
        count = sum(content["events"].values()) + sum(content["other_events"].values())
        events = count_of(count, "event")
    yield (
        f"there      {recorded.path}: {recorded.seconds:.1f} s, {events}, "
        f"{count_of(recorded.snapshots, 'snapshot')}, {size:,.1f} MiB"
    )
    checks = [] if content is None else content.get("provenance", [])
    believed = believed_words([ProvenanceCheck(**each) for each in checks])
    yield f"believe    {believed if checks else 'not known: it cannot be read back'}"
    yield f"see        pagealloc explore {recorded.path}"


def _odd(recorded: Recorded) -> Iterator[str]:
    """How the command ended, and what was not recorded."""
    if recorded.command_code is not None:
        code = recorded.command_code
        how = f"with exit code {code}" if code >= 0 else f"by signal {-code}"
        yield f"command    ended {how}"
    if recorded.ended_by.startswith("SIG"):
        yield f"ended      by {recorded.ended_by}"
    missing = [name for name in recorded.missing_events if name not in RECENT_EVENTS]
    if missing:
        yield f"left out   {', '.join(missing)}: not in this kernel"
    whys: dict[str, list[str]] = {}
    for event, why in recorded.unset_probes:
        whys.setdefault(why, []).append(event)
    for why, unset in whys.items():
        yield f"left out   {', '.join(unset)}: {why}"


def _losses(recorded: Recorded, content: Mapping[str, Any] | None) -> Iterator[str]:
    if content is None:
        yield "lost       unknown: the recording cannot be read back; try pagealloc info"
        return
    if not content["lost"]:
        yield "lost       nothing"
        return
    shares = content["lost_by_cpu"]
    by_cpu = ", ".join(
        f"CPU {cpu} {each['lost']:,} ({each['share']:.1%})" for cpu, each in shares.items()
    )
    yield f"lost       {count_of(content['lost'], 'event')}: {by_cpu}"
    worst = max(each["share"] for each in shares.values())
    yield f"           {_advice(recorded.buffer_bytes, worst)}"


def _advice(buffer_bytes: int, worst_share: float) -> str:
    """A buffer that would hold what came; at least four times this one, as losses are bursts."""
    needed = 4 * buffer_bytes
    while needed < buffer_bytes / max(1 - worst_share, 1e-3):
        needed *= 2
    if needed > _LARGEST_SUGGESTION:
        return "record fewer events: --no-lock, --no-probes, or a choice with --events"
    return f"record again with --buffer {size_text(needed)}, or fewer events with --events"


_INTERRUPT_GRACE_S = 1.0
_COMMAND_GRACE_S = 5.0


Say = Callable[[str], None]
"""Takes a line for the user."""


def record(
    options: RecordOptions,
    host: Host,
    say: Say,
    note: Say,
    preparation: Preparation | None = None,
) -> Recorded:
    """Record this machine; must be called in the main thread.

    Perf is started switched off. Once its buffers exist, the machine is prepared, the page flags
    and a snapshot are taken, and only then is it switched on and the command started: so the state
    at the start is the one the events begin from.

    Args:
        options: what to record, and where to.
        host: the machine.
        say: takes the lines with rates.
        note: takes what is going on, which only a watching user wants to know.
        preparation: of the machine; None for none.

    Raises:
        UsageError: the machine, the user or the options do not permit it. If something usable
            was recorded all the same, the text says where.
        KeyboardInterrupt: it was interrupted before anything was recorded.
    """
    if options.command and shutil.which(options.command[0]) is None:
        raise UsageError(f"{options.command[0]}: no such command; nothing was recorded")
    return _Session(options, host, say, note, preparation or Preparation()).run()


def _terminate(command: subprocess.Popen[bytes]) -> None:
    if command.poll() is None:
        command.terminate()
        command.wait()


class _Session:
    """The steps of one recording; each leaves in `_meta` what a reader must know."""

    def __init__(
        self, options: RecordOptions, host: Host, say: Say, note: Say, preparation: Preparation
    ) -> None:
        self._tool = require_recordable(host)
        assert host.tracefs is not None
        available = available_events(host.tracefs)
        self._events = choose_events(available, options.events, locks=options.locks)
        self._buffer_bytes = options.buffer_bytes or default_buffer(host)
        self._options, self._host, self._preparation = options, host, preparation
        self._say, self._note = say, note
        self._snapshots = 0
        self._command: subprocess.Popen[bytes] | None = None
        self._meta: dict[str, Any] = {}

    def run(self) -> Recorded:
        """Record, and give the finished recording its name."""
        with (
            StopSignals() as self._signals,
            Workspace(self._options.destination) as self._workspace,
            KernelProbes(self._host, self._options.probes) as self._probes,
            contextlib.ExitStack() as self._running,
        ):
            self._recording = self._workspace.recording
            try:
                self._set_up()
                self._begin()
                end = self._watch()
                recorded = self._finish(end)
                self._keep(trouble=self._early(end))
            except OSError as error:
                where = error.filename or self._workspace.destination
                raise UsageError(
                    f"nothing usable was recorded: {where}: {error.strerror}; "
                    "free some space, or name another place with -o"
                ) from None
            return recorded

    def _start(self, command: tuple[str, ...]) -> subprocess.Popen[bytes]:
        """Start a command, which is ended with the recording at the latest."""
        try:
            self._command = subprocess.Popen(command)
        except OSError as error:
            raise UsageError(
                f"{command[0]}: cannot be run ({error.strerror}); nothing was recorded"
            ) from None
        self._running.callback(_terminate, self._command)
        return self._command

    def _set_up(self) -> None:
        """Everything before the first event."""
        if self._workspace.nearly_full(0):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._note("setting up")
        self._perf = PerfProcess(self._perf_arguments, self._workspace.log, self._host)
        self._running.callback(self._perf.close)
        self._perf.ask("disable", self._signals.stopping)
        self._prepare()
        self._meta = machine_meta(self._host)
        self._snapshot()
        for key, copy in (
            ("page_owner_at_ns", copy_page_owners),
            ("kpageflags_at_ns", copy_page_flags),
        ):
            time_ns = copy(self._recording, self._host, self._signals.check)
            if time_ns is not None:
                self._meta[key] = time_ns
        chained = self._options.locks or self._options.call_chains
        if chained and not self._options.anonymise:
            copy_kernel_symbols(self._recording, self._host, self._signals.check)
        self._preparation.last()
        self._meta |= machine_meta(self._host)
        self._snapshot()

    def _prepare(self) -> None:
        """Run what brings the machine into the state to begin with."""
        if not self._preparation.command:
            return
        command = self._start(self._preparation.command)
        while command.poll() is None:
            self._signals.check()
            self._signals.wait(_LONGEST_WAIT_S)
        self._command = None
        if command.returncode:
            raise UsageError(f"the set-up ended with exit code {command.returncode}")

    def _perf_arguments(self, control: tuple[int, int]) -> list[str]:
        chained = self._options.call_chains
        words = [*event_arguments(self._events.names, self._host, call_chains=chained)]
        for event in self._probes.events:
            words += ["-e", event]
            if event in self._probes.filters:
                words += ["--filter", self._probes.filters[event]]
        return record_arguments(
            self._tool,
            output=str(self._recording / EVENT_FILE),
            events=words,
            buffer_bytes=self._buffer_bytes,
            control=control,
        )

    def _begin(self) -> None:
        """Switch the events on, then start the command."""
        self._perf.ask("enable", self._signals.stopping)
        self._meta["start_ns"] = time.monotonic_ns()
        self._snapshot()
        self._note("recording; Ctrl-C ends it")
        if self._options.command:
            self._start(self._options.command)

    def _snapshot(self) -> None:
        take_snapshot(self._recording, self._host)
        self._snapshots += 1

    def _watch(self) -> End:
        """Wait for the end, and do what is due meanwhile; returns what ended the recording."""
        begin = time.monotonic()
        self._deadline = begin + (self._options.seconds or _NEVER)
        self._snapshot_due = begin + self._options.interval_s
        self._flush_due = begin + _FLUSH_S
        self._live_due = begin + (self._options.live_s or _NEVER)
        self._live = LiveRates(self._host, self._recording / EVENT_FILE)
        self._written = self._recent = 0
        while True:
            now = time.monotonic()
            end = self._ended(now) or self._do_what_is_due(now)
            if end is not None:
                return end
            wake = min(self._snapshot_due, self._live_due, self._deadline, now + _LONGEST_WAIT_S)
            self._signals.wait(wake - time.monotonic())

    def _ended(self, now: float) -> End | None:
        if self._signals.stopping():
            return End.SIGNAL
        if self._perf.ended:
            return End.PERF
        if self._command is not None and self._command.poll() is not None:
            return End.COMMAND
        if now >= self._deadline:
            return End.SECONDS
        return End.DISK if self._workspace.nearly_full(self._recent) else None

    def _do_what_is_due(self, now: float) -> End | None:
        if now >= self._snapshot_due:
            try:
                self._snapshot()
            except OSError:
                return End.DISK
            # Reading takes zone locks: at most half of the time, however short the interval.
            done = time.monotonic()
            self._snapshot_due = max(self._snapshot_due + self._options.interval_s, 2 * done - now)
        if now >= self._flush_due:
            self._perf.flush()
            written = (self._recording / EVENT_FILE).stat().st_size
            self._written, self._recent = written, written - self._written
            self._flush_due = now + _FLUSH_S
        if now >= self._live_due:
            self._say(self._live.line())
            self._live_due += self._options.live_s or _NEVER
        return None

    def _finish(self, end: End) -> Recorded:
        """The last snapshot, the end of perf and of the command, and meta.json."""
        self._note("finishing")
        if end is not End.PERF:
            with contextlib.suppress(OSError):  # there may be no room for it
                self._snapshot()
        self._meta["end_ns"] = time.monotonic_ns()
        self._perf.stop()
        self._end_command(end)
        events = self._recording / EVENT_FILE
        why = why_unusable(events)
        if why:
            raise UsageError(f"nothing usable was recorded: {self._perf.failure(why)}")
        if self._options.profile and end in (End.COMMAND, End.SECONDS):
            self._profile()
        self._write_meta(end)
        return Recorded(
            path=self._options.destination,
            seconds=(self._meta["end_ns"] - self._meta["start_ns"]) / 1e9,
            ended_by=self._ended_by(end),
            command_code=self._command_code(),
            snapshots=self._snapshots,
            buffer_bytes=self._buffer_bytes,
            missing_events=self._events.missing,
            unset_probes=tuple(self._probes.unset),
        )

    def _end_command(self, end: End) -> None:
        """End a command that outlived its recording; on Ctrl-C it may end by itself."""
        if self._command is None:
            return
        if end is End.SIGNAL and self._signals.requested is signal.SIGINT:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._command.wait(_INTERRUPT_GRACE_S)
        if self._command.poll() is None:
            self._command.terminate()
        try:
            self._command.wait(_COMMAND_GRACE_S)
        except subprocess.TimeoutExpired:
            self._command.kill()
            self._command.wait()

    def _profile(self) -> None:
        """What the same costs while nothing is traced."""
        self._note("profiling")
        folded = self._recording / PROFILE_FILE
        seconds = self._options.seconds or 0.0
        self._meta["profile"] = record_profile(
            self._tool, self._host, self._options.command, seconds, folded
        )

    def _command_code(self) -> int | None:
        return None if self._command is None else self._command.returncode

    def _ended_by(self, end: End) -> str:
        if end is End.SIGNAL and self._signals.requested is not None:
            return self._signals.requested.name
        return end.value

    def _early(self, end: End) -> str:
        """Why the recording is shorter than asked for, "" if it is not."""
        if end is End.DISK:
            return "the disk is nearly full; free some space, or name another disk with -o"
        return self._perf.failure() if end is End.PERF else ""

    def _write_meta(self, end: End) -> None:
        options = self._options
        output = str(self._recording / EVENT_FILE)
        perf = [
            "RECORDING/" + EVENT_FILE if word == output else word for word in self._perf.arguments
        ]
        self._meta |= {
            "command": list(options.command) or None,
            "perf": without_addresses(["perf", *perf[1:]]),
            "perf_version": self._tool.version,
            "probes": self._probes.definitions,
            "missing_events": list(self._events.missing),
            "interval_s": options.interval_s,
            "ended_by": self._ended_by(end),
            "rc": self._command_code(),
        }
        text = json.dumps(self._meta, indent=1) + "\n"
        (self._recording / META_FILE).write_text(text, encoding="utf-8")

    def _keep(self, trouble: str) -> None:
        """Anonymise where asked, and let the recording appear."""
        recording, name = self._recording, self._options.destination
        if self._options.anonymise:
            from pagealloc_model.recording.trim import trim_recording

            try:
                recording = trim_recording(recording, self._workspace.second(), anonymise=True).path
            except (PageallocError, MemoryError, OSError) as error:
                recording = self._recording
                trouble = (
                    f"it could not be anonymised ({error}) and names this machine; "
                    f"try pagealloc trim {name} DST --anonymise"
                )
        # An anonymous one is to be shown; any other is for its user, as perf.data is.
        recording.chmod(0o755 if self._options.anonymise and not trouble else 0o700)
        self._workspace.keep(recording, calling_user(os.environ, self._host.user))
        if trouble:
            raise UsageError(f"{name} can be used, but {trouble}")
