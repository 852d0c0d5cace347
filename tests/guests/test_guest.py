"""Guests: what they need, how virtme-ng is called, when it is ended, and what is left to read."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import shlex
import shutil
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from pagealloc_model.base.errors import UsageError
from pagealloc_model.guests import guest as checks_module
from pagealloc_model.guests import guest as guest_module
from pagealloc_model.guests.experiment import experiment
from pagealloc_model.guests.guest import (
    Boot,
    RunFailedError,
    VirtmeGuests,
    folder_bytes,
    guest_checks,
    guest_words,
    kernel_options,
    kvm_serves,
    make_disk,
    shares_by_9p,
)
from pagealloc_model.guests.inside import ANSWER_FILE, Order
from pagealloc_model.guests.plan import Guest
from tests.guests.small_plan import write_plan

KERNEL_VARIABLE = "PAGEALLOC_GUEST_KERNEL"
TRIES = 600
Virtme = Callable[[str], VirtmeGuests]


def boot(tmp_path: Path, **guest: object) -> Boot:
    (tmp_path / "bzImage").write_bytes(b"no kernel")
    return Boot(
        image=tmp_path / "bzImage",
        guest=Guest(**{"kvm": "no"} | guest),  # type: ignore[arg-type]
        boot=("psi=1",),
        order=Order(workload="true"),
        disk=None,
        most_bytes=1 << 20,
    )


@pytest.fixture
def virtme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Virtme:
    """Guests whose virtme-ng is a shell script; it finds the run's folder in $folder."""

    def guests_of(body: str) -> VirtmeGuests:
        program = tmp_path / "vng"
        program.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/words\nfolder={tmp_path}/run\n{body}\n'
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(guest_module, "find_virtme", lambda: str(program))
        monkeypatch.setattr(shutil, "which", lambda name, **_: name)
        (tmp_path / "run").mkdir(exist_ok=True)
        return VirtmeGuests()

    return guests_of


def is_gone(pid: str) -> bool:
    """Whether a process has ended; a short wait, since a signal takes effect by and by."""
    time.sleep(0.1)
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def never() -> bool:
    return False


def test_what_virtme_is_asked_for(tmp_path: Path) -> None:
    whole = boot(tmp_path, cpus=8, memory="1G", nodes=("512M,cpus=0", "512M,cpus=1"), boot=("ro",))
    words = guest_words(whole, tmp_path / "a run")
    text = shlex.join(words)
    assert "--cpus 8 --memory 1G" in text
    assert "--numa 512M,cpus=0 --numa 512M,cpus=1 --append ro --append psi=1" in text
    assert words[words.index("--rwdir") + 1] == shlex.quote(str(tmp_path / "a run"))
    inside = shlex.split(words[-1])
    assert inside == [
        sys.executable,
        "-P",
        "-m",
        "pagealloc_model.guests.inside",
        str(tmp_path / "a run"),
    ]


def test_a_guest_that_answers_is_done(tmp_path: Path, virtme: Virtme) -> None:
    guests = virtme(f"""echo '{{"error": "", "seconds": 1.0}}' > $folder/{ANSWER_FILE}""")
    guests(boot(tmp_path), tmp_path / "run", never)
    assert json.loads((tmp_path / "run/order.json").read_text())["workload"] == "true"


@pytest.mark.parametrize("clock", ["host", "instructions"])
@pytest.mark.parametrize("kvm", ["yes", "no"])
def test_only_an_emulated_guest_counts_instructions(
    tmp_path: Path, virtme: Virtme, kvm: str, clock: str
) -> None:
    guests = virtme(f"""echo '{{"error": "", "seconds": 1.0}}' > $folder/{ANSWER_FILE}""")
    guests(boot(tmp_path, kvm=kvm, clock=clock), tmp_path / "run", never)
    words = (tmp_path / "words").read_text().splitlines()
    assert sys.executable in words[words.index("--exec") + 1]
    assert ("--disable-kvm" in words) == (kvm == "no")
    counted = [word for word in words if word.startswith("--qemu-opts=") and "-icount" in word]
    assert bool(counted) == (kvm == "no" and clock == "instructions")


