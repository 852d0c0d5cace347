"""What runs inside a guest, with folders in the place of /proc and a fake recorder."""

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
from pagealloc_model.studies.experiments.inside import ORDER_FILE, Order, answer_of, carry_out, main


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
