"""How fast a recording is replayed under each study's policy, beside plain C on the same demand.

Usage: python benchmarks/policies.py [RECORDING]

Each policy is a process of its own, with a seed of its own, on a copy of the recording's files made
for this run, and replays RUNS times, each time with another pcp_batch. The C program runs in turn
with each. Rates are of CPU time (user and system) on one core, and the best of the runs counts, so
that others on the machine weigh less. Reading and preparing come before what is timed.

The C program does mainline's work: it makes the same refills and drains and ends with the
same pages (`tests/test_replay_peer.py`).

`event loop`: the kernels alone, nothing kept. `full statistics`: `pm.replay`, which keeps every
counter at every instant of its tables and every hold of zone->lock.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import replay_peer

import pagealloc_model as pm
from pagealloc_model.recording.recording import Recording

RUNS = 5
POLICIES: dict[str, tuple[str, dict[str, object]]] = {
    "mainline": ("literal", {}),
    "gate of order 3": ("literal", {"highatomic_gate_order": 3}),
    "batched freeing": ("literal", {"pcp_free_batched": True}),
    "ownership": ("literal", {"pageblock_ownership": "pcp_buddy"}),
    "mainline, elastic": ("elastic", {}),
    "defrag_mode, elastic": ("elastic", {"defrag_mode": True}),
}
"""Mode of reclaim, and settings that differ from the recorded ones."""
SEED = 11


def measured(path: str = "kbuild") -> pd.DataFrame:
    """One row per policy: millions of allocations and frees a second, and what they compare to.

    Returns:
        `event loop`, `full statistics` and `plain C` (missing without a compiler) in M/s; `mainline
        over it`: mainline's event loop over this one's; `added`: time that statistics add; `C over
        it`: plain C over the event loop.
    """
    with tempfile.TemporaryDirectory(prefix="pagealloc-policies-") as made:
        directory = Path(made)
        copy = _copied(pm.open(path), directory / "recording")
        program = replay_peer.compiled(directory)
        if program is None:
            print("no C compiler: the plain C program is left out", file=sys.stderr)
        rows = [_row(name, copy, program, SEED + number) for number, name in enumerate(POLICIES)]
    table = pd.DataFrame(rows)
    loop = table["event loop"]
    table["mainline over it"] = loop.iloc[0] / loop
    table["added"] = loop / table["full statistics"] - 1
    if program is not None:
        table["C over it"] = table["plain C"] / loop
    return table


def _copied(recording: Recording, directory: Path) -> Path:
    """A copy of a recording's files, so that no cache knows them."""
    if recording.path.is_dir():
        shutil.copytree(recording.path, directory)
        return directory
    directory.mkdir()
    return Path(shutil.copy2(recording.path, directory))


def _row(name: str, copy: Path, program: Path | None, seed: int) -> dict[str, object]:
    command = [sys.executable, __file__, "--one", name, str(copy), str(seed)]
    if program is not None:
        command.append(str(program))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if found.returncode:
        raise SystemExit(f"policies.py: {name}: {found.stderr.strip().splitlines()[-1]}")
    return {"policy": name, **json.loads(found.stdout)}


def one(name: str, path: str, seed: int, program: Path | None) -> dict[str, float]:
    """Millions of allocations and frees a second under one policy, in this process."""
    mode, settings = POLICIES[name]
    recording = pm.open(path)
    assumptions = pm.Assumptions(reclaim=mode)
    first = pm.replay(recording, pm.Policy(**settings), assumptions=assumptions, seed=seed)
    count = len(first.demand.events)
    batch = max(each.batch for zone in first.machine.zones for each in zone.pagesets)
    bare: list[float] = []
    full: list[float] = []
    peer: list[float] = []
    with tempfile.TemporaryDirectory(prefix="pagealloc-peer-") as made:
        file = Path(made) / "demand"
        for number in range(RUNS):
            policy = pm.Policy(**settings, pcp_batch=batch + number)
            seconds, begun = event_loop(recording, first, policy)
            bare.append(seconds)
            full.append(_with_statistics(recording, policy, assumptions, seed))
            if program is not None:
                if not number:
                    replay_peer.write_demand(file, *begun)
                peer.append(replay_peer.run(program, file).seconds)
    rates = {"event loop": count / min(bare), "full statistics": count / min(full)}
    if peer:
        rates["plain C"] = count / min(peer)
    return {"events": count, **{key: rate / 1e6 for key, rate in rates.items()}}


def event_loop(recording: Recording, first: pm.Replay, policy: pm.Policy) -> tuple[float, tuple]:
    """CPU seconds of the kernels alone; what they began with, unless reclaim is theirs too."""
    from pagealloc_model.allocator import layout as at
    from pagealloc_model.predicted.carrier import ModelCarrier
    from pagealloc_model.predicted.prepared import prepare
    from pagealloc_model.recording.recorded_machine import effective_policy

    prepared = prepare(recording, first.rules, first.assumptions, first.seed)
    demand = prepared.demand
    elastic = first.assumptions.reclaim == "elastic"
    effective = effective_policy(recording, policy, elastic=elastic)
    state = prepared.state(first.rules, effective, first.assumptions, first.seed)
    carrier = ModelCarrier(state, demand.leads if elastic else None)
    places = demand.starting_places()
    begun = _copies(state), demand.events, places.copy()
    begins = time.process_time()
    position = 0
    while position < len(demand.events):
        position = carrier.advance(demand.events, places, position, len(demand.events), -1)
        state.st[at.LOG_ROWS] = 0
    return time.process_time() - begins, begun


def replaying(recording: Recording) -> Iterator[tuple[str, float, str]]:
    """What, value, unit: the event loop, a whole `pm.replay`, a slider's worth with its tables."""
    first = pm.replay(recording)

    def with_tables() -> None:
        replay = pm.replay(recording, pm.Policy(pcp_batch=31))
        for table in ("free_pages", "pageblocks", "pcp", "lock", "transactions", "fallbacks"):
            getattr(replay, table)

    loop = min(event_loop(recording, first, pm.Policy())[0] for _ in range(RUNS))
    yield "event loop", len(first.demand.events) / loop, "allocations and frees/s"
    for name, action in (
        ("pm.replay", lambda: pm.replay(recording)),
        ("pm.replay and all tables", with_tables),
    ):
        yield name, min(timeit.repeat(action, number=1, repeat=3)), "s"


def _copies(state: object) -> object:
    return replace(state, pages=state.pages.copy(), blocks=state.blocks.copy(), st=state.st.copy())


def _with_statistics(
    recording: Recording, policy: pm.Policy, assumptions: pm.Assumptions, seed: int
) -> float:
    """CPU seconds of `pm.replay` from its first report of progress to its last, for all events."""
    reports: list[tuple[float, float]] = []

    def note(share: float) -> None:
        reports.append((time.process_time(), share))

    pm.replay(recording, policy, assumptions=assumptions, seed=seed, progress=note)
    (begun, first), (ended, last) = reports[0], reports[-1]
    return (ended - begun) / (last - first)


def main() -> None:
    """Measure all and print, or measure one."""
    if sys.argv[1:2] == ["--one"]:
        name, path, seed, *program = sys.argv[2:]
        print(json.dumps(one(name, path, int(seed), Path(program[0]) if program else None)))
        return
    print(measured(*sys.argv[1:]).to_string(index=False, float_format="{:,.2f}".format))


if __name__ == "__main__":
    main()
