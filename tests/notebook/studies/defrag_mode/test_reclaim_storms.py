"""Reclaim under defrag_mode without and with the fixes of 2026, on a smaller host."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pagealloc_model.notebooks.studies.defrag_mode import reclaim_storms


def test_each_fix_ends_what_it_was_posted_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reclaim_storms, "SEEDS", (0,))
    small = replace(reclaim_storms.HOST, gib=2, working_set_pages=200_000, seconds=3)
    monkeypatch.setattr(reclaim_storms, "HOST", small)
    runs = reclaim_storms.storm_runs().set_index("side")
    off, merged, _, promotes, both = (runs.loc[side] for side in reclaim_storms.SIDES)
    for counter in ("pgscan_direct", "allocstall", "workingset_refault_file"):
        assert merged[counter] > 5 * max(both[counter], off[counter])
    assert promotes["requests_failed"] > 10 > both["requests_failed"]
    table = reclaim_storms.storm_table()
    assert list(table.iloc[:, 0]) == list(reclaim_storms.SIDES)
    scanned = table["direct scanned"].iloc[1]
    assert scanned == "{0:,.0f} ({0:,.0f} to {0:,.0f})".format(merged["pgscan_direct"])
