"""Commands that open pages and notebooks, and the benchmarks."""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import webbrowser
from functools import partial
from pathlib import Path

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.files import is_given, new_directory
from pagealloc_model.base.text import count_of
from pagealloc_model.cli.arguments import (
    Commands,
    add_command,
    add_json,
    add_recording,
    whole_number,
)


def add_explore(commands: Commands) -> None:
    """Add `pagealloc explore`."""
    parser = add_command(
        commands,
        "explore",
        run_explore,
        "open the explorer of a recording as a page in the browser",
        example="pagealloc explore kbuild",
        more="""
        The page is served on this machine alone and asks for the token in its address.
        Needs Voila: pip install '.[explore]' in the checkout.
        """,
    )
    add_recording(parser)
    parser.add_argument(
        "--state", type=Path, metavar="FILE", help='begin where "Save state" wrote this file'
    )
    parser.add_argument(
        "--port",  # checked before anything is read: a server waits for ever at other ports
        type=whole_number("is no port; give 1 to 65535", 65535),
        default=8866,
        help="to listen on, or a free one after it (8866)",
    )
    parser.add_argument("--no-browser", action="store_true", help="print the address only")
    parser.add_argument("--dark", action="store_true", help="light words and lines on a dark page")


def run_explore(options: argparse.Namespace) -> int:
    """Serve the page until interrupted."""
    from pagealloc_model.notebook.explore_tabs import read_question
    from pagealloc_model.notebook.served import DARK, LIGHT, serve
    from pagealloc_model.recording.recording import open_recording

    recording = open_recording(options.path)
    serve(
        str(recording.path.resolve()),
        read_question(options.state).as_json() if options.state else "",
        options.port,
        browser=has_browser() and not options.no_browser,
        theme=DARK if options.dark else LIGHT,
        tell=partial(print, flush=True),
    )
    return 0


def add_notebook(commands: Commands) -> None:
    """Add `pagealloc notebook`."""
    parser = add_command(
        commands,
        "notebook",
        run_notebook,
        "run a notebook on a recording and write it and its figures into a directory",
        example="pagealloc notebook 00_start_here --recording kbuild -o study",
        more="""
        Writes the executed notebook; an HTML file with live figures that needs no network; all
        figures as PNG, SVG and PDF (needs Chromium); and post.txt, text for a mail.
        """,
    )
    parser.add_argument("name", metavar="NAME", help="such as 01_highatomic, or an .ipynb file")
    parser.add_argument(
        "--recording", metavar="PATH", help="takes the place of the one its first cell names"
    )
    parser.add_argument(
        "--parameter",
        dest="parameters",
        action="append",
        metavar="NAME=VALUE",
        default=[],
        help="another value of its first cell; may be repeated",
    )
    parser.add_argument(
        "-o",
        dest="directory",
        type=Path,
        metavar="DIR",
        required=True,
        help="written whole or not at all; must not exist, or be empty",
    )


def run_notebook(options: argparse.Namespace) -> int:
    """Run the notebook and say what was written."""
    from pagealloc_model.recording.recording import open_recording

    notebook = find_notebook(options.name)
    parameters: dict[str, object] = {}
    for words in options.parameters:
        name, equals, text = words.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--parameter {words}: write NAME=VALUE")
        try:
            parameters[name] = ast.literal_eval(text)
        except (SyntaxError, ValueError):
            parameters[name] = text
    if options.recording:
        open_recording(options.recording)  # refused before anything runs
        path = Path(options.recording).expanduser()
        # as the notebook's process understands it too
        parameters["recording"] = str(path.absolute()) if path.exists() else options.recording
    from pagealloc_model.notebook.headless import write_study

    with new_directory(options.directory) as unfinished:
        study = write_study(notebook, parameters, unfinished)
    print(f"{options.directory}: {count_of(study.figures, 'figure')}")
    for file in study.files:
        print(f"  {file}")
    if study.not_written:
        print(f"pagealloc: {study.not_written}; the HTML file has all figures", file=sys.stderr)
    return 0


