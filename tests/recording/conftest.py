"""Fixtures: a made-up machine, a made-up perf, and a machine that really records."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pagealloc_model.recording.host import Host
from tests.recording.machines import make_machine, make_perf


@pytest.fixture
def machine(tmp_path: Path) -> Host:
    """A machine that can record everything."""
    return make_machine(tmp_path / "machine")


@pytest.fixture
def fake_perf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Puts a made-up perf on PATH; set FAKE_PERF with what it returns."""
    directory = make_perf(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.delenv("SUDO_GID", raising=False)
    return monkeypatch


@pytest.fixture(scope="session")
def recording_machine(perf_command: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips the test where perf cannot record the page allocator of this machine."""
    output = tmp_path_factory.mktemp("trial") / "perf.data"
    command = [perf_command, "record", "-a", "-e", "kmem:mm_page_alloc", "-o", str(output)]
    tried = subprocess.run([*command, "--", "true"], capture_output=True, check=False, timeout=60)
    if os.geteuid() != 0 or tried.returncode:
        pytest.skip("perf cannot record this machine (needs root and tracepoints)")
