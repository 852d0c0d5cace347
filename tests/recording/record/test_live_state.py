"""A machine that goes on while its state is read is read again, until nothing came between."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.record import live_state, machine_state
from pagealloc_model.recording.record.live_state import LiveState
from tests.recording.proc.samples_of import sample
from tests.recording.record.machines import make_machine


def moving(monkeypatch: pytest.MonkeyPatch, counts: list[int], wrong: str = "") -> list[int]:
    """Have readings count so many events before and after each; orders of pageblocks asked for."""
    asked: list[int] = []
    left = [*counts]

    def read(memory: object, pageblock_order: int) -> SimpleNamespace:
        asked.append(pageblock_order)
        return SimpleNamespace(event_count=np.array([left.pop(0)]), contradiction=lambda: wrong)

    monkeypatch.setattr(live_state.KernelMemory, "of_this_machine", lambda: "memory")
    monkeypatch.setattr(machine_state, "read_machine_state", read)
    monkeypatch.setattr(machine_state, "event_counts", lambda memory: np.array([left.pop(0)]))
    monkeypatch.setattr(live_state, "write_state", lambda file, state: file.touch())
    monkeypatch.setattr(live_state, "_TRY_NS", 0)
    return asked


def test_a_machine_that_moved_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = moving(monkeypatch, [5, 7, 8, 8])
    machine = make_machine(tmp_path)
    (machine.proc / "pagetypeinfo").write_text(sample("6.12", "pagetypeinfo"))
    LiveState(machine)(tmp_path / "begin.state")
    assert asked == [9, 9]
    assert (tmp_path / "begin.state").exists()


@pytest.mark.parametrize(
    ("counts", "wrong", "why"),
    [
        ([5, 7, 8, 11], "", "in 2 readings: 3 events came"),
        ([5, 5, 5, 5], "3 pages are on free lists", "in 2 readings: 3 pages are on free lists"),
    ],
)
def test_a_machine_that_never_holds_still_has_no_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: list[int], wrong: str, why: str
) -> None:
    moving(monkeypatch, counts, wrong)
    machine = make_machine(tmp_path)
    (machine.proc / "pagetypeinfo").unlink()
    with pytest.raises(UsageError, match=f"the machine did not hold still {why}"):
        LiveState(machine)(tmp_path / "begin.state")
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
