"""Boots a guest with virtme-ng, which runs `inside` there, and ends it when it takes too much."""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from pagealloc_model.base.errors import PageallocError, UsageError
from pagealloc_model.studies.experiments.inside import Answer, Order
from pagealloc_model.studies.experiments.kernel_config import shares_by_9p
from pagealloc_model.studies.experiments.plan import Guest

VIRTME = "vng"
CONSOLE = "console"
CONSOLE_LINES = 8
DISK_DEVICE_FILE = "big"
KVM = Path("/dev/kvm")
_KVM_TRIAL_S = 30.0
_LOOK_S = 0.5


@dataclass(frozen=True, kw_only=True)
class Boot:
    """One run to make.

    Attributes:
        image: the kernel.
        guest: the machine.
        boot: boot parameters of this run beside the guest's own.
        order: what to do inside.
        disk: image of the scratch disk, None for none; it is not changed.
        most_bytes: that the run's folder may hold.
    """

    image: Path
    guest: Guest
    boot: tuple[str, ...]
    order: Order
    disk: Path | None
    most_bytes: int


Cancel = Callable[[], bool]
"""Asked now and then; True ends a run."""

Runner = Callable[[Boot, Path, Cancel], None]
"""Makes a run: leaves the recording in a folder, or raises `RunFailedError`."""


class RunFailedError(PageallocError):
    """A run left no recording that can be used.

    Args:
        why: one line.
        console: the last lines of the guest's console.
    """

    def __init__(self, why: str, console: str = "") -> None:
        super().__init__(why)
        self.console = console


def find_virtme() -> str | None:
    """Path of virtme-ng: beside this Python, or in the path."""
    beside = Path(sys.executable).parent / VIRTME
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(VIRTME)


class VirtmeGuests:
    """Runs guests; knows after a first trial whether KVM serves.

    Raises:
        UsageError: virtme-ng or qemu is missing.
    """

    def __init__(self) -> None:
        self._virtme = find_virtme() or ""
        qemu = f"qemu-system-{platform.machine()}"
        for command, found, todo in (
            (VIRTME, self._virtme, "pip install 'pagealloc_model[guest]' brings virtme-ng"),
            (qemu, shutil.which(qemu), "install it (Debian: qemu-system-x86)"),
        ):
            if not found:
                more = "pagealloc doctor says what else is missing"
                raise UsageError(f"{command}: no such command; {todo}; {more}")
        self._kvm: bool | None = None
        self._trial = Lock()

    def __call__(self, boot: Boot, folder: Path, cancel: Cancel) -> None:
        """Make a run.

        Args:
            boot: what to run.
            folder: is there and empty; the guest may write into it.
            cancel: ends the guest.

        Raises:
            RunFailedError: no recording that can be used, and why.
        """
        boot.order.write(folder)
        words = [self._virtme, *guest_words(boot, folder)]
        if not self._with_kvm(boot):
            words.append("--disable-kvm")
        ended = _watched(words, folder, boot, cancel)
        answer = Answer.read(folder)
        if answer is None:
            raise RunFailedError(ended or "the guest ended before it was done", console_end(folder))
        if answer.error:
            raise RunFailedError(answer.error, console_end(folder))

    def _with_kvm(self, boot: Boot) -> bool:
        with self._trial:
            if self._kvm is None:
                self._kvm = boot.guest.kvm == "yes" or (
                    boot.guest.kvm == "auto" and kvm_serves(self._virtme, boot.image)
                )
        return self._kvm


def guest_words(boot: Boot, folder: Path) -> list[str]:
    """Arguments of virtme-ng for a run; KVM's are not among them.

    Args:
        boot: what to run.
        folder: that the guest may write into.
    """
    guest = boot.guest
    words = ["--run", str(boot.image), *_machine_words(boot.image), "--verbose"]
    words += ["--cpus", str(guest.cpus), "--memory", guest.memory, "--rwdir", str(folder)]
    for node in guest.nodes:
        words += ["--numa", node]
    for each in (*guest.boot, *boot.boot):
        words += ["--append", each]
    if boot.disk is not None:
        words.append(f"--qemu-opts=-drive file={boot.disk},if=virtio,format=raw,snapshot=on")
    inside = "pagealloc_model.studies.experiments.inside"
    return [*words, "--exec", shlex.join([sys.executable, "-m", inside, str(folder)])]


