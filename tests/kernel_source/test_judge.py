"""The kernel's own code judges the model: they agree, and what does not is found and named."""

from __future__ import annotations

import json
import os
import random
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.cli import main
from pagealloc_model.kernel_source.compiled_tree import CompiledTree
from pagealloc_model.kernel_source.extraction import ALLOCATION, COMPACTION, RECLAIM
from pagealloc_model.kernel_source.judge import (
    BATCH,
    LIMITS,
    MARKS,
    RESERVES,
    Verdict,
    judge,
    judge_recorded,
    shrunk,
    size_difference,
)
from pagealloc_model.kernel_source.random_operations import (
    random_beginning,
)
from pagealloc_model.kernel_source.source_tree import SourceTree
from pagealloc_model.policy.kernel_rules import KernelRules
from tests.allocator.faults import Fault, read_faults
from tests.kernel_source import Compiled, Patched, Sources
from tests.small_recordings import shipped_recording, write_recording

SERIES = ["6.1", "6.12", "7.2", "7.3"]

EVERY_FAULT = pytest.mark.skipif(
    not os.environ.get("PAGEALLOC_ALL_FAULTS"),
    reason="a changed tree takes minutes; PAGEALLOC_ALL_FAULTS=1 judges them",
)

AGREEMENTS = [
    *(("allocation", each, 60_000, 1_000_000) for each in ("6.12", "6.1")),
    *(("compaction", each, 10_000, 200_000) for each in SERIES),
    *(("reclaim", each, 40_000, 500_000) for each in SERIES),
]
"""What is judged by which series; operations that always run, and those of a long run."""

OTHER_KERNELS = read_faults(Path(__file__).with_name("kernel_faults.txt"))
"""Faults in a series' kernel, each in a file of which a part is judged."""

WRONG_RULES = {
    ("compaction", "7.2"): (
        "suitable_beside_cma=false direct_source_needs_cma=false "
        "proactive_leeway_shrinks=false async_source_by_order=false "
    ),
    ("compaction", "6.12"): ("compact_gap_capped=true "),
    ("compaction", "6.1"): (
        "compaction_moves_compound_pages=true scans_count_skipped_pages=true "
        "zone_start_begins_block=true any_isolation_marks_block=true "
        "fast_sources_marked=false failed_blocks_finished=true "
        "moved_from_where_scan_ended=true capture_ends_before_drain=true "
        "movable_capture_below_block=true proactive_scans_counted=true "
        "targets_kept_whole=true target_block_by_order=true target_steps_end_in_block=true "
        "target_position_leaves_block=true fast_targets_end_at_enough=true "
        "fast_targets_marked_at_end=true late_target_block_tested=true "
        "lists_match_blocks=true "
    ),
    ("reclaim", "6.12"): (
        "free_counts_as_reclaimable fruitless_reclaim_repeated boosted_runs_never_fail "
        "revived_when_balanced ready_by_high_mark "
    ),
}
"""Rules that are told wrong, by part and series."""

Capture = pytest.CaptureFixture[str]


@lru_cache
def part_of(tree: SourceTree, part: str) -> CompiledTree:
    """A part of a tree's code, compiled once for all tests."""
    parts = {each.name: each for each in (ALLOCATION, COMPACTION, RECLAIM)}
    return CompiledTree(tree, parts[part])


def judged(
    tree: SourceTree | CompiledTree,
    rules: str,
    operations: int,
    seed: int = 0,
    part: str = "allocation",
    order: int = 0,
) -> Verdict:
    code = tree if isinstance(tree, CompiledTree) else part_of(tree, part)
    drawn = {"operations": operations, "seed": seed, "pageblock_order": order}
    return judge(code, KernelRules.named(rules), **drawn)


@pytest.mark.parametrize(("part", "series", "operations", "_"), AGREEMENTS)
def test_the_model_does_what_the_kernel_does(
    kernel_source: Sources, part: str, series: str, operations: int, _: int
) -> None:
    verdict = judged(kernel_source(series), series, operations, part=part)
    assert verdict.difference is None, verdict
    assert (verdict.operations, verdict.part) == (operations, part)


@pytest.mark.long
@pytest.mark.parametrize(("part", "series", "_", "operations"), AGREEMENTS)
def test_they_agree_for_long(
    kernel_source: Sources, part: str, series: str, _: int, operations: int
) -> None:
    verdict = judged(kernel_source(series), series, operations, seed=1, part=part)
    assert verdict.difference is None, verdict


@pytest.mark.parametrize("order", [pytest.param(7, marks=pytest.mark.long), 5])
@pytest.mark.parametrize(("part", "operations"), [("allocation", 20_000), ("compaction", 600)])
def test_they_agree_with_pageblocks_of_another_order(
    kernel_source: Sources, part: str, operations: int, order: int
) -> None:
    """S1.12: the kernel's functions are compiled with that order."""
    verdict = judged(kernel_source("6.12"), "6.12", operations, part=part, order=order)
    assert verdict.difference is None, verdict


