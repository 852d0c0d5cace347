"""The runs of an experiment: made, kept, made again only where they failed or are new."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Event

from pagealloc_model.base.errors import PageallocError, UsageError
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.recording.recording import Recording, open_recording
from pagealloc_model.studies.experiments.guest import Boot, Runner, VirtmeGuests, make_disk
from pagealloc_model.studies.experiments.here import SCRATCH, RunsHere
from pagealloc_model.studies.experiments.inside import DISK, RECORDING, Order
from pagealloc_model.studies.experiments.kernel_config import shares_by_9p
from pagealloc_model.studies.experiments.plan import Guest, Here, Plan
from pagealloc_model.studies.experiments.settings import boot_words
from pagealloc_model.studies.experiments.sides import Side
from pagealloc_model.studies.experiments.watched import Cancel, RunFailedError
from pagealloc_model.studies.experiments.workloads import build_programs, programs_digest

RUN_FILE = "run.json"
DONE, FAILED, MEASURED = "done", "failed", "measured"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a side.

    Attributes:
        side: its letter.
        repeat: from 1 on.
        status: DONE, FAILED, or MEASURED, of recordings that were there before.
        path: of the recording; it may not exist if it failed.
        seconds: that it took to make.
        identity: digest of all that it was made from; "" if it was there before.
        error: one line, "" unless it failed.
        console: the last lines of the guest's console, if it failed.
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


def measured_runs(
    sides: Sequence[Side], measured: Mapping[str, Sequence[str | Path]]
) -> dict[str, list[Run]]:
    """Recordings that take a guest's place, by the letter of their side.

    Args:
        sides: all of the plan.
        measured: paths by letter.

    Raises:
        UsageError: no such side.
        RecordingError: one of them cannot be opened.
    """
    letters = [side.letter for side in sides]
    runs = {}
    for letter, paths in measured.items():
        if letter not in letters:
            raise UsageError(f"--measured {letter}=...: there is no such side, but {letters}")
        opened = [open_recording(path) for path in paths]
        runs[letter] = [
            Run(side=letter, repeat=repeat, status=MEASURED, path=str(each.path))
            for repeat, each in enumerate(opened, 1)
        ]
    return runs


def kept_runs(sides: Sequence[Side], directory: Path) -> list[Run]:
    """All finished runs of these sides that are in a directory, whatever they were made from.

    Args:
        sides: to look for.
        directory: of the experiment.

    Raises:
        UsageError: there are none.
    """
    runs = []
    for side in sides:
        places = (directory / "runs").glob(f"{side.letter}[1-9]*")
        for place in sorted(places, key=lambda each: (len(each.name), each.name)):
            run = _finished(place)
            if run is not None and run.side == side.letter:
                runs.append(run)
    if not runs:
        raise UsageError(f"{directory}: has no finished run of this plan; leave --no-runs out")
    return runs


def make_runs(
    plan: Plan, sides: Sequence[Side], directory: Path, runner: Runner | None, report: Report | None
) -> list[Run]:
    """Make the runs of these sides that are not there yet, repeat by repeat.

    Sides take turns, so that what changes on the host over time falls on all of them alike.

    Args:
        plan: what to do.
        sides: those to run.
        directory: of the experiment.
        runner: boots guests; None calls virtme-ng.
        report: told the share done.

    Raises:
        UsageError: no kernel, one that cannot be a guest, no compiler, no virtme-ng or qemu; or,
            of a plan for this machine, not root, or it cannot be recorded; or the first run of
            every side failed for the same reason, and others were to follow.
    """
    order = [(side, repeat) for repeat in range(1, plan.repeats + 1) for side in sides]
    known = {
        (side.letter, repeat): run
        for side, repeat in order
        if (run := _kept(_folder(directory, side, repeat), run_identity(plan, side, repeat)))
    }
    stopped = Event()
    pending = [each for each in order if (each[0].letter, each[1]) not in known]
    made: dict[tuple[str, int], Run] = {}
    first = _FirstRuns(pending)

    def made_unless_in_vain(each: tuple[Side, int]) -> Run | None:
        if first.in_vain:
            return None
        run = _made(plan, each, directory, make, lambda: stopped.is_set() or bool(first.in_vain))
        first.note(run)
        return run

    with ExitStack() as stack:
        make = _maker(plan, pending, directory, runner, stack) if pending else _no_run
        threads = ThreadPoolExecutor(plan.guest.parallel, thread_name_prefix="run")
        stack.callback(threads.shutdown, wait=True, cancel_futures=True)
        stack.callback(stopped.set)
        for future in as_completed(threads.submit(made_unless_in_vain, each) for each in pending):
            run = future.result()
            if run is None:
                continue
            made[run.side, run.repeat] = run
            if report is not None:
                report((len(known) + len(made)) / len(order))
    if first.in_vain:
        raise UsageError(first.in_vain)
    return [(known | made)[side.letter, repeat] for side, repeat in order]


class _FirstRuns:
    """The first run of each side: where all fail for one reason, the others would fail as well.

    Args:
        pending: sides and repeats to make, in order.

    Attributes:
        in_vain: why no more is to be made, one line; "" as long as it makes sense.
    """

    def __init__(self, pending: Sequence[tuple[Side, int]]) -> None:
        first: dict[str, int] = {}
        for side, repeat in pending:
            first.setdefault(side.letter, repeat)
        self._names = {f"{letter}{repeat}" for letter, repeat in first.items()}
        self._left = len(pending) - len(first)
        self._errors: dict[str, str] = {}
        self.in_vain = ""

    def note(self, run: Run) -> None:
        """Take note of how a run ended."""
        if run.name in self._names:
            self._errors[run.name] = run.error
        if self._left and len(self._errors) == len(self._names):
            reasons = {re.sub(r"\d+", "", error) for error in self._errors.values()}
            if len(reasons) == 1 and "" not in reasons:
                self.in_vain = (
                    f"the first run of every side failed: {run.error}; put that right and repeat "
                    "the command, which makes the runs that are missing"
                )


Make = Callable[[Side, int, Path, Cancel], None]
"""Makes a repeat of a side: leaves the recording in a folder, or raises `RunFailedError`."""


def _no_run(side: Side, repeat: int, folder: Path, cancel: Cancel) -> None:
    """Where nothing is to be made."""


def _maker(
    plan: Plan,
    pending: Sequence[tuple[Side, int]],
    directory: Path,
    runner: Runner | None,
    stack: ExitStack,
) -> Make:
    """What makes the runs: guests, or this machine for as long as the stack is open."""
    if plan.here is not None:
        build_programs(directory / "programs")
        here = stack.enter_context(RunsHere(plan.here, directory, plan.limits.run, plan.buffer))
        return lambda side, repeat, folder, cancel: here(
            order_of(plan, side, repeat, directory), folder, cancel
        )
    for image in {_image(side) for side, _ in pending}:
        shares_by_9p(image)
    _prepare(plan, directory)
    boots = runner or VirtmeGuests()
    return lambda side, repeat, folder, cancel: boots(
        boot_of(plan, side, repeat, directory), folder, cancel
    )


def _folder(directory: Path, side: Side, repeat: int) -> Path:
    return directory / "runs" / f"{side.letter}{repeat}"


def _kept(folder: Path, identity: str) -> Run | None:
    """A finished run that was made from the same, None if it is to be made."""
    run = _finished(folder)
    return run if run is not None and run.identity == identity else None


def _finished(folder: Path) -> Run | None:
    """A run that left a recording, None if there is none."""
    try:
        run = Run(**json.loads((folder / RUN_FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    if run.status != DONE:
        return None
    return replace(run, path=str(folder / RECORDING))  # the directory may have been moved


def _prepare(plan: Plan, directory: Path) -> None:
    """Programs and the scratch disk, once for all runs."""
    build_programs(directory / "programs")
    if plan.guest.disk:
        make_disk(_disk(plan, directory), plan.guest.disk)


def _disk(plan: Plan, directory: Path) -> Path:
    return directory / f"disk-{plan.guest.disk >> 20}.img"


def _made(plan: Plan, which: tuple[Side, int], directory: Path, make: Make, cancel: Cancel) -> Run:
    """One run, whatever becomes of it."""
    side, repeat = which
    folder = _folder(directory, side, repeat)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began = time.monotonic()
    error = console = ""
    try:
        free = shutil.disk_usage(directory).free
        if free < plan.limits.free:
            room = f"{free >> 20} MiB are free, limits.free asks for {plan.limits.free >> 20}"
            raise RunFailedError(f"no room on the disk: {room}; free some space")
        make(side, repeat, folder, cancel)
        if not len(open_recording(folder / RECORDING).trace):
            raise RunFailedError("nothing was recorded")
    except RunFailedError as failure:
        error, console = str(failure), failure.console
    except PageallocError as failure:
        error = str(failure)
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
    return run


def boot_of(plan: Plan, side: Side, repeat: int, directory: Path) -> Boot:
    """What a run boots, and what it is to do inside.

    Raises:
        UsageError: the side has no kernel, or it is not there.
    """
    return Boot(
        image=_image(side),
        guest=plan.guest,
        boot=tuple(boot_words({**plan.settings, **side.values})),
        order=order_of(plan, side, repeat, directory),
        disk=_disk(plan, directory.absolute()) if plan.guest.disk else None,
        most_bytes=plan.limits.run,
    )


def order_of(plan: Plan, side: Side, repeat: int, directory: Path) -> Order:
    """What a run is to do.

    Repeats of a side have the seeds of the other sides' repeats, one each.
    """
    here, directory = plan.here, directory.absolute()
    environment = {
        "SEED": str(plan.seed + repeat - 1),
        "AMOUNT": str(plan.amount),
    }
    if here is None:
        disk = plan.guest.disk
        environment |= {
            "PATH": f"{directory / 'programs'}:{_SYSTEM_PATH}",
            "DISK": str(DISK),
            "TMPDIR": "/var/tmp",
        }
    else:
        disk = here.disk
        environment |= dict.fromkeys(("DISK", "TMPDIR"), str(directory / SCRATCH))
    environment["BIG_MIB"] = str(disk >> 20)
    pages = str(here.memory >> 12) if here is not None and here.memory else _MEMORY_PAGES
    command, prepare = plan.workload.command, plan.workload.prepare
    return Order(
        workload=f"MEMORY_PAGES={pages}; {command}",
        prepare=prepare and f"MEMORY_PAGES={pages}; {prepare}",
        fixed=plan.settings,
        settings=side.values,
        environment=environment,
        disk=here is None and bool(disk),
        interval_s=plan.interval_s,
        buffer_bytes=plan.buffer,
        locks=plan.locks,
    )


_MEMORY_PAGES = "$(awk '/^MemTotal/ {print int($2 / 4)}' /proc/meminfo)"
"""Memory of the machine that a command runs on, in pages."""


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
    order = asdict(order_of(plan, side, repeat, Path("/")))
    parts: dict[str, object] = {"programs": programs_digest(), "order": order, "steps": _STEPS}
    if plan.here is not None:
        parts |= {"machine": _this_machine(), "here": _of_result(plan.here)}
    else:
        boot = boot_words({**plan.settings, **side.values})
        kernel = _digest(_image(side))
        parts |= {"kernel": kernel, "boot": boot, "guest": _of_result(plan.guest)}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


def _of_result(machine: Guest | Here) -> dict[str, object]:
    """What of a machine changes its recording."""
    return {name: each for name, each in asdict(machine).items() if name not in _NOT_RESULT}


def _this_machine() -> list[str]:
    system = os.uname()
    return [system.release, system.version, str(os.cpu_count())]


_NOT_RESULT = ("parallel", "timeout_s")
_STEPS = "ring buffers, set-up, settings"
"""In which order a run begins; runs that began in another one are made again."""


def _digest(image: Path) -> str:
    state = image.stat()
    return _digest_of(image, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=64)
def _digest_of(image: Path, size: int, changed_ns: int) -> str:
    """Digest of a file that had this size when it was changed last."""
    with image.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
