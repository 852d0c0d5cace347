"""A profile of the machine while nothing is traced: where the kernel spends its time.

Perf's samples are reduced to how often each kernel call chain was seen, one line each as
flamegraph.pl and its relatives take them ("folded").
"""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.make.host import Host
from pagealloc_model.recording.make.perf_tool import PerfTool

SAMPLE_PERIOD = 200_000
"""Cycles or, where there is no counter of them, nanoseconds from one sample to the next."""
CLOCK_EVENT = "cpu-clock"

_TICK_NS = 10_000_000
_BUSY_FIELDS = (0, 1, 2, 5, 6)


def record_profile(
    tool: PerfTool, host: Host, command: tuple[str, ...], seconds: float, folded: Path
) -> dict[str, object]:
    """Profile the machine while a command runs or for a time, and write the folded chains.

    Args:
        tool: the perf to use.
        host: the machine.
        command: run once more for this; () to watch the machine instead.
        seconds: for how long, without a command.
        folded: file to write.

    Returns:
        What meta.json says of it: `event`, `sample_ns` (of a busy CPU's time, per sample),
        `samples`, `seconds`, `repeats_command` and `rc` of the command.

    Raises:
        UsageError: perf cannot profile here.
    """
    samples = folded.with_name("profile.data")
    workload = command or ("sleep", f"{seconds}")
    arguments = [tool.path, "record", "-a", "-c", f"{SAMPLE_PERIOD}", "-e", "cycles", "-g"]
    arguments += ["--kernel-callchains", "-o", str(samples), "--", *workload]
    busy_ns, begun = _busy_ns(host), time.monotonic()
    done = subprocess.run(arguments, capture_output=True, text=True, errors="replace", check=False)
    elapsed = time.monotonic() - begun
    busy_ns = _busy_ns(host) - busy_ns
    if not samples.exists():
        raise UsageError(f"--profile: perf could not profile: {_last_line(done.stderr)}")
    event, chains = _read(tool, samples)
    samples.unlink()
    lines = (f"{';'.join(reversed(chain))} {count}\n" for chain, count in sorted(chains.items()))
    folded.write_text("".join(lines), encoding="utf-8")
    total = sum(chains.values())
    by_clock = event.startswith(CLOCK_EVENT)
    return {
        "event": event,
        "sample_ns": SAMPLE_PERIOD if by_clock else busy_ns / max(total, 1),
        "samples": total,
        "seconds": round(elapsed, 3),
        "repeats_command": bool(command),
        "rc": done.returncode if command else None,
    }


def _busy_ns(host: Host) -> int:
    """CPU time of all CPUs so far that was not idle."""
    words = (host.proc / "stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
    return sum(int(words[field]) for field in _BUSY_FIELDS) * _TICK_NS


def _read(tool: PerfTool, samples: Path) -> tuple[str, Counter[tuple[str, ...]]]:
    """The event sampled, and how often each kernel call chain was seen, innermost first."""
    arguments = [tool.path, "script", "-i", str(samples), "-F", "event,ip,sym"]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace"
    ) as script:
        assert script.stdout is not None
        return folded_chains(script.stdout)


def folded_chains(lines: Iterable[str]) -> tuple[str, Counter[tuple[str, ...]]]:
    """The same from what `perf script -F event,ip,sym` prints."""
    event = ""
    chains: Counter[tuple[str, ...]] = Counter()
    for name, chain in _samples(lines):
        event = event or name
        chains[chain] += 1
    return event, chains


def _samples(lines: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    name, chain = "", []
    for line in lines:
        words = line.split()
        if words and not line.startswith("\t"):
            name = words[-1].rstrip(":")
        elif words:
            chain.append(" ".join(words[1:]) or words[0])
        elif name:
            yield name, tuple(chain) or ("[user]",)
            name, chain = "", []
    if name:
        yield name, tuple(chain) or ("[user]",)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it says nothing"
