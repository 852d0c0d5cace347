"""Tables of rounds that come with the package: measured in guests, and predicted.

Making the predicted ones takes minutes: `python notebooks/studies/defrag_mode/defrag.py write`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from pagealloc_model.notebooks.studies.defrag_mode import defrag_hosts as study
from pagealloc_model.notebooks.studies.defrag_mode.build_host import BuildHost
from pagealloc_model.notebooks.studies.defrag_mode.round_trend import (
    rounds_of_sides,
    series,
    trends,
)
from pagealloc_model.notebooks.studies.others.shipped_data import shipped_data

import pagealloc_model as pm
from pagealloc_model.show.post.comparison_message import posted_figures

FOLDER = "rounds"
GUESTS, FIRST_ROUND = "guests", "first_round"
"""Two that no maker makes. `FIRST_ROUND`: all rounds of a recorded boot, predicted from its first
(`one_round`). `GUESTS`: measured by hand, 7.3.4 with SLUB_TINY in a guest of 420 MiB and 2 CPUs:
12 rounds of 25 s of files copied and removed, a tree read twice and small processes, beside 12
huge-page faults a second with direct compaction, 50 kept. Their recordings were not kept.
"disturbed": beside other work on the host, which gets less done in a round. Those of
`BUILD_ROUNDS` are added to them."""
BUILD_ROUNDS = Path("experiments", "build_rounds", "rounds.csv")
"""Measured from recordings: boots of 7.3.4 with SLUB and 512 MiB, the experiment of that name.
`FIRST_ROUND` is predicted from the first round of each whole recording of them."""
SHOWN = ("build_rounds_A1", "build_rounds_A3")
"""Boots, one of each host, whose predictions are shown among others."""
BUSY = (1, 2)
"""Boots on a busy host with two CPUs; the others ran all at once on 16."""
RECORDINGS = ("mixed_6.1", "matrix_A1", "defrag_7.3")
"""The first has SLUB; the others have SLUB_TINY, which marks no slab reclaimable."""
FAULTS_RECLAIM = pm.Policy(thp_defrag="always")
SIDES = {
    "vanilla": pm.Policy(defrag_mode=False).changed_by(FAULTS_RECLAIM),
    "defrag_mode": pm.Policy(defrag_mode=True).changed_by(FAULTS_RECLAIM),
}
OUTLIVES = {
    "once": "all, asked for once",
    "stay": "all, again in each round",
    "gone": "pages of files only (null)",
}
"""Memory that outlives a round, in words (`repeated_rounds`)."""
RULES, ROUNDS, SEEDS = "7.3", 16, (0, 1, 2)
SIZES_GIB = (8, 16, 32)
FAULTS = {"may not reclaim": pm.Policy(), "may reclaim": FAULTS_RECLAIM}
HOST = BuildHost(scale=128)
_FIRST = ("recording", "outlives")
KEPT = [
    *("recording", "side", "seed", "round", "huge_served", "huge_asked", "served"),
    *("mixed_blocks", "blocks_unmovable", "blocks_movable", "blocks_reclaimable"),
    *("fixed_in_movable", "reclaimable_pages", "free_block_pages", "allocstall"),
]


def repeated_recordings() -> pd.DataFrame:
    """Rounds of `RECORDINGS` by what outlives a round (`OUTLIVES`), with columns `KEPT`."""
    recordings = [pm.open(name) for name in RECORDINGS]
    tables = [
        rounds_of_sides(
            recordings, SIDES, SEEDS, rules=RULES, rounds=ROUNDS, survivors=survivors
        ).assign(survivors=survivors)
        for survivors in OUTLIVES
    ]
    return pd.concat(tables, ignore_index=True)[["survivors", *KEPT]]


def repeated_series() -> pd.DataFrame:
    """Rounds of the first of `RECORDINGS` under each step of the series."""
    recordings = [pm.open(RECORDINGS[0])]
    steps = series(FAULTS_RECLAIM)
    table = rounds_of_sides(recordings, steps, SEEDS, rules=RULES, rounds=ROUNDS, survivors="stay")
    return table[KEPT]


def host_runs() -> pd.DataFrame:
    """Steps of the made-up host of each of `SIZES_GIB`, with both kinds of faults."""
    tables = []
    for gib in SIZES_GIB:
        for faults, setting in FAULTS.items():
            runs = study.run_study(
                BuildHost(gib=gib, scale=HOST.scale),
                SEEDS,
                base=study.VANILLA.changed_by(setting),
                patch=study.DEFRAG_MODE.changed_by(setting),
            )
            tables.append(runs.assign(gib=gib, faults=faults))
    return pd.concat(tables, ignore_index=True)


MAKERS: dict[str, Callable[[], pd.DataFrame]] = {
    "recordings": repeated_recordings,
    "series": repeated_series,
    "hosts": host_runs,
}
"""The predicted tables by name."""


def write_table(name: str) -> Path:
    """Make a predicted table anew and put it in place of the one in data/."""
    if name not in MAKERS:
        raise pm.UsageError(f"no table {name!r} of rounds to make; there are {', '.join(MAKERS)}")
    path = _path(name)
    MAKERS[name]().to_csv(path, index=False, float_format="%.6g")
    return path


def shipped_rounds(name: str) -> pd.DataFrame:
    """A table as `write_table` makes it, or one of the two others, which have its columns."""
    names = (*MAKERS, GUESTS, FIRST_ROUND)
    if name not in names:
        raise pm.UsageError(f"no table {name!r} of rounds; there are {', '.join(names)}")
    path = _path(name)
    if not path.is_file():
        raise pm.UsageError(f"{path} is missing; write it with defrag.py write")
    if name != GUESTS:
        return pd.read_csv(path, keep_default_na=False, na_values=[""])
    by_hand = pd.read_csv(path, keep_default_na=False)
    return pd.concat([by_hand, _recorded_guests()], ignore_index=True)


def posted_rounds() -> pd.DataFrame:
    """The post's 15 runs as a table of rounds: side, seed, round, served.

    The post gives what was served; what was asked for is taken to be the same in all its runs.
    """
    low = posted_figures("defrag_mode").pivot(index="quantity", columns="variant", values="low")
    faults = low.loc["THP fault alloc"] + low.loc["THP fault fallback"]
    rows = [
        {
            "recording": "posted",
            "side": side,
            "seed": 0,
            "round": step,
            "served": low.loc[f"thp_fault_alloc of run {step}", variant] / faults[variant],
        }
        for side, variant in (("vanilla", "unpatched"), ("defrag_mode", "patched"))
        for step in range(1, study.STEPS + 1)
    ]
    return pd.DataFrame(rows)


def rounds_panels() -> dict[str, pd.DataFrame]:
    """Tables of rounds by title, for `rounds_served`: posted, guests, and the model's."""
    model, first = shipped_rounds("recordings"), shipped_rounds(FIRST_ROUND)
    slab, other = RECORDINGS[0], RECORDINGS[1]
    return {
        "posted, machine not named": posted_rounds(),
        **{str(name): own for name, own in _undisturbed_guests().groupby("recording", sort=False)},
        "model, from the first round of one, busy": _rounds_of(first, "build_rounds_A1", "once"),
        "model, from the first round of one, quiet": _rounds_of(first, "build_rounds_A3", "once"),
        f"model, {slab}: slabs as recorded": _rounds_of(model, slab, "stay"),
        f"model, {slab}: no slab outlives a round": _rounds_of(model, slab, "gone"),
        f"model, {other} (SLUB_TINY): all as recorded": _rounds_of(model, other, "stay"),
    }


