"""Where root may write what it records, and whose it is afterwards."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.cli.main import main
from pagealloc_model.recording.record.ownership import (
    calling_user,
    refuse_what_others_may_exchange,
)

ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes directories of others")


@pytest.mark.parametrize(
    ("environment", "user", "owner"),
    [
        ({"SUDO_UID": "1000", "SUDO_GID": "100"}, 0, (1000, 100)),
        ({"SUDO_UID": "1000", "SUDO_GID": "100"}, 1000, None),
        ({"SUDO_UID": "1000"}, 0, None),
        ({"SUDO_UID": "-1", "SUDO_GID": "x"}, 0, None),
        ({}, 0, None),
    ],
)
def test_who_called_sudo(
    environment: dict[str, str], user: int, owner: tuple[int, int] | None
) -> None:
    assert calling_user(environment, user) == owner


@ONLY_ROOT
def test_root_writes_nothing_where_others_could_put_a_link(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "below").mkdir(parents=True)
    os.chown(theirs, 1234, 1234)
    for place in (theirs, theirs / "below", theirs / "new"):
        with pytest.raises(UsageError, match="could exchange what root writes"):
            refuse_what_others_may_exchange(place, None)
        refuse_what_others_may_exchange(place, (1234, 1234))
    os.chown(theirs, 0, 0)
    for mode, is_refused in ((0o755, False), (0o777, True), (0o1777, False), (0o770, False)):
        theirs.chmod(mode)
        with pytest.raises(UsageError) if is_refused else contextlib.nullcontext():
            refuse_what_others_may_exchange(theirs / "below", None)


@ONLY_ROOT
def test_root_writes_nothing_where_others_have_a_link_on_the_way(tmp_path: Path) -> None:
    roots, theirs = tmp_path / "roots", tmp_path / "theirs"
    (roots / "below").mkdir(parents=True)
    theirs.mkdir()
    (theirs / "link").symlink_to(roots)
    (tmp_path / "to_theirs").symlink_to(theirs / "link")
    os.chown(theirs, 1234, 1234)
    with pytest.raises(UsageError, match="theirs can be written by others"):
        refuse_what_others_may_exchange(tmp_path / "to_theirs" / "below", None)
    (tmp_path / "link").symlink_to(roots)
    refuse_what_others_may_exchange(tmp_path / "link" / "below", None)
    os.chown(tmp_path / "link", 1234, 1234, follow_symlinks=False)
    with pytest.raises(UsageError, match="link can be written by others"):
        refuse_what_others_may_exchange(tmp_path / "link" / "below", None)
    (tmp_path / "round").symlink_to("round")
    refuse_what_others_may_exchange(tmp_path / "round", None)


@ONLY_ROOT
def test_root_takes_no_snapshot_into_a_directory_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere, theirs = tmp_path / "elsewhere", tmp_path / "theirs"
    elsewhere.mkdir()
    theirs.mkdir()
    (theirs / "meta.json").write_text("{}")
    (theirs / "snapshots").symlink_to(elsewhere)
    os.chown(theirs, 1234, 1234)
    assert main(["snapshot", str(theirs)]) == 2
    assert "could exchange what root writes" in capsys.readouterr().err
    assert not list(elsewhere.iterdir())


def test_damaged_words_and_no_interval_are_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    assert main(["snapshot", str(state)]) == 0
    assert json.loads((state / "meta.json").read_text())
    (state / "meta.json").write_text("junk")
    assert main(["snapshot", str(state)]) == 0
    for interval in ("-1", "0", "nan"):
        assert main(["snapshot", str(state), "--seconds", "1", "--interval", interval]) == 2
        assert "no time between snapshots" in capsys.readouterr().err
