"""A recorder waits until kswapd sleeps, for a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from pagealloc_model.recording.record import kswapd_sleep
from pagealloc_model.recording.record.host import Host
from pagealloc_model.recording.record.kswapd_sleep import kswapd_sleeps


@pytest.fixture(autouse=True)
def seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock is a second after the last."""
    clock = SimpleNamespace(monotonic=iter(range(99)).__next__)
    monkeypatch.setattr(kswapd_sleep, "time", clock)


def machine_with_kswapd(root: Path, *looks: tuple[str, int]) -> Callable[[float], None]:
    """A machine whose kswapd is in such a state and has scanned so much, wait by wait."""
    left = list(looks)
    process = root / "proc/37"
    process.mkdir(parents=True)
    other = root / "proc/38"
    other.mkdir()
    (other / "stat").write_text("38 (a (kswapd0) b) R 2 0")

    def step(_: float = 0.0) -> None:
        state, scanned = left.pop(0) if len(left) > 1 else left[0]
        (process / "stat").write_text(f"37 (kswapd0) {state} 2 0")
        (root / "proc/vmstat").write_text(f"nr_free_pages 9\npgscan_kswapd {scanned}\n")

    step()
    return step


def test_it_waits_until_kswapd_sleeps(tmp_path: Path) -> None:
    """It has not settled while it runs, nor while it scans between two sleeps."""
    looks = [("R", 1), ("S", 2), ("S", 5), ("S", 5), ("S", 5), ("S", 5)]
    wait = machine_with_kswapd(tmp_path, *looks)
    assert kswapd_sleeps(Host(proc=tmp_path / "proc"), 50, wait)
    assert kswapd_sleep.time.monotonic() == 6  # the end was set, and five looks: R, 2, 5, 5, 5


def test_it_waits_only_so_long(tmp_path: Path) -> None:
    wait = machine_with_kswapd(tmp_path, ("R", 1))
    assert kswapd_sleeps(Host(proc=tmp_path / "proc"), 5, wait) is False


def test_nothing_is_said_where_no_kswapd_can_be_seen(tmp_path: Path) -> None:
    machine_with_kswapd(tmp_path, ("R", 1))
    (tmp_path / "proc/37/stat").unlink()
    assert kswapd_sleeps(Host(proc=tmp_path / "proc"), 5) is None
