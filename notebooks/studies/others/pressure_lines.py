"""Markdown tables of memory pressure: the model's own reclaim, the reserve's gate, rounds.

Usage: python notebooks/studies/others/pressure_lines.py

It prints what was measured in guests with a reserve: the registered experiments, what bursts cost,
7.3's rule, the fragmentation index of shipped recordings, and what the score's patch costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from pagealloc_model.notebooks.studies.defrag_mode import defrag
from pagealloc_model.notebooks.studies.highatomic import idle_reserve_tables as idle
from pagealloc_model.notebooks.studies.highatomic.gate_effects import SIZES, by_region, shipped_map
from pagealloc_model.notebooks.studies.highatomic.guest_reserve import index_states
from pagealloc_model.notebooks.studies.highatomic.idle_reserve import ANSWERS
from pagealloc_model.notebooks.studies.highatomic.reserve_control import control_rows
from pagealloc_model.notebooks.studies.highatomic.reserve_defer import defer_rows
from pagealloc_model.notebooks.studies.highatomic.reserve_reply import (
    cost_rows,
    experiment_rows,
    load_rows,
)
from pagealloc_model.notebooks.studies.highatomic.score_cost import request_costs
from pagealloc_model.notebooks.studies.others import pressure
from pagealloc_model.notebooks.studies.others.error_lines import apart, table_lines

import pagealloc_model as pm

CHANGE = {"least": "change_low", "most": "change_high"}
WITH_RESERVE = ("highatomic_stock", "jumbo_frames", "kbuild", "mixed_6.1", "xfree")
"""Shipped recordings of kernels that reserve."""


def pressure_lines() -> Iterator[str]:
    """A markdown table of the model's own reclaim and compaction beside the kernel's."""
    table = pressure.own(("highatomic_stock",))
    return table_lines(table.rename(columns={"at_its_cost": "predicted at recorded cost"}))


def factor_lines(directory: Path) -> Iterator[str]:
    """A markdown table of how far the model's reclaim and compaction are off."""
    table = pressure.factors(tuple(str(directory / name) for name in pressure.PRESSED))
    names = {"null_factor": "null's factor", "least": "model_low", "most": "model_high"}
    return table_lines(table.rename(columns=names))


def defrag_lines() -> Iterator[str]:
    """Markdown tables of the post's rows on made-up hosts: each change, then how many are right."""
    return apart(table_lines(defrag.host_changes()), table_lines(defrag.host_verdicts()))


def defrag_round_lines() -> Iterator[str]:
    """Markdown tables of rounds: posted, measured and predicted trends, then the series' steps."""
    return apart(table_lines(defrag.trends_table()), table_lines(defrag.series_table()))


def gate_map_lines() -> Iterator[str]:
    """Markdown tables of made-up hosts by the size of the gate's effect: all, and by region."""
    effects = shipped_map()
    sizes = pd.crosstab(effects["outcome"], effects["size"])
    counts = sizes.reindex(columns=list(SIZES), fill_value=0)
    counts["at posted levels"] = effects.groupby("outcome")["at_posted_levels"].sum()
    regions = by_region(effects)
    for name in ("mainline", "gate", "change", "least", "most"):
        regions[name] = [f"{100 * value:.0f}" for value in regions[name]]
    return apart(table_lines(counts.reset_index()), table_lines(regions.rename(columns=CHANGE)))


def idle_reserve_lines() -> Iterator[str]:
    """A markdown table of huge pages beside an idle reserve on made-up hosts."""
    parts = []
    for words, name in (("16 GiB", idle.TWO_BY_TWO), ("64 GiB", idle.LARGE)):
        table = idle.shipped_table(name).drop(columns=["whole_blocks", "score"])
        table.insert(0, "host", words)
        parts.append(_in_percent(table))
    return table_lines(pd.concat(parts, ignore_index=True))


def idle_guest_lines() -> Iterator[str]:
    """Markdown tables of huge pages in guests with an idle reserve: by hand, then recorded."""
    boots, effects = idle.earlier_boots(), idle.guest_effects()
    return apart(table_lines(_in_percent(boots)), table_lines(_in_percent(effects, CHANGED)))