@pytest.mark.parametrize(
    ("body", "options", "said", "console"),
    [
        (
            "echo noise; echo; echo last\n"
            """echo '{"error": "the workload ended with exit code 3", "seconds": 1}' """
            f"> $folder/{ANSWER_FILE}",
            {},
            "the workload ended with exit code 3",
            ["noise", "last"],
        ),
        (
            "for line in 1 2 3 4 5 6 7 8 9 panic; do echo $line; done",
            {},
            "the guest ended before it was done",
            ["3", "4", "5", "6", "7", "8", "9", "panic"],
        ),
        ("sleep 1000", {"timeout_s": 1.0}, r"took over 1 s; raise guest\.timeout_s", []),
        (
            "head -c 4000000 /dev/urandom > $folder/data; sleep 1000",
            {},
            r"took over 1 MiB; raise limits\.run",
            [],
        ),
    ],
)
def test_a_guest_that_fails_says_why_with_its_consoles_last_lines(
    tmp_path: Path,
    virtme: Virtme,
    body: str,
    options: dict[str, object],
    said: str,
    console: list[str],
) -> None:
    with pytest.raises(RunFailedError, match=said) as caught:
        virtme(body)(boot(tmp_path, **options), tmp_path / "run", never)
    assert caught.value.console.splitlines() == console


def test_an_interrupted_guest_is_ended_with_all_it_started(tmp_path: Path, virtme: Virtme) -> None:
    guests = virtme(f"sleep 1000 & echo $! > {tmp_path}/child; wait")
    child = tmp_path / "child"

    def begun() -> bool:
        return child.exists() and bool(child.read_text().strip())

    with pytest.raises(RunFailedError, match="interrupted"):
        guests(boot(tmp_path), tmp_path / "run", begun)
    assert any(is_gone(child.read_text().strip()) for _ in range(TRIES))


def test_kvm_that_hangs_does_not_serve(tmp_path: Path) -> None:
    device = tmp_path / "kvm"
    (tmp_path / "bzImage").write_bytes(b"no kernel")
    program = tmp_path / "vng"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    assert not kvm_serves(str(program), tmp_path / "bzImage", device, 0.2)
    device.touch()
    assert not kvm_serves(str(program), tmp_path / "bzImage", device, 0.2)
    program.write_text("#!/bin/sh\nexit 0\n")
    assert kvm_serves(str(program), tmp_path / "bzImage", device, 600)


def test_what_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_module, "find_virtme", lambda: None)
    with pytest.raises(UsageError, match=r"vng: no such command; pip install '\.\[guest\]'"):
        VirtmeGuests()
    monkeypatch.setattr(guest_module, "find_virtme", lambda: "/vng")
    monkeypatch.setattr(shutil, "which", lambda name, **_: None)
    with pytest.raises(UsageError, match=r"qemu-system-\S+: no such command; install it"):
        VirtmeGuests()


