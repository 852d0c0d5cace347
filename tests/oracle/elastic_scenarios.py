"""Scenarios of memory that reclaim and compaction change, and random ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

from tests.oracle import RULES, Bits, OracleMachine, OraclePolicy, OracleRules
from tests.oracle.cpu_time import CpuSpan
from tests.oracle.elastic import Demand, ElasticOracle
from tests.oracle.lru import Folio, Kind
from tests.oracle.machine import Migratetype
from tests.oracle.random_scenarios import (
    ALL,
    LITERAL,
    OWNING_PRESETS,
    random_ownership,
    with_fitting_limits,
    with_reserve_switches,
)
from tests.oracle.rules import ElasticOptions
from tests.oracle.scenarios import (
    ATOMIC,
    KERNEL,
    Scenario,
    blocks_of,
    late_memory,
    one_zone,
    zone_of,
)
from tests.oracle.steps import Step, step
from tests.oracle.task_faults import task_requests

FULL = KERNEL | Bits.IO
REQUEST_BITS = (
    FULL,
    FULL,
    FULL | Bits.NORETRY,
    FULL | Bits.RETRY_MAYFAIL,
    FULL | Bits.NOFAIL,
    KERNEL,
    ATOMIC,
    ATOMIC | Bits.NOMEMALLOC,
    Bits.KSWAPD,
    Bits.IO | Bits.KSWAPD,
    FULL | Bits.MEMALLOC,
    FULL | Bits.THISNODE | Bits.NORETRY,
)
"""Bits that lead to different slow paths."""

THP_BITS = (
    FULL | Bits.NOMEMALLOC | Bits.THISNODE | Bits.NORETRY,
    FULL | Bits.NOMEMALLOC,
    Bits.IO | Bits.NOMEMALLOC,
)
ORDERS = (0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 3, 4, 6, 9)
PRESSURES = (0.3, 0.6, 0.8, 0.9)
PHASE = 40  # steps after which pressure may change
PAUSES_NS = (0, 0, 0, 1_000, 20_000, 300_000, 2_000_000, 120_000_000, 600_000_000)
"""Times between two steps."""
SHORT_PAUSES_NS = (0, 1_000, 1_000, 5_000, 20_000)
"""Shorter than direct reclaim."""
CHAINED = 4  # requests after a failure that may have come in its place


@dataclass(frozen=True, kw_only=True)
class ElasticScenario:
    """A reproducible test case; the work of its seed."""

    machine: OracleMachine  # a small one
    rules: OracleRules
    policy: OraclePolicy
    options: ElasticOptions
    seed: int  # decides the start state and every step
    steps: int = 100  # number of steps
    bits: tuple[Bits, ...] = REQUEST_BITS  # sets of gfp bits to draw requests from
    orders: tuple[int, ...] = ORDERS  # to draw requests from
    movable_share: float = 0.7  # of requests and of start pages that are movable
    free_share: float = 0.3  # of the start pages that are free
    reserve_is_free: bool = False  # many blocks are reserved, and wholly free at the start
    told_share: float = 0.0  # of steps that are something a recording tells besides
    late: tuple[Step, ...] = ()  # memory that is not there at the start, in order
    used_share: float = 0.0  # of steps that are a use of a file's pages
    tasks: int = 0  # whose faults requests are; 0: requests are drawn one by one
    pauses_ns: tuple[int, ...] = PAUSES_NS  # between two steps, to draw from

    def started(self) -> ElasticOracle:
        """An oracle with every page placed; the first objects have no number above the last."""
        oracle = ElasticOracle(self.machine, self.rules, self.policy, self.options)
        rng = random.Random(self.seed)
        number = 0
        late = blocks_of(self.late, self.machine.pageblock_order)
        for spec in self.machine.zones:
            for start in range(spec.start_pfn, spec.end_pfn, self.machine.pages_per_block):
                if start >> self.machine.pageblock_order not in late:
                    number = self._lay_out_block(oracle, start, number, rng)
        oracle.drain_all()
        oracle.settle_counters()
        return oracle

    def run(self, oracle: ElasticOracle) -> Iterator[tuple[int, Step]]:
        """Take each step on the oracle at its time, ns; the oracle's events are those of it."""
        steps = _Steps(self, oracle)
        for _ in range(self.steps):
            taken = steps.next()
            oracle.events.clear()
            oracle.work.clear()
            oracle.advance(steps.time_ns)
            getattr(oracle, taken.call)(**taken.words)
            yield steps.time_ns, taken

    def _lay_out_block(
        self, oracle: ElasticOracle, start: int, number: int, rng: random.Random
    ) -> int:
        machine = self.machine
        migratetype = rng.choice((0, 1, 1, 1, 1, 1, 2, 3) if start else (1,))
        if self.reserve_is_free and migratetype != Migratetype.MOVABLE:
            migratetype = Migratetype.HIGHATOMIC
        is_movable_block = migratetype == Migratetype.MOVABLE
        draw = random.Random(self.seed * 1_000_003 + start).random()
        if is_movable_block and machine.cma is not None and draw < 0.3:
            migratetype = machine.cma
        oracle.set_block_type(start >> machine.pageblock_order, migratetype)
        order = min(rng.choice((0, 0, 0, 1, 2, 4)), machine.pageblock_order - 1)
        movable_share = 0.95 if is_movable_block else 0.1
        free_share = rng.choice((0.0, self.free_share, self.free_share, 0.9))
        if migratetype == Migratetype.HIGHATOMIC and self.reserve_is_free:
            free_share = 1.0
        pages = range(start, start + machine.pages_per_block, 1 << order)
        for pfn in pages:
            oracle.put_allocated(pfn, order, movable=False)
        for pfn in pages:
            is_movable = rng.random() < movable_share
            oracle.allocated.remove(pfn, order)
            oracle.allocated.add(pfn, order, is_movable)
            if rng.random() < free_share:
                oracle.free(rng.randrange(machine.nr_cpus), pfn, order)
                continue
            kind = rng.choice((Kind.ANON, Kind.FILE, Kind.FILE)) if is_movable else Kind.KERNEL
            has_object = rng.random() < 0.8
            folio = Folio(pfn, order, kind, number if has_object else None, 0, is_movable)
            folio.active = is_movable and rng.random() < 0.3
            number += has_object
            oracle.memory.add(folio)
        return number


