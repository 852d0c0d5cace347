"""How replays grow: with events, memory, CPUs; what a terabyte and a billion events take.

Usage: python benchmarks/size.py host|billion|linear|memory|window [--events N] [--json]
                                                            [--figure DIR]

`window` replays the end of a recording whose beginning of that part was seen before; `memory` and
`window` take the full recording where PAGEALLOC_RECORDINGS names the directory that has it.

Every figure is of a fresh process, of its CPU time and of the most that it had resident (VmHWM),
interpreter and libraries included. Kernels are compiled before and loaded before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

import pagealloc_model as pm
from pagealloc_model.predicted import Checkpoints

RECORDING = "kbuild"
RULES = "6.12"
TIMES = (1, 10, 100)
GIB = (4, 16, 64, 256, 1024)
CPUS = (2, 8, 32, 128, 316)
HOST = {"cpus": 316, "gib": 1024}
MODES = ("literal", "elastic")
BILLION = {"cpus": 2, "gib": 16}
Figures = dict[str, float | str]


def streamed(
    cpus: int, gib: float, rounds: int, events: int = 0, reclaim: str = "literal"
) -> Figures:
    """A recording scaled up, replayed from a stream."""
    recording = pm.open(RECORDING)
    stream_of = partial(pm.synthetic.scaled_up, recording, reclaim=reclaim)
    replayed = partial(
        pm.synthetic.run, rules=RULES, assumptions=pm.Assumptions(reclaim=reclaim), keep_holds=False
    )
    replayed(stream_of(2))
    if events:
        one, two = (stream_of(cpus, gib=gib, rounds=each).count for each in (1, 2))
        rounds = max(-(-(events - one) // (two - one)), 0) + 1
    stream = stream_of(cpus, gib=gib, rounds=rounds)
    making_s = [0.0]
    begun = time.process_time()
    run = replayed(replace(stream, parts=lambda: timed(stream.parts(), making_s)))
    taken, making = time.process_time() - begun, making_s[0]
    return {
        "reclaim": reclaim,
        "CPUs": cpus,
        "GiB": gib,
        "events": run.events,
        "making s": making,
        "replay s": taken - making,
        "events/s": run.events / (taken - making),
        "events/s in all": run.events / taken,
        "failed": run.failed,
        "peak MiB": resident_mib("VmHWM"),
    }


def timed(parts: Iterator[np.ndarray], seconds: list[float]) -> Iterator[np.ndarray]:
    """The same parts; the CPU time of making them is added to a list's only value."""
    while True:
        begun = time.process_time()
        part = next(parts, None)
        seconds[0] += time.process_time() - begun
        if part is None:
            return
        yield part


def seconds_of(action: Callable[[], object]) -> float:
    """CPU time that an action takes, seconds."""
    begun = time.process_time()
    action()
    return time.process_time() - begun


def resident_mib(which: str) -> float:
    """What this process has in memory (VmRSS), or had at most (VmHWM), MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(which)).split()[1]) / 1024


def bytes_of_pages(gib: float) -> Figures:
    """Memory of a state whose page frames are all in use."""
    from pagealloc_model.allocator.state import make_state
    from pagealloc_model.policy.kernel_rules import KernelRules
    from pagealloc_model.recording.machine import synthetic_machine

    rules = KernelRules.preset(RULES)
    machine = synthetic_machine(gib, 64, rules)
    before = resident_mib("VmRSS")
    state = make_state(machine, rules)
    state.pages["order"] = 0
    grown = resident_mib("VmRSS") - before
    return {"pages": machine.end_pfn, "bytes each": grown * (1 << 20) / machine.end_pfn}


def bytes_of_events(path: str) -> Figures:
    """Memory of a recording's columns, and of what replays of it need."""
    recording = pm.open(path)
    before = resident_mib("VmRSS")
    events = len(recording.trace)
    _touch(getattr(recording.trace, name) for name in ("time_ns", "pfn", "cpu", "gfp", "pid"))
    read = resident_mib("VmRSS") - before
    demand = pm.replay(recording).demand
    ready = demand.events.nbytes + demand.objects.nbytes + demand.starting_places().nbytes
    return {
        "events": events,
        "trace, bytes each": read * (1 << 20) / events,
        "demand, bytes each": ready / len(demand.events),
        "peak MiB": resident_mib("VmHWM"),
    }


def _touch(columns: Iterator[np.ndarray]) -> None:
    for column in columns:
        column.sum()


def resumed(path: str, share: float) -> Figures:
    """A window from a share of a recording on, from the start and from a checkpoint."""
    recording, kept = pm.open(path), Checkpoints()
    first, last = recording.trace.demand_span_ns
    begin, end = share * (last - first) / 1e9, (last - first) / 1e9
    policy = pm.Policy(pcp_batch=31)
    pm.replay(recording, policy, window=(begin, (begin + end) / 2), checkpoints=kept)
    return {
        "events": len(recording.trace),
        "window begins at": share,
        "from the start s": seconds_of(lambda: pm.replay(recording, policy, window=(begin, end))),
        "resumed s": seconds_of(
            lambda: pm.replay(recording, policy, window=(begin, end), checkpoints=kept)
        ),
        "checkpoint MiB": kept.nbytes / (1 << 20),
        "state MiB": pm.replay(recording, policy).final.pages.nbytes / (1 << 20),  # type: ignore[union-attr]
    }


