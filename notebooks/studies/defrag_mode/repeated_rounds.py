"""A recording gone through again and again under a policy, on less memory, beside huge-page faults.

What a round leaves behind is there in the next. Tasks end some rounds after they began, at the
latest: what they would leave, anonymous pages and page tables, is freed then. Of the rest of the
kernel's memory a round leaves caches (slabs of inodes, dentries, nodes of page-cache trees) and
slabs with room in them. Either a later round finds there what it needs, as it does the same once
more, and asks for none of it again; or it asks for as much again, and all stays. The truth lies
between. The null model is that nothing but pages of files outlives a round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from pagealloc_model.notebooks.studies.defrag_mode.build_host import COUNTED
from pagealloc_model.notebooks.studies.defrag_mode.recorded_load import Recorded, recorded

import pagealloc_model as pm

GFP, DO, KIND = pm.synthetic.Gfp, pm.synthetic.Operation, pm.synthetic.Kind
ASKS = (DO.ALLOC, DO.HIDDEN_ALLOC)
HOLD_NS = 500_000_000
"""Pages still kept are freed so long after a burst's last fault."""


@dataclass(frozen=True, kw_only=True)
class HugeFaults:
    """Huge pages asked for in a round: their number, time and life.

    What a fault may do to get one is the policy's `thp_defrag`; unless given, not reclaim.

    Attributes:
        per_round: faults in a round.
        beside: spread evenly over the round's demand; otherwise one after the other behind it.
        kept: a huge page is freed once so many later ones were asked for; all are at the end of
            their round.
        fault_us: time between two faults of a burst, us.
        touched: base pages asked for in place of one that is refused; None for as many as the
            assumptions' `base_pages_per_huge`, or for all where none are given.
    """

    per_round: int = 300
    beside: bool = True
    kept: int = 50
    fault_us: int = 200
    touched: int | None = None

    def __post_init__(self) -> None:
        """Refuse what is no load."""
        if min(self.per_round, self.kept, self.touched or 1) < 0 or self.fault_us < 1:
            raise pm.UsageError(
                f"per_round={self.per_round}, kept={self.kept}, fault_us={self.fault_us}: write 0 "
                "or more faults, 0 or more kept, and 1 us or more"
            )

    def objects(self, order: int) -> int:
        """Return the number of objects of a round: huge pages, then base pages in their place."""
        return self.per_round * (1 + self.base_pages(order))

    def base_pages(self, order: int) -> int:
        """Return how many base pages come in place of a huge page of an order."""
        whole = 1 << order
        return whole if self.touched is None else min(self.touched, whole)

    def pause_ns(self) -> int:
        """Return the time that a round's demand is followed by, ns."""
        burst = 0 if self.beside else self.per_round * self.fault_us * 1000
        return burst + HOLD_NS


