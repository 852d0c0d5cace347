"""Traffic at zone->lock: measured and predicted, and under two policies."""

from __future__ import annotations

import pytest

import pagealloc_model as pm
from pagealloc_model.allocator.sites import PERFORMED, SITES
from pagealloc_model.numbers.locks import (
    KEYS,
    LockComparison,
    compare_locks,
    lock_policy_rows,
)
from pagealloc_model.show import figures
from pagealloc_model.show.post.tables import traffic_table
from tests.small_recordings import shipped_recording, shipped_replay


@pytest.fixture(scope="module")
def xfree() -> LockComparison:
    return compare_locks(shipped_recording("xfree"))


def test_both_sides_are_in_one_table(xfree: LockComparison) -> None:
    table = xfree.table
    assert set(table["source"]) == {"measured", "predicted"}
    assert not table.duplicated([*KEYS, "source"]).any()
    measured = table[table["source"] == "measured"]
    assert measured["hold_ns"].isna().all()
    predicted = table[table["source"] == "predicted"]
    assert predicted["hold_ns"].notna().all()
    assert predicted["acquisitions"].sum() == len(xfree.times.acquisitions)


def test_totals_by_site_come_from_the_table(xfree: LockComparison) -> None:
    by_site = xfree.by_site.set_index("site")
    refills = xfree.measured.transactions_full.query("site == 'refill'")
    assert by_site.loc["refill", "acquisitions_measured"] == len(refills)
    assert by_site.loc["refill", "pages_measured"] == refills["pages"].sum()
    assert abs(by_site.loc["refill", "pages_per_acquisition_error"]) < 0.15


def test_every_site_has_a_row_and_what_nobody_knows_is_na(xfree: LockComparison) -> None:
    """Refills are measured, boost resets only modelled, scans of compaction neither."""
    by_site = xfree.by_site.set_index("site")
    assert set(by_site.index) == {*(site.name for site in SITES), "other"}
    sides = ["acquisitions_measured", "acquisitions_predicted"]
    assert by_site.loc["refill", sides].notna().all()
    assert by_site.loc["boost_reset", sides].isna().tolist() == [True, False]
    assert by_site.drop(index=[*PERFORMED, "other"]).isna().all(axis=None)
    shown = traffic_table(xfree).split()
    assert {"refill", "boost_reset"} <= {*shown}
    assert not {site.name for site in SITES if site.left_out} & {*shown}


def test_contended_acquisitions_have_a_measured_side(xfree: LockComparison) -> None:
    contended = xfree.table.groupby("source")["contended"].sum()
    assert contended["measured"] == len(xfree.measured.contention.waits) > 0


def test_direct_frees_are_na_where_no_event_shows_all_of_them(xfree: LockComparison) -> None:
    """Waits at them show by lock events all the same."""
    row = xfree.by_site.set_index("site").loc["direct_free"]
    unknown = ["acquisitions_measured", "pages_measured", "acquisitions_error"]
    assert row[unknown].isna().all()
    assert row[["acquisitions_predicted", "contended_measured"]].notna().all()
    assert any(note.startswith("direct_free: how many") for note in xfree.notes)
    probed = compare_locks(
        shipped_recording("highatomic_gate3"), shipped_replay("highatomic_gate3")
    )
    seen = probed.by_site.set_index("site").loc["direct_free"]
    assert seen[unknown].notna().all()
    assert not any(note.startswith("direct_free") for note in probed.notes)


def test_batches_show_in_the_table_and_the_figure() -> None:
    recording = shipped_recording("xfree")
    base, patch = (
        pm.replay(recording, pm.Policy(pcp_free_batched=batched)).lock_times()
        for batched in (False, True)
    )
    rows = lock_policy_rows(base, patch).set_index(["metric", "scope", "unit"])
    assert rows.loc[("longest hold", "drain commit", "pages"), "base"] > 1000
    assert rows.loc[("longest hold", "drain commit", "pages"), "patch"] == 63
    assert not rows.index.duplicated().any()
    text = pm.locks.lock_policy_table(base, patch, "base: one hold; patch: batches")
    assert all(len(line) <= 72 for line in text.splitlines())
    assert "acquire: 60 ns" in text
    figure = figures.lock_times({"one": base.acquisitions, "two": patch.acquisitions})
    assert len(figure.data) == 4  # holds alone: nobody waits here
