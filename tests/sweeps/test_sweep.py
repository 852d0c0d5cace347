"""Sweeps by threads of this process: rows, caches, errors, interruptions, and the command."""

from __future__ import annotations

import shutil
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pagealloc_model as pm
from pagealloc_model.allocator.events import advance
from pagealloc_model.base.errors import RecordingError, UsageError
from pagealloc_model.numbers.vocabulary import column, sweep_row
from pagealloc_model.predicted.replay import Cancelled
from pagealloc_model.sweeps import records as local
from pagealloc_model.sweeps import records as record
from pagealloc_model.sweeps.design import Settings
from pagealloc_model.sweeps.records import (
    HeldRecordings,
    named_recording,
    point_key,
    recording_digest,
)
from pagealloc_model.sweeps.sweep import SweepResult
from tests.small_recordings import write_recording

BATCHES = [1, 4, 15, 31]
MADE_ANEW = ["seconds", "finished"]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> pm.Recording:
    return pm.open(write_recording(tmp_path_factory.mktemp("sweeps") / "small"))


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Settings of every replay that a sweep makes."""
    points: list[Settings] = []
    plain = Settings.replayed

    def counted(settings: Settings, *arguments: object) -> pm.Replay:
        points.append(settings)
        return plain(settings, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Settings, "replayed", counted)
    return points


def test_a_row_is_what_a_replay_says(small: pm.Recording, tmp_path: Path) -> None:
    rows = pm.sweep([small], vary={"pcp_batch": BATCHES}, cache=tmp_path).to_pandas()
    assert list(rows["pcp_batch"]) == BATCHES
    for row in rows.itertuples():
        replay = pm.replay(small, pm.Policy(pcp_batch=int(row.pcp_batch)))
        metrics = sweep_row(replay)
        assert {name: getattr(row, name) for name in metrics} == metrics
        assert all(column(name).meaning != name for name in metrics)
        assert row.error == ""
        assert row.effective_policy == str(replay.policy)
        assert row.effective_rules == replay.rules.spelled()


def test_metrics_are_those_of_the_replays_own_tables(small: pm.Recording) -> None:
    replay = pm.replay(small, pm.Policy(pcp_batch=4))
    metrics = sweep_row(replay)
    free = replay.free_pages
    by_time = free.groupby("time_ns")["pages"].sum()
    assert metrics["free_pages"] == pytest.approx(by_time.mean())
    assert metrics["free_pages_end"] == by_time.iloc[-1]
    by_order = free.groupby(["time_ns", "order"])["pages"].sum().groupby("order").mean()
    assert metrics["free_pages_order_3"] == pytest.approx(by_order[3])
    below = free[free["order"] < 9].groupby("time_ns")["pages"].sum()
    assert metrics["unusable_index_pageblock"] == pytest.approx((below / by_time).mean())
    assert 0 < metrics["unusable_index_costly"] < metrics["unusable_index_pageblock"]
    full = replay.transactions_full
    assert metrics["zone_lock_acquisitions"] == len(full)
    drains = full[full["site"] == "drain"]
    assert metrics["drain_pages"] == drains["pages"].sum()
    assert metrics["longest_drain_pages"] == drains["pages"].max()
    held = replay.lock_times().acquisitions["hold_ns"]
    assert metrics["zone_lock_hold_ns"] == held.sum()
    assert metrics["zone_lock_longest_hold_ns"] == held.max()


def test_elastic_replays_have_the_kernels_counters(small: pm.Recording) -> None:
    own = pm.Assumptions(reclaim="elastic")
    result = pm.sweep([small], vary={"assumptions.reclaim": ["literal", "elastic"]}, cache=False)
    vmstat = pm.replay(small, assumptions=own).vmstat
    last = vmstat[vmstat["time_ns"] == vmstat["time_ns"].max()].set_index("name")["value"]
    literal, elastic = (row for _, row in result.rows.iterrows())
    assert result.failed.empty
    assert elastic["vmstat_pgscan_kswapd"] == last["pgscan_kswapd"]
    assert np.isnan(literal["vmstat_pgscan_kswapd"])
    assert "vmstat_pgscan_kswapd" in result.metrics


def test_shares_served_by_order_are_metrics() -> None:
    rows = pd.DataFrame({"anon_order_4_served_by_order": [0.5], "error": [""]})
    assert SweepResult(rows=rows, axes=()).metrics == ("anon_order_4_served_by_order",)


def test_points_seeds_and_recordings_make_one_row_each(small: pm.Recording, tmp_path: Path) -> None:
    other = pm.open(write_recording(tmp_path / "other"))
    (tmp_path / "other" / "profile.folded").write_text("another;recording;by;content 1\n")
    result = pm.sweep(
        [small, other, small],
        vary={"pcp_batch": [4, 15], "pcp_free_batched": [None, True]},
        seeds=(0, 1, 0),
        cache=False,
    )
    keys = ["recording", "pcp_batch", "pcp_free_batched", "seed"]
    assert len(result.rows) == 2 * 4 * 2
    assert not result.rows.duplicated(keys).any()
    assert result.rows["key"].is_unique
    assert result.axes == ("pcp_batch", "pcp_free_batched")


def test_a_repeated_sweep_makes_nothing_and_an_enlarged_one_what_is_new(
    small: pm.Recording, tmp_path: Path, replays: list[Settings]
) -> None:
    first = pm.sweep([small], vary={"pcp_batch": BATCHES[:3]}, cache=tmp_path)
    assert len(replays) == 3
    again = pm.sweep([small], vary={"pcp_batch": np.array(BATCHES[:3])}, cache=tmp_path)
    assert len(replays) == 3
    assert again.reused == 3
    pd.testing.assert_frame_equal(first.rows, again.rows)
    pm.sweep([small], vary={"pcp_batch": BATCHES}, cache=tmp_path)
    assert [replay.policy.pcp_batch for replay in replays[3:]] == BATCHES[3:]


def test_the_number_of_workers_changes_nothing(small: pm.Recording) -> None:
    one, three = (
        pm.sweep([small], vary={"pcp_batch": BATCHES}, workers=workers, cache=False)
        for workers in (1, 3)
    )
    pd.testing.assert_frame_equal(
        one.rows.drop(columns=MADE_ANEW), three.rows.drop(columns=MADE_ANEW)
    )


def test_a_damaged_result_is_made_again(
    small: pm.Recording, tmp_path: Path, replays: list[Settings]
) -> None:
    pm.sweep([small], vary={"pcp_batch": [4, 15]}, cache=tmp_path)
    files = sorted(tmp_path.rglob("*.json"))
    files[0].write_text(files[0].read_text()[:40])
    files[1].write_text("{}")
    result = pm.sweep([small], vary={"pcp_batch": [4, 15]}, cache=tmp_path)
    assert len(replays) == 4
    assert result.failed.empty


def test_a_key_depends_on_everything_that_changes_a_result(
    small: pm.Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = Settings()
    digest = recording_digest(small)
    changed = [
        base.with_values({"pcp_batch": 15}),
        base.with_values({"rules": "6.12"}),
        base.with_values({"assumptions.counters": "lagged"}),
        base.with_values({"policy": pm.Hooks(reserve=lambda order, reserved, managed: 0)}),
        Settings(seed=1),
    ]
    keys = {point_key(digest, settings) for settings in [base, *changed]}
    copy = pm.open(shutil.copytree(small.path, tmp_path / "small"))
    assert point_key(recording_digest(copy), base) in keys
    snapshot = next((tmp_path / "small" / "snapshots").iterdir())
    (snapshot / "zoneinfo").write_text("changed")
    with pytest.raises(RecordingError, match="open the recording again"):
        recording_digest(copy)
    keys.add(point_key(recording_digest(pm.open(copy.path)), base))
    monkeypatch.setattr("pagealloc_model.sweeps.records.model_fingerprint", lambda: "other")
    keys.add(point_key(digest, base))
    assert len(keys) == len(changed) + 3


def test_a_point_that_fails_is_a_row_with_its_error(
    small: pm.Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = record.sweep_row

    def failing(replay: pm.Replay) -> dict[str, float]:
        if replay.asked_policy.pcp_batch == 4:
            raise MemoryError("no room\nfor it")
        return plain(replay)

    monkeypatch.setattr(record, "sweep_row", failing)
    result = pm.sweep([small], vary={"pcp_batch": BATCHES}, cache=tmp_path)
    assert list(result.failed["pcp_batch"]) == [4]
    assert list(result.failed["error"]) == ["MemoryError: no room for it"]
    assert result.failed["free_pages"].isna().all()
    assert result.rows["free_pages"].notna().sum() == 3
    monkeypatch.undo()
    mended = pm.sweep([small], vary={"pcp_batch": BATCHES}, cache=tmp_path)
    assert mended.reused == 3
    assert mended.failed.empty


def test_hooks_are_a_policy_like_any_other(
    small: pm.Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pagealloc_model.allocator.hooks.advance_with", lambda *_: advance)
    hooks = pm.Hooks(drain=lambda pages, order, count, high, batch: pages)
    result = pm.sweep([small], vary={"policy": [None, hooks], "pcp_batch": [4]}, cache=False)
    plain, hooked = (row for _, row in result.rows.iterrows())
    assert hooked["decided_by"] == "hooks drain"
    assert hooked["policy"] == f"hooks drain ({hooks.fingerprint})"
    assert hooked["zone_lock_acquisitions"] == plain["zone_lock_acquisitions"]


def test_an_interrupted_sweep_keeps_what_is_finished(
    small: pm.Recording, tmp_path: Path, replays: list[Settings]
) -> None:
    def interrupt(share: float) -> None:
        if share >= 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pm.sweep(
            [small], vary={"pcp_batch": BATCHES}, cache=tmp_path, workers=1, progress=interrupt
        )
    files = len(list(tmp_path.rglob("*.json")))
    assert files >= 2
    replays.clear()
    result = pm.sweep([small], vary={"pcp_batch": BATCHES}, cache=tmp_path)
    assert result.reused == files
    assert len(replays) == 4 - files


def test_closing_stops_replays_that_run(
    small: pm.Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = threading.Event()
    stopped = []

    def waits(settings: Settings, recording: pm.Recording, cancel: object) -> pm.Replay:
        if settings.policy.pcp_batch == 1:
            running.wait()
            raise RuntimeError
        running.set()
        while not cancel():  # type: ignore[operator]
            pass
        stopped.append(settings.policy.pcp_batch)
        raise Cancelled

    monkeypatch.setattr(Settings, "replayed", waits)
    recording = named_recording(small)
    tasks = [
        local.Task(key=str(batch), recording=recording, settings=settings)
        for batch in (1, 4)
        for settings in [Settings().with_values({"pcp_batch": batch})]
    ]
    records: Iterator[record.Record] = local.records_by_threads(tasks, 2)
    assert next(records).key == "1"
    records.close()  # type: ignore[attr-defined]
    assert stopped == [4]


def test_the_last_recordings_are_held_and_others_let_go(small: pm.Recording) -> None:
    swept, held = named_recording(str(small.path)), HeldRecordings(1)
    recording = held.ready("one", swept.opened, Settings())
    assert held.ready("one", swept.opened, Settings()) is recording
    let_go = weakref.ref(recording)
    del recording
    held.ready("one", swept.opened, None)
    assert let_go() is not None
    held.ready("two", swept.opened, None)
    assert let_go() is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"vary": {"pcp_batch": []}}, "no values"),
        ({"vary": []}, "at least one point"),
        ({"seeds": ()}, "at least one recording and one seed"),
        ({"workers": 0}, "needs at least one"),
    ],
)
def test_sweeps_of_nothing_are_refused(
    small: pm.Recording, arguments: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        pm.sweep([small], cache=False, **arguments)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="at least one recording"):
        pm.sweep([])
