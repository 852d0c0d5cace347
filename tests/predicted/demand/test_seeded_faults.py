"""Faults put into the rules of demand one at a time: the tests beside this file must find each.

They hold the rules against the same ones put down event by event.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.allocator.faults import Fault, read_faults

FAULTS = read_faults(Path(__file__).with_name("faults.txt"))
IDS = [fault.name for fault in FAULTS]


def source_of(package: Path, fault: Fault) -> Path:
    return package / "predicted/demand" / f"{fault.module}.py"


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS, ids=IDS)
def test_a_fault_in_demand_is_found(fault: Fault, checkout: Path, tmp_path: Path) -> None:
    package = tmp_path / "pagealloc_model"
    shutil.copytree(checkout / "pagealloc_model", package, ignore=shutil.ignore_patterns("__py*"))
    (tmp_path / "data").symlink_to(checkout / "data")
    shutil.copytree(checkout / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__py*"))
    source = source_of(package, fault)
    source.write_text(source.read_text().replace(fault.right, fault.wrong))
    tests = [f"tests/predicted/demand/{name}.py" for name in fault.scenarios]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert "AssertionError" in done.stdout
    assert str(tmp_path) in done.stdout


@pytest.mark.parametrize("fault", FAULTS, ids=IDS)
def test_the_fault_still_fits_the_source(fault: Fault, checkout: Path) -> None:
    """Its text is there once, and what stands in its place is Python."""
    text = source_of(checkout / "pagealloc_model", fault).read_text()
    assert text.count(fault.right) == 1
    compile(text.replace(fault.right, fault.wrong), fault.module, "exec")
