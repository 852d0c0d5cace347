"""The kernel's own compaction judges the model's: it agrees, and what does not agree is found."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable

import numpy as np
import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import operations as words
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.from_source.source_tree import SourceTree
from pagealloc_model.cli import main
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.verdict.kernel_judge.compaction import (
    judge_compaction,
    random_compaction,
    random_pressed_beginning,
)
from pagealloc_model.verdict.kernel_judge.side_by_side import Verdict

SERIES = ["6.1", "6.12", "7.2", "7.3"]

EVERY_FAULT = pytest.mark.skipif(
    not os.environ.get("PAGEALLOC_ALL_FAULTS"),
    reason="a changed tree takes minutes; PAGEALLOC_ALL_FAULTS=1 judges them",
)


def judged(tree: SourceTree, rules: str, operations: int, seed: int = 0) -> Verdict:
    return judge_compaction(tree, KernelRules.named(rules), operations=operations, seed=seed)


@pytest.mark.parametrize("series", SERIES)
def test_the_model_compacts_as_the_kernel_does(
    kernel_source: Callable[[str], SourceTree], series: str
) -> None:
    verdict = judged(kernel_source(series), series, 10_000)
    assert verdict.difference is None, verdict
    assert verdict.operations == 10_000


@pytest.mark.long
@pytest.mark.parametrize("series", SERIES)
def test_they_agree_for_long(kernel_source: Callable[[str], SourceTree], series: str) -> None:
    verdict = judged(kernel_source(series), series, 200_000, seed=random.randrange(1 << 30))
    assert verdict.difference is None, verdict


@pytest.mark.long
@EVERY_FAULT
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if (get_pageblock_skip(freepage))", "if (false)"),
        ("limit = pageblock_nr_pages >> 1;", "limit = pageblock_nr_pages >> 3;"),
        ("low_pfn = pageblock_start_pfn(cc->free_pfn - (distance >> 2));", "low_pfn = min_pfn;"),
        ("move_freelist_head(freelist, freepage);", ";"),
        ("distance >>= 2;", "distance >>= 1;"),
        ("cc->zone->compact_cached_free_pfn = highest;", ";"),
        ("stride = min_t(unsigned int, COMPACT_CLUSTER_MAX, stride << 1);", "stride = 1;"),
        ("zone->compact_init_free_pfn = reset_free;", ";"),
        ("if (cc->order == COMPACTION_HPAGE_ORDER)", "if (false)"),
        ("zone->compact_defer_shift++;", "zone->compact_defer_shift += 2;"),
        ("if (pgdat->kcompactd_max_order <= cc.order)", "if (true)"),
        ("default_timeout << COMPACT_MAX_DEFER_SHIFT;", "default_timeout << 2;"),
        ("drain_all_pages(zone);", ";"),
        ("wmark_low = max(100U - sysctl_compaction_proactiveness, 5U);", "wmark_low = 80;"),
        ("if (free_pfn > cc->zone->compact_cached_free_pfn)", "if (false)"),
    ],
)
def test_another_compaction_is_found(
    patched: Callable[[str, str, str, str], SourceTree], old: str, new: str
) -> None:
    assert_found(patched("6.12", "mm/compaction.c", old, new), "6.12")


@pytest.mark.long
@EVERY_FAULT
@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("mm/compaction.c", "set_pageblock_skip(freepage);", ";"),
        ("mm/compaction.c", "last_migrated_pfn = iteration_start_pfn;", "last_migrated_pfn = 0;"),
        (
            "mm/compaction.c",
            "list_add(&page->lru, &tmp_list);",
            "list_add_tail(&page->lru, &tmp_list);",
        ),
        ("mm/compaction.c", "cc->migrate_pfn - 1, cc->order);", "cc->migrate_pfn, cc->order);"),
        ("mm/compaction.c", "if (!pageblock_aligned(pfn))", "if (false)"),
        ("mm/compaction.c", "cursor += (1UL << order) - 1;", ";"),
        ("mm/compaction.c", "if (cc->ignore_block_suitable)", "if (true)"),
        (
            "mm/page_alloc.c",
            "if (order < pageblock_order && migratetype == MIGRATE_MOVABLE)",
            "if (order < pageblock_order)",
        ),
        ("mm/page_alloc.c", "if (migratetype_is_mergeable(mt))\n\t\t\t\tset", "if (false) set"),
    ],
)
def test_another_compaction_of_6_1_is_found(
    patched: Callable[[str, str, str, str], SourceTree], path: str, old: str, new: str
) -> None:
    assert_found(patched("6.1", path, old, new), "6.1")


def assert_found(tree: SourceTree, rules: str) -> None:
    """A tree does not do what the model does; a short sequence of operations shows it."""
    verdicts = (judged(tree, rules, 10_000, seed) for seed in range(3))
    found = next((each for each in verdicts if each.difference is not None), None)
    assert found is not None
    assert found.difference is not None
    assert found.difference.lines
    assert 0 < len(found.shortest) < 500


@pytest.mark.long
@EVERY_FAULT
@pytest.mark.parametrize(
    ("rules", "series"),
    [
        ("7.2,suitable_beside_cma=false", "7.2"),
        ("7.2,direct_source_needs_cma=false", "7.2"),
        ("7.2,proactive_leeway_shrinks=false", "7.2"),
        ("7.2,async_source_by_order=false", "7.2"),
        ("6.12,compact_gap_capped=true", "6.12"),
        ("6.1,compaction_moves_compound_pages=true", "6.1"),
        ("6.1,scans_count_skipped_pages=true", "6.1"),
        ("6.1,zone_start_begins_block=true", "6.1"),
        ("6.1,any_isolation_marks_block=true", "6.1"),
        ("6.1,fast_sources_marked=false", "6.1"),
        ("6.1,failed_blocks_finished=true", "6.1"),
        ("6.1,moved_from_where_scan_ended=true", "6.1"),
        ("6.1,capture_ends_before_drain=true", "6.1"),
        ("6.1,movable_capture_below_block=true", "6.1"),
        ("6.1,proactive_scans_counted=true", "6.1"),
        ("6.1,targets_kept_whole=true", "6.1"),
        ("6.1,target_block_by_order=true", "6.1"),
        ("6.1,target_steps_end_in_block=true", "6.1"),
        ("6.1,target_position_leaves_block=true", "6.1"),
        ("6.1,fast_targets_end_at_enough=true", "6.1"),
        ("6.1,fast_targets_marked_at_end=true", "6.1"),
        ("6.1,late_target_block_tested=true", "6.1"),
        ("6.1,lists_match_blocks=true", "6.1"),
    ],
)
def test_a_wrong_rule_is_found(
    kernel_source: Callable[[str], SourceTree], rules: str, series: str
) -> None:
    assert judged(kernel_source(series), rules, 100_000).difference is not None


def test_operations_come_to_all_ends() -> None:
    """Direct runs end in every way that there is but by contention drawn; no kernel is needed."""
    results: set[int] = set()
    counted: set[str] = set()
    for scenario in range(12):
        rng = random.Random(f"0 {scenario} compaction")
        beginning = random_pressed_beginning(rng, KernelRules.named("6.12"))
        state, places = beginning.state()
        operations = random_compaction(rng, beginning, 300, state)
        found = np.zeros((300, 2), np.int64)
        words.take_compaction_operations(state.arrays(places), operations, found, 0, 300)
        results |= set(found[operations[:, words.KIND] == pr.JUDGED_DIRECT, 0].tolist())
        counters = state.pressure_words(pr.COUNTERS, len(pr.COUNTER_NAMES))
        counted |= {name for name, value in zip(pr.COUNTER_NAMES, counters, strict=True) if value}
        assert int((state.pages["where"] == pr.HELD).sum()) == 0
        assert int(state.st[at.CAPTURE_ZONE]) == 0
    assert results == {
        *(pr.SKIPPED, pr.DEFERRED, pr.COMPLETE, pr.PARTIAL_SKIPPED, pr.CONTENDED, pr.SUCCESS)
    }
    assert counted >= {"compact_daemon_wake", "compact_daemon_free_scanned", "pgmigrate_fail"}


def test_the_command_prints_what_was_judged(
    kernel_source: Callable[[str], SourceTree], capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(kernel_source("6.12").root)
    arguments = ["judge", "--pressure", "--kernel-source", source, "--operations", "300"]
    arguments += ["--rules", "6.12"]
    assert main(arguments) == 0
    assert "judged      compaction" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    (verdict, *_) = json.loads(capsys.readouterr().out)
    assert verdict["part"] == "compaction"
    assert verdict["operations"] == 300
