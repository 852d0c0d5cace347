"""Faults put into the kernels one at a time: the comparison with the oracle must find each."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.allocator.fault import Fault
from tests.allocator.faults import FAULTS
from tests.allocator.faults_6_1 import FAULTS_6_1
from tests.allocator.faults_nodes import FAULTS_NODES
from tests.oracle import RULES

EXAMPLES = 100
"""Scenarios to find a fault in."""

TIMEOUT_S = 60
"""For one scenario of a second or two: a fault that makes a kernel run forever is found too."""

COMPARE = f"""
import signal
import sys
from tests.allocator.agreement import assert_agreement
from tests.oracle.node_scenarios import random_node_scenario
from tests.oracle.random_scenarios import random_scenario


def no_end(*_):
    raise TimeoutError("no end within {TIMEOUT_S} s")


signal.signal(signal.SIGALRM, no_end)
count, *presets = sys.argv[1:]
for number in range(int(count)):
    for scenario in (random_scenario, random_node_scenario):
        signal.alarm({TIMEOUT_S})
        assert_agreement(scenario(number, steps=200, replayed=True, presets=presets))
"""


ALL_FAULTS = (*FAULTS, *FAULTS_6_1, *FAULTS_NODES)


@pytest.fixture
def faulty_package(checkout: Path, tmp_path: Path) -> Path:
    """Folder with a copy of the package, to be spoilt."""
    copy = tmp_path / "pagealloc_model"
    shutil.copytree(checkout / "pagealloc_model", copy, ignore=shutil.ignore_patterns("__py*"))
    return tmp_path


def comparison(
    checkout: Path, package_parent: Path, examples: int, presets: Sequence[str] = tuple(RULES)
) -> str:
    """Run the comparison with the oracle on a copy; its complaint, "" if there is none."""
    path = os.pathsep.join((str(package_parent), str(checkout)))
    found = subprocess.run(
        [sys.executable, "-c", COMPARE, str(examples), *presets],
        cwd=package_parent,
        env=os.environ | {"PYTHONPATH": path, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
    )
    return found.stderr if found.returncode else ""


@pytest.mark.long
def test_the_comparison_finds_nothing_in_a_plain_copy(checkout: Path, faulty_package: Path) -> None:
    assert comparison(checkout, faulty_package, 5) == ""


@pytest.mark.long
@pytest.mark.parametrize("fault", ALL_FAULTS, ids=[fault.name for fault in ALL_FAULTS])
def test_the_comparison_finds(fault: Fault, checkout: Path, faulty_package: Path) -> None:
    source = faulty_package / "pagealloc_model" / "allocator" / f"{fault.module}.py"
    text = source.read_text()
    assert text.count(fault.right) == 1, f"{fault.module}.py does not have this line once"
    source.write_text(text.replace(fault.right, fault.wrong))
    complaint = comparison(checkout, faulty_package, EXAMPLES, fault.presets)
    assert complaint, "nothing was noticed"
    assert "SyntaxError" not in complaint
    assert "NameError" not in complaint


@pytest.mark.parametrize("fault", ALL_FAULTS, ids=[fault.name for fault in ALL_FAULTS])
def test_the_fault_still_fits_the_source(fault: Fault, checkout: Path) -> None:
    source = checkout / "pagealloc_model" / "allocator" / f"{fault.module}.py"
    assert source.read_text().count(fault.right) == 1
