"""Write the figures of README and docs/, and the full tables that they are taken from.

Usage: python benchmarks/readme.py [PART ...]     (make readme)

A part is written between its markers on a page (`PLACES`) or as CSV into data/tables (`FILES`);
then every excerpt of such a table (`EXCERPTS`) is written anew. Full recordings are taken from the
directory that PAGEALLOC_RECORDINGS names; without it, their parts are left as they are.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path

import five_minutes
import long_recording
import memory_floor
import pagealloc_model.notebooks.studies.interval_coverage as intervals
import pandas as pd
import policies
import size
import slider
import start_up
import sweep
import waits
from pagealloc_model.notebooks.studies import (
    build_rounds,
    defrag,
    experiments,
    lacks,
    locks,
    ownership,
    pressure,
    proposals,
    superpageblocks,
)
from pagealloc_model.notebooks.studies.error_lines import (
    budget_lines,
    choice_lines,
    error_lines,
    short_error_lines,
    table_lines,
)
from pagealloc_model.notebooks.studies.pressure_lines import (
    defrag_lines,
    defrag_round_lines,
    factor_lines,
    gate_map_lines,
    host_region_lines,
    idle_cost_lines,
    idle_defer_lines,
    idle_guest_lines,
    idle_reserve_lines,
    idle_slowpath_lines,
    pair_lines,
    pressure_lines,
)
from pagealloc_model.notebooks.studies.proposal_loads import (
    chunk_rows,
    release_rows,
    scale_rows,
    steal_rows,
)
from pagealloc_model.notebooks.studies.proposal_sides import Proposal
from reading import reading
from speed import replaying
from tables import FOLDER, Excerpt, write_tables

import pagealloc_model as pm
from pagealloc_model.verdict.validation import Validation

PROJECT = Path(__file__).resolve().parent.parent
PLACES = {
    "errors-short": "README.md",
    "experiments-short": "README.md",
    "experiments-scores": "docs/predicted_and_run.md",
    "errors-guests-short": "docs/accuracy.md",
    "choices-shown": "docs/accuracy.md",
    "budget-shown": "docs/accuracy.md",
    "lacks-shown": "docs/formats.md",
    "reading": "docs/how_to_read.md",
    "locks-short": "docs/locks.md",
    "batched-pairs": "docs/batched_freeing.md",
    "batched-avalanche": "docs/batched_freeing.md",
    "batched-releases": "docs/batched_freeing.md",
    "ownership-shown": "docs/pcp_buddy.md",
    "intervals-shown": "docs/posts.md",
    "ownership-cpus-shown": "docs/pcp_buddy.md",
    "pressure-near": "docs/pressure.md",
    "gate-guests-by-hand": "docs/highatomic.md",
    "gate-guests": "docs/highatomic.md",
    "gate-hosts": "docs/highatomic.md",
    "gate-map-shown": "docs/highatomic.md",
    "gate-answers": "docs/highatomic.md",
    "rounds-served": "docs/defrag_mode.md",
    "rounds-modes": "docs/defrag_mode.md",
    "rounds-trends": "docs/defrag_mode.md",
    "defrag-pair-shown": "docs/defrag_mode.md",
    "defrag-hosts": "docs/defrag_mode.md",
    "size-shown": "docs/size.md",
    "long": "docs/size.md",
    "five-minutes": "docs/install.md",
    "waits": "docs/speed.md",
    "speed": "docs/speed.md",
    "slider": "docs/speed.md",
    "policies": "docs/speed.md",
    "memory-floor": "docs/speed.md",
    "start-up": "docs/speed.md",
    "sweep-shown": "docs/sweeps.md",
    "fleet": "docs/sweeps.md",
    "proposals-index": "docs/proposals.md",
    "proposals-posted": "docs/proposals.md",
    "proposals-scale-shown": "docs/proposals.md",
    "superpageblocks-shown": "docs/proposals.md",
}
"""Which page has the markers of each part and excerpt."""

FILES = {
    "experiments": ("experiments_scores", "experiments_effects", "experiments_wrong"),
    "lacks": ("start_without",),
    "errors": ("errors_shipped",),
    "errors-guests": ("errors_guests",),
    "errors-full": ("errors_full",),
    "choices": ("choices",),
    "budget": ("error_budget",),
    "defrag-pair": ("defrag_pair",),
    "locks": (
        "locks_sites",
        "locks_pairs",
        "locks_scaled",
        "locks_avalanche",
        "locks_amplifier",
    ),
    "ownership": ("ownership",),
    "ownership-cpus": ("ownership_cpus",),
    "ownership-pressure": ("ownership_pressure",),
    "pressure": ("pressure_counters",),
    "pressure-factors": ("pressure_factors",),
    "gate-pair": ("gate_pair",),
    "intervals": ("intervals_by_quantity", "intervals_by_pair"),
    "gate-map": ("gate_map_outcomes", "gate_map_regions"),
    "idle-reserve": ("idle_reserve_hosts",),
    "idle-guests": ("idle_guests_by_hand", "idle_guests"),
    "idle-defer": ("idle_guests_defer",),
    "idle-slowpath": ("slowpath_cells", "slowpath_changes", "slowpath_reserve"),
    "host-regions": ("gate_by_host_size",),
    "idle-costs": ("gate_answers",),
    "defrag": ("defrag_hosts", "defrag_hosts_verdicts"),
    "defrag-rounds": ("defrag_rounds", "defrag_series"),
    "build-rounds": (
        "build_rounds_served",
        "build_rounds_replayed",
        "build_rounds_errors",
        "build_rounds_trends",
        "build_rounds_first_round",
        "build_rounds_modes",
        "build_rounds_memory",
        "build_rounds_kcompactd",
        "build_rounds_blocks",
        "build_rounds_held",
    ),
    "size": ("size",),
    "sweep": ("sweep",),
    "proposals-hosts": ("proposals_hosts",),
    "proposals-recordings": ("proposals_recordings",),
    "proposals-steals": ("proposals_steals", "proposals_probes"),
    "proposals-scale": ("proposals_scale",),
    "proposals-chunks": ("proposals_chunks",),
    "proposals-releases": ("proposals_releases",),
    "superpageblocks": ("superpageblocks_host", "superpageblocks_probes"),
}
"""Which files of data/tables have the tables of each other part, in order."""


def near_lines() -> Iterator[str]:
    """A markdown table of how many counters of each recording are near the kernel's."""
    table = pd.read_csv(FOLDER / "pressure_factors.csv")
    rows = []
    for words, cells in (*table.groupby("recording", sort=False), ("all", table)):
        near = {side: pressure.share_near(cells[side]) for side in ("factor", "null's factor")}
        shares = {"model": near["factor"], "null model": near["null's factor"]}
        shown = {f"{side}, within {pressure.NEAR}": f"{near:.0%}" for side, near in shares.items()}
        rows.append({"recording": words, "counters": len(cells), **shown})
    yield from table_lines(pd.DataFrame(rows))


