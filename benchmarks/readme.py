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
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path

import five_minutes
import long_recording
import memory_floor
import pagealloc_model.notebooks.studies.others.interval_coverage as intervals
import pandas as pd
import policies
import pressed
import size
import slider
import start_up
import sweep
import waits
from pagealloc_model.notebooks.studies.defrag_mode import build_rounds, defrag, reclaim_storms
from pagealloc_model.notebooks.studies.others import experiment_tables as experiments
from pagealloc_model.notebooks.studies.others import missing_parts as lacks
from pagealloc_model.notebooks.studies.others import pressure, proposals
from pagealloc_model.notebooks.studies.others.error_lines import (
    choice_lines,
    error_lines,
    short_error_lines,
    table_lines,
)
from pagealloc_model.notebooks.studies.others.pressure_lines import (
    defrag_lines,
    defrag_round_lines,
    factor_lines,
    gate_map_lines,
    host_region_lines,
    idle_cost_lines,
    idle_defer_lines,
    idle_guest_lines,
    idle_reserve_lines,
    idle_score_lines,
    idle_slowpath_lines,
    pair_lines,
    pressure_lines,
)
from pagealloc_model.notebooks.studies.others.proposal_loads import (
    chunk_rows,
    scale_rows,
    steal_rows,
)
from pagealloc_model.notebooks.studies.others.proposal_sides import Proposal
from pagealloc_model.notebooks.studies.pcp_batching import lock_traffic as locks
from pagealloc_model.notebooks.studies.pcp_batching import posted_builds, system_time
from pagealloc_model.notebooks.studies.pcp_buddy import ownership
from reading import reading
from tables import FOLDER, Excerpt, read_table, write_tables

import pagealloc_model as pm
from pagealloc_model.numbers.validation import Validation, usual_seeds

PROJECT = Path(__file__).resolve().parent.parent
DECLARED = tomllib.loads((PROJECT / "benchmarks" / "readme.toml").read_text())
PLACES, FILES = DECLARED["places"], DECLARED["files"]
"""Page of each part and excerpt; files of data/tables of each other part, in order."""


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


EXCERPTS: dict[str, Callable[[], Iterable[str]]] = {
    "pressure-near": near_lines,
    "pressed-shown": lambda: pressed.shown_lines(read_table("pressed")),
    **{name: Excerpt(**about) for name, about in DECLARED["excerpts"].items()},
}
"""Parts of the full tables that pages show."""

SHIPPED = ("kbuild", "xfree", "highatomic_stock", "highatomic_gate3")
GUESTS = ("matrix_A1", "defrag_7.3", "mixed_6.1", "two_nodes_A1", "zram_swap_A1", "cma_area_A1")
"""Small guests, for what no larger recording has: another kernel, other machines."""
SEEDS_ELASTIC = 2
"""Seeds of a row of elastic replays."""
UNSEEN_COUNTERS = PROJECT / "data" / "experiments" / "matrix" / "counters.csv"
"""What `pressed.py --counters --seeds 2` wrote of the first two runs of each side."""
HUGE_PAGE_SEEDS = 3
PRESSED = ("p612", "p73", *pressure.PRESSED)
"""All recordings of guests short of memory, as large as they are."""
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
    for name, value, unit in policies.replaying(recording):
        yield f"| {name} | {value:,.{2 if unit == 's' else 0}f} | {unit} |  |"


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
    recording = pm.open(waits.default_recording())
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
    "errors-short": lambda: short_error_lines(_validations(SHIPPED)),
    "experiments-sentence": experiments.sentence_lines,
    "experiments-short": experiments.score_lines,
    "experiments": experiments.result_lines,
    "experiments-slopes": experiments.slope_lines,
    "experiments-large": experiments.large_lines,
    "counters-unseen": lambda: table_lines(pressed.near_rows(pd.read_csv(UNSEEN_COUNTERS))),
    "system-time-ownership": lambda: table_lines(system_time.ownership()),
    "system-time-chains": lambda: table_lines(system_time.chains()),
    "posted-builds": lambda: table_lines(posted_builds.builds()),
    "errors-guests": lambda: error_lines(_validations(GUESTS, "literal")),
    "errors-guests-short": lambda: short_error_lines(_validations(GUESTS, "literal")),
    "lacks": lambda: table_lines(lacks.errors()),
    "pressure": pressure_lines,
    "gate-map": gate_map_lines,
    "idle-reserve": idle_reserve_lines,
    "idle-guests": idle_guest_lines,
    "idle-defer": idle_defer_lines,
    "idle-score": idle_score_lines,
    "idle-slowpath": idle_slowpath_lines,
    "host-regions": host_region_lines,
    "idle-costs": idle_cost_lines,
    "defrag": defrag_lines,
    "defrag-rounds": defrag_round_lines,
    "build-rounds": build_rounds.round_lines,
    "defrag-storms": lambda: table_lines(reclaim_storms.storm_table()),
    "sweep": lambda: sweep_table(("threads", "points", "cluster"), "sweeps of `kbuild` as shipped"),
    "ownership": lambda: table_lines(ownership.summary()),
    "ownership-cpus": lambda: table_lines(ownership.purgers().drop(columns="load")),
    "ownership-versions": lambda: table_lines(ownership.versions()),
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
}
"""Lines by the name of a part."""

FULL_PARTS: dict[str, Callable[[Path], Iterable[str]]] = {
    "errors-full": lambda full: error_lines(_validations(_paths(full), "literal")),
    "choices": lambda full: choice_lines(_paths(full)),
    "defrag-pair": lambda full: table_lines(defrag.recordings(str(full))),
    "locks-short": locks.short_lines,
    "locks-fastpath": lambda _: table_lines(locks.fastpath()),
    "locks": locks.lines,
    "pressure-factors": factor_lines,
    "pressed": lambda full: table_lines(pressed.table([str(full / name) for name in PRESSED])),
    "elastic": lambda full: table_lines(
        pressed.elastic_rows([str(full / name) for name in PRESSED], SEEDS_ELASTIC)
    ),
    "pressed-reclaims": lambda full: table_lines(
        pressed.reclaims_in_vain([*(str(full / name) for name in PRESSED), "zram_swap_A1"])
    ),
    "counters-near": lambda full: table_lines(
        pressed.near_rows(
            pressed.counter_rows([*(str(full / name) for name in PRESSED), *GUESTS], SEEDS_ELASTIC)
        )
    ),
    "huge-pages": lambda full: table_lines(
        pressed.huge_page_rows([str(full / name) for name in PRESSED], HUGE_PAGE_SEEDS)
    ),
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
def _validations(paths: tuple[str, ...], asked: str = "auto") -> list[Validation]:
    """Validations in a mode of reclaim, over as many seeds as the command takes."""
    validations = []
    for recording in map(pm.open, paths):
        validation = pm.validate(recording, assumptions=pm.Assumptions(reclaim=asked))
        validations.append(validation.over_seeds(usual_seeds(recording)))
    return validations


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
