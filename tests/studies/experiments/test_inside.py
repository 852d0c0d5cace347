"""The part of a run on its machine: settings, read back, and a workload, with a fake recorder."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.record import session
from pagealloc_model.recording.record.host import Host
from pagealloc_model.recording.record.perf import RecordOptions
from pagealloc_model.studies.experiments import inside
from pagealloc_model.studies.experiments.inside import (
    ORDER_FILE,
    Order,
    answer_of,
    apply,
    carry_out,
    main,
    setting_file,
)
from pagealloc_model.studies.experiments.plan import policy_field


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done, in order."""
    done: list[str] = []

    def record(options: RecordOptions, host: Host, say: object, note: object) -> SimpleNamespace:
        done.append("ring buffers")
        if options.set_up:
            subprocess.run(options.set_up, check=True)
            done.append("set-up")
        options.before_events()
        done.append(options.command[-1])
        return SimpleNamespace(command_code=int(options.command[-1] == "fail"))

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


def test_a_command_finds_the_folder_of_its_run(steps: list[str], tmp_path: Path) -> None:
    carry_out(Order(workload="work", prepare='echo kept > "$RUN/beside"'), tmp_path)
    assert (tmp_path / "beside").read_text() == "kept\n"


def test_a_workload_that_fails_ends_the_run(steps: list[str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the workload ended with exit code 1"):
        carry_out(Order(workload="fail"), tmp_path)


def test_the_answer_says_what_failed(steps: list[str], tmp_path: Path) -> None:
    Order(workload="fail").write(tmp_path)
    assert main(tmp_path) == 1
    assert answer_of(tmp_path) == "the workload ended with exit code 1"
    Order(workload="work").write(tmp_path)
    assert main(tmp_path) == 0
    assert answer_of(tmp_path) == ""


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
