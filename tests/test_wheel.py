"""The built package holds recordings and notebooks, and works away from the checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

NOT_SOURCE = shutil.ignore_patterns(
    ".*", "build", "dist", "*.egg-info", "__pycache__", "test-artefacts", "tests", "docs"
)
BUILD = "import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"


def build(kind: str, tree: Path, into: Path) -> Path:
    """Builds a "wheel" or an "sdist" of a source tree and returns the file."""
    into.mkdir()
    command = [sys.executable, "-c", BUILD.format(kind=kind), str(into)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)
    (built,) = into.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from the unpacked sdist, so that both are tried."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = shutil.copytree(checkout, folder / "checkout", ignore=NOT_SOURCE)
    if not (tree / "data" / "kbuild").exists() or not list(tree.glob("notebooks/*.ipynb")):
        pytest.skip("this checkout has no shipped recording or no notebooks")
    sdist = build("sdist", tree, folder / "sdist")
    shutil.unpack_archive(sdist, folder / "unpacked")
    (unpacked,) = (folder / "unpacked").iterdir()
    return build("wheel", unpacked, folder / "dist")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment with the wheel, and with this one's other packages."""
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin" / "python"
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-deps"]
    subprocess.run([*install, "--python", str(python), str(wheel)], check=True)
    (site_packages,) = environment.glob("lib/python*/site-packages")
    (site_packages / "others.pth").write_text(f"{Path(pytest.__file__).parent.parent}\n")
    return environment / "bin"


def run(command: list[str | Path], empty_folder: Path) -> str:
    ran = subprocess.run(command, cwd=empty_folder, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_wheel_holds_what_the_checkout_holds(checkout: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    wanted = {"pagealloc_model/py.typed"}
    for folder, pattern in (("data", "*"), ("notebooks", "*.ipynb"), ("notebooks", "*.py")):
        wanted |= {
            f"pagealloc_model/{path.relative_to(checkout)}"
            for path in (checkout / folder).rglob(pattern)
            if path.is_file() and not any(part.startswith(".") for part in path.parts)
        }
    assert wanted <= packed
    assert not [name for name in packed if name.startswith(("tests/", "data/", "notebooks/"))]


INSTALLED = """
from importlib.resources import files
import pagealloc_model as pm
from pagealloc_model.cli import main
print(pm.__file__, len(pm.open("kbuild").trace))
print(*(path.name for path in (files("pagealloc_model") / "notebooks").iterdir()))
assert main(["post", "--reply", "highatomic"]) == 0
"""


def test_installed_package_has_recordings_notebooks_and_replies(
    checkout: Path, installed: Path, tmp_path: Path
) -> None:
    where, names, reply = run([installed / "python", "-c", INSTALLED], tmp_path).split("\n", 2)
    file, events = where.split()
    assert Path(file).is_relative_to(installed.parent)
    assert int(events) > 0
    wanted = {path.name for path in (checkout / "notebooks").glob("*.ipynb")}
    assert {name for name in names.split() if name.endswith(".ipynb")} == wanted
    assert "studies" in names.split()
    assert reply.startswith("Subject: Re: [PATCH] mm/page_alloc: skip high atomic reservation")


def test_installed_command_runs(installed: Path, tmp_path: Path) -> None:
    assert "kbuild" in run([installed / "pagealloc", "info", "kbuild"], tmp_path)
