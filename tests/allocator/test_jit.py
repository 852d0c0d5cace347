"""How kernels are compiled and kept: no reference counting, no stale code."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from pagealloc_model.base import jit
from pagealloc_model.base.jit import cache_directory, kernel_fingerprint
from tests.allocator.event_sequence import plain_digest

COUNTS_REFERENCES = b"NRT_incref"

CALLEE = "pagealloc_model/allocator/core/buddy.py"
EDIT = ("push_tail(pages, st, lst, pfn)\n", "push_head(pages, st, lst, pfn)\n")
"""A change two calls below the entry point `place_buddies`, in another file."""

PLACE_TWO_PAGES = """
import numpy as np
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.core.initial import place_buddies
from pagealloc_model.base.jit import kernel_fingerprint
from pagealloc_model.allocator.core.state import make_state
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.machine import Machine, Zone

zone = Zone(
    name="Normal", start_pfn=0, spanned=512, present=512, managed=512, min=0, low=0, high=0
)
state = make_state(Machine(zones=(zone,), nr_cpus=1), KernelRules.preset("6.12"))
pfns, orders = np.array([2, 6], np.int32), np.zeros(2, np.int8)
place_buddies(state.pages, state.blocks, state.st, pfns, orders)
head = int(state.zone_region(0)[at.ZONE_LISTS + at.MOVABLE * at.LIST_WORDS + at.HEAD])
hits = sum(place_buddies.stats.cache_hits.values())
print(kernel_fingerprint(), head, hits)
"""


def machine_code(directory: Path, name: str = "*") -> list[bytes]:
    """Contents of the files in which numba keeps compiled functions."""
    return [path.read_bytes() for path in directory.rglob(f"{name}.nbc")]


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_kernels_count_no_references() -> None:
    plain_digest(1)
    kept = machine_code(cache_directory(), "replay.advance*")
    assert kept
    assert all(COUNTS_REFERENCES not in code for code in machine_code(cache_directory()))


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
    assert any(COUNTS_REFERENCES in code for code in machine_code(tmp_path))


def test_kernels_are_kept_under_their_fingerprint() -> None:
    assert cache_directory().name == f"kernels-{kernel_fingerprint()}"


def test_a_cache_that_cannot_be_written_moves_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("PAGEALLOC_CACHE", str(blocked))
    elsewhere = jit.cache_directory()
    assert elsewhere.is_dir()
    assert blocked not in elsewhere.parents
    elsewhere.rmdir()


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


def test_editing_a_callee_leaves_no_stale_code(checkout: Path, tmp_path: Path) -> None:
    """The caller's code in a warm cache must not hide a change in a function it calls."""
    cache = tmp_path / "cache"
    package = tmp_path / "pagealloc_model"
    shutil.copytree(checkout / "pagealloc_model", package, ignore=shutil.ignore_patterns("__py*"))
    fingerprint, head, hits = place_two_pages(tmp_path, cache)
    assert (head, hits) == (2, 0)
    assert place_two_pages(tmp_path, cache) == (fingerprint, 2, 1)
    callee = tmp_path / CALLEE
    source = callee.read_text()
    assert source.count(EDIT[0]) == 1
    callee.write_text(source.replace(*EDIT))
    changed, head, hits = place_two_pages(tmp_path, cache)
    assert changed != fingerprint
    assert (head, hits) == (6, 0)
    assert len(list(cache.glob("kernels-*"))) == 2
