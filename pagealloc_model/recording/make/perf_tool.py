"""The perf command: where it is, what it can do, and how it is asked to record."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.make.host import Host
from pagealloc_model.recording.make.options import size_text

OLDEST_VERSION = (5, 12)
INSTALL = "install it (Debian: linux-perf, Ubuntu: linux-tools-$(uname -r), Fedora: perf)"

_LARGEST_BUFFER = 1 << 26
_LEAST_BUFFER = 1 << 20
_MEMORY_SHARE = 32
_ANSWER_TIMEOUT_S = 30


@dataclass(frozen=True, kw_only=True)
class PerfTool:
    """An installed perf.

    Attributes:
        path: the command.
        version: as it prints it, such as "6.1.187".
        compresses: whether it was built with zstd.
    """

    path: str
    version: str
    compresses: bool


def find_perf() -> PerfTool:
    """The perf on PATH.

    Raises:
        UsageError: there is none, it does not work with this kernel, or it is too old.
    """
    path = shutil.which("perf")
    if path is None:
        raise UsageError(f"perf is not installed; {INSTALL}")
    answer = _ask(path, "version")
    version = re.search(r"perf version (\S+)", answer.stdout)
    if answer.returncode or version is None:
        said = " ".join(f"{answer.stdout} {answer.stderr}".split())
        raise UsageError(f"{path} does not work ({said[:80] or 'it says nothing'}); {INSTALL}")
    numbers = re.match(r"(\d+)\.(\d+)", version[1])
    if numbers and (int(numbers[1]), int(numbers[2])) < OLDEST_VERSION:
        raise UsageError(
            f"perf {version[1]} is too old to be started and stopped on the event; "
            "install {}.{} or newer".format(*OLDEST_VERSION)
        )
    built = _ask(path, "version", "--build-options").stdout
    compresses = re.search(r"^\s*zstd: \[ on", built, re.MULTILINE) is not None
    return PerfTool(path=path, version=version[1], compresses=compresses)


def _ask(path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [path, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_ANSWER_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{path} does not work ({error}); {INSTALL}") from None


def default_buffer(host: Host) -> int:
    """Bytes of one CPU's ring buffer: 64 MiB, less where all would take over 3% of memory."""
    most = host.available_memory // _MEMORY_SHARE // host.cpus
    size = _LARGEST_BUFFER
    while size > _LEAST_BUFFER and size > most:
        size //= 2
    return size


def record_arguments(
    tool: PerfTool,
    *,
    output: str,
    events: Iterable[str],
    buffer_bytes: int,
    control: tuple[int, int] | None = None,
) -> list[str]:
    """The command line of a recording of all CPUs that starts out switched off.

    Args:
        tool: the perf to use.
        output: path of the perf.data.
        events: words that name the events.
        buffer_bytes: ring buffer of one CPU.
        control: descriptors perf reads orders from and answers them on; None leaves them out.
    """
    arguments = [tool.path, "record", "-a", "-k", "CLOCK_MONOTONIC", "-m", size_text(buffer_bytes)]
    arguments += ["--kernel-callchains", "-o", output]
    if tool.compresses:
        arguments.append("-z=1")
    if control is not None:
        arguments += ["-D", "-1", "--control", "fd:{},{}".format(*control)]
    return [*arguments, *events]