def find_notebook(name: str) -> Path:
    """A notebook by its file, its name, or the number it begins with."""
    if Path(name).suffix == ".ipynb" and Path(name).is_file():
        return Path(name)
    shipped = sorted(shipped_notebooks().glob("*.ipynb"))
    for path in shipped:
        if name in (path.stem, path.name, path.stem.partition("_")[0]):
            return path
    known = ", ".join(path.stem for path in shipped)
    raise UsageError(f"no notebook {name!r}; give a file or one of {known}")


FIRST_NOTEBOOK = "00_start_here.ipynb"


def add_lab(commands: Commands) -> None:
    """Add `pagealloc lab`."""
    parser = add_command(
        commands,
        "lab",
        run_lab,
        "open the notebooks in JupyterLab",
        example="pagealloc lab -- --port 8889 --no-browser",
        more="Notebooks that cannot be written where they are installed are copied to ./notebooks.",
    )
    parser.add_argument(
        "jupyter_arguments", nargs="*", metavar="JUPYTER ARGS", help="passed to jupyter lab"
    )


def run_lab(options: argparse.Namespace) -> int:
    """Serve the notebooks until interrupted."""
    stray = next((word for word in options.jupyter_arguments[:1] if not word.startswith("-")), None)
    if stray is not None:
        raise UsageError(f"lab takes no {stray!r}; write JupyterLab's own options after --")
    from pagealloc_model.notebook.lab import open_lab

    notebooks = writable_notebooks(Path.cwd())
    machine = ["--allow-root"] * (os.geteuid() == 0) + ["--no-browser"] * (not has_browser())
    open_lab(
        notebooks / FIRST_NOTEBOOK,
        [*machine, *options.jupyter_arguments],
        keeps_outputs=not is_checkout(notebooks.parent),
    )
    return 0


def has_browser() -> bool:
    """True if Python can open a browser here."""
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def shipped_notebooks() -> Path:
    """The directory of the notebooks that come with the package."""
    package = Path(__file__).parent.parent
    for directory in (package / "notebooks", package.parent / "notebooks"):
        if (directory / FIRST_NOTEBOOK).is_file():
            return directory
    raise UsageError(f"{package}: this installation has no notebooks; install the whole package")


def is_checkout(directory: Path) -> bool:
    """True for the sources, False for what is installed."""
    return (directory / "setup.cfg").is_file()


def writable_notebooks(here: Path) -> Path:
    """The shipped notebooks if they belong to a checkout, else copies below `here`, made once."""
    shipped = shipped_notebooks()
    if is_checkout(shipped.parent) and os.access(shipped, os.W_OK):
        return shipped
    copies = here / "notebooks"
    copies.mkdir(exist_ok=True)
    for file in sorted([*shipped.glob("*.ipynb"), *shipped.glob("*.webp")]):
        if not is_given(copies / file.name):  # a link counts, wherever it leads
            shutil.copyfile(file, copies / file.name)
    return copies


PROGRAM = Path(__file__).resolve().parent.parent.parent / "benchmarks" / "bench.py"


def add_bench(commands: Commands) -> None:
    """Add `pagealloc bench`."""
    parser = add_command(
        commands,
        "bench",
        run_bench,
        "measure the speed of each part beside other programs that do the same",
        example="pagealloc bench kbuild --only replay",
        more="Takes minutes. Needs a checkout: benchmarks/ is not part of an installed package.",
    )
    parser.add_argument("recording", nargs="?", default="kbuild", help="default: kbuild as shipped")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=("reading", "replay", "floor", "start", "memory", "slider", "sweep"),
        help="parts to measure; default all",
    )
    add_json(parser)


def run_bench(options: argparse.Namespace) -> int:
    """Run the checkout's benchmarks."""
    if not PROGRAM.exists():
        raise UsageError(
            f"no {PROGRAM}: benchmarks come with a checkout, not with an installed package; run "
            "pagealloc bench from one (make install)"
        )
    only = ["--only", *options.only] if options.only else []
    command = [sys.executable, str(PROGRAM), options.recording, *only, *["--json"] * options.json]
    return subprocess.run(command, check=False).returncode
