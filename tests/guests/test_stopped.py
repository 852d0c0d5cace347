"""A guest is stopped, read and let go on, also where its memory cannot be read."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.guests import stopped


def _serve(listener: socket.socket, commands: list[str]) -> None:
    connection, _ = listener.accept()
    with connection, connection.makefile("rw", encoding="utf-8") as lines:
        lines.write('{"QMP": {}}\n')
        lines.flush()
        for line in lines:
            command = json.loads(line)["execute"]
            commands.append(command)
            events = '{"event": "STOP"}\n' if command == "stop" else ""
            lines.write(events + '{"return": {}}\n')
            lines.flush()


@pytest.fixture
def commands(tmp_path: Path) -> list[str]:
    """What a guest's qemu in `tmp_path` is told."""
    told: list[str] = []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / stopped.CONTROL))
    listener.listen()
    threading.Thread(target=_serve, args=(listener, told), daemon=True).start()
    return told


def test_a_guest_goes_on_after_it_was_read(
    tmp_path: Path, commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(memory: object, pageblock_order: int) -> tuple[list[str], int]:
        return list(commands), pageblock_order

    monkeypatch.setattr(stopped.KernelMemory, "of_guest", lambda path: path)
    monkeypatch.setattr(stopped, "read_machine_state", read)
    assert stopped.read_stopped_guest(tmp_path, 8) == (["qmp_capabilities", "stop"], 8)
    assert commands == ["qmp_capabilities", "stop", "cont"]


def test_a_guest_goes_on_where_its_memory_cannot_be_read(
    tmp_path: Path, commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise UsageError("no memory")

    monkeypatch.setattr(stopped.KernelMemory, "of_guest", fail)
    with pytest.raises(UsageError, match="no memory"):
        stopped.read_stopped_guest(tmp_path)
    assert commands == ["qmp_capabilities", "stop", "cont"]


def test_no_guest_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no guest answers"):
        stopped.read_stopped_guest(tmp_path)
