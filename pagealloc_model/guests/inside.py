"""The part of a run on its machine: set up, make the settings, record a workload, say how it went.

Called as `python -m pagealloc_model.guests.inside FOLDER`. FOLDER has `ORDER_FILE`;
the recording and `ANSWER_FILE` appear there. In a guest, the host's root is read-only.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from pagealloc_model.base.errors import PageallocError, UsageError

ORDER_FILE, ANSWER_FILE, RECORDING = "order.json", "answer.json", "recording"
DISK, DISK_DEVICE = Path("/mnt"), "/dev/vda"
STATES, STATE_ASKED, STATE_REFUSED = "states", ".asked", ".refused"
"""Folder of a run in which a guest asks for its state to be read, and endings of files in it."""
_STATE_WAIT_S = 60.0
BOOT = "boot:"
"""Begins the name of a setting that is a boot parameter."""
RUN = "RUN"
"""Variable that names the run's folder, for files that a workload leaves beside the recording."""
SIZES = "/sys/kernel/mm/transparent_hugepage/hugepages-*kB/enabled"
"""Setting of several files: the sizes in KiB that are "always", all others "never"; or "none"."""
FOLIO_KIB = tuple(4 << order for order in range(2, 10))
"""Sizes of folios that anonymous memory may have, with base pages of 4 KiB."""
SCRATCH = Path("/var/tmp")
"""A tmpfs in every guest of virtme-ng; /tmp may hold the folder itself."""
PERF_FILES = Path("/tmp")
"""Where perf, which writes into a pipe, keeps the events' formats meanwhile."""


def setting_file(name: str, root: Path = Path("/")) -> Path:
    """The file that a setting is written into; of a boot parameter, where it can be seen."""
    if name.startswith("/sys/") and ".." not in name.split("/"):
        return root / name.removeprefix("/")
    if name.startswith(BOOT) and name != BOOT:
        return root / "proc/cmdline"
    if "." in name.strip(".") and "/" not in name and " " not in name:
        return root / "proc/sys" / name.replace(".", "/")
    raise UsageError(
        f"{name!r} is no setting; name a sysctl (vm.NAME), a path below /sys, or boot:NAME"
    )


def by_file(values: Mapping[str, str]) -> dict[str, str]:
    """Settings with one for each file in the place of `SIZES`."""
    alone = {name: value for name, value in values.items() if name != SIZES}
    if SIZES in values:
        sizes = values[SIZES].split()
        for kib in FOLIO_KIB:
            use = "always" if str(kib) in sizes else "never"
            alone[SIZES.replace("*", str(kib))] = use
    return alone


def boot_words(values: Mapping[str, str]) -> list[str]:
    """Boot parameters among settings, as "NAME=VALUE"."""
    return [
        f"{name.removeprefix(BOOT)}={value}"
        for name, value in values.items()
        if name.startswith(BOOT)
    ]


def apply(values: Mapping[str, str], root: Path = Path("/")) -> None:
    """Make settings on this machine and read each back; of several words, the one in brackets."""
    for name, value in values.items():
        file, boot = setting_file(name, root), boot_words({name: value})
        try:
            if not boot:
                file.write_text(value)
            text = file.read_text().strip()
        except OSError as error:
            raise UsageError(
                f"{name}={value}: cannot be set in this kernel ({error.strerror})"
            ) from None
        words = text.split()
        if not {f"[{value}]", *boot} & set(words) and (boot or words != value.split()):
            raise UsageError(f"{name}={value}: this kernel keeps {text!r}")


def current_values(names: Iterable[str], root: Path = Path("/")) -> dict[str, str]:
    """Values that settings (no boot parameters) have on this machine, as `apply` makes them."""
    values = {}
    for name in names:
        try:
            text = setting_file(name, root).read_text().strip()
        except OSError as error:
            raise UsageError(f"{name}: cannot be read in this kernel ({error.strerror})") from None
        chosen = [word.strip("[]") for word in text.split() if word.startswith("[")]
        values[name] = chosen[0] if chosen else text
    return values


