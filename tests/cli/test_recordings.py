"""pagealloc info: the verdict first, in little time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pagealloc_model.cli import main
from tests.cli.test_main import Capture
from tests.small_recordings import write_recording


def test_info_waits_neither_for_pandas_nor_for_the_replay() -> None:
    code = (
        "import sys; from pagealloc_model.cli.main import main; main(['info', 'kbuild']); "
        "print([m for m in ('pandas', 'pagealloc_model.predicted.replay') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


def test_info_of_a_kernel_without_rules_says_so(tmp_path: Path, capsys: Capture) -> None:
    path = str(write_recording(tmp_path / "old", release="4.19.1"))
    assert main(["info", path]) == 0
    assert "older than the oldest" in capsys.readouterr().out
    assert main(["info", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rule_evidence"] == []
