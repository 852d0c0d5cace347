"""How kernels are compiled and kept: no reference counting, no stale code."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from pytest import MonkeyPatch

from pagealloc_model.allocator.state import LISTED, make_state, place_listed
from pagealloc_model.base import jit
from pagealloc_model.base.jit import (
    kernels_directory,
)
from pagealloc_model.base.jit.compiler import InnerLibrary
from pagealloc_model.base.jit.digest import function_digest
from pagealloc_model.policy.kernel_rules import KernelRules
from tests.allocator.event_sequence import plain_digest
from tests.allocator.small_state import one_zone

COUNTS_REFERENCES = b"NRT_incref"

CALLEE = "pagealloc_model/allocator/buddy.py"
EDIT = ("list_add_tail(m.pages, m.st, lst, pfn)\n", "list_add(m.pages, m.st, lst, pfn)\n")
"""A change two calls below the entry point `place_buddies`, in another file."""

EDITS_WITHOUT_EFFECT = {
    "pagealloc_model/allocator/state.py": ("@entry\n", "# A comment.\n\n\n@entry\n"),
    "pagealloc_model/allocator/buddy.py": ('    """', '    """Edited: '),
    "pagealloc_model/allocator/pcp.py": ("wanted >> order, 2)", "wanted >> order, 3)"),
    "pagealloc_model/allocator/layout.py": ("PAGE = ", "NOT_USED = 1\nPAGE = "),
}
"""A comment, docstrings, a kernel and a constant that `place_buddies` does not reach."""

EDIT_OF_A_CONSTANT = (
    "pagealloc_model/allocator/layout.py",
    "NOWHERE, ALLOCATED, BUDDY, ON_PCP = 0, 1, 2, 3",
    "NOWHERE, ALLOCATED, BUDDY, ON_PCP = 0, 1, 3, 2",
)

PLACE_TWO_PAGES = """
import numpy as np
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import place_buddies
from pagealloc_model.base.jit import entry_fingerprint
from pagealloc_model.allocator.state import make_state
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.recording.machine import Machine, Zone

