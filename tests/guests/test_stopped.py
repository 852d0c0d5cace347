"""A guest is stopped, read and let go on, also where its memory cannot be read."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import NamedTuple

import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.guests import stopped


def _serve(listener: socket.socket, commands: list[str]) -> None:
    while True:
        _answer(listener.accept()[0], commands)


def _answer(connection: socket.socket, commands: list[str]) -> None:
    with connection, connection.makefile("rw", encoding="utf-8") as lines:
        lines.write('{"QMP": {}}\n')
        lines.flush()
        for line in lines:
            command = json.loads(line)["execute"]
            commands.append(command)
            events = '{"event": "STOP"}\n' if command == "stop" else ""
            lines.write(events + '{"return": {}}\n')
            lines.flush()


class FakeState(NamedTuple):
    """What a guest's qemu was told until then."""

    told: list[str]
    pageblock_order: int
    contradicted: str

    def contradiction(self) -> str:
        return self.contradicted


@pytest.fixture
def commands(tmp_path: Path) -> list[str]:
    """What a guest's qemu in `tmp_path` is told."""
    told: list[str] = []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / stopped.CONTROL))
    listener.listen()
    threading.Thread(target=_serve, args=(listener, told), daemon=True).start()
    return told


def test_a_guest_goes_on_after_it_was_read_and_is_read_again_where_lists_are_changed(
    tmp_path: Path, commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(memory: object, pageblock_order: int) -> FakeState:
        told = commands.count("stop")
        return FakeState(list(commands), pageblock_order, "" if told > 1 else "a list is short")

    monkeypatch.setattr(stopped.KernelMemory, "of_guest", lambda path: path)
    monkeypatch.setattr(stopped, "read_machine_state", read)
    once = ["qmp_capabilities", "stop", "cont"]
    found = stopped.read_stopped_guest(tmp_path, 8)
    assert (found.told, found.pageblock_order) == ([*once, "qmp_capabilities", "stop"], 8)
    assert commands == once * 2


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


def test_requests_are_answered_with_a_state_or_why_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(sockets: Path) -> str:
        if sockets.name == "none":
            raise UsageError("no guest answers")
        return "pages"

    monkeypatch.setattr(stopped, "read_stopped_guest", read)
    monkeypatch.setattr(stopped, "write_state", lambda path, state: path.write_text(state))
    stopped.answer_requests(tmp_path, tmp_path / "some")
    for name, sockets in (("begin", "some"), ("end", "none")):
        (tmp_path / f"{name}.asked").touch()
        stopped.answer_requests(tmp_path, tmp_path / sockets)
    left = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert left == {"begin.state": "pages", "end.refused": "no guest answers"}
