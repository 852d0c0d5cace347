"""Fixtures: a machine made of directories, and a fake perf."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pagealloc_model.recording.record.host import Host
from tests.recording.record.machines import make_machine, make_perf


@pytest.fixture
def machine(tmp_path: Path) -> Host:
    """A machine that can record everything."""
    return make_machine(tmp_path / "machine")


@pytest.fixture
def fake_perf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Puts a fake perf on PATH; set PAGEALLOC_FAKE_PERF with what it returns."""
    directory = make_perf(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.delenv("SUDO_GID", raising=False)
    return monkeypatch
