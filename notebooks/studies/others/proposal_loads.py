"""Proposals about lock holds, on made-up loads: refills by the batch's scale, and ranges freed."""

from __future__ import annotations

import pandas as pd
from pagealloc_model.notebooks.studies.others.refill_steals import refills_that_steal
from pagealloc_model.notebooks.studies.pcp_batching.contiguous_frees import contiguous_frees
from pagealloc_model.notebooks.studies.pcp_batching.lock_traffic import spread, with_costs

import pagealloc_model as pm
from pagealloc_model.show.post.comparison_message import posted_figures

CHURN = {"gib": 96, "nr_cpus": 64, "workers": 10, "pages": 262_144, "rounds": 1}
"""Ten of 64 CPUs map, touch and unmap memory; 1 GiB where the post has 6."""
RANGES = 1_000
STOLEN = 20_000


def scale_rows() -> pd.DataFrame:
    """Refills of ten tasks that map, touch and unmap memory, with PCP_BATCH_SCALE_MAX 5 and 0."""
    figures = posted_figures("pcp_batch_scale")
    posted = {5: figures.iloc[0]["value"], 0: figures.iloc[1]["value"]}
    scenario = pm.synthetic.scenario("churn", rules="6.12", **CHURN)
    rows = []
    for scale in (5, 0):
        policy = pm.Policy(pcp_batch_scale_max=scale)
        times = with_costs(pm.synthetic.run(scenario, policy, rules="6.12"))
        refills = [part.acquisitions.query("site == 'refill'") for part in times]
        rows.append(
            {
                "scale": scale,
                "refills": f"{len(refills[1]):,}",
                "pages a refill": f"{refills[1]['pages'].mean():.0f}",
                "hold, us": spread([rows["hold_ns"].mean() / 1e3 for rows in refills]),
                "hold and wait, us": spread(
                    [(rows["hold_ns"] + rows["wait_ns"]).mean() / 1e3 for rows in refills]
                ),
                "posted, ns": posted[scale],
            }
        )
    return pd.DataFrame(rows)


def steal_rows() -> pd.DataFrame:
    """Refills that must steal every page: work under the lock for each, by requester and mode."""
    rows = []
    for migratetype in (pm.synthetic.Migratetype.MOVABLE, pm.synthetic.Migratetype.UNMOVABLE):
        for persists in (False, True):
            policy = pm.Policy(refill_mode_persists=persists)
            run = refills_that_steal(
                migratetype, policy, rules=pm.KernelRules.preset("6.12"), requests=STOLEN
            )
            refills = run.holds().query("site == 'refill'")
            probes, most = run.refill_probes
            rows.append(
                {
                    "requests": migratetype.name.lower(),
                    "each page": "goes on stealing" if persists else "searches anew",
                    "refills": len(refills),
                    "pages a refill": f"{refills['pages'].mean():.0f}",
                    "list probes a refill": f"{probes / len(refills):,.0f}",
                    "most": f"{most:,}",
                    "pages scanned a refill": f"{refills['scanned'].mean():,.0f}",
                }
            )
    return pd.DataFrame(rows)


def chunk_rows() -> pd.DataFrame:
    """Ranges of 512 pages allocated, split and freed, page by page and in chunks."""
    figures = posted_figures("contiguous_frees").set_index(["quantity", "variant"])["value"]
    loop = "100000 times: allocate order 9, split, free_contig_range"
    posted = (figures[loop, "unpatched"], figures[f"{loop}, times faster", "patched"])
    machine = pm.synthetic.synthetic_machine(16, 8, pm.KernelRules.preset("7.2"))
    rows = []
    for in_chunks, of_loop in zip((False, True), posted, strict=True):
        scenario = contiguous_frees(machine, ranges=RANGES, in_chunks=in_chunks)
        times = with_costs(pm.synthetic.run(scenario, rules="7.2"))
        frames = [part.acquisitions for part in times]
        held = [rows["hold_ns"].sum() / RANGES / 1e3 for rows in frames]
        rows.append(
            {
                "freed": "in chunks" if in_chunks else "page by page",
                "acquisitions a range": f"{len(frames[1]) / RANGES:.3f}",
                "held, us a range": spread(held),
                "posted of 100,000 ranges": of_loop,
            }
        )
    return pd.DataFrame(rows)
