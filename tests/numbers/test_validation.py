"""Validation: the error table, checked by hand; comparisons with null models; its JSON."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pagealloc_model as pm
from pagealloc_model.numbers.validation import Validation
from pagealloc_model.recording.recorded_machine import start_snapshots
from pagealloc_model.recording.trace.columns import Event
from tests.small_recordings import LITERAL, shipped_recording, write_recording

SHIPPED = ("kbuild", "xfree", "highatomic_stock", "highatomic_gate3")


@pytest.fixture(scope="module", params=SHIPPED)
def validation(request: pytest.FixtureRequest) -> Validation:
    return pm.validate(shipped_recording(request.param), assumptions=LITERAL)


@pytest.fixture(scope="module")
def xfree() -> Validation:
    return pm.validate(shipped_recording("xfree"))


def row_of(errors: pd.DataFrame, metric: str, scope: str) -> pd.Series:
    chosen = errors[(errors["metric"] == metric) & (errors["scope"] == scope)]
    assert len(chosen) == 1
    return chosen.iloc[0]


def scored_times(validation: Validation) -> list[int]:
    """Snapshots after the start and during the demand."""
    _, start = start_snapshots(validation.recording)
    last = validation.recording.trace.demand_span_ns[1]
    times = [snapshot.time_ns for snapshot in validation.recording.dated_snapshots]
    return [time for time in times if start.time_ns < time <= last]


def test_every_row_stands_once_with_unit_and_null_model(validation: Validation) -> None:
    """An error is NA only where nothing was measured, or predicted."""
    errors = validation.errors
    assert not errors.duplicated(["metric", "scope"]).any()
    assert set(errors["kind"]) <= {"predicted", "imposed", "predicted alone"}
    assert (errors["unit"] != "").all() and (errors["null_model"] != "").all()
    has_null = errors["null_model"] != "none"
    assert errors[has_null & errors["measured"].notna()]["null"].notna().all()
    assert errors[~has_null][["predicted", "error"]].isna().all(axis=None)
    unknown = errors[errors["error"].isna()]
    unmeasured = unknown["measured"].isna() | (unknown["measured"] == 0)
    assert (unmeasured | unknown["predicted"].isna()).all()


def test_scored_snapshots_are_those_after_the_start(validation: Validation) -> None:
    _, start = start_snapshots(validation.recording)
    shown = np.unique(validation.snapshots["time_s"])
    wanted = (np.array(scored_times(validation)) - start.time_ns) / 1e9
    assert shown == pytest.approx(wanted)


def test_drain_pages_by_hand(xfree: Validation) -> None:
    trace = xfree.recording.trace
    drained = trace.event == Event.PCPU_DRAIN
    measured = int((1 << trace.order[drained].astype(np.int64)).sum())
    log = xfree.replay.transactions_full
    predicted = int(log.loc[log["site"] == "drain", "pages"].sum())
    begin, end = trace.demand_span_ns
    first = drained & (trace.time_ns < begin + (end - begin) / 4)
    null = 4 * int((1 << trace.order[first].astype(np.int64)).sum())
    row = row_of(xfree.errors, "drain_pages", "all")
    assert (row["measured"], row["predicted"], row["null"]) == (measured, predicted, null)
    assert row["error"] == pytest.approx((predicted - measured) / measured)
    assert row["null_error"] == pytest.approx((null - measured) / measured)
    holds = xfree.measured.transactions_full
    assert row["counted"] == (holds["site"] == "drain").sum()


def test_fallbacks_and_counters_go_on_as_in_the_first_quarter() -> None:
    validation = pm.validate(shipped_recording("highatomic_stock"))
    trace = validation.recording.trace
    begin, end = trace.demand_span_ns
    fell = trace.time_ns[trace.event == Event.EXTFRAG]
    row = row_of(validation.errors, "extfrag_events", "all")
    assert row["measured"] == len(fell) > 0
    assert row["null"] == 4 * (fell < begin + (end - begin) / 4).sum()
    row = row_of(validation.errors, "thp_fault_alloc", "all")
    served = validation.measured.vmstat.query("name == 'thp_fault_alloc'")
    edges = validation.replay.edges
    served = served[served["time_ns"].between(edges[0], edges[-1])]
    times, values = served["time_ns"].to_numpy(float), served["value"].to_numpy(float)
    quarter = np.interp(times[0] + (times[-1] - times[0]) / 4, times, values)
    assert row["null"] == pytest.approx(4 * (quarter - values[0]))
    assert row_of(validation.errors, "thp_success", "all")["null_model"] == "all succeed"


def test_free_pages_by_hand(xfree: Validation) -> None:
    _, start = start_snapshots(xfree.recording)

    def free_in(snapshot_ns: int) -> int:
        snapshot = next(s for s in xfree.recording.dated_snapshots if s.time_ns == snapshot_ns)
        assert snapshot.pagetypeinfo is not None
        return sum(
            buddies << order
            for row in snapshot.pagetypeinfo.free_lists
            if row.zone == "Normal"
            for order, buddies in enumerate(row.buddies)
        )

    def predicted_in(snapshot_ns: int) -> int:
        table = xfree.replay.free_pages
        chosen = (table["time_ns"] == snapshot_ns) & (table["zone"] == "Normal")
        return int(table.loc[chosen, "pages"].sum())

    times = scored_times(xfree)
    measured = [free_in(time) for time in times]
    predicted = [predicted_in(time) for time in times]
    held = free_in(start.time_ns)
    spread = max(*measured, held) - min(*measured, held)
    row = row_of(xfree.errors, "free_pages", "zone=Normal")
    assert row["measured"] == pytest.approx(np.mean(measured))
    assert row["predicted"] == pytest.approx(np.mean(predicted))
    gaps = np.abs(np.array(predicted) - np.array(measured))
    assert row["error"] == pytest.approx(gaps.mean() / spread)
    assert row["null_error"] == pytest.approx(np.abs(held - np.array(measured)).mean() / spread)


@pytest.mark.parametrize(
    ("name", "metric", "scope"),
    [
        ("xfree", "free_pages", "zone=Normal"),
        ("xfree", "order_distribution_tv", "zone=Normal"),
        ("xfree", "drain_pages", "all"),
        ("xfree", "drain_pages", "per time bin"),
        ("xfree", "drain_transactions", "all"),
        ("xfree", "refill_transactions", "all"),
        ("kbuild", "pcp_count", "zone=Normal,cpu=0"),
        ("kbuild", "pcp_count", "zone=Normal,cpu=1"),
        ("kbuild", "free_pages", "zone=Normal"),
        ("highatomic_gate3", "free_pages", "zone=DMA32"),
    ],
)
def test_the_model_beats_its_null_model(name: str, metric: str, scope: str) -> None:
    row = row_of(pm.validate(shipped_recording(name), assumptions=LITERAL).errors, metric, scope)
    assert abs(row["error"]) < abs(row["null_error"])


def test_what_demand_imposes_is_met(validation: Validation) -> None:
    row = row_of(validation.errors, "free_and_listed_pages", "all")
    assert row["kind"] == "imposed"
    assert row["error"] < 0.15


def test_progress_and_cancel_reach_the_replay() -> None:
    shares: list[float] = []
    pm.validate(shipped_recording("highatomic_gate3"), assumptions=LITERAL, progress=shares.append)
    assert shares[-1] == 1.0
    with pytest.raises(pm.Cancelled):
        pm.validate(shipped_recording("highatomic_gate3"), assumptions=LITERAL, cancel=lambda: True)


def test_what_was_never_recorded_is_not_zero(tmp_path: Path) -> None:
    """Event text without refills, drains and later snapshots cannot say that there were none."""
    validation = pm.validate(pm.open(write_recording(tmp_path / "small")))
    moved = [f"{site}_{what}" for site in ("refill", "drain") for what in ("pages", "transactions")]
    for metric in (*moved, "extfrag_events"):
        assert pd.isna(row_of(validation.errors, metric, "all")["measured"])
    assert any("no snapshot after the start" in line for line in validation.notes)
    assert not len(validation.snapshots)
    assert not set(validation.errors["metric"]) & {"free_pages", "pcp_count", "pageblocks"}
