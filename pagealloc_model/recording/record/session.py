"""One recording, from the first snapshot to its finished directory."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any

from pagealloc_model.base.errors import PageallocError, UsageError
from pagealloc_model.base.text import count_of
from pagealloc_model.recording.event_files import EVENT_FILE, read_events
from pagealloc_model.recording.lock_profile import PROFILE_FILE
from pagealloc_model.recording.provenance import ProvenanceCheck, believed_words
from pagealloc_model.recording.record import perf
from pagealloc_model.recording.record.children import clean_environment, python_words
from pagealloc_model.recording.record.doctor import require_recordable
from pagealloc_model.recording.record.host import Host, machine_meta, read_or_none
from pagealloc_model.recording.record.kswapd_sleep import kswapd_sleeps
from pagealloc_model.recording.record.ownership import (
    calling_user,
    give_to,
    make_where_none_may_exchange,
)
from pagealloc_model.recording.record.probes import KernelProbes
from pagealloc_model.recording.record.snapshots import (
    copy_kernel_symbols,
    copy_pages,
    read_state_files,
    take_snapshot,
)
from pagealloc_model.recording.record.timely import Writer, next_instant, real_time
from pagealloc_model.recording.recording import write_meta
from pagealloc_model.recording.state_file import STATE_SUFFIX, write_state
from pagealloc_model.recording.state_instant import STATE_DIRECTORY
from pagealloc_model.recording.trace import tracepoints as tp

if TYPE_CHECKING:
    from pagealloc_model.recording.record.carried_state import MovingReading

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _StopSignals:
    """While entered, by the main thread, a stop signal is only noted, and ends a wait.

    A child's end does so, too. `requested` is the first stop signal that came, None so far.
    """

    def __init__(self) -> None:
        self.requested: signal.Signals | None = None
        self._wakes: SimpleQueue[int] = SimpleQueue()

    def __enter__(self) -> _StopSignals:
        # A child's end has a handler too, since an ignored signal would not end a wait.
        handled = (*_STOPPING, signal.SIGCHLD)
        self._before = {number: signal.signal(number, self._note) for number in handled}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Give up what has not begun to record yet."""
        if self.requested is not None:
            raise KeyboardInterrupt

    def wait(self, seconds: float) -> None:
        """Wait, but not beyond a signal."""
        with contextlib.suppress(Empty):
            self._wakes.get(timeout=max(seconds, 0))

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested is None and number in _STOPPING:
            self.requested = signal.Signals(number)
        self._wakes.put(number)


_MOST_RESERVED = 64 << 20
_RESERVED_SHARE = 10
_UNWRITTEN = 3


class Workspace:
    """A directory beside the destination that is gone afterwards, unless it was kept.

    It has a directory to fill, `recording`, and beside it a file for what perf says, `log`.
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
        self._new_parents = [p for p in (parent, *parent.parents) if not p.exists()]
        try:
            make_where_none_may_exchange(parent)
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

    def nearly_full(self, recent: int) -> bool:
        """True where the disk has little more than what perf and the rest may need to finish."""
        usage = shutil.disk_usage(self._top)
        reserved = min(_MOST_RESERVED, usage.total // _RESERVED_SHARE)
        return usage.free < reserved + _UNWRITTEN * recent

    def keep(self, recording: Path, owner: tuple[int, int] | None) -> None:
        """Give a finished recording its owner and its name."""
        if owner is not None:
            give_to(recording, owner)
            for directory in self._new_parents:
                os.chown(directory, *owner, follow_symlinks=False)
        try:
            recording.rename(self.destination)
        except OSError as error:
            self._keeps = True
            raise UsageError(
                f"{self.destination} was made by something else meanwhile ({error.strerror}); "
                f"the recording is whole, in {recording}"
            ) from None


_MIB = 1 << 20


def _live_lines(host: Host, event_file: Path) -> Iterator[str]:
    """Rates since the line before, by the counters of /proc/vmstat (T12.4); the first is empty."""
    start, then, before, line = time.monotonic(), 0.0, [0, 0, 0], ""
    while True:
        now, counts = time.monotonic(), [0, 0, 0]
        for counter in (read_or_none(host.proc / "vmstat") or "").splitlines():
            name, _, value = counter.partition(" ")
            if name.startswith("pgalloc_"):
                counts[0] += int(value)
            elif name == "pgfree":
                counts[1] = int(value)
        with contextlib.suppress(OSError):
            counts[2] = event_file.stat().st_size
        passed = max(now - then, 1e-9)
        rates = [(new - old) / passed for new, old in zip(counts, before, strict=True)]
        if then:
            line = (
                f"{now - start:7.1f} s  allocated {rates[0]:10,.0f} pages/s  "
                f"freed {rates[1]:10,.0f} pages/s  (vmstat)  "
                f"perf.data {counts[2] / _MIB:,.1f} MiB, {rates[2] / _MIB:+.1f} MiB/s"
            )
        then, before = now, counts
        yield line


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A finished recording.

    `ended_by` is such as "command" or "SIGINT", `command_code` negative for a signal and None
    without a command; the buffer is that of one CPU, and an unset probe is (event, why).
    `unread_state` is why the machine's state was not read, "" where it was or was not wanted;
    `carried_states` has a line on each one that the machine did not hold still for.
    `kswapd_slept` says whether it did before the first event, within the `settle_s` seconds that
    were waited for it at most; None where it could not be seen.
    """

    path: Path
    seconds: float
    ended_by: str
    command_code: int | None
    snapshots: int
    buffer_bytes: int
    missing_events: tuple[str, ...]
    unset_probes: tuple[tuple[str, str], ...]
    unread_state: str = ""
    kswapd_slept: bool | None = None
    settle_s: float = 0.0
    carried_states: tuple[str, ...] = ()


