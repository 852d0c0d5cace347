"""Faults under another set of enabled orders (S10.13), against the oracle and on a recording."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.numbers.comparison import OTHER_ORDERS
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.predicted.demand.demand import Demand
from pagealloc_model.predicted.demand.folio_orders import with_anon_orders
from tests.oracle.folio_orders import Asked, Unit

ANON = pr.ANON << pr.CLASS_SHIFT
FOLIO = at.GFP_NOMEMALLOC
ELASTIC = Assumptions(reclaim="elastic")


def drawn(seed: int) -> tuple[list[Unit], dict[int, int], Demand, np.ndarray]:
    """Units of two tasks, some in place of failures, unmapped together; the same as a demand."""
    rng = random.Random(seed)
    units: list[Unit] = []
    failures: dict[int, int] = {}
    rows: list[tuple[int, int, int, int]] = []  # operation, object, order, cpu
    tasks: list[int] = []
    leads: dict[int, int] = {}
    mapped: dict[int, list[list[Unit]]] = {0: [], 1: []}
    bursts, freed = Counter[int](), Counter[int]()

    def unmap(task: int, share: float) -> None:
        rng.shuffle(mapped[task])
        for own in mapped[task]:
            for unit in own:
                if rng.random() < share:
                    unit.freed = bursts[task], freed[task]
                    freed[task] += 1
                    rows.append((at.FREE, unit.name, unit.order, rng.randrange(2)))
                    tasks.append(task)
        mapped[task] = []
        bursts[task] += 1

    name = 0
    for _ in range(rng.randrange(4, 14)):
        task, own = rng.randrange(2), []
        for _ in range(rng.choice((1, 1, 2, 3))):
            lead = None
            if rng.random() < 0.3:
                lead, name = name, name + 1
                failures[lead] = rng.choice((4, 9))
                rows.append((at.RECORDED_FAILURE, lead, failures[lead], 0))
                tasks.append(task)
            order = rng.choice((0, 0, 0, 2, 4, 9)) if lead is None else 0
            most = 3 if order == 9 else 40 if rng.random() < 0.9 else 300
            if lead is not None and failures[lead] == 9 and rng.random() < 0.3:
                order, most = 9, 2  # the second attempt
            for _ in range(rng.randrange(1, most)):
                unit = Unit(name, task, order if rng.random() < 0.95 else 0, None, lead)
                name += 1
                own.append(unit)
                rows.append((at.ALLOC, unit.name, unit.order, 0))
                tasks.append(task)
                if lead is not None:
                    leads[unit.name] = lead
        units += own
        if rng.random() < 0.4:
            own = rng.sample(own, len(own))
        mapped[task].append(own)
        if rng.random() < 0.5:
            unmap(task, rng.choice((1.0, 1.0, 0.9)))
    for task in mapped:
        unmap(task, rng.choice((1.0, 0.9, 0.0)))
    events = np.zeros(len(rows), at.EVENT)
    for column, values in zip(
        ("operation", "object", "order", "cpu"), zip(*rows, strict=True), strict=True
    ):
        events[column] = values
    events["time_ns"] = np.arange(len(rows))
    events["bits"] = np.where(events["operation"] == at.FREE, 0, ANON)
    objects = np.zeros(name, resolved.OBJECT)
    for _, number, order, _ in rows:
        objects["order"][number] = order
    link = np.full(name, -1, np.int32)
    for number, lead in leads.items():
        link[number] = lead
    counted = dict.fromkeys(
        ("missed_frees", "split_frees", "hidden_allocations", "hidden_over_losses"), 0
    ) | dict.fromkeys(("repeated_frees", "failed_charges", "recorded_twice", "outside"), 0)
    demand = Demand(
        events=events, objects=objects, leads=link, kswapd_recorded=False,
        direct_reclaim_recorded=False, **counted,
    )  # fmt: skip
    return units, failures, demand, np.array(tasks, np.int64)


def outlines(demand: Demand, named: dict[int, int], known: int) -> list[tuple[object, ...]]:
    """Trees of requests by what replaces what; `named` has objects by recorded time."""
    requests = demand.events[np.isin(demand.events["operation"], (at.ALLOC, at.RECORDED_FAILURE))]
    requests = requests[requests["object"] >= 0]
    failed = set(demand.recorded["object"][demand.recorded["operation"] == at.RECORDED_FAILURE])
    children: dict[int, list[int]] = {}
    first = dict(zip(requests["object"].tolist(), requests["time_ns"].tolist(), strict=True))
    for number in first:
        children.setdefault(int(demand.leads[number]), []).append(number)

    def outline(number: int) -> tuple[object, ...]:
        below = tuple(sorted(outline(each) for each in children.get(number, [])))
        kind = "made" if number >= known else "failure" if number in failed else "unit"
        return int(demand.objects["order"][number]), named[first[number]], kind, below

    return sorted(outline(number) for number in children[-1])


@pytest.mark.parametrize("seed", range(100))
def test_faults_ask_as_the_oracle_says(seed: int) -> None:
    units, failures, demand, tasks = drawn(seed)
    mask = random.Random(seed).choice((0, 1 << 4, 1 << 9, 1 << 4 | 1 << 9, 1 << 2 | 1 << 3, 0x3FC))
    touched = random.Random(seed).choice((512, 60))
    elastic = ElasticAssumptions(base_pages_per_huge=touched)
    found = with_anon_orders(demand, tasks, Policy(huge_anon_orders=mask), elastic)
    named = {
        int(event["time_ns"]): int(event["object"])
        for event in demand.events
        if event["operation"] != at.FREE
    }
    expected = Asked(units, failures, mask, touched)
    trees = outlines(found, named, len(demand.objects))
    assert trees == sorted(ask.outline() for ask in expected.tops)
    assert (np.diff(found.events["time_ns"]) >= 0).all()
    _check_frees(found)


def _check_frees(demand: Demand) -> None:
    """Nothing is freed twice, before it was asked for, or before what it stands for."""
    frees = demand.events["operation"] == at.FREE
    number, row = demand.events["object"][frees], np.flatnonzero(frees)
    assert len(set(number.tolist())) == len(number)
    begun = {n: r for r, n in enumerate(demand.events["object"].tolist()) if not frees[r]}
    assert all(begun[n] < r for n, r in zip(number.tolist(), row.tolist(), strict=True))
    failed = set(demand.recorded["object"][demand.recorded["operation"] == at.RECORDED_FAILURE])
    freed = dict(zip(number.tolist(), demand.events["time_ns"][frees].tolist(), strict=True))
    for child, lead in enumerate(demand.leads.tolist()):
        if lead in freed and child in freed:
            assert freed[lead] >= freed[child]
            assert begun[lead] < begun[child] or lead in failed


def test_a_mask_splits_and_joins_faults_of_a_recording() -> None:
    recording = pm.open("highatomic_gate3")
    recorded = pm.replay(recording, assumptions=ELASTIC)
    small = pm.replay(recording, Policy(huge_anon_orders=1 << 4), assumptions=ELASTIC)
    asked_for = small.folios.set_index(["class", "order"])["asked"]
    assert ("anon", 9) not in asked_for.index and asked_for["anon", 4] > 100
    assert small.divergence["faults_split"] > 50
    assert "faults_split" not in recorded.divergence
    by_class = recorded.folios.set_index(["class", "order"])["asked"]
    assert asked_for["file", 0] == by_class["file", 0]


def test_a_literal_replay_has_no_such_policy() -> None:
    recording, policy = pm.open("highatomic_gate3"), Policy(huge_anon_orders=0)
    with pytest.raises(PolicyError):
        pm.replay(recording, policy, assumptions=Assumptions(reclaim="literal"))


def test_a_comparison_allows_other_orders_of_faults() -> None:
    recording = pm.open("highatomic_gate3")
    base = pm.replay(recording, assumptions=ELASTIC)
    patch = pm.replay(recording, Policy(huge_anon_orders=1 << 4), assumptions=ELASTIC)
    comparison = pm.compare(base, patch)
    rows = comparison.rows.set_index(["metric", "scope"])
    assert rows.loc[("thp_fault_alloc", "all"), "verdict"] == "unknown"
    assert rows.loc[("folio_success", "class=anon,order=9"), "verdict"] == "unknown"
    assert rows.loc[("thp_fault_alloc", "all"), "base"] > 0
    assert rows.loc[("reclaim_scanned", "kswapd"), "verdict"] != "unknown"
    assert OTHER_ORDERS in " ".join(comparison.to_text().split())
    other = pm.replay(pm.open("mixed_6.1"), assumptions=ELASTIC)
    with pytest.raises(UsageError, match="different recordings"):
        pm.compare(base, replace(other, name=base.name, rules=base.rules))
