"""Boot-time sizes against what a real kernel printed in /proc/zoneinfo."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.oracle import RULES, OracleMachine, OraclePolicy, OracleZone
from tests.oracle.vmstat import (
    PageSetSize,
    WatermarkSet,
    calculate_min_free_kbytes,
    clamp,
    khugepaged_min_free_pages,
    lowmem_reserve,
    page_set_size,
    watermarks,
    zone_batchsize,
)

# zoneinfo of recording "kbuild": Linux 6.18, x86-64, 2 CPUs, 24 GiB
NAMES = ("DMA", "DMA32", "Normal", "Movable", "Device")
MANAGED = (3840, 772918, 2654208, 0, 0)
MIN_FREE_PAGES = 16896
PRINTED_MARKS = {
    "DMA": WatermarkSet(18, 22, 26, 30),
    "DMA32": WatermarkSet(3806, 4757, 5708, 6659),
    "Normal": WatermarkSet(13070, 16337, 19604, 22871),
    "Movable": WatermarkSet(32, 32, 32, 32),
}
PRINTED_PROTECTION = {
    "DMA": (0, 3019, 13387, 13387, 13387),
    "DMA32": (0, 0, 10368, 10368, 10368),
    "Normal": (0, 0, 0, 0, 0),
}
PRINTED_PAGE_SETS = {
    "DMA": PageSetSize(batch=1, high_min=11, high_max=240),
    "DMA32": PageSetSize(batch=63, high_min=2378, high_max=48307),
    "Normal": PageSetSize(batch=63, high_min=8168, high_max=165888),
}


@pytest.mark.parametrize("name", PRINTED_MARKS)
def test_watermarks_are_the_printed_ones(name: str) -> None:
    managed = MANAGED[NAMES.index(name)]
    assert watermarks(name, managed, MIN_FREE_PAGES, sum(MANAGED)) == PRINTED_MARKS[name]


@pytest.mark.parametrize("name", PRINTED_PROTECTION)
def test_lowmem_reserve_is_the_printed_protection(name: str) -> None:
    assert lowmem_reserve(NAMES, MANAGED, NAMES.index(name)) == PRINTED_PROTECTION[name]


def test_lowmem_reserve_of_other_ratios() -> None:
    """S1.8: the zones above, summed and divided, rounded down; a zone without a ratio has none."""
    ratios = {"DMA": 1000, "Normal": 7}
    assert lowmem_reserve(NAMES, MANAGED, 0, ratios) == (0, 772, 3427, 3427, 3427)
    assert lowmem_reserve(NAMES, MANAGED, 1, ratios) == (0,) * 5
    assert lowmem_reserve(NAMES, (0, *MANAGED[1:]), 0, ratios) == (0,) * 5


@pytest.mark.parametrize("name", PRINTED_PAGE_SETS)
@pytest.mark.parametrize("rules", RULES)
def test_page_sets_are_the_printed_ones(name: str, rules: str) -> None:
    managed = MANAGED[NAMES.index(name)]
    marks = PRINTED_MARKS[name]
    zone = OracleZone(
        name=name,
        start_pfn=0,
        spanned=managed,
        present=managed,
        managed=managed,
        min=marks.min,
        low=marks.low,
        high=marks.high,
    )
    machine = OracleMachine(zones=(zone,), nr_cpus=2)
    size = page_set_size(zone, machine, RULES[rules], OraclePolicy())
    printed = PRINTED_PAGE_SETS[name]
    fixed = replace(printed, high_max=printed.high_min)
    assert size == (printed if RULES[rules].pcp_tunes_itself else fixed)


def test_high_fraction_fixes_both_bounds() -> None:
    """S4.3: managed / 8 / 2 CPUs."""
    zone = OracleZone(
        name="Normal",
        start_pfn=0,
        spanned=2654208,
        present=2654208,
        managed=2654208,
        min=13070,
        low=16337,
        high=19604,
    )
    machine = OracleMachine(zones=(zone,), nr_cpus=2)
    policy = OraclePolicy(percpu_pagelist_high_fraction=8)
    size = page_set_size(zone, machine, RULES["6.18"], policy)
    assert size == PageSetSize(batch=63, high_min=165888, high_max=165888)


@pytest.mark.parametrize(
    ("managed", "batch"),
    [(4095, 1), (8191, 1), (8192, 1), (3 * 4096, 3), (64 * 4096, 63), (1 << 24, 63)],
)
def test_batch_by_zone_size(managed: int, batch: int) -> None:
    assert {zone_batchsize(managed, rules) for rules in RULES.values()} == {batch}


def test_min_free_is_raised_for_huge_pages() -> None:
    """S1.5: three zones of an x86-64 guest."""
    assert khugepaged_min_free_pages(512, 3, 3_000_000) == 16896
    assert khugepaged_min_free_pages(512, 3, 100_000) == 5000
    assert calculate_min_free_kbytes(16 << 20) == 16384
    assert calculate_min_free_kbytes(100) == 128
    assert calculate_min_free_kbytes(1 << 40) == 262144


def test_clamp_lets_the_upper_bound_win() -> None:
    assert clamp(5, 1, 3) == 3
    assert clamp(0, 1, 3) == 1
    assert clamp(7, 9, 3) == 3
    assert clamp(2, 9, 3) == 9
