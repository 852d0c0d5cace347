"""The reply to the thread on defrag_mode: its rows in the model by tree, and one real machine."""

from __future__ import annotations

import pandas as pd
from pagealloc_model.notebooks.studies.defrag_mode.compact_gap_guests import comparisons
from pagealloc_model.notebooks.studies.defrag_mode.compact_gap_guests import shipped as guests
from pagealloc_model.notebooks.studies.defrag_mode.native_rounds import (
    change,
    predicted_points,
    shipped_rounds,
    shipped_verdicts,
)
from pagealloc_model.notebooks.studies.defrag_mode.registered_rounds import judged, shares, shipped
from pagealloc_model.notebooks.studies.others.shipped_data import shipped_data

from pagealloc_model.base.table import Column, Table
from pagealloc_model.numbers.statistics import change_interval
from pagealloc_model.show.post.comparison_message import posted_figures
from pagealloc_model.show.post.message import Fixed, Message, Section, Words

SUBJECT = "Re: [PATCH 0/5] mm: reliable huge page allocator"
QUESTION = "Johannes, your cover letter of 13 March 2025 has, with all five patches:"
QUOTED = (
    "THP fault alloc",
    "Alloc stall",
)
"""Posted rows that the mail quotes."""
RECORDINGS = ("mixed_6.1", "matrix_A1", "matrix_C1", "defrag_7.3")
"""Those that the claim was made of; the others are in data/rounds/registered.csv."""
CLAIMED = ("mixed_6.1", "matrix_A1")
"""Those of the claim over rules."""
TREES = {
    "posted": "as posted",
    "posted, gap capped": "posted + cap",
    "posted, compaction in the loop": "posted + loop",
    "today": "7.3",
    "7.3, gap not capped": "7.3 - cap",
    "7.3, compaction before the loop": "7.3 - loop",
    "7.3, neither": "7.3 - both",
}
"""Trees, in the order in which they are shown, and their names in the mail."""
METHOD = (
    "I replayed recordings of four half-GiB guests in a model of the allocator, 16 times over "
    "with 300 huge-page faults each, defrag=always, slabs kept, ten seeds. As posted is "
    "6.15 with the series. 7.3 differs besides in cap: compact_gap() "
    "is min(2 << order, 32), and loop: the first compaction is a turn of the slow path's loop, so "
    "that faults reclaim where it failed. Percent served in the last five, "
    "off > on:"
)
MECHANISM = (
    "Why: with the cap kswapd gives an order up once it has freed 32 pages, not 1,024, so that "
    "the whole blocks the mode waits for are left to direct compaction. {cap} The loop lets "
    "mode 0 serve nearly all."
)
REFUTE = (
    "To refute it, with defrag=always: on 6.15, where mode 0 leaves most faults unserved, the cap "
    "must raise compact_fail and allocstall in mode 1; on 7.3 mode 1 must serve no more than "
    "mode 0:"
)
COMMANDS = """\
  sysctl vm.defrag_mode=1                     # and 0, in turns
  grep -E 'thp_fault|compact_fail|allocstall|daemon_wake' /proc/vmstat
  pagealloc experiment native_rounds -o DIR   # both modes, as root"""
LIMITS = (
    "Of five other recordings under pressure {near:.0f}% of {counters} counters are within a "
    "factor of 1.5 ({null:.0f}% by others' rates). Where the mode helps, direct compaction "
    "succeeds {first:.0f} and {second:.0f} times as often (posted: {success:+.0f}%). No "
    "swap."
)


def tree_rows() -> pd.DataFrame:
    """A row a tree and recording: share served by side, change in points, posted signs of 12.

    Returns:
        tree, recording, vanilla, defrag_mode (percent), difference, low, high (points), sign (rows
        whose whole interval lies on the posted side).
    """
    runs = pd.concat([shipped(), shipped("rules")])
    runs = runs[(runs["faults"] == "always") & (runs["survivors"] == "stay")]
    runs = runs[runs["recording"].isin(RECORDINGS)]
    signs = judged(runs).groupby(["tree", "recording"])["sign"].sum()
    return shares(runs).merge(signs.reset_index(), on=["tree", "recording"])


