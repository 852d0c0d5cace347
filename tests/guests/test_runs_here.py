"""Runs on this machine itself: settings come back whatever happens, and memory is held down."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from pagealloc_model.base.errors import PageallocError, UsageError
from pagealloc_model.guests import runs as here_module
from pagealloc_model.guests.experiment import experiment
from pagealloc_model.guests.guest import Boot, Call, RunFailedError, Runner
from pagealloc_model.guests.inside import Order
from pagealloc_model.guests.plan import Here, PlanError, changed_plan, read_plan
from pagealloc_model.guests.runs import (
    BIG,
    FOUND_FILE,
    HOLDER,
    FoundSettings,
    held_memory,
    here_check,
    require_disk,
    runs_here,
)
from pagealloc_model.guests.workloads import build_programs
from pagealloc_model.recording.record.doctor import require_recordable
from pagealloc_model.recording.record.host import Host
from tests.guests.small_plan import write_plan
from tests.recording.record.machines import make_machine, make_perf

MIN_FREE, THP = "vm.min_free_kbytes", "/sys/kernel/mm/transparent_hugepage/defrag"
HERE = """
repeats = 1
[here]
memory = "2G"
disk = "1G"
timeout_s = 7
[workload]
command = "true"
[[vary]]
setting = "vm.min_free_kbytes"
values = [65536, 67584]
"""
BUFFER = 128 << 20
ORDER = Order(workload="true", fixed={THP: "always"}, settings={MIN_FREE: "8192"})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine's files, as `settings` sees them."""
    root = tmp_path / "root"
    for name, text in (
        ("proc/sys/vm/min_free_kbytes", "4096\n"),
        ("proc/sys/vm/drop_caches", "0\n"),
        ("proc/sys/vm/compact_memory", ""),
        (THP.removeprefix("/"), "always defer [madvise] never\n"),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def value(root: Path, name: str) -> str:
    return (root / "proc/sys/vm" / name).read_text().strip()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A machine that can be recorded, and a perf that says so."""
    perf = make_perf(tmp_path / "perf")
    monkeypatch.setenv("PATH", f"{perf}{os.pathsep}{os.environ['PATH']}")
    return make_machine(tmp_path / "machine")


def here_on(
    directory: Path, root: Path, machine: Host, monkeypatch: pytest.MonkeyPatch, memory: int = 0
) -> AbstractContextManager[Runner]:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    here = Here(disk=1 << 20, memory=memory)
    return runs_here(here, directory, 1 << 20, BUFFER, root, machine)


def never() -> bool:
    return False


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            HERE.replace("vm.min_free_kbytes", "boot:psi"),
            r"vary\[0\].setting: boot parameters need",
        ),
        (f'{HERE}[settings]\n"boot:psi" = 1', "settings.boot:psi: boot parameters need a"),
        (f"{HERE}[guest]\ncpus = 2", r"guest: goes without \[here\], which boots nothing"),
        (f'{HERE}[[kernel]]\nimage = "bzImage"', r"kernel: goes without \[here\]"),
        (HERE.replace("memory", "cpus"), "here.cpus: no such key; there are memory, timeout_s"),
    ],
)
def test_what_needs_a_guest_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(PlanError, match=why):
        read_plan(write_plan(tmp_path, text))
    plan = read_plan(write_plan(tmp_path, HERE))
    assert plan.here == Here(memory=2 << 30, disk=1 << 30, timeout_s=7.0)
    with pytest.raises(UsageError, match="this machine's own kernel; leave --kernel out"):
        changed_plan(plan, [tmp_path / "bzImage"])


def test_settings_come_back_as_they_were_found(root: Path, tmp_path: Path) -> None:
    settings = FoundSettings(tmp_path / FOUND_FILE, root)
    settings.remember((THP, MIN_FREE))
    assert json.loads((tmp_path / FOUND_FILE).read_text()) == {THP: "madvise", MIN_FREE: "4096"}
    (root / "proc/sys/vm/min_free_kbytes").write_text("1")
    (root / THP.removeprefix("/")).write_text("always [defer] madvise never")
    settings.put_back()
    assert value(root, "min_free_kbytes") == "4096"
    assert (root / THP.removeprefix("/")).read_text() == "madvise"
    assert not (tmp_path / FOUND_FILE).exists()
    (root / "proc/sys/vm/min_free_kbytes").write_text("1")
    settings.put_back()
    assert value(root, "min_free_kbytes") == "1", "put back twice"
    settings.remember((MIN_FREE, THP))
    (root / "proc/sys/vm/min_free_kbytes").write_text("2")
    shutil.rmtree((root / THP.removeprefix("/")).parent)
    with pytest.raises(UsageError, match=rf"not put back: {THP}=madvise.*{FOUND_FILE} has the"):
        settings.put_back()
    assert value(root, "min_free_kbytes") == "1", "one that cannot be keeps others from it"
    assert (tmp_path / FOUND_FILE).exists()
    for name, why in (("vm.no_such", "cannot be read in this"), ("kernel.x", r"only vm\.NAME")):
        with pytest.raises(UsageError, match=why):
            settings.remember((name,))


@pytest.mark.parametrize(
    ("noted", "why"),
    [
        ('{"/sys/../etc/shadow": "x"}', "shadow: only vm.NAME"),
        ('{"kernel.core_pattern": "|/tmp/x"}', "core_pattern: only vm.NAME"),
        ('{"vm.min_free_kbytes": ["x"]}', "only vm.NAME"),
        ("[1]", "is not a JSON object"),
        ("{", "is not valid JSON"),
    ],
)
def test_found_settings_of_others_are_not_made(
    root: Path, tmp_path: Path, noted: str, why: str
) -> None:
    (tmp_path / FOUND_FILE).write_text(noted)
    with pytest.raises(PageallocError, match=why):
        FoundSettings(tmp_path / FOUND_FILE, root).put_back()


def test_found_settings_of_another_user_are_not_made(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file away")
    settings = FoundSettings(tmp_path / FOUND_FILE, root)
    settings.remember((MIN_FREE,))
    (root / "proc/sys/vm/min_free_kbytes").write_text("1")
    os.chown(tmp_path / FOUND_FILE, 12345, 12345)
    with pytest.raises(UsageError, match="is another user's"):
        settings.put_back()
    assert value(root, "min_free_kbytes") == "1"


@pytest.mark.parametrize("error", [RunFailedError("no"), KeyboardInterrupt(), None])
def test_a_run_puts_back_what_it_set(
    root: Path,
    tmp_path: Path,
    machine: Host,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException | None,
) -> None:
    seen: list[str] = []

    def fake(call: Call, folder: Path, cancel: object) -> None:
        assert (tmp_path / "scratch" / BIG).stat().st_size == 1 << 20
        seen.append(value(root, "drop_caches") + value(root, "compact_memory"))
        (root / "proc/sys/vm/min_free_kbytes").write_text("8192")
        if error is not None:
            raise error

    monkeypatch.setattr(here_module, "make_recording", fake)
    (tmp_path / "run").mkdir()
    FoundSettings(tmp_path / FOUND_FILE, root).remember((MIN_FREE,))
    (root / "proc/sys/vm/min_free_kbytes").write_text("1")
    try:
        with here_on(tmp_path, root, machine, monkeypatch) as runs:
            assert value(root, "min_free_kbytes") == "4096", "left by a killed experiment"
            runs(Boot(order=ORDER), tmp_path / "run", never)
    except (RunFailedError, KeyboardInterrupt) as caught:
        assert caught is error
    else:
        assert error is None
    assert seen == ["31"]
    assert value(root, "min_free_kbytes") == "4096"
    assert not (tmp_path / "scratch").exists()


def test_a_request_to_end_is_an_interrupt(
    root: Path, tmp_path: Path, machine: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), here_on(tmp_path, root, machine, monkeypatch):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_user_who_is_not_root_is_told(
    root: Path, tmp_path: Path, machine: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert here_check(user=0).cost == ""
    runs = here_on(tmp_path, root, machine, monkeypatch)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert here_check().todo == "run them with sudo"
    with pytest.raises(
        UsageError, match=r"\[here\], and this user is not root; run them with sudo"
    ):
        runs.__enter__()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What was to be left free, each time that memory was held."""
    values: list[int] = []

    def hold(program: Path, leave: int) -> AbstractContextManager[None]:
        values.append(leave)
        return nullcontext()

    monkeypatch.setattr(here_module, "held_memory", hold)
    return values


def test_ring_buffers_are_left_beside_the_workloads_memory(
    root: Path, tmp_path: Path, machine: Host, monkeypatch: pytest.MonkeyPatch, held: list[int]
) -> None:
    with here_on(tmp_path, root, machine, monkeypatch, memory=2 << 30):
        assert held == [(2 << 30) + machine.cpus * BUFFER]
    with here_on(tmp_path, root, machine, monkeypatch):
        assert len(held) == 1, "held without being asked to"


@pytest.mark.parametrize(
    ("lack", "why"),
    [
        ("tracefs", "^cannot record: tracefs is not mounted; run: mount -t tracefs tracefs "),
        ("buffers", "^cannot record: there is no memory for the ring buffers .*; use a smaller"),
        ("memory", "ring buffers take 384, but 3906 MiB are available; lower here.memory or rec"),
    ],
)
def test_a_machine_that_cannot_be_recorded_is_refused_before_any_memory_is_held(
    root: Path,
    tmp_path: Path,
    machine: Host,
    monkeypatch: pytest.MonkeyPatch,
    held: list[int],
    lack: str,
    why: str,
) -> None:
    memory = 1 << 30
    if lack == "tracefs":
        shutil.rmtree(machine.sysfs / "kernel/tracing")
    elif lack == "memory":
        memory = machine.available_memory - 2 * BUFFER
    else:
        failed = "refuse failed to mmap with 12 (Cannot allocate memory)"
        monkeypatch.setenv("PAGEALLOC_FAKE_PERF", failed)
    with pytest.raises(UsageError, match=why):
        here_on(tmp_path, root, machine, monkeypatch, memory).__enter__()
    assert held == []


def test_a_directory_in_memory_is_refused(tmp_path: Path) -> None:
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    memory = [line.split()[4] for line in mounts if " - tmpfs " in line]
    if not memory:
        pytest.skip("no tmpfs is mounted here")
    with pytest.raises(UsageError, match="is on tmpfs, in memory; name a directory on a disk"):
        require_disk(Path(memory[0]))


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may lock this much memory")
def test_memory_is_held_and_returned(tmp_path: Path) -> None:
    build_programs(tmp_path)
    with held_memory(tmp_path / HOLDER, 1 << 50) as probe:
        held, free = probe()
        assert (held, free > 0) == (0, True)
    with pytest.raises(RunFailedError, match=rf"{HOLDER} ended with exit code -9; raise here.mem"):
        probe()
    held = 0
    for less in (256, 1024, 4096):  # other tests may take memory meanwhile
        with held_memory(tmp_path / HOLDER, max(free - less, 0) << 20) as holder:
            held = held or holder()[0]
    assert held > 0


def test_a_process_may_end_by_itself_first(tmp_path: Path) -> None:
    script = (
        "import signal, sys, time\n"
        "def told(*_):\n"
        f"    open({str(tmp_path / 'told')!r}, 'w')\n"
        "    sys.exit()\n"
        "signal.signal(signal.SIGTERM, told)\n"
        f"open({str(tmp_path / 'begun')!r}, 'w')\n"
        "time.sleep(600)\n"
    )
    with Call(words=[sys.executable, "-c", script], grace_s=60.0).running(None) as process:
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
    assert (tmp_path / "told").exists()
    assert process.returncode == 0


REAL = """
repeats = 1
[here]
disk = "64M"
timeout_s = 300
[workload]
name = "forks"
amount = 5
[[vary]]
setting = "vm.min_free_kbytes"
values = [65536, 67584]
"""


@pytest.mark.long
def test_this_machine_is_recorded_and_left_as_it_was(tmp_path: Path) -> None:
    try:
        require_recordable(Host())
        require_disk(tmp_path)
    except UsageError as error:
        pytest.skip(f"this machine cannot be recorded here: {error}")
    file = Path("/proc/sys/vm/min_free_kbytes")
    before = file.read_text()
    result = experiment(write_plan(tmp_path, REAL), tmp_path / "out")
    assert result.runs["error"].tolist() == ["", ""]
    assert file.read_text() == before
