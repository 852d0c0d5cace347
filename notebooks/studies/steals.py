"""Refills that find free pages of other types only, one here and one there: all must be stolen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.events import advance
from pagealloc_model.allocator.state import State, make_state, place_buddies
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.made_up_machine import made_up_machine
from pagealloc_model.studies.workload.run import managed_spans

BITS = at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM | pr.GFP_IO | pr.GFP_FS
GAP_NS = 1_000
LOG_ROWS = 1 << 18


@dataclass(frozen=True, kw_only=True)
class Steals:
    """What refills did.

    Attributes:
        refills: how many.
        pages: pages that they got.
        probes: free lists that they looked at (S6.7).
        most_probes: in one of them.
        scanned: pages that failed claims looked at (S6.3).
        stolen: pages stolen.
    """

    refills: int
    pages: int
    probes: int
    most_probes: int
    scanned: int
    stolen: int


def refills_that_steal(
    migratetype: int,
    policy: Policy | None = None,
    *,
    rules: KernelRules,
    requests: int = 4096,
    gib: float = 1,
) -> Steals:
    """Let one CPU ask for pages where every fourth page is free, all in blocks of another type.

    No free page has a free buddy, and the others are in use: kernel pages where movable pages are
    asked for, movable ones where kernel pages are. No claim can succeed.

    Args:
        migratetype: of the requests: MOVABLE, from UNMOVABLE blocks, or UNMOVABLE, from MOVABLE.
        policy: what it runs under.
        rules: the kernel generation.
        requests: single pages asked for.
        gib: memory.
    """
    machine = made_up_machine(gib, 1, rules)
    state = _scattered(machine, migratetype, policy or Policy(), rules)
    events = np.zeros(requests, at.EVENT)
    events["time_ns"] = GAP_NS * (1 + np.arange(requests))
    events["object"] = np.arange(requests)
    events["operation"] = at.ALLOC
    events["bits"] = BITS
    events["migratetype"] = migratetype
    events["zone"] = len(machine.zone_types) - 1
    places = np.full(requests, -1, np.int32)
    logs = []
    position = 0
    while position < requests:
        position = advance(state.arrays(places), events, position, requests, -1)
        logs.append(state.log[: state.st[at.LOG_ROWS]].copy())
        state.st[at.LOG_ROWS] = 0
    log = np.concatenate(logs)
    refills = log[log[:, 0] == at.SITE_REFILL]
    kinds = state.st[at.FALLBACKS : at.FALLBACKS + np.prod(at.FALLBACK_SHAPE)]
    return Steals(
        refills=len(refills),
        pages=int(refills[:, 7].sum()),
        probes=int(state.st[at.REFILL_PROBES]),
        most_probes=int(state.st[at.REFILL_PROBES_MOST]),
        scanned=int(refills[:, at.LOG_WORK + at.WORK_SCANNED - at.WORK].sum()),
        stolen=int(kinds.reshape(at.FALLBACK_SHAPE)[:, :, at.STEAL].sum()),
    )


def _scattered(machine: Machine, migratetype: int, policy: Policy, rules: KernelRules) -> State:
    """Every fourth page free, in blocks of the other type."""
    state = make_state(machine, rules, policy, Assumptions(), log_rows=LOG_ROWS)
    is_movable = migratetype != at.MOVABLE
    state.blocks["migratetype"] = at.MOVABLE if is_movable else at.UNMOVABLE
    for first, end in managed_spans(machine):
        state.pages["where"][first:end] = at.ALLOCATED
        state.pages["tag"][first:end] = is_movable
        free = np.arange(first + 1, end, 4, dtype=np.int32)
        state.pages["where"][free] = at.NOWHERE
        place_buddies(state.arrays(), free, np.zeros(len(free), np.int8))
    return state