def read_back(path: Path, owner: tuple[int, int] | None) -> dict[str, Any] | None:
    """The output of `pagealloc info --json` of a recording, None if it cannot say.

    In a process of its own, as the user it belongs to: kernels compiled for the reading are then
    kept in that user's cache, not root's.
    """
    usual: dict[str, Any] = {"env": clean_environment()}
    ways = [usual]
    if owner is not None:
        home = "/"
        with contextlib.suppress(KeyError):
            home = pwd.getpwuid(owner[0]).pw_dir
        user = {"user": owner[0], "group": owner[1], "extra_groups": []}
        ways.insert(0, {"env": {**usual["env"], "HOME": home}, **user})
    for process in ways:
        # An installation that this user cannot run has no cache of theirs to spoil.
        with contextlib.suppress(PermissionError):
            answer = subprocess.run(
                python_words("pagealloc_model.cli", "info", "--json", str(path)),
                stdout=subprocess.PIPE,
                # its bar is for people; what it complains of comes back as "cannot be read back"
                stderr=None if sys.stderr.isatty() else subprocess.DEVNULL,
                check=False,
                **process,
            )
            return None if answer.returncode else json.loads(answer.stdout)
    return None


_LARGEST_SUGGESTION = 1 << 30
_WITHOUT_STATE = "where pages lie on lists at the start is drawn at random within their counts"


