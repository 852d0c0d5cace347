"""Write the figures of README and docs/, each in its place: `PLACES`.

Usage: python benchmarks/readme.py [PART ...]     (make readme)

Full recordings are taken from the directory that PAGEALLOC_RECORDINGS names; without it, only the
part on the shipped recordings is written anew.
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
from reading import reading
from speed import replaying

import pagealloc_model as pm
from pagealloc_model.verdict.validation import Validation

PROJECT = Path(__file__).resolve().parent.parent
PLACES = {
    "errors-short": "README.md",
    "experiments-short": "README.md",
    "experiments": "docs/experiments.md",
    "lacks": "docs/formats.md",
    "errors": "docs/accuracy.md",
    "errors-guests": "docs/accuracy.md",
    "errors-full": "docs/accuracy.md",
    "choices": "docs/accuracy.md",
    "budget": "docs/accuracy.md",
    "defrag-pair": "docs/accuracy.md",
    "reading": "docs/how_to_read.md",
    "locks-short": "docs/locks.md",
    "locks": "docs/locks.md",
    "ownership": "docs/ownership.md",
    "ownership-cpus": "docs/ownership.md",
    "pressure": "docs/pressure.md",
    "pressure-factors": "docs/pressure.md",
    "gate-pair": "docs/pressure.md",
    "gate-map": "docs/pressure.md",
    "idle-reserve": "docs/pressure.md",
    "idle-guests": "docs/pressure.md",
    "idle-defer": "docs/pressure.md",
    "idle-slowpath": "docs/pressure.md",
    "host-regions": "docs/pressure.md",
    "idle-costs": "docs/pressure.md",
    "defrag": "docs/pressure.md",
    "defrag-rounds": "docs/pressure.md",
    "build-rounds": "docs/pressure.md",
    "size": "docs/size.md",
    "long": "docs/size.md",
    "five-minutes": "docs/install.md",
    "waits": "docs/speed.md",
    "speed": "docs/speed.md",
    "slider": "docs/speed.md",
    "policies": "docs/speed.md",
    "memory-floor": "docs/speed.md",
    "start-up": "docs/speed.md",
    "sweep": "docs/sweeps.md",
    "fleet": "docs/sweeps.md",
    "proposals-index": "docs/proposals.md",
    "proposals-compact-gap": "docs/proposals.md",
    "proposals-reserve": "docs/proposals.md",
    "proposals-refill-mode": "docs/proposals.md",
    "proposals-atomic-boost": "docs/proposals.md",
    "proposals-slow-path": "docs/proposals.md",
    "proposals-batch-scale": "docs/proposals.md",
    "proposals-chunks": "docs/proposals.md",
    "proposals-releases": "docs/proposals.md",
    "proposals-superpageblocks": "docs/proposals.md",
}
"""Which file has the markers of each part."""

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
    "five-minutes": lambda: table_lines(five_minutes.measured()),
    "waits": lambda: table_lines(waits.measured()),
    "slider": slider_lines,
    "size": size_lines,
    "memory-floor": lambda: table_lines(memory_floor.measured()),
    "start-up": lambda: table_lines(start_up.measured().drop(columns=["limit", "is"])),
    "long": lambda: table_lines(long_recording.measured()),
    "proposals-index": lambda: proposals.lines(proposals.index()),
    "proposals-compact-gap": lambda: proposals.page("compact-gap"),
    "proposals-reserve": lambda: proposals.page("reserve-pcp", "reserve-fastpath", "reserve-gate"),
    "proposals-refill-mode": lambda: (
        *proposals.lines(steal_rows()),
        "",
        *proposals.lines(proposals.probe_rows()),
        "",
        *proposals.page("refill-mode"),
    ),
    "proposals-atomic-boost": lambda: proposals.page("atomic-boost"),
    "proposals-slow-path": lambda: proposals.page("local-thp", "initial-compaction"),
    "proposals-batch-scale": lambda: (
        *proposals.lines(scale_rows()),
        "",
        *proposals.page("batch-scale"),
    ),
    "proposals-chunks": lambda: proposals.lines(chunk_rows()),
    "proposals-superpageblocks": lambda: (
        *proposals.lines(superpageblocks.host_rows()),
        "",
        *proposals.lines(superpageblocks.cost_rows()),
        "",
        *proposals.page("superpageblocks"),
    ),
    "proposals-releases": lambda: (
        *proposals.lines(release_rows()),
        "",
        *proposals.page("batched-frees"),
    ),
}
"""Lines by the name of their markers."""

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
    """Rewrite the parts with these names in place, or all."""
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
            write_part(name, lines())


if __name__ == "__main__":
    main(sys.argv[1:])
