"""Proposals on the list: posted figures beside what the model predicts.

Usage: python notebooks/studies/others/proposals.py
       [index | hosts [NAME ...] | recordings [NAME ...] |
        chunks | scale | probes | steals]

`index`: one line for each proposal. `hosts`: made-up hosts, both sides over `SEEDS` seeds, each
change with its interval beside the posted one. `recordings`: shipped recordings under both sides,
each change with interval, error and null. `chunks`: contiguous frees, page by page and in chunks.
`scale`: refills by the batch's scale. `probes`: list probes of a refill. `steals`: refills that
must steal every page.
Nothing is fitted to the posted figures; where a host was made so that its unpatched side resembles
the posted one, docs/proposals.md says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pandas as pd
from pagealloc_model.notebooks.studies.others.error_lines import markdown
from pagealloc_model.notebooks.studies.others.full_host import FullHost, run_full_host
from pagealloc_model.notebooks.studies.others.proposal_loads import (
    chunk_rows,
    scale_rows,
    steal_rows,
)
from pagealloc_model.notebooks.studies.others.proposal_sides import PROPOSALS, Proposal, Row, Side

import pagealloc_model as pm
from pagealloc_model.allocator.layout import SITE_REFILL
from pagealloc_model.base.text import count_of, percent
from pagealloc_model.numbers.statistics import resampled_interval
from pagealloc_model.predicted.elastic_values import elastic_values
from pagealloc_model.show.post.comparison_message import posted_figures

SEEDS = 4
WARM_UP_S = 2
"""Left out of the counts."""
ELASTIC = "elastic"
SHARE, COUNT = "share", "count"
RIGHT, WRONG, UNDECIDED, NOT_POSTED = "right", "wrong", "undecided", "not posted"


def index() -> pd.DataFrame:
    """One line for each proposal: its post, its policy, where it is."""
    return pd.DataFrame(
        {
            "proposal": one.title,
            "post": one.post,
            "policy": f"`{one.patch.words}`" if one.patch.words else "none",
            "file": f"`{one.file}`",
        }
        for one in PROPOSALS
    )


def host_rows(proposal: Proposal) -> pd.DataFrame:
    """Posted and predicted change of each quantity on the proposal's made-up host."""
    runs = {side: _runs(proposal.host, getattr(proposal, side)) for side in ("base", "patch")}
    posted = posted_figures(proposal.posted) if proposal.posted else None
    rows = []
    for row in proposal.rows:
        before, after = (_values(row, runs[side]) for side in ("base", "patch"))
        kind = SHARE if row.out_of else COUNT
        change, low, high = _change(before, after, kind)
        wanted = _posted_change(posted, row, kind)
        rows.append(
            {
                "what": row.what,
                "posted": _shown(wanted, kind) if wanted is not None else NOT_POSTED,
                "base": _value(before.mean(), kind),
                "patch": _value(after.mean(), kind),
                "by": _shown(change, kind),
                "from": _shown(low, kind),
                "to": _shown(high, kind),
                "sign": _sign(wanted, low, high),
                "nearer than null": _nearer(wanted, change),
            }
        )
    return pd.DataFrame(rows)


@cache
def _runs(host: FullHost, side: Side) -> pd.DataFrame:
    """Counters of each seed's host after the warm-up, one row a seed; levels at its end."""
    rows = []
    for seed in range(SEEDS):
        table = run_full_host(
            replace(host, seed=seed), side.policy, rules=pm.KernelRules.named(side.rules)
        ).set_index("second")
        added = table.iloc[-1] - table.loc[WARM_UP_S]
        levels = table.iloc[-1].add_suffix(" at the end")
        rows.append(pd.concat([added, levels]))
    return pd.DataFrame(rows)


def _values(row: Row, runs: pd.DataFrame) -> np.ndarray:
    counted = runs[list(row.counters)].sum(axis=1)
    if not row.out_of:
        return counted.to_numpy(float)
    tries = runs[list(row.out_of)].sum(axis=1)
    return (counted / tries.where(tries > 0)).to_numpy(float)


def _change(before: np.ndarray, after: np.ndarray, kind: str) -> tuple[float, float, float]:
    """Return the change of the means and its interval: a percentile bootstrap over seeds."""
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = _difference(before.mean(keepdims=True), after.mean(keepdims=True), kind)
    change = partial(_difference, kind=kind)
    interval = resampled_interval(change, before, after, paired=True)
    return (float(whole[0]), *interval)


def _difference(before: np.ndarray, after: np.ndarray, kind: str) -> np.ndarray:
    if kind == SHARE:
        return after - before
    return np.where(after == before, 0.0, after / before - 1)


def _posted_change(posted: pd.DataFrame | None, row: Row, kind: str) -> float | None:
    if posted is None or not row.posted:
        return None
    sides = posted[posted["quantity"] == row.posted].set_index("variant")["low"]
    before, after = float(sides["unpatched"]), float(sides["patched"])
    return (after - before) / 100 if kind == SHARE else after / before - 1


