"""Reads the state of a guest from outside while it is stopped: exact, and without disturbance."""

from __future__ import annotations

import gc
import json
import socket
from pathlib import Path

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.record.kernel_memory import KernelMemory
from pagealloc_model.recording.record.machine_state import read_machine_state
from pagealloc_model.recording.state_file import MachineState

CONTROL, MEMORY = "control.qmp", "memory.qmp"
"""Names of qemu's two sockets in a run's folder: one to stop the guest, one for its memory."""


def qemu_words(folder: Path) -> list[str]:
    """Arguments for qemu that let a guest be stopped and read; it needs FW_CFG_SYSFS, KEXEC."""
    sockets = [("-qmp", f"unix:{folder / name},server=on,wait=off") for name in (CONTROL, MEMORY)]
    return [word for pair in sockets for word in pair] + ["-device", "vmcoreinfo"]


def read_stopped_guest(folder: Path, pageblock_order: int = 9) -> MachineState:
    """Stop a guest, read its state, and let it go on; what is recorded in it need not stop.

    Args:
        folder: where qemu has its sockets (`qemu_words`).
        pageblock_order: order of a pageblock there.

    Raises:
        UsageError: there is no such guest, or its kernel cannot be read.
    """
    with _Control(folder / CONTROL) as control:
        control.execute("stop")
        try:
            return read_machine_state(
                KernelMemory.of_guest(folder / MEMORY), pageblock_order=pageblock_order
            )
        finally:
            # qemu serves one connection to a socket at a time, and drgn's ends with its program
            gc.collect()
            control.execute("cont")


class _Control:
    """A connection over which commands are given to qemu."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> _Control:
        try:
            self._socket.connect(str(self._path))
        except OSError as error:
            raise UsageError(f"{self._path}: no guest answers ({error.strerror})") from None
        self._lines = self._socket.makefile("rw", encoding="utf-8")
        self._lines.readline()
        self.execute("qmp_capabilities")
        return self

    def __exit__(self, *error: object) -> None:
        self._lines.close()
        self._socket.close()

    def execute(self, command: str) -> None:
        """Give a command and wait until it is done; events in between are passed over."""
        self._lines.write(json.dumps({"execute": command}) + "\n")
        self._lines.flush()
        for line in self._lines:
            answer = json.loads(line)
            if "error" in answer:
                raise UsageError(f"qemu did not {command}: {answer['error'].get('desc')}")
            if "return" in answer:
                return
        raise UsageError(f"{self._path}: the guest ended at {command}")
