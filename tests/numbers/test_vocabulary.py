"""Every number that is compared, once: names, and what a new row is in at once."""

from __future__ import annotations

from collections import Counter

import pytest

import pagealloc_model as pm
from pagealloc_model.numbers import vocabulary as voc
from pagealloc_model.numbers.statistics import SHARE
from pagealloc_model.numbers.values import Holds
from pagealloc_model.show.html.results import replay_html
from pagealloc_model.show.post.comparison_message import predicted_charts
from tests.small_recordings import shipped_recording

NEW = voc.Number(
    *("free_share_in_whole_blocks", SHARE, "higher", "mean"),
    voc.dated(lambda zones: zones.whole.sum(axis=1) / zones.free.sum(axis=(1, 2))),
    scope="",
    words="share of free pages in whole blocks",
    verdict=(99, "free pages in whole blocks"),
    sweep="free_share_in_whole_blocks",
    meaning="share of free memory in buddies of a pageblock or more, mean over time",
)


def test_a_name_stands_for_one_number() -> None:
    for names in (
        [(row.name, row.scope, row.unit) for row in voc.NUMBERS if row.name],
        [row.run for row in voc.RUNS],
        [row.sweep for row in voc.SWEPT],
        [row.verdict[0] for row in voc.NUMBERS if row.verdict[0]],
    ):
        assert [name for name, count in Counter(names).items() if count > 1] == []


def test_a_row_says_how_its_number_is_made_and_what_its_column_means() -> None:
    made_elsewhere = {*voc.FOLIOS, *voc.WAITS, *voc.TIMES}
    for row in voc.NUMBERS:
        assert row.make or row in made_elsewhere or row.run in made_elsewhere, row
        assert bool(row.sweep) == bool(row.meaning), row


def test_a_new_row_is_in_comparisons_sweeps_pages_and_charts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(voc, "STATES", (*voc.STATES, NEW))
    monkeypatch.setattr(voc, "SWEPT", (*voc.SWEPT, NEW))
    recording = shipped_recording("highatomic_gate3")
    base, patch = (pm.replay(recording, pm.Policy(pcp_batch=batch)) for batch in (None, 31))
    validation = pm.validate(recording)
    rows = pm.compare(base, patch).validated(validation).rows.set_index(["metric", "scope"])
    row = rows.loc[NEW.name, "zone=Normal"]
    free = base.free_pages[base.free_pages["zone"] == "Normal"]
    whole = free[free["order"] >= base.machine.pageblock_order].groupby("time_ns")["pages"].sum()
    assert row["base"] == pytest.approx((whole / free.groupby("time_ns")["pages"].sum()).mean())
    assert row["unit"] == SHARE and row["better"] == "higher" and row["error"] >= 0
    swept = voc.sweep_row(base)
    assert swept[NEW.sweep] == pytest.approx(1 - swept["unusable_index_pageblock"])
    assert voc.column(NEW.sweep).meaning == NEW.meaning
    assert f"{NEW.name}, zone=Normal; from " in replay_html(base)
    monkeypatch.setattr(voc, "STATES", (NEW, *voc.STATES[1:2]))
    assert "free share in whole blocks, all zones" in predicted_charts(pm.compare(base, patch))[-1]


def test_measured_and_predicted_are_made_alike() -> None:
    recording = shipped_recording("xfree")
    replay, measured = pm.replay(recording), recording.measure()
    of_log = voc.swept(voc.SWEPT_HOLDS, Holds.of_log(replay.log))
    sides = (Holds.of_table(table.transactions_full) for table in (replay, measured))
    model, kernel = (
        {(row.metric, row.scope): row.value for row in voc.compared(voc.HOLDS, side)}
        for side in sides
    )
    assert model.keys() == kernel.keys()
    for site in ("refill", "drain", "empty_refill"):
        assert model[f"{site}_transactions", "all"] == of_log[f"{site}_acquisitions"]


def test_columns_by_order_and_counter_have_a_meaning() -> None:
    assert voc.column("free_pages_order_7").meaning == "free in buddies of order 7, mean over time"
    assert "pgscan_kswapd" in voc.column("vmstat_pgscan_kswapd").meaning
    served = voc.column("anon_order_4_served_by_order")
    assert "order 4 for anon" in served.meaning and served.unit == SHARE
    assert voc.column("seconds").meaning == "seconds"
