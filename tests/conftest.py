"""Fixtures that several test modules share: shipped and full recordings, and the perf command."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pagealloc_model.bundle import RECORDINGS_VARIABLE

CHECKOUT = Path(__file__).parent.parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browser tests go last: Playwright keeps an event loop running, which notebook tests need."""
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The top of the source tree."""
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
