"""The reply to the thread on the highatomic reserve: mechanism, one guest table, a patch."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from pagealloc_model.notebooks.studies.shipped_data import shipped_data, success

from pagealloc_model.studies.study import (
    Column,
    Fixed,
    Message,
    Section,
    Table,
    Words,
    change_interval,
)

SUBJECT = "Re: [PATCH] mm/page_alloc: skip high atomic reservation at or below costly order"
QUESTION = (
    "On Tue, 19 May 2026, Johannes Weiner wrote:\n"
    "> Why don't we stop with a couple of claimed highatomic blocks that\n"
    "> get continuously recycled?\n"
    "> How can 1% of memory throw such a wrench into the gears?"
)
RECYCLED = (
    "Recycling: up to 6.18 a slow-path atomic request that a per-CPU list serves reserves the "
    "block that its page lies in, though the reserve has room; 7.2 ended that. A block goes "
    "back only through unreserve_highatomic_pageblock(), once direct reclaim has made progress "
    "and the retry has failed, broken blocks first. Faults that may not reclaim never get "
    "there."
)
MECHANISM = (
    "The wrench: nr_free is summed over types, so free HighAtomic blocks count as suitable "
    "although no huge page is served from them. fragmentation_score_node() then stays below its"
    " high mark of 90, and kcompactd does not begin by itself: with one zone a tenth of the "
    "free memory in such blocks is enough (312 blocks: 6.1 GiB free), with a DMA32 less. And "
    "fragmentation_index() is -1000 while one such block is free, so compaction is not declined"
    " where it is in vain."
)
CLAIM = (
    "Leaving them out of both (patch below) keeps the reserve. {boots} boots of an emulated "
    "guest, registered before the first: 6.12.117, 2 GiB; 15 s of atomic requests of orders 1 "
    "to 3 under page-cache reads end, then come 300 unadvised huge-page faults in a minute, "
    "defrag=madvise. THP success with its 95% interval over boots:"
)
SIDES = {
    "none": ("no change", 20),
    "gate": ("your patch (gate 3)", 20),
    "score": ("score alone", 20),
    "both": ("score and index", 20),
    "none_0": ("no change", 0),
    "both_0": ("score and index", 0),
}
"""Sides of the experiment: what was changed, and vm.compaction_proactiveness."""
LIMITS = (
    "Not explained: the fall of pgscan_kswapd (here no side measurably differs), and your "
    "compaction success, which counts direct compaction. In guests whose reserve had pages in "
    "use in each block the gate had no measurable effect."
)
REFUTE = (
    "To refute it on an unpatched host: compact_daemon_migrate_scanned in /proc/vmstat must "
    "hardly grow; free order-9 and 10 HighAtomic pages in /proc/pagetypeinfo must be a tenth of"
    " all free pages (less with a DMA32); with vm.compaction_proactiveness=0 on both sides the "
    "difference must go."
)
PATCH = "fragmentation_without_highatomic-{release}.patch"


def shipped_boots() -> pd.DataFrame:
    """Boots of the registered experiment, a row each, with `thp` as the share served."""
    boots = pd.read_csv(shipped_data("the boots") / "experiments/reserve_score/boots.csv")
    return boots.assign(thp=boots["served"] / boots["asked"])


def predicted_success() -> pd.Series:
    """Share served that the model predicts by side, over seeds, from a boot without any change."""
    path = shipped_data("the predictions") / "experiments/reserve_score/predicted.csv"
    sums = pd.read_csv(path).groupby("side")[["served", "refused"]].sum()
    return sums["served"] / sums.sum(axis=1)


def shipped_patch(release: str = "6.12") -> str:
    """The patch for a release: 6.12 or 7.3."""
    folder: Path = shipped_data("the patch") / "patches"
    return (folder / PATCH.format(release=release)).read_text()


def side_rows(boots: pd.DataFrame) -> pd.DataFrame:
    """A row a side: boots, reserved and wholly free blocks, THP success with its interval."""
    rows = []
    for side, (change, proactiveness) in SIDES.items():
        own = boots[boots["side"] == side]
        rows.append(
            {
                "change": change,
                "proactiveness": proactiveness,
                "boots": len(own),
                "reserved": own["blocks_quiet"].mean(),
                "whole": own["whole_quiet"].mean(),
                **success(own["thp"]),
                "kcompactd_scanned": own["kcompactd_scanned"].mean(),
                "failed_order_3": int(own["failed_order_3"].sum()),
            }
        )
    return pd.DataFrame(rows)


def change_rows(boots: pd.DataFrame) -> pd.DataFrame:
    """What each side changed against none of its proactiveness: THP success, in points."""
    rows = []
    for side, (change, proactiveness) in SIDES.items():
        base = "none" if proactiveness else "none_0"
        if side != base:
            before, after = (boots.loc[boots["side"] == each, "thp"] for each in (base, side))
            low, high = change_interval(before.to_list(), after.to_list())
            rows.append((change, proactiveness, after.mean() - before.mean(), low, high))
    return pd.DataFrame(
        rows, columns=["change", "proactiveness", "points", "change_low", "change_high"]
    )


def experiment_rows() -> pd.DataFrame:
    """A row a side: what was measured, the change in points, and what the model predicted."""
    boots = shipped_boots()
    sides = side_rows(boots).merge(change_rows(boots), how="left")
    predicted = predicted_success().reindex(list(SIDES)).to_numpy()
    shares = ["thp_success", "low", "high", "points", "change_low", "change_high"]
    sides[shares] = 100 * sides[shares]
    return sides.assign(predicted=100 * predicted).round(0)


def reserve_reply() -> Message:
    """The whole reply; the patch follows it."""
    boots = shipped_boots()
    blocks = (
        Fixed(text=QUESTION),
        Words(text=RECYCLED),
        Words(text=MECHANISM),
        Words(text=CLAIM.format(boots=len(boots))),
        Fixed(text=_table(side_rows(boots))),
        Words(text=_said(change_rows(boots), boots)),
        Words(text=LIMITS),
        Words(text=REFUTE),
    )
    return Message(subject=SUBJECT, sections=(Section(title="", blocks=blocks),))


def _table(sides: pd.DataFrame) -> str:
    rows = [
        (
            row["change"],
            f"{row['proactiveness']}",
            f"{row['boots']}",
            f"{row['reserved']:.0f} ({row['whole']:.0f})",
            f"{100 * row['thp_success']:.0f}%",
            f"{100 * row['low']:.0f} to {100 * row['high']:.0f}",
            f"{row['kcompactd_scanned']:,.0f}",
        )
        for row in sides.to_dict("records")
    ]
    titles = ("p", "boots", "reserved", "THP", "interval", "kcompactd")
    return Table((Column(title="change", words=True), *titles), rows).to_text()


def _said(changes: pd.DataFrame, boots: pd.DataFrame) -> str:
    """What the table shows, and what it does not."""
    words = [
        f"{row['change']} {100 * row['points']:+.0f} points "
        f"({100 * row['change_low']:.0f} to {100 * row['change_high']:.0f})"
        for row in changes[changes["proactiveness"] > 0].to_dict("records")
    ]
    failed = int(boots[[f"failed_order_{order}" for order in range(4)]].to_numpy().sum())
    asked = int(boots[[f"asked_order_{order}" for order in range(4)]].to_numpy().sum())
    return (
        "p is vm.compaction_proactiveness, reserved: blocks (of these wholly free), kcompactd: "
        f"pages it scanned to migrate. Against no change: {', '.join(words)}. So the two together "
        "are shown, one alone is not. In one boot of these the reserve was empty when the faults "
        f"began. Of {asked:,} atomic requests in a burst afterwards {failed} failed on all sides: "
        "what the gate costs did not show at this load."
    )
