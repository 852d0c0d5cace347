"""Fuzz the readers of recordings.

Usage: python -m tests.fuzz.run [--seconds 600] [--seed N] [--keep DIR]

Two processes work one after the other. The first interprets the kernels, so that inputs which
reach new lines of these are kept too; the second starts from what it kept, and runs the compiled
kernels with numba's bounds checks on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent.parent
REAL = CHECKOUT / "data/xfree/perf.data"
INTERPRETED = {"NUMBA_DISABLE_JIT": "1"}
_SHARE_INTERPRETED = 0.4
_START_S = 300  # seconds a worker may take to compile its kernels


@dataclass(frozen=True)
class Finished:
    """What came of a worker."""

    report: dict[str, Any]  # what it printed, empty if it died
    died: str  # how, with the last lines it wrote; "" if it did not

    def check(self) -> None:
        """Raise AssertionError if a reader did anything it must not do."""
        assert not self.died, self.died
        assert not self.report["failures"], "\n".join(self.report["failures"].values())


def bounds_checked() -> dict[str, str]:
    """Settings under which kernels check every index; they are compiled to a place of their own."""
    from pagealloc_model.base.jit import cache_directory

    place = cache_directory().parent / "bounds-checked"
    return {"NUMBA_BOUNDSCHECK": "1", "PAGEALLOC_CACHE": str(place)}


def fuzz(
    directory: Path,
    settings: dict[str, str],
    *,
    seconds: float = 1e9,
    inputs: int = 1 << 62,
    seed: int = 0,
    corpus: Path | None = None,
    guided: bool = True,
) -> Finished:
    """Let one worker damage and read recordings.

    Args:
        directory: where it keeps what it works on, and what fails.
        settings: environment variables.
        seconds: how long, at most.
        inputs: how many inputs, at most.
        seed: decides all damage.
        corpus: a directory of inputs to start from and to save those worth keeping to.
        guided: whether to keep inputs that reach new lines, which takes thrice the time.
    """
    job = directory / "job.json"
    told = {"directory": str(directory), "real": str(REAL), "corpus": str(corpus or "")}
    told |= {"seed": seed, "seconds": seconds, "inputs": inputs, "guided": guided}
    job.write_text(json.dumps(told))
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.worker", str(job)],
        env={**os.environ, **settings},
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=min(seconds, 3600) + _START_S,
    )
    if done.returncode:
        last = "\n".join(done.stderr.splitlines()[-30:])
        return Finished({}, f"exit code {done.returncode} on {directory}/input:\n{last}")
    return Finished(json.loads(done.stdout), "")


def fuzz_both(directory: Path, seconds: float, seed: int) -> list[Finished]:
    """Interpreted first, then compiled and checked."""
    kept, first = directory / "corpus", _SHARE_INTERPRETED * seconds
    second = {"seconds": seconds - first, "seed": seed + 1, "guided": False}
    return [
        fuzz(directory, INTERPRETED, seconds=first, seed=seed, corpus=kept),
        fuzz(directory, bounds_checked(), corpus=kept, **second),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="damage recordings and read them")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="directory for inputs that fail")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pagealloc-fuzz-") as temporary:
        directory = options.keep or Path(temporary)
        directory.mkdir(exist_ok=True)
        finished = fuzz_both(directory, options.seconds, options.seed)
    for each in finished:
        print(json.dumps(each.report, indent=2) if each.report else each.died)
    for each in finished:
        each.check()


if __name__ == "__main__":
    main()
