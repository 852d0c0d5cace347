"""Workloads that come with the project, and their programs."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from pagealloc_model.base.errors import UsageError

PROGRAMS = Path(__file__).parent / "programs"
COMPILER = "cc"

FILL = "page_cache $DISK/big $BIG_MIB $((MEMORY_PAGES / 4)) 7"
"""Reads until memory is full of page cache."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What a machine does while it is recorded.

    Commands are for sh. They find the programs in their path, and in variables: SEED, AMOUNT (work
    to do, in percent of the usual), DISK (a scratch disk with a file "big" of BIG_MIB megabytes),
    MEMORY_PAGES (the machine's memory in pages) and RUN (a folder for files to keep).
    """

    name: str
    meaning: str
    command: str
    prepare: str = ""


def _amount(usual: int) -> str:
    return f"$(({usual} * AMOUNT / 100))"


def _reads(usual: int, seed: str = "$SEED") -> str:
    """Reads of the scratch disk's file; those of one seed find each other's pages in memory."""
    return f"page_cache $DISK/big $BIG_MIB {_amount(usual)} {seed}"


def _on_every_cpu(command: str, *once: str) -> str:
    """A command on each CPU, as $cpu, and others once, all at a time; fails where one does."""
    begun = "".join(f'{each} & all="$all $!"; ' for each in once)
    return (
        f'all=; for cpu in $(seq $(nproc)); do {command} & all="$all $!"; done; {begun}'
        "for each in $all; do wait $each; done"
    )


_BUILDS = f"builds $DISK/tree {_amount(3600)}"
_ROUND_SEED = "$((SEED * 100 + ROUND))"
_BESIDE_A_BUILD = (
    f"{_reads(2500, seed=_ROUND_SEED)} & huge_pages {_amount(100)} 80 {_ROUND_SEED} 14; wait $!"
)

WORKLOADS = {
    name: Workload(name=name, meaning=meaning, prepare=prepare, command=command)
    for name, meaning, prepare, command in (
        ("page_cache", "random and long reads of a file larger than memory", FILL, _reads(30_000)),
        (
            "huge_pages",
            "huge-page faults beside page-cache churn",
            FILL,
            f"{_reads(15_000)} & huge_pages {_amount(300)} 40 $SEED; wait $!",
        ),
        (
            "forks",
            "waves of processes that begin and end together",
            "",
            f"forks {_amount(20)} 20 300 $SEED",
        ),
        (
            "purger",
            "what all CPUs but one allocate, that one frees",
            "",
            f"purger {_amount(400)} $SEED",
        ),
        (
            "atomics",
            "atomic requests of orders 0 to 3 beside page-cache churn; needs a kernel "
            "with debugfs' atomic_churn",
            FILL,
            f"{_reads(15_000)} & atomics 256 1000 {_amount(8000)}; wait $!",
        ),
        (
            "idle_reserve",
            "atomics fill their reserve and end; then huge-page faults at a rate beside "
            "reads; needs what atomics needs",
            "page_cache $DISK/big $BIG_MIB $((MEMORY_PAGES / 8)) 7",
            f"{_reads(30_000)} & atomics 256 1000 {_amount(15_000)}; wait $!; "
            f"{_reads(15_000, seed='$((SEED + 1000))')} 250 & "
            f"huge_pages {_amount(300)} 60 $SEED 5; wait $!",
        ),
        (
            "slab",
            "many small files, of which every other one goes again",
            FILL,
            f"mkdir $DISK/many; many_files $DISK/many {_amount(6000)} $SEED",
        ),
        (
            "compile",
            "a small build with the system's compiler",
            "",
            f"mkdir build; compile build {_amount(8)} $SEED",
        ),
        (
            "build_rounds",
            "twelve rounds of a build's files and processes beside huge-page faults; RUN "
            "gets a table of the rounds, and page flags at the begin of each",
            f"mkdir $DISK/tree; {_BUILDS} 0 $SEED",
            '[ -z "$RUN" ] || mkdir "$RUN/rounds"; '
            f"{_BUILDS} 12 $SEED \"${{RUN:+$RUN/rounds}}\" '{_BESIDE_A_BUILD}'",
        ),
        (
            "mixed",
            "huge-page faults beside page-cache churn, then waves of processes",
            FILL,
            f"{_reads(15_000)} & huge_pages {_amount(150)} 30 $SEED; wait $!; "
            f"forks {_amount(4)} 12 200 $SEED",
        ),
        (
            "every_cpu",
            "reads on every CPU beside huge-page faults, waves of processes and a purger",
            _on_every_cpu("page_cache $DISK/big $BIG_MIB $((MEMORY_PAGES / 4 / $(nproc))) $cpu"),
            _on_every_cpu(
                f"page_cache $DISK/big $BIG_MIB {_amount(6000)} $((SEED * 1000 + cpu))",
                f"huge_pages {_amount(500)} 100 $SEED",
                f"forks {_amount(4)} $((8 * $(nproc))) 200 $SEED",
                f"purger {_amount(300)} $SEED",
            ),
        ),
    )
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
