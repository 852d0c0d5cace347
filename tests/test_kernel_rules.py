"""Kernel rules: presets, and which one a kernel release gets."""

from dataclasses import fields

import pytest

from pagealloc_model.errors import PolicyError
from pagealloc_model.kernel_rules import PRESETS, KernelRules, preset_names


def test_presets_are_oldest_first_and_named_after_themselves() -> None:
    assert preset_names() == ("6.1", "6.12", "6.18", "7.2")
    for name in preset_names():
        assert KernelRules.preset(name).name == name


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(PolicyError, match=r"no rules preset '2\.4'.*6\.1, 6\.12, 6\.18, 7\.2"):
        KernelRules.preset("2.4")


@pytest.mark.parametrize(
    ("release", "name", "why"),
    [
        ("6.1.192", "6.1", "from kernel release"),
        ("6.11.3", "6.1", "between presets"),
        ("6.12.117", "6.12", "from kernel release"),
        ("6.18.44-fc-v595", "6.18", "from kernel release"),
        ("7.2.0-rc3", "7.2", "from kernel release"),
        ("6.14.0-generic", "6.12", "between presets"),
        ("7.0", "6.18", "between presets"),
        ("7.10.1", "7.2", "newer than every preset"),
        ("8.1.0", "7.2", "newer than every preset"),
        ("", "7.2", "unknown"),
        ("custom-build", "7.2", "unknown"),
    ],
)
def test_a_release_gets_the_nearest_older_preset(release: str, name: str, why: str) -> None:
    rules, line = KernelRules.for_release(release)
    assert rules is PRESETS[name]
    assert why in line
    assert name in line


@pytest.mark.parametrize("release", ["5.10.0", "6.0.19", "2.6.32-el6"])
def test_an_older_kernel_is_refused_with_the_way_out(release: str) -> None:
    with pytest.raises(PolicyError, match="--rules"):
        KernelRules.for_release(release)


def test_every_rule_says_what_it_is_and_where_from() -> None:
    rules = [each for each in fields(KernelRules) if each.name not in ("name", "inferred")]
    for rule in rules:
        assert rule.metadata["meaning"]
        assert rule.metadata["source"].startswith("S")
    for preset in PRESETS.values():
        assert [name for name, _, _ in preset.describe()] == [rule.name for rule in rules]
        assert set(preset.inferred) <= {rule.name for rule in rules}


def test_rules_inferred_are_told_from_those_read() -> None:
    described = KernelRules.preset("6.18").describe()
    assert "inferred" in {origin for _, _, origin in described}
    assert {origin for _, _, origin in KernelRules.preset("7.2").describe()} == {"preset 7.2"}


def test_what_changed_between_kernels() -> None:
    oldest, old, newer, newest = (KernelRules.preset(name) for name in preset_names())
    assert (oldest.pcp_auto_tuned, old.pcp_auto_tuned) == (False, True)
    assert (oldest.fallback_from_largest, old.fallback_from_largest) == (True, False)
    assert not old.high_order_flush_adds_half_high_min
    assert newer.high_order_flush_adds_half_high_min
    assert (newest.free_batched, newer.free_batched) == (True, False)
    assert (newest.highatomic_from_pcp, newer.highatomic_from_pcp) == (False, True)
