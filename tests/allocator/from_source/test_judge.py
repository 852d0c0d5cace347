"""The kernel's own code judges the model: it agrees, and what does not agree is found and named."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree
from pagealloc_model.allocator.from_source.source_tree import SourceTree
from pagealloc_model.cli import main
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.verdict.kernel_judge.judge import (
    BATCH,
    LIMITS,
    MARKS,
    RESERVES,
    judge,
    size_difference,
)
from pagealloc_model.verdict.kernel_judge.random_machines import (
    random_beginning,
    random_operations,
    starting_places,
)
from pagealloc_model.verdict.kernel_judge.side_by_side import SideBySide, Verdict, shrunk
from tests.small_recordings import write_recording


def judged(tree: CompiledTree, rules: str, operations: int, seed: int = 0) -> Verdict:
    return judge(tree, KernelRules.named(rules), operations=operations, seed=seed)


@pytest.mark.parametrize("series", ["6.12", "6.1"])
def test_the_model_does_what_the_kernel_does(
    compiled: Callable[[str], CompiledTree], series: str
) -> None:
    verdict = judged(compiled(series), series, 60_000)
    assert verdict.difference is None, verdict
    assert verdict.operations == 60_000


@pytest.mark.long
@pytest.mark.parametrize("series", ["6.12", "6.1"])
def test_they_agree_for_long(compiled: Callable[[str], CompiledTree], series: str) -> None:
    verdict = judged(compiled(series), series, 1_000_000, seed=random.randrange(1 << 30))
    assert verdict.difference is None, verdict


@pytest.mark.parametrize("series", ["6.12", "6.1"])
def test_sizes_are_those_of_the_kernel_s_set_up(
    compiled: Callable[[str], CompiledTree], series: str
) -> None:
    rules = KernelRules.named(series)
    for seed in range(50):
        assert size_difference(compiled(series), rules, random.Random(seed)) is None


@pytest.mark.parametrize(
    ("old", "new", "line", "function"),
    [
        ("batch = rounddown_pow_of_two(batch + batch/2) - 1;", "batch++;", "batch", BATCH),
        ("high = max(high, batch << 2);", "high++;", "high_min", LIMITS),
        ("zone->_watermark[WMARK_MIN] = tmp;", "", "min mark", MARKS),
        ("managed_pages / ratio;", "managed_pages / 9;", "lowmem_reserve", RESERVES),
    ],
)
def test_another_set_up_is_found_and_named(
    patched: Callable[[str, str, str, str], SourceTree],
    old: str,
    new: str,
    line: str,
    function: str,
) -> None:
    tree = CompiledTree(patched("6.12", "mm/page_alloc.c", old, new))
    verdict = judge(tree, KernelRules.named("6.12"), operations=20_000, seed=2)
    assert verdict.difference is not None
    assert "min_free_kbytes=" in verdict.difference.event
    assert line in verdict.difference.lines[0]
    assert function in {each.function for each in verdict.difference.places}
    assert verdict.operations == 0


def test_a_node_without_memory_that_a_run_may_use_is_balanced(
    compiled: Callable[[str], CompiledTree],
) -> None:
    """A run that was told of ends with the next free."""
    rules = KernelRules.preset("6.12")
    beginning = next(
        each
        for seed in range(1000)
        if not (each := random_beginning(random.Random(seed), rules)).kswapd_recorded
        and any(zone.node and not zone.managed for zone in each.machine.zones[::2])
        and each.machine.zone_types == ("DMA32", "Normal")
    )
    node = next(z.node for z in beginning.machine.zones[::2] if z.node and not z.managed)
    events = np.zeros(2, at.EVENT)
    events["operation"] = at.KSWAPD_START, at.FREE
    events["offset"] = node, 0
    events["order"] = 0, beginning.image.allocated_order[0]
    sides = SideBySide(compiled("6.12"), beginning.state, starting_places(beginning, 0))
    for position in range(2):
        assert sides.agree_after(events, position, position + 1), sides.describe(events, position)
        assert sides.model.st[at.KSWAPD_RUNS] == 1 - position
    sides.close()


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("mm/vmstat.c", "v = this_cpu_xchg(pzstats->vm_stat_diff[i], 0);", "v = 0;"),
        ("mm/vmstat.c", "__this_cpu_write(pcp->expire, 3);", "__this_cpu_write(pcp->expire, 2);"),
        ("mm/page_alloc.c", "if (zone_to_nid(zone) != local_nid) {", "if (false) {"),
        ("mm/page_alloc.c", "to_drain = min(pcp->count, batch);", "to_drain = 1;"),
    ],
)
def test_nodes_and_lagging_counters_are_judged(
    patched: Callable[[str, str, str, str], SourceTree], path: str, old: str, new: str
) -> None:
    """The seed's first machine has two nodes, CPUs on both, and counters that lag."""
    beginning = random_beginning(random.Random("7 0"), KernelRules.preset("6.12"))
    assert set(beginning.machine.cpu_nodes) == {0, 1}
    assert beginning.assumptions.counters == "lagged"
    tree = CompiledTree(patched("6.12", path, old, new))
    assert judged(tree, "6.12", 20_000, seed=7).difference is not None


