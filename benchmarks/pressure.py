"""The model's own reclaim and compaction under the recorded policy, and policies on a full host.

Usage: python benchmarks/pressure.py [own [RECORDING ...] | pair | reserve | questions | map]

`own`: what changes when elastic replaces literal: counters of kswapd, direct reclaim, compaction
and huge pages, recorded and by the model alone. `pair [OFF ON [ALIKE ALIKE]]`: what the reserve's
gate changed between two recordings, beside its prediction from the one without it; reclaim at that
recording's cost. `reserve`: the highatomic reserve of a made-up 64 GiB host under atomic load: time
to fill, and what sits in it. `questions`: two experiments on a small one. `map`: where in a region
of loads the gate has an effect, 8 minutes of CPU time; written to data/gate_map.csv.
Recordings are looked up as `pagealloc info NAME` does.
"""

from __future__ import annotations

import sys

import pandas as pd

import pagealloc_model as pm
from pagealloc_model.measured.recorded_costs import at_recorded_cost, recorded_reclaim_ns
from pagealloc_model.studies.workload.full_host import FullHost, run_full_host
from pagealloc_model.studies.workload.gate_map_table import gate_map_table
from pagealloc_model.studies.workload.reserve_questions import (
    what_one_percent_does,
    why_not_recycled,
)
from pagealloc_model.studies.workload.shipped_map import DESIGNS, made_map, shipped_map, write_map
from pagealloc_model.verdict.pair_prediction import pair_prediction
from pagealloc_model.verdict.pressure_pair import pressure_counters

ELASTIC = pm.Assumptions(reclaim="elastic")
RECORDINGS = ("highatomic_stock", "kbuild")


def own(recordings: tuple[str, ...] = RECORDINGS) -> pd.DataFrame:
    """Counters between the first and the last snapshot, recorded and predicted.

    `predicted` has the assumed costs; `at_its_cost` takes as long for a freed page as the
    recording's own direct reclaims did.
    """
    tables = []
    for name in recordings:
        recording = pm.open(name)
        measured = recording.measure()
        table = pressure_counters(pm.replay(recording, assumptions=ELASTIC), measured)
        table.insert(0, "recording", recording.name)
        if recorded_reclaim_ns(recording.trace) is not None:
            slow = pm.replay(recording, assumptions=at_recorded_cost(recording.trace))
            table["at_its_cost"] = pressure_counters(slow, measured)["predicted"]
        tables.append(table[(table["measured"] > 0) | (table["predicted"] > 0)])
    return pd.concat(tables, ignore_index=True)


def pair(
    off: str = "highatomic_stock", on: str = "highatomic_gate3", alike: tuple[str, ...] = ()
) -> pd.DataFrame:
    """What the gate changed: both recordings, and "on" predicted from "off"."""
    recording = pm.open(off)
    others = tuple(pm.open(each) for each in alike)
    gate = pm.Policy(highatomic_gate_order=3)
    return pair_prediction(recording, pm.open(on), gate, at_recorded_cost(recording.trace), others)


def reserve() -> pd.DataFrame:
    """The reserve of a made-up 64 GiB host, with and without what grows it."""
    host = FullHost()
    cases = (
        ("6.18", {}),
        ("6.18", {"highatomic_from_pcp": False}),
        ("6.18", {"highatomic_gate_order": 3}),
    )
    tables = []
    for preset, changed in cases:
        policy = pm.Policy(**changed)
        table = run_full_host(host, policy, rules=pm.KernelRules.preset(preset))
        table.insert(0, "policy", f"{preset}: {policy}")
        tables.append(table[table["second"].isin((1, 2, 5, 10, 20))])
    return pd.concat(tables, ignore_index=True)


def main(words: list[str]) -> int:
    """Print one of the tables."""
    what = words[0] if words else "own"
    if what == "own":
        print(own(tuple(words[1:]) or RECORDINGS).to_string(index=False))
    elif what == "pair":
        print(pair(*words[1:3], alike=tuple(words[3:])).to_string(index=False))
    elif what == "reserve":
        print(reserve().to_string(index=False))
    elif what == "questions":
        print(why_not_recycled().to_string(index=False))
        print(what_one_percent_does().to_string(index=False))
    elif what == "map":
        print(write_map(made_map()))
        for name, (_, axes, _) in DESIGNS.items():
            print(f"{name}\n{gate_map_table(shipped_map(name), axes)}")
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
