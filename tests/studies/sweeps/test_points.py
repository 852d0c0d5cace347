"""Designs: grids, one axis at a time, space-filling ones, and the words of `--vary`."""

import pytest

import pagealloc_model as pm
from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.policy.policy import policy_settings
from pagealloc_model.studies.sweeps import one_at_a_time, space_filling
from pagealloc_model.studies.sweeps.design import Settings, grid, parse_vary


def test_a_grid_is_every_combination_once() -> None:
    points = grid({"pcp_batch": [15, 31, 15], "costly_order": [0, 3]})
    assert points == [
        {"pcp_batch": batch, "costly_order": order} for batch in (15, 31) for order in (0, 3)
    ]


def test_one_at_a_time_begins_with_the_base() -> None:
    points = one_at_a_time({"pcp_batch": [15, 31], "costly_order": [0]})
    assert points == [{}, {"pcp_batch": 15}, {"pcp_batch": 31}, {"costly_order": 0}]


def test_a_space_filling_design_covers_each_axis_evenly() -> None:
    ranges = {"pcp_batch": (1, 64), "pcp_free_batched": None, "costly_order": (0, 7)}
    points = space_filling(ranges, 64, seed=3)
    assert sorted(point["pcp_batch"] for point in points) == list(range(1, 65))
    assert [point["costly_order"] for point in points].count(5) == 8
    assert [point["pcp_free_batched"] for point in points].count(True) == 32
    assert points == space_filling(ranges, 64, seed=3)
    assert points != space_filling(ranges, 64, seed=4)


def test_a_design_of_few_values_has_no_point_twice() -> None:
    points = space_filling({"pcp_free_batched": None}, 9)
    assert sorted(point["pcp_free_batched"] for point in points) == [False, True]


def test_words_of_vary_are_lists_and_ranges_of_their_kind() -> None:
    words = [
        "pcp_batch=15,31:33,none",
        "costly_order=0:9:3",
        "pcp_free_batched=0,1",
        "rules=6.12,6.18",
        "assumptions.counters=exact,lagged",
        "assumptions.decay_phase_ns=0:1000:500",
    ]
    assert parse_vary(words) == {
        "pcp_batch": [15, 31, 32, 33, None],
        "costly_order": [0, 3, 6, 9],
        "pcp_free_batched": [False, True],
        "rules": ["6.12", "6.18"],
        "assumptions.counters": ["exact", "lagged"],
        "assumptions.decay_phase_ns": [0, 500, 1000],
    }


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (["pcp_batch"], UsageError, "write FIELD=VALUE"),
        (["pcp_batch=1", "pcp_batch=2"], UsageError, "named twice"),
        (["pcp_batch=9:1"], UsageError, "START to STOP"),
        (["pcp_batch=1:x"], UsageError, "whole numbers"),
        (["highatomic_from_pcp=maybe"], PolicyError, "write 0 or 1"),
        (["pcp_batch=many"], PolicyError, "write a whole number"),
        (["pcp_bat=3"], PolicyError, "cannot vary 'pcp_bat'; did you mean pcp_batch"),
        (["assumptions.luck=3"], PolicyError, "cannot vary 'assumptions.luck'"),
    ],
)
def test_words_that_mean_nothing_are_refused(
    words: list[str], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        parse_vary(words)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"pcp_batch": 0}, "outside 1 to 511"),
        ({"costly_order": True}, "write a whole number"),
        ({"policy": 3}, "give a Policy"),
        ({"rules": "5.4"}, "5.4"),
        ({"assumptions.counters": "guessed"}, "guessed"),
    ],
)
def test_values_no_replay_takes_are_refused_before_it(values: dict[str, object], said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        Settings().with_values(values)


def test_a_field_goes_on_top_of_a_whole_policy() -> None:
    settings = Settings().with_values(
        {"pcp_batch": 15, "policy": pm.Policy(pcp_batch=63, costly_order=5)}
    )
    assert settings.policy == pm.Policy(pcp_batch=15, costly_order=5)


def test_none_is_as_recorded_whatever_all_points_have_in_common() -> None:
    base = Settings(policy=pm.Policy(pcp_batch=15, costly_order=5))
    assert base.with_values({"pcp_batch": None}).policy == pm.Policy(costly_order=5)


def test_nested_fields_go_by_dotted_names() -> None:
    name = "ownership.fit_test"
    words = policy_settings()[name].metadata["choices"]
    assert parse_vary([f"{name}={','.join(words)}"]) == {name: list(words)}
    point = {name: words[-1], "pageblock_ownership": "pcp_buddy"}
    assert Settings().with_values(point).policy.given() == point
