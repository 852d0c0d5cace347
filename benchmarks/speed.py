"""How fast replaying is.

Usage: python benchmarks/speed.py [RECORDING] [--json]

Rates are of one core and one process. Kernels are compiled before anything is timed. The event loop
is timed as `policies.py` does: its CPU time alone, on a state made before.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import pagealloc_model as pm
from pagealloc_model.recording.recording import Recording

REPEATS = 5
Row = dict[str, object]


def best_of(action: Callable[[], object], repeats: int = REPEATS) -> float:
    """Shortest of several runs, seconds."""
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        action()
        times.append(time.perf_counter() - begun)
    return min(times)


def replaying(recording: Recording) -> list[Row]:
    """The event loop alone, a whole `pm.replay`, and a slider's worth of it with its tables."""
    first = pm.replay(recording)
    events = len(first.demand.events)
    loop = min(_event_loop(recording) for _ in range(REPEATS))

    def with_tables() -> None:
        replay = pm.replay(recording, pm.Policy(pcp_batch=31))
        for table in ("free_pages", "pageblocks", "pcp", "lock", "transactions", "fallbacks"):
            getattr(replay, table)

    return [
        row("event loop", events / loop, "allocations and frees/s", None, None),
        row("pm.replay", best_of(lambda: pm.replay(recording), 3), "s", None, None),
        row("pm.replay and all tables", best_of(with_tables, 3), "s", None, None),
    ]


def _event_loop(recording: Recording) -> float:
    """CPU seconds of the kernels alone."""
    from pagealloc_model.allocator import layout as at
    from pagealloc_model.allocator.events import advance

    state, events, places = _ready(recording)
    begun = time.process_time()
    position = 0
    while position < len(events):
        position = advance(state.arrays(places), events, position, len(events), -1)
        state.st[at.LOG_ROWS] = 0
    return time.process_time() - begun


def _ready(recording: Recording) -> tuple:
    from pagealloc_model.measured.rules import recorded_rules
    from pagealloc_model.policy.policy import Assumptions
    from pagealloc_model.predicted.prepared import prepare
    from pagealloc_model.predicted.start.image import start_state
    from pagealloc_model.recording.recorded_machine import recorded_policy

    rules = recorded_rules(recording).rules
    assumptions = Assumptions()
    prepared = prepare(recording, rules, assumptions, 0)
    state = start_state(
        prepared.machine,
        prepared.demand,
        prepared.image,
        rules,
        recorded_policy(recording),
        assumptions,
    )
    return state, prepared.demand.events, prepared.demand.starting_places()


def row(name: str, value: float, unit: str, peer: str | None, peer_value: float | None) -> Row:
    """One figure beside its peer's."""
    ratio = value / peer_value if peer_value else None
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "peer": peer,
        "peer_value": peer_value,
        "ratio": ratio,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="speed of replaying a recording")
    parser.add_argument("recording", nargs="?", default="kbuild")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    recording = pm.open(options.recording)
    rows = replaying(recording)
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{recording.name}: {len(recording.trace)} page-allocator events")
    for each in rows:
        beside = f"  {each['ratio']:6.1f} x {each['peer']}" if each["ratio"] else ""
        print(f"  {each['name']:<26} {each['value']:>14,.2f} {each['unit']}{beside}")


if __name__ == "__main__":
    main()
