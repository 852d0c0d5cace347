"""Plans: what a TOML file says, and one clear line for each thing that is wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.guests.inside import SIZES
from pagealloc_model.guests.plan import (
    PLANS,
    PlanError,
    changed_plan,
    described_sides,
    find_plan,
    pairs_of,
    read_plan,
    sides_of,
)
from pagealloc_model.policy.policy import Policy
from tests.docs.examples import examples
from tests.guests.small_plan import PLAN, write_plan

WRONG = {
    "no_table": ('repeats = 2\nkernel = 3\n[workload]\nname = "forks"', "kernel: is no list"),
    "unknown": (f"speed = 2\n{PLAN}", "speed: no such key; there are name, kernel, vary"),
    "repeats": (PLAN.replace("repeats = 2", "repeats = 0"), "repeats: 0 is no number of 1 or more"),
    "design": (
        f'design = "all"\n{PLAN}',
        "design: 'all' is none; write one of one_at_a_time, grid",
    ),
    "image": (PLAN.replace('image = "bzImage"', 'name = "x"'), r"kernel\[0\].image: is missing"),
    "kernel_key": (PLAN.replace("image", "path"), r"kernel\[0\].path: no such key"),
    "setting": (
        PLAN.replace("vm.percpu_pagelist_high_fraction", "high"),
        r"vary\[0\].setting: 'high'",
    ),
    "one_value": (PLAN.replace("[0, 8]", "[8]"), r"vary\[0\].values: give two or more different"),
    "alike": (PLAN.replace("[0, 8]", "[8, 8]"), r"vary\[0\].values: give two or more different"),
    "no_list": (PLAN.replace("[0, 8]", "8"), r"vary\[0\].values: 8 is no list"),
    "range": (PLAN.replace("[0, 8]", "[0, 4]"), r'vary\[0\].values: policy .* write policy = ""'),
    "field": (
        f'{PLAN}policy = "speed"',
        r"vary\[0\].policy: no field 'speed'; there are highatomic",
    ),
    "rules": (f'{PLAN}rules = ["6.12"]', r"vary\[0\].rules: give 2, one for each value"),
    "kernel_policy": (
        PLAN.replace('"bzImage"', '"bzImage"\npolicy = ["speed=2"]'),
        r"kernel\[0\].policy: .*speed",
    ),
    "preset": (f'{PLAN}rules = ["6.12", "2.4"]', r"vary\[0\].rules: no rules preset '2.4'"),
    "nothing": ('[workload]\nname = "forks"\n', "vary: nothing differs; add a"),
    "workload": (PLAN.replace('command = "true"', 'name = "sleep"'), "workload.name: no workload"),
    "both": (PLAN.replace('command = "true"', ""), "workload: give either name"),
    "prepare": (
        PLAN.replace('command = "true"', 'name = "forks"\nprepare = "true"'),
        "workload.prepare: goes with command",
    ),
    "clock": (
        f'{PLAN}[guest]\nclock = "sundial"',
        "guest.clock: 'sundial' is none of host, instructions",
    ),
    "kvm": (f'{PLAN}[guest]\nkvm = "perhaps"', "guest.kvm: 'perhaps' is none"),
    "memory": (f'{PLAN}[guest]\nmemory = "much"', "guest.memory: 'much' is no size"),
    "timeout": (f"{PLAN}[guest]\ntimeout_s = 0", "guest.timeout_s: 0 is no number of seconds"),
    "limit": (f'{PLAN}[limits]\nrun = "big"', "limits.run: 'big' is no size"),
    "buffer": (f'{PLAN}[record]\nbuffer = "3M"', "record.buffer: 3M is no power of two"),
    "events": (f'{PLAN}[record]\nevents = "all"', "record.events: 'all' is no list"),
    "locks": (f"{PLAN}[record]\nlocks = 1", "record.locks: 1 is neither true nor false"),
    "sizes": (
        PLAN.replace("vm.percpu_pagelist_high_fraction", SIZES).replace("0, 8", '"64", "64 8"'),
        r"vary\[0\].values: '64 8' are no sizes; write some of 16 32",
    ),
    "same_sizes": (
        f'{PLAN}[settings]\n"{SIZES}" = 65',
        "enabled: '65' are no sizes; write some of 16",
    ),
    "both_ways": (f"both_ways = 1\n{PLAN}", "both_ways: 1 is neither true nor false"),
    "twice": (
        f'{PLAN}[settings]\n"vm.percpu_pagelist_high_fraction" = 8',
        "vary: vm.percpu_pagelist_high_fraction is given twice",
    ),
    "toml": ("repeats = ", "is no TOML: "),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_one_line(name: str, tmp_path: Path) -> None:
    text, said = WRONG[name]
    file = write_plan(tmp_path, text)
    with pytest.raises(PlanError, match=said) as caught:
        read_plan(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_plan_says_what_to_run(tmp_path: Path) -> None:
    plan = read_plan(write_plan(tmp_path))
    assert plan.kernels[0].image == tmp_path / "bzImage"
    assert (plan.repeats, plan.workload.command) == (2, "true")
    assert plan.vary[0].policy("8") == Policy(percpu_pagelist_high_fraction=8)
    sides = sides_of(plan)
    assert [(side.letter, dict(side.values)) for side in sides] == [
        ("A", {"vm.percpu_pagelist_high_fraction": "0"}),
        ("B", {"vm.percpu_pagelist_high_fraction": "8"}),
    ]
    (pair,) = pairs_of(plan, sides)
    assert pair.title == "A -> B: vm.percpu_pagelist_high_fraction 0 -> 8"
    assert pair.modelled


TWO_AXES = """
[workload]
name = "forks"
[[vary]]
setting = "vm.min_free_kbytes"
values = [1024, 2048, 4096]
[[vary]]
setting = "vm.page-cluster"
values = ["3", "0"]
"""


def test_one_at_a_time_varies_each_from_the_first_values(tmp_path: Path) -> None:
    plan = read_plan(write_plan(tmp_path, TWO_AXES))
    sides = sides_of(plan)
    assert [tuple(side.values.values()) for side in sides] == [
        ("1024", "3"),
        ("2048", "3"),
        ("4096", "3"),
        ("1024", "0"),
    ]
    pairs = pairs_of(plan, sides)
    modelled = {pair.before.letter + pair.after.letter: pair.modelled for pair in pairs}
    assert modelled == {"AB": True, "AC": True, "BC": True, "AD": False}
    assert any(line.endswith("3 -> 0; predicted by no change") for line in described_sides(plan))


def test_a_grid_has_all_combinations_and_all_pairs_of_one_difference(tmp_path: Path) -> None:
    plan = read_plan(write_plan(tmp_path, f'design = "grid"\n{TWO_AXES}'))
    sides = sides_of(plan)
    assert len({tuple(side.values.values()) for side in sides}) == len(sides) == 6
    pairs = pairs_of(plan, sides)
    assert len(pairs) == 3 * 2 + 3
    for pair in pairs:
        before, after = pair.before.values, pair.after.values
        assert [name for name in before if before[name] != after[name]] == [pair.axis]


TWO_KERNELS = """
[[kernel]]
image = "old"
[[kernel]]
image = "new"
rules = "7.2"
[workload]
name = "forks"
"""


def test_kernels_are_a_pair_where_the_later_one_has_rules(tmp_path: Path) -> None:
    plan = read_plan(write_plan(tmp_path, TWO_KERNELS))
    (pair,) = pairs_of(plan, sides_of(plan))
    assert (pair.title, pair.rules) == ("A -> B: kernel old -> new", "7.2")
    without = read_plan(write_plan(tmp_path, TWO_KERNELS.replace('rules = "7.2"', "")))
    assert pairs_of(without, sides_of(without)) == ()


def test_sizes_of_folios_are_one_mask_and_each_predicts_the_others(tmp_path: Path) -> None:
    text = PLAN.replace("vm.percpu_pagelist_high_fraction", SIZES)
    text = text.replace("0, 8", '"none", "64", "16 2048"')
    plan = read_plan(write_plan(tmp_path, f"both_ways = true\n{text}"))
    pairs = pairs_of(plan, sides_of(plan))
    masks = {pair.before.letter + pair.after.letter: pair.policy.huge_anon_orders for pair in pairs}
    assert masks == {"AB": 16, "AC": 4 | 512, "BA": 0, "BC": 4 | 512, "CA": 0, "CB": 16}


def test_a_policy_predicts_a_kernel_whose_images_may_be_others(tmp_path: Path) -> None:
    policies = TWO_KERNELS.replace('rules = "7.2"', 'policy = ["pageblock_order=7"]')
    plan = read_plan(write_plan(tmp_path, policies))
    (pair,) = pairs_of(plan, sides_of(plan))
    assert (pair.policy, pair.rules, pair.modelled) == (Policy(pageblock_order=7), "", True)
    assert described_sides(plan)[-1].endswith("old -> new; predicted by pageblock_order=7")
    changed = changed_plan(plan, [tmp_path / "one", tmp_path / "two"])
    assert [(own.name, own.policy) for own in changed.kernels] == [
        ("one", ()),
        ("two", ("pageblock_order=7",)),
    ]
    text = policies.replace('image = "new"', 'image = "new"\nname = "smaller"')
    named = read_plan(write_plan(tmp_path, text))
    assert [own.name for own in changed_plan(named, ["one", "two"]).kernels] == ["one", "smaller"]
    assert changed_plan(plan, ["one", "two", "three"]).kernels[1].policy == ()


def test_letters_go_on_after_z(tmp_path: Path) -> None:
    text = PLAN.replace("vm.percpu_pagelist_high_fraction", "vm.min_free_kbytes")
    values = ", ".join(str(1024 + number) for number in range(28))
    plan = read_plan(write_plan(tmp_path, text.replace("0, 8", values)))
    assert [side.letter for side in sides_of(plan)][-3:] == ["Z", "AA", "AB"]


@pytest.mark.parametrize("file", sorted(PLANS.glob("*.toml")), ids=lambda file: file.stem)
def test_shipped_plans_can_be_read_by_name(file: Path) -> None:
    assert find_plan(file.stem) == file
    plan = read_plan(file)
    assert pairs_of(plan, sides_of(plan))


def test_kernels_and_repeats_can_be_changed(tmp_path: Path) -> None:
    plan = read_plan(write_plan(tmp_path))
    changed = changed_plan(plan, [tmp_path / "other"], 7)
    assert ([kernel.name for kernel in changed.kernels], changed.repeats) == (["other"], 7)
    assert changed_plan(plan, []) == plan
    with pytest.raises(UsageError, match="--repeats 0: give at least one"):
        changed_plan(plan, [], 0)


def test_the_plan_in_the_documentation_can_be_read(tmp_path: Path, checkout: Path) -> None:
    page = examples(checkout, "docs/experiments.md")
    (text,) = (block.body for block in page if block.language == "toml")
    plan = read_plan(write_plan(tmp_path, text))
    assert [cell.field for cell in plan.vary] == ["min_free_kbytes", "pcp_free_batched", ""]
    assert pairs_of(plan, sides_of(plan))[-1].rules == "6.12,free_batched=true"