def _undisturbed_guests() -> pd.DataFrame:
    guests = shipped_rounds(GUESTS)
    return guests[guests["note"] == ""]


def _recorded_guests() -> pd.DataFrame:
    counts = pd.read_csv(_data() / BUILD_ROUNDS).dropna(subset=["served"])
    host = np.where(counts["boot"].isin(BUSY), "busy", "quiet")
    return pd.DataFrame(
        {
            "recording": np.char.add(np.char.add("guest 7.3.4, SLUB, ", host), " host"),
            "side": counts["side"].map({"A": "vanilla", "B": "defrag_mode"}),
            "seed": counts["boot"],
            "round": counts["round"],
            "huge_served": counts["served"],
            "huge_asked": counts["served"] + counts["refused"],
            "served": counts["served"] / (counts["served"] + counts["refused"]),
            "note": "",
        }
    )


def _rounds_of(rounds: pd.DataFrame, recording: str, survivors: str) -> pd.DataFrame:
    return rounds[(rounds["recording"] == recording) & (rounds["survivors"] == survivors)]


def shipped_trends() -> pd.DataFrame:
    """Trends of what was posted, of guests left alone and of the model's rounds, with a null model.

    Returns:
        As `trends`, with a column outlives: what outlives a round; "" of what is no prediction.
    """
    guests = _undisturbed_guests().groupby("recording", sort=False)
    measured = [posted_rounds(), *(own for _, own in guests)]
    tables = [trends(table).assign(outlives="") for table in measured]
    first = shipped_rounds(FIRST_ROUND)
    for table in (first[first["recording"].isin(SHOWN)], shipped_rounds("recordings")):
        for survivors, own in table.groupby("survivors", sort=False):
            tables.append(trends(own).assign(outlives=OUTLIVES[str(survivors)]))
    whole = pd.concat(tables, ignore_index=True)
    return whole[["recording", "outlives", *(name for name in whole if name not in _FIRST)]]


def host_rows() -> pd.DataFrame:
    """The post's rows of each host, predicted beside posted, with gib and faults."""
    posted = posted_figures("defrag_mode")
    tables = [
        study.judged_rows(own, posted).assign(gib=gib, faults=faults)
        for (gib, faults), own in shipped_rounds("hosts").groupby(["gib", "faults"], sort=False)
    ]
    return pd.concat(tables, ignore_index=True)


def host_verdicts() -> pd.DataFrame:
    """The number of rows right for each host, and its trend.

    Returns:
        One row a size and kind of faults: rows, those that the host counts; sign, size and null,
        how many are right; vanilla and defrag_mode, last runs less first in points; and
        direct_compaction, whether both sides compact directly.
    """
    posted = posted_figures("defrag_mode")
    rows = []
    for (gib, faults), own in shipped_rounds("hosts").groupby(["gib", "faults"], sort=False):
        judged = study.judged_rows(own, posted)
        ends = study.trend(study.served_shares(own, posted))
        compacts = own.groupby("side")["compact_direct_migrate_scanned"].sum()
        rows.append(
            {
                "gib": gib,
                "faults": faults,
                "rows": int(judged["size"].notna().sum()),
                "sign": int(judged["sign"].sum()),
                "size": int(judged["size"].sum()),
                "nearer than null": int(judged["beats_null"].sum()),
                "vanilla": 100 * ends["base"],
                "defrag_mode": 100 * ends["patch"],
                "direct_compaction": bool((compacts > 0).all()),
            }
        )
    return pd.DataFrame(rows)


def _path(name: str) -> Path:
    return _data() / FOLDER / f"{name}.csv"


def _data() -> Path:
    return shipped_data("the tables of rounds")
