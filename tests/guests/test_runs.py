"""Runs: made once, made again where they failed or differ, and failures as rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pagealloc_model.base.errors import PageallocError, UsageError
from pagealloc_model.guests.guest import Boot, Cancel, RunFailedError
from pagealloc_model.guests.inside import RECORDING
from pagealloc_model.guests.plan import Guest, Limits, Plan, read_plan, sides_of
from pagealloc_model.guests.runs import (
    DONE,
    FAILED,
    MEASURED,
    RUN_FILE,
    Run,
    boot_of,
    make_runs,
    measured_runs,
)
from pagealloc_model.recording import event_files
from tests import synthetic_perf_data as perf
from tests.guests.small_plan import PLAN, FakeGuests, write_plan
from tests.small_recordings import write_recording


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return read_plan(write_plan(tmp_path))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    path = tmp_path / "experiment"
    path.mkdir()
    return path


def runs_of(plan: Plan, out: Path, guests: FakeGuests) -> list[Run]:
    return make_runs(plan, sides_of(plan), out, guests, None)


def test_sides_take_turns(plan: Plan, out: Path) -> None:
    guests, shares = FakeGuests(), []
    runs = make_runs(plan, sides_of(plan), out, guests, shares.append)
    assert [run.name for run in runs] == ["A1", "B1", "A2", "B2"]
    settings = [boot.order.settings["vm.percpu_pagelist_high_fraction"] for boot in guests.booted]
    assert settings == ["0", "8", "0", "8"]
    assert [boot.order.environment["SEED"] for boot in guests.booted] == ["1", "1", "2", "2"]
    assert {run.status for run in runs} == {DONE}
    assert runs[0].open().name == "recording"
    assert shares == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize(
    ("change", "booted"),
    [
        ({}, 0),
        ({"repeats": 3}, 2),
        ({"seed": 9}, 4),
        ({"amount": 50}, 4),
        ({"interval_s": 0.5}, 4),
        ({"settings": {"vm.x": "1"}}, 4),
        ({"guest": Guest(parallel=2, timeout_s=5.0)}, 0),
        ({"guest": Guest(cpus=3)}, 4),
    ],
)
def test_what_a_run_is_made_from_makes_it_anew(
    plan: Plan, out: Path, change: dict[str, object], booted: int
) -> None:
    first = runs_of(plan, out, FakeGuests())
    again = FakeGuests()
    runs = runs_of(replace(plan, **change), out, again)
    assert len(again.booted) == booted
    assert bool(booted) or runs == first


def test_a_kernel_is_known_by_its_content(plan: Plan, out: Path, tmp_path: Path) -> None:
    runs_of(plan, out, FakeGuests())
    (tmp_path / "bzImage").write_bytes(b"another kernel")
    again = FakeGuests()
    runs_of(plan, out, again)
    assert len(again.booted) == 4
    (tmp_path / "bzImage").unlink()
    with pytest.raises(UsageError, match="no such kernel; name a bzImage in"):
        runs_of(plan, out, FakeGuests())


@pytest.mark.parametrize("torn", [False, True])
def test_a_guest_that_leaves_no_recording_is_a_row(plan: Plan, out: Path, torn: bool) -> None:
    def leaves(boot: Boot, folder: Path, cancel: Cancel) -> None:
        if torn:
            (write_recording(folder / RECORDING) / "perf.data").write_bytes(b"PERFILE2 torn")

    runs = make_runs(replace(plan, repeats=1), sides_of(plan), out, leaves, None)
    assert {run.status for run in runs} == {FAILED}
    assert ("perf.data" if torn else "recording") in runs[0].error


@pytest.mark.parametrize("any_event", [True, False])
def test_a_recording_is_not_read_while_runs_go_on(
    plan: Plan, out: Path, monkeypatch: pytest.MonkeyPatch, any_event: bool
) -> None:
    def leaves(boot: Boot, folder: Path, cancel: Cancel) -> None:
        attr = perf.attr_of(perf.ALLOC, [1])
        records = [perf.comm_record(attr, 7, "perf"), perf.sample(attr, b"torn", number=1)]
        place = write_recording(folder / RECORDING) / "perf.data"
        perf.write(place, [attr], records[: 1 + any_event])

    monkeypatch.setattr(event_files, "read_events", None)
    runs = make_runs(replace(plan, repeats=1), sides_of(plan), out, leaves, None)
    assert {run.status for run in runs} == {DONE if any_event else FAILED}
    assert {run.error for run in runs} == {"" if any_event else "nothing was recorded"}


def test_a_failed_run_is_a_row_and_is_tried_again(plan: Plan, out: Path) -> None:
    guests = FakeGuests(lambda boot: "8" in boot.order.settings.values())
    runs = runs_of(plan, out, guests)
    assert [run.status for run in runs] == [DONE, FAILED, DONE, FAILED]
    assert runs[1].error == "the guest ended before it was done"
    assert runs[1].console == "Kernel panic\nRebooting"
    assert json.loads((out / "runs/B1" / RUN_FILE).read_text())["status"] == FAILED
    again = FakeGuests()
    assert {run.status for run in runs_of(plan, out, again)} == {DONE}
    assert len(again.booted) == 2


def test_no_run_follows_where_the_first_of_every_side_fails_alike(plan: Plan, out: Path) -> None:
    def failing(boot: Boot, folder: Path, cancel: Cancel) -> None:
        booted.append(boot)
        raise RunFailedError(f"no memory for {len(booted)} ring buffers; use a smaller buffer")

    booted: list[Boot] = []
    said = "^the first run of every side failed: no memory for 2 ring buffers; use a smaller buffer"
    with pytest.raises(UsageError, match=said):
        make_runs(plan, sides_of(plan), out, failing, None)
    assert len(booted) == 2
    again = FakeGuests()
    assert {run.status for run in runs_of(plan, out, again)} == {DONE}
    assert len(again.booted) == 4


def test_runs_that_fail_for_several_reasons_are_rows(plan: Plan, out: Path) -> None:
    def failing(boot: Boot, folder: Path, cancel: Cancel) -> None:
        fraction = boot.order.settings["vm.percpu_pagelist_high_fraction"]
        raise RunFailedError("panic" if fraction == "0" else "took over 900 s")

    runs = make_runs(plan, sides_of(plan), out, failing, None)
    assert [run.error for run in runs] == ["panic", "took over 900 s"] * 2


def test_a_side_that_has_runs_does_not_keep_others_from_failing_in_vain(
    plan: Plan, out: Path
) -> None:
    runs_of(replace(plan, repeats=1), out, FakeGuests())
    guests = FakeGuests(lambda boot: True)
    with pytest.raises(UsageError, match="the first run of every side failed: the guest ended"):
        runs_of(replace(plan, repeats=3), out, guests)
    assert len(guests.booted) == 2


def test_no_run_begins_without_room(plan: Plan, out: Path) -> None:
    guests = FakeGuests()
    runs = runs_of(replace(plan, repeats=1, limits=Limits(free=1 << 60)), out, guests)
    assert guests.booted == []
    assert runs[0].error.startswith("no room on the disk: ")


def test_a_moved_directory_goes_on(plan: Plan, out: Path, tmp_path: Path) -> None:
    runs_of(plan, out, FakeGuests())
    moved = out.rename(tmp_path / "moved")
    runs = runs_of(plan, moved, FakeGuests())
    assert Path(runs[0].path).is_relative_to(moved)
    runs[0].open()


def test_a_plan_without_kernels_needs_recordings(tmp_path: Path, out: Path) -> None:
    text = PLAN.replace('[[kernel]]\nimage = "bzImage"', "")
    plan = read_plan(write_plan(tmp_path, text))
    with pytest.raises(UsageError, match="side A has no recordings and the plan no"):
        runs_of(plan, out, FakeGuests())


def test_recordings_take_a_guests_place(plan: Plan, tmp_path: Path) -> None:
    paths = [write_recording(tmp_path / name) for name in ("one", "two")]
    runs = measured_runs(sides_of(plan), {"B": paths})
    assert [(run.name, run.status, run.path) for run in runs] == [
        ("B1", MEASURED, str(paths[0])),
        ("B2", MEASURED, str(paths[1])),
    ]
    with pytest.raises(UsageError, match=r"--measured C=\.\.\.: there is no such side, but"):
        measured_runs(sides_of(plan), {"C": paths})
    with pytest.raises(PageallocError):
        measured_runs(sides_of(plan), {"A": [tmp_path / "none"]})


def test_boot_parameters_are_a_runs_own(tmp_path: Path) -> None:
    text = PLAN.replace("vm.percpu_pagelist_high_fraction", "boot:kernelcore")
    plan = read_plan(write_plan(tmp_path, text))
    boots = [boot_of(plan, side, 1, tmp_path).boot for side in sides_of(plan)]
    assert boots == [("kernelcore=0",), ("kernelcore=8",)]
