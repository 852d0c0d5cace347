"""Runs on this machine itself: memory held down, and every setting put back as it was found."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.record.doctor import Check, require_trial
from pagealloc_model.recording.record.host import Host
from pagealloc_model.studies.experiments.inside import Order
from pagealloc_model.studies.experiments.plan import Here
from pagealloc_model.studies.experiments.settings import apply, found
from pagealloc_model.studies.experiments.watched import (
    Bounds,
    Call,
    Cancel,
    RunFailedError,
    make_recording,
)

FOUND_FILE = "found.json"
SCRATCH = "scratch"
BIG = "big"
HOLDER = "hold_memory"
INSIDE = "pagealloc_model.studies.experiments.inside"
_GRACE_S = 20.0
_STOPPING = (signal.SIGTERM, signal.SIGHUP)
_IN_MEMORY = ("tmpfs", "ramfs")


def here_check(user: int | None = None) -> Check:
    """Whether this user can run experiments on this machine itself."""
    name = "experiments here"
    if (os.geteuid() if user is None else user) == 0:
        return Check(name=name, found="root, so a plan with [here] can be run")
    cost = "plans with [here] cannot be run, since they change this machine's settings"
    return Check(name=name, found="not root", cost=cost, todo="run them with sudo")


class RunsHere:
    """Makes runs on this machine, one at a time; a context, which holds memory while it is open.

    What a run sets is put back after it, also where it fails or is interrupted. It is kept in a
    file until then: what a killed experiment left is put back by the next one in the directory.

    Args:
        here: what runs may take.
        directory: of the experiment, with the programs in it.
        most_bytes: that a run's folder may hold.
        buffer_bytes: ring buffer of each CPU.
        root: of the files that settings are.
        host: the machine.

    Raises:
        UsageError: not root, a directory that is kept in memory, a machine that cannot be recorded
            or has too little memory, or settings left by a killed experiment that cannot be put
            back.
    """

    def __init__(
        self,
        here: Here,
        directory: Path,
        most_bytes: int,
        buffer_bytes: int,
        root: Path = Path("/"),
        host: Host | None = None,
    ) -> None:
        self._here = here
        self._programs = directory / "programs"
        self._scratch = directory / SCRATCH
        self._found = FoundSettings(directory / FOUND_FILE, root)
        self._most_bytes = most_bytes
        self._buffer_bytes = buffer_bytes
        self._host = host or Host()
        self._root = root
        self._memory: HeldMemory | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> RunsHere:
        check = here_check()
        if check.cost:
            raise UsageError(f"this plan has [here], and this user is not root; {check.todo}")
        require_disk(self._scratch.parent)
        require_trial(self._host, self._buffer_bytes)
        leave = memory_left(self._here, self._buffer_bytes, self._host)
        self._found.put_back()
        if threading.current_thread() is threading.main_thread():
            for number in _STOPPING:
                self._before[number] = signal.signal(number, _interrupt)
        if leave:
            self._memory = HeldMemory(self._programs / HOLDER, leave)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._found.put_back()
        finally:
            if self._memory is not None:
                self._memory.close()
            shutil.rmtree(self._scratch, ignore_errors=True)
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def __call__(self, order: Order, folder: Path, cancel: Cancel) -> None:
        """Make a run.

        Args:
            order: what to do.
            folder: for the recording; is there and empty.
            cancel: ends the run.

        Raises:
            RunFailedError: no recording that can be used, and why.
            UsageError: a setting that this kernel has not.
        """
        order.write(folder)
        make_scratch(self._scratch, self._here.disk)
        bounds = Bounds(
            what="the run",
            key="here.timeout_s",
            limit_s=self._here.timeout_s,
            most_bytes=self._most_bytes,
            grace_s=_GRACE_S,
        )
        path = f"{self._programs}:{os.environ.get('PATH', os.defpath)}"
        call = Call(words=[sys.executable, "-m", INSIDE, str(folder)], environment={"PATH": path})
        self._found.remember((*order.fixed, *order.settings))
        try:
            drop_caches(self._root)
            if self._memory is not None:
                self._memory.adjust()
            make_recording(call, folder, bounds, cancel)
        finally:
            self._found.put_back()


class FoundSettings:
    """Settings as they were found, in a file until they are put back.

    Args:
        file: for them.
        root: of the files that settings are.
    """

    def __init__(self, file: Path, root: Path) -> None:
        self._file = file
        self._root = root
        self._lock = threading.Lock()

    def remember(self, names: Iterable[str]) -> None:
        """Note the values that these settings have now.

        Raises:
            UsageError: this kernel has no such setting.
        """
        values = found(names, self._root)
        partial = self._file.with_suffix(".partial")
        partial.write_text(json.dumps(values, indent=1) + "\n")
        partial.rename(self._file)

    def put_back(self) -> None:
        """Make all noted settings again, the last first; nothing is done where none are noted.

        Raises:
            UsageError: some cannot be made, and which; the others are.
        """
        with self._lock:
            try:
                values = json.loads(self._file.read_text())
            except FileNotFoundError:
                return
            wrong = []
            for name in reversed(values):
                try:
                    apply({name: values[name]}, self._root)
                except UsageError as error:
                    wrong.append(str(error))
            if wrong:
                raise UsageError(f"not put back: {'; '.join(wrong)}; {self._file} has the values")
            self._file.unlink()


class HeldMemory:
    """Memory that is taken out of use, by a process of its own.

    Args:
        program: `HOLDER`.
        leave: bytes that stay free.
    """

    def __init__(self, program: Path, leave: int) -> None:
        self._process = subprocess.Popen(
            [str(program), str(leave >> 20)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def adjust(self) -> tuple[int, int]:
        """Take or return memory until as much is free as should be.

        Returns:
            MiB held and MiB free.

        Raises:
            RunFailedError: the process has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
            held, free = self._process.stdout.readline().split()
        except (OSError, ValueError):
            code = self._process.wait()
            why = f"{HOLDER} ended with exit code {code}"
            raise RunFailedError(f"{why}; raise here.memory, or ask less of it") from None
        return int(held), int(free)

    def close(self) -> None:
        """Return it all."""
        self._process.kill()
        with self._process:
            pass


