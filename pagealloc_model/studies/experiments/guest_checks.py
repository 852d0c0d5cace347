"""What this machine has for guests, and what each lack costs."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

from pagealloc_model.recording.record.doctor import Check
from pagealloc_model.studies.experiments.guest import KVM, find_virtme
from pagealloc_model.studies.experiments.kernel_config import SHARES, kernel_options
from pagealloc_model.studies.experiments.workloads import COMPILER

NO_GUESTS = "pagealloc experiment cannot boot guests"
RECORDS = ("TRACING", "PERF_EVENTS", "PROC_PAGE_MONITOR", "KPROBE_EVENTS")
"""Those that a recording needs, or is worse without."""

_SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"


def guest_checks(images: tuple[Path, ...] = (), boot: Path = Path("/boot")) -> list[Check]:
    """One check for each thing that guests need.

    Args:
        images: kernels to look into; () for those that are installed.
        boot: where those are.
    """
    return [*_programs(), _kvm(), *_kernels(images or tuple(sorted(boot.glob("vmlinuz-*"))), boot)]


def _programs() -> Iterator[Check]:
    virtme = find_virtme()
    lacks = {"todo": "pip install '.[guest]' in the checkout", "cost": NO_GUESTS}
    yield Check(name="virtme-ng", found=virtme or "not installed", **({} if virtme else lacks))
    modules = "kernels with modules, such as a distribution's, cannot be booted"
    for name, command, cost, package in (
        ("qemu", f"qemu-system-{platform.machine()}", NO_GUESTS, "qemu-system-x86"),
        ("kmod", "kmod", modules, "kmod"),
        ("busybox", "busybox", modules, "busybox-static"),
        ("mkfs.ext4", "mkfs.ext4", "guests have no scratch disk", "e2fsprogs"),
        ("C compiler", COMPILER, "the workloads that come with the project cannot run", "gcc"),
    ):
        path = shutil.which(command, path=f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}")
        if path:
            yield Check(name=name, found=path)
        else:
            todo = f"install {command} (Debian: {package})"
            yield Check(name=name, found="not installed", cost=cost, todo=todo)


def _kvm() -> Check:
    if os.access(KVM, os.R_OK | os.W_OK):
        return Check(name="KVM", found=f"{KVM}; the first guest shows whether it serves")
    return Check(
        name="KVM",
        found=f"{KVM} cannot be opened",
        cost="guests are emulated, ten times slower and more",
        todo="use a machine with virtualization, or one that passes it on",
    )


def _kernels(images: tuple[Path, ...], boot: Path) -> Iterator[Check]:
    if not images:
        yield Check(
            name="guest kernel",
            found=f"none in {boot}",
            cost="an experiment has to name one",
            todo="give doctor one with --kernel, to see whether it serves",
        )
    for image in images:
        yield _kernel(image, boot)


def _kernel(image: Path, boot: Path) -> Check:
    name = f"kernel {image.name}"
    if not os.access(image, os.R_OK):
        todo = "name a bzImage that this user can read"
        return Check(name=name, found="cannot be read", cost="it cannot be booted", todo=todo)
    options = kernel_options(image, boot)
    if options is None:
        todo = "boot it once; build with CONFIG_IKCONFIG to see more here"
        return Check(name=name, found="its configuration is not known", cost="none", todo=todo)
    if not any(each in options for each in SHARES):
        return Check(
            name=name,
            found="neither 9p nor virtiofs",
            cost="it cannot see the host's files, so it cannot be a guest",
            todo=f"build one with {' or '.join(f'CONFIG_{each}' for each in SHARES)}",
        )
    lacking = [f"CONFIG_{each}" for each in RECORDS if each not in options]
    if lacking:
        todo = "build one with them"
        cost = "recordings of it show less, or cannot be made"
        return Check(name=name, found=f"without {', '.join(lacking)}", cost=cost, todo=todo)
    return Check(name=name, found="serves as a guest")