def _proposals(table: Callable[[Proposal], pd.DataFrame], kind: str) -> pd.DataFrame:
    """Return a table of all proposals that have such rows, with the change in front."""
    parts = []
    for each in proposals.PROPOSALS:
        if getattr(each, kind):
            rows = table(each)
            rows.insert(0, "change", each.title)
            parts.append(rows)
    return pd.concat(parts, ignore_index=True).fillna("")


TRENDS_SHOWN = (
    "posted",
    "guest 7.3.4, SLUB_TINY",
    "guest 7.3.4, SLUB, busy host",
    "guest 7.3.4, SLUB, quiet host",
    "mixed_6.1",
)
RATE = {"thp_success": "THP success, %", "low": "low", "high": "high"}
EXCERPTS: dict[str, Callable[[], Iterable[str]]] = {
    "experiments-scores": Excerpt(
        "experiments_scores",
        {
            "plan": "plan",
            "setting": "setting",
            "effects": "effects",
            "within": "within",
            "direction": "direction",
            "wrong": "wrong",
            "quiet": "quiet",
        },
        {"model": ("elastic",)},
    ),
    "intervals-shown": Excerpt("intervals_by_quantity"),
    "choices-shown": Excerpt("choices", rows={"recording": ("highatomic_stock",)}),
    "budget-shown": Excerpt(
        "error_budget",
        {
            "recording": "recording",
            "what": "quantity",
            "free": "error",
            "all*": "all imposed*",
            "the model's": "the model's",
            "missing": "missing",
            "most by": "most by",
        },
        {"what": ("refill_transactions", "drain_transactions", "free_pages")},
    ),
    "lacks-shown": Excerpt("start_without", rows={"recording": ("highatomic_stock",)}),
    "batched-pairs": Excerpt("locks_pairs"),
    "batched-avalanche": Excerpt("locks_avalanche"),
    "batched-releases": Excerpt("proposals_releases"),
    "ownership-shown": Excerpt(
        "ownership",
        rows={
            "what": (
                "zone->lock acquisitions",
                "zone->lock held",
                "pcp->lock acquisitions",
                "pcp->lock hand-overs",
                "pcp->lock held",
                "remote frees",
                "pages on per-CPU lists end",
                "blocks touched end",
                "unusable index order 9",
            )
        },
    ),
    "ownership-cpus-shown": Excerpt(
        "ownership_cpus",
        {
            "CPUs": "CPUs",
            "acquisitions": "zone->lock acquisitions",
            "held": "zone->lock held",
            "pcp->lock held": "pcp->lock held",
            "pages on lists": "pages on lists",
            "blocks touched": "blocks touched",
            "remote frees": "remote frees, pages",
        },
    ),
    "pressure-near": near_lines,
    "gate-guests-by-hand": Excerpt(
        "idle_guests_by_hand",
        {
            "gate": "gate",
            "proactiveness": "proactiveness",
            "boots": "boots",
            **RATE,
            "kcompactd_scanned": "kcompactd scanned, pages",
        },
    ),
    "gate-guests": Excerpt(
        "idle_guests",
        {
            "pair": "pair",
            "runs_before": "boots",
            "before": "THP success before, %",
            "change": "change, points",
            "low": "change_low",
            "high": "change_high",
            "predicted": "predicted",
            "verdict": "verdict",
        },
    ),
    "gate-hosts": Excerpt(
        "idle_reserve_hosts",
        {
            "host": "host",
            "gate": "gate",
            "proactiveness": "proactiveness",
            **RATE,
            "kcompactd_scanned": "kcompactd scanned, pages",
            "kswapd_scanned": "kswapd scanned, pages",
        },
        {"defrag": ("madvise",)},
    ),
    "gate-map-shown": Excerpt("gate_map_outcomes"),
    "gate-answers": Excerpt(
        "gate_answers",
        {
            "answer": "answer",
            "reserved_blocks": "reserved blocks",
            **RATE,
            "failed_order_1": "failed, order 1",
            "failed_order_2": "order 2",
            "failed_order_3": "order 3",
        },
    ),
    "rounds-served": Excerpt(
        "build_rounds_served",
        {
            "round": "round",
            "served, %, busy, mode 0": "busy host, mode 0",
            "served, %, busy, mode 1": "busy, mode 1",
            "served, %, quiet, mode 0": "quiet host, mode 0",
            "served, %, quiet, mode 1": "quiet, mode 1",
        },
        {"round": ("1", "3", "6", "9", "12")},
    ),
    "rounds-modes": Excerpt(
        "build_rounds_modes",
        rows={
            "mode 1 less mode 0": (
                "busy host, rounds 2 to 12",
                "quiet host, rounds 2 to 12",
                "one demand replayed in both, rounds 2 to 12",
            )
        },
    ),
    "rounds-trends": Excerpt(
        "defrag_rounds",
        {
            "recording": "of",
            "side": "side",
            "runs": "runs",
            "first": "rounds 2 to 6, %",
            "last": "last five, %",
            "trend": "trend, points",
            "low": "trend_low",
            "high": "trend_high",
        },
        {"outlives": ("", "all, again in each round"), "recording": TRENDS_SHOWN},
    ),
    "defrag-pair-shown": Excerpt(
        "defrag_pair",
        {
            "name": "counter",
            "off": "off",
            "same": "off, again",
            "on": "on",
            "verdict": "verdict",
        },
        {
            "name": (
                "pgactivate",
                "kswapd_low_wmark_hit_quickly",
                "pgmigrate_fail",
                "allocstall_normal",
                "thp_fault_alloc",
            )
        },
    ),
    "defrag-hosts": Excerpt(
        "defrag_hosts_verdicts",
        {
            "gib": "GiB",
            "faults": "faults",
            "rows": "rows",
            "sign": "posted sign",
            "size": "posted size",
            "vanilla": "vanilla, points",
            "defrag_mode": "defrag_mode, points",
        },
    ),
    "size-shown": Excerpt(
        "size",
        {
            "grows": "grows",
            "CPUs": "CPUs",
            "GiB": "GiB",
            "events": "events",
            "making s": "making, s",
            "replay s": "replay, s",
            "peak MiB": "peak, MiB",
        },
        {"events": ("341485", "37982869", "3762512", "3840473", "418529", "53840054")},
    ),
    "sweep-shown": Excerpt(
        "sweep",
        rows={
            "sweeps of `kbuild` as shipped": (
                "160 points, one thread",
                "two threads over one",
                "two processes over one thread",
                "time of the same sweep, all points known",
                "rows that differ",
            )
        },
    ),
    "proposals-posted": Excerpt(
        "proposals_hosts",
        {
            "change": "proposal",
            "what": "quantity",
            "posted": "posted",
            "by": "predicted",
            "from": "change_low",
            "to": "change_high",
            "sign": "sign",
        },
        {"sign": ("right", "wrong", "undecided")},
    ),
    "proposals-scale-shown": Excerpt("proposals_scale"),
    "superpageblocks-shown": Excerpt(
        "superpageblocks_host",
        rows={
            "what": (
                "GiB with kernel pages",
                "GiB without",
                "fallbacks",
                "list probes for each page of a refill",
            )
        },
    ),
}
"""What pages show of the full tables."""

