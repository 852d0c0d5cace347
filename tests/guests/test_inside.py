"""The part of a run on its machine: settings, a workload with a fake recorder, and programs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.guests import inside, workloads
from pagealloc_model.guests.inside import (
    ORDER_FILE,
    SIZES,
    STATES,
    Order,
    answer_of,
    apply,
    by_file,
    carry_out,
    main,
    setting_file,
    state_from_outside,
)
from pagealloc_model.guests.plan import policy_field
from pagealloc_model.guests.workloads import (
    PROGRAMS,
    WORKLOADS,
    build_programs,
)
from pagealloc_model.recording.record import session
from pagealloc_model.recording.record.host import Host
from pagealloc_model.recording.record.perf import RecordOptions
from pagealloc_model.recording.state_file import STATE_SUFFIX
from pagealloc_model.recording.trace import tracepoints as tp


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done, in order."""
    done: list[str] = []

    def record(options: RecordOptions, host: Host, say: object, note: object) -> SimpleNamespace:
        done.append("ring buffers")
        if options.set_up:
            subprocess.run(options.set_up, check=True)
            done.append("set-up")
        options.before_copies()
        done.append(options.command[-1])
        code = int(options.command[-1] == "fail")
        return SimpleNamespace(command_code=code, kswapd_slept="late" not in options.command[-1])

    monkeypatch.setattr(inside, "SCRATCH", tmp_path)
    monkeypatch.setattr(inside, "apply", lambda values, root: done.extend(values))
    monkeypatch.setattr(session, "record", record)
    for name in ("NAME", inside.RUN):
        monkeypatch.setenv(name, "")  # and takes it back at the end
    monkeypatch.chdir(tmp_path)
    return done


def test_an_order_survives_its_file(tmp_path: Path) -> None:
    order = Order(workload="w", settings={"vm.x": "1"}, environment={"SEED": "1"}, disk=True)
    order.write(tmp_path)
    assert Order(**json.loads((tmp_path / ORDER_FILE).read_text())) == order
    assert answer_of(tmp_path) is None


def test_a_runs_own_settings_come_after_the_set_up(steps: list[str], tmp_path: Path) -> None:
    order = Order(workload="work", prepare="touch $NAME", fixed={"all": "1"}, settings={"own": "2"})
    carry_out(
        Order(**{**vars(order), "environment": {"NAME": str(tmp_path / "prepared")}}), tmp_path
    )
    assert steps == ["all", "ring buffers", "set-up", "own", "work"]
    assert (tmp_path / "prepared").exists()


def test_other_events_may_be_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def record(options: RecordOptions, *others: object) -> SimpleNamespace:
        asked.append(options.events)
        return SimpleNamespace(command_code=0, kswapd_slept=None)

    monkeypatch.setattr(inside, "apply", lambda values, root: None)
    monkeypatch.setattr(session, "record", record)
    monkeypatch.setenv(inside.RUN, "")
    for order in (Order(workload="w"), Order(workload="w", events="default,sched:sched_switch")):
        carry_out(order, tmp_path)
    assert asked == [RecordOptions(destination=tmp_path).events, ("default", tp.SCHED_SWITCH)]