@pytest.mark.skipif(
    shutil.which("mkfs.ext4", path="/usr/sbin:/sbin") is None, reason="no mkfs.ext4"
)
def test_the_disk_takes_little_room(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    make_disk(image, 1 << 30)
    assert image.stat().st_size == 2 << 30
    assert image.stat().st_blocks * 512 < 256 << 20
    written = image.stat().st_mtime_ns
    make_disk(image, 1 << 30)
    assert image.stat().st_mtime_ns == written


def test_a_folder_is_sized_while_one_in_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recorder renames its folder when it is done."""
    (tmp_path / "kept").write_bytes(bytes(8192))
    (tmp_path / "going").mkdir()
    look = os.scandir

    def scandir(path: str) -> object:
        if str(path).endswith("going") and (tmp_path / "going").exists():
            (tmp_path / "going").rename(tmp_path / "gone")
        return look(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert folder_bytes(tmp_path) >= 8192
    assert (tmp_path / "gone").exists()


REAL = """
repeats = 1
[[kernel]]
image = "{image}"
[guest]
kvm = "no"
timeout_s = 1500
[workload]
name = "forks"
amount = 10
[[vary]]
setting = "vm.min_free_kbytes"
values = [2048, 4096]
"""


@pytest.mark.long
def test_a_real_guest_is_recorded(tmp_path: Path) -> None:
    image = os.environ.get(KERNEL_VARIABLE)
    if not image:
        pytest.skip(f"{KERNEL_VARIABLE} names no bzImage to boot")
    result = experiment(write_plan(tmp_path, REAL.format(image=image)), tmp_path / "out")
    assert result.runs["error"].tolist() == ["", ""]
    free = result.changes.query("metric == 'free pages' and mode == 'elastic'")
    assert free["before"].item() > 0


SERVES = "\n".join(
    f"CONFIG_{name}=y"
    for name in ("9P_FS", "TRACING", "PERF_EVENTS", "PROC_PAGE_MONITOR", "KPROBE_EVENTS")
)
Packed = Callable[[bytes], bytes]


def kernel(file: Path, config: str, pack: Packed = gzip.compress) -> Path:
    """A file that carries its configuration as a bzImage does."""
    carried = b"code IKCFG_ST" + gzip.compress(config.encode()) + b"IKCFG_ED code"
    file.write_bytes(b"boot \x1f\x8b\x08 code" + pack(carried) + b"the end")
    return file


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, zstandard.compress])
def test_a_kernel_tells_its_options(pack: Packed, tmp_path: Path) -> None:
    image = kernel(tmp_path / "bzImage", "CONFIG_A=y\nCONFIG_B=m\n# CONFIG_C is not set\n", pack)
    assert kernel_options(image, tmp_path) == {"A", "B"}


def test_options_are_read_beside_a_kernel_too(tmp_path: Path) -> None:
    (tmp_path / "vmlinuz-1").write_bytes(b"code")
    assert kernel_options(tmp_path / "vmlinuz-1", tmp_path) is None
    (tmp_path / "config-1").write_text("CONFIG_A=y\n")
    assert kernel_options(tmp_path / "vmlinuz-1", tmp_path) == {"A"}


def test_what_kernels_lack_is_told(tmp_path: Path) -> None:
    images = (
        kernel(tmp_path / "good", SERVES),
        kernel(tmp_path / "cloud", SERVES.replace("9P_FS", "NET")),
        kernel(tmp_path / "bare", SERVES.replace("KPROBE_EVENTS", "NET")),
        tmp_path / "none",
    )
    checks = {check.name: check for check in guest_checks(images, tmp_path)}
    assert checks["kernel good"].found == "serves as a guest"
    assert checks["kernel cloud"].found == "neither 9p nor virtiofs"
    assert "CONFIG_9P_FS or CONFIG_VIRTIO_FS" in checks["kernel cloud"].todo
    assert checks["kernel bare"].found == "without CONFIG_KPROBE_EVENTS"
    assert checks["kernel none"].found == "cannot be read"


def test_files_come_over_9p_unless_there_is_virtiofs_alone(tmp_path: Path) -> None:
    (tmp_path / "unknown").write_bytes(b"code")
    assert shares_by_9p(tmp_path / "unknown")
    assert shares_by_9p(kernel(tmp_path / "both", f"{SERVES}\nCONFIG_VIRTIO_FS=y"))
    assert not shares_by_9p(kernel(tmp_path / "one", "CONFIG_VIRTIO_FS=m\n"))
    with pytest.raises(UsageError, match="has neither 9p nor virtiofs, so it cannot be a guest"):
        shares_by_9p(kernel(tmp_path / "none", "CONFIG_NET=y\n"))


def test_what_programs_are_missing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks_module, "find_virtme", lambda: None)
    monkeypatch.setattr(checks_module.shutil, "which", lambda name, **_: None)
    checks = {check.name: check for check in guest_checks((), tmp_path)}
    assert checks["virtme-ng"].todo == "pip install '.[guest]' in the checkout"
    assert checks["busybox"].todo == "install busybox (Debian: busybox-static)"
    assert checks["guest kernel"].cost == "an experiment has to name one"
    assert all(check.cost and not check.blocks for check in checks.values() if check.name != "KVM")
