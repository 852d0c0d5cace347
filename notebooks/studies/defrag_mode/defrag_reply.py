"""The reply to the thread on defrag_mode: its rows in the model by tree, and one real machine."""

from __future__ import annotations

import pandas as pd
from pagealloc_model.notebooks.studies.defrag_mode.native_rounds import (
    change,
    shipped_rounds,
)
from pagealloc_model.notebooks.studies.defrag_mode.registered_rounds import (
    PLANS,
    judged,
    shares,
    shipped,
)

from pagealloc_model.numbers.statistics import change_interval
from pagealloc_model.show.post.comparison_message import posted_figures
from pagealloc_model.show.post.message import (
    LISTS,
    PAGE_ALLOCATOR,
    Fixed,
    Message,
    Section,
    Words,
)

SUBJECT = "Re: [PATCH 0/5] mm: reliable huge page allocator"
TO = "Johannes Weiner <hannes@cmpxchg.org>"
COPIES = ("JP Kobryn <jp.kobryn@linux.dev>", *PAGE_ALLOCATOR, *LISTS)
FOUND = (
    "I do not reproduce the gain that is posted here for vm.defrag_mode ({served}, {stalls}): not "
    "in guests, not on a machine, not on made-up hosts. A model of the posted tree gives {best} of "
    "12 posted rows their sign on one recording of four, {others} on the others."
)
QUOTED = {"served": "THP fault alloc", "stalls": "Alloc stall"}
"""Posted rows that the mail quotes."""
CAP = (
    'Nor can I say what "mm/compaction: cap compact_gap()" does to it. With the cap kswapd gives '
    "order 9 up once it has reclaimed 32 pages instead of 1,024, and leaves blocks to kcompactd; "
    "my guests have 0.5 GiB, too little to tell, and those of 7.3 have the cap."
)
MACHINE = (
    "On a machine (6.18.44, no cap, 2 CPUs, 1.5 and 2 GiB left free, 100 THP faults a second, 4 "
    "runs a mode) mode 1 changes the share served by {madvise} points with defrag=madvise and "
    "{always} with always, neither measurable; without a run each that other work disturbed, left "
    "out afterwards, both are, with opposite signs."
)
ASK = (
    "How much memory had your machine, and how much was free after a build? Who runs mode 1 on "
    "hosts of 64 GiB, with and without the cap?"
)
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
    "7.3, neither fix": "7.3 - fixes",
    "7.3, gap not capped, neither fix": "7.3 - cap - fixes",
}
"""Trees, in the order in which they are shown, and their names in a narrow table."""
COMMANDS = """\
  sysctl vm.defrag_mode=1                     # and 0, in turns
  grep -E 'thp_fault|compact_fail|allocstall|daemon_wake' /proc/vmstat
  pagealloc experiment native_rounds -o DIR   # both modes, as root"""


def tree_rows() -> pd.DataFrame:
    """A row a tree and recording: share served by side, change in points, posted signs of 12.

    Returns:
        tree, recording, vanilla, defrag_mode (percent), difference, low, high (points), sign (rows
        whose whole interval lies on the posted side).
    """
    runs = pd.concat(map(shipped, PLANS))
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
    runs = pd.concat(map(shipped, PLANS))
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
    runs = pd.concat(map(shipped, PLANS))
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
    signs = tree_rows().set_index(["tree", "recording"]).loc["posted", "sign"]
    posted = posted_figures("defrag_mode_series").pivot(
        index="quantity", columns="variant", values="low"
    )
    quoted = {
        key: "{} {:,.0f} -> {:,.0f}".format(name, *posted.loc[name, ["unpatched", "patched"]])
        for key, name in QUOTED.items()
    }
    best, *others = sorted((int(signs[name]) for name in RECORDINGS), reverse=True)
    said = f"{', '.join(map(str, others[:-1]))} and {others[-1]}"
    blocks = (
        Words(text=FOUND.format(**quoted, best=best, others=said)),
        Words(text=CAP),
        Words(text=MACHINE.format(**_native())),
        Words(text=ASK),
        Fixed(text=COMMANDS),
    )
    sections = (Section(title="", blocks=blocks),)
    return Message(subject=SUBJECT, sections=sections, to=TO, copies=COPIES)


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


def _native() -> dict[str, str]:
    """Points that mode 1 serves more on a real machine, all runs, by defrag."""
    told = {}
    for key, name in (("madvise", "native_defrag"), ("always", "native_rounds")):
        points, low, high = change(shipped_rounds(name))
        told[key] = f"{points:+.1f} ({low:.0f} to {high:.0f})"
    return told