@dataclass(frozen=True, kw_only=True)
class HidingScenario(ElasticScenario):
    """The only whole free block is reserved; of others one half is free, the rest of one file.

    So memory lacks, by the fragmentation index, but for the reserve, which alone keeps compaction
    from being declined (S7.5, S9.2).
    """

    def _lay_out_block(
        self, oracle: ElasticOracle, start: int, number: int, rng: random.Random
    ) -> int:
        size = self.machine.pages_per_block
        is_reserved = start + size == self.machine.zones[0].end_pfn
        if is_reserved:
            oracle.set_block_type(start // size, Migratetype.HIGHATOMIC)
        free = size if is_reserved else size // 2
        for pfn in range(start, start + size - free):
            oracle.put_allocated(pfn, 0, movable=True)
            oracle.memory.add(Folio(pfn, 0, Kind.FILE, number, 0, True))
            number += 1
        order = free.bit_length() - 1
        oracle.put_allocated(start + size - free, order, movable=True)
        oracle.free(0, start + size - free, order)
        return number


class _Steps:
    """Draws one step after another."""

    def __init__(self, scenario: ElasticScenario, oracle: ElasticOracle) -> None:
        self.scenario = scenario
        self.rng = random.Random(scenario.seed + 1)
        self.time_ns = 0  # of the step drawn last
        objects = oracle.memory.objects
        self.live = [
            (number, piece.offset, piece.order)
            for number, pieces in objects.items()
            for piece in pieces
        ]
        self.late = list(scenario.late)
        self.files = [
            self._file(pieces[0])
            for pieces in objects.values()
            if pieces[0].kind is Kind.FILE and scenario.used_share
        ]
        self.objects = max(objects, default=-1) + 1
        self.taken = 0
        self.pressure = 0.5
        self.lead: Demand | None = None
        self.chained = 0
        self.asking = [task_requests(self.rng) for _ in range(scenario.tasks)]

    def next(self) -> Step:
        rng, scenario = self.rng, self.scenario
        if self.taken % PHASE == 0:
            self.pressure = rng.choice(PRESSURES)
        self.taken += 1
        self.time_ns += rng.choice(scenario.pauses_ns)
        cpu = rng.randrange(scenario.machine.nr_cpus)
        if rng.random() < 0.04:
            return step("tick", cpu=cpu)
        if scenario.told_share and rng.random() < scenario.told_share:
            return self._next_told(cpu)
        if scenario.used_share and self.files and rng.random() < scenario.used_share:
            # Some files are read over and over, so that they are marked twice.
            used = self.files[-rng.choice((1, 4, 16, len(self.files))) :]
            demand = replace(rng.choice(used), cpu=cpu)
            return step("use_object", demand=demand, recorded=rng.random() < 0.5)
        if rng.random() < self.pressure or not self.live:
            return self._next_ask(cpu)
        return self._next_free(cpu)

    def _next_ask(self, cpu: int) -> Step:
        if self.asking:
            return self._next_of_task(cpu, self.rng.randrange(len(self.asking)))
        if self.lead is not None and self.chained < CHAINED:
            return self._next_member(self.lead, cpu)
        self.lead = None
        demand = self._demand(cpu)
        if demand.order and self.rng.random() < 0.15:
            if self.rng.random() < 0.9:
                demand = replace(demand, number=self._new_number())
                self.lead, self.chained = demand, 0
            return step("fail_object", demand=demand)
        is_hidden = self.scenario.told_share > 0 and self.rng.random() < 0.1
        return step("alloc_object", demand=self._with_object(demand), is_hidden=is_hidden)

    def _next_of_task(self, cpu: int, task: int) -> Step:
        kind, order, bits, failed = next(self.asking[task])
        demand = Demand(
            number=-1,
            cpu=cpu,
            order=order,
            migratetype=int(kind is Kind.ANON),
            highest_zone=self.scenario.machine.nr_types - 1,
            bits=bits,
            kind=kind,
            task=task,
        )
        if not failed:
            return step("alloc_object", demand=self._with_object(demand), is_hidden=False)
        if order and self.rng.random() < 0.95:
            demand = replace(demand, number=self._new_number())
        return step("fail_object", demand=demand)

    def _next_told(self, cpu: int) -> Step:
        kind = self.rng.random()
        if self.late and kind < 0.5:
            return self.late.pop(0)
        if kind < 0.7:
            return step("drain_all")
        zones = [n for n, zone in enumerate(self.scenario.machine.zones) if zone.managed]
        zone = self.rng.choice(zones)
        return step("set_pcp_high", zone=zone, cpu=cpu, high=self.rng.randrange(100))

    def _next_member(self, lead: Demand, cpu: int) -> Step:
        """A retry of a failure, or what came in its place."""
        self.chained += 1
        if self.chained == 1 and self.rng.random() < 0.2:
            retry = replace(lead, number=self._new_number(), lead=lead.number, cpu=cpu)
            return step("fail_object", demand=retry)
        order = self.rng.randrange(lead.order)
        demand = self._with_object(replace(lead, order=order, lead=lead.number, cpu=cpu))
        return step("alloc_object", demand=demand, is_hidden=False)

    def _with_object(self, demand: Demand) -> Demand:
        demand = replace(demand, number=self._new_number())
        self.live.append((demand.number, 0, demand.order))
        if self.scenario.used_share and demand.kind is Kind.FILE:
            self.files.append(replace(demand, lead=-1))
        return demand

    def _file(self, folio: Folio) -> Demand:
        """The request by which a file's pages, there at the start, are read again."""
        return Demand(
            number=folio.object,
            cpu=0,
            order=folio.order,
            migratetype=1,
            highest_zone=self.scenario.machine.nr_types - 1,
            bits=FULL | Bits.NORETRY,
            kind=Kind.FILE,
        )

    def _new_number(self) -> int:
        self.objects += 1
        return self.objects - 1

    def _demand(self, cpu: int) -> Demand:
        rng, scenario = self.rng, self.scenario
        order = rng.choice(scenario.orders)
        is_movable = rng.random() < scenario.movable_share
        bits = rng.choice(scenario.bits)
        if scenario.seed % 3 == 2 and self.objects % 2:
            bits |= Bits.KERNEL_THREAD  # by numbers, so that what is drawn stays as it is
        kind = rng.choice((Kind.ANON, Kind.FILE)) if is_movable else Kind.KERNEL
        migratetype = 1
        if not is_movable:
            migratetype = rng.choice((0, 0, 2))
            kind = Kind.RECLAIMABLE if migratetype == 2 else Kind.KERNEL
        elif order == 9:
            kind, bits = Kind.ANON, rng.choice(THP_BITS)
        types = scenario.machine.nr_types
        return Demand(
            number=-1,
            cpu=cpu,
            order=order,
            migratetype=migratetype,
            highest_zone=rng.choice((types - 1, types - 1, rng.randrange(types))),
            bits=bits,
            kind=kind,
        )

    def _next_free(self, cpu: int) -> Step:
        rng = self.rng
        number, offset, order = self.live.pop(rng.randrange(len(self.live)))
        while order and rng.random() < 0.15:
            order -= 1
            freed = int(rng.random() < 0.5)
            self.live.append((number, offset + ((1 - freed) << order), order))
            offset += freed << order
        piece = {"cpu": cpu, "number": number, "offset": offset, "order": order}
        return step("free_object", **piece, by_reclaim=rng.random() < 0.05)


LOCAL = FULL | Bits.THISNODE | Bits.NORETRY  # bits of a request for its own node's pages only


DEFRAG_FIXES = ("defrag_atomic_falls_back", "defrag_promotes_order", "promoted_fall_back_afresh")
"""What a policy with defrag_mode may decide besides (S8.6, S8.7)."""


def random_elastic_scenario(number: int, presets: Sequence[str] = ALL) -> ElasticScenario:
    """Any machine under pressure, under any policy, with a preset's rules.

    Per-CPU lists are small. In one of three our policies about the reserve are drawn, which mostly
    is free at the start there (S9.10). In one of three proposals about who is in need are drawn
    (S1.11, S8.8); atomic requests are more of the load there.
    """
    rng = random.Random(number)
    rules = RULES[rng.choice(presets)]
    machine = random_elastic_machine(rng)
    batch = rng.choice((1, 4, 7))
    high_min = rng.choice((1, 4, 8)) * batch
    policy = OraclePolicy(
        highatomic_gate_order=rng.choice((0, 0, 3)),
        highatomic_reserve_percent=rng.choice((1, 10)),
        pcp_batch=batch,
        pcp_high_min=high_min,
        pcp_high_max=rng.choice((high_min, 4 * high_min)),
        pcp_batch_scale_max=rng.choice((0, 2, 5)),
        watermark_boost_factor=rng.choice((0, 15000)),
        defrag_mode=rng.random() < 0.2,
    )
    from_pcp = rng.random() < 0.5
    # by its number, so that what is drawn after it stays as it is
    options = replace(random_options(rng, policy), index_without_highatomic=number % 2 == 1)
    policy = replace(policy, highatomic_fastpath=rng.random() < 0.2 or None)
    if policy.defrag_mode and number % 2 == 0:
        fixes = random.Random(-number)
        choices = {name: fixes.choice((None, False, True)) for name in DEFRAG_FIXES}
        policy = replace(policy, **choices)
    madvised = number % 3 == 0
    always = int(Bits.DIRECT_RECLAIM if madvised else Bits.DIRECT_RECLAIM | Bits.NORETRY)
    thp_bits = rng.choice((None, None, always, None if madvised else 0))
    if number % 2:
        machine = with_lost_memory(machine)
    scenario = ElasticScenario(
        machine=machine,
        rules=replace(rules, highatomic_from_pcp=from_pcp),
        policy=policy,
        options=replace(options, thp_bits=thp_bits, thp_madvised=madvised),
        seed=number,
        orders=rng.choice((ORDERS, ORDERS, (0, 0, 0, 1, 3, 4, 5), (0, 0, 9, 9, 9, 4))),
        movable_share=rng.choice((0.2, 0.6, 0.9)),
        free_share=rng.choice((0.05, 0.15, 0.3)),
    )
    scenario = replace(scenario, policy=with_reserve_switches(rng, scenario.policy))
    options = scenario.options
    if not rng.randrange(3):
        options = replace(
            options,
            proactiveness=rng.choice((20, 80, 80, 0)),
            score_without_highatomic=rng.random() < 0.5,
            kcompactd_unreserves=rng.random() < 0.5,
        )
        scenario = replace(scenario, options=options, reserve_is_free=rng.random() < 0.8)
    if not rng.randrange(3):
        options = replace(
            options, atomic_boost=rng.random() < 0.7, local_thp_reclaims=rng.random() < 0.7
        )
        policy = replace(scenario.policy, refill_mode_persists=rng.random() < 0.5)
        bits = (*scenario.bits, ATOMIC, ATOMIC, LOCAL, LOCAL)
        scenario = replace(scenario, options=options, policy=policy, bits=bits)
    return scenario


def random_used_elastic_scenario(number: int, presets: Sequence[str] = ALL) -> ElasticScenario:
    scenario = random_elastic_scenario(number, presets)
    return replace(scenario, used_share=(0.2, 0.5)[number % 2], movable_share=0.9)


def random_told_elastic_scenario(number: int, presets: Sequence[str] = ALL) -> ElasticScenario:
    """A scenario in which lists are drained and limits set as recorded, and memory comes."""
    plain = random_elastic_scenario(number, presets)
    late = late_memory(random.Random(number), plain.machine)
    return replace(plain, told_share=0.1, late=late)


def random_cma_elastic_scenario(number: int, presets: Sequence[str] = ALL) -> ElasticScenario:
    plain = random_elastic_scenario(number, presets)
    *types, isolate = plain.machine.migratetypes
    return replace(plain, machine=replace(plain.machine, migratetypes=(*types, "CMA", isolate)))


def random_elastic_machine(rng: random.Random) -> OracleMachine:
    """One node or two, each with two zones of a few small blocks or fewer large ones."""
    block_order = rng.choice((9, 9, 6, 5))
    nodes = rng.choice((1, 1, 1, 2))
    zones = []
    pfn = 0
    for node in range(nodes):
        for name in ("DMA32", "Normal"):
            pages = rng.choice((1, 2, 3)) << 10 if name == "Normal" else rng.choice((1, 1, 2)) << 9
            if node and name == "DMA32":
                pages = 0
            low = int(pages * rng.choice((0.01, 0.04, 0.1)))
            marks = {"min": low * 4 // 5, "low": low, "high": low * 6 // 5}
            reserve = (0, rng.choice((0, 40)) if name == "DMA32" and pages else 0)
            zones.append(zone_of(name, pfn, pages, node=node, lowmem_reserve=reserve, **marks))
            pfn += -(-pages // 1024) << 10
    return OracleMachine(
        zones=tuple(zones),
        nr_cpus=2,
        cpu_nodes=(0, nodes - 1),
        pageblock_order=block_order,
        thp=rng.random() < 0.7,
    )


def with_lost_memory(machine: OracleMachine) -> OracleMachine:
    """The same, with more present pages in lower zones than the allocator ever got."""
    more = {"DMA32": 8, "Normal": 1}
    zones = (replace(zone, present=more[zone.name] * zone.present) for zone in machine.zones)
    return replace(machine, zones=tuple(zones))


def random_options(rng: random.Random, policy: OraclePolicy) -> ElasticOptions:
    """Shares and costs at which everything happens."""
    return ElasticOptions(
        seed=rng.randrange(100),
        file_referenced_per_mille=rng.choice((0, 50, 300)),
        anon_referenced_per_mille=rng.choice((0, 500)),
        file_dirty_per_mille=rng.choice((0, 20, 200)),
        anon_scan_percent=rng.choice((0, 0, 50, 100)),
        kswapd_free_ns=rng.choice((500, 500, 20_000)),
        kswapd_wake_ns=rng.choice((0, 20_000)),
        anon_migration_fails_per_mille=rng.choice((0, 20, 200)),
        file_migration_fails_per_mille=rng.choice((0, 50, 300)),
        compaction_contended_per_mille=rng.choice((0, 0, 100)),
        base_pages_per_huge=rng.choice((512, 512, 9)),
        compact_gap=rng.choice((None, None, 0, 16)),
        extfrag_threshold=rng.choice((500, 500, 0)),
        proactiveness=rng.choice((20, 80, 0)),
        assists=policy.defrag_mode if rng.random() < 0.7 else not policy.defrag_mode,
        block_watermarks=policy.defrag_mode if rng.random() < 0.7 else not policy.defrag_mode,
    )


def random_owning_elastic_scenario(
    number: int, presets: Sequence[str] = OWNING_PRESETS
) -> ElasticScenario:
    """A machine under pressure whose CPUs own pageblocks.

    Presets without ownership are left out.
    """
    owning = tuple(name for name in presets if name in OWNING_PRESETS)
    plain = random_elastic_scenario(number, owning)
    rng = random.Random(number + 1)
    return replace(
        plain,
        free_share=rng.choice((0.3, 1.0, 1.0)),
        policy=replace(
            with_fitting_limits(rng, plain.machine, plain.policy),
            ownership=replace(random_ownership(rng), plain_frees=rng.choice(("owner", "local"))),
        ),
    )


def random_hiding_elastic_scenario(number: int, presets: Sequence[str] = ALL) -> HidingScenario:
    """Requests for whole blocks where one is free, but reserved; every second one leaves it out."""
    plain = random_elastic_scenario(number, presets)
    options = replace(
        plain.options,
        compact_gap=None,
        extfrag_threshold=500,
        index_without_highatomic=number % 2 == 1,
        proactiveness=0,
        thp_bits=None,
    )
    changed = replace(
        plain,
        machine=one_zone(8, nr_cpus=2),
        policy=replace(plain.policy, defrag_mode=False),
        options=options,
        orders=(9,),
        movable_share=1.0,
    )
    return HidingScenario(**{each.name: getattr(changed, each.name) for each in fields(changed)})


SPAN_NS = (1, 60_000, 900_000, 20_000_000)
WAIT_NS = (0, 0, 9_000, 4_000_000, 30_000_000)
APART_NS = (0, 1_000, 300_000, 40_000_000)
"""Times on a CPU, waits behind them, and times of sleep before the next."""


def random_spans(rng: random.Random) -> tuple[CpuSpan, ...]:
    """A daemon's times on a CPU from 0 on, or none; the last waits for nothing."""
    spans, begin = [], rng.choice(APART_NS)
    for left in range(rng.choice((0, 5, 400)), -1, -1):
        ran, waited = rng.choice(SPAN_NS), rng.choice(WAIT_NS) if left else 0
        spans.append(CpuSpan(begin, ran, waited))
        begin += ran + (waited or rng.choice(APART_NS))
    return tuple(spans) if rng.random() < 0.9 else ()


def random_scheduled_elastic_scenario(number: int, presets: Sequence[str] = ALL) -> ElasticScenario:
    """A scenario whose daemons get their CPUs in spans, each node's own."""
    plain, rng = random_elastic_scenario(number, presets), random.Random(-number - 1)
    nodes = plain.machine.nodes
    spans = [{node: random_spans(rng) for node in nodes} for _ in range(2)]
    options = replace(plain.options, kswapd_spans=spans[0], kcompactd_spans=spans[1])
    options = replace(options, kswapd_free_ns=rng.choice((500, 30_000)))
    return replace(plain, options=options)


def random_linked_elastic_scenario(number: int, presets: Sequence[str] = ALL) -> ElasticScenario:
    """Faults of three tasks, which tell by themselves what came in place of which failure."""
    plain = random_elastic_scenario(number, presets)
    machine = replace(plain.machine, pageblock_order=9, thp=True)
    return replace(plain, machine=machine, tasks=3, free_share=(1.0, 1.0, 0.3)[number % 3])


def random_hurried_elastic_scenario(number: int, presets: Sequence[str] = ALL) -> ElasticScenario:
    """A scenario whose CPUs go on asking for small pieces while they reclaim directly."""
    plain = random_elastic_scenario(number, presets)
    options = replace(plain.options, kswapd_free_ns=20_000, kswapd_wake_ns=10_000_000)
    return replace(
        plain,
        options=options,
        orders=(0, 0, 0, 0, 1, 3),
        bits=(FULL,),
        free_share=0.02,
        movable_share=0.9,
        pauses_ns=SHORT_PAUSES_NS,
    )


ELASTIC: dict[str, Callable[..., ElasticScenario]] = {
    "elastic": random_elastic_scenario,
    "told_elastic": random_told_elastic_scenario,
    "used_elastic": random_used_elastic_scenario,
    "cma_elastic": random_cma_elastic_scenario,
    "owning_elastic": random_owning_elastic_scenario,
    "hiding_elastic": random_hiding_elastic_scenario,
    "scheduled_elastic": random_scheduled_elastic_scenario,
    "linked_elastic": random_linked_elastic_scenario,
    "hurried_elastic": random_hurried_elastic_scenario,
}
"""The same under pressure."""


def random_of_kind(
    kind: str, number: int, steps: int, presets: Sequence[str] = ALL
) -> Scenario | ElasticScenario:
    """The scenario of a kind and number, with rules of some presets."""
    return replace((LITERAL | ELASTIC)[kind](number, presets), steps=steps)
