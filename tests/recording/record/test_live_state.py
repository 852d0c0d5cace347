"""A machine that goes on while its state is read is read again, until nothing came between."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.record import live_state, machine_state, moving_state
from pagealloc_model.recording.record.kernel_memory import Place
from pagealloc_model.recording.record.live_state import LiveState
from tests.recording.proc.samples_of import sample
from tests.recording.record.machines import make_machine

PLACE = (4096, 8)


class Moving:
    """A memory whose events are counted: one number for each look at them."""

    def __init__(self, counts: list[int]) -> None:
        self.counts = counts
        self.kept: dict[Place, bytes | None] | None = None
        self.read_at_once: list[tuple[Place, ...]] = []

    def kept_from(self, places: tuple[Place, ...]) -> SimpleNamespace:
        self.read_at_once.append(places)
        return SimpleNamespace(kept=dict.fromkeys(places), count=self.counts.pop(0))


def moving(
    monkeypatch: pytest.MonkeyPatch, counts: list[int], wrong: str = ""
) -> tuple[Moving, list[int]]:
    """A memory with so many events as it is read and after that; orders of pageblocks asked for."""
    asked: list[int] = []
    memory = Moving(counts)

    def read(kept: SimpleNamespace, pageblock_order: int) -> SimpleNamespace:
        asked.append(pageblock_order)
        kept.kept[PLACE] = b"word"
        return SimpleNamespace(contradiction=lambda: wrong)

    def count(seen: Moving | SimpleNamespace) -> np.ndarray:
        return np.array([seen.counts.pop(0) if isinstance(seen, Moving) else seen.count])

    monkeypatch.setattr(live_state.KernelMemory, "of_this_machine", lambda: memory)
    monkeypatch.setattr(machine_state, "read_machine_state", read)
    monkeypatch.setattr(machine_state, "event_counts", count)
    monkeypatch.setattr(live_state, "write_state", lambda file, state: file.touch())
    monkeypatch.setattr(live_state, "_TRY_NS", 0)
    return memory, asked


def test_places_are_found_first_and_then_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, asked = moving(monkeypatch, [5, 8, 8])
    machine = make_machine(tmp_path)
    (machine.proc / "pagetypeinfo").write_text(sample("6.12", "pagetypeinfo"))
    LiveState(machine)(tmp_path / "begin.state")
    assert memory.read_at_once == [(), (PLACE,)]
    assert asked == [9, 9]
    assert (tmp_path / "begin.state").exists()


def test_what_was_read_place_by_place_is_no_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, _ = moving(monkeypatch, [5, 5, 5])
    machine = make_machine(tmp_path)
    (machine.proc / "pagetypeinfo").unlink()
    LiveState(machine)(tmp_path / "begin.state")
    assert memory.read_at_once == [(), (PLACE,)]


@pytest.mark.parametrize(
    ("counts", "wrong"), [([5, 8, 11], ""), ([5, 5, 5], "3 pages are on free lists")]
)
def test_a_machine_that_never_holds_still_is_read_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: list[int], wrong: str
) -> None:
    memory, _ = moving(monkeypatch, counts, wrong)
    given = object()
    read = {}
    monkeypatch.setattr(
        moving_state, "read_while_it_goes_on", lambda *words: read.setdefault(words, given)
    )
    machine = make_machine(tmp_path)
    (machine.proc / "pagetypeinfo").unlink()
    assert LiveState(machine)(tmp_path / "begin.state") is given
    assert list(read) == [(memory, 9)]
    assert not (tmp_path / "begin.state").exists()


def test_a_memory_that_cannot_be_read_is_said_at_the_first_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise UsageError("/proc/kcore: no such file")

    monkeypatch.setattr(live_state.KernelMemory, "of_this_machine", fail)
    reader = LiveState(make_machine(tmp_path))
    with pytest.raises(UsageError, match="/proc/kcore: no such file"):
        reader(tmp_path / "begin.state")