def _machine_words(image: Path) -> list[str]:
    """What all guests of a kernel have; the scratch disk is on PCI, which microvms do not have."""
    words = ["--user", "root", "--disable-microvm"]
    return [*words, "--force-9p"] if shares_by_9p(image) else words


def kvm_serves(virtme: str, image: Path, device: Path = KVM, limit_s: float = _KVM_TRIAL_S) -> bool:
    """Whether a guest boots with KVM within a short time: it may open and yet hang.

    Args:
        virtme: path of virtme-ng.
        image: a kernel.
        device: KVM's.
        limit_s: to wait for the guest.
    """
    if not os.access(device, os.R_OK | os.W_OK):
        return False
    words = [virtme, "--run", str(image), *_machine_words(image), "--memory", "256M"]
    process = _started([*words, "--exec", "true"], subprocess.DEVNULL)
    try:
        return process.wait(limit_s) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        _end(process)


def _started(words: list[str], output: object) -> subprocess.Popen[bytes]:
    """A process in a group of its own, so that all that it starts can be ended with it."""
    beside = Path(words[0]).parent  # virtme-ng calls its other programs by name
    return subprocess.Popen(
        words,
        env={**os.environ, "PATH": f"{beside}:{os.environ.get('PATH', os.defpath)}"},
        stdin=subprocess.DEVNULL,
        stdout=output,  # type: ignore[arg-type]
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _watched(words: list[str], folder: Path, boot: Boot, cancel: Cancel) -> str:
    """Run a guest to its end; why it was ended before, "" if it was not."""
    limit_s, most_bytes = boot.guest.timeout_s, boot.most_bytes
    give_up = time.monotonic() + limit_s
    with (folder / CONSOLE).open("wb") as console:
        process = _started(words, console)
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_S)
                    return ""
                if cancel():
                    return "interrupted"
                if time.monotonic() > give_up:
                    return f"the guest took over {limit_s:g} s; raise guest.timeout_s, or ask less"
                if folder_bytes(folder) > most_bytes:
                    return (
                        f"the run took over {most_bytes >> 20} MiB; raise limits.run, or ask less"
                    )
        finally:
            _end(process)


def folder_bytes(folder: Path) -> int:
    """What the files of a folder take."""
    total = 0
    for file in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += file.lstat().st_blocks * 512
    return total


def console_end(folder: Path) -> str:
    """The last lines of a run's console."""
    try:
        text = (folder / CONSOLE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join([line for line in text.splitlines() if line.strip()][-CONSOLE_LINES:])


def make_disk(image: Path, size: int) -> None:
    """A file-system image with a file "big" that takes no room; kept if it is there.

    Args:
        image: file to make.
        size: of "big", in bytes.

    Raises:
        UsageError: mkfs.ext4 is missing or fails.
    """
    if image.exists():
        return
    maker = shutil.which("mkfs.ext4", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if maker is None:
        raise UsageError("mkfs.ext4: no such command; install e2fsprogs, or write guest.disk = 0")
    content, partial = image.with_suffix(".files"), image.with_suffix(".partial")
    shutil.rmtree(content, ignore_errors=True)
    content.mkdir(parents=True)
    for file, length in ((content / DISK_DEVICE_FILE, size), (partial, size + (1 << 30))):
        with file.open("wb") as sparse:
            sparse.truncate(length)
    words = [maker, "-q", "-F", "-d", str(content), str(partial)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    shutil.rmtree(content)
    if done.returncode:
        partial.unlink()
        raise UsageError(f"{image}: mkfs.ext4 failed: {' '.join(done.stderr.split())[:200]}")
    partial.rename(image)