@dataclass(frozen=True, kw_only=True)
class Order:
    """Instructions for a run.

    Attributes:
        fixed: settings that all runs share, made before the set-up.
        settings: those of this run, made after the set-up; the recorder waits until kswapd sleeps.
        prepare: shell command of the set-up, "" for none; the ring buffers are there before it.
        environment: variables for both commands; they run in TMPDIR, if it is one of them.
        disk: a scratch disk is there, to be mounted at `DISK`.
        buffer_bytes: ring buffer of each CPU; None: by the machine's memory.
        events: names and patterns of events, "default" for the usual ones, with commas between.
    """

    workload: str
    prepare: str = ""
    fixed: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    disk: bool = False
    interval_s: float = 1.0
    buffer_bytes: int | None = None
    locks: bool = False
    events: str = "default"

    def write(self, folder: Path) -> None:
        """Leave the order where the guest looks for it."""
        (folder / ORDER_FILE).write_text(json.dumps(asdict(self), indent=1) + "\n")


def answer_of(folder: Path) -> str | None:
    """The error in a run's answer, "" where it ended well; None: there is no answer."""
    try:
        return str(json.loads((folder / ANSWER_FILE).read_text())["error"])
    except FileNotFoundError:
        return None


def main(folder: Path) -> int:
    """Follow the order in a folder; 1 if it failed."""
    order = Order(**json.loads((folder / ORDER_FILE).read_text()))
    commands = [("mount", "-o", "noatime", DISK_DEVICE, str(DISK))] if order.disk else []
    if commands and not Path(DISK_DEVICE).exists():
        # nothing else loads its driver if it is a module
        commands.insert(0, ("modprobe", "virtio_blk"))
    if (folder / STATES).is_dir():
        # the host finds the kernel's memory by what this driver tells; it may be no module
        subprocess.run(("modprobe", "qemu_fw_cfg"), capture_output=True, check=False)
    if not os.access(PERF_FILES, os.W_OK) and PERF_FILES not in folder.parents:
        # a guest whose kernel has no overlayfs: the host's files are all read-only
        commands.insert(0, ("mount", "-t", "tmpfs", "tmpfs", str(PERF_FILES)))
    try:
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise UsageError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
        os.chdir(order.environment.get("TMPDIR", SCRATCH))
        carry_out(order, folder)
        error = ""
    except (PageallocError, OSError) as failure:
        error = " ".join(str(failure).split())
    unfinished = folder / f".{ANSWER_FILE}"
    unfinished.write_text(json.dumps({"error": error, "seconds": time.monotonic()}) + "\n")
    unfinished.rename(folder / ANSWER_FILE)
    os.sync()
    return 1 if error else 0


def state_from_outside(folder: Path, file: Path) -> None:
    """Have this guest stopped, and its state read into a file; raises `UsageError` without."""
    asked = folder / STATES / f"{file.stem}{STATE_ASKED}"
    answer, refused = asked.with_suffix(file.suffix), asked.with_suffix(STATE_REFUSED)
    asked.touch()
    give_up = time.monotonic() + _STATE_WAIT_S
    while asked.exists() and time.monotonic() < give_up:
        time.sleep(0.1)
    if refused.exists():
        raise UsageError(refused.read_text())
    if not answer.exists():
        raise UsageError(f"nobody read this guest's state within {_STATE_WAIT_S:g} s")
    shutil.move(answer, file)


def carry_out(order: Order, folder: Path, root: Path = Path("/")) -> None:
    """Make the settings of all runs, prepare, make those of this run and record."""
    from pagealloc_model.recording.record.host import Host
    from pagealloc_model.recording.record.perf import RecordOptions
    from pagealloc_model.recording.record.session import record

    def say(line: str) -> None:
        print(line, flush=True)

    os.environ.update(order.environment)
    os.environ[RUN] = str(folder)
    apply(order.fixed, root)
    recorded = record(
        RecordOptions(
            destination=folder / RECORDING,
            command=("sh", "-ec", order.workload),
            interval_s=order.interval_s,
            buffer_bytes=order.buffer_bytes,
            locks=order.locks,
            events=tuple(order.events.split(",")),
            set_up=("sh", "-ec", order.prepare) if order.prepare else (),
            before_copies=partial(apply, order.settings, root),
            read_state=partial(state_from_outside, folder) if (folder / STATES).is_dir() else None,
        ),
        Host(),
        say,
        say,
    )
    if recorded.kswapd_slept is False:
        say("kswapd still worked when the recording began")
    if recorded.command_code:
        raise UsageError(f"the workload ended with exit code {recorded.command_code}")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
