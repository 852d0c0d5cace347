"""A kernel build on the three posted machines, with and without batched frees: predicted.

Usage: python notebooks/studies/pcp_batching/posted_builds.py

Each CPU of a machine goes through a stream of the build `kbuild` (its two CPUs in turn), on
the posted memory. All else of a build's system time is what was measured beside it: the build of
mm/ and lib/ of 6.12.117 (tinyconfig) on two CPUs of this kind takes 6.5 us of system time a request
(8.97 s, 1,390,462 mm_page_alloc, `perf stat -e kmem:mm_page_alloc make -s -j2 mm/ lib/`). Machines,
load, costs and seeds are as they stood here when they were first run; nothing is fitted to the
posted changes.
"""

from __future__ import annotations

import pandas as pd
from pagealloc_model.notebooks.studies.pcp_batching.lock_traffic import spread, with_costs
from pagealloc_model.notebooks.studies.pcp_batching.system_time import allocator_ns

import pagealloc_model as pm
from pagealloc_model.recording.trace.columns import Event
from pagealloc_model.show.post.comparison_message import posted_figures

MACHINES = ((316, 754), (176, 251), (36, 62))
"""CPUs and GiB of v4 (October 2025)."""
RULES = "6.18"
REQUEST_NS = 6450
"""System time of a build by request, measured on two CPUs (see above)."""


def builds(machines: tuple[tuple[int, int], ...] = MACHINES) -> pd.DataFrame:
    """Change of time under and before locks and of system time, beside the posted one, percent."""
    recording = pm.open("kbuild")
    posted = posted_figures("pcp_batching").set_index(["machine", "quantity"])["value"]
    rows = []
    for cpus, gib in machines:
        change, variation = (
            posted[f"{gib} GiB, {cpus} CPUs", f"kernel build, sys time, {what}"]
            for what in ("change", "variation")
        )
        load = pm.synthetic.scaled_up(recording, cpus, gib=gib, rules=pm.KernelRules.preset(RULES))
        sides = [
            pm.synthetic.run(load, pm.Policy(pcp_free_batched=is_batched), rules=RULES)
            for is_batched in (False, True)
        ]
        times = [with_costs(run) for run in sides]
        base, batched = map(allocator_ns, sides, times)
        requests = recording.trace.count(Event.ALLOC) * cpus / recording.trace.nr_cpus
        rest = REQUEST_NS * requests
        waits = [spread(each.longest_starvation_ns / 1e3 for each in side) for side in times]
        holds = [f"{side[1].acquisitions['pages'].max():,}" for side in times]
        rows.append(
            {
                "CPUs": cpus,
                "GiB": gib,
                "longest hold, pages": " -> ".join(holds),
                "longest wait, us, unbatched": waits[0],
                "longest wait, us, batched": waits[1],
                "unbatched in the allocator, %": spread(
                    100 * each / (each + rest) for each in base
                ),
                "lock time, %": spread(
                    100 * (new / old - 1) for old, new in zip(base, batched, strict=True)
                ),
                "system time, %": spread(
                    100 * (new - old) / (old + rest) for old, new in zip(base, batched, strict=True)
                ),
                "posted, %": f"{change} ({variation})",
            }
        )
    return pd.DataFrame(rows)


if __name__ == "__main__":
    print(builds().to_string(index=False))
