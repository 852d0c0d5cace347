"""Boots a guest with virtme-ng, which runs `inside` there, and ends it when it takes too much."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import lzma
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

import zstandard

from pagealloc_model.base.errors import PageallocError, UsageError
from pagealloc_model.guests.inside import STATES, Order, answer_of
from pagealloc_model.guests.plan import INSTRUCTIONS, Guest
from pagealloc_model.guests.stopped import answer_requests, qemu_words
from pagealloc_model.guests.workloads import COMPILER
from pagealloc_model.recording.record.children import clean_environment, python_words
from pagealloc_model.recording.record.doctor import Check

NINE_P, VIRTIO_FS = SHARES = ("9P_FS", "VIRTIO_FS")
"""Options of a kernel that can have the host's files as its root: one of them is needed."""
RECORDS = ("TRACING", "PERF_EVENTS", "PROC_PAGE_MONITOR", "KPROBE_EVENTS")
"""Those that a recording needs, or is worse without."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CONSOLE = "console"
CONSOLE_LINES = 8
VIRTME = "vng"
DISK_DEVICE_FILE = "big"
KVM = Path("/dev/kvm")
NO_GUESTS = "pagealloc experiment cannot boot guests"
COUNTED = "-accel tcg,thread=single -icount shift=3 -cpu max,-erms,-fsrm"
"""Arguments of qemu for time counted in instructions, 2^3 ns each. Without erms and fsrm the kernel
copies in loops and not in one instruction. Only an idle guest waits for the host's time, so that a
disk takes no longer than it does."""
_EITHER_SHARE = " or ".join(f"CONFIG_{option}" for option in SHARES)
_KVM_TRIAL_S = 30.0
_LOOK_S = 0.5

Cancel = Callable[[], bool]
"""Asked now and then; True ends a run."""


def shares_by_9p(image: Path) -> bool:
    """Tell whether the host's files are to come over 9p; if not, over virtiofs."""
    options = kernel_options(image)
    if options is None or NINE_P in options:
        return True
    if VIRTIO_FS in options:
        return False
    raise UsageError(
        f"{image}: has neither 9p nor virtiofs, so it cannot be a guest; "
        f"build it with {_EITHER_SHARE}"
    )


def kernel_options(image: Path, boot: Path = Path("/boot")) -> set[str] | None:
    """Options that a kernel was built with, as y or m; None where nothing tells."""
    beside = [folder / image.name.replace("vmlinuz", "config") for folder in (image.parent, boot)]
    texts = (file.read_text() for file in beside if file != image and file.is_file())
    text = next(itertools.chain(texts, _configurations_inside(image)), None)
    return None if text is None else set(re.findall(r"^CONFIG_(\w+)=[ym]$", text, re.MULTILINE))


def _configurations_inside(image: Path) -> Iterator[str]:
    """The configuration inside a kernel, whichever way it is compressed."""
    packed: tuple[tuple[Callable[[], Any], bytes], ...] = (
        (lambda: zlib.decompressobj(31), b"\x1f\x8b\x08"),
        (lzma.LZMADecompressor, b"\xfd7zXZ\x00"),
        (zstandard.ZstdDecompressor().decompressobj, b"\x28\xb5\x2f\xfd"),
    )
    content = image.read_bytes()
    for decompressor, magic in packed:
        for match in re.finditer(re.escape(magic), content):
            try:
                unpacked = decompressor().decompress(content[match.start() :])
            except (zlib.error, lzma.LZMAError, EOFError, zstandard.ZstdError):
                continue
            start = unpacked.find(b"IKCFG_ST")
            if start >= 0:
                end = unpacked.find(b"IKCFG_ED", start)
                yield gzip.decompress(unpacked[start + len("IKCFG_ST") : end]).decode()


class RunFailedError(PageallocError):
    """A run left no recording that can be used."""

    def __init__(self, why: str, console: str = "") -> None:
        super().__init__(why)
        self.console = console


