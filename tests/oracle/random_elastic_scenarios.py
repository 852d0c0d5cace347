"""Random machines under pressure: any rules, policy, memory and options of an elastic run."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.oracle import RULES, Bits, OracleMachine, OraclePolicy
from tests.oracle.builders import ATOMIC
from tests.oracle.elastic_options import COMPACTION_RULES, ElasticOptions
from tests.oracle.elastic_scenarios import FULL, ORDERS, ElasticScenario
from tests.oracle.late_memory import late_memory
from tests.oracle.machine import OracleZone
from tests.oracle.random_scenarios import with_reserve_switches

LOCAL = FULL | Bits.THISNODE | Bits.NORETRY
"""Bits of a request for its own node's pages only."""


def random_elastic_scenario(
    number: int, *, steps: int, presets: tuple[str, ...] = tuple(RULES)
) -> ElasticScenario:
    """Any machine under pressure, under any policy, with a preset's rules."""
    rng = random.Random(number)
    rules = RULES[rng.choice(presets)]
    machine = random_elastic_machine(rng)
    policy = random_elastic_policy(rng)
    from_pcp = rng.random() < 0.5
    options = random_options(rng, policy)
    policy = replace(policy, highatomic_fastpath=rng.random() < 0.2 or None)
    policy = with_defrag_fixes(number, policy)
    madvised = number % 3 == 0
    always = int(Bits.DIRECT_RECLAIM if madvised else Bits.DIRECT_RECLAIM | Bits.NORETRY)
    thp_bits = rng.choice((None, None, always, None if madvised else 0))
    scenario = ElasticScenario(
        machine=machine,
        rules=replace(rules, highatomic_from_pcp=from_pcp),
        policy=policy,
        options=replace(
            options,
            thp_bits=thp_bits,
            thp_madvised=madvised,
            rules=COMPACTION_RULES[rules.name],
        ),
        seed=number,
        steps=steps,
        orders=rng.choice((ORDERS, ORDERS, (0, 0, 0, 1, 3, 4, 5), (0, 0, 9, 9, 9, 4))),
        movable_share=rng.choice((0.2, 0.6, 0.9)),
        free_share=rng.choice((0.05, 0.15, 0.3)),
    )
    scenario = with_reserve_policies(
        rng, replace(scenario, policy=with_reserve_switches(rng, scenario.policy))
    )
    return with_proposals(rng, scenario)


def with_proposals(rng: random.Random, scenario: ElasticScenario) -> ElasticScenario:
    """The scenario; in one of three, proposals about who is in need are drawn (S1.11, S8.8).

    Atomic requests are more of the load there.
    """
    if rng.randrange(3):
        return scenario
    options = replace(
        scenario.options,
        atomic_boost=rng.random() < 0.7,
        local_thp_reclaims=rng.random() < 0.7,
    )
    policy = replace(scenario.policy, refill_mode_persists=rng.random() < 0.5)
    bits = (*scenario.bits, ATOMIC, ATOMIC, LOCAL, LOCAL)
    return replace(scenario, options=options, policy=policy, bits=bits)


def with_defrag_fixes(number: int, policy: OraclePolicy) -> OraclePolicy:
    """The policy; with defrag_mode, in every second scenario its fixes are drawn (S8.6, S8.7)."""
    if number % 2 or not policy.defrag_mode:
        return policy
    rng = random.Random(-number)
    return replace(
        policy,
        defrag_atomic_falls_back=rng.choice((None, False, True)),
        defrag_promotes_order=rng.choice((None, False, True)),
        promoted_fall_back_afresh=rng.choice((None, False, True)),
    )


def with_reserve_policies(rng: random.Random, scenario: ElasticScenario) -> ElasticScenario:
    """The scenario; in one of three our policies about the reserve are drawn (S9.10).

    There the reserve is free at the start, mostly.
    """
    if rng.randrange(3):
        return scenario
    options = replace(
        scenario.options,
        proactiveness=rng.choice((20, 80, 80, 0)),
        score_without_highatomic=rng.random() < 0.5,
        kcompactd_unreserves=rng.random() < 0.5,
    )
    return replace(scenario, options=options, reserve_is_free=rng.random() < 0.8)


def random_used_elastic_scenario(number: int, *, steps: int) -> ElasticScenario:
    """The same with uses of files' pages."""
    scenario = random_elastic_scenario(number, steps=steps)
    return replace(scenario, used_share=(0.2, 0.5)[number % 2], movable_share=0.9)


def random_told_elastic_scenario(
    number: int, *, steps: int, presets: tuple[str, ...] = tuple(RULES)
) -> ElasticScenario:
    """A scenario in which lists are drained and limits set as recorded, and memory comes."""
    plain = random_elastic_scenario(number, steps=steps, presets=presets)
    late = late_memory(random.Random(number), plain.machine)
    return replace(plain, told_share=0.1, late=late)


def random_cma_elastic_scenario(
    number: int, *, steps: int, presets: tuple[str, ...] = tuple(RULES)
) -> ElasticScenario:
    """A scenario on a machine that has CMA blocks."""
    plain = random_elastic_scenario(number, steps=steps, presets=presets)
    *types, isolate = plain.machine.migratetypes
    return replace(plain, machine=replace(plain.machine, migratetypes=(*types, "CMA", isolate)))


def random_superpageblock_elastic_scenario(
    number: int, *, steps: int, presets: tuple[str, ...] = tuple(RULES)
) -> ElasticScenario:
    """A scenario under pressure with superpageblocks (S14), of presets that can have them."""
    fitting = tuple(name for name in presets if RULES[name].free_lists_match_blocks)
    plain = random_elastic_scenario(number, steps=steps, presets=fitting)
    return replace(plain, policy=replace(plain.policy, superpageblock_order=10 + number % 2))


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
            zones.append(_zone(rng, name, node, pfn, pages))
            pfn += -(-pages // 1024) << 10
    return OracleMachine(
        zones=tuple(zones),
        nr_cpus=2,
        cpu_nodes=(0, nodes - 1),
        pageblock_order=block_order,
        thp=rng.random() < 0.7,
    )


def _zone(rng: random.Random, name: str, node: int, start: int, pages: int) -> OracleZone:
    low = int(pages * rng.choice((0.01, 0.04, 0.1)))
    return OracleZone(
        name=name,
        start_pfn=start,
        spanned=pages,
        present=pages,
        managed=pages,
        min=low * 4 // 5,
        low=low,
        high=low * 6 // 5,
        lowmem_reserve=(0, rng.choice((0, 40)) if name == "DMA32" and pages else 0),
        node=node,
    )


def random_elastic_policy(rng: random.Random) -> OraclePolicy:
    """Small per-CPU lists, defrag_mode now and then."""
    batch = rng.choice((1, 4, 7))
    high_min = rng.choice((1, 4, 8)) * batch
    return OraclePolicy(
        highatomic_gate_order=rng.choice((0, 0, 3)),
        highatomic_reserve_percent=rng.choice((1, 10)),
        pcp_batch=batch,
        pcp_high_min=high_min,
        pcp_high_max=rng.choice((high_min, 4 * high_min)),
        pcp_batch_scale_max=rng.choice((0, 2, 5)),
        watermark_boost_factor=rng.choice((0, 15000)),
        defrag_mode=rng.random() < 0.2,
    )


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
