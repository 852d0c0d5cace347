"""A host that builds a kernel, replayed under a policy, step by step."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.events import advance_elastic
from pagealloc_model.allocator.state import State
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.made_up_machine import made_up_machine
from pagealloc_model.studies.workload.build_demand import steps_of_demand
from pagealloc_model.studies.workload.build_host import BuildHost
from pagealloc_model.studies.workload.build_start import state_after_boot

ELASTIC = Assumptions(reclaim="elastic")
COUNTERS = {
    "thp_fault_alloc": pr.THP_FAULT_ALLOC,
    "thp_fault_fallback": pr.THP_FAULT_FALLBACK,
    "compact_fail": pr.COMPACT_FAIL,
    "compact_success": pr.COMPACT_SUCCESS,
    "compact_migrate_scanned": pr.COMPACT_MIGRATE_SCANNED,
    "compact_free_scanned": pr.COMPACT_FREE_SCANNED,
    "compact_daemon_migrate_scanned": pr.DAEMON_MIGRATE_SCANNED,
    "compact_daemon_free_scanned": pr.DAEMON_FREE_SCANNED,
    "pgscan_kswapd": pr.PGSCAN_KSWAPD,
    "pgsteal_kswapd": pr.PGSTEAL_KSWAPD,
    "pgscan_direct": pr.PGSCAN_DIRECT,
    "pgsteal_direct": pr.PGSTEAL_DIRECT,
    "pgmigrate_success": pr.PGMIGRATE_SUCCESS,
    "requests_failed": pr.DEMAND_FAILED,
}
SIDES = ("migrate_scanned", "free_scanned")


def run_build_host(
    host: BuildHost,
    policy: Policy | None = None,
    *,
    rules: KernelRules,
    assumptions: Assumptions = ELASTIC,
) -> pd.DataFrame:
    """What a host's reclaim, compaction and huge pages come to, step by step.

    Args:
        host: what it is and does.
        policy: what it runs under.
        rules: the kernel generation.
        assumptions: what reclaim and compaction find.

    Returns:
        One row a step: step, 1 to `host.steps`; the counters of `COUNTERS` within that step under
        the kernel's names, allocstall of all zones, and compact_direct_migrate_scanned and
        compact_direct_free_scanned, what the daemon's leave of the total; at its end free_pages,
        free_blocks, whole free pageblocks, and mixed_blocks, pageblocks with both pages that can
        and that cannot be moved.
    """
    machine = made_up_machine(host.gib, host.nr_cpus, rules)
    state = state_after_boot(machine, host, rules, policy or Policy(), assumptions)
    places = np.zeros(0, np.int32)
    before = np.zeros(pr.SCALARS, np.int64)
    rows = []
    for step, (events, leads) in enumerate(steps_of_demand(machine, host), 1):
        places = _longer(places, len(leads))
        advance_until(state, events, places, leads, step * host.step_ns)
        words = state.pressure_words(0, pr.SCALARS)
        rows.append({"step": step, **counted(words - before, machine), **_at_the_end(state)})
        before = words
    return pd.DataFrame(rows)


def advance_until(
    state: State, events: np.ndarray, places: np.ndarray, leads: np.ndarray, until: int
) -> None:
    """Replay a step's events, and what is due by its end.

    Args:
        state: of an elastic replay; advanced.
        events: `layout.EVENT` records of the step.
        places: int32, where each object lives; written.
        leads: of the objects, as the demand has them.
        until: the step's end, ns.
    """
    position = 0
    while position < len(events) or state.next_due_ns <= until:
        position = advance_elastic(
            state.arrays(places), events, leads, position, len(events), until
        )
        state.st[at.LOG_ROWS] = 0


def _longer(numbers: np.ndarray, length: int) -> np.ndarray:
    """With -1 for the objects that a step adds."""
    return np.concatenate([numbers, np.full(length - len(numbers), -1, np.int32)])


def counted(words: np.ndarray, machine: Machine) -> dict[str, int]:
    """Return the counters of `COUNTERS`, allocstall and direct compaction's scans.

    Args:
        words: int64, scalars of an elastic replay, or a difference of them.
        machine: its zone types.
    """
    counts = {name: int(words[word]) for name, word in COUNTERS.items()}
    for side in SIDES:
        daemon = counts[f"compact_daemon_{side}"]
        counts[f"compact_direct_{side}"] = counts[f"compact_{side}"] - daemon
    stalls = words[pr.ALLOCSTALL : pr.ALLOCSTALL + len(machine.zone_types)]
    return counts | {"allocstall": int(stalls.sum())}


def _at_the_end(state: State) -> dict[str, int]:
    order = state.machine.pageblock_order
    buddies = state.free_buddies().sum(axis=(0, 2))
    sizes = buddies << np.arange(len(buddies))
    return {
        "free_pages": int(sizes.sum()),
        "free_blocks": int(sizes[order:].sum() >> order),
        "mixed_blocks": _mixed_blocks(state),
    }


def _mixed_blocks(state: State) -> int:
    block_pages = 1 << state.machine.pageblock_order
    whole = len(state.pages) // block_pages * block_pages
    allocated = state.pages["where"][:whole] == at.ALLOCATED
    movable = state.folios["place"][:whole] > 0
    movable, fixed = (
        each.reshape(-1, block_pages).any(axis=1) for each in (movable, allocated & ~movable)
    )
    return int((movable & fixed).sum())
