"""The reply to the thread on the highatomic reserve: mechanism, one guest table, a patch."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from pagealloc_model.notebooks.studies.highatomic.reserve_control import control_rows
from pagealloc_model.notebooks.studies.others.shipped_data import shipped_data, success

from pagealloc_model.base.table import Column, Table
from pagealloc_model.numbers.statistics import change_interval
from pagealloc_model.show.post.message import Fixed, Message, Section, Words

SUBJECT = "Re: [PATCH] mm/page_alloc: skip high atomic reservation at or below costly order"
QUESTION = (
    "On Tue, 19 May 2026, Johannes Weiner wrote:\n"
    "> Why don't we stop with a couple of claimed highatomic blocks that\n"
    "> get continuously recycled?\n"
    "> How can 1% of memory throw such a wrench into the gears?"
)
RECYCLED = (
    "Recycling: as Vlastimil wrote on 28 May, no pressure called for unreserving. A block goes "
    "back only where a retry after direct reclaim failed, or before OOM; faults that may not "
    "reclaim never get there. Until March's \"don't increase highatomic reserve after pcp alloc\" "
    "a slow-path atomic served by a pcp list had its page's block reserved, room or not. On "
    "7.3.4, with fewer, the gate gains {points:+.0f} points ({low:.0f} to "
    "{high:.0f})."
)
MECHANISM = (
    "The wrench: nr_free is summed over types, so free HighAtomic blocks count as suitable "
    "though no huge page may take them. fragmentation_score_node() then stays at 90 or below, and "
    "kcompactd does not begin by itself (nor while kswapd runs): more than {alone}% of the free "
    "memory in them is enough, {least} to {most}% beside a DMA32 of {small} GiB (312 blocks: "
    "{low:.1f} to {high:.0f} GiB free). And fragmentation_index() is -1000 while one is free, so "
    "compaction is not declined where memory is short."
)
CLAIM = (
    "The patch below leaves them out of both (and of debugfs' extfrag) and keeps the reserve. "
    "{boots} boots of an emulated 6.12.117 of 2 GiB, with it behind a sysctl: atomics of orders 1 "
    "to 3 under page-cache reads, then 300 unadvised huge-page faults in a minute, defrag=madvise. "
    "{early} ran in real time, where no atomic failed; {late} count time in instructions, {other} "
    "of them under three loads (atomics end, leave some pages, go on: put together), then bursts "
    "of 16 MiB at min_free_kbytes=5700. THP success, its 95% interval, failures of 10,000 by "
    "order:"
)
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
LIMITS = (
    "Not explained: pgscan_kswapd's fall (by instructions it rises: gate {gate}, both {both}), "
    "nor how far compaction succeeds (here khugepaged's). Of 54 hosts of the model none is as "
    "posted."
)
REFUTE = "To refute it on those hosts, where each of these must hold:"
COMMANDS = """\
  grep compact_daemon_migrate_scanned /proc/vmstat  # less without gate
  grep HighAtomic /proc/pagetypeinfo  # without: orders 9 and 10 over 8%
                            # of nr_free_pages (4 to 8% with a DMA32)
  sysctl vm.compaction_proactiveness=0  # both sides: gain shrinks"""
PATCH = "fragmentation_without_highatomic-{release}.patch"
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
    """The whole reply; the patch follows it."""
    rows = load_rows()
    percent = [hidden_percent(score) for score in (None, 0, 100)]
    mechanism = MECHANISM.format(
        alone=percent[0],
        least=percent[1],
        most=percent[2],
        small=DMA32_GIB,
        low=MIB_HIDDEN / percent[0] * 100 / 1024,
        high=MIB_HIDDEN / percent[1] * 100 / 1024,
    )
    blocks = (
        Fixed(text=QUESTION),
        Words(text=RECYCLED.format(**_gated_today())),
        Words(text=mechanism),
        Words(text=_claim()),
        Fixed(text=_table(rows)),
        Words(text=f"{_said(rows)}{_other_loads(rows)}"),
        Words(text=_limits()),
        Words(text=REFUTE),
        Fixed(text=COMMANDS),
    )
    return Message(subject=SUBJECT, sections=(Section(title="", blocks=blocks),))


def _table(rows: pd.DataFrame) -> str:
    whole = rows[rows["load"] == LOADS[MADVISE]].set_index("change")
    earlier = side_rows(shipped_boots())
    earlier = earlier[earlier["proactiveness"] > 0].set_index("change")
    shown = []
    for change in (SIDES[side][0] for side in ("none", "gate", "score", "both")):
        cells = _share(100 * earlier.loc[change, ["thp_success", "low", "high"]])
        if change in whole.index:
            failed = (f"{whole.loc[change, f'failed_order_{order}']:,.0f}" for order in (1, 2, 3))
            cells += (*_share(whole.loc[change]), *failed)
        shown.append((change, *cells, *("-",) * (7 - len(cells))))
    first, second = (_range(part["boots"]) for part in (earlier, whole))
    titles = (first, "interval", second, "interval", "o1", "o2", "o3")
    return Table((Column(title="", words=True), *titles), shown, grouped=False).to_text()


