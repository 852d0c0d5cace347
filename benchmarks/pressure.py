"""The model's own reclaim and compaction under the recorded policy, and policies on a full host.

Usage: python benchmarks/pressure.py [own [RECORDING ...] | pair | reserve]

`own`: what changes when elastic replaces literal: counters of kswapd, direct reclaim, compaction
and huge pages, recorded and by the model alone. `pair`: the reserve and huge pages with and without
the gate, predicted from the recording without it, beside both recordings; reclaim at the
recording's cost. `reserve`: the highatomic
reserve of a made-up 64 GiB host under atomic load: time to fill, and what sits in it.
Recordings are looked up as `pagealloc info NAME` does.
"""

from __future__ import annotations

import sys

import pandas as pd

import pagealloc_model as pm
from pagealloc_model.pressure_comparison import pressure_counters
from pagealloc_model.recorded_costs import recorded_reclaim_ns
from pagealloc_model.workload.full_host import FullHost, run_full_host

ELASTIC = pm.Assumptions(reclaim="elastic")
RECORDINGS = ("highatomic_stock", "kbuild")


def own(recordings: tuple[str, ...] = RECORDINGS) -> pd.DataFrame:
    """Counters between the first and the last snapshot, recorded and predicted.

    `predicted` has the assumed costs; `at_its_cost` takes as long for a freed page as the
    recording's own direct reclaims did.
    """
    tables = []
    for name in recordings:
        bundle = pm.open(name)
        measured = pm.measure(bundle)
        table = pressure_counters(pm.replay(bundle, assumptions=ELASTIC), measured)
        table.insert(0, "recording", bundle.name)
        if recorded_reclaim_ns(bundle.trace) is not None:
            slow = pm.replay(bundle, assumptions=at_its_cost(bundle))
            table["at_its_cost"] = pressure_counters(slow, measured)["predicted"]
        tables.append(table[(table["measured"] > 0) | (table["predicted"] > 0)])
    return pd.concat(tables, ignore_index=True)


def at_its_cost(bundle: pm.Bundle) -> pm.Assumptions:
    """Freeing a page takes as long as in the recording's own direct reclaims, if it has any."""
    cost = recorded_reclaim_ns(bundle.trace)
    if cost is None:
        return ELASTIC
    costs = pm.ElasticAssumptions(reclaim_free_ns=cost)
    return pm.Assumptions(reclaim="elastic", elastic=costs)


def pair(stock: str = "highatomic_stock", gated: str = "highatomic_gate3") -> pd.DataFrame:
    """HighAtomic blocks at the end and success of huge pages: both recordings, both predictions."""
    rows = []
    for name, order in ((stock, 0), (gated, 3)):
        bundle = pm.open(name)
        measured = pm.measure(bundle)
        rows.append((f"recorded, gate {order}", _blocks(measured.pageblocks), _thp(measured)))
    bundle = pm.open(stock)
    for order in (0, 3):
        policy = pm.Policy(highatomic_gate_order=order)
        replay = pm.replay(bundle, policy, assumptions=at_its_cost(bundle))
        label = f"predicted from {stock}, gate {order}"
        rows.append((label, _blocks(replay.pageblocks), _thp(replay)))
    return pd.DataFrame(rows, columns=["what", "highatomic_blocks", "thp_success"])


def _blocks(blocks: pd.DataFrame) -> int:
    last = blocks[(blocks["time_ns"] == blocks["time_ns"].max())]
    return int(last.loc[last["migratetype"] == "HighAtomic", "blocks"].sum())


def _thp(tables: pm.Measured | pm.Replay) -> float:
    counters = tables.vmstat.groupby("name")["value"].agg(["first", "last"])
    change = (counters["last"] - counters["first"]).astype(float)
    served, refused = change["thp_fault_alloc"], change["thp_fault_fallback"]
    return served / (served + refused) if served + refused else float("nan")


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
        print(pair().to_string(index=False))
    elif what == "reserve":
        print(reserve().to_string(index=False))
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