def idle_score_lines() -> Iterator[str]:
    """Markdown tables of registered guests whose score and index leave the reserve out.

    The first experiment, that over loads, what each side costs there in bursts, the controls, and
    that whose faults wake kswapd.
    """
    return apart(
        table_lines(experiment_rows()),
        table_lines(load_rows().round(0)),
        table_lines(cost_rows().round(0)),
        table_lines(control_rows().round(0)),
        table_lines(defer_rows().round(0)),
    )


def index_lines() -> Iterator[str]:
    """A markdown table of the index without the reserve, where that alone keeps it at -1000."""
    return table_lines(index_states(map(pm.open, WITH_RESERVE)))


def request_cost_lines() -> Iterator[str]:
    """A markdown table of what the patch of the score costs a request."""
    costs = request_costs()
    ratios = costs.columns[2:]
    return table_lines(costs.assign(**{name: costs[name].map("{:.3f}".format) for name in ratios}))


def idle_defer_lines() -> Iterator[str]:
    """A markdown table of guests under `defer`, beside the prediction from others."""
    changes = idle.defer_effects().drop(columns=["predicted_lowest", "predicted_highest"])
    is_share = changes["quantity"] == "thp_success"
    shown = {
        name: [
            f"{100 * value:.0f} %" if share else f"{value:,.0f}"
            for value, share in zip(changes[name], is_share, strict=True)
        ]
        for name in CHANGED
    }
    return table_lines(changes.assign(**shown))


def idle_slowpath_lines() -> Iterator[str]:
    """Markdown tables of 7.3's rule and the gate: cells, changes, and the reserve of each boot."""
    boots = idle.slowpath_reserves()
    grown = boots[boots["reserved_blocks"] > 0].drop(columns=["gate", "kswapd_scanned"])
    return apart(
        table_lines(_in_percent(idle.slowpath_cells(), ("thp_success", "low", "high"))),
        table_lines(_in_percent(idle.guest_effects(idle.SLOWPATH_PLAN), CHANGED)),
        table_lines(_in_percent(grown, ("thp_success", "held_back"))),
    )


def host_region_lines() -> Iterator[str]:
    """A markdown table of the gate's effect by size of host."""
    shares = ("mainline", "gate", "change", "least", "most", "scanned")
    table = _in_percent(idle.shipped_table(idle.HOST_REGIONS), shares)
    return table_lines(table.rename(columns={**CHANGE, "scanned": "kswapd_scanned, %"}))


CHANGED = ("before", "change", "low", "high", "predicted")


def idle_cost_lines() -> Iterator[str]:
    """A markdown table of what each answer does for huge pages and costs atomic requests."""
    table = _in_percent(idle.shipped_table(idle.ANSWERS))
    full = [ANSWERS[answer][1] for answer in table["answer"]]
    table.insert(1, "reserve_at_start", ["full" if each else "empty" for each in full])
    for order in (1, 2, 3):
        name = f"failed_order_{order}"
        ends = [table.pop(f"{name}_{end}") for end in ("least", "most")]
        cells = zip(table[name], *ends, strict=True)
        table[name] = [f"{mean:.3g} ({least:.3g} to {most:.3g})" for mean, least, most in cells]
    return table_lines(table)


def _in_percent(
    table: pd.DataFrame, columns: tuple[str, ...] = ("thp_success", "low", "high")
) -> pd.DataFrame:
    """Return a table with these shares as whole percents."""
    shown = {
        name: [f"{100 * value:.0f}" if pd.notna(value) else "NA" for value in table[name]]
        for name in columns
    }
    return table.assign(**shown)


def pair_lines(directory: Path) -> Iterator[str]:
    """A markdown table of what the gate changed between two guests, and its prediction."""
    names = ("highatomic_stock", "highatomic_gate3", "batched72", "unbatched72")
    off, on, *alike = (str(directory / name) for name in names)
    return table_lines(pressure.pair(off, on, tuple(alike)))


def main() -> None:
    """Print the tables of guests with a reserve."""
    tables = (idle_score_lines(), idle_slowpath_lines(), index_lines(), request_cost_lines())
    for lines in tables:
        print(*lines, sep="\n", end="\n\n")


if __name__ == "__main__":
    main()
