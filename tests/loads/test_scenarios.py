"""Synthetic demand: what is asked for and freed, the runner, and a run as a recording."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.base.errors import UsageError
from pagealloc_model.cli.main import main
from pagealloc_model.loads.scenarios import SCENARIOS, purgers
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.recording.machine import Machine, synthetic_machine

RULES = KernelRules.preset("6.18")


def machine(gib: float = 1, nr_cpus: int = 4, nodes: int = 1) -> Machine:
    return synthetic_machine(gib, nr_cpus, RULES, nodes=nodes)


@pytest.mark.parametrize("name", SCENARIOS)
def test_everything_is_allocated_once_and_freed_later(name: str) -> None:
    scenario = SCENARIOS[name](machine())
    events = scenario.events
    assert (np.diff(events["time_ns"]) >= 0).all()
    allocated = events[events["operation"] == at.ALLOC]
    freed = events[events["operation"] == at.FREE]
    assert sorted(allocated["object"]) == sorted(freed["object"]) == list(range(scenario.objects))
    when = np.zeros(scenario.objects, np.int64)
    when[allocated["object"]] = allocated["time_ns"]
    assert (freed["time_ns"] > when[freed["object"]]).all()


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_seed_gives_the_same_demand_again(name: str) -> None:
    first, again, other = (SCENARIOS[name](machine(), seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(first.events, again.events)
    assert not np.array_equal(first.events["time_ns"], other.events["time_ns"])


def test_a_machine_has_the_memory_asked_for() -> None:
    small, large = machine(), machine(1024, 316)
    assert [zone.name for zone in small.zones] == ["DMA", "DMA32", "Normal"]
    assert sum(zone.managed for zone in small.zones) == 1 << 18
    assert sum(zone.managed for zone in large.zones) == 1024 << 18
    normal = large.zones[2]
    assert normal.min < normal.low < normal.high
    assert large.zones[0].lowmem_reserve[2] == (large.zones[1].managed + normal.managed) // 256
    assert machine(4, 4, nodes=2).cpu_nodes == (0, 1, 0, 1)


@pytest.mark.parametrize(("gib", "nr_cpus", "nodes"), [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_no_machine_is_refused(gib: float, nr_cpus: int, nodes: int) -> None:
    with pytest.raises(UsageError, match=r"needs a CPU|more than 0"):
        machine(gib, nr_cpus, nodes)


def test_somebody_must_allocate() -> None:
    with pytest.raises(UsageError, match="at least one must purge"):
        purgers(machine(), purging_cpus=4)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("synth") / "exit"
    words = ["synth", "exit", "-o", str(path), "--cpus", "2", "--gib", "1", "--rules", "6.18"]
    assert main([*words, "--number", "pages=3000"]) == 0
    return path


def test_it_opens_and_replays(written: Path) -> None:
    recording = pm.open(written)
    assert len(recording.trace) == 2 * 2 * 3000
    assert recording.snapshots[0].problems == {}
    replay = pm.replay(recording)
    assert replay.rules.name == "6.18"
    assert replay.divergence["failed"] == replay.divergence["orphan_frees"] == 0


def test_the_model_holds_the_lock_as_in_the_scenario(written: Path) -> None:
    """The same machine, demand and start: the same refills and drains."""
    scenario = pm.synthetic.scenario("exit", gib=1, nr_cpus=2, rules="6.18", pages=3000)
    run = pm.synthetic.run(scenario, rules="6.18")
    replay = pm.replay(pm.open(written))
    first = int(scenario.events["time_ns"][0])
    assert replay.log["time_ns"][0] == run.log["time_ns"][0] == first
    refills = [log["objects"][log["kind"] == 0] for log in (replay.log, run.log)]
    assert np.array_equal(*refills)


def test_it_does_not_write_over_anything(written: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["synth", "churn", "-o", str(written), "--cpus", "1", "--gib", "1"]) == 2
    assert "not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--number", "pages"], "NUMBER=VALUE"),
        (["--number", "sheep=3"], "takes pages"),
        (["--gib", "0"], "more than 0"),
    ],
)
def test_wrong_numbers_are_refused(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture
) -> None:
    assert main(["synth", "exit", "-o", str(tmp_path / "x"), *words]) == 2
    assert said in capsys.readouterr().err


NEWER = pm.KernelRules.preset("7.2")


@pytest.fixture(scope="module")
def demand() -> pm.synthetic.Demand:
    return pm.synthetic.scenario("churn", gib=1, nr_cpus=2, pages=3000, rules=NEWER)


def test_instants_and_parts_change_nothing_but_the_samples(demand: pm.synthetic.Demand) -> None:
    whole = pm.synthetic.run(demand, rules=NEWER)
    times = demand.events["time_ns"]
    first, end = int(times[len(times) // 3]), int(times[-1]) + 1
    parts = replace(demand, parts=lambda: iter(np.array_split(demand.events, 7)))
    split = pm.synthetic.run(
        parts, rules=NEWER, at_ns=[first, end], look=lambda state: int(state.st[at.COUNT_ALLOC])
    )
    assert split.samples.time_ns.tolist() == [first, end]
    before = (demand.events["operation"] == at.ALLOC) & (times < first)
    assert split.seen[0] == before.sum()
    assert np.array_equal(split.log, whole.log)
    assert np.array_equal(split.places, whole.places)
    alone = pm.synthetic.run(demand, rules=NEWER, at_ns=[first])
    assert alone.events == (times < first).sum()
    assert np.array_equal(alone.samples.free_buddies[0], split.samples.free_buddies[0])


def test_holds_that_are_not_kept_are_counted(demand: pm.synthetic.Demand) -> None:
    logged = pm.synthetic.run(demand, rules=NEWER)
    counted = pm.synthetic.run(demand, rules=NEWER, keep_holds=False)
    assert len(counted.log) == 0 < len(logged.log)
    assert counted.transactions.equals(logged.transactions)
    refills = logged.holds().query("site in ('refill', 'empty_refill')")
    last = counted.counts.iloc[-1]
    assert (last["refills"], last["refill_pages"]) == (len(refills), refills["pages"].sum())
