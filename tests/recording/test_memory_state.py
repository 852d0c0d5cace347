"""Free memory of directories: a sosreport's tree, snapshots, two nodes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import pagealloc_model as pm
from pagealloc_model.recording.memory_state import open_memory_state
from tests.memory_reports import MadeZone, report

DATA = Path(__file__).parents[2] / "data"
SNAPSHOT = max((DATA / "highatomic_stock/snapshots").iterdir())
COPIES = ("zoneinfo", "buddyinfo", "pagetypeinfo")
QUIET = "[    0.000000] Linux version 6.12.7 (gcc)\n[    1.000000] usb 1-1: new device\n"


@pytest.fixture
def sosreport(tmp_path: Path) -> Path:
    """A tree as sos makes it: proc, sos_commands, var/log."""
    root = tmp_path / "sosreport-host-2026-11-29-abcdefg"
    for name in ("proc", "sos_commands/kernel", "sos_commands/logs", "var/log"):
        (root / name).mkdir(parents=True)
    for name in COPIES:
        shutil.copy(SNAPSHOT / name, root / "proc" / name)
    (root / "sos_commands/kernel/dmesg").write_text(QUIET)
    (root / "sos_commands/kernel/uname_-a").write_text("Linux host 6.12.7-200.fc41.x86_64 #1 SMP\n")
    return root


def test_a_sosreport_without_a_failure_is_asked_by_its_copies_of_proc(sosreport: Path) -> None:
    state = open_memory_state(sosreport)
    assert state.release == "6.12.7-200.fc41.x86_64" and state.request is None
    assert state.zones == open_memory_state(SNAPSHOT).zones
    assert pm.explain(sosreport, order=0).answer.serving is not None


@pytest.mark.parametrize(
    "name",
    [
        "sos_commands/kernel/dmesg",
        "sos_commands/logs/journalctl_--no-pager_--boot",
        "var/log/messages",
    ],
)
def test_a_failure_in_a_sosreports_log_is_explained(sosreport: Path, name: str) -> None:
    text = report(
        [MadeZone(blocks={"Movable": (4000,)})], prefix="Nov 29 03:00:00 host kernel: ", order=4
    )
    (sosreport / name).write_text(QUIET + text)
    found = pm.explain(sosreport)
    assert found.sentence.startswith("Order 4 failed for fragmentation: Normal has free memory")


def test_a_sosreport_without_zoneinfo_and_failure_says_what_is_missing(sosreport: Path) -> None:
    (sosreport / "proc/zoneinfo").unlink()
    with pytest.raises(pm.RecordingError, match="has no zoneinfo and no log of a failed"):
        pm.explain(sosreport)


def test_two_nodes_are_asked_from_either() -> None:
    """Of a guest with memory on two nodes, between which its page frames have a hole."""
    for node in (0, 1):
        found = pm.explain("two_nodes_A1", order=0, node=node)
        assert found.answer.serving is not None
        assert {each.zone.node for each in found.answer.asked} == {0, 1}
        assert found.answer.asked[0].zone.node == node
