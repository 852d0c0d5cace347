"""Studies of closed loops: time in the allocator, chains of frees, shipped experiments scored."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pandas as pd
import pytest
from pagealloc_model.notebooks.studies import closed_experiments
from pagealloc_model.notebooks.studies.pcp_batching import system_time
from pagealloc_model.notebooks.studies.pcp_batching.lock_traffic import with_costs

import pagealloc_model as pm
from pagealloc_model.numbers.statistics import NO_EFFECT, RIGHT, WITHIN, WRONG
from tests.small_recordings import shipped_recording


def a_few_exit(policy: pm.Policy | None = None) -> pm.synthetic.Run:
    scenario = pm.synthetic.scenario("exit", gib=1, nr_cpus=2, pages=8192, rules="6.18")
    return pm.synthetic.run(scenario, policy, rules="6.18")


def test_time_at_the_locks_goes_with_their_costs() -> None:
    run = a_few_exit()
    cheap, usual, dear = system_time._allocator_ns(run)
    assert 0 < cheap < usual < dear
    frame = with_costs(run)[1].acquisitions
    zone = frame["hold_ns"].sum() + frame["wait_ns"].sum()
    assert usual > zone


def test_ownership_s_share_is_of_all_that_pages_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 pages at 2,000, 1,000 and 500 ns beside 50, 100 and 200 us at the locks, then twice."""
    pages = pd.DataFrame({"site": ["refill", "drain"], "pages": [100, 7]})
    monkeypatch.setattr(system_time, "CPUS", (8,))
    monkeypatch.setattr(pm.synthetic, "scenario", lambda name, **_: name)
    monkeypatch.setattr(
        pm.synthetic,
        "run",
        lambda name, policy, rules: SimpleNamespace(policy=policy, transactions_full=pages),
    )

    def allocator_ns(run: SimpleNamespace) -> list[float]:
        return [each * (2.0 if run.policy else 1.0) for each in (50e3, 100e3, 200e3)]

    monkeypatch.setattr(system_time, "_allocator_ns", allocator_ns)
    monkeypatch.setattr(system_time, "spread", tuple)
    table = system_time.ownership().set_index("load")
    shares = [100 * 50 / 250, 100 * 100 / 200, 100 * 200 / 250]
    assert table["CPUs"].to_list() == [8, 8]
    for load in ("purgers", "exit"):
        assert table.loc[load, "system time, %"] == pytest.approx(tuple(shares))


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


def row(mode: str, verdict: str, inside: bool, predicted: float = 1.0) -> dict[str, object]:
    judged = {"mode": mode, "verdict": verdict, "inside": inside, "predicted": predicted}
    return {"plan": "one", **judged}


def test_closed_experiments_are_scored_as_experiments_are() -> None:
    rows = [
        row("closed", WITHIN, True),
        row("closed", RIGHT, False),
        row("closed", WRONG, False),
        row("closed", NO_EFFECT, True),
        row("closed", NO_EFFECT, False),
        row("closed", NO_EFFECT, False, predicted=math.nan),
        row("elastic", WRONG, False),
    ]
    score = closed_experiments.score(pd.DataFrame(rows)).set_index("mode")
    assert score.loc["closed"].drop("plan").to_dict() == {
        "effects": 3,
        "within": 1,
        "direction": 2,
        "quiet": 2,
        "quiet_inside": 1,
    }
    assert score.loc["elastic", ["effects", "direction"]].to_list() == [1, 0]


def test_times_of_the_recorded_policy_stand_beside_the_recorded_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded = dict.fromkeys(closed_experiments.TIMES, 2.0) | {"direct compaction time": 0.0}
    monkeypatch.setattr(pm, "open", lambda name: SimpleNamespace(name=name))
    monkeypatch.setattr(closed_experiments, "recorded_quantities", lambda _: recorded)
    own = dict.fromkeys(closed_experiments.TIMES, 3.0), ""
    monkeypatch.setattr(closed_experiments, "predicted_values", lambda *_: own)
    table = closed_experiments.own_times(["a", "b"]).set_index(["recording", "metric"])
    assert len(table) == 2 * len(closed_experiments.TIMES)
    assert table.loc[("b", "run time"), "share"] == 1.5
    assert math.isnan(table.loc[("a", "direct compaction time"), "share"])


def test_a_beginning_s_relative_change_is_of_what_whole_runs_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Replays of the beginning say +50 % under every other policy, and 0 stays 0."""

    def predicted(
        recording: object, cache: object, mode: str, policy: pm.Policy, rules: str = ""
    ) -> tuple[dict[str, float], str]:
        factor = 1.0 if policy == pm.Policy() else 1.5
        return {"refills": 10 * factor, "drains": 4.0, "fallbacks": 0.0}, ""

    shipped_recording(closed_experiments.RECORDINGS["two_nodes"]["A"])
    monkeypatch.setattr(closed_experiments, "predicted_values", predicted)
    shares = closed_experiments.relative_predictions("two_nodes")
    assert set(shares["mode"]) == set(closed_experiments.MODES)
    by_metric = shares.groupby("metric")["share"]
    assert by_metric.nunique().to_dict() == {"drains": 1, "fallbacks": 1, "refills": 1}
    assert by_metric.first().to_dict() == pytest.approx(
        {"drains": 0.0, "fallbacks": 0.0, "refills": 0.5}
    )
    table = closed_experiments.judged("two_nodes")
    closed = table[(table["mode"] == "closed") & (table["metric"] == "refills")]
    assert closed["predicted"].to_list() == pytest.approx((closed["before"] / 2).to_list())
    null = table[table["mode"] == closed_experiments.NULL]
    assert (null["predicted"] == 0).all()
    assert not null["verdict"].isin([WITHIN, RIGHT]).any()
