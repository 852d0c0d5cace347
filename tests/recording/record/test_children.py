"""Children run none of the code that lies where the user stands."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pytest import MonkeyPatch

from pagealloc_model.base.errors import PageallocError, UsageError
from pagealloc_model.guests.guest import Boot, guest_words
from pagealloc_model.guests.inside import Order, setting_file
from pagealloc_model.guests.plan import Guest, read_plan
from pagealloc_model.recording.record import session
from pagealloc_model.recording.record.children import clean_environment, python_words
from tests.small_recordings import write_recording

PLANTED = "import pathlib; pathlib.Path({!r}).touch(); raise SystemExit('planted')\n"
SERVE = """
from pagealloc_model.notebook import served
from pagealloc_model.notebook.own_jupyter import own_jupyter
with own_jupyter() as directory:
    server = served.page_server(directory, "x", "", 8866, browser=False)
print(server.ip, server.token == "abc")
"""


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: MonkeyPatch) -> Path:
    """The working directory, with modules that leave a mark when they are imported."""
    ran = tmp_path / "ran"
    for place in ("here", "path"):
        (tmp_path / place).mkdir()
        for module in ("json", "gzip", "sitecustomize", "voila"):
            (tmp_path / place / f"{module}.py").write_text(PLANTED.format(str(ran)))
    (tmp_path / "here" / "voila.json").write_text('{"Voila": {"ip": "0.0.0.0", "token": "abc"}}')
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "here"))
    return ran


def test_what_was_recorded_is_read_back_without_them(trap: Path, tmp_path: Path) -> None:
    found = session.read_back(write_recording(tmp_path / "small"), None)
    assert found is not None
    assert not trap.exists()


def test_a_child_takes_no_variable_that_leads_to_code(monkeypatch: MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "PYTHONSTARTUP", "LD_PRELOAD", "JUPYTER_PATH", "BASH_ENV", "ENV"):
        monkeypatch.setenv(name, "x")
    assert {"PYTHONSAFEPATH", "PATH"} < set(clean_environment())
    assert "x" not in clean_environment().values()
    assert python_words("json.tool")[:2] == [sys.executable, "-P"]


def test_the_explorers_server_reads_no_configuration(trap: Path, tmp_path: Path) -> None:
    pytest.importorskip("voila")
    command = [sys.executable, "-P", "-c", SERVE]
    environment = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.split() == ["127.0.0.1", "False"], done.stderr
    assert not trap.exists()


def boot(tmp_path: Path, **guest: object) -> Boot:
    image = tmp_path / "bzImage"
    return Boot(
        image=image,
        guest=Guest(**guest),
        boot=(),
        order=Order(workload="true"),
        disk=tmp_path / "disk.img",
        most_bytes=1,
    )


@pytest.mark.parametrize("name", ["x;id;y", "a run", "$(id)", "`id`", "a'b", 'a"b', "a&b"])
def test_no_path_is_a_command_of_the_hosts_shell(
    name: str, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setattr("pagealloc_model.guests.guest.shares_by_9p", lambda _: False)
    place = tmp_path / name
    words = guest_words(boot(place), place / "run")
    # virtme-ng joins all but the last and those of --append into one line
    heard = shlex.split(" ".join(words[:-2]).replace("--qemu-opts=", "--qemu-opts "))
    for path in (place / "bzImage", place / "run"):
        assert str(path) in heard
    assert f"file={place / 'disk.img'},if=virtio,format=raw,snapshot=on" in heard


@pytest.mark.parametrize("name", ["a=b", "a,b", "a\nb"])
def test_a_path_that_qemu_takes_apart_is_refused(
    name: str, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setattr("pagealloc_model.guests.guest.shares_by_9p", lambda _: False)
    with pytest.raises(UsageError, match="name another directory"):
        guest_words(boot(tmp_path), tmp_path / name)


@pytest.mark.parametrize("node", ["256M$(id)", "256M;id", "256M cpus=0", ""])
def test_a_node_is_a_size_and_its_cpus(node: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    varied = "[[vary]]\nsetting = 'vm.stat_interval'\nvalues = [1, 2]\n"
    plan.write_text(f"{varied}[workload]\nname = 'purger'\n[guest]\nnodes = ['{node}']\n")
    with pytest.raises(PageallocError, match=r"guest\.nodes"):
        read_plan(plan)


def test_a_setting_does_not_lead_out_of_sysfs() -> None:
    with pytest.raises(UsageError, match="no setting"):
        setting_file("/sys/../etc/passwd")
