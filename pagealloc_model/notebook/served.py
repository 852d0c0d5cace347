"""The explorer as a page of a web server of its own, without Jupyter's interface."""

from __future__ import annotations

import html
import os
import secrets
import threading
import webbrowser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import nbformat
from IPython.display import clear_output
from nbformat.v4 import new_code_cell, new_notebook
from tornado.ioloop import IOLoop
from tornado.web import HTTPError

from pagealloc_model.base.errors import UsageError
from pagealloc_model.notebook.explore import RecordingExplorer, explore
from pagealloc_model.notebook.explore_tabs import Question
from pagealloc_model.notebook.own_jupyter import KERNEL, OVER_SOCKETS, own_jupyter
from pagealloc_model.recording.recording import open_recording

THEMES = (LIGHT, DARK) = ("light", "dark")
ALLOWED = (
    "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; connect-src 'self' data: blob:; "
    "frame-ancestors 'self'"
)
"""Browsers that read this load nothing from any other host, as Voila's own page would."""
UNUSED_S = 60
"""Seconds after which the kernel of a page that nobody looks at any more is ended."""


def served_explorer(path: str, state: str = "") -> RecordingExplorer:
    """The explorer of a served page, in the state of the page's address where that names one."""
    # as state_buttons.js writes it
    linked = parse_qs(os.environ.get("QUERY_STRING", "")).get("state", [state])[-1]
    recording = open_recording(path)
    if linked:
        explorer = RecordingExplorer(recording, Question.from_json(linked), served=True)
    else:
        explorer = explore(recording, served=True)
    clear_output()  # bars of progress, whose widgets are gone
    return explorer


def page_server(
    directory: Path, path: str, state: str, port: int, *, browser: bool, theme: str = LIGHT
) -> Any:
    """A server of the explorer on this machine alone; whoever has no token is turned away.

    Args:
        directory: of `own_jupyter`.
        path: the recording.
        state: as for `served_explorer`.
        port: as for `serve`.
        browser: as for `serve`.
        theme: of the page, one of THEMES.
    """
    try:
        from traitlets.config import Config
        from voila.app import Voila
        from voila.static_file_handler import TemplateStaticFileHandler
    except ImportError:
        raise UsageError(
            "explore needs Voila: pip install '.[explore]' in the checkout, or use pagealloc lab"
        ) from None
    call = f"served_explorer({path!r}, {state!r})"
    cell = new_code_cell(f"from pagealloc_model.notebook.served import served_explorer\n{call}")
    notebook = directory / "explore.ipynb"
    metadata = {"kernelspec": KERNEL, "title": f"pagealloc explore {Path(path).name}"}
    nbformat.write(new_notebook(cells=[cell], metadata=metadata), notebook)

    class Templates(TemplateStaticFileHandler):
        """Files of Voila's templates."""

        async def get(self, path: str, include_body: bool = True) -> None:
            """Serve one; of paths that name none, Voila's own handler fails."""
            try:
                await super().get(path, include_body)
            except (AssertionError, UnboundLocalError, ValueError):
                raise HTTPError(404) from None

    class Served(Voila):
        """Voila with the configuration that stands here, and none that lies in any directory."""

        def load_config_file(self, *_: Any, **__: Any) -> None:
            """Read no file."""

        def init_handlers(self) -> list[Any]:
            """Voila's, but for the one of its templates."""
            return [
                (each[0], Templates) if each[1] is TemplateStaticFileHandler else each
                for each in super().init_handlers()
            ]

        def launch_browser(self) -> None:
            """Open the page by a file that leads to it: other users see a browser's arguments."""
            way = directory / "open.html"
            way.touch(mode=0o600)
            leads = f'<meta http-equiv="refresh" content="0; url={html.escape(address(self))}">'
            way.write_text(f"<!DOCTYPE html><title>pagealloc explore</title>{leads}")
            threading.Thread(target=webbrowser.open, args=(way.as_uri(),), daemon=True).start()

    voila = {"ip": "127.0.0.1", "port": port, "open_browser": browser, "log_level": "ERROR"}
    voila["token"] = secrets.token_urlsafe(24)
    voila["connection_dir_root"] = str(directory)
    voila["tornado_settings"] = {
        "headers": {"Content-Security-Policy": ALLOWED},
        "allow_remote_access": False,  # a page elsewhere whose name leads here is refused
    }
    page = {"show_tracebacks": False, "theme": theme}
    unused = {"cull_idle_timeout": UNUSED_S, "cull_interval": UNUSED_S // 4}
    config = Config({"Voila": voila, "VoilaConfiguration": page, "MappingKernelManager": unused})
    config.merge(OVER_SOCKETS)
    server = Served(config=config)
    server.initialize([str(notebook)])
    return server


def address(server: Any) -> str:
    """Where the page is, with the token that it asks for."""
    return f"http://{server.ip}:{server.port}/?{urlencode({'token': server.token})}"


def serve(
    path: str,
    state: str,
    port: int,
    *,
    browser: bool,
    theme: str = LIGHT,
    tell: Any = print,
) -> None:
    """Serve the explorer of a recording until interrupted.

    Args:
        path: the recording.
        state: as for `served_explorer`.
        port: to listen on; another free one is taken if it is in use.
        browser: whether to open one.
        theme: of the page, one of THEMES.
        tell: called with a line that has the address, once the page is served.

    Raises:
        UsageError: Voila is not installed.
    """
    with own_jupyter() as directory:
        server = page_server(directory, path, state, port, browser=browser, theme=theme)
        # it picks its port when it starts
        IOLoop.current().add_callback(lambda: tell(f"{address(server)}  (Ctrl-C ends it)"))
        server.start()
