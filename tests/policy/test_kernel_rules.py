"""Kernel rules: presets, and which one a kernel release gets."""

import re
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import pytest

from pagealloc_model.base.errors import PolicyError
from pagealloc_model.policy.kernel_rules import PRESETS, KernelRules, preset_names

NO_RULES = ("name", "source", "inferred")


def test_presets_are_oldest_first_and_named_after_themselves() -> None:
    assert preset_names() == ("6.1", "6.12", "6.15", "6.18", "7.2", "7.3")
    for name in preset_names():
        assert KernelRules.preset(name).name == name


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        PolicyError, match=r"no rules preset '2\.4'.*6\.1, 6\.12, 6\.15, 6\.18, 7\.2"
    ):
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
        ("6.15.0-rc1", "6.15", "from kernel release"),
        ("7.0", "6.18", "between presets"),
        ("7.3.4+deb13-amd64", "7.3", "from kernel release"),
        ("7.10.1", "7.3", "newer than every preset"),
        ("8.1.0", "7.3", "newer than every preset"),
        ("", "7.3", "unknown"),
        ("custom-build", "7.3", "unknown"),
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
    rules = [each for each in fields(KernelRules) if each.name not in NO_RULES]
    for rule in rules:
        assert rule.metadata["meaning"]
        assert rule.metadata["source"].startswith("S")
    assert KernelRules.rule_names() == tuple(rule.name for rule in rules)


def test_a_preset_rests_on_source_or_says_what_it_infers() -> None:
    for preset in PRESETS.values():
        assert bool(preset.source) != bool(preset.inferred)
        assert set(preset.inferred) <= set(KernelRules.rule_names())
        assert preset.source.startswith(preset.name) or not preset.source


@pytest.mark.parametrize("words", ["7.2", "7.2,free_batched=false"])
def test_rules_are_named_by_words_and_spelled_with_them(words: str) -> None:
    rules = KernelRules.named(words)
    assert rules.spelled() == words
    assert rules.name == "7.2"
    assert rules.free_batched == (words == "7.2")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("2.4", "no rules preset '2.4'"),
        ("7.2,nonsense=true", "no field 'nonsense'"),
        ("7.2,free_batched", "free_batched=true or"),
        ("7.2,free_batched=1", "free_batched=true or"),
        ("7.2,name=true", "no field 'name'"),
    ],
)
def test_words_that_name_no_rules_are_refused(words: str, complaint: str) -> None:
    with pytest.raises(PolicyError, match=complaint):
        KernelRules.named(words)


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ("7.2", "7.3", "highatomic_fastpath highatomic_slowpath_only promoted_fall_back_afresh"),
        ("6.12", "6.15", "decay_batched highatomic_needs_high suitable_by_request_mark"),
        (
            "6.12",
            "6.18",
            "high_order_flush_adds_half_high_min skips_busy_kswapd_nodes claim_looks_first",
        ),
    ],
)
def test_kernels_differ_where_s13_says(before: str, after: str, changed: str) -> None:
    old, new = KernelRules.preset(before), KernelRules.preset(after)
    assert {
        rule for rule in KernelRules.rule_names() if getattr(old, rule) != getattr(new, rule)
    } == set(changed.split())


def _kernels(rule: str, *, held: bool) -> str:
    """Words on the presets in which a rule has a value; 6.15, a posted tree, if no other has."""
    series = [name for name in preset_names() if name != "6.15"]
    found = [name for name in series if getattr(KernelRules.preset(name), rule) == held]
    if not found:
        return "6.15 only"
    first, last = series.index(found[0]), series.index(found[-1])
    assert found == series[first : last + 1]
    if last == len(series) - 1:
        return f"from {found[0]}"
    return f"up to {found[-1]}" if last else f"{found[0]} only"


def test_kernels_stand_beside_the_lines_that_read_a_rule(checkout: Path) -> None:
    wrong = []
    for file in sorted((checkout / "pagealloc_model/allocator").glob("*.py")):
        lines = file.read_text().splitlines()
        for before, line in pairwise(lines):
            read = re.search(r"(not )?m\.st\[at\.RULE_(\w+)\]", line)
            if read:
                words = _kernels(read[2].lower(), held=not read[1])
                if not line.endswith(f"# {words}") and before.strip() != f"# {words}":
                    wrong.append(f"{file}: # {words}: {line}")
    assert wrong == []
