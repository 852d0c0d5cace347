"""A JupyterLab of its own, with the notebooks in a scratch folder, and Chromium to drive it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

TOKEN = "browser-test"
SERVER_START_S = 60
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},
}


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A running JupyterLab.

    Attributes:
        address: of the server.
        root: folder it serves.
    """

    address: str
    root: Path

    def url_of(self, notebook: str) -> str:
        """Address that opens a notebook in a fresh workspace."""
        return f"{self.address}/lab/tree/{notebook}?reset&token={TOKEN}"


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
    address = f"http://127.0.0.1:{_free_port()}"
    with (home / "server.log").open("w") as log:
        server = subprocess.Popen(
            _command(root, address), env=_environment(checkout, home), stdout=log, stderr=log
        )
    try:
        _wait_for(address, server, home / "server.log")
        yield Lab(address=address, root=root)
    finally:
        server.terminate()
        server.wait()


def _command(root: Path, address: str) -> list[str]:
    return [
        *(sys.executable, "-m", "jupyterlab"),
        *("--allow-root", "--no-browser", "--ip=127.0.0.1"),
        f"--port={address.rpartition(':')[2]}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={TOKEN}",
        str(root),
    ]


def _environment(checkout: Path, home: Path) -> dict[str, str]:
    settings = home / "settings"
    for name, values in SETTINGS.items():
        file = settings / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    return {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
        "PYTHONPATH": str(checkout),
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SERVER_START_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(f"{address}/api/status?token={TOKEN}", timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")
