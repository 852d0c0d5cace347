"""The reply to the thread on the highatomic reserve: answers and one guest table; its patch."""

from __future__ import annotations

import pandas as pd
from pagealloc_model.notebooks.studies.highatomic.reserve_defer import (
    CHANGES,
    defer_boots,
)
from pagealloc_model.notebooks.studies.others.shipped_data import shipped_data, success

from pagealloc_model.base.table import Column, Table
from pagealloc_model.base.text import paragraph
from pagealloc_model.numbers.statistics import change_interval
from pagealloc_model.show.post.message import (
    LISTS,
    MEMORY_CORE,
    PAGE_ALLOCATOR,
    Fixed,
    Message,
    Section,
    Words,
)

SUBJECT = "Re: [PATCH] mm/page_alloc: skip high atomic reservation at or below costly order"
TO = "Johannes Weiner <hannes@cmpxchg.org>"
AUTHORS = (
    "JP Kobryn <jp.kobryn@linux.dev>",
    "Frank van der Linden <fvdl@google.com>",
)
"""Of the gate, and of the fix that the reply and the patch name."""
COPIES = (*AUTHORS, *PAGE_ALLOCATOR, *LISTS)
UNPROTECTED = """\
On Tue, May 19, 2026, Johannes Weiner wrote:
> Presumably <costly orders don't need the protection."""
NEEDED = (
    "With the gate none of {asked:,} order-3 requests fails in the guests below; in others, in "
    "bursts as large as the reserve, {gate:.0f}% do, without it {none:.0f}%."
)
QUESTION = """\
> Why don't we stop with a couple of claimed highatomic blocks that get
> continuously recycled?"""
RECYCLED = (
    "On v6.13 slow-path requests that a pcp list serves reserve one each; Frank's fix of March "
    "ends that. Only failed reclaim gives one back."
)
WRENCH = "> How can 1% of memory throw such a wrench into the gears?"
MECHANISM = (
    "kcompactd starts on its own while fragmentation_score_node() is above 90, and free reserved "
    "blocks count there as if huge pages could have them: on a node of one zone {blocks} of them "
    "({mib} MiB) keep it at 90 or below while less than {low:.1f} GiB are free. That is not all: "
    "where failing faults wake kcompactd more than twice a second, as with defer below, it never "
    "reads the score. (Sashiko: could kcompactd unreserve? Not tried.)"
)
CLAIM = "{boots} guests of 6.12.117, 2 GiB, emulated, defrag=defer, reserve idle:"
STUCK = (
    "In {stuck} of these boots few faults are served, as JP sees: kswapd scans {scanned:,.0f} "
    "pages, kcompactd, woken by kswapd, {daemon:,.0f}, in others {usual:,.0f}. Leaving the reserve "
    "out of the score does not prevent it; with madvise it may help (RFC patch, apart)."
)
STUCK_BELOW = 10
"""Percent of faults served in boots that the mail calls few."""
SIDES = {
    "none": ("no change", 20),
    "gate": ("posted gate", 20),
    "score": ("score alone", 20),
    "both": ("score and index", 20),
    "none_0": ("no change", 0),
    "both_0": ("score and index", 0),
}
"""Sides of the experiment: what was changed, and vm.compaction_proactiveness."""
MADVISE = "madvise"
LOADS = {
    "whole": "idle, whole blocks",
    "throughout": "atomics go on",
    "crumbs": "some pages kept",
    "always": "idle, defrag=always",
    MADVISE: "all but defrag=always",
}
"""Loads of the experiment over loads, and those under madvise together."""
COMPARED = ("none", "gate", "both")
"""Its sides."""
ASK = "JP, which THP defrag, khugepaged/defrag, proactiveness have those hosts, and Frank's fix?"
PATCH = "score_without_highatomic-{}.patch"
"""In data/patches, by release; that for 7.3 begins a thread of its own."""
PATCH_TO = "Andrew Morton <akpm@linux-foundation.org>"
PATCH_COPIES = (*PAGE_ALLOCATOR, *MEMORY_CORE, *AUTHORS, *LISTS)
SHOWN = {
    "none": CHANGES["none"],
    "none_p0": "proactiveness 0",
    "gate": CHANGES["gate"],
    "score": "reserve not in score",
    "cap": CHANGES["cap"],
}
"""Sides of the mail's table, all of one kernel and one setting, and what it calls them."""
MIB_HIDDEN = 2 * 312
"""Of the posted hosts' reserve."""
HOST_GIB, DMA32_GIB = 64, 3
"""Memory of the posted hosts, and of it below 4 GiB as machines mostly have it."""


