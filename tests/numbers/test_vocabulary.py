"""Every number that is compared, once: names, and what a new row is in at once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.numbers import vocabulary as voc
from pagealloc_model.numbers.join import distance
from pagealloc_model.numbers.statistics import SHARE
from pagealloc_model.numbers.values import TYPES, Holds, States, Zones
from tests.docs.examples import examples
from tests.small_recordings import shipped_recording, shipped_replay

CHECKOUT = Path(__file__).parents[2]
ADDED = """
import json, sys
from importlib.util import find_spec, module_from_spec
from pathlib import Path

spec = find_spec("pagealloc_model.numbers.vocabulary")
voc = sys.modules[spec.name] = module_from_spec(spec)
source = Path(spec.origin).read_text().replace("STATES = (", f"STATES = ({sys.argv[1]}", 1)
exec(compile(source, spec.origin, "exec"), voc.__dict__)

import pagealloc_model as pm
from pagealloc_model.show.post.comparison_message import predicted_charts

validation = pm.validate(pm.open(sys.argv[2]))
base, patch = validation.replay, pm.replay(validation.recording, pm.Policy(pcp_batch=31))
comparison = pm.compare(base, patch).validated(validation)
tables = (validation.errors, validation.snapshots, validation.scores, comparison.rows)
shown = {
    "tables": [json.loads(table.to_json(orient="records")) for table in tables],
    "texts": [
        validation.to_text(), *(made._repr_html_() for made in (validation, comparison, base))
    ],
    "swept": voc.sweep_row(base),
    "meaning": voc.column("free_share_in_whole_blocks").meaning,
    "of_fleets": pm.fleets.DEFAULT_METRICS,
}
voc.STATES = voc.STATES[:1]
print(json.dumps(shown | {"chart": predicted_charts(comparison)[-1]}))
"""
"""Validate a recording, compare and sweep it with a row added to the states."""


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


def test_the_row_of_contributing_is_all_that_a_new_number_needs() -> None:
    """By hand from the tables of both sides; zones that did not change are left out."""
    shown = [each.body for each in examples(CHECKOUT, "CONTRIBUTING.md") if "Number(" in each.body]
    recording = shipped_recording("highatomic_gate3")
    command = [sys.executable, "-c", ADDED, shown[0], str(recording.path)]
    added = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    name = shown[0].split('"')[1]
    errors, snapshots, scores, compared = (
        {row.get("scope"): row for row in table if row["metric"] == name}
        for table in added["tables"]
    )
    replay, measured = pm.replay(recording), recording.measure()
    first, *times = np.unique(measured.free_pages["time_ns"])[1:4]
    parts = {}
    for side, tables in (("measured", measured), ("predicted", replay), ("null", measured)):
        table = tables.free_pages[tables.free_pages["zone"] != "DMA"]
        large = table[table["order"] >= replay.machine.counted_order]
        parts[side] = whole, free = [
            rows.astype({"pages": float})
            .pivot_table(index="time_ns", columns="zone", values="pages", aggfunc="sum")
            .reindex([first] * len(times) if side == "null" else times)
            .fillna(0.0)
            for rows in (large, table)
        ]
        for zone, share in (whole / free).items():
            assert errors[f"zone={zone}"][side] == pytest.approx(share.mean())
        assert snapshots["all"][side] == pytest.approx(
            (whole.sum(axis=1) / free.sum(axis=1)).iloc[-1]
        )
    normal = errors["zone=Normal"]
    assert normal["unit"].startswith("share, ") and 0.1 < normal["null"] < 0.9
    share = (parts["measured"][0].sum(axis=1) / parts["measured"][1].sum(axis=1)).mean()
    assert scores[None]["measured"] == pytest.approx(share)
    text, *pages = added["texts"]
    assert f"{share:.4f}" in text and all(name in page for page in pages)
    assert f"{name}, zone=Normal; from " in pages[-1]
    row, free = compared["zone=Normal"], replay.free_pages[replay.free_pages["zone"] == "Normal"]
    whole = free[free["order"] >= replay.machine.counted_order].groupby("time_ns")["pages"].sum()
    assert row["base"] == pytest.approx((whole / free.groupby("time_ns")["pages"].sum()).mean())
    assert row["unit"] == SHARE and row["better"] == "higher" and row["error"] >= 0
    swept = added["swept"]
    assert swept[name] == pytest.approx(1 - swept["unusable_index_pageblock"])
    assert added["meaning"].startswith("share of free pages in buddies")
    assert name in added["of_fleets"]
    assert "share of free pages in whole blocks, all zones" in added["chart"]


def test_a_share_of_nothing_is_none_at_an_instant_of_its_own() -> None:
    free = np.zeros((2, 1, 11, len(TYPES)))
    free[0, 0, 9:, 0] = 512.0
    blocks, listed, boosts = free[:, :, 0], free[:, :, :2, 0], free[:, :, 0, 0]
    states = States(np.arange(2), free, blocks, listed, boosts)
    zones = Zones(states=states, block_order=10)
    share = voc.dated(
        lambda zones: zones.whole.sum(axis=1), share_of=lambda zones: zones.by_order.sum(axis=1)
    )
    assert share(zones).values.tolist() == [0.5, 0.0]
    free[1] = np.nan
    assert share(Zones(states=states, block_order=10)).time_ns.tolist() == [0]


def test_one_side_with_nothing_free_is_a_whole_error() -> None:
    """Of the distribution over orders; where neither has anything free they agree."""
    machine = shipped_replay("kbuild").machine
    kinds = len(machine.migratetypes)
    sides = []
    for free_at in ((0, 1), (0,)):
        free = np.zeros((3, len(machine.zones), 11, kinds))
        free[list(free_at), :, 9, 0] = 512.0
        blocks, listed, boosts = free[:, :, 0], free[:, :, :2, 0], free[:, :, 0, 0]
        sides.append(States(np.arange(3), free, blocks, listed, boosts))
    real, model = (
        [row for row in voc.by_zone(side, machine, voc.TABLED) if row.metric.endswith("_tv")][-1]
        for side in sides
    )
    assert distance(model.values, real.values) == pytest.approx(1 / 3)


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


def test_amounts_places_and_kinds_have_no_better_direction() -> None:
    """The author of one patch wants more of them and that of another fewer."""
    neither = {
        *("free_pages", "pcp_count", "pages_per_acquisition", "pages_per_refill", "remote_frees"),
        *("refill_pages", "drain_pages", "pages_per_drain", "fallback_claims", "compact_success"),
    }
    assert {row.name for row in voc.NUMBERS if row.name in neither} == neither
    assert not {row.name for row in voc.NUMBERS if row.better} & neither
    assert {row.better for row in voc.HOLD_TIMES} == {"", "lower"}