def _range(boots: pd.Series) -> str:
    counts = sorted({str(count) for count in boots})
    return " or ".join(counts) if len(counts) > 1 else f"{counts[0]} boots"


def _share(row: pd.Series) -> tuple[str, ...]:
    return f"{row['thp_success']:.0f}%", f"{row['low']:.0f} to {row['high']:.0f}"


def _said(rows: pd.DataFrame) -> str:
    """Sentences on what the table shows, and what it does not."""
    by_load = rows.set_index(["load", "change"])
    whole, first = (by_load.loc[LOADS[load]] for load in (MADVISE, "whole"))
    earlier = change_rows(shipped_boots())
    earlier = earlier[earlier["proactiveness"] > 0].set_index("change")
    columns = ["points", "change_low", "change_high"]
    names = {side: SIDES[side][0] for side in ("gate", "score", "both")}
    before = [f"{side} {_points(100 * earlier.loc[name, columns])}" for side, name in names.items()]
    now = [f"{side} {_points(whole.loc[names[side]])}" for side in ("gate", "both")]
    points = _points(first.loc[names["both"]]).replace(" (", ", ").rstrip(")")
    idle, filling = (predicted_changes(name) for name in ("idle", "load"))
    costs = cost_rows().set_index(["side", "order"])[["change", "low", "high"]]
    pays = "{:+,.0f} ({:,.0f} to {:,.0f})"
    return (
        f"Against no change, in points: {', '.join(before)}; by instructions {', '.join(now)}. "
        f"Registered: the score alone gains, and so do both under the first load ({points}). "
        "Neither is measurable, nor both against the gate. A model predicts "
        f"{idle['both']:+.0f} for both from an idle reserve, {filling['both']:+.0f} "
        f"from one that fills it (gate {filling['gate']:+.0f}). kcompactd scans "
        f"{_scanned('both')} pages more with both. {_control()} Over all "
        f"{len(load_boots())} boots the gate adds {pays.format(*costs.loc[('gate', 3)])} "
        f"to o3, both {pays.format(*costs.loc[('both', 3)])}."
    )


def _scanned(side: str, column: str = "kcompactd_scanned") -> str:
    """Change by a side in pages scanned under madvise, in thousands, with its interval."""
    boots = load_boots()
    boots = boots[boots["load"] != "always"]
    before, after = (boots.loc[boots["side"] == name, column] for name in ("none", side))
    low, high = change_interval(before.to_list(), after.to_list())
    change = after.mean() - before.mean()
    return f"{change / 1000:.0f}k ({low / 1000:.0f}k to {high / 1000:.0f}k)"


def _control() -> str:
    """What is left without proactive compaction, with and without khugepaged's direct one."""
    rows = control_rows().set_index(["khugepaged_defrag", "change"])
    on, off = rows.loc[1], rows.loc[0]["thp_success"]
    without = [f"{off[SIDES[side][0]]:.0f}" for side in COMPARED if SIDES[side][0] in off]
    gains = [
        f"{side} {on.loc[name, 'thp_success']:.0f}% ({_points(on.loc[name]).replace(' (', ', ')}"
        for side, name in ((side, SIDES[side][0]) for side in COMPARED[1:])
    ]
    return (
        f"At proactiveness 0 ({rows['boots'].sum()} boots) no change has "
        f"{on.loc['no change', 'thp_success']:.0f}%, {', '.join(gains)}; with "
        f"khugepaged/defrag 0 {', '.join(without)}%."
    )


def _limits() -> str:
    """What the posted figures have and the boots have not."""
    scans = {side: _scanned(side, "kswapd_scanned") for side in ("gate", "both")}
    return LIMITS.format(**scans)


def _gated_today() -> dict[str, float]:
    """Change by the gate under 7.3's own rule, in points, with its interval."""
    changes = pd.read_csv(shipped_data("the changes") / "tables/slowpath_changes.csv")
    row = changes[changes["pair"].str.startswith("A -> B: vm.highatomic_gate_order")].iloc[0]
    return {"points": row["change"], "low": row["low"], "high": row["high"]}


def _claim() -> str:
    """What was done, with the boots of each part."""
    early, loads = len(shipped_boots()), load_boots()["load"]
    late, other = len(loads), int((loads != "always").sum())
    return CLAIM.format(boots=early + late, early=early, late=late, other=other)


def _points(row: pd.Series) -> str:
    return f"{row['points']:+.0f} ({row['change_low']:.0f} to {row['change_high']:.0f})"


def _other_loads(rows: pd.DataFrame) -> str:
    """THP success with defrag=always, by side, if each has a boot."""
    own = rows[rows["load"] == LOADS["always"]]["thp_success"]
    if len(own) < len(COMPARED):
        return ""
    none, gate, both = (f"{share:.0f}" for share in own)
    return f" defrag=always, a boot each: {none}, {gate}, {both}%."
