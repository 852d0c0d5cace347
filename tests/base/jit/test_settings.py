"""numba by itself, with public options only, compiles the kernels to the same results."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")

SMALL = """
import hashlib, sys
import numba
if len(sys.argv) > 1:
    numba.__version__ = sys.argv[1]
import numpy as np
import pagealloc_model as pm
from pagealloc_model.base import jit
from pagealloc_model.allocator.state import (LISTED, place_buddies, place_listed)
from pagealloc_model.allocator.state import make_state
from pagealloc_model.recording.machine import Machine, Zone

size = 4096
zone = Zone(
    name="Normal", start_pfn=0, spanned=size, present=size, managed=size
)
state = make_state(Machine(zones=(zone,), nr_cpus=1), pm.KernelRules.preset("6.12"))
state.blocks["migratetype"] = 1
arrays = (state.pages, state.blocks, state.st)
pfns = np.arange(0, 1024, 4, dtype=np.int32)
place_buddies(state.arrays(), pfns, (pfns // 4 % 3).astype(np.int8))
listed = np.zeros(9, LISTED)
listed["pfn"], listed["migratetype"] = np.arange(2048, 2057), np.arange(9) % 3
place_listed(state.arrays(), listed)
digest = hashlib.sha256()
for array in arrays:
    digest.update(array.tobytes())
print(jit.PLAIN, digest.hexdigest())
"""

REPLAY = """
import hashlib, sys
import pagealloc_model as pm
from pagealloc_model.base import jit

run = pm.replay(pm.open(sys.argv[1]))
digest = hashlib.sha256()
samples = vars(run.samples).values()
final = (run.final.pages, run.final.blocks, run.final.st)
for array in (*final, run.log, run.places, *samples):
    digest.update(array.tobytes())
print(jit.PLAIN, digest.hexdigest())
"""


def outcome(
    program: str, cache: Path | None, *arguments: str, plain: bool
) -> tuple[bool, str, str]:
    """Whether numba compiled in its own way, a hash of the outcome, and what was warned."""
    settings = {"PAGEALLOC_PLAIN_NUMBA": "1" if plain else ""}
    if cache is not None:
        settings["PAGEALLOC_CACHE"] = str(cache)
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=True,
    )
    was_plain, digest = done.stdout.split()
    return was_plain == "True", digest, done.stderr


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A cache, and the outcome where kernels are compiled to it as usual."""
    cache = tmp_path_factory.mktemp("cache")
    is_plain, expected, _ = outcome(SMALL, cache, plain=False)
    assert not is_plain
    return cache, expected


def test_small_kernels_do_the_same_either_way(usual: tuple[Path, str]) -> None:
    cache, expected = usual
    assert outcome(SMALL, cache, plain=True) == (True, expected, "")
    assert not list((cache / "kernels").glob("*/*plain*"))
    assert list(cache.glob("kernels-*/plain/*/*.nbc"))


def test_another_numba_compiles_in_its_own_way_and_says_so(
    usual: tuple[Path, str], tmp_path: Path
) -> None:
    is_plain, found, warned = outcome(SMALL, tmp_path, "0.99.1", plain=False)
    assert (is_plain, found) == (True, usual[1])
    assert warned.count("RuntimeWarning: numba 0.99.1 is none of 0.64, ") == 1


@pytest.mark.long
def test_a_replay_ends_the_same_either_way() -> None:
    """Final state, log, places and samples, to the byte; compiling takes minutes."""
    _, expected, _ = outcome(REPLAY, None, "xfree", plain=False)
    assert outcome(REPLAY, None, "xfree", plain=True)[:2] == (True, expected)


IMPORTS = """
import sys
from importlib import import_module
import_module(sys.argv[1])
from numba.core import config
from pagealloc_model.base.jit import entry
config.reload_config()
print(config.DEVELOPER_MODE)
"""


@pytest.mark.parametrize(
    "module", ["allocator.events", "recording.trace.walk", "sweeps.records", "kernel_source.build"]
)
@pytest.mark.parametrize("settings", ["- no settings\n", "developer_mode: 1\n"])
def test_numba_takes_no_settings_from_the_working_directory(
    module: str, settings: str, tmp_path: Path
) -> None:
    (tmp_path / ".numba_config.yaml").write_text(settings)
    done = subprocess.run(
        [sys.executable, "-P", "-c", IMPORTS, f"pagealloc_model.{module}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "0\n"
