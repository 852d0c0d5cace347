"""The runs of an experiment: made, kept, made again only where they failed or are new."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from types import FrameType
from typing import Any

from pagealloc_model.base.errors import PageallocError, UsageError
from pagealloc_model.base.files import is_given, json_of, opened, text_of, written_whole
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.guests.guest import (
    SYSTEM_PATH,
    Boot,
    Call,
    Cancel,
    RunFailedError,
    Runner,
    VirtmeGuests,
    make_disk,
    make_recording,
    shares_by_9p,
)
from pagealloc_model.guests.inside import (
    DISK,
    RECORDING,
    Order,
    apply,
    boot_words,
    by_file,
    current_values,
)
from pagealloc_model.guests.plan import Here, Plan, Side
from pagealloc_model.guests.workloads import build_programs, programs_digest
from pagealloc_model.recording.event_files import has_events
from pagealloc_model.recording.record.children import python_words
from pagealloc_model.recording.record.doctor import Check, require_trial
from pagealloc_model.recording.record.host import Host
from pagealloc_model.recording.record.perf import USUAL_EVENTS
from pagealloc_model.recording.recording import Recording, open_recording

RUN_FILE = "run.json"
DONE, FAILED, MEASURED = "done", "failed", "measured"
FOUND_FILE = "found.json"
SCRATCH = "scratch"
BIG = "big"
HOLDER = "hold_memory"
INSIDE = "pagealloc_model.guests.inside"
_GRACE_S = 20.0
_IN_MEMORY = ("tmpfs", "ramfs")
_PUT_BACK = re.compile(r"vm\.[a-z_-]+|/sys/kernel/mm/[a-zA-Z0-9_-]+(/[a-zA-Z0-9_-]+)*")
_NOT_PUT_BACK = "only vm.NAME and files below /sys/kernel/mm are set by experiments here"
_MEMORY_PAGES = "$(awk '/^MemTotal/ {print int($2 / 4)}' /proc/meminfo)"
"""Memory of the machine that a command runs on, in pages."""
_NOT_RESULT = ("parallel", "timeout_s")
"""Parts of a machine's description that do not change its recording."""
_STEPS = "ring buffers, set-up, settings"
"""The order in which a run begins; runs that began in another one are made again."""


def here_check(user: int | None = None) -> Check:
    """True where this user can run experiments on this machine itself."""
    name = "experiments here"
    if (os.geteuid() if user is None else user) == 0:
        return Check(name=name, found="root, so a plan with [here] can be run")
    cost = "plans with [here] cannot be run, since they change this machine's settings"
    return Check(name=name, found="not root", cost=cost, todo="run them with sudo")


@contextlib.contextmanager
def runs_here(
    here: Here,
    directory: Path,
    most_bytes: int,
    buffer_bytes: int,
    root: Path = Path("/"),
    host: Host | None = None,
    programs: Path | None = None,
) -> Iterator[Runner]:
    """Make runs on this machine, one at a time; memory is held meanwhile.

    Settings of a run are put back after it, also where it fails or is interrupted. They are kept in
    a file until then: those that a killed experiment left are put back by the next one in the
    directory. `most_bytes` is what a run's folder may hold, `root` where settings' files are.
    """
    programs, host = programs or directory / "programs", host or Host()
    check, scratch = here_check(), directory / SCRATCH
    if check.cost:
        raise UsageError(f"this plan has [here], and this user is not root; {check.todo}")
    require_disk(directory)
    require_trial(host, buffer_bytes)
    available, buffers = host.available_memory, buffer_bytes * host.cpus
    if here.memory and available < here.memory + buffers:
        raise UsageError(
            f"here.memory leaves {here.memory >> 20} MiB and ring buffers take {buffers >> 20}, "
            f"but {available >> 20} MiB are available; lower here.memory or record.buffer"
        )
    settings = FoundSettings(directory / FOUND_FILE, root)
    settings.put_back()

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with contextlib.ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):
                stack.callback(signal.signal, number, signal.signal(number, interrupt))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        hold = None
        if here.memory:
            hold = stack.enter_context(held_memory(programs / HOLDER, here.memory + buffers))
        stack.callback(settings.put_back)

        def run(boot: Boot, folder: Path, cancel: Cancel) -> None:
            boot.order.write(folder)
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir(parents=True)
            with (scratch / BIG).open("wb") as big:
                big.truncate(here.disk)
            call = Call(
                words=python_words(INSIDE, str(folder)),
                environment={"PATH": f"{programs}:{os.environ.get('PATH', os.defpath)}"},
                what="the run",
                key="here.timeout_s",
                limit_s=here.timeout_s,
                most_bytes=most_bytes,
                grace_s=_GRACE_S,
            )
            settings.remember((*boot.order.fixed, *boot.order.settings))
            try:
                os.sync()
                for name, value in (("drop_caches", "3"), ("compact_memory", "1")):
                    with contextlib.suppress(OSError):  # kernels without compaction have no file
                        (root / "proc/sys/vm" / name).write_text(value)
                if hold is not None:
                    hold()
                make_recording(call, folder, cancel)
            finally:
                settings.put_back()

        yield run