SHIPPED = ("kbuild", "xfree", "highatomic_stock", "highatomic_gate3")
GUESTS = (
    "matrix_A1",
    "defrag_7.3",
    "mixed_6.1",
    "two_nodes_A1",
    "zram_swap_A1",
    "cma_area_A1",
)
"""Small guests, for what no larger recording has: another kernel, other machines."""
FULL = (
    "kbuild",
    "xfree",
    "exit",
    "highatomic_stock",
    "highatomic_gate3",
    "unbatched72",
    "batched72",
    "defrag72",
)


def write_part(name: str, lines: Iterable[str]) -> None:
    """Put lines between the two markers of a name, in the file that `PLACES` names."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    content = "\n".join(lines)
    file = PROJECT / PLACES[name]
    head, _, rest = file.read_text().partition(begin)
    _, _, tail = rest.partition(end)
    file.write_text(f"{head}{begin}\n{content}\n{end}{tail}")


def speed_lines(path: str) -> Iterator[str]:
    """A markdown table of speeds."""
    recording = pm.open(path)
    yield f"| on `{recording.name}`, {len(recording.trace):,} events | value | unit | beside |"
    yield "|---|--:|---|---|"
    for row in replaying(recording):
        beside = f"{row['ratio']:.1f} x {row['peer']}" if row["ratio"] else ""
        value = f"{row['value']:,.2f}" if row["unit"] == "s" else f"{row['value']:,.0f}"
        yield f"| {row['name']} | {value} | {row['unit']} | {beside} |"


def reading_lines(path: str) -> Iterator[str]:
    """A markdown table of how fast an event file is read, beside perf's tools."""
    recording = pm.open(path)
    yield f"| on `{recording.name}` | events/s | beside | events/s | ratio |"
    yield "|---|--:|---|--:|--:|"
    for row in reading(recording.event_file):
        beside = "|  |  |  |"
        if row["ratio"]:
            beside = f"| {row['peer']} | {row['peer_value']:,.0f} | {row['ratio']:.1f} |"
        yield f"| {row['name']} | {row['value']:,.0f} {beside}"


