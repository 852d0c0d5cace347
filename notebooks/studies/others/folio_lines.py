"""Requests for anonymous memory by order on highatomic_stock, and how many a replay serves.

Usage: python notebooks/studies/others/folio_lines.py
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from pagealloc_model.notebooks.studies.others.error_lines import table_lines

import pagealloc_model as pm
from pagealloc_model.predicted.elastic_values import elastic_values

SIZES = {"as recorded": None, "64 KiB": 16, "all": 1020}
"""Masks of the orders that faults ask for, in words."""
SEEDS = range(3)
COUNTS = ("asked", "at_once", "after_work", "failed")


def folio_lines() -> Iterator[str]:
    """A markdown table: ranges over seeds by mask and order, then what was measured."""
    recording = pm.open("highatomic_stock")
    own = elastic_values(recording).costs_alone
    rows = [
        _anonymous(pm.replay(recording, policy, assumptions=own, seed=seed).folios, sizes)
        for sizes, policy in ((words, pm.Policy(huge_anon_orders=m)) for words, m in SIZES.items())
        for seed in SEEDS
    ]
    table = pd.concat([*rows, _anonymous(recording.measure().folios, "measured")])
    by_order = table.groupby(["sizes", "order"], sort=False)[[*COUNTS]]
    yield from table_lines(by_order.agg(_in_range).reset_index())


def _anonymous(folios: pd.DataFrame, sizes: str) -> pd.DataFrame:
    return folios[(folios["class"] == "anon") & (folios["order"] > 0)].assign(sizes=sizes)


def _in_range(counts: pd.Series) -> str:
    least, most = (f"{end:,}" for end in (counts.min(), counts.max()))
    return least if least == most else f"{least} to {most}"


if __name__ == "__main__":
    print(*folio_lines(), sep="\n")