class FoundSettings:
    """Settings as they were found, in a file until they are put back."""

    def __init__(self, file: Path, root: Path) -> None:
        self._file = file
        self._root = root
        self._lock = threading.Lock()

    def remember(self, names: Iterable[str]) -> None:
        """Note the values that these settings have now."""
        names = tuple(names)
        for name in names:
            if not _PUT_BACK.fullmatch(name):
                raise UsageError(f"{name}: {_NOT_PUT_BACK}")
        values = current_values(names, self._root)
        with written_whole(self._file) as partial:
            partial.write_text(json.dumps(values, indent=1) + "\n")

    def put_back(self) -> None:
        """Make all noted settings again, the last first; nothing is done where none are noted."""
        with self._lock:
            if not is_given(self._file):
                return
            todo = "put the settings back by hand and remove the file"
            with opened(self._file) as file:
                if os.fstat(file.fileno()).st_uid not in (0, os.geteuid()):
                    raise UsageError(f"{self._file}: is another user's; {todo}")
            values = json_of(text_of(self._file, "utf-8", todo=todo), self._file, todo=todo)
            if not isinstance(values, dict):
                raise UsageError(f"{self._file}: is not a JSON object; {todo}")
            for name, value in values.items():
                if not (_PUT_BACK.fullmatch(name) and isinstance(value, str)):
                    raise UsageError(f"{self._file}: {name}: {_NOT_PUT_BACK}; {todo}")
            wrong = []
            for name in reversed(values):
                try:
                    apply({name: values[name]}, self._root)
                except UsageError as error:
                    wrong.append(str(error))
            if wrong:
                raise UsageError(f"not put back: {'; '.join(wrong)}; {self._file} has the values")
            self._file.unlink()


