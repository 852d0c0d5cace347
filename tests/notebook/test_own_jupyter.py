"""Jupyter, as lab, explore and headless runs start it, against what lies where it is started."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
import zmq
from jupyter_client.blocking import BlockingKernelClient
from nbformat.v4 import new_code_cell, new_notebook, new_output

from pagealloc_model.base.errors import UsageError
from pagealloc_model.notebook.headless import executed
from pagealloc_model.notebook.own_jupyter import KERNEL, own_jupyter
from tests.small_recordings import write_recording

START = "import os\nos.environ['PYTHONPATH'] = '../path'\n"
LAB = """
import sys
from pathlib import Path
from pagealloc_model.notebook.lab import open_lab
open_lab(Path(sys.argv[1]), sys.argv[2:], keeps_outputs=False)
"""
EXPLORE = """
import sys
from pagealloc_model.notebook import served
served.UNUSED_S = 4
served.serve(sys.argv[1], "", 8866, browser=True, tell=lambda line: print(line, flush=True))
"""
PLANTED = "import pathlib; pathlib.Path({!r}).touch(); raise ImportError('planted')\n"
MODULES = ("voila", "ipykernel_launcher", "json", "gzip", "ipython_config", "jupyter_server_config")
OPTIONAL = ("numexpr", "bottleneck")
"""Modules that pandas tries, but that are not installed."""
TOKEN = "of-this-test"
ONE_WAY = ("what forked processes print, PULL",)
"""Ports that a kernel has in any case (ipykernel/iostream.py): each hears who has its key."""
WHERE = "import gzip, os, sys; print(gzip.__file__); print(sys.path[-1] == os.getcwd())"


class Running:
    """A server in a folder with planted modules, with temporary files of its own."""

    def __init__(self, process: subprocess.Popen[str], here: Path, ran: Path) -> None:
        self.process, self.here, self.ran = process, here, ran
        self.address = self.token = ""

    def get(self, path: str, *, host: str = "", **request: Any) -> Any:
        """What the server answers, as it is read from JSON where it is JSON."""
        headers = {"Authorization": f"token {self.token}"} | ({"Host": host} if host else {})
        asked = urllib.request.Request(f"{self.address}{path}", headers=headers, **request)
        with urllib.request.urlopen(asked, timeout=300) as answer:
            content = answer.read()
        return json.loads(content) if content[:1] in (b"{", b"[") else content.decode()

    def refusal(self, path: str, host: str) -> int:
        """The status of what is refused; 200 if it is not."""
        try:
            self.get(path, host=host)
        except urllib.error.HTTPError as error:
            return error.code
        return 200

    def kernels(self) -> list[psutil.Process]:
        """Processes that notebooks run in."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        return [each for each in children if "ipykernel_launcher" in each.cmdline()]

    def sockets(self) -> Path:
        """The directory of the kernels' sockets."""
        return Path(self.kernels()[-1].cmdline()[-2]).parent

    def ports(self) -> set[int]:
        """TCP ports that kernels listen on."""
        found = [each for kernel in self.kernels() for each in kernel.net_connections("tcp")]
        return {each.laddr.port for each in found if each.status == psutil.CONN_LISTEN}


@contextmanager
def running(program: str, *arguments: str, browser: str = "") -> Iterator[Running]:
    """A server, until it is ended as Ctrl-C at a closed terminal ends it: nothing of it is left."""
    top = Path(tempfile.mkdtemp(dir="/tmp"))
    ran, here, temporary = top / "ran", top / "here", top / "t"
    for folder in (here, temporary, top / "path"):
        folder.mkdir()
    for module in MODULES:
        for folder in (here, top / "path"):
            (folder / f"{module}.py").write_text(PLANTED.format(str(ran)))
    (here / "voila.json").write_text('{"Voila": {"ip": "0.0.0.0", "token": "abc"}}')
    (here / "small.ipynb").write_text(nbformat.writes(notebook()) + "\n")
    environment = os.environ | {
        "JUPYTER_CONFIG_DIR": str(here),
        "JUPYTER_PATH": str(here),
        "NODE_OPTIONS": "x",
        "TMPDIR": str(temporary),
        "BROWSER": browser,
    }
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", START + program, *arguments],
        cwd=here,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield Running(process, here, ran)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=120)
        assert list(temporary.iterdir()) == []
    finally:
        process.kill()
        shutil.rmtree(top)


