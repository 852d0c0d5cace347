"""Time that made-up machines spend in the allocator, and chains of frees."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd
import pytest
from pagealloc_model.notebooks.studies.pcp_batching import system_time
from pagealloc_model.notebooks.studies.pcp_batching.lock_traffic import with_costs

import pagealloc_model as pm


def a_few_exit(policy: pm.Policy | None = None) -> pm.synthetic.Run:
    scenario = pm.synthetic.scenario("exit", gib=1, nr_cpus=2, pages=8192, rules="6.18")
    return pm.synthetic.run(scenario, policy, rules="6.18")


def test_time_at_the_locks_goes_with_their_costs() -> None:
    run = a_few_exit()
    times = with_costs(run)
    cheap, usual, dear = system_time.allocator_ns(run, times)
    assert 0 < cheap < usual < dear
    frame = times[1].acquisitions
    zone = frame["hold_ns"].sum() + frame["wait_ns"].sum()
    assert usual > zone


def test_ownership_s_share_is_of_all_that_pages_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 pages at 1,000 ns beside 50, 100 and 200 us at the locks, then twice that."""
    loads = (("purgers", 8, 1000), ("exit", 8, 1000))
    monkeypatch.setattr(system_time, "LOADS", loads)
    monkeypatch.setattr(pm.synthetic, "scenario", lambda name, **_: SimpleNamespace(objects=100))
    monkeypatch.setattr(
        pm.synthetic, "run", lambda demand, policy, rules: SimpleNamespace(policy=policy)
    )

    def allocator_ns(run: SimpleNamespace, _: object) -> list[float]:
        return [each * (2.0 if run.policy else 1.0) for each in (50e3, 100e3, 200e3)]

    monkeypatch.setattr(system_time, "allocator_ns", allocator_ns)
    monkeypatch.setattr(system_time, "with_costs", lambda _: None)
    monkeypatch.setattr(system_time, "spread", tuple)
    table = system_time.ownership().set_index("load")
    shares = [100 * 50 / 150, 100 * 100 / 200, 100 * 200 / 300]
    assert table["CPUs"].to_list() == [8, 8]
    for load in ("purgers", "exit"):
        assert table.loc[load, "system time, %"] == pytest.approx(tuple(shares))
        of_mainline = table.loc[load, "mainline in the allocator, %"]
        assert of_mainline == pytest.approx(tuple(shares))


def test_the_longest_call_is_the_drains_of_one_free() -> None:
    frame = pd.DataFrame(
        [
            ("drain", 0, 10, 5, 1),
            ("drain", 0, 10, 6, 0),
            ("drain", 1, 10, 11, 0),
            ("refill", 0, 10, 90, 0),
            ("direct_free", 0, 20, 3, 0),
        ],
        columns=["site", "cpu", "time_ns", "hold_ns", "wait_ns"],
    )
    assert system_time._longest_call(SimpleNamespace(acquisitions=frame)) == 12
    times = with_costs(a_few_exit())[1]
    assert 0 < system_time._longest_call(times) <= times.spells("drain", "direct_free")["ns"].max()