def hidden_percent(dma32_score: int | None = None) -> int:
    """The percent of free memory above which reserved whole blocks keep kcompactd away (S9.6).

    It is that of Normal of a host of `HOST_GIB`, alone or beside a DMA32 of `DMA32_GIB` with a
    score of its own; zones are weighted by their pages, and each product is rounded down.
    """
    total, mark = HOST_GIB << 18, 90
    small = 0 if dma32_score is None else DMA32_GIB << 18
    others = small * (dma32_score or 0) // (total + 1)
    began = next(s for s in range(101) if others + (total - small) * s // (total + 1) > mark)
    return 100 - began


def shipped_boots() -> pd.DataFrame:
    """Boots of the registered experiment, a row each, with `thp` as the share served."""
    boots = pd.read_csv(shipped_data("the boots") / "experiments/reserve_score/boots.csv")
    return boots.assign(thp=boots["served"] / boots["asked"])


def predicted_success() -> pd.Series:
    """Share served that the model predicts by side, over seeds, from a boot without any change."""
    path = shipped_data("the predictions") / "experiments/reserve_score/predicted.csv"
    sums = pd.read_csv(path).groupby("side")[["served", "refused"]].sum()
    return sums["served"] / sums.sum(axis=1)


def load_boots() -> pd.DataFrame:
    """Boots of the experiment over loads, a row each, with `thp` as the share served."""
    boots = pd.read_csv(shipped_data("the boots") / "experiments/reserve_loads/boots.csv")
    return boots.assign(thp=boots["served"] / boots["asked"])


def predicted_changes(source: str, load: str = "whole") -> pd.Series:
    """Change that the model predicts against no change, in points, by side.

    Args:
        source: "idle", from a boot recorded once its reserve is idle, or "load", from one recorded
            while the reserve fills.
        load: the load of the experiment.
    """
    folder = shipped_data("the predictions") / "experiments/reserve_loads"
    told = pd.read_csv(folder / f"predicted_from_{source}.csv")
    sums = told[told["load"] == load].groupby("side")[["served", "refused"]].sum()
    share = 100 * sums["served"] / sums.sum(axis=1)
    return share - share["none"]


def load_predictions() -> pd.Series:
    """Change that the model predicts against no change, in points, by load and side.

    That of both comes from a boot recorded once its reserve is idle, that of gate from one recorded
    while the reserve fills.
    """
    changes = {}
    for side, source in (("both", "idle"), ("gate", "load")):
        for load in ("whole", "always"):
            changes[load, side] = predicted_changes(source, load)[side]
        changes[MADVISE, side] = changes["whole", side]
    return pd.Series(changes)


def load_rows() -> pd.DataFrame:
    """A row a load and side: THP success and its change in points, and what failed in bursts.

    Failures are of 10,000 requests of an order.
    """
    boots, predicted = load_boots(), load_predictions()
    rows = []
    for load, words in LOADS.items():
        own = boots[boots["load"] != "always" if load == MADVISE else boots["load"] == load]
        before = own.loc[own["side"] == "none", "thp"].to_list()
        for side in COMPARED:
            cell = own[own["side"] == side]
            if cell.empty:
                continue
            points, low, high = float("nan"), float("nan"), float("nan")
            if side != "none":
                low, high = (100 * end for end in change_interval(before, cell["thp"].to_list()))
                points = 100 * (cell["thp"].mean() - sum(before) / len(before))
            rows.append(
                {"load": words, "change": SIDES[side][0], "boots": len(cell)}
                | {"reserved": cell["blocks_quiet"].mean(), "whole": cell["whole_quiet"].mean()}
                | {name: 100 * share for name, share in success(cell["thp"]).items()}
                | {"points": points, "change_low": low, "change_high": high}
                | {"predicted": predicted.get((load, side), float("nan"))}
                | {"kcompactd_scanned": cell["kcompactd_scanned"].mean()}
                | {f"failed_order_{order}": failed_in(cell, order) for order in range(4)}
            )
    return pd.DataFrame(rows)


def failed_in(boots: pd.DataFrame, order: int) -> float:
    """Atomic requests of an order that failed in boots' bursts, of 10,000."""
    return 1e4 * boots[f"failed_order_{order}"].sum() / boots[f"asked_order_{order}"].sum()


def shipped_patch(release: str = "7.3") -> str:
    """The patch with its subject and changelog, for 7.3.4 or 6.12.117."""
    return (shipped_data("the patch") / "patches" / PATCH.format(release)).read_text()


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
    """Changes by each side against none of its proactiveness: THP success, in points."""
    rows = []
    for side, (change, proactiveness) in SIDES.items():
        base = "none" if proactiveness else "none_0"
        if side != base:
            before, after = (boots.loc[boots["side"] == name, "thp"] for name in (base, side))
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


def cost_rows() -> pd.DataFrame:
    """Changes by each side in failures of a burst, of 10,000 by order, with its interval.

    Boots of all loads are taken together.
    """
    boots = load_boots()
    rows = []
    for side in ("gate", "both"):
        for order in range(4):
            share = 1e4 * boots[f"failed_order_{order}"] / boots[f"asked_order_{order}"]
            before, after = (share[boots["side"] == name].to_list() for name in ("none", side))
            low, high = change_interval(before, after)
            change = sum(after) / len(after) - sum(before) / len(before)
            rows.append((side, order, change, low, high))
    return pd.DataFrame(rows, columns=["side", "order", "change", "low", "high"])


def reserve_reply() -> Message:
    """The whole reply; the patch is a mail of its own."""
    boots = defer_boots()
    boots = boots[boots["side"].isin(SHOWN)]
    percent = hidden_percent()
    mechanism = MECHANISM.format(
        blocks=MIB_HIDDEN // 2, mib=MIB_HIDDEN, low=MIB_HIDDEN / percent * 100 / 1024
    )
    loads = load_rows()
    loads = loads[loads["load"] == LOADS[MADVISE]].set_index("change")
    bursts = loads["failed_order_3"] / 100
    asked = boots.loc[boots["side"] == "gate", "asked_order_3"].sum()
    needed = NEEDED.format(asked=asked, gate=bursts["posted gate"], none=bursts["no change"])
    blocks = (
        _answered(UNPROTECTED, needed),
        _answered(QUESTION, RECYCLED),
        _answered(WRENCH, mechanism),
        Fixed(text=f"{CLAIM.format(boots=len(boots))}\n{_table(boots)}"),
        Words(text=f"{_stuck(boots)} {ASK}"),
    )
    sections = (Section(title="", blocks=blocks),)
    return Message(subject=SUBJECT, sections=sections, to=TO, copies=COPIES)


def _answered(question: str, words: str) -> Fixed:
    return Fixed(text=f"{question}\n{paragraph(words)}")


def _stuck(boots: pd.DataFrame) -> str:
    """What boots that serve few have in common."""
    is_few = boots["thp"] < STUCK_BELOW
    few, others = boots[is_few], boots[~is_few]
    return STUCK.format(
        stuck=len(few),
        scanned=few["kswapd_scanned"].mean(),
        daemon=few["kcompactd_scanned"].mean(),
        usual=others["kcompactd_scanned"].mean(),
    )


def _table(boots: pd.DataFrame) -> str:
    rows = []
    for side, words in SHOWN.items():
        own = boots[boots["side"] == side].sort_values("thp")
        served = ", ".join(f"{each:.0f}" for each in own["thp"])
        scanned = ", ".join(f"{each / 1000:.0f}" for each in own["kswapd_scanned"])
        rows.append((words, served, scanned))
    titles = (Column(title="THP served by boot, %"), Column(title="pgscan_kswapd, 1,000 pages"))
    return Table((Column(title="", words=True), *titles), rows, grouped=False).to_text()
