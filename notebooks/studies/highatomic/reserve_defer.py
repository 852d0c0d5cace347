"""Guests whose huge-page faults wake kswapd: the gate, score and index, compact_gap() capped.

What was expected is in data/experiments/reserve_defer/registered.toml.
"""

from __future__ import annotations

import pandas as pd
from pagealloc_model.notebooks.studies.others.shipped_data import shipped_data, success

from pagealloc_model.numbers.statistics import change_interval

GROUPS = {
    "": "6.12.117, defer",
    "_73": "7.3.4, defer",
    "_p0": "6.12.117, defer, proactiveness 0",
    "_dm": "6.12.117, defer+madvise",
    "_wn": "6.12.117, madvise, not advised",
    "_73wn": "7.3.4, madvise, not advised",
}
"""What a side's name ends with, and the kernel and settings of that group."""
CHANGES = {
    "none": "no change",
    "gate": "posted gate",
    "both": "score and index",
    "index": "index alone",
    "score": "score alone",
    "cap": "compact_gap() capped",
    "sent": "the patch as sent",
}
"""What a side's name begins with; each is compared with no change of its group."""
COUNTERS = ("compact_stall", "compact_success", "kswapd_scanned", "kcompactd_scanned")


def defer_boots() -> pd.DataFrame:
    """Boots, a row each: `thp` is the percent of faults served, `acts` whether a change could act.

    It cannot where kswapd scanned nothing and, but for the gate, which keeps it empty, where no
    block is reserved.
    """
    boots = pd.read_csv(shipped_data("the boots") / "experiments/reserve_defer/boots.csv")
    reserved = (boots["blocks_quiet"] > 0) | boots["side"].str.startswith("gate")
    return boots.assign(
        thp=100 * boots["served"] / (boots["served"] + boots["refused"]),
        acts=reserved & (boots["kswapd_scanned"] > 0),
    )


def defer_rows() -> pd.DataFrame:
    """A row a side with a boot: THP success in percent, its change in points, what else changed.

    Intervals are 95 % over boots, NaN for one boot. Counters are means; `failed_order_3` is of
    10,000 atomic requests of the load's own. Where boots cannot act, a second row leaves them out.
    """
    boots = defer_boots()
    rows = []
    for end, group in GROUPS.items():
        sides = {start: boots[boots["side"] == start + end] for start in CHANGES}
        for start, own in sides.items():
            before = sides["none"]
            row = _row(group, CHANGES[start], own, before, start != "none")
            able = [each[each["acts"]] for each in (own, before)]
            rows.append(row)
            if len(able[0]) < len(own) or (start != "none" and len(able[1]) < len(before)):
                words = f"{CHANGES[start]}, boots that can act"
                rows.append(_row(group, words, *able, start != "none"))
    return pd.DataFrame(rows).query("boots > 0")


def _row(
    group: str, change: str, own: pd.DataFrame, before: pd.DataFrame, is_changed: bool
) -> dict[str, object]:
    row: dict[str, object] = {"setting": group, "change": change, "boots": len(own)}
    row |= {"reserved": own["blocks_quiet"].mean(), "reserved_end": own["blocks_end"].mean()}
    row |= {name: 100 * share for name, share in success(own["thp"] / 100).items()}
    for name, column in (("change", "thp"), ("kswapd", "kswapd_scanned")):
        ends = (float("nan"), float("nan"))
        if is_changed:
            ends = change_interval(before[column].to_list(), own[column].to_list())
            row[f"{name}_mean"] = own[column].mean() - before[column].mean()
        row |= dict(zip((f"{name}_low", f"{name}_high"), ends, strict=True))
    row |= {name: own[name].mean() for name in COUNTERS}
    asked, failed = own["asked_order_3"].sum(), own["failed_order_3"].sum()
    return row | {"failed_order_3": 1e4 * failed / asked if asked else float("nan")}
