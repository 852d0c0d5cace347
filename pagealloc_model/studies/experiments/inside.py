"""The part of a run on its machine: set up, make the settings, record a workload, say how it went.

Called as `python -m pagealloc_model.studies.experiments.inside FOLDER`. FOLDER has `ORDER_FILE`;
the recording and `ANSWER_FILE` appear there. In a guest, the host's root is read-only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pagealloc_model.base.errors import PageallocError, UsageError
from pagealloc_model.studies.experiments.plan import apply

ORDER_FILE, ANSWER_FILE, RECORDING = "order.json", "answer.json", "recording"
DISK, DISK_DEVICE = Path("/mnt"), "/dev/vda"
RUN = "RUN"
"""Variable that names the run's folder, for files that a workload leaves beside the recording."""
SCRATCH = Path("/var/tmp")
"""A tmpfs in every guest of virtme-ng; /tmp may hold the folder itself."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """Instructions for a run.

    Attributes:
        fixed: settings that all runs share, made before the set-up.
        settings: those of this run, made after the set-up, right before the first event.
        prepare: shell command that brings the machine into the state to start from, "" for none;
            the ring buffers are there before it.
        workload: shell command that is recorded.
        environment: variables for both commands; they run in TMPDIR, if it is one of them.
        disk: a scratch disk is there, to be mounted at `DISK`.
        interval_s: seconds between snapshots.
        buffer_bytes: ring buffer of each CPU; None: by the machine's memory.
        locks: record lock contention.
    """

    workload: str
    prepare: str = ""
    fixed: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    disk: bool = False
    interval_s: float = 1.0
    buffer_bytes: int | None = None
    locks: bool = False

    def write(self, folder: Path) -> None:
        """Leave the order where the guest looks for it."""
        (folder / ORDER_FILE).write_text(json.dumps(asdict(self), indent=1) + "\n")

    @staticmethod
    def read(folder: Path) -> Order:
        """The order that `write` left."""
        return Order(**json.loads((folder / ORDER_FILE).read_text()))


def answer_of(folder: Path) -> str | None:
    """The error in a run's answer, "" where it ended well; None: there is no answer."""
    try:
        return str(json.loads((folder / ANSWER_FILE).read_text())["error"])
    except FileNotFoundError:
        return None


def main(folder: Path) -> int:
    """Follow the order in a folder; 1 if it failed."""
    order = Order.read(folder)
    try:
        if order.disk:
            if not Path(DISK_DEVICE).exists():  # nothing else loads its driver if it is a module
                _run_or_fail("modprobe", "virtio_blk")
            _run_or_fail("mount", "-o", "noatime", DISK_DEVICE, str(DISK))
        os.chdir(order.environment.get("TMPDIR", SCRATCH))
        carry_out(order, folder)
        error = ""
    except (PageallocError, OSError) as failure:
        error = " ".join(str(failure).split())
    partial = folder / f".{ANSWER_FILE}"
    partial.write_text(json.dumps({"error": error, "seconds": time.monotonic()}) + "\n")
    partial.rename(folder / ANSWER_FILE)
    os.sync()
    return 1 if error else 0


def _run_or_fail(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")


def carry_out(order: Order, folder: Path, root: Path = Path("/")) -> None:
    """Make the settings of all runs, prepare, make those of this run and record."""
    from pagealloc_model.recording.record.host import Host
    from pagealloc_model.recording.record.perf import RecordOptions
    from pagealloc_model.recording.record.session import record

    def say(line: str) -> None:
        print(line, flush=True)

    os.environ.update(order.environment)
    os.environ[RUN] = str(folder)
    apply(order.fixed, root)
    recorded = record(
        RecordOptions(
            destination=folder / RECORDING,
            command=("sh", "-ec", order.workload),
            interval_s=order.interval_s,
            buffer_bytes=order.buffer_bytes,
            locks=order.locks,
            set_up=("sh", "-ec", order.prepare) if order.prepare else (),
            before_events=lambda: apply(order.settings, root),
        ),
        Host(),
        say,
        say,
    )
    if recorded.command_code:
        raise UsageError(f"the workload ended with exit code {recorded.command_code}")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
