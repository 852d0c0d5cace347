"""`pagealloc notebook`: a study run headless on any recording."""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.cli.arguments import Commands, add_command
from pagealloc_model.cli.lab import shipped_notebooks
from pagealloc_model.cli.output import new_directory


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "notebook",
        summary="run a notebook on a recording and write all that it shows into a directory",
        example="pagealloc notebook 00_start_here --recording kbuild -o study",
        more="Writes the executed notebook; an HTML file with live figures that needs no network; "
        "all\nfigures as PNG, SVG and PDF (needs Chromium); and post.txt, text for a mail.",
    )
    parser.add_argument("name", metavar="NAME", help="such as 01_highatomic, or an .ipynb file")
    parser.add_argument(
        "--recording", metavar="PATH", help="takes the place of the one its first cell names"
    )
    parser.add_argument(
        "--parameter",
        dest="parameters",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="another value of its first cell; may be repeated",
    )
    parser.add_argument(
        "-o",
        dest="directory",
        metavar="DIR",
        type=Path,
        required=True,
        help="written whole or not at all; must not exist, or be empty",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the notebook and say what was written."""
    notebook = find_notebook(options.name)
    parameters = dict(_parameter(words) for words in options.parameters)
    if options.recording:
        parameters["recording"] = _usable_recording(options.recording)
    from pagealloc_model.notebook.headless.study import write_study

    with new_directory(options.directory) as partial:
        study = write_study(notebook, parameters, partial)
    print(f"{options.directory}: {count_of(study.figures, 'figure')}")
    for file in study.files:
        print(f"  {file}")
    if study.not_written:
        print(f"pagealloc: {study.not_written}; the HTML file has all figures", file=sys.stderr)
    return 0


def find_notebook(name: str) -> Path:
    """A notebook by its file, its name, or the number it begins with.

    Raises:
        UsageError: there is none.
    """
    if Path(name).suffix == ".ipynb" and Path(name).is_file():
        return Path(name)
    shipped = sorted(shipped_notebooks().glob("*.ipynb"))
    for path in shipped:
        if name in (path.stem, path.name, path.stem.partition("_")[0]):
            return path
    known = ", ".join(path.stem for path in shipped)
    raise UsageError(f"no notebook {name!r}; give a file or one of {known}")


def _usable_recording(path: str) -> str:
    """The path as the notebook's process understands it too; refused before anything runs."""
    from pagealloc_model.recording.recording import open_recording

    open_recording(path)
    return str(Path(path).expanduser().absolute()) if Path(path).expanduser().exists() else path


def _parameter(words: str) -> tuple[str, object]:
    name, equals, text = words.partition("=")
    if not equals or not name.isidentifier():
        raise UsageError(f"--parameter {words}: write NAME=VALUE")
    try:
        return name, ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return name, text