def summary_lines(recorded: Recorded, content: Mapping[str, Any] | None) -> Iterator[str]:
    """Lines on the unusual; then what is there, if it can be believed, how to see it.

    The content is that of `read_back`. The last three lines are always there. Tracepoints that
    hardly any kernel has are not named; meta.json and `doctor` do.
    """
    if (code := recorded.command_code) is not None:
        yield "command    ended " + (
            f"with exit code {code}" if code >= 0 else f"by signal {-code}"
        )
    if recorded.ended_by.startswith("SIG"):
        yield f"ended      by {recorded.ended_by}"
    if recorded.kswapd_slept is False:
        yield f"began      while kswapd worked: it did not sleep for {recorded.settle_s:g} s"
    missing = [name for name in recorded.missing_events if name not in tp.RECENT]
    if missing:
        yield f"left out   {', '.join(missing)}: not in this kernel"
    whys: dict[str, list[str]] = {}
    for event, why in recorded.unset_probes:
        whys.setdefault(why, []).append(event)
    for why, unset in whys.items():
        yield f"left out   {', '.join(unset)}: {why}"
    if recorded.unread_state:
        yield f"left out   the machine's state: {recorded.unread_state}; {_WITHOUT_STATE}"
    for line in recorded.carried_states:
        yield f"carried    {line}"
    if content is None:
        yield "lost       unknown: the recording cannot be read back; try pagealloc info"
    elif not content["lost"]:
        yield "lost       nothing"
    else:
        shares = content["lost_by_cpu"]
        by_cpu = ", ".join(
            f"CPU {cpu} {loss['lost']:,} ({loss['share']:.1%})" for cpu, loss in shares.items()
        )
        yield f"lost       {count_of(content['lost'], 'event')}: {by_cpu}"
        # A buffer that would hold what came; at least four times this one, as losses are bursts.
        buffer_bytes, worst = recorded.buffer_bytes, max(loss["share"] for loss in shares.values())
        needed = 4 * buffer_bytes
        while needed < buffer_bytes / max(1 - worst, 1e-3):
            needed *= 2
        advice = (
            f"record again with --buffer {perf.size_text(needed)}, or fewer events with --events"
        )
        if needed > _LARGEST_SUGGESTION:
            advice = "record fewer events: --no-lock, --no-probes, or a choice with --events"
        yield f"           {advice}"
    files = [file for file in recorded.path.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files) / _MIB
    events, believed = "unknown number of events", "not known: it cannot be read back"
    if content is not None:
        count = sum(content["events"].values()) + sum(content["other_events"].values())
        events = count_of(count, "event")
        if checks := content.get("provenance", []):
            believed = believed_words([ProvenanceCheck(**check) for check in checks])
    yield (
        f"there      {recorded.path}: {recorded.seconds:.1f} s, {events}, "
        f"{count_of(recorded.snapshots, 'snapshot')}, {size:,.1f} MiB"
    )
    yield f"believe    {believed}"
    yield f"see        pagealloc explore {recorded.path}"


_DISK = "disk nearly full"
_LONGEST_WAIT_S = 0.2
_FLUSH_S = 1.0
_NEVER = float("inf")
_INTERRUPT_GRACE_S = 1.0
_COMMAND_GRACE_S = 5.0


