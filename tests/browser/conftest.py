"""Fixtures of the browser tests: JupyterLab on a copy of the notebooks, and Debian's Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.browser.jupyter_lab import REDRAW_MS, Lab, running_lab

expect.set_options(timeout=REDRAW_MS)


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """Debian's Chromium; skips the test where there is none."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed (Debian: chromium)")
    return {**browser_type_launch_args, "executable_path": chromium, "args": ["--no-sandbox"]}


@pytest.fixture(scope="session")
def browser_context_args(browser_context_args: dict[str, Any]) -> dict[str, Any]:
    """A window large enough for the figures."""
    return {**browser_context_args, "viewport": {"width": 1500, "height": 1100}}


@pytest.fixture
def context(context: BrowserContext) -> BrowserContext:
    """Patient: how fast a page is drawn is the machine's business."""
    context.set_default_timeout(REDRAW_MS)
    return context


@pytest.fixture(scope="session")
def artefacts(checkout: Path) -> Path:
    """Folder for screenshots."""
    folder = checkout / "test-artefacts"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def lab(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab on a copy of the notebooks, with settings of its own."""
    home = tmp_path_factory.mktemp("jupyter")
    root = home / "root"
    shutil.copytree(checkout / "notebooks", root)
    with running_lab(home, root) as lab:
        yield lab
