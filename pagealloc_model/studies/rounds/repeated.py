"""A recording gone through again and again under a policy, and what that does to its memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.state import State
from pagealloc_model.base.errors import UsageError
from pagealloc_model.measured.costs import at_recorded_cost
from pagealloc_model.measured.rules import choose_rules
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.predicted.prepared import Prepared, prepare
from pagealloc_model.predicted.start.elastic import pressed_state
from pagealloc_model.predicted.start.image import begun_state
from pagealloc_model.recording.machine import PAGE_KB, Machine
from pagealloc_model.recording.recorded_machine import effective_policy, start_snapshots
from pagealloc_model.studies.rounds.block_use import BlockUse, block_use
from pagealloc_model.studies.rounds.huge_faults import HugeFaults
from pagealloc_model.studies.rounds.less_memory import with_less_memory
from pagealloc_model.studies.rounds.repeated_demand import SURVIVORS, RepeatedDemand, page_tables_ns
from pagealloc_model.studies.workload.build_run import advance_until, counted

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

_TYPES = ("unmovable", "movable", "reclaimable", "highatomic")


@dataclass(frozen=True, kw_only=True, eq=False)
class RepeatedRounds:
    """What rounds of one recording did under a policy.

    Attributes:
        name: the recording's.
        policy: the effective policy.
        rules: the kernel's.
        machine: what the rounds ran on.
        seed: of what nothing settles.
        rounds: one row a round: round from 1 on; huge_served and huge_asked; counters under the
            kernel's names within it; at its end free_pages, free_block_pages (those in whole free
            pageblocks), blocks_unmovable, blocks_movable, blocks_reclaimable and blocks_highatomic,
            mixed_blocks, pages that cannot be moved in movable blocks, fixed_in_movable, and
            reclaimable_pages, those of slabs asked for as reclaimable since the start.
        use: what pageblocks held at the rounds' ends.
    """

    name: str
    policy: Policy
    rules: KernelRules
    machine: Machine
    seed: int
    rounds: pd.DataFrame
    use: tuple[BlockUse, ...] = field(repr=False)

    @property
    def fixed_pages(self) -> pd.DataFrame:
        """Blocks by the pages in them that cannot be moved, at each round's end.

        Returns:
            One row a round, type of block and kind of page ("unmovable", "reclaimable"): pages, and
            the number of blocks with none, 1 to 7, 8 to 63, 64 to 511 and all 512 of them (of a
            block of 512 pages; an eighth, a sixty-fourth of another).
        """
        whole = 1 << self.machine.pageblock_order
        edges = np.array([0, 1, max(whole // 64, 2), max(whole // 8, 3), whole, whole + 1])
        rows = []
        for number, use in enumerate(self.use, 1):
            for code, block_type in enumerate(_TYPES):
                own = use.migratetype == code
                for kind, pages in (("unmovable", use.unmovable), ("reclaimable", use.reclaimable)):
                    counts, _ = np.histogram(pages[own], edges)
                    names = ("none", "few", "some", "many", "all")
                    rows.append(
                        {
                            "round": number,
                            "block_type": block_type,
                            "kind": kind,
                            "pages": int(pages[own].sum()),
                            **dict(zip(names, counts.tolist(), strict=True)),
                        }
                    )
        return pd.DataFrame(rows)


def repeated_rounds(
    recording: Recording,
    policy: Policy | None = None,
    *,
    rounds: int = 15,
    gib: float | None = None,
    free_mib: float | None = None,
    faults: HugeFaults | None = None,
    survivors: str = "once",
    task_rounds: int = 0,
    rules: KernelRules | str | None = None,
    assumptions: Assumptions | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> RepeatedRounds:
    """Go through a recording's demand several times, with the model's own reclaim and compaction.

    What is asked for, when and for how long is recorded; what a round leaves behind is there in the
    next. Only the faults for huge pages are made up. Shrinkers free slabs earlier than recorded
    only where `slab_survivors_per_mille` is below 1000. Page tables are pages like others. Files
    that reclaim took are read again only if the recording shows them used.

    Args:
        recording: an opened recording.
        policy: what is changed of the recorded one.
        rounds: how many times.
        gib: memory that the zones manage (`with_less_memory`); None for as much as was recorded.
        free_mib: MiB of memory free when the first round begins: files are read until then, as
            memory of a machine that has been up for long is page cache; None for as recorded.
        faults: huge pages asked for in each round; None for 300 beside it, 50 kept.
        survivors: "once": what a round leaves of the kernel's memory serves the later ones, which
            do not ask for it again, as they do the same once more; "stay": they ask for as much
            again, and all stays but for what reclaim takes; "gone", a null model: of what a round
            asked for only pages of files outlive it.
        task_rounds: how many rounds after its own a task ends that outlives it; what a round leaves
            of anonymous pages and page tables is freed then. No recording of one round tells.
        rules: as `choose_rules` takes them; None for the recorded kernel's.
        assumptions: ours, reclaim being elastic whatever they say; None for what reclaim and
            compaction cost in the recording.
        seed: of what nothing settles.
        progress: called with the share done, 0 to 1.

    Raises:
        UsageError: no round, a word that is none of the three, or a size that cannot be had.
        PolicyError: no rules for the recording's kernel, or a policy that they do not have.
        RecordingError: a file of the recording cannot be read.
    """
    if rounds < 1:
        raise UsageError(f"{rounds} rounds of {recording.name} are no demand; ask for 1 or more")
    if task_rounds < 0:
        raise UsageError(f"task_rounds={task_rounds}: write 0 or more")
    if survivors not in SURVIVORS:
        raise UsageError(f"survivors={survivors}: write {' or '.join(SURVIVORS)}")
    if assumptions is None:
        assumptions = at_recorded_cost(recording.trace, start_snapshots(recording)[1])
    assumptions = replace(assumptions, reclaim="elastic")
    chosen = choose_rules(recording, rules).rules
    effective = effective_policy(recording, policy, elastic=True)
    prepared = prepare(recording, chosen, assumptions, seed)
    if gib is not None:
        prepared = with_less_memory(prepared, gib, chosen)
    faults = faults or HugeFaults()
    if faults.touched is None:
        faults = replace(faults, touched=assumptions.elastic.base_pages_per_huge)
    demand = RepeatedDemand(
        prepared=prepared,
        faults=faults,
        rounds=rounds,
        survivors=survivors,
        fill_pages=_fill_pages(prepared, free_mib),
        task_rounds=task_rounds,
        tables_ns=page_tables_ns(recording.trace),
    )
    state = _first_state(prepared, chosen, effective, assumptions, seed)
    rows, uses = _run(state, demand, progress)
    return RepeatedRounds(
        name=recording.name,
        policy=effective,
        rules=chosen,
        machine=prepared.machine,
        seed=seed,
        rounds=pd.DataFrame(rows),
        use=tuple(uses),
    )


def _fill_pages(prepared: Prepared, free_mib: float | None) -> int:
    """Return how many pages of files are read before the first round.

    Raises:
        UsageError: less memory is free than is asked for, or it would fall below a watermark.
    """
    if free_mib is None:
        return 0
    free = int(prepared.image.free.sum())
    wanted = int(free_mib * 1024 / PAGE_KB)
    high = sum(zone.high for zone in prepared.machine.zones if zone.managed)
    if not high <= wanted <= free:
        raise UsageError(
            f"free_mib={free_mib:g}: {free * PAGE_KB / 1024:.0f} MiB are free, and below "
            f"{high * PAGE_KB / 1024:.0f} MiB kswapd runs; ask for something between"
        )
    return free - wanted


def _first_state(
    prepared: Prepared,
    rules: KernelRules,
    policy: Policy,
    assumptions: Assumptions,
    seed: int,
) -> State:
    state = begun_state(
        prepared.machine, prepared.demand, prepared.image, rules, policy, assumptions
    )
    return pressed_state(
        state,
        prepared.demand,
        prepared.lru,
        prepared.reclaim_order,
        prepared.daemons,
        rules,
        policy,
        assumptions,
        seed,
    )


def _run(
    state: State, demand: RepeatedDemand, progress: Callable[[float], None] | None
) -> tuple[list[dict[str, object]], list[BlockUse]]:
    places = demand.starting_places()
    leads = demand.leads
    before = np.zeros(pr.SCALARS, np.int64)
    rows: list[dict[str, object]] = []
    uses: list[BlockUse] = []
    filling = demand.fill_pages > 0
    for events, until in demand.parts():
        advance_until(state, events, places, leads, until)
        words = state.pressure_words(0, pr.SCALARS)
        if not filling:
            use = block_use(state)
            uses.append(use)
            rows.append(
                {
                    "round": len(rows) + 1,
                    **_of_round(words - before, state.machine),
                    **_at_end(state, use),
                }
            )
            if progress is not None:
                progress(len(rows) / demand.rounds)
        filling = False
        before = words
    return rows, uses


def _of_round(words: np.ndarray, machine: Machine) -> dict[str, int]:
    counts = counted(words, machine)
    served = counts["thp_fault_alloc"]
    return {
        "huge_served": served,
        "huge_asked": served + counts["thp_fault_fallback"],
        "compact_stall": int(words[pr.COMPACT_STALL]),
        "workingset_refault_file": int(words[pr.WORKINGSET_REFAULT_FILE]),
        **counts,
    }


def _at_end(state: State, use: BlockUse) -> dict[str, int]:
    order = state.machine.pageblock_order
    buddies = state.free_buddies().sum(axis=(0, 2))
    sizes = buddies << np.arange(len(buddies))
    by_type = np.bincount(use.migratetype, minlength=at.MIGRATETYPES)
    is_movable = use.migratetype == at.MOVABLE
    fixed = use.unmovable + use.reclaimable
    return {
        "free_pages": int(sizes.sum()),
        "free_block_pages": int(sizes[order:].sum()),
        **{f"blocks_{name}": int(by_type[code]) for code, name in enumerate(_TYPES)},
        "mixed_blocks": int(use.mixed.sum()),
        "fixed_in_movable": int(fixed[is_movable].sum()),
        "reclaimable_pages": int(use.reclaimable.sum()),
    }