def alone(measure: Callable[..., Figures], **arguments: object) -> Figures:
    """The figures that a measure finds in a process of its own."""
    command = [sys.executable, __file__, "--alone", measure.__name__, json.dumps(arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: Figures = json.loads(done.stdout)
    return figures


def host(_events: int) -> pd.DataFrame:
    """1 TiB and 316 CPUs, in both modes of reclaim."""
    return pd.DataFrame([alone(streamed, rounds=1, reclaim=mode, **HOST) for mode in MODES])


def billion(events: int) -> pd.DataFrame:
    """So many events in both modes of reclaim, on a small machine and on 1 TiB with 316 CPUs."""
    runs = [(machine, mode) for machine in (BILLION, HOST) for mode in MODES]
    with ThreadPoolExecutor(len(runs) if (os.cpu_count() or 1) >= 2 * len(runs) else 1) as threads:
        rows = threads.map(
            lambda run: alone(streamed, rounds=1, events=events, reclaim=run[1], **run[0]), runs
        )
        return pd.DataFrame(list(rows))


def linear(_events: int = 0) -> pd.DataFrame:
    """More events, more memory, more CPUs, one at a time."""
    of_events = [alone(streamed, cpus=2, gib=16, rounds=times) for times in TIMES]
    of_memory = [alone(streamed, cpus=2, gib=gib, rounds=10) for gib in GIB]
    of_cpus = [alone(streamed, cpus=cpus, gib=1024, rounds=1) for cpus in CPUS]
    groups = {"events": of_events, "memory": of_memory, "CPUs": of_cpus}
    return pd.DataFrame([{"grows": name, **row} for name, rows in groups.items() for row in rows])


def memory(_events: int) -> pd.DataFrame:
    """Bytes of a page frame and of an event."""
    return pd.DataFrame(
        [alone(bytes_of_pages, gib=16), alone(bytes_of_events, path=full_recording())]
    )


def window(_events: int) -> pd.DataFrame:
    """Windows that resume from a checkpoint."""
    return pd.DataFrame(
        [alone(resumed, path=full_recording(), share=share) for share in (0.5, 0.9)]
    )


def full_recording() -> str:
    """The recording in full where that is at hand, else as it ships."""
    path = Path(os.environ.get("PAGEALLOC_RECORDINGS", "")) / RECORDING
    return str(path) if path.exists() else RECORDING


def draw_growth(rows: pd.DataFrame, directory: Path) -> None:
    """CPU time of making and replaying against what grows, for the table of `linear`."""
    # not at the top: processes that measure their memory do without
    from pagealloc_model.show.figures.faceted import (
        PREDICTION_COLOURS,
        PREDICTION_DASHES,
        PanelGrid,
    )
    from pagealloc_model.show.figures.files import write_figures

    panels = {"events": "events", "memory": "GiB", "CPUs": "CPUs"}
    grid = PanelGrid(
        [f"more {name}" for name in panels],
        title="CPU time as events, memory and CPUs grow",
        x_title="events; GiB; CPUs",
        y_title="CPU time (s)",
        x_axis={"type": "log"},
        y_axis={"type": "log"},
    )
    for panel, (name, column) in enumerate(panels.items()):
        found = rows[rows["grows"] == name]
        for place, metric in enumerate(("making s", "replay s")):
            line = {"color": PREDICTION_COLOURS[place], "dash": PREDICTION_DASHES[place]}
            points = {"x": found[column].tolist(), "y": found[metric].tolist(), "name": metric[:-2]}
            look = {"type": "scatter", "mode": "lines+markers", "line": line}
            grid.add(points | look | {"showlegend": panel == 0}, panel)
    write_figures({"growth": grid.figure()}, directory)


PARTS = {each.__name__: each for each in (host, billion, linear, memory, window)}
MEASURES = {each.__name__: each for each in (streamed, bytes_of_pages, bytes_of_events, resumed)}


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--alone"]:
        print(json.dumps(MEASURES[sys.argv[2]](**json.loads(sys.argv[3]))))
        return
    parser = argparse.ArgumentParser(description="how replays grow")
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--events", type=int, default=1_000_000_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--figure", type=Path, metavar="DIR", help="of linear: growth.png, .svg")
    options = parser.parse_args()
    figures = PARTS[options.part](options.events)
    if options.figure and options.part == linear.__name__:
        draw_growth(figures, options.figure)
    if options.json:
        print(json.dumps(figures.to_dict("records"), indent=2))
    else:
        print(figures.to_string(index=False, float_format="{:,.2f}".format))


if __name__ == "__main__":
    main()
