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
from functools import cached_property

import numpy as np
import pandas as pd
from pagealloc_model.notebooks.studies.recorded import Recorded, recorded

import pagealloc_model as pm

GFP, DO, KIND = pm.synthetic.Gfp, pm.synthetic.Operation, pm.synthetic.Kind
ASKS = (DO.ALLOC, DO.HIDDEN_ALLOC)
HOLD_NS = 500_000_000
"""What is still kept is freed so long after a burst's last fault."""


@dataclass(frozen=True, kw_only=True)
class HugeFaults:
    """How many huge pages are asked for in a round, when, and how long they are kept.

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
    found = requests.demand("faults")
    leads = np.full(requests.objects, -1, np.int32) if found.leads is None else found.leads
    return found.events, leads


SURVIVORS = ("once", "stay", "gone")
_ONCE = (DO.SET_PCP_HIGH, DO.GROW)
"""Events of the first round only."""
_FILL_NS = 2000
"""Time between two pages of files read before the first round, ns."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RepeatedDemand:
    """The demand of all rounds.

    Attributes:
        recorded: the recording, on the machine that the rounds run on.
        faults: huge pages asked for in each round.
        rounds: how many.
        survivors: one of `SURVIVORS`.
        fill_pages: pages of files read before the first round.
        task_rounds: how many rounds after its own what a task leaves is freed.
        tables_ns: int64: when page tables were asked for in the recording (`page_tables_ns`).
    """

    recorded: Recorded
    faults: HugeFaults
    rounds: int
    survivors: str
    fill_pages: int
    task_rounds: int = 0
    tables_ns: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def demand(self) -> object:
        """The recording's."""
        return self.recorded.demand

    @property
    def round_objects(self) -> int:
        """Objects of a round: the recording's, then those of the faults."""
        return len(self.demand.objects) + self.faults.objects(self.recorded.machine.pageblock_order)

    @property
    def objects(self) -> int:
        """Objects of all rounds, then those of what is read before."""
        return self.rounds * self.round_objects + self.fill_pages

    @property
    def begin_ns(self) -> int:
        """When the first round begins."""
        return self.demand.first_ns + self.fill_pages * _FILL_NS

    @cached_property
    def period_ns(self) -> int:
        """Time from one round to the next."""
        span = int(self.demand.events["time_ns"][-1]) - self.demand.first_ns
        return span + 1 + self.faults.pause_ns()

    @cached_property
    def leads(self) -> np.ndarray:
        """int32 by object: the failure that it came in place of, -1 for none."""
        _, of_faults = self._fault_events
        recorded = self.demand.leads
        own = [recorded, np.where(of_faults >= 0, of_faults + len(recorded), -1)]
        one = np.concatenate(own).astype(np.int32)
        parts = [
            np.where(one >= 0, one + number * self.round_objects, -1)
            for number in range(self.rounds)
        ]
        return np.concatenate([*parts, np.full(self.fill_pages, -1)]).astype(np.int32)

    def starting_places(self) -> np.ndarray:
        """Return int32 by object: where it lives when the first round begins, -1 for nowhere."""
        places = np.full(self.objects, -1, np.int32)
        places[: len(self.demand.objects)] = self.demand.starting_places()
        return places

    def parts(self) -> Iterator[np.ndarray]:
        """Events of what is read before, then of each round."""
        if self.fill_pages:
            yield self._fill()
        for number in range(self.rounds):
            events = self._first if number == 0 else self._later
            ends = self._ends.copy()
            ends["object"] -= self._lives * self.round_objects
            both = np.concatenate([events, ends[: len(ends) if number >= self._lives else 0]])
            moved = both[np.argsort(both["time_ns"], kind="stable")]
            moved["time_ns"] += self.begin_ns + number * self.period_ns
            moved["object"] += number * self.round_objects
            yield moved

    @property
    def count(self) -> int:
        """Events of all parts."""
        rounds = len(self._first) + (self.rounds - 1) * len(self._later)
        return self.fill_pages + rounds + max(self.rounds - self._lives, 0) * len(self._ends)

    @property
    def ends_ns(self) -> list[int]:
        """When what is read before ends, and each round, ns."""
        numbers = range(0 if self.fill_pages else 1, self.rounds + 1)
        return [self.begin_ns + number * self.period_ns - 1 for number in numbers]

    @property
    def _lives(self) -> int:
        """Rounds after which what ends is freed: at once where nothing outlives a round."""
        return 0 if self.survivors == "gone" else self.task_rounds

    @cached_property
    def _left(self) -> np.ndarray:
        """Requests whose memory nothing in the recording frees."""
        events = self.demand.events
        asked = events[np.isin(events["operation"], ASKS)]
        is_freed = np.zeros(len(self.demand.objects), bool)
        is_freed[events["object"][events["operation"] == DO.FREE]] = True
        return asked[~is_freed[asked["object"]]]

    @cached_property
    def _left_by_tasks(self) -> np.ndarray:
        """Return bool by request of `_left`: anonymous memory, or a page table."""
        classes = pm.synthetic.kind_of(self._left["bits"])
        is_table = (classes == KIND.KERNEL) & np.isin(self._left["time_ns"], self.tables_ns)
        return (classes == KIND.ANON) | is_table

    @cached_property
    def _ends(self) -> np.ndarray:
        """Frees of memory that ends with a round and nothing else frees, times from 0 on."""
        demand = self.demand
        is_file = pm.synthetic.kind_of(self._left["bits"]) == KIND.FILE
        ends = self._left[~is_file if self.survivors == "gone" else self._left_by_tasks].copy()
        ends["operation"] = DO.FREE
        ends["bits"] = 0
        ends["time_ns"] = int(demand.events["time_ns"][-1]) - demand.first_ns + 1
        return ends

    def _fill(self) -> np.ndarray:
        """Return reads of files until memory is as full as is wanted."""
        machine = self.recorded.machine
        events = np.zeros(self.fill_pages, pm.synthetic.EVENT)
        events["operation"] = DO.ALLOC
        events["time_ns"] = self.demand.first_ns + _FILL_NS * np.arange(self.fill_pages)
        events["object"] = self.rounds * self.round_objects + np.arange(self.fill_pages)
        events["bits"] = GFP.FILE_FS
        events["migratetype"] = pm.synthetic.Migratetype.MOVABLE
        events["zone"] = machine.type_index(_highest(machine.zone_types))
        events["cpu"] = np.arange(self.fill_pages) // 64 % machine.nr_cpus
        return events

    @cached_property
    def _recorded(self) -> np.ndarray:
        """The recording's events, times from 0 on."""
        events = self.demand.events.copy()
        events["time_ns"] -= self.demand.first_ns
        return events

    @cached_property
    def _fault_events(self) -> tuple[np.ndarray, np.ndarray]:
        end_ns = int(self._recorded["time_ns"][-1]) + 1
        return fault_events(self.faults, 0, end_ns, self.recorded.machine)

    @cached_property
    def _first(self) -> np.ndarray:
        return self._with_faults(self._recorded)

    @cached_property
    def _later(self) -> np.ndarray:
        """A round after the first; what lived when the recording began is long gone then."""
        events = self._recorded
        events = events[~np.isin(events["operation"], _ONCE)]
        of_object = (events["object"] >= 0) & np.isin(
            events["operation"], (DO.ALLOC, DO.HIDDEN_ALLOC, DO.FREE, DO.TRY, DO.USE)
        )
        dropped = of_object & self.recorded.is_from_start[events["object"]]
        if self.survivors == "once":
            stays = pm.synthetic.kind_of(self._left["bits"]) != KIND.FILE
            stays &= ~self._left_by_tasks
            dropped |= of_object & np.isin(events["object"], self._left["object"][stays])
        return self._with_faults(events[~dropped])

    def _with_faults(self, events: np.ndarray) -> np.ndarray:
        of_faults = self._fault_events[0].copy()
        of_faults["object"] += len(self.demand.objects)
        both = np.concatenate([events, of_faults])
        return both[np.argsort(both["time_ns"], kind="stable")]


