"""Attempts that took zone->lock and found no page: every table has them apart, times have them in.

highatomic_gate3 was recorded with kprobes, which show empty refills; xfree without.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.sites import EMPTY_SITES
from pagealloc_model.numbers.comparison import compare
from pagealloc_model.numbers.errors import PREDICTED_ALONE
from pagealloc_model.numbers.locks import compare_locks
from pagealloc_model.numbers.validation import Validation
from pagealloc_model.numbers.values import Holds
from pagealloc_model.numbers.vocabulary import HOLDS, swept
from pagealloc_model.predicted.lock_times import LockModel
from tests.small_recordings import LITERAL, shipped_recording, shipped_replay


@cache
def validated(name: str) -> Validation:
    return pm.validate(shipped_recording(name), assumptions=LITERAL)


@pytest.fixture(scope="module")
def probed() -> Validation:
    return validated("highatomic_gate3")


def empty_holds(replay: pm.Replay) -> dict[str, int]:
    """Refills and direct allocations without a page, counted in the log itself."""
    found_nothing = replay.log["objects"] == 0
    sites = (at.SITE_REFILL, at.SITE_BUDDY_ALLOC)
    return {
        name: int((found_nothing & (replay.log["kind"] == site)).sum())
        for name, site in zip(EMPTY_SITES, sites, strict=True)
    }


def row_of(validation: Validation, metric: str) -> pd.Series:
    rows = validation.errors.set_index(["metric", "scope"])
    return rows.loc[(metric, "all")]


def test_all_tables_of_a_replay_agree_site_by_site(probed: Validation) -> None:
    replay = probed.replay
    full = replay.transactions_full["site"].value_counts()
    sizes = replay.transactions.groupby("site")["transactions"].sum()
    binned = replay.lock.groupby("site")["acquisitions"].sum()
    plain = replay.lock_times(LockModel(trylock_fails=False)).acquisitions["site"].value_counts()
    columns = swept(HOLDS, Holds.of_log(replay.log))
    assert {site: full[site] for site in EMPTY_SITES} == empty_holds(replay)
    assert min(empty_holds(replay).values()) > 0
    for site in full.index:
        assert full[site] == sizes[site] == binned[site] == plain[site]
        if site != "boost_reset":
            assert full[site] == columns[f"{site}_acquisitions"]
    assert (binned.drop(full.index) == 0).all()
    assert (replay.transactions_full.query("site in @EMPTY_SITES")["pages"] == 0).all()
    assert (replay.transactions_full.query("site == 'refill'")["objects"] > 0).all()


def test_the_lock_table_adds_up_what_holds_moved(probed: Validation) -> None:
    table, full = probed.replay.lock, probed.replay.transactions_full
    width = np.diff(probed.replay.edges[:2])[0]
    first = full[full["time_ns"] < probed.replay.edges[0] + width]
    shown = table[table["time_ns"] == probed.replay.edges[0]].groupby(["zone", "site"])
    for what in ("objects", "pages"):
        sums = first.groupby(["zone", "site"])[what].sum()
        assert (shown[what].sum().loc[sums.index] == sums).all()
        assert shown[what].sum().sum() == sums.sum()


def test_kprobes_show_empty_refills_and_both_sides_stand_beside_each_other(
    probed: Validation,
) -> None:
    measured = probed.measured.transactions_full
    row = row_of(probed, "empty_refill_transactions")
    assert row["measured"] == (measured["site"] == "empty_refill").sum()
    assert row["predicted"] == empty_holds(probed.replay)["empty_refill"]
    assert row["kind"] == "predicted"
    refills = row_of(probed, "refill_transactions")
    assert refills["measured"] == (measured["site"] == "refill").sum()
    assert refills["predicted"] == (probed.replay.transactions_full["site"] == "refill").sum()


def test_what_nothing_recorded_can_show_is_marked(probed: Validation) -> None:
    direct = row_of(probed, "empty_buddy_alloc_transactions")
    assert pd.isna(direct["measured"])
    assert pd.isna(direct["error"])
    assert direct["predicted"] > 0
    assert direct["kind"] == PREDICTED_ALONE
    without_probes = row_of(validated("xfree"), "empty_refill_transactions")
    assert pd.isna(without_probes["measured"])
    assert without_probes["kind"] == PREDICTED_ALONE


def test_a_comparison_has_them_apart_and_in_the_total(probed: Validation) -> None:
    rows = compare(probed.replay, probed.replay).rows.set_index("metric")["base"]
    full = probed.replay.transactions_full
    for site, count in empty_holds(probed.replay).items():
        assert rows[f"{site}_transactions"] == count
    assert rows["zone_lock_acquisitions"] == len(full)
    moving = len(full) - sum(empty_holds(probed.replay).values())
    assert rows["pages_per_acquisition"] == pytest.approx(full["pages"].sum() / moving)


def test_lock_tables_mark_the_unknown_side() -> None:
    sides = ["acquisitions_measured", "acquisitions_predicted"]
    with_probes = compare_locks(
        shipped_recording("highatomic_gate3"), shipped_replay("highatomic_gate3")
    )
    rows = with_probes.by_site.set_index("site")
    measured, predicted = rows.loc["empty_refill", sides].tolist()
    assert measured == 0 and predicted > 0
    assert rows.loc["empty_buddy_alloc", sides].isna().tolist() == [True, False]
    held = with_probes.table.query("source == 'predicted' and site == 'empty_refill'")["hold_ns"]
    assert held.sum() > 0
    without = compare_locks(shipped_recording("xfree"))
    rows = without.by_site.set_index("site")
    assert rows.loc["empty_refill", sides].isna().tolist() == [True, False]
    assert any("takes zone->lock" in line for line in without.notes)
