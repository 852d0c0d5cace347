"""defrag_mode on a made-up host that builds a kernel, beside what was posted; and on recordings.

Usage: python notebooks/studies/defrag_mode/defrag.py
       [study [SEEDS] | storms | parts | rounds RECORDING... | first RECORDING TOUCHED NS... |
        trends | write [TABLE...] | recordings [DIRECTORY]]

`study`: the post's table and its trend over 15 runs, vanilla and with step 4 of the series, as a
mail; once with faults that may not reclaim, as is the kernel's default, and once with faults that
may. SEEDS, 4 unless given, is how many hosts each side has. `storms`: reclaim and refaults without
and with the two fixes of 2026, in half a minute. `parts`: the series' steps and its fixes one after
the other on the made-up host, with one seed and shorter steps. `rounds`: recordings gone through 16
times beside huge-page faults, vanilla and with defrag_mode, and with all or nothing but files
outliving a round. `first`: a recording's rounds predicted from its first, given how many base pages
a task touches of a huge page (or "-") and when each round begins and the last ends, ns; as CSV.
`trends`: those of the tables in data/rounds, which `write` makes anew in some minutes.
`recordings`: what is predicted from a recording made with defrag_mode for the policy without it,
and the other way round, beside recordings of both, in the directory that PAGEALLOC_RECORDINGS
names.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from pagealloc_model.notebooks.studies.defrag_mode import defrag_hosts as study
from pagealloc_model.notebooks.studies.defrag_mode import round_tables as shipped
from pagealloc_model.notebooks.studies.defrag_mode.build_host import BuildHost, run_build_host
from pagealloc_model.notebooks.studies.defrag_mode.defrag_hosts import (
    defrag_table,
    left_out_lines,
    trend_table,
)
from pagealloc_model.notebooks.studies.defrag_mode.reclaim_storms import storm_table
from pagealloc_model.notebooks.studies.defrag_mode.round_trend import (
    rounds_from_the_first,
    rounds_of_sides,
    series,
    trends,
)
from pagealloc_model.notebooks.studies.others.error_lines import table_lines
from pagealloc_model.notebooks.studies.others.policy_pairs import counters_of_pair

import pagealloc_model as pm
from pagealloc_model.base.text import percent
from pagealloc_model.show.post.comparison_message import posted_figures
from pagealloc_model.show.post.message import Block, Fixed, Message, Section, Words, command

SEEDS = 4
HOST = BuildHost()
JUDGED = (
    "Sign: the whole interval (bootstrap over seeds) is on the posted side of 0. Size: the change "
    f"is the posted one over to times {study.SIZE_FACTOR:g}. Null: it is nearer to the posted one "
    'than the null model "nothing changes", 0 %, is. Right here:'
)
CASES = (
    ("Faults may not reclaim (defrag=madvise, not madvised)", pm.Policy()),
    ("Faults may reclaim (defrag=always)", study.FAULTS_RECLAIM),
)
BASE, PATCH = "batched72", "defrag72"
SAME_POLICY = "unbatched72"
"""Recorded without defrag_mode as BASE was: how far two recordings of one policy are apart."""


@cache
def runs(seeds: int = SEEDS, setting: pm.Policy = CASES[0][1]) -> pd.DataFrame:
    """Both sides' counters by step and seed, with faults as a setting has them."""
    sides = {"base": study.VANILLA, "patch": study.DEFRAG_MODE}
    return study.run_study(
        HOST, range(seeds), **{name: policy.changed_by(setting) for name, policy in sides.items()}
    )


def message(seeds: int = SEEDS) -> Message:
    """The study's table and trend as a mail."""
    sections = [
        Section(title="What", blocks=tuple(_what(seeds))),
        *(_case(title, runs(seeds, setting)) for title, setting in CASES),
        Section(
            title="Not compared",
            blocks=(Fixed(text=left_out_lines(study.FOLLOWING | study.NOT_MODELLED)),),
        ),
        Section(
            title="Reproduce",
            blocks=(command(f"python notebooks/studies/defrag_mode/defrag.py study {seeds}"),),
        ),
    ]
    subject = "[predicted] defrag_mode, step 4, on a made-up kernel build"
    return Message(subject=subject, sections=tuple(sections))


def _what(seeds: int) -> list[Block]:
    return [
        Words(
            text="Predicted by a model of the page allocator for a made-up host; no parameter was "
            "fitted to the posted results (how many huge pages are asked for is the post's). "
            "Posted: a kernel build with bursts of huge pages on an unnamed machine."
        ),
        Words(
            text=f"{HOST}; a step is 1/{HOST.scale} of a posted run with its turnover of compilers "
            f"cut by {HOST.job_stretch}; {seeds} seeds; rules {study.RULES}.",
            bullet=True,
        ),
        Words(text=f"vanilla: {study.VANILLA}; patch: {study.DEFRAG_MODE}.", bullet=True),
    ]


def _case(title: str, both: pd.DataFrame) -> Section:
    posted = posted_figures("defrag_mode")
    shares = study.served_shares(both, posted)
    words = f"last {study.TREND_STEPS} runs less first {study.TREND_STEPS}"
    return Section(
        title=title,
        blocks=(
            Fixed(text=defrag_table(study.judged_rows(both, posted), JUDGED)),
            Fixed(text=trend_table(shares, study.trend(shares), words)),
        ),
    )


