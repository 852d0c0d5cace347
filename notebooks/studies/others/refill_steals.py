"""Refills that find free pages of other types only, one here and one there: all must be stolen."""

from __future__ import annotations

import numpy as np

import pagealloc_model as pm

TYPE = pm.synthetic.Migratetype
GAP_NS = 1_000


def refills_that_steal(
    migratetype: int,
    policy: pm.Policy | None = None,
    *,
    rules: pm.KernelRules,
    requests: int = 4096,
    gib: float = 1,
) -> pm.synthetic.Run:
    """Let one CPU ask for pages where every fourth page is free, all in blocks of another type.

    No free page has a free buddy, and the others are in use: kernel pages where movable pages are
    asked for, movable ones where kernel pages are. No claim can succeed.
    """
    machine = pm.synthetic.synthetic_machine(gib, 1, rules)
    managed = pm.synthetic.managed_pages(machine)
    free = managed & (np.arange(len(managed)) % 4 == 1)
    other = TYPE.MOVABLE if migratetype != TYPE.MOVABLE else TYPE.UNMOVABLE
    memory = pm.synthetic.Memory(
        block_types=np.full(len(managed) >> machine.pageblock_order, other, np.int8),
        free=free,
        movable=managed & ~free if other == TYPE.MOVABLE else np.zeros_like(free),
    )
    demand = pm.synthetic.Requests(machine)
    times = GAP_NS * (1 + np.arange(requests))
    demand.ask(
        times, gfp=pm.synthetic.Gfp.KERNEL, migratetype=migratetype, zone=machine.zone_types[-1]
    )
    return pm.synthetic.run(demand.demand("steals", start_ns=0), policy, rules=rules, memory=memory)
