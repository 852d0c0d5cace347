"""Import, start from the cache, compiling each entry point, and memory for each page and event.

Usage: python benchmarks/start_up.py [RECORDING]

Each time is of a process of its own, in CPU seconds (user and system) so that others on the machine
weigh less; of import and start, the best of several. Entry points are compiled into an empty cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import pandas as pd

import pagealloc_model as pm
from pagealloc_model.compile_kernels import KERNELS

RUNS = 3
LIMIT_IMPORT_S = 1.0
LIMIT_START_S = 2.0
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
_KERNEL = f"""
import sys
from pagealloc_model.compile_kernels import compile_kernel
compile_kernel(sys.argv[1])
{_SPENT}"""


def measured(path: str = "kbuild") -> pd.DataFrame:
    """What, value, unit, and the limit that the value must keep, if it has one."""
    with tempfile.TemporaryDirectory(prefix="pagealloc-start-") as cache:
        rows = [
            _row("import pagealloc_model", _best(_IMPORT, cache), "s", LIMIT_IMPORT_S),
            *(_row(f"compile: {name}", _seconds(_KERNEL, cache, name), "s") for name in KERNELS),
            _row(
                "event loop from the cache", _best(_KERNEL, cache, "event loop"), "s", LIMIT_START_S
            ),
        ]
    return pd.DataFrame([*rows, *_memory(path)])


def _memory(path: str) -> list[Row]:
    """Bytes of a replay's arrays, by modelled page and by event."""
    run = pm.replay(pm.open(path))
    state, demand = run.final, run.demand
    kept = state.pages.nbytes + state.blocks.nbytes + state.st.nbytes
    asked = demand.events.nbytes + run.places.nbytes
    return [
        _row("memory for each modelled page", kept / len(state.pages), "bytes"),
        _row("memory for each event", asked / len(demand.events), "bytes"),
    ]


def _row(what: str, value: float, unit: str, limit: float | None = None) -> Row:
    kept = "" if limit is None else "kept" if value <= limit else "BROKEN"
    return {"what": what, "value": value, "unit": unit, "limit": limit, "is": kept}


def _best(program: str, cache: str, *words: str) -> float:
    return min(_seconds(program, cache, *words) for _ in range(RUNS))


def _seconds(program: str, cache: str, *words: str) -> float:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PAGEALLOC_CACHE": cache,
    }
    command = [sys.executable, "-c", program, *words]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(found.stdout)


def main() -> None:
    """Measure and print."""
    print(measured(*sys.argv[1:]).to_string(index=False, float_format="{:,.2f}".format))


if __name__ == "__main__":
    main()