def host_changes() -> pd.DataFrame:
    """Each row of the post and its change on every host in data/rounds, with interval and verdict.

    A cell has the change, its interval, and right or wrong by sign; "?" where the interval holds 0.
    """
    rows = shipped.host_rows()
    rows["host"] = [
        f"{row.gib} GiB, {row.faults}" for row in rows[["gib", "faults"]].itertuples(index=False)
    ]
    table = pd.DataFrame({"row of the post": list(study.ROWS.values())})
    first = rows["host"].iloc[0]
    posted = rows[rows["host"] == first]["posted_change"]
    table["posted"] = [percent(value) for value in posted]
    for host, own in rows.groupby("host", sort=False):
        table[host] = [_change_cell(row) for row in own.itertuples(index=False)]
    return table


def _change_cell(row: Any) -> str:
    if pd.isna(row.change):
        return "NA"
    words = "?"
    if row.change_low > 0 or row.change_high < 0:
        words = "right" if row.sign else "wrong"
    return f"{percent(row.change)} [{percent(row.change_low)}, {percent(row.change_high)}] {words}"


def host_verdicts() -> pd.DataFrame:
    """The number of rows right for each host in data/rounds, and its trend in points."""
    table = shipped.host_verdicts()
    for side in ("vanilla", "defrag_mode"):
        table[side] = [f"{value:+.1f}" for value in table[side]]
    table["direct_compaction"] = ["yes" if both else "no" for both in table["direct_compaction"]]
    return table


def trends_table() -> pd.DataFrame:
    """Trends of posted, measured and predicted rounds: shares in percent, changes in points."""
    return _spelled(shipped.shipped_trends())


def series_table() -> pd.DataFrame:
    """Trends of the rounds of one recording under each step of the series."""
    table = shipped.shipped_rounds("series")
    last = table[table["round"] == table["round"].max()].groupby("side", sort=False)
    mixed, stalls = last["mixed_blocks"].mean(), table.groupby("side")["allocstall"].mean()
    lines = _spelled(trends(table)).drop(columns="recording")
    lines["mixed blocks at the end"] = [f"{mixed[side]:.0f}" for side in lines["side"]]
    lines["stalls in reclaim a round"] = [f"{stalls[side]:.0f}" for side in lines["side"]]
    return lines


def _spelled(table: pd.DataFrame) -> pd.DataFrame:
    for name in ("first", "last"):
        table[name] = [f"{value:.1f}" for value in table[name]]
    for name in ("trend", "low", "high"):
        table[name] = ["NA" if pd.isna(value) else f"{value:+.1f}" for value in table[name]]
    table["decays"] = table["decays"].map({True: "yes", False: "no"}).fillna("NA")
    return table


def rounds(names: list[str]) -> pd.DataFrame:
    """Trends of recordings gone through again and again."""
    if not names:
        raise pm.UsageError("no recording: name one or several, such as mixed_6.1")
    tables = []
    for survivors in shipped.OUTLIVES:
        rows = rounds_of_sides(
            [pm.open(name) for name in names],
            shipped.SIDES,
            shipped.SEEDS,
            rules=shipped.RULES,
            rounds=shipped.ROUNDS,
            survivors=survivors,
        )
        tables.append(trends(rows).assign(survivors=survivors))
    return _spelled(pd.concat(tables, ignore_index=True))


def parts() -> pd.DataFrame:
    """Huge pages served and work done, after each step of the series."""
    rules = pm.KernelRules.preset(study.RULES)
    rows = []
    for name, policy in series().items():
        table = run_build_host(BuildHost(scale=128), policy, rules=rules)
        faults = table["thp_fault_alloc"] + table["thp_fault_fallback"]
        served = 100 * table["thp_fault_alloc"] / faults
        rows.append(
            {
                "on": name,
                "served, first 5 runs, %": served.head(study.TREND_STEPS).mean().round(1),
                "last 5, %": served.tail(study.TREND_STEPS).mean().round(1),
                "kcompactd scanned": table["compact_daemon_migrate_scanned"].sum(),
                "kswapd scanned": table["pgscan_kswapd"].sum(),
                "mixed blocks": table["mixed_blocks"].iloc[-1],
            }
        )
    return pd.DataFrame(rows)


def recordings(directory: str | None) -> pd.DataFrame:
    """Counters of recordings with and without defrag_mode, and what each predicts of the other."""
    if not directory:
        raise pm.UsageError("no recordings: name their directory, or set PAGEALLOC_RECORDINGS")
    base, same, patch = (pm.open(Path(directory) / name) for name in (BASE, SAME_POLICY, PATCH))
    table = counters_of_pair(base, patch, same, "defrag_mode")
    counts = table.drop(columns=["name", "measurable", "verdict"])
    return table[(counts != 0).any(axis=1)].drop(columns="measurable")


def main(words: list[str]) -> int:
    """Print the mail or the table."""
    what, *more = words or ["study"]
    if what == "study" and (not more or more[0].isdigit()):
        print(message(int(more[0]) if more else SEEDS).to_text(), end="")
    elif what == "storms":
        print(*table_lines(storm_table()), sep="\n")
    elif what == "parts":
        print(parts().to_string(index=False))
    elif what == "rounds":
        print(rounds(more).to_string(index=False))
    elif what == "first":
        name, touched, *begins = more
        rows = rounds_from_the_first(
            pm.open(name),
            [int(word) for word in begins],
            touched=None if touched == "-" else int(touched),
        )
        print(rows.to_csv(index=False), end="")
    elif what == "trends":
        print(trends_table().to_string(index=False), "\n")
        print(series_table().to_string(index=False), "\n")
        print(host_verdicts().to_string(index=False))
    elif what == "write":
        for name in more or shipped.MAKERS:
            print(shipped.write_table(name))
    elif what == "recordings":
        directory = more[0] if more else os.environ.get("PAGEALLOC_RECORDINGS")
        print(recordings(directory).to_string(index=False))
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
