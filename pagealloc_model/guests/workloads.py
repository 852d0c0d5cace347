"""Workloads that come with the project, and their programs."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from pagealloc_model.base.errors import UsageError

PROGRAMS = Path(__file__).parent / "programs"
COMPILER = "cc"


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Work of a machine while it is recorded.

    Commands are for sh. They find the programs in their path, and in variables: SEED, AMOUNT (work
    to do, in percent of the usual), DISK (a scratch disk with a file "big" of BIG_MIB megabytes),
    MEMORY_PAGES (the machine's memory in pages) and RUN (a folder for files to keep).
    """

    name: str
    meaning: str
    command: str
    prepare: str = ""


WORKLOADS = {
    name: Workload(name=name, **about)
    for name, about in tomllib.loads(Path(__file__).with_suffix(".toml").read_text()).items()
}
"""By name."""


def workload(name: str) -> Workload:
    """A workload by name."""
    if name not in WORKLOADS:
        raise UsageError(f"no workload {name!r}; there are {', '.join(WORKLOADS)}")
    return WORKLOADS[name]


def programs_digest() -> str:
    """Digest of the programs' sources."""
    digest = sha256()
    for source in sorted(PROGRAMS.iterdir()):
        digest.update(f"{source.name} ".encode() + source.read_bytes())
    return digest.hexdigest()[:16]


def build_programs(directory: Path) -> None:
    """Compile the programs; nothing is done where they are up to date."""
    stamp = directory / ".built"
    if stamp.exists() and stamp.read_text() == programs_digest():
        return
    if shutil.which(COMPILER) is None:
        raise UsageError(f"no {COMPILER} to compile the workloads with; install gcc and libc6-dev")
    directory.mkdir(parents=True, exist_ok=True)
    for source in sorted(PROGRAMS.glob("*.c")):
        command = [COMPILER, "-O2", "-pthread", "-o", str(directory / source.stem), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["unknown error"])[0]
            raise UsageError(f"{source}: cannot be compiled: {why}")
    stamp.write_text(programs_digest())
