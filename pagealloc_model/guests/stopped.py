"""Reads the state of a guest from outside while it is stopped: exact, and without disturbance."""

from __future__ import annotations

import gc
import json
import socket
from pathlib import Path

from pagealloc_model.base.errors import PageallocError, UsageError
from pagealloc_model.base.files import written_whole
from pagealloc_model.guests.inside import STATE_ASKED, STATE_REFUSED
from pagealloc_model.recording.record.kernel_memory import KernelMemory
from pagealloc_model.recording.record.machine_state import read_machine_state
from pagealloc_model.recording.state_file import STATE_SUFFIX, MachineState, write_state

CONTROL, MEMORY = "control.qmp", "memory.qmp"
"""Names of qemu's two sockets in a run's folder: one to stop the guest, one for its memory."""
_ATTEMPTS = 5


def qemu_words(folder: Path) -> list[str]:
    """Arguments for qemu that let a guest be stopped and read; it needs FW_CFG_SYSFS, KEXEC."""
    sockets = [("-qmp", f"unix:{folder / name},server=on,wait=off") for name in (CONTROL, MEMORY)]
    return [word for pair in sockets for word in pair] + ["-device", "vmcoreinfo"]


def read_stopped_guest(folder: Path, pageblock_order: int = 9) -> MachineState:
    """Stop a guest, read its state, and let it go on; what is recorded in it need not stop.

    A guest that stood still amid a change of a list goes on for a moment and is stopped again.

    Args:
        folder: where qemu has its sockets (`qemu_words`).
        pageblock_order: order of a pageblock there.

    Raises:
        UsageError: there is no such guest, or its kernel cannot be read.
    """
    contradiction = ""
    for _ in range(_ATTEMPTS):
        with _Control(folder / CONTROL) as control:
            control.execute("stop")
            try:
                memory = KernelMemory.of_guest(folder / MEMORY)
                state = read_machine_state(memory, pageblock_order=pageblock_order)
                contradiction = state.contradiction()
                if not contradiction:
                    return state
            finally:
                # qemu serves one connection to a socket, and drgn's ends with its program
                memory = None
                gc.collect()
                control.execute("cont")
    raise UsageError(f"the guest's lists were being changed {_ATTEMPTS} times: {contradiction}")


def answer_requests(requests: Path, sockets: Path) -> None:
    """Read a guest's state for each request that lies in a folder: a file, or why there is none."""
    for asked in requests.glob(f"*{STATE_ASKED}"):
        try:
            write_state(asked.with_suffix(STATE_SUFFIX), read_stopped_guest(sockets))
        except PageallocError as error:
            with written_whole(asked.with_suffix(STATE_REFUSED)) as partial:
                partial.write_text(str(error))
        asked.unlink()


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