zone = Zone(
    name="Normal", start_pfn=0, spanned=512, present=512, managed=512
)
state = make_state(Machine(zones=(zone,), nr_cpus=1), KernelRules.preset("6.12"))
pfns, orders = np.array([2, 6], np.int32), np.zeros(2, np.int8)
place_buddies(state.arrays(), pfns, orders)
head = int(state.zone_region(0)[at.ZONE_LISTS + at.MOVABLE * at.LIST_WORDS + at.HEAD])
hits = sum(place_buddies.stats.cache_hits.values())
print(entry_fingerprint(place_buddies), head, hits)
"""


def machine_code(directory: Path, name: str = "*") -> list[bytes]:
    """Contents of the files in which compiled entry points are kept."""
    return [path.read_bytes() for path in directory.rglob(f"{name}.kernel")]


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_kernels_count_no_references() -> None:
    plain_digest(1)
    kept = machine_code(kernels_directory())
    assert kept
    assert all(COUNTS_REFERENCES not in code for code in kept)


def test_the_search_for_reference_counts_would_find_one(tmp_path: Path) -> None:
    program = tmp_path / "counting.py"
    program.write_text(
        "import numba, numpy\n"
        "@numba.njit(cache=True)\n"
        "def longest(array):\n"
        "    return [array, array * 2][-1]\n"
        "longest(numpy.zeros(3))\n"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_DISABLE_JIT": "0"}
    subprocess.run([sys.executable, str(program)], env=environment, check=True)
    assert any(COUNTS_REFERENCES in kept.read_bytes() for kept in tmp_path.rglob("*.nbc"))


def test_a_cache_that_cannot_be_written_moves_elsewhere(
    tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    """To one place for all processes of the user; to one for this process if that is taken."""
    blocked, temporary = tmp_path / "file", tmp_path / "temporary"
    blocked.write_text("")
    temporary.mkdir()
    monkeypatch.setenv("PAGEALLOC_CACHE", str(blocked))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    of_user = temporary / f"pagealloc_model-{os.geteuid()}"
    assert jit.kernels_directory() == of_user / "kernels"
    assert stat.S_IMODE(of_user.stat().st_mode) == 0o700
    of_user.rename(tmp_path / "elsewhere")
    of_user.symlink_to(tmp_path / "elsewhere")
    for_process = jit.kernels_directory()
    assert for_process.parent.parent == temporary
    assert for_process == jit.kernels_directory()


READ_ONLY_HOME = """
import sys
from pagealloc_model.base import jit
print(jit.kernels_directory(), jit.cache_directory())
"""


@pytest.mark.parametrize("taken", [False, True])
def test_a_process_without_a_home_leaves_no_directory_of_its_own(
    taken: bool, tmp_path: Path
) -> None:
    of_user = tmp_path / f"pagealloc_model-{os.geteuid()}"
    if taken:
        of_user.symlink_to("/")
    environment = os.environ | {"PAGEALLOC_CACHE": "/proc/self", "TMPDIR": str(tmp_path)}
    for _ in range(2):
        subprocess.run([sys.executable, "-c", READ_ONLY_HOME], env=environment, check=True)
    assert list(tmp_path.iterdir()) == [of_user]


def place_two_pages(package_parent: Path, cache: Path) -> tuple[str, int, int]:
    """Fingerprint, head of the list and cache hits of a copy of the package, in a new process."""
    found = subprocess.run(
        [sys.executable, "-c", PLACE_TWO_PAGES],
        cwd=package_parent,
        env=os.environ
        | {
            "PYTHONPATH": str(package_parent),
            "PAGEALLOC_CACHE": str(cache),
            "NUMBA_DISABLE_JIT": "0",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    fingerprint, head, hits = found.stdout.split()
    return fingerprint, int(head), int(hits)


def edit(package_parent: Path, file: str, before: str, after: str) -> None:
    """Replace the first such text in a copy of the package."""
    source = (package_parent / file).read_text()
    assert before in source
    (package_parent / file).write_text(source.replace(before, after, 1))


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_an_edit_compiles_what_reaches_it_and_nothing_else(checkout: Path, tmp_path: Path) -> None:
    """The caller's code in a warm cache must not hide a change in a function it calls."""
    cache = tmp_path / "cache"
    package = tmp_path / "pagealloc_model"
    shutil.copytree(checkout / "pagealloc_model", package, ignore=shutil.ignore_patterns("__py*"))
    fingerprint, head, hits = place_two_pages(tmp_path, cache)
    assert (head, hits) == (2, 0)
    for file, change in EDITS_WITHOUT_EFFECT.items():
        edit(tmp_path, file, *change)
    assert place_two_pages(tmp_path, cache) == (fingerprint, 2, 1)
    edit(tmp_path, CALLEE, *EDIT)
    changed, head, hits = place_two_pages(tmp_path, cache)
    assert changed != fingerprint
    assert (head, hits) == (6, 0)
    edit(tmp_path, *EDIT_OF_A_CONSTANT)
    again, _, hits = place_two_pages(tmp_path, cache)
    assert hits == 0
    assert len({fingerprint, changed, again}) == 3
    assert len(list((cache / "kernels").glob("state.place_buddies-*"))) == 3


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_a_fingerprint_reaches_all_that_is_compiled(
    tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEALLOC_CACHE", str(tmp_path))
    loop = jit.entry(place_listed.py_func)
    listed = np.zeros(0, LISTED)
    state = make_state(one_zone(), KernelRules.preset("6.12"))
    loop(state.arrays(), listed)
    library = next(iter(loop.overloads.values())).library
    compiled = {each.name for each in library._linking_libraries if isinstance(each, InnerLibrary)}
    reached: set[str] = set()

    def note(function: Any) -> str:
        reached.add(function.py_func.__qualname__)
        return ""

    function_digest(loop, note)
    assert {"list_add_tail", "order_to_pindex"} <= compiled <= reached


def one_more(value: int) -> int:
    return value + 1


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
@pytest.mark.parametrize("damage", ["emptied", "cut", "changed", "another user's"])
def test_a_file_that_cannot_be_trusted_is_made_anew(
    damage: str, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEALLOC_CACHE", str(tmp_path))
    assert jit.entry(one_more)(1) == 2
    (file,) = (tmp_path / "kernels").glob("*.kernel")
    intact = file.read_bytes()
    if damage == "another user's":
        if os.geteuid():
            pytest.skip("only root can give a file to another user")
        os.chown(file, 12345, -1)
    else:
        other = {"emptied": b"", "cut": intact[:-1], "changed": intact[:-1] + b"?"}
        file.write_bytes(other[damage])
    again = jit.entry(one_more)
    assert again(1) == 2
    assert sum(again.stats.cache_hits.values()) == 0
    assert file.stat().st_uid == os.geteuid()
    third = jit.entry(one_more)
    assert third(1) == 2
    assert sum(third.stats.cache_hits.values()) == 1


def one_less(value: int) -> int:
    return value - 1


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
@pytest.mark.parametrize("planted", ["another's code", "a link", "a directory of another user"])
def test_code_that_was_put_there_is_not_run(
    planted: str, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEALLOC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert (jit.entry(one_more)(1), jit.entry(one_less)(1)) == (2, 0)
    kernels = tmp_path / "cache" / "kernels"
    more, less = (next(kernels.glob(f"*one_{name}-*.kernel")) for name in ("more", "less"))
    if planted == "another's code":
        more.write_bytes(less.read_bytes())
    elif planted == "a link":
        content = pickle.dumps(one_less)
        (tmp_path / "of_root").write_bytes(hashlib.sha256(content).digest() + content)
        more.unlink()
        more.symlink_to(tmp_path / "of_root")
    elif os.geteuid():
        pytest.skip("only root can give a directory to another user")
    else:
        os.chown(kernels, 12345, -1)
    again = jit.entry(one_more)
    assert again(1) == 2
    assert sum(again.stats.cache_hits.values()) == 0


class Near(NamedTuple):
    """Two words of one type."""

    near: int
    far: int


class Swapped(NamedTuple):
    """The same in another order."""

    far: int
    near: int


def near_of(words: Near) -> int:
    return words.near


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_the_order_of_a_named_tuple_counts(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """For numba alone, two orders of fields of one type are the same type."""
    monkeypatch.setenv("PAGEALLOC_CACHE", str(tmp_path))
    assert jit.entry(near_of)(Near(near=1, far=2)) == 1
    Swapped.__qualname__ = Swapped.__name__ = "Near"
    monkeypatch.setitem(globals(), "Near", Swapped)
    assert jit.entry(near_of)(Swapped(near=1, far=2)) == 1