def record(
    options: perf.RecordOptions, host: Host, say: Callable[[str], None], note: Callable[[str], None]
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

    Raises:
        UsageError: it is not permitted; or something usable was recorded all the same, and where.
        KeyboardInterrupt: it was interrupted before anything was recorded.
    """
    if options.command and shutil.which(options.command[0]) is None:
        raise UsageError(f"{options.command[0]}: no such command; nothing was recorded")
    return _Session(options, host, say, note).run()


class _Session:
    """The steps of one recording; each leaves in `_meta` what a reader must know."""

    def __init__(
        self,
        options: perf.RecordOptions,
        host: Host,
        say: Callable[[str], None],
        note: Callable[[str], None],
    ) -> None:
        self._tool = require_recordable(host)
        assert host.tracefs is not None
        available = perf.available_events(host.tracefs)
        self._events, self._missing = perf.choose_events(
            available, options.events, locks=options.locks
        )
        self._buffer_bytes = options.buffer_bytes or perf.default_buffer(host)
        self._options, self._host = options, host
        self._say, self._note = say, note
        self._snapshots = 0
        self._command: subprocess.Popen[bytes] | None = None
        self._meta: dict[str, Any] = {}
        self._unread_state = ""
        self._moving: dict[Path, MovingReading] = {}

    def run(self) -> Recorded:
        """Record, and give the finished recording its name."""
        options = self._options
        with (
            _StopSignals() as self._signals,
            Workspace(options.destination) as self._workspace,
            KernelProbes(self._host, options.probes) as self._probes,
            contextlib.ExitStack() as self._running,
        ):
            self._recording = self._workspace.recording
            try:
                self._set_up()
                self._perf.ask("enable", self._signals.check)
                self._meta["start_ns"] = time.monotonic_ns()
                self._snapshot()
                self._read_state("begin")
                self._note("recording; Ctrl-C ends it")
                if options.command:
                    self._command = self._start(options.command)
                with real_time(self._host):
                    end = self._watch()
                recorded = self._finish(end)
                self._keep(end)
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
            process = subprocess.Popen(command)
        except OSError as error:
            raise UsageError(
                f"{command[0]}: cannot be run ({error.strerror}); nothing was recorded"
            ) from None
        self._running.callback(process.wait)
        self._running.callback(process.terminate)  # of one that has ended, nothing
        return process

    def _set_up(self) -> None:
        """Everything before the first event."""
        if self._workspace.nearly_full(0):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._note("setting up")
        options, host, signals, probes = self._options, self._host, self._signals, self._probes
        words = [*perf.event_arguments(self._events, host, call_chains=options.call_chains)]
        for event in probes.events:
            words += ["-e", event]
            if event in probes.filters:
                words += ["--filter", probes.filters[event]]
        arguments = perf.record_arguments(self._tool, self._buffer_bytes)
        output = self._recording / EVENT_FILE
        self._perf = perf.PerfProcess(arguments, words, output, self._workspace.log, host)
        self._running.callback(self._perf.close)
        self._perf.ask("disable", signals.check)
        if options.set_up:
            preparing = self._start(options.set_up)
            while preparing.poll() is None:
                signals.check()
                signals.wait(_LONGEST_WAIT_S)
            if preparing.returncode:
                raise UsageError(f"the set-up ended with exit code {preparing.returncode}")
        options.before_copies()
        slept = self._let_kswapd_settle()
        self._meta = machine_meta(host) | ({} if slept is None else {"kswapd_slept": slept})
        self._snapshot()
        self._meta |= copy_pages(self._recording, host, signals.check)
        if (options.locks or options.call_chains) and not options.anonymise:
            copy_kernel_symbols(self._recording, host, signals.check)
        self._meta |= machine_meta(host)
        self._snapshot()
        # If we are killed, perf ends by itself, and this is what the recording is read with.
        perf_words = ["perf", *self._perf.arguments[1:]]
        write_meta(self._recording, {**self._meta, "perf": perf_words, "ended_by": "cut off"})

    def _let_kswapd_settle(self) -> bool | None:
        """Wait until kswapd sleeps, for a time; returns whether it does, None: not known."""
        longest_s = self._options.settle_s
        if not longest_s:
            return None
        self._note(f"waiting until kswapd sleeps, for {longest_s:g} s at most")

        def wait(seconds: float) -> None:
            self._signals.check()
            self._signals.wait(seconds)

        return kswapd_sleeps(self._host, longest_s, wait)

    def _snapshot(self) -> None:
        take_snapshot(self._recording, self._host)
        self._snapshots += 1

    def _read_state(self, name: str) -> None:
        """Read the machine's state, where that is wanted; a reason why not is kept."""
        read = self._options.read_state
        if read is None or self._unread_state:
            return
        folder = self._recording / STATE_DIRECTORY
        folder.mkdir(exist_ok=True)
        self._note("reading the machine's state")
        file = folder / f"{name}{STATE_SUFFIX}"
        try:
            if (moving := read(file)) is not None:
                self._moving[file] = moving
        except PageallocError as error:
            self._unread_state = str(error)
        if not any(folder.iterdir()):
            folder.rmdir()

    def _carry_states(self, events: Path) -> tuple[str, ...]:
        """Write the states that the machine did not hold still for; returns a line on each."""
        if not self._moving:
            return ()
        from pagealloc_model.recording.record.carried_state import carried_state

        self._note("carrying the machine's state to one instant")
        lines = []
        try:
            trace = read_events(events)
            while self._moving:
                file = next(iter(self._moving))
                state = carried_state(self._moving.pop(file), trace)
                file.parent.mkdir(exist_ok=True)
                write_state(file, state)
                lines.append(f"{file.name}: {state.carried_words()}")
        except PageallocError as error:
            self._unread_state = str(error)
        return tuple(lines)

    def _watch(self) -> str:
        """Wait for the end, and do what is due meanwhile; returns what ended the recording."""
        writer = Writer(self._recording)
        try:
            return self._wait_and_read(writer)
        finally:
            writer.close()

    def _wait_and_read(self, writer: Writer) -> str:
        options, begin = self._options, time.monotonic()
        deadline = begin + (options.seconds or _NEVER)
        snapshot_due = begin + options.interval_s
        flush_due = begin + _FLUSH_S
        live_due = begin + (options.live_s or _NEVER)
        event_file = self._recording / EVENT_FILE
        rates = _live_lines(self._host, event_file)
        next(rates)
        written = recent = 0
        while True:
            now = time.monotonic()
            if self._signals.requested is not None:
                return "signal"
            if self._perf.ended:
                return "perf"
            if self._command is not None and self._command.poll() is not None:
                return "command"
            if now >= deadline:
                return "seconds"
            if self._workspace.nearly_full(recent):
                return _DISK
            if writer.failed is not None:
                return _DISK
            if now >= snapshot_due:
                writer.put(read_state_files(self._host))
                self._snapshots += 1
                # Reading takes zone locks: at most half of the time, however short the interval.
                rested = 2 * time.monotonic() - now
                snapshot_due = next_instant(begin, options.interval_s, rested)
            if now >= flush_due:
                self._perf.flush()
                size = event_file.stat().st_size
                written, recent = size, size - written
                flush_due = now + _FLUSH_S
            if now >= live_due:
                self._say(next(rates))
                live_due += options.live_s or _NEVER
            wake = min(snapshot_due, live_due, deadline, now + _LONGEST_WAIT_S)
            self._signals.wait(wake - time.monotonic())

    def _finish(self, end: str) -> Recorded:
        """The last snapshot, the end of perf and of the command, and meta.json."""
        options, meta, command = self._options, self._meta, self._command
        requested = self._signals.requested
        self._note("finishing")
        if end != "perf":
            with contextlib.suppress(OSError):  # there may be no room for it
                self._snapshot()
                self._read_state("end")
        meta["end_ns"] = time.monotonic_ns()
        self._perf.stop()
        if command is not None:
            # It outlived its recording; on Ctrl-C it may end by itself.
            if end == "signal" and requested is signal.SIGINT:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    command.wait(_INTERRUPT_GRACE_S)
            command.terminate()
            try:
                command.wait(_COMMAND_GRACE_S)
            except subprocess.TimeoutExpired:
                command.kill()
                command.wait()
        output = self._recording / EVENT_FILE
        if why := perf.why_unusable(output):
            raise UsageError(f"nothing usable was recorded: {self._perf.failure(why)}")
        carried_states = self._carry_states(output)
        if options.profile and end in ("command", "seconds"):
            # What the same costs while nothing is traced.
            self._note("profiling")
            folded, seconds = self._recording / PROFILE_FILE, options.seconds or 0.0
            meta["profile"] = perf.record_profile(
                self._tool, self._host, options.command, seconds, folded
            )
        ended_by = requested.name if end == "signal" and requested else end
        command_code = None if command is None else command.returncode
        arguments = ["perf", *self._perf.arguments[1:]]
        meta |= {
            "command": list(options.command) or None,
            "perf": perf.without_addresses(arguments),
            "perf_version": self._tool.version,
            "probes": self._probes.definitions,
            "missing_events": list(self._missing),
            "interval_s": options.interval_s,
            "ended_by": ended_by,
            "rc": command_code,
            "unread_state": self._unread_state or None,
        }
        with contextlib.suppress(OSError):  # there may be no room for it: that of the set-up stays
            write_meta(self._recording, meta)
        return Recorded(
            path=options.destination,
            seconds=(meta["end_ns"] - meta["start_ns"]) / 1e9,
            ended_by=ended_by,
            command_code=command_code,
            snapshots=self._snapshots,
            buffer_bytes=self._buffer_bytes,
            missing_events=self._missing,
            unset_probes=tuple(self._probes.unset),
            unread_state=self._unread_state,
            kswapd_slept=self._meta.get("kswapd_slept"),
            settle_s=options.settle_s,
            carried_states=carried_states,
        )

    def _keep(self, end: str) -> None:
        """Anonymise where asked, let the recording appear, and say what ended it too early."""
        recording, name = self._recording, self._options.destination
        trouble = self._perf.failure() if end == "perf" else ""
        if end == _DISK:
            trouble = "the disk is nearly full; free some space, or name another disk with -o"
        if self._options.anonymise:
            from pagealloc_model.recording.trim import trim_recording

            second = recording.parent / ".anonymous" / recording.name
            try:
                recording = trim_recording(recording, second, anonymise=True).path
            except (PageallocError, MemoryError, OSError) as error:
                trouble = (
                    f"it could not be anonymised ({error}) and names this machine; "
                    f"try pagealloc trim {name} DST --anonymise"
                )
        # An anonymous one is to be shown; any other is for its user, as perf.data is.
        recording.chmod(0o755 if self._options.anonymise and not trouble else 0o700)
        self._workspace.keep(recording, calling_user(os.environ, self._host.user))
        if trouble:
            raise UsageError(f"{name} can be used, but {trouble}")