def fault_events(
    faults: HugeFaults, begin_ns: int, end_ns: int, machine: pm.synthetic.Machine
) -> tuple[np.ndarray, np.ndarray]:
    """A round's faults: each is tried, and base pages come in its place if it fails (S10.5)."""
    count, base_pages = faults.per_round, faults.base_pages(machine.pageblock_order)
    if faults.beside:
        step = (end_ns - begin_ns) // (count + 1)
        times = begin_ns + step * (1 + np.arange(count))
    else:
        step = faults.fault_us * 1000
        times = end_ns + step * np.arange(count)
    last = max(end_ns, int(times[-1]) if count else end_ns) + HOLD_NS // 2
    later = np.arange(count) + faults.kept + 1
    gone = times
    if count:
        gone = np.where(later < count, times[np.minimum(later, count - 1)] - 1, last)
    within = 1 + np.arange(base_pages) * max(min(step, 200_000) // (2 * max(base_pages, 1)), 1)
    cpu, order, zone = machine.nr_cpus - 1, machine.pageblock_order, _highest(machine.zone_types)
    requests = pm.synthetic.Requests(machine)
    huge = requests.ask(times, gfp=GFP.HUGE, operation=DO.TRY, order=order, cpu=cpu, zone=zone)
    base = requests.ask(
        (times[:, None] + within).ravel(),
        gfp=GFP.ANON,
        cpu=cpu,
        zone=zone,
        leads=np.repeat(huge, base_pages),
    )
    requests.free(gone, huge, order=order, cpu=cpu)
    requests.free(np.repeat(gone, base_pages), base, cpu=cpu)
    demand = requests.demand("faults")
    leads = np.full(requests.objects, -1, np.int32) if demand.leads is None else demand.leads
    return demand.events, leads


SURVIVORS = ("once", "stay", "gone")
_OF_OBJECTS = (DO.FREE, DO.TRY, DO.USE)
_ONCE = (DO.SET_PCP_HIGH, DO.GROW)
"""Events of the first round only."""
_FILL_NS = 2000
"""Time between two pages of files read before the first round, ns."""


def repeated_demand(
    start: Recorded,
    faults: HugeFaults,
    *,
    rounds: int,
    survivors: str,
    fill_pages: int = 0,
    task_rounds: int = 0,
    tables_ns: np.ndarray | None = None,
) -> tuple[pm.synthetic.Demand, list[int]]:
    """The demand of all rounds, and when what is read before them ends, and each of them, ns.

    Objects are those of each round, the recording's and then those of the faults; then those of
    what is read before.

    Args:
        start: the recording, on the machine that the rounds run on.
        faults: huge pages asked for in each round.
        rounds: how many.
        survivors: one of `SURVIVORS`.
        fill_pages: pages of files read before the first round.
        task_rounds: how many rounds after its own what a task leaves is freed.
        tables_ns: when page tables were asked for in the recording; None: `page_tables_ns`.
    """
    demand, machine = start.demand, start.machine
    events = demand.events.copy()
    events["time_ns"] -= demand.first_ns
    end_ns = int(events["time_ns"][-1]) + 1
    of_faults, fault_leads = fault_events(faults, 0, end_ns, machine)
    of_faults["object"] += len(demand.objects)
    in_round = len(demand.objects) + faults.objects(machine.pageblock_order)
    begin_ns, period_ns = demand.first_ns + fill_pages * _FILL_NS, end_ns + faults.pause_ns()

    # what nothing in the recording frees; of that, what ends with its task
    allocs = events[np.isin(events["operation"], ASKS)]
    is_freed = np.zeros(len(demand.objects), bool)
    is_freed[events["object"][events["operation"] == DO.FREE]] = True
    left = allocs[~is_freed[allocs["object"]]]
    kinds = pm.synthetic.kind_of(left["bits"])
    tables_ns = start.page_tables_ns if tables_ns is None else tables_ns
    is_table = (kinds == KIND.KERNEL) & np.isin(left["time_ns"] + demand.first_ns, tables_ns)
    by_tasks = (kinds == KIND.ANON) | is_table
    ends = left[kinds != KIND.FILE if survivors == "gone" else by_tasks].copy()
    ends["operation"], ends["bits"], ends["time_ns"] = DO.FREE, 0, end_ns
    lives = 0 if survivors == "gone" else task_rounds
    ends["object"] -= lives * in_round

    # a round after the first: what lived when the recording began is long gone then
    later = events[~np.isin(events["operation"], _ONCE)]
    of_object = (later["object"] >= 0) & np.isin(later["operation"], (*ASKS, *_OF_OBJECTS))
    dropped = of_object & start.is_from_start[later["object"]]
    if survivors == "once":
        served = left["object"][(kinds != KIND.FILE) & ~by_tasks]
        dropped |= of_object & np.isin(later["object"], served)
    first, later = (
        _in_time_order(np.concatenate([own, of_faults])) for own in (events, later[~dropped])
    )
    filled = np.arange(fill_pages)
    requests = pm.synthetic.Requests(machine)
    requests.reserve_objects(rounds * in_round)
    requests.ask(
        demand.first_ns + _FILL_NS * filled,
        gfp=GFP.FILE_FS,
        zone=_highest(machine.zone_types),
        cpu=filled // 64 % machine.nr_cpus,
    )

    def parts() -> Iterator[np.ndarray]:
        if fill_pages:
            yield requests.demand("fill").events
        for number in range(rounds):
            own = [later if number else first, ends[: len(ends) if number >= lives else 0]]
            moved = _in_time_order(np.concatenate(own))
            moved["time_ns"] += begin_ns + number * period_ns
            moved["object"] += number * in_round
            yield moved

    leads = np.full(requests.objects, -1, np.int32)
    one = [demand.leads, np.where(fault_leads >= 0, fault_leads + len(demand.leads), -1)]
    one = np.concatenate(one)
    for number in range(rounds):
        own = np.where(one >= 0, one + number * in_round, -1)
        leads[number * in_round : (number + 1) * in_round] = own
    events_of_rounds = len(first) + (rounds - 1) * len(later)
    whole = pm.synthetic.Demand(
        name=start.recording.name,
        machine=machine,
        parts=parts,
        count=fill_pages + events_of_rounds + max(rounds - lives, 0) * len(ends),
        objects=requests.objects,
        leads=leads,
        seed=start.seed,
    )
    numbers = range(0 if fill_pages else 1, rounds + 1)
    return whole, [begin_ns + number * period_ns - 1 for number in numbers]


def _in_time_order(events: np.ndarray) -> np.ndarray:
    return events[np.argsort(events["time_ns"], kind="stable")]


def _highest(zone_types: tuple[str, ...]) -> str:
    """Return Normal, or the highest zone that a small machine has below it."""
    return [name for name in zone_types if name in ("DMA", "DMA32", "Normal")][-1]


_TYPES = ("unmovable", "movable", "reclaimable", "highatomic")


@dataclass(frozen=True, kw_only=True, eq=False)
class RepeatedRounds:
    """Results of rounds of one recording under a policy.

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
    policy: pm.Policy
    rules: pm.KernelRules
    machine: pm.synthetic.Machine
    seed: int
    rounds: pd.DataFrame
    use: tuple[pm.synthetic.BlockUse, ...] = field(repr=False)

    @property
    def fixed_pages(self) -> pd.DataFrame:
        """Blocks by the pages in them that cannot be moved, at each round's end."""
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
    recording: pm.Recording,
    policy: pm.Policy | None = None,
    *,
    rounds: int = 15,
    gib: float | None = None,
    free_mib: float | None = None,
    faults: HugeFaults | None = None,
    survivors: str = "once",
    task_rounds: int = 0,
    rules: pm.KernelRules | str | None = None,
    assumptions: pm.Assumptions | None = None,
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
        raise pm.UsageError(f"{rounds} rounds of {recording.name} are no demand; ask for 1 or more")
    if task_rounds < 0:
        raise pm.UsageError(f"task_rounds={task_rounds}: write 0 or more")
    if survivors not in SURVIVORS:
        raise pm.UsageError(f"survivors={survivors}: write {' or '.join(SURVIVORS)}")
    start = recorded(recording, policy, rules=rules, assumptions=assumptions, seed=seed)
    if gib is not None:
        start = start.with_less_memory(gib)
    faults = faults or HugeFaults()
    if faults.touched is None:
        faults = replace(faults, touched=start.assumptions.elastic.base_pages_per_huge)
    demand, ends_ns = repeated_demand(
        start,
        faults,
        rounds=rounds,
        survivors=survivors,
        fill_pages=_fill_pages(start, free_mib),
        task_rounds=task_rounds,
    )
    done = pm.synthetic.run(
        demand,
        start.policy,
        rules=start.rules,
        assumptions=start.assumptions,
        memory=start.begin,
        at_ns=ends_ns,
        look=pm.synthetic.block_use,
        keep_holds=False,
        progress=progress,
    )
    uses = done.seen[-rounds:]
    return RepeatedRounds(
        name=recording.name,
        policy=start.policy,
        rules=start.rules,
        machine=start.machine,
        seed=seed,
        rounds=_table(done, uses),
        use=uses,
    )


def _fill_pages(recorded: Recorded, free_mib: float | None) -> int:
    """Return how many pages of files are read before the first round."""
    if free_mib is None:
        return 0
    free = recorded.free_pages
    wanted = int(free_mib * 1024 / 4)
    high = sum(zone.high for zone in recorded.machine.zones if zone.managed)
    if not high <= wanted <= free:
        raise pm.UsageError(
            f"free_mib={free_mib:g}: {free * 4 / 1024:.0f} MiB are free, and below "
            f"{high * 4 / 1024:.0f} MiB kswapd runs; ask for something between"
        )
    return free - wanted


def _table(done: pm.synthetic.Run, uses: tuple[pm.synthetic.BlockUse, ...]) -> pd.DataFrame:
    """Return the table of rounds: what was counted within each, and what there is at its end."""
    within = done.counts.diff().fillna(done.counts).astype(np.int64)[-len(uses) :]
    free = done.free[-len(uses) :]
    order = done.machine.pageblock_order
    table = pd.DataFrame({"round": np.arange(1, len(uses) + 1)}, index=within.index)
    table["huge_served"] = within["thp_fault_alloc"]
    table["huge_asked"] = within["thp_fault_alloc"] + within["thp_fault_fallback"]
    names = ("compact_stall", "workingset_refault_file", *COUNTED)
    table = table.join(within[list(names)])
    table["free_pages"] = free["free_pages"]
    table["free_block_pages"] = free["free_blocks"] * (1 << order)
    for code, name in enumerate(_TYPES):
        table[f"blocks_{name}"] = [int((use.migratetype == code).sum()) for use in uses]
    table["mixed_blocks"] = [int(use.mixed.sum()) for use in uses]
    in_movable = [use.fixed[use.migratetype == pm.synthetic.Migratetype.MOVABLE] for use in uses]
    table["fixed_in_movable"] = [int(pages.sum()) for pages in in_movable]
    table["reclaimable_pages"] = [int(use.reclaimable.sum()) for use in uses]
    return table.reset_index(drop=True)
