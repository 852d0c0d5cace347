"""perf's Python module: where it is, what it can do, and what to do where there is none."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from pagealloc_model.base.errors import UsageError

_DISTRIBUTION_PLACES = (
    "/usr/lib/python3/dist-packages",
    "/usr/lib64/python{0}.{1}/site-packages",
    "/usr/lib/python{0}.{1}/site-packages",
)
_WHATEVER_ITS_VERSION = "/usr/lib*/python3*/*-packages/perf.cpython-*.so"
_TODO = "install Debian's linux-perf for its Python, or run: make perf-python"
_ANSWER_TIMEOUT_S = 30


@dataclass(frozen=True, kw_only=True)
class PerfPythonState:
    """What of perf's Python can be used here.

    Attributes:
        module: file of the importable module, "" if there is none for this Python.
        live: how it samples: "parse_events" (kernels after 6.12), "evsel", or "" without it.
        reads_files: whether it reads recordings (`perf.session`).
        embedded: whether the perf command runs Python scripts.
        lacking: what is not there and how to get it, one line; "" if the module is there.
    """

    module: str
    live: str
    reads_files: bool
    embedded: bool
    lacking: str

    @property
    def line(self) -> str:
        """The same in one line to print."""
        scripts = f"perf script -s {'runs' if self.embedded else 'does not run'} Python"
        if not self.module:
            return f"{self.lacking}; {scripts}"
        files = "live and from files" if self.reads_files else "live only"
        return f"{self.module} ({self.live}, {files}); {scripts}"


def perf_python_state() -> PerfPythonState:
    """What of perf's Python can be used here; recordings are read without any of it."""
    try:
        module = load_perf_module()
    except UsageError as error:
        return PerfPythonState(
            module="", live="", reads_files=False, embedded=runs_scripts(), lacking=str(error)
        )
    return PerfPythonState(
        module=str(module.__file__),
        live="parse_events" if hasattr(module, "parse_events") else "evsel",
        reads_files=hasattr(module, "session"),
        embedded=runs_scripts(),
        lacking="",
    )


@cache
def load_perf_module() -> ModuleType:
    """The module: this environment's own, else the distribution's if it fits this Python.

    Raises:
        UsageError: there is none, or it cannot be loaded; the text says what to do.
    """
    problem = ""
    for spec in _candidates():
        try:
            module = importlib.util.module_from_spec(spec)
            assert spec.loader is not None
            spec.loader.exec_module(module)
        except ImportError as error:
            problem = f"{spec.origin} cannot be loaded ({error})"
            continue
        if hasattr(module, "evlist"):
            return module
    raise UsageError(f"{problem or _nothing_found()}; {_TODO}")


def _candidates() -> Iterator[importlib.machinery.ModuleSpec]:
    own = importlib.util.find_spec("perf")
    if own is not None and own.loader is not None:
        yield own
    name = f"perf{sysconfig.get_config_var('EXT_SUFFIX')}"
    for place in _DISTRIBUTION_PLACES:
        file = Path(place.format(*sys.version_info)) / name
        if file.is_file():
            spec = importlib.util.spec_from_file_location("perf", file)
            assert spec is not None
            yield spec


def _nothing_found() -> str:
    this = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    for file in Path("/").glob(_WHATEVER_ITS_VERSION[1:]):
        tag = re.search(r"cpython-(\d)(\d+)", file.name)
        if tag:
            return f"perf's Python module is for Python {tag[1]}.{tag[2]} ({file}), not for {this}"
    return f"no Python module of perf for {this}"


def runs_scripts() -> bool:
    """Whether the perf command on PATH was built with Python."""
    path = shutil.which("perf")
    if path is None:
        return False
    try:
        answer = subprocess.run(
            [path, "version", "--build-options"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_ANSWER_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return re.search(r"^\s*libpython: \[ on", answer.stdout, re.MULTILINE) is not None
