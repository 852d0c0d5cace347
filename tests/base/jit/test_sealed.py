"""Sealed files: what a process that was killed left behind."""

from __future__ import annotations

import os
from pathlib import Path

from pagealloc_model.base.jit.sealed import read_sealed, write_sealed


def test_unfinished_files_of_a_killed_process_with_the_same_id_stop_nobody(tmp_path: Path) -> None:
    for name in ("key", "a.kernel"):
        (tmp_path / f"{name}.{os.getpid()}").write_bytes(b"unfinished")
    write_sealed(tmp_path / "a.kernel", b"whole")
    assert read_sealed(tmp_path / "a.kernel") == b"whole"