@contextlib.contextmanager
def held_memory(program: Path, leave: int) -> Iterator[Callable[[], tuple[int, int]]]:
    """Memory taken out of use by a process of its own, and returned in the end.

    What it yields takes or returns memory until as much is free as should be; MiB held and free.
    """
    with subprocess.Popen(
        [str(program), str(leave >> 20)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:

        def adjust() -> tuple[int, int]:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write("\n")
                process.stdin.flush()
                held, free = process.stdout.readline().split()
            except (OSError, ValueError):
                why = f"{HOLDER} ended with exit code {process.wait()}"
                raise RunFailedError(f"{why}; raise here.memory, or ask less of it") from None
            return int(held), int(free)

        try:
            yield adjust
        finally:
            process.kill()


def require_disk(directory: Path) -> None:
    """Refuse a directory whose files are kept in memory: reading them would be no page cache."""
    device = os.stat(directory).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        words = line.split()
        kind = words[words.index("-") + 1]
        if words[2] == number and kind in _IN_MEMORY:
            raise UsageError(f"{directory}: is on {kind}, in memory; name a directory on a disk")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a side: a letter, and repeats from 1 on.

    The recording may not exist if it FAILED, and was there before if it is MEASURED. The digest
    `identity` is of all that it was made from; `console` has a guest's last lines.
    """

    side: str
    repeat: int
    status: str
    path: str
    seconds: float = 0.0
    identity: str = ""
    error: str = ""
    console: str = ""

    @property
    def name(self) -> str:
        """Such as "B2"."""
        return f"{self.side}{self.repeat}"

    def open(self) -> Recording:
        """The recording."""
        return open_recording(self.path)


def measured_runs(sides: Sequence[Side], measured: Mapping[str, Sequence[str | Path]]) -> list[Run]:
    """Recordings that take a guest's place."""
    letters, runs = [side.letter for side in sides], []
    for letter, paths in measured.items():
        if letter not in letters:
            raise UsageError(f"--measured {letter}=...: there is no such side, but {letters}")
        runs += [
            Run(side=letter, repeat=repeat, status=MEASURED, path=str(open_recording(path).path))
            for repeat, path in enumerate(paths, 1)
        ]
    return runs


def kept_runs(sides: Sequence[Side], directory: Path) -> list[Run]:
    """All finished runs of these sides in an experiment's directory, whatever made from."""
    runs = []
    for side in sides:
        places = (directory / "runs").glob(f"{side.letter}[1-9]*")
        for place in sorted(places, key=lambda path: (len(path.name), path.name)):
            run = _finished(place)
            if run is not None and run.side == side.letter:
                runs.append(run)
    if not runs:
        raise UsageError(f"{directory}: has no finished run of this plan; leave --no-runs out")
    return runs


def _finished(folder: Path) -> Run | None:
    """A run that left a recording, None if there is none."""
    try:
        run = Run(**json.loads((folder / RUN_FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    # the directory may have been moved
    return replace(run, path=str(folder / RECORDING)) if run.status == DONE else None


def make_runs(
    plan: Plan, sides: Sequence[Side], directory: Path, runner: Runner | None, report: Report | None
) -> list[Run]:
    """Make the runs of these sides that are not there yet, repeat by repeat.

    Sides take turns, so that what changes on the host over time falls on all of them alike. Where
    the first run of each side fails for one reason, the others would fail as well.
    """
    order = [(side, repeat) for repeat in range(1, plan.repeats + 1) for side in sides]
    runs: dict[str, Run] = {}
    pending: list[tuple[Side, int]] = []
    for side, repeat in order:
        run = _finished(directory / "runs" / f"{side.letter}{repeat}")
        if run is not None and run.identity == run_identity(plan, side, repeat):
            runs[run.name] = run
        else:
            pending.append((side, repeat))
    first = {side.letter: f"{side.letter}{repeat}" for side, repeat in reversed(pending)}
    errors: dict[str, str] = {}
    stopped, in_vain = Event(), Event()

    def run_one(side: Side, repeat: int) -> Run | None:
        if in_vain.is_set():
            return None
        folder = directory / "runs" / f"{side.letter}{repeat}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        began = time.monotonic()
        error = console = ""
        try:
            free = shutil.disk_usage(directory).free
            if free < plan.limits.free:
                room = f"{free >> 20} MiB are free, limits.free asks for {plan.limits.free >> 20}"
                raise RunFailedError(f"no room on the disk: {room}; free some space")
            boot = boot_of(plan, side, repeat, directory)
            boots(boot, folder, lambda: stopped.is_set() or in_vain.is_set())
            recording = open_recording(folder / RECORDING)
            if not has_events(recording.event_file):
                raise RunFailedError("nothing was recorded")
        except PageallocError as failure:
            error, console = str(failure), getattr(failure, "console", "")
        run = Run(
            side=side.letter,
            repeat=repeat,
            status=FAILED if error else DONE,
            path=str(folder / RECORDING),
            seconds=round(time.monotonic() - began, 1),
            identity=run_identity(plan, side, repeat),
            error=error,
            console=console,
        )
        (folder / RUN_FILE).write_text(json.dumps(asdict(run), indent=1) + "\n")
        if run.name in first.values():
            errors[run.name] = run.error
            reasons = {re.sub(r"\d+", "", error) for error in errors.values()}
            if len(errors) == len(first) < len(pending) and len(reasons) == 1 and reasons != {""}:
                in_vain.set()
        return run

    with contextlib.ExitStack() as stack:
        if not pending:
            pass
        elif plan.here is not None:
            # Root runs what was built now, not what lies in a directory that others may have made.
            built = Path(stack.enter_context(TemporaryDirectory(prefix="pagealloc-programs-")))
            build_programs(built)
            here = runs_here(plan.here, directory, plan.limits.run, plan.buffer, programs=built)
            boots = stack.enter_context(here)
        else:
            for image in {_image(side) for side, _ in pending}:
                shares_by_9p(image)
            build_programs(directory / "programs")
            if plan.guest.disk:
                make_disk(_disk(plan, directory), plan.guest.disk)
            boots = runner or VirtmeGuests()
        threads = ThreadPoolExecutor(plan.guest.parallel, thread_name_prefix="run")
        stack.callback(threads.shutdown, wait=True, cancel_futures=True)
        stack.callback(stopped.set)
        for future in as_completed(threads.submit(run_one, *which) for which in pending):
            run = future.result()
            if run is not None:
                runs[run.name] = run
                if report is not None:
                    report(len(runs) / len(order))
    if in_vain.is_set():
        raise UsageError(
            f"the first run of every side failed: {list(errors.values())[-1]}; put that right and "
            "repeat the command, which makes the runs that are missing"
        )
    return [runs[f"{side.letter}{repeat}"] for side, repeat in order]


def _disk(plan: Plan, directory: Path) -> Path:
    return directory / f"disk-{plan.guest.disk >> 20}.img"


def boot_of(plan: Plan, side: Side, repeat: int, directory: Path) -> Boot:
    """A run's machine and order; repeats have the seeds of other sides' repeats, one each."""
    here, guest, directory = plan.here, plan.guest, directory.absolute()
    environment = {"SEED": str(plan.seed + repeat - 1), "AMOUNT": str(plan.amount)}
    disk, pages = guest.disk, _MEMORY_PAGES
    machine: dict[str, Any] = {}
    if here is None:
        environment |= {
            "PATH": f"{directory / 'programs'}:{SYSTEM_PATH}",
            "DISK": str(DISK),
            "TMPDIR": "/var/tmp",
        }
        machine = {
            "image": _image(side),
            "guest": guest,
            "boot": tuple(boot_words({**plan.settings, **side.values})),
            "disk": _disk(plan, directory) if disk else None,
            "most_bytes": plan.limits.run,
        }
    else:
        disk, pages = here.disk, str(here.memory >> 12) if here.memory else _MEMORY_PAGES
        environment |= dict.fromkeys(("DISK", "TMPDIR"), str(directory / SCRATCH))
    command, prepare = plan.workload.command, plan.workload.prepare
    order = Order(
        workload=f"MEMORY_PAGES={pages}; {command}",
        prepare=prepare and f"MEMORY_PAGES={pages}; {prepare}",
        fixed=by_file(plan.settings),
        settings=by_file(side.values),
        environment={**environment, "BIG_MIB": str(disk >> 20)},
        disk=here is None and bool(disk),
        interval_s=plan.interval_s,
        buffer_bytes=plan.buffer,
        locks=plan.locks,
        events=",".join(plan.events),
    )
    return Boot(order=order, **machine)


def _image(side: Side) -> Path:
    if side.kernel is None:
        raise UsageError(
            f"side {side.letter} has no recordings and the plan no [[kernel]]; name one of the two"
        )
    if not os.access(side.kernel.image, os.R_OK):
        raise UsageError(f"{side.kernel.image}: no such kernel; name a bzImage in [[kernel]]")
    return side.kernel.image


def run_identity(plan: Plan, side: Side, repeat: int) -> str:
    """Digest of all that a run is made from: equal ones need not be made again."""
    boot = boot_of(plan, side, repeat, Path("/"))
    parts: dict[str, object] = {"programs": programs_digest(), "steps": _STEPS}
    order = asdict(boot.order)
    if order["events"] == USUAL_EVENTS:
        del order["events"]
    parts["order"] = order
    machine = asdict(plan.here or plan.guest)
    machine = {name: value for name, value in machine.items() if name not in _NOT_RESULT}
    if plan.here is not None:
        system = os.uname()
        parts["machine"] = [system.release, system.version, str(os.cpu_count())]
        parts["here"] = machine
    else:
        state = boot.image.stat()
        parts["kernel"] = _digest(boot.image, state.st_size, state.st_mtime_ns)
        parts |= {"boot": list(boot.boot), "guest": machine}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


@lru_cache(maxsize=64)
def _digest(image: Path, size: int, changed_ns: int) -> str:
    """Digest of a file that had this size when it was changed last."""
    with image.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