def cap_rows() -> pd.DataFrame:
    """Changes by the cap alone on the posted tree: means over seeds by recording and side.

    Returns:
        recording, side; of `served` (percent, last rounds), compact_fail and allocstall the value
        before and after; low and high, the interval of the change of served, points.
    """
    runs = pd.concat([shipped(), shipped("rules")])
    runs = runs[(runs["faults"] == "always") & (runs["survivors"] == "stay")]
    runs = runs.assign(served=100 * runs["served_last"])
    rows = []
    for (recording, side), own in runs.groupby(["recording", "side"], sort=False):
        before, after = (own[own["tree"] == tree] for tree in ("posted", "posted, gap capped"))
        if after.empty:
            continue
        low, high = change_interval(before["served"].to_list(), after["served"].to_list())
        names = ("served", "compact_fail", "allocstall")
        means = {name: (before[name].mean(), after[name].mean()) for name in names}
        rows.append({"recording": recording, "side": side, **means, "low": low, "high": high})
    return pd.DataFrame(rows)


def rules_claim_holds() -> bool:
    """The standing of each claim of data/rounds/rules.toml, by whole intervals over seeds."""
    runs = pd.concat([shipped(), shipped("rules")])
    runs = runs[(runs["faults"] == "always") & (runs["survivors"] == "stay")]
    without = runs[runs["side"] == "vanilla"].set_index(["recording", "tree"])["served_last"]
    neither = tree_rows().set_index(["tree", "recording"])["low"]["7.3, neither"]
    raised = [
        change_interval(without[name, "posted"].to_list(), without[name, tree].to_list())[0] > 0
        for name in CLAIMED
        for tree in ("posted, gap capped", "posted, compaction in the loop")
    ]
    return all(raised) and all(neither[name] > 0 for name in CLAIMED)


def defrag_reply() -> Message:
    """The whole reply."""
    blocks = (
        Fixed(text=f"{QUESTION}\n{_quoted()}"),
        Words(text=METHOD),
        Fixed(text=_table()),
        Words(text=_said()),
        Words(text=MECHANISM.format(cap=_cap())),
        Words(text=_guests()),
        Words(text=_native()),
        Words(text=_limits()),
        Words(text=REFUTE),
        Fixed(text=COMMANDS),
    )
    return Message(subject=SUBJECT, sections=(Section(title="", blocks=blocks),))


def _posted() -> pd.DataFrame:
    told = posted_figures("defrag_mode_series")
    return told.pivot(index="quantity", columns="variant", values="low")


def _quoted() -> str:
    posted = _posted()
    return "\n".join(
        f"  {name:<31}{row['unpatched']:>12.2f} -> {row['patched']:>11.2f}"
        for name, row in posted.loc[list(QUOTED)].iterrows()
    )


def tree_table() -> pd.DataFrame:
    """The mail's table, a row a tree: shares served without the mode > with it, then signs.

    A mark tells on which side of 0 the whole interval of the difference lies.
    """
    rows = tree_rows().set_index(["tree", "recording"])
    shown = {}
    for tree, words in TREES.items():
        shown[words] = []
        for name in RECORDINGS:
            row = rows.loc[(tree, name)]
            mark = "+" if row["low"] > 0 else "-" if row["high"] < 0 else " "
            shown[words].append(f"{row['vanilla']:.0f} > {row['defrag_mode']:.0f}{mark}")
    shown["signs, as posted"] = [f"{rows.loc[('posted', name), 'sign']} " for name in RECORDINGS]
    return pd.DataFrame.from_dict(shown, orient="index", columns=list(RECORDINGS))


def _table() -> str:
    titles = (Column(title="", words=True), *RECORDINGS)
    return Table(titles, list(tree_table().itertuples(name=None)), grouped=False).to_text()


def _said() -> str:
    """The meaning of the marks, and how the registered claims fared."""
    signs = tree_rows().set_index(["tree", "recording"]).loc["posted", "sign"]
    held = [name for name in RECORDINGS if signs[name] >= 10]
    fared = "hold" if rules_claim_holds() else "do not hold"
    return (
        "+ and -: the whole 95% interval over seeds is there; signs: of the twelve rows of your "
        "table, those whose interval is on your side. Written down before the runs: ten of them on "
        f"each of the four. It holds on {len(held)} ({', '.join(held)}). On the first two cap or "
        f"loop alone serves more without the mode, 7.3 without both more with it: these {fared}."
    )


