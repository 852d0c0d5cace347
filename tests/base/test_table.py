"""Tables: what a cell holds adds no column."""

from __future__ import annotations

from pagealloc_model.base.table import Column, Table


def test_a_cell_of_markdown_adds_no_column() -> None:
    table = Table([Column(title="name", words=True), "count"], [("a|b", 1.0)])
    assert table.to_markdown().splitlines()[2] == "| a\\|b | 1 |"
