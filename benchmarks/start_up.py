"""Import, start from the cache, compiling each entry point, and memory for each page and event.

Usage: python benchmarks/start_up.py [RECORDING]

Each time is of a process of its own, in CPU seconds (user and system) so that others on the machine
weigh less; of import and start, the best of several. Entry points are compiled into an empty cache;
Python's byte code is there before.
Beside stand the interpreter alone, numba and pandas; beside a modelled page the kernel's struct
page, beside an event its record in the recording.
"""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

import pagealloc_model as pm
from pagealloc_model.cli.compile_kernels import KERNELS

RUNS = 3
LIMIT_IMPORT_S = 1.0
LIMIT_START_S = 2.0
STRUCT_PAGE_BYTES = 64
LOOP = "event loop"
Row = dict[str, object]

_SPENT = """
import resource
usage = resource.getrusage(resource.RUSAGE_SELF)
print(usage.ru_utime + usage.ru_stime)
"""
_IMPORT = f"""
import sys
import pagealloc_model
if "numba" in sys.modules:
    sys.exit("pagealloc_model imports numba")
{_SPENT}"""
_PEER = f"""
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
{_SPENT}"""
_REPLAY = f"""
import sys
import pagealloc_model as pm
pm.replay(pm.open(sys.argv[1])).free_pages
{_SPENT}"""
_KERNEL = f"""
import sys
from pagealloc_model.cli.compile_kernels import compile_kernel
compile_kernel(sys.argv[1])
{_SPENT}"""


def measured(path: str = "kbuild") -> pd.DataFrame:
    """What, value, unit, a peer of the same run and its value, and the limit, if there is one."""
    compileall.compile_dir(Path(pm.__file__).parent, quiet=1)
    with tempfile.TemporaryDirectory(prefix="pagealloc-start-") as cache:
        numba_s = _best(_PEER, cache, "numba")
        libraries_s = _best(_PEER, cache, "numba", "pandas", "pyarrow")
        rows = [
            _row(
                "import pagealloc_model",
                _best(_IMPORT, cache),
                "s",
                ("python alone", _best(_PEER, cache)),
                LIMIT_IMPORT_S,
            )
        ]
        for name in KERNELS:
            print(f"  compiling: {name}", file=sys.stderr)
            rows.append(_row(f"compile: {name}", _seconds(_KERNEL, cache, name), "s"))
        loaded_s = _best(_KERNEL, cache, LOOP)
        rows.append(
            _row(f"{LOOP} from the cache", loaded_s, "s", ("numba", numba_s), LIMIT_START_S)
        )
        peer = ("numba, pandas, pyarrow", libraries_s)
        replay_s = _best(_REPLAY, cache, path)
        rows.append(_row("replay of a recording, kernels from the cache", replay_s, "s", peer))
    return pd.DataFrame(rows)


def memory(path: str = "kbuild") -> pd.DataFrame:
    """Bytes of a replay's arrays, by modelled page and by event."""
    recording = pm.open(path)
    run = pm.replay(recording)
    state, demand = run.final, run.demand
    kept = state.pages.nbytes + state.blocks.nbytes + state.st.nbytes
    asked = demand.events.nbytes + run.places.nbytes
    record = recording.event_file.stat().st_size / len(recording.trace)
    return pd.DataFrame(
        [
            _row(
                "memory for each modelled page",
                kept / len(state.pages),
                "bytes",
                ("struct page, x86-64", STRUCT_PAGE_BYTES),
            ),
            _row(
                "memory for each event",
                asked / len(demand.events),
                "bytes",
                ("the recording's file", record),
            ),
        ]
    )


def _row(
    what: str,
    value: float,
    unit: str,
    peer: tuple[str, float] | None = None,
    limit: float | None = None,
) -> Row:
    kept = "" if limit is None else "kept" if value <= limit else "BROKEN"
    beside, peer_value = peer or ("", None)
    row: Row = {"what": what, "value": value, "unit": unit, "beside": beside}
    return row | {"its value": peer_value, "limit": limit, "is": kept}


def _best(program: str, cache: str, *words: str) -> float:
    return min(_seconds(program, cache, *words) for _ in range(RUNS))


def _seconds(program: str, cache: str, *words: str) -> float:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PAGEALLOC_CACHE": cache,
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", program, *words]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(found.stdout)


def main() -> None:
    """Measure and print."""
    print(measured(*sys.argv[1:]).to_string(index=False, float_format="{:,.2f}".format))


if __name__ == "__main__":
    main()
