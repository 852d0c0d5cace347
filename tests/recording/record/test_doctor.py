import json
from pathlib import Path

import pytest

from pagealloc_model.cli import main
from pagealloc_model.recording.record.doctor import examine
from pagealloc_model.recording.record.host import Host

Setting = pytest.MonkeyPatch


def test_a_machine_that_can_record(machine: Host, fake_perf: Setting, tmp_path: Path) -> None:
    checks = {check.name: check for check in examine(machine, tmp_path)}
    assert not any(check.blocks for check in checks.values())
    assert checks["recording"].found == "a trial recording works"
    assert {"browser", "perf module", "CPUs", "memory", "disk"} <= set(checks)


def test_only_a_trial_shows_what_perf_may(
    machine: Host, fake_perf: Setting, tmp_path: Path
) -> None:
    fake_perf.setenv("FAKE_PERF", "refuse Permission denied")
    checks = {check.name: check for check in examine(machine, tmp_path)}
    assert checks["recording"].blocks
    assert "the kernel refuses perf" in checks["recording"].found


def test_a_trial_must_leave_a_file(machine: Host, fake_perf: Setting, tmp_path: Path) -> None:
    fake_perf.setenv("FAKE_PERF", "no file")
    checks = {check.name: check for check in examine(machine, tmp_path)}
    assert checks["recording"].blocks
    assert checks["recording"].todo


def test_each_lack_says_what_it_costs_and_what_to_do(
    machine: Host, monkeypatch: Setting, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("BROWSER_PATH", raising=False)
    (machine.proc / "meminfo").write_text("MemAvailable: 5 kB\n")
    checks = {check.name: check for check in examine(machine, tmp_path)}
    assert "recording" not in checks
    for name in ("perf", "browser", "memory"):
        assert checks[name].cost
        assert checks[name].todo


@pytest.mark.parametrize("blocked", [True, False])
def test_the_exit_code_says_whether_recording_is_possible(
    blocked: bool,
    machine: Host,
    fake_perf: Setting,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: Setting,
) -> None:
    monkeypatch.setattr("pagealloc_model.recording.record.host.Host", lambda: machine)
    if blocked:
        fake_perf.setenv("FAKE_PERF", "old")
    assert main(["doctor"]) == int(blocked)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("NO  perf" if blocked else "ok  perf")
    assert lines[-1] == f"recording is {'not ' * blocked}possible here"
    assert main(["doctor", "--json"]) == int(blocked)
    described = json.loads(capsys.readouterr().out)
    assert described["recording_possible"] is not blocked
    assert {"name", "found", "cost", "todo", "blocks"} == set(described["checks"][0])
