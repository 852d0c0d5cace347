"""Experiments on the reviewers' questions: what must hold of any host."""

from __future__ import annotations

from dataclasses import replace

from pagealloc_model.studies.workload.reserve_questions import (
    AFFECTED_HOST,
    HOST,
    LONG_MS,
    SHORT_MS,
    what_one_percent_does,
    why_not_recycled,
)


def test_only_what_per_cpu_lists_serve_fills_the_reserve() -> None:
    table = why_not_recycled(replace(HOST, atomic_per_s=6_000, seconds=6))
    assert set(table["atomic_ms"]) == {SHORT_MS, LONG_MS}
    assert (table.loc[~table["from_pcp"], "blocks_taken"] == 0).all()
    assert table.loc[table["from_pcp"], "blocks_taken"].sum() > 0
    left = table["blocks_taken"] - table["blocks_given_back"]
    assert (left == table["reserved_blocks"]).all()


def test_policies_are_held_against_the_gate() -> None:
    table = what_one_percent_does(replace(AFFECTED_HOST, seconds=5), seeds=(0,)).set_index("policy")
    assert table.loc["gate", ["huge_pages_lost", "blocks_taken"]].to_list() == [0, 0]
    assert table.loc["gate, 1% more min_free", "blocks_taken"] == 0
    assert table.loc["mainline, cap of 1%", "blocks_taken"] > 0
