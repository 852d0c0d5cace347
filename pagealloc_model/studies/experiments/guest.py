"""Boots a guest with virtme-ng, which runs `inside` there, and ends it when it takes too much."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from pagealloc_model.base.errors import UsageError
from pagealloc_model.studies.experiments.inside import Order
from pagealloc_model.studies.experiments.kernel_config import shares_by_9p
from pagealloc_model.studies.experiments.plan import Guest
from pagealloc_model.studies.experiments.watched import (
    Bounds,
    Call,
    Cancel,
    end,
    make_recording,
    started,
)

VIRTME = "vng"
DISK_DEVICE_FILE = "big"
KVM = Path("/dev/kvm")
_KVM_TRIAL_S = 30.0


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


Runner = Callable[[Boot, Path, Cancel], None]
"""Makes a run: leaves the recording in a folder, or raises `RunFailedError`."""


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
            (VIRTME, self._virtme, "pip install '.[guest]' in the checkout brings virtme-ng"),
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
        bounds = Bounds(
            what="the guest",
            key="guest.timeout_s",
            limit_s=boot.guest.timeout_s,
            most_bytes=boot.most_bytes,
        )
        make_recording(_virtme_call(words), folder, bounds, cancel)

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
    process = started(_virtme_call([*words, "--exec", "true"]), subprocess.DEVNULL)
    try:
        return process.wait(limit_s) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        end(process)


def _virtme_call(words: list[str]) -> Call:
    """A call of virtme-ng, which calls its other programs by name."""
    beside = Path(words[0]).parent
    path = f"{beside}:{os.environ.get('PATH', os.defpath)}"
    return Call(words=words, environment={"PATH": path})


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
