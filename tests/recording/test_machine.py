"""Machine: from zoneinfo, recomputed watermarks, what is refused; page frames to zones."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import make_state
from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy, Setting, policy_settings
from pagealloc_model.recording.machine import Machine, Zone, machine_from_zoneinfo
from pagealloc_model.recording.proc.zoneinfo import PageSet, parse_zoneinfo
from tests.small_recordings import (
    CPUS,
    DMA32,
    END_PFN,
    NORMAL,
    small_machine,
    start_free,
    zoneinfo_text,
)

GIB = 1 << 18
NEWEST = KernelRules.preset("7.2")


def large_zone(name: str, pages: int) -> Zone:
    return Zone(
        name=name, start_pfn=0, spanned=pages, present=pages, managed=pages, min=1, low=2, high=3
    )


def test_zones_cpus_and_watermarks_come_from_zoneinfo() -> None:
    machine = machine_from_zoneinfo(parse_zoneinfo(zoneinfo_text(start_free(), {"Normal": 9})))
    assert [zone.name for zone in machine.zones] == ["DMA32", "Normal", "Movable"]
    assert machine.nr_cpus == CPUS
    assert machine.end_pfn == END_PFN
    normal = machine.zones[machine.zone_index(0, "Normal")]
    assert (normal.min, normal.low, normal.high) == NORMAL.watermarks
    assert normal.start_pfn == NORMAL.start_pfn
    assert [pageset.count for pageset in normal.pagesets] == [9, 9]
    assert machine.zones[0].lowmem_reserve == DMA32.protection
    assert machine.zone_index(0, "DMA") == -1


def test_a_printed_boost_is_taken_off_the_watermarks() -> None:
    text = zoneinfo_text(start_free(), {}).replace("boost    0", "boost    30", 1)
    zone = machine_from_zoneinfo(parse_zoneinfo(text)).zones[0]
    low, middle, high = DMA32.watermarks
    assert (zone.min, zone.low, zone.high) == (low - 30, middle - 30, high - 30)
    assert zone.boost == 30


def two_nodes() -> Machine:
    """The small machine and, behind it, the same zones on node 4."""
    zones = small_machine().zones
    moved = tuple(replace(zone, node=4, start_pfn=zone.start_pfn + END_PFN) for zone in zones)
    return Machine(zones=(*zones, *moved), nr_cpus=2, cpu_nodes=(4, 0))


def test_zones_are_numbered_node_by_node() -> None:
    machine = two_nodes()
    types = len(small_machine().zones)
    assert machine.nodes == (0, 4)
    assert machine.zone_index(4, "Normal") == types + machine.type_index("Normal")
    assert machine.zone_index(1, "Normal") == -1
    assert machine.cpu_node_indices == (1, 0)
    assert [machine.cpus_of_node(index) for index in (0, 1)] == [1, 1]
    assert (machine.distance(0, 0), machine.distance(0, 1)) == (10, 20)
    assert machine.zone_title(types) == "node 4, zone DMA32"


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"zones": two_nodes().zones[:4]}, "same zones"),
        ({"zones": two_nodes().zones[::-1]}, "same zones"),
        ({"cpu_nodes": (0, 1)}, "cpu_nodes"),
        ({"cpu_nodes": (0,)}, "cpu_nodes"),
        ({"distances": ((10, 20),)}, "distances"),
        ({"distances": ((10,), (10,))}, "distances"),
    ],
)
def test_nodes_that_do_not_fit_are_refused(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        replace(two_nodes(), **fields)


def test_machines_the_model_has_no_rules_for_are_refused() -> None:
    machine = two_nodes()
    moved = tuple(replace(zone, start_pfn=zone.start_pfn - 1) for zone in machine.zones[3:])
    with pytest.raises(UsageError, match="node 0, zone Normal and node 4, zone DMA32 overlap"):
        replace(machine, zones=(*machine.zones[:3], *moved))
    with pytest.raises(UsageError, match="managed pages"):
        Machine(zones=(replace(small_machine().zones[0], managed=0),), nr_cpus=1)
    for block, largest in ((0, 10), (11, 10), (9, 15)):
        with pytest.raises(UsageError, match="pageblock order"):
            replace(small_machine(), pageblock_order=block, max_order=largest)
    with pytest.raises(PolicyError, match=r"the machine has . zones on a node .*; give no more"):
        small_machine().with_lowmem_reserve(Policy(lowmem_reserve_ratio="1 " * 9))


def test_watermarks_stay_as_recorded_unless_their_inputs_change() -> None:
    machine = small_machine()
    assert machine.with_watermarks(Policy(pcp_batch=7), NEWEST) is machine


def reserves(machine: Machine) -> list[tuple[int, ...]]:
    return [zone.lowmem_reserve for zone in machine.zones]


def random_node(rng: random.Random, node: int, first: int) -> list[Zone]:
    names, sizes = ("DMA", "DMA32", "Normal", "Movable"), (0, 1, 511, 4000, 70_000)
    zones = []
    for name in names:
        pages = rng.choice(sizes)
        span = {"spanned": pages, "present": pages, "managed": pages}
        zones.append(Zone(node=node, name=name, start_pfn=first, **span))
        first += pages
    return zones


def expected_reserve(sizes: list[int], zone: int, ratio: int) -> tuple[int, ...]:
    """setup_per_zone_lowmem_reserve(): what a zone keeps, by the requests' highest zone (S1.8)."""
    if not ratio or not sizes[zone]:
        return (0,) * len(sizes)
    return tuple(sum(sizes[zone + 1 : upper + 1]) // ratio for upper in range(len(sizes)))


@pytest.mark.parametrize("seed", range(20))
def test_reserves_are_those_of_the_kernel(seed: int) -> None:
    rng = random.Random(seed)
    zones = [
        *random_node(rng, 0, 512),
        *random_node(rng, 1, 1 << 20),
        *random_node(rng, 2, 1 << 21),
    ]
    zones[2] = replace(large_zone("Normal", 1 << 19), start_pfn=1 << 22)
    machine = Machine(zones=tuple(zones), nr_cpus=1)
    numbers = [rng.choice((0, 1, 3, 32, 256)) for _ in range(rng.randint(1, 4))]
    policy = Policy(lowmem_reserve_ratio=" ".join(map(str, numbers)))
    values = reserves(machine.with_lowmem_reserve(policy))
    for index, zone in enumerate(machine.zones):
        own = index % 4
        sizes = [zone.managed for zone in machine.zones[index - own : index - own + 4]]
        wanted = expected_reserve(sizes, own, numbers[own]) if own < len(numbers) else ()
        assert values[index] == wanted, (zone, numbers)


def test_watermarks_worked_by_hand() -> None:
    zones = (large_zone("DMA32", GIB), replace(large_zone("Normal", 3 * GIB), start_pfn=GIB))
    machine = Machine(zones=zones, nr_cpus=1)
    first, second = machine.with_watermarks(Policy(min_free_kbytes=64 << 10), NEWEST).zones
    share, gap = 4096, 1024
    assert (first.min, first.low, first.high) == (share, share + gap, share + 2 * gap)
    assert second.min == 3 * share
    scaled = machine.with_watermarks(
        Policy(min_free_kbytes=64 << 10, watermark_scale_factor=1000), NEWEST
    ).zones[0]
    assert scaled.low - scaled.min == GIB * 1000 // 10000


def test_zone_movable_had_a_share_of_the_minimum_in_6_1() -> None:
    """S1.6: 16384 pages for two zones of one size; later ones give ZONE_MOVABLE its own 128."""
    zones = (large_zone("Normal", GIB), replace(large_zone("Movable", GIB), start_pfn=GIB))
    machine = Machine(zones=zones, nr_cpus=1)
    policy = Policy(min_free_kbytes=64 << 10)
    minima = {
        name: [zone.min for zone in machine.with_watermarks(policy, KernelRules.preset(name)).zones]
        for name in ("6.1", "6.12")
    }
    assert minima == {"6.1": [8192, 8192], "6.12": [16384, 128]}


LIMITS_MOVE = ("percpu_pagelist_high_fraction", "pcp_high_min", "pcp_high_max", "pageblock_order")
"""Fields that set pcp->high themselves, and one that only a replay of a recording takes."""
MARKS_MOVE = ("min_free_kbytes", "watermark_scale_factor", "pageblock_order")


def other_settings() -> dict[str, Setting]:
    """Every field of a policy with another value than the machine below has."""
    values: dict[str, Setting] = {}
    for name, field in policy_settings().items():
        kind = field.metadata["kind"]
        if kind == "bool":
            values[name] = True
        elif kind == "choice":
            values[name] = field.metadata["choices"][-1]
        elif kind == "numbers":
            values[name] = "100"
        else:
            largest = field.metadata["maximum"]
            values[name] = min(field.metadata["minimum"] + 16, largest) & ~3
    return values


@pytest.mark.parametrize("rules", ["6.1", "6.12", "7.3"])
def test_a_setting_in_force_stays_in_force_whatever_else_moves(rules: str) -> None:
    """Limits by high_fraction, marks by watermark_scale_factor: the kernel computes both anew."""
    kernel = KernelRules.preset(rules)
    high = 4 * GIB // 50 // 2
    limits = {"batch": 63, "high": high, "high_min": high, "high_max": high}
    pagesets = tuple(PageSet(cpu=cpu, count=0, **limits) for cpu in range(2))
    zone = replace(large_zone("Normal", 4 * GIB), pagesets=pagesets)
    machine = Machine(
        zones=(zone,), nr_cpus=2, watermark_scale_factor=200, percpu_pagelist_high_fraction=50
    ).with_watermarks(Policy(min_free_kbytes=64 << 10), kernel)
    marks = (machine.zones[0].min, machine.zones[0].low, machine.zones[0].high)
    assert marks[1] - marks[0] == 4 * GIB * 200 // 10000
    for name, value in other_settings().items():
        try:
            policy = Policy.from_settings({name: value})
            state = make_state(machine, kernel, policy)
        except PolicyError:
            assert name == "pageblock_order" or name.startswith(("ownership", "pageblock_own"))
            continue
        if name not in LIMITS_MOVE:
            words = state.pcp_words(at.PCP_HIGH_MIN, 2)
            assert words.tolist() == [[[high, high]] * 2], name
        if name not in MARKS_MOVE:
            zones = machine.with_watermarks(policy, kernel).zones
            assert (zones[0].min, zones[0].low, zones[0].high) == marks, name