@dataclass(frozen=True, kw_only=True)
class Call:
    """A program to call, `what` it is in words, and its limits, set by `key` of the plan.

    `attend` is called now and then while it runs.
    """

    words: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    what: str = ""
    key: str = ""
    limit_s: float = 0.0
    most_bytes: int = 0
    grace_s: float = 0.0
    attend: Callable[[], None] = lambda: None

    @contextlib.contextmanager
    def running(self, output: Any) -> Iterator[subprocess.Popen[bytes]]:
        """The process; in the end it is ended with all that it started, after a request to end."""
        process = subprocess.Popen(
            self.words,
            env={**clean_environment(), **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if self.grace_s and process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(self.grace_s)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def make_recording(call: Call, folder: Path, cancel: Cancel) -> None:
    """Call a program that leaves a recording and an answer in a run's folder."""
    give_up, ended = time.monotonic() + call.limit_s, ""
    with (folder / CONSOLE).open("wb") as console, call.running(console) as process:
        while process.poll() is None and not ended:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_S)
                break
            call.attend()
            if cancel():
                ended = "interrupted"
            elif time.monotonic() > give_up:
                took = f"{call.what} took over {call.limit_s:g} s"
                ended = f"{took}; raise {call.key}, or ask less"
            elif folder_bytes(folder) > call.most_bytes:
                most = f"{call.most_bytes >> 20} MiB"
                ended = f"the run took over {most}; raise limits.run, or ask less"
    answer = answer_of(folder)
    if answer == "":
        return
    text = (folder / CONSOLE).read_text(encoding="utf-8", errors="replace")
    last = [line for line in text.splitlines() if line.strip()][-CONSOLE_LINES:]
    why = ended or answer or f"{call.what} ended before it was done"
    raise RunFailedError(why, "\n".join(last))


def folder_bytes(folder: Path) -> int:
    """Bytes on disk of a folder's files; those that go away meanwhile are left out."""
    total = 0
    for inside, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(inside) / name).lstat().st_blocks * 512
    return total


@dataclass(frozen=True, kw_only=True)
class Boot:
    """One run to make; on this machine itself it is the order alone."""

    order: Order
    image: Path = Path()
    guest: Guest = field(default_factory=Guest)
    boot: tuple[str, ...] = ()
    disk: Path | None = None
    most_bytes: int = 0


Runner = Callable[[Boot, Path, Cancel], None]
"""Makes a run: leaves the recording in a folder, or raises `RunFailedError`."""


def find_virtme() -> str | None:
    """Path of virtme-ng: beside this Python, or in the path."""
    beside = Path(sys.executable).parent / VIRTME
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(VIRTME)


class VirtmeGuests:
    """Runs guests; knows after a first trial whether KVM serves."""

    def __init__(self) -> None:
        self._virtme = find_virtme() or ""
        qemu = f"qemu-system-{platform.machine()}"
        for command, place, todo in (
            (VIRTME, self._virtme, "pip install '.[guest]' in the checkout brings virtme-ng"),
            (qemu, shutil.which(qemu), "install it (Debian: qemu-system-x86)"),
        ):
            if not place:
                more = "pagealloc doctor says what else is missing"
                raise UsageError(f"{command}: no such command; {todo}; {more}")
        self._kvm: bool | None = None
        self._trial = Lock()

    def __call__(self, boot: Boot, folder: Path, cancel: Cancel) -> None:
        """Make a run in a folder that is there and empty; the guest may write into it."""
        boot.order.write(folder)
        words = [self._virtme, *guest_words(boot, folder)]
        with self._trial:
            if self._kvm is None:
                wanted = boot.guest.kvm
                self._kvm = wanted == "yes" or (
                    wanted == "auto" and kvm_serves(self._virtme, boot.image)
                )
        options = [] if self._kvm or boot.guest.clock != INSTRUCTIONS else [COUNTED]
        if not self._kvm:
            words.append("--disable-kvm")
        # a socket's path is short, and a run's folder may lie deep
        with TemporaryDirectory(prefix="pagealloc-guest-") as name:
            sockets = Path(name)
            options.append(shlex.join(qemu_words(sockets)))
            words += [f"--qemu-opts={option}" for option in options]
            call = Call(
                words=words,
                environment=_virtme_environment(self._virtme),
                what="the guest",
                key="guest.timeout_s",
                limit_s=boot.guest.timeout_s,
                most_bytes=boot.most_bytes,
                attend=lambda: answer_requests(folder / STATES, sockets),
            )
            (folder / STATES).mkdir()
            make_recording(call, folder, cancel)


def guest_words(boot: Boot, folder: Path) -> list[str]:
    """Arguments of virtme-ng for a run whose guest may write into a folder; none on KVM.

    virtme-ng puts most of them into a line for the shell as they are, so they come quoted.
    """
    guest = boot.guest
    for path in (boot.image, folder, boot.disk or folder):
        if not str(path).isprintable() or set(str(path)) & set("=,"):
            raise UsageError(
                f"{str(path)!r}: qemu takes no path with '=', ',' or characters that are not "
                "printed; name another directory"
            )
    words = ["--run", quote(str(boot.image)), *_machine_words(boot.image), "--verbose"]
    words += ["--cpus", str(guest.cpus), "--memory", quote(guest.memory)]
    words += ["--rwdir", quote(str(folder))]
    for node in guest.nodes:
        words += ["--numa", quote(node)]
    for parameter in (*guest.boot, *boot.boot):
        words += ["--append", parameter]
    if boot.disk is not None:
        drive = f"file={boot.disk},if=virtio,format=raw,snapshot=on"
        words.append(f"--qemu-opts=-drive {quote(drive)}")
    inside = "pagealloc_model.guests.inside"
    return [*words, "--exec", shlex.join(python_words(inside, str(folder)))]