def test_perf_finds_a_place_for_its_files(
    steps: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the host's files cannot be written to, unless the run's folder lies there."""
    called: list[tuple[str, ...]] = []

    def run(words: tuple[str, ...], **options: object) -> SimpleNamespace:
        called.append(words)
        return SimpleNamespace(returncode=0)

    Order(workload="work").write(tmp_path)
    monkeypatch.setattr(inside.subprocess, "run", run)
    for place, mounts in ((tmp_path, 0), (Path("/no/such"), 1), (tmp_path.parent / "none", 2)):
        monkeypatch.setattr(inside, "PERF_FILES", place)
        assert main(tmp_path) == 0
        assert len(called) == mounts
    assert called[0] == ("mount", "-t", "tmpfs", "tmpfs", "/no/such")


def test_a_command_finds_the_folder_of_its_run(steps: list[str], tmp_path: Path) -> None:
    carry_out(Order(workload="work", prepare='echo kept > "$RUN/beside"'), tmp_path)
    assert (tmp_path / "beside").read_text() == "kept\n"


def test_a_workload_that_fails_ends_the_run(steps: list[str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the workload ended with exit code 1"):
        carry_out(Order(workload="fail"), tmp_path)


def test_a_run_says_that_kswapd_still_worked(
    steps: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    carry_out(Order(workload="work"), tmp_path)
    assert capsys.readouterr().out == ""
    carry_out(Order(workload="late"), tmp_path)
    assert capsys.readouterr().out == "kswapd still worked when the recording began\n"


def test_the_answer_says_what_failed(steps: list[str], tmp_path: Path) -> None:
    Order(workload="fail").write(tmp_path)
    assert main(tmp_path) == 1
    assert answer_of(tmp_path) == "the workload ended with exit code 1"
    Order(workload="work").write(tmp_path)
    assert main(tmp_path) == 0
    assert answer_of(tmp_path) == ""


def test_a_guests_state_is_read_from_outside_and_moved_into_the_recording(tmp_path: Path) -> None:
    requests, recording = tmp_path / STATES, tmp_path / "recording"
    requests.mkdir()
    recording.mkdir()

    def answer(content: str, ending: str) -> None:
        while not (asked := requests / "begin.asked").exists():
            time.sleep(0.01)
        asked.with_suffix(ending).write_text(content)
        asked.unlink()

    host = threading.Thread(target=answer, args=("pages", STATE_SUFFIX))
    host.start()
    state_from_outside(tmp_path, recording / "begin.state")
    host.join()
    assert (recording / "begin.state").read_text() == "pages"
    host = threading.Thread(target=answer, args=("drgn is not installed", ".refused"))
    host.start()
    with pytest.raises(UsageError, match="drgn is not installed"):
        state_from_outside(tmp_path, recording / "begin.state")
    host.join()


def test_a_state_that_nobody_reads_is_waited_for_only_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / STATES).mkdir()
    monkeypatch.setattr(inside, "_STATE_WAIT_S", 0.2)
    with pytest.raises(UsageError, match=r"nobody read this guest's state within 0\.2 s"):
        state_from_outside(tmp_path, tmp_path / "begin.state")


DEFRAG = "/sys/kernel/mm/transparent_hugepage/defrag"


def file_of(root: Path, name: str, text: str) -> Path:
    file = setting_file(name, root)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("name", "file", "field"),
    [
        ("vm.min_free_kbytes", "proc/sys/vm/min_free_kbytes", "min_free_kbytes"),
        ("vm.swappiness", "proc/sys/vm/swappiness", ""),
        (DEFRAG, DEFRAG[1:], "thp_defrag"),
        ("boot:page_owner", "proc/cmdline", ""),
    ],
)
def test_places(name: str, file: str, field: str) -> None:
    assert setting_file(name, Path("/r")) == Path("/r") / file
    assert policy_field(name) == field


@pytest.mark.parametrize("name", ["min_free_kbytes", "", "boot:", "/proc/sys/vm/x", "vm. x"])
def test_what_is_no_place_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is no setting; name a sysctl"):
        setting_file(name)


def test_settings_are_written_and_read_back(tmp_path: Path) -> None:
    file = file_of(tmp_path, "vm.min_free_kbytes", "1024\n")
    file_of(tmp_path, "boot:psi", "quiet psi=1 ro\n")
    apply({"vm.min_free_kbytes": "4096", "boot:psi": "1"}, tmp_path)
    assert file.read_text() == "4096"


def test_sizes_of_folios_are_a_file_each(tmp_path: Path) -> None:
    files = by_file({"vm.swappiness": "0", SIZES: "64 2048"})
    sized = [name for name in files if "hugepages-" in name]
    uses = {int(name.split("-")[1].split("kB")[0]): files[name] for name in sized}
    assert sorted(uses) == [16 << place for place in range(8)]
    assert [kib for kib, use in uses.items() if use == "always"] == [64, 2048]
    assert set(uses.values()) == {"always", "never"} and files["vm.swappiness"] == "0"
    for name in files:
        setting_file(name, tmp_path).parent.mkdir(parents=True, exist_ok=True)
    apply(files, tmp_path)
    assert by_file({SIZES: "none"}) == dict.fromkeys(sized, "never")


def test_a_value_that_is_not_kept_is_an_error(tmp_path: Path) -> None:
    file_of(tmp_path, "boot:psi", "quiet ro\n")
    with pytest.raises(UsageError, match="boot:psi=1: this kernel keeps 'quiet ro'"):
        apply({"boot:psi": "1"}, tmp_path)
    with pytest.raises(UsageError, match=r"vm\.none=1: cannot be set in this kernel"):
        apply({"vm.none": "1"}, tmp_path)


def test_a_choice_of_words_is_the_one_in_brackets(tmp_path: Path) -> None:
    file_of(tmp_path, DEFRAG, "x")
    apply({DEFRAG: "always"}, tmp_path)
    # a file of sysfs shows all choices, which this one does not
    assert setting_file(DEFRAG, tmp_path).read_text() == "always"


NEED_A_KERNEL = {"atomics", "idle_reserve"}
COMPILES = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("programs")
    build_programs(directory)
    return directory


@COMPILES
@pytest.mark.parametrize("name", sorted(set(WORKLOADS) - NEED_A_KERNEL))
def test_workloads_run(name: str, programs: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with (disk / "big").open("wb") as big:
        big.truncate(16 << 20)
    variables = {"SEED": "1", "AMOUNT": "2", "DISK": str(disk), "BIG_MIB": "16"}
    path = f"{programs}:{os.environ['PATH']}"
    workload = WORKLOADS[name]
    for command in filter(None, (workload.prepare, workload.command)):
        done = subprocess.run(
            ["sh", "-ec", command],
            cwd=tmp_path,
            env={**variables, "MEMORY_PAGES": "400", "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


@COMPILES
def test_programs_say_how_they_are_called(programs: Path) -> None:
    for source in PROGRAMS.glob("*.c"):
        program = programs / source.stem
        done = subprocess.run([program], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.split()[:2]) == (2, ["usage:", source.stem])


@COMPILES
def test_pipes_are_filled_and_emptied(programs: Path, tmp_path: Path) -> None:
    for words in (("3", "40", "1"), ("600", "2", "1", "100")):
        subprocess.run([programs / "kernel_pages", tmp_path, *words], check=True, timeout=60)


@COMPILES
def test_the_same_seed_asks_for_the_same(programs: Path, tmp_path: Path) -> None:
    sizes = {}
    for run, seed in (("one", "5"), ("two", "5"), ("other", "6")):
        (tmp_path / run).mkdir()
        subprocess.run([programs / "many_files", tmp_path / run, "40", seed], check=True)
        files = sorted((tmp_path / run).rglob("*"))
        sizes[run] = [(file.name, file.stat().st_size) for file in files if file.is_file()]
    assert len(sizes["one"]) == 20
    assert sizes["one"] == sizes["two"] != sizes["other"]


@COMPILES
def test_reads_keep_a_rate(programs: Path, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(bytes(1 << 20))
    began = time.monotonic()
    subprocess.run([programs / "page_cache", big, "1", "20", "1", "100"], check=True)
    assert time.monotonic() - began >= 0.19


@COMPILES
def test_rounds_of_a_build_leave_a_table_and_end_what_stayed(
    programs: Path, tmp_path: Path
) -> None:
    tree, marks = tmp_path / "tree", tmp_path / "marks"
    tree.mkdir()
    marks.mkdir()
    beside = f'echo "$ROUND" >> {tmp_path}/beside'
    began = time.monotonic_ns()
    subprocess.run([programs / "builds", tree, "96", "3", "1", marks, beside], check=True)
    lines = (marks / "rounds.csv").read_text().split()
    assert lines[0] == "round,time_ns"
    rounds = [[int(word) for word in line.split(",")] for line in lines[1:]]
    assert [number for number, _ in rounds] == [0, 1, 2, 3]
    times = [time_ns for _, time_ns in rounds]
    assert times == sorted(times) and began < times[0]
    assert (tmp_path / "beside").read_text().split() == ["0", "1", "2"]
    objects = {file.name for file in tree.glob("*.o")}
    assert objects == {f"{job}.2.o" for job in range(4)}, "those of earlier rounds are removed"
    for file in marks.glob("*.kpageflags"):
        file.unlink()


@COMPILES
def test_a_build_fails_with_what_runs_beside_it(programs: Path, tmp_path: Path) -> None:
    words = [programs / "builds", tmp_path, "24", "1", "1", "", "exit 3"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "builds: a child failed\n")


@COMPILES
def test_atomics_fails_where_the_kernel_has_none(programs: Path) -> None:
    if Path("/sys/kernel/debug/atomic_churn").exists():
        pytest.skip("this kernel has debugfs' atomic_churn")
    done = subprocess.run(
        [programs / "atomics", "1", "1", "1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "atomic_churn" in done.stderr


def test_a_machine_without_a_compiler_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workloads, "COMPILER", "no-such-compiler")
    with pytest.raises(UsageError, match="no no-such-compiler to compile the workloads with"):
        build_programs(tmp_path)