def _shown(value: float, kind: str) -> str:
    if not np.isfinite(value):
        return "NA"
    return f"{100 * value:+.1f} points" if kind == SHARE else percent(value)


def _value(value: float, kind: str) -> str:
    if not np.isfinite(value):
        return "NA"
    return f"{100 * value:.1f}%" if kind == SHARE else f"{value:,.0f}"


def _sign(wanted: float | None, low: float, high: float) -> str:
    if wanted is None:
        return NOT_POSTED
    if not low * high > 0:
        return UNDECIDED
    return RIGHT if low * wanted > 0 else WRONG


def _nearer(wanted: float | None, change: float) -> str:
    if wanted is None or not np.isfinite(change):
        return "NA"
    return "yes" if abs(change - wanted) < abs(wanted) else "no"


def recording_rows(proposal: Proposal) -> pd.DataFrame:
    """Changes on shipped recordings: those of the proposal's metrics that change.

    Elastic replays are at the recording's own cost of reclaim. Of metrics that failed their null
    model only the number is given.
    """
    rows = []
    for name, mode in proposal.recordings:
        recording = pm.open(name)
        assumptions = pm.Assumptions(reclaim="literal")
        if mode == ELASTIC:
            assumptions = elastic_values(recording).costs_alone
        own = Side(words=proposal.recorded_words or proposal.patch.words)
        base, patch = (
            pm.replay(recording, side.policy, assumptions=assumptions)
            for side in (proposal.base, own)
        )
        judged = pm.compare(base, patch).validated().rows
        chosen = judged[judged["metric"].isin(proposal.metrics)]
        changed = chosen[(chosen["patch"] - chosen["base"]).abs() > 0]
        fails = (changed["error"] >= changed["null_error"]) & (changed["error"] != 0)
        rows += [_recording_row(name, mode, row) for row in changed[~fails].itertuples()]
        if not len(changed):
            rows.append({"recording": name, "reclaim": mode, "metric": "no metric changes"})
        if fails.any():
            words = f"{count_of(int(fails.sum()), 'metric')} failed their null model"
            rows.append({"recording": name, "reclaim": mode, "metric": words})
    return pd.DataFrame(rows).fillna("")


def _recording_row(name: str, mode: str, row: object) -> dict[str, str]:
    numbers = {
        "base": row.base,
        "patch": row.patch,
        "from": row.change_low,
        "to": row.change_high,
    }
    return {
        "recording": name,
        "reclaim": mode,
        "metric": row.metric,
        "scope": row.scope,
        **{key: "NA" if pd.isna(value) else f"{value:,.4g}" for key, value in numbers.items()},
        "error": row.error_words,
        "null's error": row.null_words,
        "verdict": row.verdict,
    }


def probe_rows() -> pd.DataFrame:
    """List probes of refills on recordings, with the mode that persists and without (S6.7)."""
    rows = []
    for name in ("highatomic_stock", "kbuild", "xfree"):
        recording = pm.open(name)
        cells: dict[str, object] = {"recording": name}
        for words, persists in (("search anew", False), ("mode persists", True)):
            policy = pm.Policy(refill_mode_persists=persists)
            replay = pm.replay(recording, policy, assumptions=pm.Assumptions(reclaim="literal"))
            refills = replay.log[replay.log["kind"] == SITE_REFILL]
            total, most = replay.refill_probes
            cells[f"{words}: probes a refill"] = f"{total / max(len(refills), 1):.1f}"
            cells[f"{words}: most"] = most
            cells[f"{words}: pages scanned"] = int(refills["scanned"].sum())
            steals = replay.fallbacks
            cells[f"{words}: steals"] = int(steals[steals["kind"] == "steal"]["count"].sum())
        rows.append(cells)
    return pd.DataFrame(rows)


def lines(table: pd.DataFrame) -> Iterator[str]:
    """A table as markdown, its cells as they are."""
    return markdown(map(str, table), table.itertuples(index=False), words=table.shape[1])


def _of(words: list[str], table: Callable[[Proposal], pd.DataFrame], field: str) -> None:
    for proposal in PROPOSALS:
        if getattr(proposal, field) and (not words or proposal.name in words):
            print(f"{proposal.name}\n{table(proposal).to_string(index=False)}\n")


def main(words: list[str]) -> int:
    """Print one of the tables."""
    what, *names = words or ["index"]
    tables: dict[str, Callable[[], pd.DataFrame]] = {
        "index": index,
        "chunks": chunk_rows,
        "scale": scale_rows,
        "probes": probe_rows,
        "steals": steal_rows,
    }
    if what == "hosts":
        _of(names, host_rows, "rows")
    elif what == "recordings":
        _of(names, recording_rows, "recordings")
    elif what in tables:
        print(tables[what]().to_string(index=False))
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
