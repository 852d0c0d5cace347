"""Guests without proactive compaction: the reserve left out of score and index, the posted gate.

What was expected is in data/experiments/reserve_control/registered.toml.
"""

from __future__ import annotations

import pandas as pd
from pagealloc_model.notebooks.studies.others.shipped_data import shipped_data, success

from pagealloc_model.numbers.statistics import change_interval

CONTROL_SIDES = {
    "none_0": ("no change", 1),
    "both_0": ("score and index", 1),
    "gate_0": ("posted gate", 1),
    "index_0": ("index alone", 1),
    "none_d": ("no change", 0),
    "both_d": ("score and index", 0),
    "gate_d": ("posted gate", 0),
}
"""What was changed, and khugepaged/defrag; each is compared with no change before it."""


def control_boots(name: str = "boots") -> pd.DataFrame:
    """Boots, a row each, or by name "predicted" replays; `thp` is the percent of faults served."""
    table = pd.read_csv(shipped_data("the boots") / f"experiments/reserve_control/{name}.csv")
    asked = table["asked"] if name == "boots" else table["served"] + table["refused"]
    return table.assign(thp=100 * table["served"] / asked)


def control_rows() -> pd.DataFrame:
    """A row a side with a boot: THP success, its change in points, what khugepaged and others did.

    Intervals are 95 % over boots, NaN for one boot; `predicted` is a change in points, NaN where
    nothing was predicted. Counters are means.
    """
    boots, replays = control_boots(), control_boots("predicted")
    by_side = replays.groupby(["side", "source"])["thp"].mean()
    rows, base = [], ""
    for side, (change, defrag) in CONTROL_SIDES.items():
        base = side if change == "no change" else base
        own, before = (boots.loc[boots["side"] == name] for name in (side, base))
        row = {"change": change, "khugepaged_defrag": defrag, "boots": len(own)}
        row |= {"reserved": own["blocks_quiet"].mean()}
        row |= {name: 100 * share for name, share in success(own["thp"] / 100).items()}
        if side != base:
            low, high = change_interval(before["thp"].to_list(), own["thp"].to_list())
            row |= {"points": own["thp"].mean() - before["thp"].mean()}
            row |= {"change_low": low, "change_high": high}
            if side in by_side:
                source = by_side[side].index[0]
                row |= {"predicted": by_side[side, source] - by_side[base, source]}
        for name in ("collapsed", "compact_stall", "compact_success", "kcompactd_scanned"):
            row[name] = own[name].mean()
        rows.append(row)
    return pd.DataFrame(rows).query("boots > 0")