def _highest(zone_types: tuple[str, ...]) -> str:
    """Return Normal, or the highest zone that a small machine has below it."""
    return [name for name in zone_types if name in ("DMA", "DMA32", "Normal")][-1]


COUNTED = (
    "thp_fault_alloc",
    "thp_fault_fallback",
    "compact_fail",
    "compact_success",
    "compact_migrate_scanned",
    "compact_free_scanned",
    "compact_daemon_migrate_scanned",
    "compact_daemon_free_scanned",
    "pgscan_kswapd",
    "pgsteal_kswapd",
    "pgscan_direct",
    "pgsteal_direct",
    "pgmigrate_success",
    "requests_failed",
    "compact_direct_migrate_scanned",
    "compact_direct_free_scanned",
    "allocstall",
)
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
    demand = RepeatedDemand(
        recorded=start,
        faults=faults,
        rounds=rounds,
        survivors=survivors,
        fill_pages=_fill_pages(start, free_mib),
        task_rounds=task_rounds,
        tables_ns=start.page_tables_ns,
    )
    done = pm.synthetic.run(
        pm.synthetic.Demand(
            name=recording.name,
            machine=start.machine,
            parts=demand.parts,
            count=demand.count,
            objects=demand.objects,
            leads=demand.leads,
            seed=seed,
        ),
        start.policy,
        rules=start.rules,
        assumptions=start.assumptions,
        memory=start.begin,
        at_ns=demand.ends_ns,
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