def _machine_words(image: Path) -> list[str]:
    """Words for all guests of a kernel; the scratch disk is on PCI, which microvms do not have."""
    words = ["--user", "root", "--disable-microvm"]
    return [*words, "--force-9p"] if shares_by_9p(image) else words


def kvm_serves(virtme: str, image: Path, device: Path = KVM, limit_s: float = _KVM_TRIAL_S) -> bool:
    """Tell whether a guest of a kernel boots with KVM within a time: it may open and yet hang."""
    if not os.access(device, os.R_OK | os.W_OK):
        return False
    words = [virtme, "--run", quote(str(image)), *_machine_words(image), "--memory", "256M"]
    call = Call(words=[*words, "--exec", "true"], environment=_virtme_environment(virtme))
    with call.running(subprocess.DEVNULL) as process:
        try:
            return process.wait(limit_s) == 0
        except subprocess.TimeoutExpired:
            return False


def _virtme_environment(virtme: str) -> dict[str, str]:
    """virtme-ng calls its other programs by name."""
    return {"PATH": f"{Path(virtme).parent}:{os.environ.get('PATH', os.defpath)}"}


def make_disk(image: Path, size: int) -> None:
    """A file-system image with a file "big" that takes no room; kept if it is there."""
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


def guest_checks(images: tuple[Path, ...] = (), boot: Path = Path("/boot")) -> list[Check]:
    """One check for each thing that guests need."""
    checks: list[Check] = []

    def check(name: str, state: str, cost: str = "", todo: str = "") -> None:
        checks.append(Check(name=name, found=state, cost=cost, todo=todo))

    virtme = find_virtme()
    if virtme:
        check("virtme-ng", virtme)
    else:
        check("virtme-ng", "not installed", NO_GUESTS, "pip install '.[guest]' in the checkout")
    modules = "kernels with modules, such as a distribution's, cannot be booted"
    places = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
    for name, command, cost, package in (
        ("qemu", f"qemu-system-{platform.machine()}", NO_GUESTS, "qemu-system-x86"),
        ("kmod", "kmod", modules, "kmod"),
        ("busybox", "busybox", modules, "busybox-static"),
        ("mkfs.ext4", "mkfs.ext4", "guests have no scratch disk", "e2fsprogs"),
        ("C compiler", COMPILER, "the workloads that come with the project cannot run", "gcc"),
    ):
        path = shutil.which(command, path=places)
        lacks = ("not installed", cost, f"install {command} (Debian: {package})")
        check(name, *((path,) if path else lacks))
    if os.access(KVM, os.R_OK | os.W_OK):
        check("KVM", f"{KVM}; the first guest shows whether it serves")
    else:
        cost = "guests are emulated, ten times slower and more"
        todo = "use a machine with virtualization, or one that passes it on"
        check("KVM", f"{KVM} cannot be opened", cost, todo)
    images = images or tuple(sorted(boot.glob("vmlinuz-*")))
    if not images:
        todo = "give doctor one with --kernel, to see whether it serves"
        check("guest kernel", f"none in {boot}", "an experiment has to name one", todo)
    for image in images:
        name = f"kernel {image.name}"
        if not os.access(image, os.R_OK):
            todo = "name a bzImage that this user can read"
            check(name, "cannot be read", "it cannot be booted", todo)
            continue
        options = kernel_options(image, boot)
        lacking = [f"CONFIG_{option}" for option in RECORDS if option not in (options or ())]
        if options is None:
            todo = "boot it once; build with CONFIG_IKCONFIG to see more here"
            check(name, "its configuration is not known", "none", todo)
        elif not options & set(SHARES):
            cost = "it cannot see the host's files, so it cannot be a guest"
            check(name, "neither 9p nor virtiofs", cost, f"build one with {_EITHER_SHARE}")
        elif lacking:
            cost = "recordings of it show less, or cannot be made"
            check(name, f"without {', '.join(lacking)}", cost, "build one with them")
        else:
            check(name, "serves as a guest")
    return checks