def _cap() -> str:
    """Effects of the cap under the mode, on the two recordings of the claim."""
    rows = cap_rows().set_index(["side", "recording"]).loc["defrag_mode"]
    row, other = (rows.loc[name] for name in CLAIMED)
    times = [row[name][1] / row[name][0] for name in ("compact_fail", "allocstall")]
    return (
        f"On {CLAIMED[0]} the cap alone takes the mode from {row['served'][0]:.0f} to "
        f"{row['served'][1]:.0f}% ({row['low']:+.0f} to {row['high']:+.0f} points), with "
        f"{times[0]:.0f} times the compact_fail and {times[1]:.0f} times the stalls; "
        f"{CLAIMED[1]} by {other['low']:+.0f} to {other['high']:+.0f}."
    )


def _guests() -> str:
    """Results of guests with and without the cap, and what was predicted of them."""
    boots = guests("boots")
    table = comparisons(boots, guests("predicted")).set_index(["change", "at", "quantity"])
    capped = table.loc["gap capped to uncapped", 1]
    served, failed = capped.loc["served"], capped.loc["compact_fail"]
    with_cap, without = (
        table.loc[("mode 0 to 1", gap, "served")] for gap in ("capped", "uncapped")
    )
    count = boots.groupby(["gap", "mode"]).size().min()
    return (
        f"Emulated guests of 7.3.4 as it is and with the cap taken out, {count} boots a side or "
        f"more: in mode 1 it serves {served['before']:.0f}% and {served['after']:.0f}% "
        f"({served['low']:+.0f} to {served['high']:+.0f}; predicted {served['predicted']:+.0f}), "
        f"compact_fail {failed['before']:,.0f} and {failed['after']:,.0f}; the mode gains "
        f"{with_cap['difference']:+.0f} with the cap, {without['difference']:+.0f} without "
        f"(predicted {with_cap['predicted']:+.0f} and {without['predicted']:+.0f})."
    )


def _native() -> str:
    """Results of a real machine by `defrag`, and what the model had predicted of them."""
    table = shipped_verdicts(undisturbed=True)
    stalls, wakes = table.loc["stalls"], table.loc["daemon_wakes"]
    madvise = predicted_points()
    models = (sum(madvise) / len(madvise), table.loc["served", "predicted"])
    told = []
    for name, model in zip(("native_defrag", "native_rounds"), models, strict=True):
        rounds = shipped_rounds(name)
        points, low, high = change(rounds[rounds["disturbed"] == 0])
        every = change(rounds)
        told.append(
            f"{every[0]:+.1f} ({every[1]:.0f} to {every[2]:.0f}), without a disturbed run "
            f"{points:+.1f} ({low:.1f} to {high:.1f}), model {model:+.1f}"
        )
    return (
        "A machine, 6.18.44 (no cap), 2 CPUs, most of 24 GiB held, rounds of a source tree beside "
        "100 THP faults a second, 4 runs a side: points that mode 1 serves more. defrag=madvise, "
        f"1.5 GiB left: {told[0]}. defrag=always, 2 GiB: {told[1]}; "
        f"then {stalls['mode_1'] / stalls['mode_0']:.1f} times the stalls and "
        f"{wakes['difference']:+.0f} kcompactd wakes a round "
        f"(model {wakes['predicted']:+.0f}). No decay. Those runs were left out once seen."
    )


def _limits() -> str:
    """Accuracy of the model under pressure, and what it lacks."""
    success = _posted().loc["Direct compact success"]
    table = pd.read_csv(shipped_data("factors") / "tables/pressure_factors.csv")
    near, null = (
        100 * table[column].between(1 / 1.5, 1.5).mean() for column in ("factor", "null's factor")
    )
    change = 100 * (success["patched"] / success["unpatched"] - 1)
    first, second = (successes(name) for name in CLAIMED)
    return LIMITS.format(
        near=near, null=null, counters=len(table), success=change, first=first, second=second
    )


def successes(recording: str) -> float:
    """Successes of direct compaction with the mode on the posted tree, over those without it."""
    runs = shipped()
    chosen = (runs["tree"] == "posted") & (runs["faults"] == "always")
    runs = runs[chosen & (runs["survivors"] == "stay") & (runs["recording"] == recording)]
    means = runs.groupby("side")["compact_success"].mean()
    return means["defrag_mode"] / means["vanilla"]
