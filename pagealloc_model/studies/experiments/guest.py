"""Boots a guest with virtme-ng, which runs `inside` there, and ends it when it takes too much."""

from __future__ import annotations

import contextlib
import gzip
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
from threading import Lock

from pagealloc_model.base.errors import PageallocError, UsageError
from pagealloc_model.recording.record.children import clean_environment, python_words
from pagealloc_model.recording.record.doctor import Check
from pagealloc_model.studies.experiments.inside import Order, answer_of
from pagealloc_model.studies.experiments.plan import Guest
from pagealloc_model.studies.experiments.workloads import COMPILER

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
_EITHER_SHARE = " or ".join(f"CONFIG_{option}" for option in SHARES)
_CONFIG_BEGINS, _CONFIG_ENDS = b"IKCFG_ST", b"IKCFG_ED"
_KVM_TRIAL_S = 30.0
_LOOK_S = 0.5

Cancel = Callable[[], bool]
"""Asked now and then; True ends a run."""


def shares_by_9p(image: Path) -> bool:
    """Whether the host's files are to come over 9p; if not, over virtiofs."""
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
    text = next((file.read_text() for file in beside if file != image and file.is_file()), None)
    text = text if text is not None else _configuration_inside(image.read_bytes())
    return None if text is None else set(re.findall(r"^CONFIG_(\w+)=[ym]$", text, re.MULTILINE))


def _configuration_inside(content: bytes) -> str | None:
    """The configuration inside a kernel, whichever way it is compressed."""
    for unpack, magic in _PACKED:
        for match in re.finditer(re.escape(magic), content):
            try:
                unpacked = unpack(content[match.start() :])
            except (zlib.error, lzma.LZMAError, ValueError, EOFError):
                continue
            start = unpacked.find(_CONFIG_BEGINS)
            if start >= 0:
                end = unpacked.find(_CONFIG_ENDS, start)
                return gzip.decompress(unpacked[start + len(_CONFIG_BEGINS) : end]).decode()
    return None


def _zstd(content: bytes) -> bytes:
    import zstandard

    try:
        return zstandard.ZstdDecompressor().decompressobj().decompress(content)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None


_PACKED: tuple[tuple[Callable[[bytes], bytes], bytes], ...] = (
    (lambda content: zlib.decompressobj(31).decompress(content), b"\x1f\x8b\x08"),
    (lambda content: lzma.LZMADecompressor().decompress(content), b"\xfd7zXZ\x00"),
    (_zstd, b"\x28\xb5\x2f\xfd"),
)
"""Ways to unpack a kernel, and the bytes that one packed so begins with."""


class RunFailedError(PageallocError):
    """A run left no recording that can be used."""

    def __init__(self, why: str, console: str = "") -> None:
        super().__init__(why)
        self.console = console


@dataclass(frozen=True, kw_only=True)
class Call:
    """A program to call, and what it may take.

    Attributes:
        words: of its command line.
        environment: variables that it has beside this process's.
        what: takes it, in words: "the guest".
        key: of the plan that sets the time: "guest.timeout_s".
        limit_s: the longest that it may take.
        most_bytes: that its folder may hold.
        grace_s: between a request to end and the end.
    """

    words: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    what: str = ""
    key: str = ""
    limit_s: float = 0.0
    most_bytes: int = 0
    grace_s: float = 0.0


def make_recording(call: Call, folder: Path, cancel: Cancel) -> None:
    """Call a program that leaves a recording and an answer in a run's folder."""
    ended = _watched(call, folder, cancel)
    answer = answer_of(folder)
    if answer == "":
        return
    text = (folder / CONSOLE).read_text(encoding="utf-8", errors="replace")
    last = [line for line in text.splitlines() if line.strip()][-CONSOLE_LINES:]
    why = ended or answer or f"{call.what} ended before it was done"
    raise RunFailedError(why, "\n".join(last))


