"""One recording, from the first snapshot to its finished directory."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from pagealloc_model.base.errors import PageallocError, UsageError
from pagealloc_model.recording.lock_profile import PROFILE_FILE
from pagealloc_model.recording.make.checks import require_recordable
from pagealloc_model.recording.make.events import (
    EventChoice,
    available_events,
    choose_events,
    event_arguments,
    without_addresses,
)
from pagealloc_model.recording.make.finished import Recorded
from pagealloc_model.recording.make.host import Host
from pagealloc_model.recording.make.live import LiveRates
from pagealloc_model.recording.make.meta import machine_meta
from pagealloc_model.recording.make.options import Preparation, RecordOptions
from pagealloc_model.recording.make.perf_failures import why_unusable
from pagealloc_model.recording.make.perf_process import PerfProcess
from pagealloc_model.recording.make.perf_tool import PerfTool, default_buffer, record_arguments
from pagealloc_model.recording.make.probes import KernelProbes
from pagealloc_model.recording.make.profile import record_profile
from pagealloc_model.recording.make.snapshots import (
    copy_kernel_symbols,
    copy_page_flags,
    copy_page_owners,
    take_snapshot,
)
from pagealloc_model.recording.make.stop_signals import StopSignals
from pagealloc_model.recording.make.watch import End, Watch
from pagealloc_model.recording.make.workspace import Workspace, calling_user
from pagealloc_model.recording.recording import EVENT_FILE, META_FILE

_LONGEST_WAIT_S = 0.2
_INTERRUPT_GRACE_S = 1.0
_COMMAND_GRACE_S = 5.0


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """Everything settled before anything is started."""

    tool: PerfTool
    events: EventChoice
    buffer_bytes: int


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
    plan = _plan(options, host)
    with ExitStack() as stack:
        signals = stack.enter_context(StopSignals())
        workspace = stack.enter_context(Workspace(options.destination))
        probes = stack.enter_context(KernelProbes(host, options.probes))
        ready = preparation or Preparation()
        session = _Session(options, host, plan, workspace, probes, signals, say, note, ready)
        stack.callback(session.close)
        return session.run()


def _plan(options: RecordOptions, host: Host) -> _Plan:
    if options.command and shutil.which(options.command[0]) is None:
        raise UsageError(f"{options.command[0]}: no such command; nothing was recorded")
    tool = require_recordable(host)
    assert host.tracefs is not None
    available = available_events(host.tracefs)
    return _Plan(
        tool=tool,
        events=choose_events(available, options.events, locks=options.locks),
        buffer_bytes=options.buffer_bytes or default_buffer(host),
    )


def _started(command: tuple[str, ...]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command)
    except OSError as error:
        raise UsageError(
            f"{command[0]}: cannot be run ({error.strerror}); nothing was recorded"
        ) from None


class _Session:
    """The steps of one recording; each leaves in `_meta` what a reader must know."""

    def __init__(
        self,
        options: RecordOptions,
        host: Host,
        plan: _Plan,
        workspace: Workspace,
        probes: KernelProbes,
        signals: StopSignals,
        say: Say,
        note: Say,
        preparation: Preparation,
    ) -> None:
        self._options = options
        self._host = host
        self._plan = plan
        self._workspace = workspace
        self._probes = probes
        self._signals = signals
        self._say = say
        self._note = note
        self._preparation = preparation
        self._recording = workspace.recording
        self._snapshots = 0
        self._perf: PerfProcess | None = None
        self._command: subprocess.Popen[bytes] | None = None
        self._meta: dict[str, Any] = {}

    def run(self) -> Recorded:
        """Record, and give the finished recording its name."""
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

    def close(self) -> None:
        """End what still runs."""
        if self._perf is not None:
            self._perf.close()
        if self._command is not None and self._command.poll() is None:
            self._command.terminate()
            self._command.wait()

    def _set_up(self) -> None:
        """Everything before the first event."""
        if self._workspace.nearly_full(0):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._note("setting up")
        self._perf = PerfProcess(self._perf_arguments, self._workspace.log, self._host)
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
        if self._options.locks and not self._options.anonymise:
            copy_kernel_symbols(self._recording, self._host, self._signals.check)
        self._preparation.last()
        self._meta |= machine_meta(self._host)
        self._snapshot()

    def _prepare(self) -> None:
        """Run what brings the machine into the state to begin with."""
        if not self._preparation.command:
            return
        self._command = _started(self._preparation.command)
        while self._command.poll() is None:
            self._signals.check()
            self._signals.wait(_LONGEST_WAIT_S)
        code, self._command = self._command.returncode, None
        if code:
            raise UsageError(f"the set-up ended with exit code {code}")

    def _perf_arguments(self, control: tuple[int, int]) -> list[str]:
        words = [*event_arguments(self._plan.events.names, self._host)]
        for event in self._probes.events:
            words += ["-e", event]
            if event in self._probes.filters:
                words += ["--filter", self._probes.filters[event]]
        return record_arguments(
            self._plan.tool,
            output=str(self._recording / EVENT_FILE),
            events=words,
            buffer_bytes=self._plan.buffer_bytes,
            control=control,
        )

    def _begin(self) -> None:
        """Switch the events on, then start the command."""
        assert self._perf is not None
        self._perf.ask("enable", self._signals.stopping)
        self._meta["start_ns"] = time.monotonic_ns()
        self._snapshot()
        self._note("recording; Ctrl-C ends it")
        if self._options.command:
            self._command = _started(self._options.command)

    def _snapshot(self) -> None:
        take_snapshot(self._recording, self._host)
        self._snapshots += 1

    def _watch(self) -> End:
        assert self._perf is not None
        event_file = self._recording / EVENT_FILE
        watch = Watch(
            self._options,
            self._perf,
            self._command,
            self._signals,
            self._workspace,
            event_file,
            self._snapshot,
            LiveRates(self._host, event_file),
            self._say,
        )
        return watch.until_end()

    def _finish(self, end: End) -> Recorded:
        """The last snapshot, the end of perf and of the command, and meta.json."""
        assert self._perf is not None
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
            buffer_bytes=self._plan.buffer_bytes,
            missing_events=self._plan.events.missing,
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
            self._plan.tool, self._host, self._options.command, seconds, folded
        )

    def _command_code(self) -> int | None:
        return None if self._command is None else self._command.returncode

    def _ended_by(self, end: End) -> str:
        if end is End.SIGNAL and self._signals.requested is not None:
            return self._signals.requested.name
        return end.value

    def _early(self, end: End) -> str:
        """Why the recording is shorter than asked for, "" if it is not."""
        assert self._perf is not None
        if end is End.DISK:
            return "the disk is nearly full; free some space, or name another disk with -o"
        return self._perf.failure() if end is End.PERF else ""

    def _write_meta(self, end: End) -> None:
        assert self._perf is not None
        options = self._options
        output = str(self._recording / EVENT_FILE)
        perf = [
            "RECORDING/" + EVENT_FILE if word == output else word for word in self._perf.arguments
        ]
        self._meta |= {
            "command": list(options.command) or None,
            "perf": without_addresses(["perf", *perf[1:]]),
            "perf_version": self._plan.tool.version,
            "probes": self._probes.definitions,
            "missing_events": list(self._plan.events.missing),
            "interval_s": options.interval_s,
            "ended_by": self._ended_by(end),
            "rc": self._command_code(),
        }
        text = json.dumps(self._meta, indent=1) + "\n"
        (self._recording / META_FILE).write_text(text, encoding="utf-8")

    def _keep(self, trouble: str) -> None:
        """Anonymise where asked, and let the recording appear.

        Raises:
            UsageError: there was trouble; the recording is there all the same.
        """
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
        recording.chmod(0o755)
        self._workspace.keep(recording, calling_user(os.environ, self._host.user))
        if trouble:
            raise UsageError(f"{name} can be used, but {trouble}")
