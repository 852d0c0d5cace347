"""Copies of a machine's state: whose they are."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from pagealloc_model.recording.record.host import Host
from pagealloc_model.recording.record.snapshots import copy_state
from tests.recording.record.test_ownership import ONLY_ROOT


def test_a_snapshot_is_for_its_user_alone(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for directory in (tmp_path / "new", tmp_path / "there"):
        copy_state(directory, Host())
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@ONLY_ROOT
def test_a_snapshot_under_sudo_is_the_calling_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "1235")
    copy_state(tmp_path / "new", Host())
    found = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
    assert {(place.stat().st_uid, place.stat().st_gid) for place in found} == {(1234, 1235)}