@pytest.mark.parametrize("series", ["6.12", "6.1"])
def test_sizes_are_those_of_the_kernel_s_set_up(compiled: Compiled, series: str) -> None:
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
    patched: Patched, old: str, new: str, line: str, function: str
) -> None:
    tree = CompiledTree(patched("6.12", "mm/page_alloc.c", old, new))
    verdict = judge(tree, KernelRules.named("6.12"), operations=20_000, seed=2)
    assert verdict.difference is not None
    assert "min_free_kbytes=" in verdict.difference.event
    assert line in verdict.difference.lines[0]
    assert function in {each.partition("(")[0] for each in verdict.difference.places}
    assert verdict.operations == 0


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
    patched: Patched, path: str, old: str, new: str
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
    compiled: Compiled, rules: str, function: str, most: int
) -> None:
    """The cap of the reserve takes as many requests as fill it; the others a few."""
    verdict = judged(compiled("6.12"), rules, 400_000)
    assert verdict.difference is not None
    assert verdict.difference.lines
    assert function in {each.partition("(")[0] for each in verdict.difference.places}
    assert 0 < len(verdict.shortest) < most


@pytest.mark.long
@EVERY_FAULT
@pytest.mark.parametrize("fault", OTHER_KERNELS, ids=[fault.name for fault in OTHER_KERNELS])
def test_another_kernel_is_found_under_pressure(patched: Patched, fault: Fault) -> None:
    """A short sequence of operations shows it."""
    (series,), (part,) = fault.presets, fault.scenarios
    tree = patched(series, fault.module, fault.right, fault.wrong)
    operations = 10_000 if part == "compaction" else 40_000
    verdicts = (judged(tree, series, operations, seed, part) for seed in range(3))
    found = next((each for each in verdicts if each.difference is not None), None)
    assert found is not None
    assert found.difference is not None
    assert found.difference.lines
    assert found.shortest


@pytest.mark.long
@EVERY_FAULT
@pytest.mark.parametrize(
    ("part", "series", "rule"),
    [(*told, rule) for told, rules in WRONG_RULES.items() for rule in rules.split()],
)
def test_a_wrong_rule_is_found_under_pressure(
    kernel_source: Sources, part: str, series: str, rule: str
) -> None:
    if "=" not in rule:
        rule = f"{rule}={str(not getattr(KernelRules.preset(series), rule)).lower()}"
    verdict = judged(kernel_source(series), f"{series},{rule}", 100_000, part=part)
    assert verdict.difference is not None


@pytest.mark.parametrize("series", ["6.12", pytest.param("7.3", marks=pytest.mark.long)])
def test_a_recording_is_reclaimed_as_by_the_kernel(kernel_source: Sources, series: str) -> None:
    recording = shipped_recording("highatomic_stock")
    rules = KernelRules.preset(series)
    verdict = judge_recorded(part_of(kernel_source(series), "reclaim"), rules, recording)
    assert verdict.difference is None, verdict
    assert verdict.operations > 10_000


def test_the_command_prints_the_verdict_and_its_exit_code_tells(
    kernel_source: Sources, capsys: Capture
) -> None:
    source = str(kernel_source("6.12").path)
    words = ["judge", "--kernel-source", source, "--operations", "20000", "--rules"]
    assert main([*words, "6.12"]) == 0
    assert "difference  none" in capsys.readouterr().out
    assert main([*words, "6.12,decay_batched=false", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["difference"]["lines"]
    assert found["shortest"]
    assert main([*words, "6.12", "--pageblock-order", "11"]) == 2
    assert "pageblock_order" in capsys.readouterr().err
    assert main(["judge", "--kernel-source", "/nowhere"]) == 2
    assert "no mm/page_alloc.c" in capsys.readouterr().err


def test_a_recording_s_demand_judges_too(
    kernel_source: Sources, tmp_path: Path, capsys: Capture
) -> None:
    recording = write_recording(tmp_path / "small")
    source = ["--kernel-source", str(kernel_source("6.12").path)]
    words = ["judge", *source, "--recording", str(recording), "--rules"]
    for order in ("0", "5"):
        assert main([*words, "6.12", "--pageblock-order", order]) == 0
        assert "difference  none" in capsys.readouterr().out
    assert main([*words, "6.12,pcp_auto_tuned=false", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["difference"]
    assert "alloc" in found["event"] or "free" in found["event"]
    assert found["lines"]
    assert found["places"]


def test_shrinking_keeps_what_a_failure_needs() -> None:
    events = np.zeros(200, at.EVENT)
    events["object"] = np.arange(200)
    short = shrunk(events, lambda some: {17, 140} <= set(some["object"].tolist()))
    assert short["object"].tolist() == [17, 140]


def test_the_command_judges_under_pressure(kernel_source: Sources, capsys: Capture) -> None:
    source = str(kernel_source("6.12").root)
    arguments = ["judge", "--pressure", "--kernel-source", source, "--operations", "300"]
    arguments += ["--rules", "6.12"]
    assert main(arguments) == 0
    assert "judged      compaction" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    (verdict, *_) = json.loads(capsys.readouterr().out)
    assert verdict["part"] == "compaction"
    assert verdict["operations"] == 300
