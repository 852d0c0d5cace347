"""An experiment on a reviewer's question: what must hold of any host."""

from __future__ import annotations

from dataclasses import replace

from pagealloc_model.notebooks.studies.idle_reserve import (
    HOST,
    LONG_MS,
    SHORT_MS,
    why_not_recycled,
)


def test_only_what_per_cpu_lists_serve_fills_the_reserve() -> None:
    table = why_not_recycled(replace(HOST, atomic_per_s=6_000, seconds=6))
    assert set(table["atomic_ms"]) == {SHORT_MS, LONG_MS}
    assert (table.loc[~table["from_pcp"], "blocks_taken"] == 0).all()
    assert table.loc[table["from_pcp"], "blocks_taken"].sum() > 0
    left = table["blocks_taken"] - table["blocks_given_back"]
    assert (left == table["reserved_blocks"]).all()