def memory_left(here: Here, buffer_bytes: int, host: Host) -> int:
    """Return the bytes that are not to be held: the workload's and the ring buffers'; 0 for all.

    Raises:
        UsageError: so much is not available.
    """
    buffers = buffer_bytes * host.cpus
    if not here.memory:
        return 0
    if host.available_memory < here.memory + buffers:
        raise UsageError(
            f"here.memory leaves {here.memory >> 20} MiB and ring buffers take {buffers >> 20}, "
            f"but {host.available_memory >> 20} MiB are available; lower here.memory or "
            "record.buffer"
        )
    return here.memory + buffers


def require_disk(directory: Path) -> None:
    """Refuse a directory whose files are kept in memory: reading them would be no page cache.

    Raises:
        UsageError: it is one.
    """
    device = os.stat(directory).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        words = line.split()
        kind = words[words.index("-") + 1]
        if words[2] == number and kind in _IN_MEMORY:
            raise UsageError(f"{directory}: is on {kind}, in memory; name a directory on a disk")


def make_scratch(scratch: Path, size: int) -> None:
    """A new folder with a file `BIG` that takes no room.

    Args:
        scratch: the folder; what is in it goes.
        size: of the file, in bytes.
    """
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    with (scratch / BIG).open("wb") as big:
        big.truncate(size)


def drop_caches(root: Path) -> None:
    """Write what is dirty, drop the page cache and slabs, and compact memory."""
    os.sync()
    for name, value in (("drop_caches", "3"), ("compact_memory", "1")):
        with contextlib.suppress(OSError):  # kernels without compaction have no such file
            (root / "proc/sys/vm" / name).write_text(value)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