def sweep_table(names: Sequence[str], heading: str) -> Iterator[str]:
    """A markdown table of parts of `sweep.PARTS`, on this machine."""
    yield f"| {heading} | value | unit |"
    yield "|---|--:|---|"
    for name in names:
        for what, value, unit in sweep.PARTS[name]():
            shown = f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"
            yield f"| {what} | {shown} | {unit} |"


def slider_lines() -> Iterator[str]:
    """A markdown table of times from a key press to the picture."""
    recording = slider.default_recording()
    yield f"On `{recording.name}`, {len(recording.trace):,} events:"
    yield ""
    yield from table_lines(slider.redraws(recording))


def size_lines() -> Iterator[str]:
    """A markdown table of how replays grow; draws its picture, too."""
    rows = size.linear()
    draw_growth(rows)
    yield from table_lines(rows)


def draw_growth(rows: pd.DataFrame) -> None:
    """Put the picture of what `size.linear` measured into docs/images."""
    with tempfile.TemporaryDirectory() as directory:
        size.draw_growth(rows, Path(directory))
        shutil.copyfile(Path(directory) / "growth.png", PROJECT / "docs" / "images" / "growth.png")


PARTS: dict[str, Callable[[], Iterable[str]]] = {
    "errors": lambda: error_lines(_validations(SHIPPED)),
    "experiments-short": experiments.score_lines,
    "experiments": experiments.result_lines,
    "errors-guests": lambda: error_lines(_validations(GUESTS)),
    "errors-guests-short": lambda: short_error_lines(_validations(GUESTS)),
    "lacks": lambda: table_lines(lacks.errors()),
    "pressure": pressure_lines,
    "gate-map": gate_map_lines,
    "idle-reserve": idle_reserve_lines,
    "idle-guests": idle_guest_lines,
    "idle-defer": idle_defer_lines,
    "idle-slowpath": idle_slowpath_lines,
    "host-regions": host_region_lines,
    "idle-costs": idle_cost_lines,
    "defrag": defrag_lines,
    "defrag-rounds": defrag_round_lines,
    "build-rounds": build_rounds.round_lines,
    "sweep": lambda: sweep_table(("threads", "points", "cluster"), "sweeps of `kbuild` as shipped"),
    "fleet": lambda: sweep_table(("fleet",), "hosts of 64 GiB without and with the gate"),
    "ownership": lambda: table_lines(ownership.summary()),
    "ownership-cpus": lambda: table_lines(ownership.purgers().drop(columns="load")),
    "ownership-pressure": lambda: table_lines(ownership.pressure()),
    "five-minutes": lambda: table_lines(five_minutes.measured()),
    "waits": lambda: table_lines(waits.measured()),
    "slider": slider_lines,
    "size": size_lines,
    "memory-floor": lambda: table_lines(memory_floor.measured()),
    "start-up": lambda: table_lines(start_up.measured().drop(columns=["limit", "is"])),
    "long": lambda: table_lines(long_recording.measured()),
    "proposals-index": lambda: proposals.lines(proposals.index()),
    "proposals-hosts": lambda: proposals.lines(_proposals(proposals.host_rows, "rows")),
    "proposals-recordings": lambda: proposals.lines(
        _proposals(proposals.recording_rows, "recordings")
    ),
    "proposals-steals": lambda: (
        *proposals.lines(steal_rows()),
        "",
        *proposals.lines(proposals.probe_rows()),
    ),
    "proposals-scale": lambda: proposals.lines(scale_rows()),
    "proposals-chunks": lambda: proposals.lines(chunk_rows()),
    "proposals-releases": lambda: proposals.lines(release_rows()),
    "superpageblocks": lambda: (
        *proposals.lines(superpageblocks.host_rows()),
        "",
        *proposals.lines(superpageblocks.cost_rows()),
    ),
}
"""Lines by the name of a part."""

