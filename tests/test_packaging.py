"""The files that say what the package needs and holds agree with each other and with the code."""

from __future__ import annotations

import ast
import configparser
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pagealloc_model.base.version import __version__

CONDA_TO_PYPI = {"python-kaleido": "kaleido"}
CONDA_ONLY = {"python", "pip"}
IMPORT_TO_PYPI = {
    "_pytest": "pytest",
    "IPython": "ipython",
    "markdown_it": "markdown-it-py",
    "playwright": "pytest-playwright",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
SHIPPED_WITH = {  # what a declared package is certain to bring along
    "ipython": "jupyterlab",
    "llvmlite": "numba",
    "packaging": "pytest",
    "tornado": "jupyterlab",
    "traitlets": "ipywidgets",
}


@pytest.fixture(scope="module")
def setup(checkout: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(checkout / "setup.cfg")
    return parser


BY_PIP = ("guest", "test")
"""Extras that are not among the packages from conda: drgn and virtme-ng come from PyPI."""


def requirements(lines: str | Iterable[str]) -> dict[str, Requirement]:
    """Requirements by canonical name, from lines as setup.cfg and the lock write them."""
    rows = lines.splitlines() if isinstance(lines, str) else lines
    parsed = [Requirement(row) for row in rows if row.strip() and not row.startswith("#")]
    return {canonicalize_name(requirement.name): requirement for requirement in parsed}


def declared(setup: configparser.ConfigParser, *, tests: bool) -> dict[str, Requirement]:
    """Requirements of the package with all its extras, those of `BY_PIP` among them or not."""
    found = requirements(setup["options"]["install_requires"])
    for extra, lines in setup["options.extras_require"].items():
        if tests or extra not in BY_PIP:
            found |= requirements(lines)
    return found


def conda_dependencies(checkout: Path) -> list[str | dict[str, list[str]]]:
    return yaml.safe_load((checkout / "environment.yml").read_text())["dependencies"]


def imported_names(path: Path) -> Iterator[str]:
    """Top-level names that a file imports, wherever in the file it does."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def undeclared_imports(folder: Path, known: set[str]) -> list[str]:
    own = {"pagealloc_model", "tests", "conftest", "oracle"} | {
        path.stem for path in folder.rglob("*.py")
    }
    missing = []
    for path in sorted(folder.rglob("*.py")):
        for name in sorted(set(imported_names(path)) - own - sys.stdlib_module_names):
            package = canonicalize_name(IMPORT_TO_PYPI.get(name, name))
            if SHIPPED_WITH.get(package, package) not in known:
                missing.append(f"{path.name}: {name}")
    return missing


def test_version_is_the_same_everywhere(checkout: Path, setup: configparser.ConfigParser) -> None:
    citation = yaml.safe_load((checkout / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    assert setup["metadata"]["version"] == "attr: pagealloc_model.base.version.__version__"


def test_no_module_comes_from_where_python_is_started(tmp_path: Path) -> None:
    shown = "import sys; print(*sys.path, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-P", "-c", shown],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [each for each in done.stdout.splitlines() if not Path(each).is_absolute()] == []


def test_packages_listed_are_the_packages_there(
    checkout: Path, setup: configparser.ConfigParser
) -> None:
    inside = (checkout / "pagealloc_model").rglob("*.py")
    folders = {path.parent.relative_to(checkout) for path in inside}
    notebooks = {
        path.parent.relative_to(checkout) for path in (checkout / "notebooks").rglob("*.py")
    }
    there = {*folders, *("pagealloc_model" / folder for folder in (*notebooks, Path("data")))}
    listed = set(setup["options"]["packages"].split())
    assert listed == {".".join(folder.parts) for folder in there}


def test_environment_yml_has_the_ranges_of_setup_cfg(
    checkout: Path, setup: configparser.ConfigParser
) -> None:
    rows = [row for row in conda_dependencies(checkout) if isinstance(row, str)]
    conda = {
        CONDA_TO_PYPI.get(name, name): requirement.specifier
        for name, requirement in requirements(rows).items()
        if name not in CONDA_ONLY
    }
    wanted = declared(setup, tests=False)
    assert f"python {setup['options']['python_requires']}" in rows
    assert {"pip": ["--editable .[guest]"]} in conda_dependencies(checkout)
    assert conda == {name: requirement.specifier for name, requirement in wanted.items()}


def test_lock_satisfies_setup_cfg(checkout: Path, setup: configparser.ConfigParser) -> None:
    locked = requirements((checkout / "requirements.lock").read_text())
    outside = []
    for name, requirement in declared(setup, tests=True).items():
        pins = [pin.version for pin in locked[name].specifier] if name in locked else []
        if len(pins) != 1 or not requirement.specifier.contains(pins[0]):
            outside.append(f"{requirement} is locked to {pins}")
    assert not outside, "; ".join(outside) + "; run make lock"


def test_lock_pins_exactly_and_names_no_index(checkout: Path) -> None:
    rows = (checkout / "requirements.lock").read_text().splitlines()
    assert all("==" in row for row in rows)
    assert not [row for row in rows if "://" in row or row.startswith("-")]


def test_the_notebooks_lock_has_the_versions_that_were_tested(checkout: Path) -> None:
    tested, lab = (
        (checkout / name).read_text().splitlines()
        for name in ("requirements.lock", "requirements-lab.lock")
    )
    assert {row.split(" ;")[0] for row in lab} < {row.split(" ;")[0] for row in tested}


@pytest.mark.parametrize("folder", ["pagealloc_model", "tests"])
def test_imports_are_declared_in_setup_cfg(
    checkout: Path, setup: configparser.ConfigParser, folder: str
) -> None:
    known = set(declared(setup, tests=folder == "tests"))
    known |= set(requirements(setup["options.extras_require"]["guest"]))
    assert not undeclared_imports(checkout / folder, known)


@pytest.mark.parametrize("folder", ["pagealloc_model", "clone"])
def test_a_checkout_s_parent_is_a_place_to_import_from(
    checkout: Path, tmp_path: Path, folder: str
) -> None:
    """Where Python takes a folder of the package's name for a namespace package."""
    if not Path(sys.prefix).is_relative_to(checkout):
        pytest.skip("this environment was not made by make install")
    (tmp_path / folder).symlink_to(checkout)
    code = (
        "import pagealloc_model as pm; from pagealloc_model.policy import Policy; "
        "print(pm.__version__, pm.open('kbuild').name, pm.Policy is Policy, len(pm.__path__))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.stdout.split() == [__version__, "kbuild", "True", "1"], done.stderr[-800:]
