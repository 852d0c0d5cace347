"""One elastic scenario on the oracle and on the model at once."""

from __future__ import annotations

from typing import Any

from tests.allocator.agreement import assert_same_state
from tests.allocator.elastic_driver import ElasticDriver
from tests.oracle.dump import dump_elastic
from tests.oracle.elastic import ElasticOracle
from tests.oracle.elastic_scenarios import ElasticScenario

DUMP_EVERY = 10
"""Steps between two comparisons of the whole state."""


def assert_elastic_agreement(
    scenario: ElasticScenario, dump_every: int = DUMP_EVERY
) -> ElasticOracle:
    """Run a scenario on both.

    Returns:
        The oracle at the end.

    Raises:
        AssertionError: a step after which they differ, and in what.
    """
    oracle = scenario.started()
    model = ElasticDriver(oracle)
    assert_same(model, oracle, "at the start")
    unreserved = 0
    for number, step in enumerate(scenario.run(oracle)):
        model.take(step)
        unreserved += sum(event[:2] == ("hold", "unreserve") for event in oracle.events)
        assert model.unreserve_holds() == unreserved, f"holds to unreserve after step {number}"
        if number % dump_every == 0:
            assert_same(model, oracle, f"after step {number}, {step}")
    assert_same(model, oracle, "at the end")
    return oracle


def assert_same(model: ElasticDriver, oracle: ElasticOracle, when: str) -> None:
    """Compare everything."""
    assert_same_state(model.dump_elastic(), dump_elastic(oracle), when)
    assert_same_state(model.dump(), plain_dump(oracle), when)


def plain_dump(oracle: ElasticOracle) -> dict[str, Any]:
    """The oracle's state without what literal replays count."""
    found = oracle.dump()
    del found["divergence"]
    return found
