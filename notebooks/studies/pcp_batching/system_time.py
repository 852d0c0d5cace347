"""Time that made-up machines spend in the allocator: ownership's share of it, chains of frees.

Usage: python notebooks/studies/pcp_batching/system_time.py [ownership | chains ...]

`ownership`: a purger load, at several paces, and exiting processes on 32 CPUs and more, under
mainline and under pageblock ownership: time under and before zone->lock and pcp->lock, and what
changing hands costs. `chains`: 316 CPUs exit at once; the longest chain of frees, batched and not.
Nothing here is recorded; costs of the locks, and of all else that a page costs, are assumed, and
have a spread. Tables go to data/tables.
"""

from __future__ import annotations

import sys

import pandas as pd
from pagealloc_model.notebooks.studies.pcp_batching.lock_traffic import spread, with_costs

import pagealloc_model as pm

OWNED = pm.Policy(pageblock_ownership="pcp_buddy")
LOADS = (
    *(("purgers", 32, pace) for pace in (500, 1000, 2000, 4000, 8000)),
    *(("purgers", 128, 2000), ("exit", 32, 1000)),
)
"""Load, CPUs, and what all else costs by page, ns, such as the fault, zeroing and unmapping. It is
the time from one page that a purgers' CPU touches to the next where nothing is contended: a CPU
cannot ask faster than it does all that."""
FREEING = ("drain", "direct_free")


def ownership() -> pd.DataFrame:
    """System time with ownership as a change from mainline, by load, CPUs and pace."""
    rows = []
    for load, count, rest_ns in LOADS:
        scenario = _load(load, count, rest_ns)
        sides = [pm.synthetic.run(scenario, policy, rules="6.18") for policy in (None, OWNED)]
        before, after = (allocator_ns(run, with_costs(run)) for run in sides)
        rest = rest_ns * scenario.objects
        changes = [
            100 * (own - base) / (base + rest) for base, own in zip(before, after, strict=True)
        ]
        rows.append(
            {
                "load": load,
                "CPUs": count,
                "all else, ns a page": rest_ns,
                "mainline in the allocator, %": spread(
                    100 * each / (each + rest) for each in before
                ),
                "mainline, ms": spread(each / 1e6 for each in before),
                "ownership, ms": spread(each / 1e6 for each in after),
                "system time, %": spread(changes),
            }
        )
    return pd.DataFrame(rows)


def _load(name: str, count: int, rest_ns: int) -> pm.synthetic.Demand:
    if name == "exit":
        return pm.synthetic.scenario("exit", gib=count, nr_cpus=count, rules="6.18")
    return pm.synthetic.scenario(
        "purgers",
        gib=count,
        nr_cpus=count,
        purging_cpus=count // 8,
        pages=2048,
        rounds=4,
        touch_ns=rest_ns,
        rules="6.18",
    )


def allocator_ns(run: pm.synthetic.Run, sides: list[pm.locks.LockTimes]) -> list[float]:
    """Time at both locks, ns, for each of a run's costs: cheap, assumed and dear ones."""
    use = run.list_use
    use = use[use["time_ns"] == use["time_ns"].max()].iloc[:, 3:].sum(min_count=1).fillna(0)
    found = []
    for times in sides:
        costs = times.model.costs
        taken = use["lock_acquisitions"] + use["lock_drain_holds"]
        lists = costs.acquire.ns * taken + costs.handoff.ns * use["lock_hand_overs"]
        lists += costs.split.ns * use["list_splits"] + costs.merge.ns * use["list_merges"]
        lists += costs.scan.ns * use["merge_entries"]
        frame = times.acquisitions
        zone = frame["hold_ns"].sum() + frame["wait_ns"].sum()
        found.append(float(lists + zone + times.list_waits["wait_ns"].sum()))
    return found


def chains() -> pd.DataFrame:
    """The longest chain of frees on 316 CPUs: in one call, and if frees follow without a pause."""
    rows = []
    for pages in (8192, 65_536):
        scenario = pm.synthetic.scenario("exit", gib=1024, nr_cpus=316, pages=pages, rules="6.18")
        for batched in (False, True):
            policy = pm.Policy(pcp_free_batched=batched)
            times = with_costs(pm.synthetic.run(scenario, policy, rules="6.18"))
            rows.append(
                {
                    "pages a process": pages,
                    "batched": "yes" if batched else "no",
                    "longest call, ms": spread(_longest_call(each) / 1e6 for each in times),
                    "longest chain, ms": spread(
                        each.spells(*FREEING)["ns"].max() / 1e6 for each in times
                    ),
                }
            )
    return pd.DataFrame(rows)


def _longest_call(times: pm.locks.LockTimes) -> float:
    """ns: waits and holds of the drains that one free makes."""
    frame = times.acquisitions
    frame = frame[frame["site"].isin(FREEING)]
    taken = frame["wait_ns"] + frame["hold_ns"]
    return float(taken.groupby([frame["cpu"], frame["time_ns"]]).sum().max())


if __name__ == "__main__":
    for part in sys.argv[1:] or ("ownership", "chains"):
        print({"ownership": ownership, "chains": chains}[part]().to_string(index=False))
