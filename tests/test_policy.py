"""Policy and assumptions: ranges, text settings, and what each field says of itself."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagealloc_model.errors import PolicyError
from pagealloc_model.policy import Assumptions, Policy, field_kinds

FIELDS = {each.name: each.metadata for each in fields(Policy)}
NUMBERS = [name for name, kind in field_kinds().items() if kind == "int"]
SWITCHES = [name for name, kind in field_kinds().items() if kind == "bool"]


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_carries_what_sliders_and_help_need(name: str) -> None:
    about = FIELDS[name]
    for key in ("kernel_name", "meaning", "source", "group"):
        assert about[key]
    assert about["minimum"] < about["maximum"]
    assert about["step"] >= 1
    if about["default"] is not None:
        assert about["minimum"] <= about["default"] <= about["maximum"]
    assert getattr(Policy(), name) is None


@pytest.mark.parametrize("name", NUMBERS)
def test_ranges_are_kept(name: str) -> None:
    low, high = FIELDS[name]["minimum"], FIELDS[name]["maximum"]
    for value in (low, high):
        assert Policy(**{name: value}).given() == {name: value}
    for value in (low - 1, high + 1):
        with pytest.raises(PolicyError, match=f"{name}={value} is outside {low} to {high}"):
            Policy(**{name: value})
    for wrong in (1.5, "3", [3]):
        with pytest.raises(PolicyError, match="whole number"):
            Policy(**{name: wrong})


@pytest.mark.parametrize("name", NUMBERS)
def test_a_switch_is_no_number(name: str) -> None:
    with pytest.raises(PolicyError, match="whole number"):
        Policy(**{name: True})


@pytest.mark.parametrize("name", SWITCHES)
def test_a_number_other_than_0_or_1_is_no_switch(name: str) -> None:
    assert Policy(**{name: True}).given() == {name: True}
    for wrong in (7, -1, "yes", 0.5):
        with pytest.raises(PolicyError, match=name):
            Policy(**{name: wrong})


def test_nothing_changed_says_so() -> None:
    assert str(Policy()) == "as recorded"
    assert Policy().given() == {}
    assert str(Policy(pcp_batch=31, pcp_free_batched=True)) == "pcp_batch=31 pcp_free_batched=1"


@pytest.mark.parametrize(
    ("words", "given_values"),
    [
        ([], {}),
        (["pcp_batch=31"], {"pcp_batch": 31}),
        (["pcp_batch = 31", "costly_order=2"], {"pcp_batch": 31, "costly_order": 2}),
        (["pcp_free_batched=on"], {"pcp_free_batched": True}),
        (["pcp_free_batched=0"], {"pcp_free_batched": False}),
        (["pcp_batch=none"], {}),
        (["pcp_batch=3", "pcp_batch=5"], {"pcp_batch": 5}),
    ],
)
def test_settings_as_text(words: list[str], given_values: dict[str, int | bool]) -> None:
    assert Policy.parse(words).given() == given_values


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("pcp_batch", "field=value"),
        ("", "field=value"),
        ("batch=3", "no field 'batch'"),
        ("=3", "no field ''"),
        ("pcp_batch=", "whole number"),
        ("pcp_batch=3.5", "whole number"),
        ("pcp_batch=0x10", "whole number"),
        ("pcp_batch=-3", "outside 1 to"),
        ("pcp_free_batched=2", "write 0 or 1"),
        ("pcp_free_batched=", "write 0 or 1"),
    ],
)
def test_bad_settings_are_refused_in_one_line(word: str, complaint: str) -> None:
    with pytest.raises(PolicyError, match=complaint) as refused:
        Policy.parse([word])
    assert "\n" not in str(refused.value)


@given(st.text(max_size=30))
def test_any_text_is_a_policy_or_a_policy_error(word: str) -> None:
    try:
        Policy.parse([word])
    except PolicyError:
        return
    assert "=" in word


@pytest.mark.parametrize(
    "values",
    [
        {"reclaim": "elastic"},
        {"decay_period_ns": 10},
        {"hidden_migratetype": 3},
        {"decay_phase_ns": -1},
        {"decay_phase_ns": 1_000_000_000},
    ],
)
def test_bad_assumptions_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(PolicyError, match="assumptions"):
        Assumptions(**values)  # type: ignore[arg-type]
