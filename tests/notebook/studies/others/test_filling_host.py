"""A host that fills up: what it counts, and where kernel memory is with superpageblocks (S14)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from pagealloc_model.notebooks.studies.others.filling_host import (
    FilledHost,
    FillingHost,
    list_costs,
    run_filling_host,
)

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.invariants import broken_invariants
from pagealloc_model.base.errors import UsageError
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy

RULES = KernelRules.preset("7.2")
HOST = FillingHost(gib=6, nr_cpus=2, turnover_percent=30)
ORDER = 14
"""Ranges of 64 MiB: 32 in the Normal zone of 2 GiB."""


@cache
def filled(order: int) -> FilledHost:
    host = run_filling_host(HOST, Policy(superpageblock_order=order), rules=RULES)
    return replace(host, order=ORDER)


def test_memory_is_as_full_as_asked_and_the_state_is_sound() -> None:
    for order in (0, ORDER):
        run = filled(order).run
        assert not broken_invariants(run.final)
        assert run.failed == 0
        managed = sum(zone.managed for zone in run.machine.zones)
        free = run.final.free_buddies().sum(axis=(0, 2)) @ (1 << np.arange(at.ORDERS))
        assert 1 - free / managed == pytest.approx(HOST.used_per_mille / 1000, abs=0.01)


def test_kernel_memory_keeps_to_fewer_ranges() -> None:
    without, patched = (filled(order).gigabytes for order in (0, ORDER))
    assert len(without) == len(patched) == 32
    tainted = [int((rows["kernel_pages"] > 0).sum()) for rows in (without, patched)]
    assert tainted[1] < tainted[0] / 2


def test_kernel_pages_add_up() -> None:
    """What the ranges hold is what the state has, one by one."""
    host = filled(ORDER)
    table = host.gigabytes
    pages = host.run.final.pages[1 << 20 :]
    is_kernel = (pages["where"] == at.ALLOCATED) & (pages["tag"] == 0)
    assert table["kernel_pages"].sum() == (1 << pages["order"][is_kernel].astype(int)).sum()


def test_costs_of_lists_are_counted() -> None:
    costs = list_costs(filled(ORDER)).set_index("migratetype")
    orders, ranges = 11, 32
    assert costs["one_set"].between(1, orders).all()
    assert costs["two_sets"].between(1, 2 * orders).all()
    assert costs["every_range"].between(1, ranges * orders).all()
    assert costs["two_bitmaps"].between(1, 2).all()
    assert costs["every_bitmap"].between(1, ranges).all()


def test_shares_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(UsageError, match="make them 1000"):
        run_filling_host(FillingHost(kernel_orders=((0, 999),)), rules=RULES)
