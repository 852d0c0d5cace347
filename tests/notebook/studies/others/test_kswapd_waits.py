"""The table of counters with kswapd's waits for a CPU and without, of the cut that ships."""

from __future__ import annotations

from pagealloc_model.notebooks.studies.others.kswapd_waits import BOOST, COUNTERS, waits_table

import pagealloc_model as pm


def test_each_quantity_is_there_as_measured_and_on_both_sides() -> None:
    table = waits_table(["scheduled_6.12"])
    assert table["quantity"].tolist() == [*COUNTERS, BOOST]
    rows = table.set_index("quantity")
    snapshots = pm.open("scheduled_6.12").snapshots
    first, last = snapshots[1].vmstat, snapshots[-2].vmstat
    assert first is not None and last is not None
    grown = (last.get("pgsteal_kswapd") or 0) - (first.get("pgsteal_kswapd") or 0)
    assert rows.loc["pgsteal_kswapd", "measured"] == grown > 0
    for side in ("even", "by_switches"):
        assert (rows[f"{side}_low"] <= rows[f"{side}_high"]).all()
        assert rows.loc["pgsteal_kswapd", f"{side}_low"] > grown / 2
    assert (rows["even_high"] != rows["by_switches_high"]).any()
