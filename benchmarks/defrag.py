"""defrag_mode on a made-up host that builds a kernel, beside what was posted; and on recordings.

Usage: python benchmarks/defrag.py [study [SEEDS] | parts | recordings [DIRECTORY]]

`study`: the post's table and its trend over 15 runs, vanilla and with step 4 of the series, as a
mail; once with faults that may not reclaim, as is the kernel's default, and once with faults that
may. SEEDS, 4 unless given, is how many hosts each side has. `parts`: the parts of defrag_mode one
after the other, with one seed and shorter steps. `recordings`: what is predicted from a recording
made with defrag_mode for the policy without it, and the other way round, beside recordings of both,
in the directory that PAGEALLOC_RECORDINGS names.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

import pandas as pd

import pagealloc_model as pm
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.text.layout import percent
from pagealloc_model.show.post.message import Block, Fixed, Message, Section, Words, command
from pagealloc_model.show.post.posted_figures import posted_figures
from pagealloc_model.studies.workload import defrag_study as study
from pagealloc_model.studies.workload.build_host import BuildHost
from pagealloc_model.studies.workload.build_run import run_build_host
from pagealloc_model.studies.workload.defrag_table import (
    defrag_table,
    left_out_lines,
    trend_table,
    verdict_word,
)
from pagealloc_model.verdict.pressure_pair import counters_of_pair

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
PARTS = {
    "nothing": study.VANILLA,
    "ban": pm.Policy(defrag_mode=True, defrag_kswapd_assist=False, defrag_watermarks=False),
    "ban, assistance": study.DEFRAG_MODE,
    "ban, assistance, block watermarks": pm.Policy(defrag_mode=True),
    "assistance": pm.Policy(defrag_kswapd_assist=True),
}
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
        Section(title="Reproduce", blocks=(command(f"python benchmarks/defrag.py study {seeds}"),)),
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


def summary(seeds: int = SEEDS) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Under the kernel's default setting: each row's change in %, and the trend in points."""
    posted = posted_figures("defrag_mode")
    rows = study.judged_rows(runs(seeds), posted)
    changes = pd.DataFrame(
        {
            "row of the post": rows["quantity"],
            "posted": [percent(value) for value in rows["posted_change"]],
            "model": [percent(value) for value in rows["change"]],
            "from": [percent(value) for value in rows["change_low"]],
            "to": [percent(value) for value in rows["change_high"]],
        }
    )
    for name, title in (("sign", "sign"), ("size", "size"), ("beats_null", "nearer than null")):
        changes[title] = [verdict_word(value) for value in rows[name]]
    ends = study.trend(study.served_shares(runs(seeds), posted))
    trend = pd.DataFrame(
        {
            "share of huge pages served, last 5 runs less first 5": ["posted", "model"],
            "vanilla": [f"{100 * ends['posted_base']:+.1f}", f"{100 * ends['base']:+.1f}"],
            "defrag_mode": [f"{100 * ends['posted_patch']:+.1f}", f"{100 * ends['patch']:+.1f}"],
        }
    )
    return changes, trend


def parts() -> pd.DataFrame:
    """Huge pages served and work done, by what of defrag_mode is on."""
    rules = pm.KernelRules.preset(study.RULES)
    rows = []
    for name, policy in PARTS.items():
        table = run_build_host(BuildHost(scale=128), policy, rules=rules)
        asked = table["thp_fault_alloc"] + table["thp_fault_fallback"]
        served = 100 * table["thp_fault_alloc"] / asked
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
    """Counters of recordings with and without defrag_mode, and what each predicts of the other.

    Raises:
        UsageError: no directory of recordings.
    """
    if not directory:
        raise UsageError("no recordings: name their directory, or set PAGEALLOC_RECORDINGS")
    base, same, patch = (pm.open(Path(directory) / each) for each in (BASE, SAME_POLICY, PATCH))
    table = counters_of_pair(base, patch, same, "defrag_mode")
    counts = table.drop(columns=["name", "measurable", "verdict"])
    return table[(counts != 0).any(axis=1)].drop(columns="measurable")


def main(words: list[str]) -> int:
    """Print the mail or the table."""
    what, *more = words or ["study"]
    if what == "study" and (not more or more[0].isdigit()):
        print(message(int(more[0]) if more else SEEDS).to_text(), end="")
    elif what == "parts":
        print(parts().to_string(index=False))
    elif what == "recordings":
        directory = more[0] if more else os.environ.get("PAGEALLOC_RECORDINGS")
        print(recordings(directory).to_string(index=False))
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
