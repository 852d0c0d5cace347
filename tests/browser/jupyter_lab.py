"""A JupyterLab of its own on a folder of notebooks, and what to do with it in a browser."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import ConsoleMessage, Page, expect

TOKEN = "browser-test"
SERVER_START_S = 60
START_MS, RUN_ALL_MS, REDRAW_MS = 60_000, 300_000, 60_000
LATE = "[anywidget] Failed to initialize model."
"""Said of a model that takes more than two seconds to start on a busy machine. `PageWidget` serves
it all the same, and tests look at what is drawn."""
SETTINGS = {"notebook-extension/tracker": {"windowingMode": "none"}}
PROGRAM = """
import sys
from pathlib import Path
from pagealloc_model.notebook.lab import open_lab
open_lab(Path(sys.argv[1]), sys.argv[2:], keeps_outputs=True)
"""


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


@contextmanager
def running_lab(home: Path, root: Path) -> Iterator[Lab]:
    """JupyterLab with settings of its own.

    Args:
        home: is there; takes settings and the server's log.
        root: folder with notebooks.

    Raises:
        RuntimeError: it did not start.
    """
    address = f"http://127.0.0.1:{_free_port()}"
    with (home / "server.log").open("w") as log:
        server = subprocess.Popen(
            _command(root, address), env=_environment(home), stdout=log, stderr=log
        )
    try:
        _wait_for(address, server, home / "server.log")
        yield Lab(address=address, root=root)
    finally:
        server.terminate()
        server.wait()


def _command(root: Path, address: str) -> list[str]:
    return [
        *(sys.executable, "-P", "-c", PROGRAM, str(root)),
        *("--allow-root", "--no-browser", "--ip=127.0.0.1"),
        f"--port={address.rpartition(':')[2]}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={TOKEN}",
    ]


def _environment(home: Path) -> dict[str, str]:
    settings = home / "settings"
    for name, values in SETTINGS.items():
        file = settings / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    return {
        **os.environ,
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
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
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")


def end_kernels(lab: Lab) -> None:
    """End all notebooks' kernels."""
    kernels = f"{lab.address}/api/kernels"
    with urllib.request.urlopen(f"{kernels}?token={TOKEN}") as answer:
        running = json.load(answer)
    for kernel in running:
        address = f"{kernels}/{kernel['id']}?token={TOKEN}"
        urllib.request.urlopen(urllib.request.Request(address, method="DELETE")).close()


def problems_of(page: Page) -> list[str]:
    """Errors that the page writes to its console from now on, but for `LATE`."""
    found: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error" and message.text != LATE:
            found.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: LATE in str(error) or found.append(str(error)))
    return found


def settled(page: Page, script: str, is_so: Callable[[Any], bool]) -> Any:
    """What a script finds in the page once it is so, else at last: a page draws when it gets to."""
    for _ in range(REDRAW_MS // 200):
        if is_so(found := page.evaluate(script)):
            break
        page.wait_for_timeout(200)
    return found


def run_all(page: Page, lab: Lab, notebook: str) -> None:
    """Open a notebook, run all its cells and wait for the last.

    Its kernel may have run it for another test, and counts on.
    """
    cells = nbformat.read(lab.root / notebook, as_version=4).cells
    code_cells = sum(cell.cell_type == "code" for cell in cells)
    page.goto(lab.url_of(notebook))
    prompts = page.locator(".jp-CodeCell .jp-InputPrompt")
    expect(prompts).to_have_count(code_cells, timeout=START_MS)
    expect(page.get_by_text("| Idle")).to_be_visible(timeout=START_MS)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    expect(prompts.last).to_have_text(re.compile(r"^\[\d+\]:$"), timeout=RUN_ALL_MS)
    assert page.locator("[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
