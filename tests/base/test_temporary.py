"""Directories of temporary files: gone with their process, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from pagealloc_model.base.files import remove_temporary, temporary_directory


def test_what_a_killed_process_left_is_removed_and_what_is_in_use_is_not(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pagealloc_model.base.files import temporary_directory; "
        "print(temporary_directory(sys.argv[1]), flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        theirs = Path(process.stdout.readline().strip())
        (theirs / "file").touch()
        ours = temporary_directory(str(tmp_path))
        assert theirs.is_dir() and ours.stat().st_mode & 0o777 == 0o700
        os.kill(process.pid, signal.SIGKILL)
    (target := tmp_path / "target").mkdir()
    (link := tmp_path / "pagealloc.abcdefgh").symlink_to(target)
    remove_temporary(temporary_directory(str(tmp_path)))
    assert not theirs.exists() and ours.is_dir() and link.is_symlink() and target.is_dir()
    remove_temporary(ours)
    assert not ours.exists()


def test_a_directory_that_its_user_named_so_stays(tmp_path: Path) -> None:
    (mine := tmp_path / "pagealloc.20261129").mkdir()
    (mine / "perf.data").touch()
    remove_temporary(temporary_directory(str(tmp_path)))
    assert (mine / "perf.data").exists()
