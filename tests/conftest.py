"""Fixtures that several modules share; the order of tests, and which of them may be skipped."""

from __future__ import annotations

import gc
import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from pagealloc_model.recording.recording import RECORDINGS_VARIABLE
from tests.real_recordings import (
    KMEM,
    LOCKS,
    MONOTONIC,
    event_options,
    record_file,
    record_pipe,
)

CHECKOUT = Path(__file__).parent.parent


os.environ["PAGEALLOC_STRICT"] = "1"  # read as `predicted.page_balance` is imported, later

ALLOWED_SKIPS = CHECKOUT / ".ci" / "allowed-skips"


LONGEST = (
    *("test_every_control.py", "test_seeded_faults.py", "test_make_lab.py", "test_lab.py"),
    *("test_judge.py", "test_notebooks.py"),
)
"""Files by the time that their tests take, the longest first; the others take a minute at most."""

RUN_NOTEBOOKS = {"test_headless.py", "test_notebooks.py", "test_own_jupyter.py"}

settings.register_profile(
    "the same anywhere", derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
)
settings.load_profile("the same anywhere")
gc.set_threshold(100_000, 50, 50)  # oracles make many objects and few circles


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--random-order", metavar="SEED", help="shuffle files, and the tests of each file"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Those that take longest go first, so that two workers end at about the same time.

    Browser tests go after those that run notebooks in their own thread: Playwright keeps an event
    loop running there.
    """
    seed = config.getoption("--random-order")
    if seed is None:
        places = {name: place for place, name in enumerate(LONGEST)}
        items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))
    else:
        shuffle = random.Random(seed).shuffle
        files = sorted({item.path for item in items})
        shuffle(files)
        shuffle(items)
        items.sort(key=lambda item: files.index(item.path))
    if any(item.path.name in RUN_NOTEBOOKS for item in items):
        items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With CI=true, a skip that ALLOWED_SKIPS does not allow is a failure."""
    report = yield
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2].removeprefix("Skipped: ")  # type: ignore[index]
        if not any(re.search(pattern, reason) for pattern in allowed_skips()):
            report.outcome = "failed"
            report.longrepr = f"{ALLOWED_SKIPS} does not allow to skip this: {reason}"
    return report


def allowed_skips() -> list[str]:
    lines = ALLOWED_SKIPS.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.fixture(scope="session")
def checkout() -> Path:
    return CHECKOUT


@pytest.fixture(scope="session")
def shipped() -> Callable[[str], Path]:
    """Path of a recording in data/ by name; skips the test where it is not there."""

    def path_of(name: str) -> Path:
        path = CHECKOUT / "data" / name
        if not path.exists():
            pytest.skip(f"data/{name} is not in this checkout")
        return path

    return path_of


@pytest.fixture(scope="session")
def full_recording() -> Callable[[str], Path]:
    """Path of a full recording by name, in the folder that PAGEALLOC_RECORDINGS names."""

    def path_of(name: str) -> Path:
        folder = os.environ.get(RECORDINGS_VARIABLE)
        if not folder:
            pytest.skip(f"{RECORDINGS_VARIABLE} names no folder of full recordings")
        path = Path(folder) / name
        if not path.exists():
            pytest.skip(f"{RECORDINGS_VARIABLE} names {folder}, which has no {name}")
        return path

    return path_of


@pytest.fixture(scope="session")
def perf_command() -> str:
    """Path of the perf command; skips the test where there is none."""
    path = shutil.which("perf")
    if path is None:
        pytest.skip("the perf command is not installed (Debian: linux-perf)")
    return path


@pytest.fixture(scope="session")
def recorded(perf_command: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Page-allocator events and lock contention of a little work, in a file."""
    path = tmp_path_factory.mktemp("recorded") / "perf.data"
    return record_file(perf_command, path, *MONOTONIC, *event_options(*KMEM, *LOCKS))


@pytest.fixture(scope="session")
def piped(perf_command: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same through a pipe, with the kernel's call chains of all events."""
    path = tmp_path_factory.mktemp("piped") / "perf.data"
    return record_pipe(perf_command, path, *MONOTONIC, "-g", *event_options(*KMEM))


@pytest.fixture(scope="session")
def lossy(perf_command: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording with buffers far too small."""
    path = tmp_path_factory.mktemp("lossy") / "perf.data"
    return record_file(perf_command, path, "-a", "-m", "1", *event_options(*KMEM))


@pytest.fixture(scope="session")
def recording_machine(perf_command: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips the test where perf cannot record the page allocator of this machine."""
    output = tmp_path_factory.mktemp("trial") / "perf.data"
    command = [perf_command, "record", "-a", "-e", "kmem:mm_page_alloc", "-o", str(output)]
    tried = subprocess.run([*command, "--", "true"], capture_output=True, check=False, timeout=60)
    if os.geteuid() != 0 or tried.returncode:
        pytest.skip("perf cannot record this machine (needs root and tracepoints)")
