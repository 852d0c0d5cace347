"""`make lab` in a fresh copy of the checkout: the quick start of README, as a newcomer runs it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

SET_UP_SECONDS = 900
TOKEN = "test"
LEFT_BEHIND = shutil.ignore_patterns(
    ".venv", ".git", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", "test-artefacts"
)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextmanager
def make_lab(tree: Path, port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs `make lab` without a browser of its own and ends it, JupyterLab included."""
    arguments = f"--no-browser --ServerApp.port={port} --IdentityProvider.token={TOKEN}"
    environment = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["make", "lab", f"LAB_ARGS={arguments}"],
            cwd=tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=60)


def answers(port: int) -> bool:
    url = f"http://127.0.0.1:{port}/api/contents?token={TOKEN}"
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status == 200 and b"00_start_here.ipynb" in response.read()
    except (urllib.error.URLError, OSError):
        return False


def wait_until_it_answers(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + SET_UP_SECONDS
    while not answers(port):
        assert process.poll() is None, f"make lab ended:\n{log.read_text()}"
        assert time.monotonic() < end, f"JupyterLab does not answer:\n{log.read_text()}"
        time.sleep(0.5)


@pytest.mark.long
def test_make_lab_sets_up_once_and_opens_the_notebooks(checkout: Path, tmp_path: Path) -> None:
    tree = shutil.copytree(checkout, tmp_path / "checkout", ignore=LEFT_BEHIND)
    logs = []
    for attempt in ("first", "second"):
        port, log = free_port(), tmp_path / f"{attempt}.log"
        with make_lab(tree, port, log) as process:
            wait_until_it_answers(process, port, log)
        logs.append(log.read_text())
    assert "uv pip install" in logs[0] and "uv pip install" not in logs[1]
    line = re.compile(r"^kbuild: .* of .* within 25 %", re.MULTILINE)
    assert all(line.search(log) for log in logs), "a line says how right the model is"


def test_make_lab_names_a_missing_python(checkout: Path, tmp_path: Path) -> None:
    shutil.copy(checkout / "Makefile", tmp_path)
    for name in ("requirements-lab.lock", "setup.cfg", "pyproject.toml"):
        shutil.copy(checkout / name, tmp_path)
    ran = subprocess.run(
        ["make", "--silent", "lab", "PYTHON=/nonexistent/python3"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ran.returncode != 0
    assert "Python 3.11 or newer is missing" in ran.stderr
    assert not (tmp_path / ".venv").exists()
