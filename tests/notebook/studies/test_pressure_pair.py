"""Which counters of recordings with a policy off and on can be compared at all."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd
import pytest
from pagealloc_model.notebooks.studies import pressure_pair

from pagealloc_model.policy.policy import Policy

RECORDED = {
    "off": {"far": 100, "near": 100},
    "same": {"far": 110, "near": 110},
    "on": {"far": 200, "near": 115},
}


def measured(name: str) -> SimpleNamespace:
    """Two snapshots, the counters' changes between them."""
    rows = [
        (counter, time_ns, value if time_ns else 0)
        for counter, value in RECORDED[name].items()
        for time_ns in (0, 1)
    ]
    return SimpleNamespace(
        name=name, vmstat=pd.DataFrame(rows, columns=["name", "time_ns", "value"])
    )


@pytest.fixture(autouse=True)
def made_up_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model says 1 with the policy off and 2 with it on, whatever the recording."""

    def counters(policy: Policy, recorded: SimpleNamespace) -> pd.DataFrame:
        values = RECORDED[recorded.name]
        predicted = 2 if policy.defrag_mode else 1
        return pd.DataFrame(
            {"name": list(values), "measured": list(values.values()), "predicted": predicted}
        )

    monkeypatch.setattr(pressure_pair, "measure", measured)
    monkeypatch.setattr(pressure_pair, "replay", lambda _, policy, assumptions: policy)
    monkeypatch.setattr(pressure_pair, "pressure_counters", counters)
    monkeypatch.setattr(pressure_pair, "forget_prepared", lambda _: None)


def test_only_what_differs_by_more_than_twice_the_spread_is_measurable() -> None:
    table = pressure_pair.counters_of_pair("off", "on", "same", "defrag_mode").set_index("name")
    assert table["measurable"].to_dict() == {"far": True, "near": False}
    assert table.loc["far", ["off", "same", "on"]].tolist() == [100, 110, 200]
    assert table["from_off_off"].tolist() == table["from_on_off"].tolist() == [1, 1]
    assert table["from_off_on"].tolist() == table["from_on_on"].tolist() == [2, 2]
    assert table["verdict"].to_dict() == {
        "far": "measured +100%, predicted +100%",
        "near": "no measurable effect, predicted +100%",
    }