def _watched(call: Call, folder: Path, cancel: Cancel) -> str:
    """Let a program run to its end; why it was ended before, "" if it was not."""
    give_up = time.monotonic() + call.limit_s
    with (folder / CONSOLE).open("wb") as console:
        process = started(call, console)
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_S)
                    return ""
                if cancel():
                    return "interrupted"
                if time.monotonic() > give_up:
                    took = f"{call.what} took over {call.limit_s:g} s"
                    return f"{took}; raise {call.key}, or ask less"
                if folder_bytes(folder) > call.most_bytes:
                    most = f"{call.most_bytes >> 20} MiB"
                    return f"the run took over {most}; raise limits.run, or ask less"
        finally:
            end(process, call.grace_s)


def started(call: Call, output: object) -> subprocess.Popen[bytes]:
    """A process in a group of its own, so that all that it starts can be ended with it."""
    return subprocess.Popen(
        call.words,
        env={**clean_environment(), **call.environment},
        stdin=subprocess.DEVNULL,
        stdout=output,  # type: ignore[arg-type]
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def end(process: subprocess.Popen[bytes], grace_s: float = 0.0) -> None:
    """End a process and all that it started, some time after it was asked to end by itself."""
    if grace_s and process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


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
    """One run to make."""

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
        if not self._kvm:
            words.append("--disable-kvm")
        call = Call(
            words=words,
            environment=_virtme_environment(self._virtme),
            what="the guest",
            key="guest.timeout_s",
            limit_s=boot.guest.timeout_s,
            most_bytes=boot.most_bytes,
        )
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
    inside = "pagealloc_model.studies.experiments.inside"
    return [*words, "--exec", shlex.join(python_words(inside, str(folder)))]


def _machine_words(image: Path) -> list[str]:
    """Words for all guests of a kernel; the scratch disk is on PCI, which microvms do not have."""
    words = ["--user", "root", "--disable-microvm"]
    return [*words, "--force-9p"] if shares_by_9p(image) else words


def kvm_serves(virtme: str, image: Path, device: Path = KVM, limit_s: float = _KVM_TRIAL_S) -> bool:
    """Whether a guest of a kernel boots with KVM within a time: it may open and yet hang."""
    if not os.access(device, os.R_OK | os.W_OK):
        return False
    words = [virtme, "--run", quote(str(image)), *_machine_words(image), "--memory", "256M"]
    call = Call(words=[*words, "--exec", "true"], environment=_virtme_environment(virtme))
    process = started(call, subprocess.DEVNULL)
    try:
        return process.wait(limit_s) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        end(process)


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
    checks = list(_programs())
    if os.access(KVM, os.R_OK | os.W_OK):
        checks.append(Check(name="KVM", found=f"{KVM}; the first guest shows whether it serves"))
    else:
        checks.append(
            Check(
                name="KVM",
                found=f"{KVM} cannot be opened",
                cost="guests are emulated, ten times slower and more",
                todo="use a machine with virtualization, or one that passes it on",
            )
        )
    images = images or tuple(sorted(boot.glob("vmlinuz-*")))
    if not images:
        checks.append(
            Check(
                name="guest kernel",
                found=f"none in {boot}",
                cost="an experiment has to name one",
                todo="give doctor one with --kernel, to see whether it serves",
            )
        )
    return checks + [_kernel_check(image, boot) for image in images]


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
        path = shutil.which(
            command, path=f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
        )
        if path:
            yield Check(name=name, found=path)
        else:
            todo = f"install {command} (Debian: {package})"
            yield Check(name=name, found="not installed", cost=cost, todo=todo)


def _kernel_check(image: Path, boot: Path) -> Check:
    def check(found: str, cost: str = "", todo: str = "") -> Check:
        return Check(name=f"kernel {image.name}", found=found, cost=cost, todo=todo)

    if not os.access(image, os.R_OK):
        todo = "name a bzImage that this user can read"
        return check("cannot be read", "it cannot be booted", todo)
    options = kernel_options(image, boot)
    if options is None:
        todo = "boot it once; build with CONFIG_IKCONFIG to see more here"
        return check("its configuration is not known", "none", todo)
    if not options & set(SHARES):
        cost = "it cannot see the host's files, so it cannot be a guest"
        return check("neither 9p nor virtiofs", cost, f"build one with {_EITHER_SHARE}")
    lacking = [f"CONFIG_{option}" for option in RECORDS if option not in options]
    if lacking:
        cost = "recordings of it show less, or cannot be made"
        return check(f"without {', '.join(lacking)}", cost, "build one with them")
    return check("serves as a guest")
