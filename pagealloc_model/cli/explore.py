"""`pagealloc explore`: the explorer of a recording in the browser, without Jupyter's interface."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from pagealloc_model.cli.arguments import Commands, add_command, add_recording
from pagealloc_model.cli.lab import has_browser

PORT = 8866
LAST_PORT = 65535


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "explore",
        summary="open the explorer of a recording as a page in the browser",
        example="pagealloc explore kbuild",
        more="The page is served on this machine alone and asks for the token in its address.\n"
        "Needs Voila: pip install '.[explore]' in the checkout.",
    )
    add_recording(parser)
    parser.add_argument(
        "--state", metavar="FILE", type=Path, help='begin where "Save state" wrote this file'
    )
    parser.add_argument(
        "--port", type=_port, default=PORT, help=f"to listen on, or a free one after it ({PORT})"
    )
    parser.add_argument("--no-browser", action="store_true", help="print the address only")
    parser.add_argument("--dark", action="store_true", help="light words and lines on a dark page")
    parser.set_defaults(run=run)


def _port(text: str) -> int:
    """`--port`, checked before anything is read: a server waits for ever at others."""
    if not text.isdecimal() or not 1 <= int(text) <= LAST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; give 1 to {LAST_PORT}")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Serve the page until interrupted."""
    from pagealloc_model.notebook.served import DARK, LIGHT, serve
    from pagealloc_model.notebook.widgets.explore.question import read_question
    from pagealloc_model.notebook.widgets.explore.tabs import TABS
    from pagealloc_model.recording.recording import open_recording

    recording = open_recording(options.path)
    names = [tab.name for tab in TABS]
    state = read_question(options.state, names).as_json() if options.state else ""
    serve(
        str(recording.path.resolve()),
        state,
        options.port,
        browser=has_browser() and not options.no_browser,
        theme=DARK if options.dark else LIGHT,
        tell=partial(print, flush=True),
    )
    return 0