FULL_PARTS: dict[str, Callable[[Path], Iterable[str]]] = {
    "errors-short": lambda full: short_error_lines(_validations(_paths(full))),
    "errors-full": lambda full: error_lines(_validations(_paths(full))),
    "choices": lambda full: choice_lines(_paths(full)),
    "budget": lambda full: budget_lines(
        [str(full / name) for name in pressure.PRESSED if (full / name).exists()]
    ),
    "defrag-pair": lambda full: table_lines(defrag.recordings(str(full))),
    "locks-short": locks.short_lines,
    "locks": locks.lines,
    "pressure-factors": factor_lines,
    "gate-pair": pair_lines,
    "intervals": lambda _: intervals.coverage_lines(),
    "reading": lambda full: reading_lines(str(full / FULL[0])),
    "speed": lambda full: speed_lines(str(full / FULL[0])),
    "policies": lambda full: table_lines(policies.measured(str(full / FULL[0]))),
}
"""The same of full recordings, from the folder that they are in."""


def _paths(full: Path) -> tuple[str, ...]:
    return tuple(str(full / name) for name in FULL if (full / name).exists())


@cache
def _validations(paths: tuple[str, ...]) -> list[Validation]:
    return [pm.validate(pm.open(path)) for path in paths]


def main(names: Sequence[str]) -> None:
    """Rewrite the parts with these names in place, or all; then all excerpts."""
    unknown = set(names) - {*PARTS, *FULL_PARTS}
    if unknown:
        sys.exit(
            f"no such part: {', '.join(unknown)}; there are {', '.join([*PARTS, *FULL_PARTS])}"
        )
    full = os.environ.get("PAGEALLOC_RECORDINGS")
    parts = dict(PARTS)
    if full:
        parts |= {name: partial(lines, Path(full)) for name, lines in FULL_PARTS.items()}
    for name, lines in parts.items():
        if not names or name in names:
            print(name, file=sys.stderr)
            if name in FILES:
                write_tables(FILES[name], lines())
            else:
                write_part(name, lines())
    for name, lines in EXCERPTS.items():
        write_part(name, lines())


if __name__ == "__main__":
    main(sys.argv[1:])
