"""`pagealloc lab`: JupyterLab on the notebooks."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import webbrowser
from pathlib import Path
from typing import NoReturn

from pagealloc_model.base.errors import UsageError
from pagealloc_model.cli.arguments import Commands, add_command

FIRST_NOTEBOOK = "00_start_here.ipynb"


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "lab",
        summary="open the notebooks in JupyterLab",
        example="pagealloc lab -- --port 8889 --no-browser",
        more="Notebooks that cannot be written where they are installed are copied to ./notebooks.",
    )
    parser.add_argument(
        "jupyter_arguments", metavar="JUPYTER ARGS", nargs="*", help="passed to jupyter lab"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> NoReturn:
    """Become JupyterLab, so that Ctrl-C and the exit code are its own."""
    stray = next((word for word in options.jupyter_arguments[:1] if not word.startswith("-")), None)
    if stray is not None:
        raise UsageError(f"lab takes no {stray!r}; write JupyterLab's own options after --")
    notebooks = writable_notebooks(Path.cwd())
    command = lab_command(notebooks / FIRST_NOTEBOOK, options.jupyter_arguments)
    os.execv(command[0], command)


def lab_command(notebook: Path, arguments: list[str]) -> list[str]:
    """The command line that opens a notebook, with what this user and machine need."""
    command = [sys.executable, "-m", "jupyterlab", str(notebook)]
    if os.geteuid() == 0:
        command.append("--allow-root")
    if not has_browser():
        command.append("--no-browser")
    return [*command, *arguments]


def has_browser() -> bool:
    """Whether Python can open a browser here."""
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def shipped_notebooks() -> Path:
    """Where the notebooks that come with the package are.

    Raises:
        UsageError: they were left out of this installation.
    """
    package = Path(__file__).parent.parent
    for directory in (package / "notebooks", package.parent / "notebooks"):
        if (directory / FIRST_NOTEBOOK).is_file():
            return directory
    raise UsageError(f"{package}: this installation has no notebooks; install the whole package")


def writable_notebooks(here: Path) -> Path:
    """The shipped notebooks if they belong to a checkout, else copies below `here`.

    Copies are made once: files that are there already are left as they are.
    """
    shipped = shipped_notebooks()
    in_checkout = (shipped.parent / "setup.cfg").is_file()
    if in_checkout and os.access(shipped, os.W_OK):
        return shipped
    copies = here / "notebooks"
    copies.mkdir(exist_ok=True)
    for notebook in sorted(shipped.glob("*.ipynb")):
        if not (copies / notebook.name).exists():
            shutil.copyfile(notebook, copies / notebook.name)
    return copies
