"""The runs of an experiment: made, kept, made again only where they failed or are new."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Event

from pagealloc_model.base.errors import PageallocError, UsageError
from pagealloc_model.base.progress_bar import Report
from pagealloc_model.recording.recording import Recording, open_recording
from pagealloc_model.studies.experiments.guest import (
    Boot,
    Cancel,
    RunFailedError,
    Runner,
    VirtmeGuests,
    make_disk,
)
from pagealloc_model.studies.experiments.inside import DISK, RECORDING, Order
from pagealloc_model.studies.experiments.kernel_config import shares_by_9p
from pagealloc_model.studies.experiments.plan import Plan
from pagealloc_model.studies.experiments.settings import boot_words
from pagealloc_model.studies.experiments.sides import Side
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


def make_runs(
    plan: Plan, sides: Sequence[Side], directory: Path, runner: Runner | None, report: Report | None
) -> list[Run]:
    """Make the runs of these sides that are not there yet, repeat by repeat.

    Sides take turns, so that what changes on the host over time falls on all of them alike.

    Args:
        plan: what to do.
        sides: those to run.
        directory: of the experiment.
        runner: makes a run; None boots guests.
        report: told the share done.

    Raises:
        UsageError: no kernel, one that cannot be a guest, no compiler, no virtme-ng or qemu.
    """
    order = [(side, repeat) for repeat in range(1, plan.repeats + 1) for side in sides]
    known = {
        (side.letter, repeat): run
        for side, repeat in order
        if (run := _kept(_folder(directory, side, repeat), run_identity(plan, side, repeat)))
    }
    stopped = Event()
    pending = [each for each in order if (each[0].letter, each[1]) not in known]
    if pending:
        for image in {_image(side) for side, _ in pending}:
            shares_by_9p(image)
        _prepare(plan, directory)
        runner = runner or VirtmeGuests()
    made: dict[tuple[str, int], Run] = {}
    threads = ThreadPoolExecutor(plan.guest.parallel, thread_name_prefix="guest")
    try:
        futures = {
            threads.submit(_made, plan, side, repeat, directory, runner, stopped.is_set): (
                side.letter,
                repeat,
            )
            for side, repeat in pending
        }
        for future in as_completed(futures):
            made[futures[future]] = future.result()
            if report is not None:
                report((len(known) + len(made)) / len(order))
    finally:
        stopped.set()
        threads.shutdown(wait=True, cancel_futures=True)
    return [(known | made)[side.letter, repeat] for side, repeat in order]


def _folder(directory: Path, side: Side, repeat: int) -> Path:
    return directory / "runs" / f"{side.letter}{repeat}"


def _kept(folder: Path, identity: str) -> Run | None:
    """A finished run, None if it is to be made."""
    try:
        run = Run(**json.loads((folder / RUN_FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    if run.status != DONE or run.identity != identity:
        return None
    return replace(run, path=str(folder / RECORDING))  # the directory may have been moved


def _prepare(plan: Plan, directory: Path) -> None:
    """Programs and the scratch disk, once for all runs."""
    build_programs(directory / "programs")
    if plan.guest.disk:
        make_disk(_disk(plan, directory), plan.guest.disk)


def _disk(plan: Plan, directory: Path) -> Path:
    return directory / f"disk-{plan.guest.disk >> 20}.img"


def _made(
    plan: Plan, side: Side, repeat: int, directory: Path, runner: Runner, cancel: Cancel
) -> Run:
    """One run, whatever becomes of it."""
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
        runner(boot_of(plan, side, repeat, directory), folder, cancel)
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

    Repeats of a side have the seeds of the other sides' repeats, one each.

    Raises:
        UsageError: the side has no kernel, or it is not there.
    """
    image = _image(side)
    guest = plan.guest
    environment = {
        "PATH": f"{directory.absolute() / 'programs'}:{_SYSTEM_PATH}",
        "SEED": str(plan.seed + repeat - 1),
        "AMOUNT": str(plan.amount),
        "DISK": str(DISK),
        "BIG_MIB": str(guest.disk >> 20),
        "TMPDIR": "/var/tmp",
    }
    order = Order(
        workload=_with_memory(plan.workload.command),
        prepare=plan.workload.prepare and _with_memory(plan.workload.prepare),
        fixed=plan.settings,
        settings=side.values,
        environment=environment,
        disk=bool(guest.disk),
        interval_s=plan.interval_s,
        buffer_bytes=plan.buffer,
        locks=plan.locks,
    )
    return Boot(
        image=image,
        guest=guest,
        boot=tuple(boot_words({**plan.settings, **side.values})),
        order=order,
        disk=_disk(plan, directory.absolute()) if guest.disk else None,
        most_bytes=plan.limits.run,
    )


def _with_memory(command: str) -> str:
    """A command that also finds the machine's memory, in pages."""
    pages = "$(awk '/^MemTotal/ {print int($2 / 4)}' /proc/meminfo)"
    return f"MEMORY_PAGES={pages}; {command}"


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
    boot = asdict(boot_of(plan, side, repeat, Path("/")))
    parts = {
        "kernel": _digest(_image(side)),
        "programs": programs_digest(),
        **{name: boot[name] for name in ("boot", "order")},
        "guest": {name: value for name, value in boot["guest"].items() if name not in _NOT_RESULT},
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


_NOT_RESULT = ("parallel", "timeout_s")
"""What of a guest does not change its recording."""


def _digest(image: Path) -> str:
    state = image.stat()
    return _digest_of(image, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=64)
def _digest_of(image: Path, size: int, changed_ns: int) -> str:
    """Digest of a file that had this size when it was changed last."""
    with image.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
