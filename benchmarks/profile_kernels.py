"""Where the event loop's time goes: `perf record` with the names of the kernels' functions.

Usage: python benchmarks/profile_kernels.py [RECORDING] [FIELD=VALUE ...]

Compiles the event loop anew (that is the only time its object code is at hand), tells perf the
addresses of its functions by a file /tmp/perf-PID.map, and replays while perf samples the CPU
clock, which virtual machines have too. Functions that were inlined count for those they went into;
those that are set apart (`jit.cold`) have no name here, as they are loaded elsewhere.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pagealloc_model as pm
from pagealloc_model.base.jit import kernels_directory

RUNS = 8
LINES = 14


def main(path: str = "kbuild", *settings: str) -> None:
    """Profile and print."""
    with tempfile.TemporaryDirectory(prefix="pagealloc-profile-") as made:
        kept = kernels_directory()
        shutil.copytree(
            kept, Path(made) / kept.name, ignore=shutil.ignore_patterns("events.advance-*")
        )
        os.environ["PAGEALLOC_CACHE"] = made
        samples = Path(made) / "perf.data"
        from pagealloc_model.allocator.events import advance

        recording, policy = pm.open(path), pm.Policy.parse(settings)
        pm.replay(recording, policy)
        names = Path(f"/tmp/perf-{os.getpid()}.map")
        names.write_text(_map(advance, Path(made)))
        words = ["record", "-q", "-e", "cpu-clock:u", "-F", "4999", "-o", str(samples)]
        with subprocess.Popen(["perf", *words, "-p", str(os.getpid())]) as perf:
            time.sleep(1)
            for _ in range(RUNS):
                pm.replay(recording, policy)
            perf.send_signal(signal.SIGINT)
        command = ["perf", "report", "-i", str(samples), "--stdio", "-q", "--sort", "symbol"]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        names.unlink()
    print("\n".join([line for line in report.splitlines() if line.strip()][:LINES]))


def _map(entry: object, directory: Path) -> str:
    """Lines "address size name" of all functions in an entry point's machine code."""
    compiled = next(iter(entry.overloads.values()))  # type: ignore[attr-defined]
    name = compiled.fndesc.llvm_func_name
    code = directory / "code.o"
    code.write_bytes(compiled.library._get_compiled_object())
    command = ["objdump", "-t", code]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^(\w{16}) .{6}F \.l?text\t(\w{16}) (\S+)$", printed, re.MULTILINE)
    begins = next(int(start, 16) for start, _, symbol in found if symbol == name)
    base = compiled.library.get_pointer_to_function(name) - begins
    return "".join(
        f"{base + int(start, 16):x} {int(size, 16):x} {_short(symbol)}\n"
        for start, size, symbol in found
    )


def _short(symbol: str) -> str:
    """The function's own name: the last word of numba's mangled one that has a length before it."""
    words = []
    rest = symbol.partition("_ZN")[2]
    while match := re.match(r"(\d+)", rest):
        length = int(match[1])
        words.append(rest[match.end() : match.end() + length])
        rest = rest[match.end() + length :]
    return words[-1] if words else symbol


if __name__ == "__main__":
    main(*sys.argv[1:])
