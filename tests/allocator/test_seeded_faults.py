"""Faults put into the kernels one at a time: the comparison with the oracle must find each."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.allocator.faults import FAULTS, Fault, module_source
from tests.oracle import RULES

EXAMPLES = 100  # scenarios to find a fault in

TIMEOUT_S = 60
"""CPU time of one scenario, mostly a second or two: a fault that makes a kernel run forever is
found too."""

STEPS = {"literal": 200, "elastic": 100}  # steps of a scenario

COMPARE = f"""
import signal
import sys
from tests.allocator.agreement import assert_agreement
from tests.oracle.elastic_scenarios import ELASTIC, random_of_kind


def no_end(*_):
    raise TimeoutError("no end within {TIMEOUT_S} s")


signal.signal(signal.SIGVTALRM, no_end)
first, count, kinds, *presets = sys.argv[1:]
scenarios = [(kind, number) for number in range(int(count)) for kind in kinds.split(",")]
if first:
    kind, number = first.split()
    scenarios.insert(0, (kind, int(number)))
for kind, number in scenarios:
    signal.setitimer(signal.ITIMER_VIRTUAL, {TIMEOUT_S})
    steps = {STEPS}["elastic" if kind in ELASTIC else "literal"]
    print("?", kind, number, flush=True)
    assert_agreement(random_of_kind(kind, number, steps, presets))
"""


SOUGHT = FAULTS if os.environ.get("PAGEALLOC_ALL_FAULTS") else FAULTS[::3]
"""Faults that are put in: each third, as all of them take more than an hour of CPU time."""


def copied_package(checkout: Path, parent: Path) -> Path:
    ignored = shutil.ignore_patterns("__py*")
    return Path(
        shutil.copytree(checkout / "pagealloc_model", parent / "pagealloc_model", ignore=ignored)
    )


def comparison(
    checkout: Path,
    package_parent: Path,
    examples: int,
    presets: Sequence[str] = tuple(RULES),
    kinds: Sequence[str] = ("small", "nodes", "ownership"),
    first: str = "",
) -> str:
    """Run the comparison with the oracle on a copy.

    Returns:
        The scenario that it stopped in, as `faults.txt` has it, and its complaint; "" if there is
        none.
    """
    path = os.pathsep.join((str(package_parent), str(checkout)))
    found = subprocess.run(
        [sys.executable, "-c", COMPARE, first, str(examples), ",".join(kinds), *presets],
        cwd=package_parent,
        env=os.environ | {"PYTHONPATH": path, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
    )
    return found.stdout[found.stdout.rfind("?") :] + found.stderr if found.returncode else ""


@pytest.mark.long
def test_the_comparison_finds_nothing_in_a_plain_copy(checkout: Path, tmp_path: Path) -> None:
    copied_package(checkout, tmp_path)
    assert comparison(checkout, tmp_path, 5) == ""


@pytest.fixture(scope="module")
def complaints(
    request: pytest.FixtureRequest, checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[str]]]:
    """The comparison's complaint about each fault that a test asks for, on every CPU at once."""
    asked = [
        item.callspec.params["fault"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and "complaints" in item.fixturenames
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {
            fault.name: pool.submit(complaint_about, fault, checkout, tmp_path_factory.mktemp("p"))
            for fault in asked
        }


def complaint_about(fault: Fault, checkout: Path, parent: Path) -> str:
    """What the comparison says of a copy of the package with a fault in it."""
    package = copied_package(checkout, parent)
    source = module_source(package, fault.module)
    text = source.read_text()
    if text.count(fault.right) != 1:
        return "SyntaxError: the line is not there once"
    source.write_text(text.replace(fault.right, fault.wrong))
    return comparison(checkout, parent, EXAMPLES, fault.presets, fault.scenarios, fault.first)


@pytest.mark.long
@pytest.mark.parametrize("fault", SOUGHT, ids=[fault.name for fault in SOUGHT])
def test_the_comparison_finds(fault: Fault, complaints: dict[str, Future[str]]) -> None:
    complaint = complaints[fault.name].result()
    assert complaint, "nothing was noticed"
    assert "SyntaxError" not in complaint
    assert "NameError" not in complaint


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_the_fault_still_fits_the_source(fault: Fault, checkout: Path) -> None:
    """Its text is there once, and what stands in its place is Python."""
    source = module_source(checkout / "pagealloc_model", fault.module).read_text()
    assert source.count(fault.right) == 1
    compile(source.replace(fault.right, fault.wrong), fault.module, "exec")