@pytest.mark.parametrize(
    ("rules", "function", "most"),
    [
        ("6.12,decay_batched=false", "free_pcppages_bulk", 60),
        ("6.12,high_order_flush_adds_half_high_min=true", "free_unref_page_commit", 60),
        ("6.12,reserve_cap_rounded=false", "reserve_highatomic_pageblock", 300),
        ("6.12,below_high_tested=false", "get_page_from_freelist", 200),
    ],
)
def test_a_wrong_rule_is_found_and_shown_in_a_few_operations(
    compiled: Callable[[str], CompiledTree], rules: str, function: str, most: int
) -> None:
    """The cap of the reserve takes as many requests as fill it; the others a few."""
    verdict = judged(compiled("6.12"), rules, 400_000)
    assert verdict.difference is not None
    assert verdict.difference.lines
    assert function in {each.function for each in verdict.difference.places}
    assert 0 < len(verdict.shortest) < most


def test_a_patched_kernel_is_told_from_the_model_with_function_and_line(
    patched: Callable[[str, str, str, str], SourceTree],
) -> None:
    tree = patched(
        "6.12", "mm/page_alloc.c", "max_nr_free = high - batch;", "max_nr_free = high - batch - 1;"
    )
    verdict = judged(CompiledTree(tree), "6.12", 400_000)
    assert verdict.difference is not None
    assert "free_pcppages_bulk" in {each.function for each in verdict.difference.places}
    assert any(line.startswith("row") for line in verdict.difference.lines)


def test_the_command_prints_the_verdict_and_its_exit_code_tells(
    kernel_source: Callable[[str], SourceTree], capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(kernel_source("6.12").path)
    words = ["judge", "--kernel-source", source, "--operations", "20000", "--rules"]
    assert main([*words, "6.12"]) == 0
    assert "difference  none" in capsys.readouterr().out
    assert main([*words, "6.12,decay_batched=false", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["difference"]["lines"]
    assert found["shortest"]


def test_a_recording_s_demand_judges_too(
    kernel_source: Callable[[str], SourceTree], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = write_recording(tmp_path / "small")
    source = ["--kernel-source", str(kernel_source("6.12").path)]
    words = ["judge", *source, "--recording", str(recording), "--rules"]
    assert main([*words, "6.12"]) == 0
    assert "difference  none" in capsys.readouterr().out
    assert main([*words, "6.12,pcp_auto_tuned=false", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["difference"]
    assert "alloc" in found["event"] or "free" in found["event"]
    assert found["lines"]
    assert found["places"]


def test_a_missing_tree_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", "--kernel-source", "/nowhere"]) == 2
    assert "no mm/page_alloc.c" in capsys.readouterr().err


def test_shrinking_keeps_what_a_failure_needs() -> None:
    events = np.zeros(200, at.EVENT)
    events["object"] = np.arange(200)
    short = shrunk(events, lambda some: {17, 140} <= set(some["object"].tolist()))
    assert short["object"].tolist() == [17, 140]


def test_operations_are_those_of_their_seed_and_of_every_kind() -> None:
    rules = KernelRules.preset("6.12")
    kinds: set[int] = set()
    for seed in range(6):
        made = []
        for _ in range(2):
            rng = random.Random(seed)
            made.append(random_operations(rng, random_beginning(rng, rules), 3000))
        assert np.array_equal(*made)
        assert (np.diff(made[0]["time_ns"]) >= 0).all()
        kinds |= set(made[0]["operation"].tolist())
    assert kinds == set(range(at.TICK + 1)) - {at.GROW}