def notebook() -> nbformat.NotebookNode:
    kernel = KERNEL | {"display_name": "Python 3 (ipykernel)"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    cell = new_code_cell("1 + 1", metadata={"tags": ["parameters"]}, id="cell-00")
    return new_notebook(cells=[cell], metadata=about)


@contextmanager
def new_kernel(server: Running) -> Iterator[Callable[[str], str]]:
    """What code prints in a new kernel of the server's root folder."""
    kernel = server.get("/api/kernels", data=b'{"path": ""}', method="POST")["id"]
    client = BlockingKernelClient(connection_file=str(server.sockets() / f"kernel-{kernel}.json"))
    client.load_connection_file()
    client.start_channels()
    for _ in range(100):  # one that is slow to start is taken for dead
        with suppress(RuntimeError):
            client.wait_for_ready(timeout=300)
            break

    def said(code: str) -> str:
        printed: list[str] = []

        def hear(message: dict[str, Any]) -> None:
            printed.append(message["content"].get("text", ""))

        client.execute_interactive(code, timeout=300, output_hook=hear)
        return "".join(printed)

    yield said
    client.stop_channels()


@pytest.fixture(scope="module")
def lab() -> Iterator[Running]:
    words = ["--no-browser", "--allow-root", f"--IdentityProvider.token={TOKEN}"]
    with running(LAB, "small.ipynb", *words) as server:
        assert server.process.stdout is not None
        for line in server.process.stdout:
            if found := re.search(r"(http://127\.0\.0\.1:\d+)/lab", line):
                server.address, server.token = found[1], TOKEN
            if "Use Control-C" in line:
                break
        while server.process.poll() is None:  # it listens a moment later
            with suppress(urllib.error.URLError):
                server.get("/api/status")
                break
        yield server


def test_lab_runs_none_of_the_code_beside_its_notebooks(lab: Running) -> None:
    with new_kernel(lab) as said:
        where = said(WHERE).split()
    kernel = lab.kernels()[-1]
    assert not where[0].startswith(str(lab.here))
    assert where[1] == "True", "modules of the working directory are found, last"
    assert not lab.ran.exists()
    assert "NODE_OPTIONS" not in kernel.environ()
    assert "PYTHONPATH" not in kernel.environ()
    assert kernel.environ()["PATH"] == os.environ["PATH"]


def test_nobody_else_can_hear_the_kernels_of_lab(lab: Running) -> None:
    with (
        new_kernel(lab) as said,
        zmq.Context() as context,
        context.socket(zmq.SUB) as listener,
    ):
        assert stat.S_IMODE(lab.sockets().parent.stat().st_mode) == 0o700
        listener.linger = 0
        listener.subscribe(b"")
        for port in lab.ports():
            listener.connect(f"tcp://127.0.0.1:{port}")
        listener.poll(1000)
        assert said("print('mine')") == "mine\n"
        assert not listener.poll(1000)
    assert lab.refusal("/api/status", "elsewhere.example") == 403


def test_lab_asks_nothing_over_a_notebook(lab: Running) -> None:
    news = lab.get("/lab/api/settings/@jupyterlab/apputils-extension:notification")
    assert news["schema"]["properties"]["fetchNews"]["default"] == "false"


def test_a_notebook_that_was_run_is_saved_as_it_is_committed(lab: Running) -> None:
    committed = (lab.here / "small.ipynb").read_bytes()
    ran = notebook()
    ran.cells[0].outputs = [new_output("execute_result", {"text/plain": "2"}, execution_count=7)]
    ran.cells[0].execution_count = 7
    ran.cells[0].metadata |= {"execution": {"iopub.status.idle": "now"}, "trusted": True}
    ran.metadata.language_info |= {"version": "3.99", "pygments_lexer": "ipython3"}
    ran.metadata.widgets = {"state": {}}
    model = json.dumps({"type": "notebook", "content": ran}).encode()
    lab.get("/api/contents/small.ipynb", data=model, method="PUT")
    assert (lab.here / "small.ipynb").read_bytes() == committed
    (lab.here / "mine").mkdir()
    lab.get("/api/contents/mine/small.ipynb", data=model, method="PUT")
    assert b"execute_result" in (lab.here / "mine" / "small.ipynb").read_bytes()


def test_the_explorer_is_its_users_alone(tmp_path: Path) -> None:
    pytest.importorskip("voila")
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}; cat "${{1#file://}}" >> {opened}\n')
    browser.chmod(0o700)
    recording = write_recording(tmp_path / "small")
    with running(EXPLORE, str(recording), browser=f"{browser} %s") as server:
        assert server.process.stdout is not None
        address = server.process.stdout.readline().split()[0]
        server.address, _, server.token = address.partition("/?token=")
        assert "jupyter.widget-view+json" in server.get("/"), "the page"
        assert not server.ran.exists()
        assert len(server.ports()) <= len(ONE_WAY)
        for path in ("/", f"/?token={server.token}", "/voila/files/explore.ipynb", "/login"):
            assert server.refusal(path, "elsewhere.example") == 403
        for path in ("", "lab", "lab/other/x", "none/static/x", "lab/static/../../../etc/passwd"):
            assert server.refusal(f"/voila/templates/{path}", "") == 404
        argument, content = opened.read_text().split("\n", 1)
        assert server.token not in argument, "arguments are seen by all users"
        assert address in content, "no login page is met"
        psutil.wait_procs(server.kernels(), timeout=120)
        assert server.kernels() == [], "the kernel of a page that is gone is ended"


def test_a_headless_notebook_is_its_users_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (*MODULES, *OPTIONAL):
        (tmp_path / f"{module}.py").write_text(PLANTED.format(str(tmp_path / "ran")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NODE_OPTIONS", "x")
    ports = "import psutil; print(len(psutil.Process().net_connections('tcp')))"
    code = [WHERE, ports, "print('NODE_OPTIONS' in os.environ)", "import pandas; print()"]
    path = tmp_path / "small.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell(each) for each in code]), path)
    done = executed(path, {})
    said = [cell.outputs[0].text.split() for cell in done.cells]
    assert said[0][1:] == ["False"], "a stranger's recording may lie there"
    assert said[1:] == [[str(len(ONE_WAY))], ["False"], []]
    assert not (tmp_path / "ran").exists()


def test_a_temporary_directory_that_is_too_deep_for_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with own_jupyter() as directory:
        assert directory.parent == Path("/tmp")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UsageError, match="TMPDIR"), own_jupyter():
        pass
