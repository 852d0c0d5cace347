"""Policy and assumptions: ranges, text settings, and what each field says of itself."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagealloc_model.base.errors import PolicyError
from pagealloc_model.policy.ownership_options import OwnershipOptions
from pagealloc_model.policy.policy import Assumptions, Policy, policy_settings

FIELDS = {name: each.metadata for name, each in policy_settings().items()}
NUMBERS = [name for name, about in FIELDS.items() if about["kind"] == "int"]
SWITCHES = [name for name, about in FIELDS.items() if about["kind"] == "bool"]
CHOICES = [name for name, about in FIELDS.items() if about["kind"] == "choice"]


def policy_with(name: str, value: object) -> Policy:
    return Policy.from_settings({name: value})  # type: ignore[dict-item]


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_carries_what_sliders_and_help_need(name: str) -> None:
    about = FIELDS[name]
    for key in ("kernel_name", "meaning", "source", "group"):
        assert about[key]
    if about["kind"] == "choice":
        assert about["default"] in about["choices"]
        return
    assert about["minimum"] < about["maximum"]
    assert about["step"] >= 1
    if about["default"] is not None:
        assert about["minimum"] <= about["default"] <= about["maximum"]


@pytest.mark.parametrize("name", NUMBERS)
def test_ranges_are_kept(name: str) -> None:
    low, high = FIELDS[name]["minimum"], FIELDS[name]["maximum"]
    for value in (low, high):
        stands_out = value != policy_settings()[name].default
        assert policy_with(name, value).given() == ({name: value} if stands_out else {})
    for value in (low - 1, high + 1):
        with pytest.raises(PolicyError, match=f"{name}={value} is outside {low} to {high}"):
            policy_with(name, value)
    for wrong in (1.5, "3", [3], True):
        with pytest.raises(PolicyError, match="whole number"):
            policy_with(name, wrong)


@pytest.mark.parametrize("name", SWITCHES)
def test_a_number_other_than_0_or_1_is_no_switch(name: str) -> None:
    changed = policy_settings()[name].default is not True
    assert policy_with(name, changed).given() == {name: changed}
    for wrong in (7, -1, "yes", 0.5):
        with pytest.raises(PolicyError, match=name):
            policy_with(name, wrong)


@pytest.mark.parametrize("name", CHOICES)
def test_only_choices_are_taken(name: str) -> None:
    for choice in FIELDS[name]["choices"]:
        assert policy_with(name, choice) == policy_with(name, choice)
    for wrong in ("nonsense", 3, True, [1]):
        with pytest.raises(PolicyError, match=f"{name}=.*use one of"):
            policy_with(name, wrong)


@pytest.mark.parametrize("text", ["256 32 0", "0", "1  2147483647"])
def test_several_numbers_are_kept_as_written(text: str) -> None:
    policy = Policy.parse([f"lowmem_reserve_ratio={text}"])
    assert policy.given() == {"lowmem_reserve_ratio": text}


@pytest.mark.parametrize("wrong", ["", "256,32", "-1 4", "256 x", "2147483648", 256, [256, 32]])
def test_what_is_no_row_of_whole_numbers_is_refused(wrong: object) -> None:
    with pytest.raises(PolicyError, match=r"lowmem_reserve_ratio=.*write whole numbers from 0"):
        policy_with("lowmem_reserve_ratio", wrong)


def test_settings_come_back_from_json() -> None:
    policy = Policy(
        pcp_batch=31,
        pageblock_ownership="pcp_buddy",
        ownership=OwnershipOptions(fit_test="always", recovers=False),
    )
    assert Policy.from_settings(json.loads(json.dumps(policy.given()))) == policy
    assert str(policy) == (
        "pcp_batch=31 pageblock_ownership=pcp_buddy ownership.fit_test=always ownership.recovers=0"
    )


def test_a_policy_changes_only_what_it_gives() -> None:
    base = Policy(pcp_batch=31, ownership=OwnershipOptions(recovers=False))
    changed = base.changed_by(Policy(costly_order=2, ownership=OwnershipOptions(recorded_cap=4)))
    assert changed.given() == {
        "pcp_batch": 31,
        "costly_order": 2,
        "ownership.recovers": False,
        "ownership.recorded_cap": 4,
    }


def test_nothing_changed_says_so() -> None:
    assert str(Policy()) == "as recorded"
    assert Policy().given() == {}
    assert str(Policy(pcp_batch=31, pcp_free_batched=True)) == "pcp_batch=31 pcp_free_batched=1"


def test_a_field_that_is_given_twice_is_refused() -> None:
    with pytest.raises(PolicyError, match="'pcp_batch=5': pcp_batch is given twice"):
        Policy.parse(["pcp_batch=3", "pcp_batch=5"])


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
        ("pageblock_ownership=yes", "use one of off, pcp_buddy"),
        ("pageblock_ownership=", "use one of off, pcp_buddy"),
        ("ownership=high", "no field 'ownership'"),
        ("ownership.fit=high", "no field 'ownership.fit'"),
        ("ownership.fit_test=3", "ownership.fit_test=3: use one of high, high_max, always"),
        ("ownership.remote_free=zone", "use one of spin, trylock, lockless"),
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
        {"reclaim": "magic"},
        {"start": "warm"},
        {"decay_period_ns": 10},
        {"hidden_migratetype": 3},
        {"decay_phase_ns": -1},
        {"decay_phase_ns": 1_000_000_000},
    ],
)
def test_bad_assumptions_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(PolicyError, match="assumptions"):
        Assumptions(**values)  # type: ignore[arg-type]


def test_a_lower_bound_above_the_upper_one_is_refused() -> None:
    """Alone each may cross the machine's other bound, as the kernel's own may (S4.3)."""
    with pytest.raises(PolicyError, match="huge_anon_orders=6: the smallest size is 16 KiB"):
        Policy(huge_anon_orders=6)
    with pytest.raises(PolicyError, match="pcp_high_min=9 is above pcp_high_max=8"):
        Policy(pcp_high_min=9, pcp_high_max=8)
    with pytest.raises(PolicyError, match="is above"):
        Policy(pcp_high_min=9).changed_by(Policy(pcp_high_max=8))
    assert Policy(pcp_high_min=8, pcp_high_max=8).pcp_high_max == 8
    assert Policy(pcp_high_min=1 << 20).given() == {"pcp_high_min": 1 << 20}


def test_a_policy_is_written_as_what_makes_it() -> None:
    nested = Policy.parse(["pcp_batch=3", "ownership.fit_test=always"])
    for policy in (Policy(), Policy(pcp_batch=3, thp_defrag="never"), nested):
        assert eval(repr(policy), {"Policy": Policy}) == policy


@pytest.mark.parametrize("text", ["3_1", "1" * 5000, "٣", "0x10"])
def test_a_number_is_decimal_digits(text: str) -> None:
    with pytest.raises(PolicyError, match="write a whole number"):
        Policy.parse([f"pcp_batch={text}"])
