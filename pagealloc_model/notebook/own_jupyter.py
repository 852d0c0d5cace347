"""The one way in which Jupyter is started: by `lab`, by `explore`, by notebooks without a person.

Its configuration, its kernel and its sockets lie in a directory of their own, which only this user
can enter and which is removed at the end. What the working directory, the user's Jupyter and the
variables of the shell would add to it is left out.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jupyter_core.paths import jupyter_config_dir
from traitlets.config import Config

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.files import remove_temporary, temporary_directory
from pagealloc_model.recording.record.children import clean_environment

KERNEL = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
"""What notebooks call the one kernel there is."""
FIRST_LINE = "import os; os.environ.pop('PYTHONSAFEPATH', None); del os"
BESIDE = "import os, sys; sys.path.append(os.getcwd()); del os, sys"
"""Run before a kernel's first cell. Modules beside a notebook come last, so that none stands in for
an installed one of the same name; but libraries try modules that are not installed."""
OVER_SOCKETS = Config({"ConnectionFileMixin": {"transport": "ipc"}})
"""Kernels talk over Unix sockets beside their connection file: any user of the machine could listen
to a port of the loopback device."""
_LONGEST_SOCKET = 107
"""Bytes of a Unix socket's path (sun_path, unix(7))."""
_BELOW = len("/voila_12345678/kernel-01234567-0123-0123-0123-0123456789ab-ipc-5")


@contextmanager
def own_jupyter(*, beside: bool = False) -> Iterator[Path]:
    """Within it, Jupyter in this process and its kernels see the installation and nothing else.

    Args:
        beside: whether notebooks may import modules of the directory that their kernel starts in.

    Yields:
        their directory; `sockets` in it is for connection files.

    Raises:
        UsageError: there is no place for the directory.
    """
    before, clean = dict(os.environ), clean_environment()
    directory = temporary_directory(_place())
    try:
        (directory / "sockets").mkdir()
        first = "; ".join((FIRST_LINE, *[BESIDE] * beside))
        _write_kernel(directory / "kernels" / KERNEL["name"], first)
        os.environ.clear()
        os.environ.update(clean)
        places = ("JUPYTER_PATH", "JUPYTER_DATA_DIR", "IPYTHONDIR")
        os.environ.update(dict.fromkeys(places, str(directory)))
        os.environ["JUPYTER_RUNTIME_DIR"] = str(directory / "sockets")
        # Jupyter then reads one directory of configuration, which it makes itself, empty
        os.environ["JUPYTER_NO_CONFIG"] = "1"
        try:
            yield directory
        finally:
            shutil.rmtree(jupyter_config_dir(), ignore_errors=True)
            os.environ.clear()
            os.environ.update(before)
    finally:
        remove_temporary(directory)


def _place() -> str:
    """A directory for temporary ones in which paths of sockets are short enough."""
    for place in (tempfile.gettempdir(), "/tmp"):
        longest = os.path.join(os.path.abspath(place), "pagealloc.12345678") + _BELOW * "x"
        if len(os.fsencode(longest)) <= _LONGEST_SOCKET and os.access(place, os.W_OK | os.X_OK):
            return place
    raise UsageError(
        f"{tempfile.gettempdir()}: too long a path for the sockets of Jupyter's kernels; "
        "set TMPDIR to a directory with a shorter one"
    )


def _write_kernel(directory: Path, first: str) -> None:
    """This Python as the kernel of notebooks, and a line to run first."""
    directory.mkdir(parents=True)
    command = [sys.executable, "-P", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    command.append(f"--IPKernelApp.exec_lines={first}")
    about = {name: KERNEL[name] for name in ("display_name", "language")}
    # the debugger would listen at a port of the loopback device
    about |= {"argv": command, "metadata": {"debugger": False}}
    (directory / "kernel.json").write_text(json.dumps(about), encoding="utf-8")
