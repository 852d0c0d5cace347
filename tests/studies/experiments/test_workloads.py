"""Workloads: their programs compile, run, and ask for the same under the same seed."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.studies.experiments import workloads
from pagealloc_model.studies.experiments.workloads import (
    PROGRAMS,
    WORKLOADS,
    build_programs,
)

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
    found = WORKLOADS[name]
    for command in filter(None, (found.prepare, found.command)):
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
