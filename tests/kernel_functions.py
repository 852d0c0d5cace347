"""Which kernel function each function of the model and of the oracle stands for: docs' table.

`python -m tests.kernel_functions` writes docs/kernel_functions.md anew, from docstrings.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MODEL = "pagealloc_model/allocator"
ORACLE = "tests/oracle"
TABLE = "docs/kernel_functions.md"

LEFT_OUT = {
    MODEL: "from_source hooks",
    ORACLE: """
        dump elastic_scenarios machine random_scenarios scenarios steps
    """,
}
"""Modules and folders that are not the allocator: they set it up, drive it or print it."""

SERIES = ("6.1", "6.12", "7.2", "7.3")
"""Kernels that the names were looked up in."""

KERNEL_FILES = {
    "mm/page_alloc.c": """
        account_freepages __add_to_free_list alloc_flags_nofragment alloc_flags_nonblocking
        __alloc_frozen_pages
        __alloc_pages_direct_compact __alloc_pages_direct_reclaim __alloc_pages_slowpath
        boost_watermark buddy_merge_likely build_zonelists build_zonerefs_node
        calculate_min_free_kbytes can_steal_fallback change_pageblock_range compaction_capture
        decay_pcp_high __del_page_from_free_list drain_all_pages drain_local_pages
        drain_pages_zone expand
        find_next_best_node find_suitable_fallback free_frozen_page_commit __free_frozen_pages
        __free_one_page free_one_page __free_pages_core free_pcppages_bulk free_unref_folios
        get_page_from_free_area get_page_from_freelist get_pcppage_migratetype
        get_pfnblock_migratetype gfp_pfmemalloc_allowed __gfp_pfmemalloc_flags
        gfp_to_alloc_flags gfp_to_alloc_flags_cma __isolate_free_page __move_freepages_block
        move_freepages_block move_to_free_list nr_pcp_alloc nr_pcp_free nr_pcp_high
        order_defrag_promoted order_to_pindex page_alloc_cpu_dead page_alloc_cpu_online
        page_del_and_expand pcp_allowed_order pcp_spin_trylock pindex_to_order
        prep_move_freepages_block prep_new_page prepare_alloc_pages reserve_highatomic_pageblock
        __rmqueue rmqueue
        rmqueue_buddy rmqueue_bulk __rmqueue_claim __rmqueue_cma_fallback __rmqueue_fallback
        __rmqueue_pcplist rmqueue_pcplist __rmqueue_smallest __rmqueue_steal
        set_pageblock_migratetype set_pcppage_migratetype setup_per_zone_lowmem_reserve
        __setup_per_zone_wmarks should_compact_retry should_reclaim_retry
        should_try_claim_block steal_suitable_fallback try_to_claim_block
        unreserve_highatomic_pageblock wake_all_kswapds zone_batchsize zone_highsize
        zone_set_pageset_high_and_batch zone_watermark_fast __zone_watermark_ok
        zone_watermark_ok __zone_watermark_unusable_free
    """,
    "mm/compaction.c": """
        compact_node __compact_finished compact_scanners_met compact_zone compact_zone_order
        compaction_alloc compaction_defer_reset compaction_deferred compaction_free
        compaction_restarting compaction_suit_allocation_order compaction_suitable
        __compaction_suitable compact_lock_irqsave compaction_zonelist_suitable defer_compaction
        fast_find_migrateblock fast_isolate_around
        fast_isolate_freepages fragmentation_score_node fragmentation_score_wmark
        fragmentation_score_zone freelist_scan_limit isolate_freepages isolate_freepages_block
        isolate_migratepages isolate_migratepages_block isolation_suitable kcompactd
        kcompactd_do_work kcompactd_node_suitable move_freelist_head move_freelist_tail
        next_search_order pageblock_skip_persistent reinit_migrate_pfn release_free_list
        reset_cached_positions __reset_isolation_pfn __reset_isolation_suitable
        reset_isolation_suitable skip_isolation_on_order suitable_migration_source
        suitable_migration_target try_to_compact_pages update_cached_migrate wakeup_kcompactd
    """,
    "mm/vmscan.c": """
        allow_direct_reclaim balance_pgdat can_age_anon_pages compaction_ready
        do_try_to_free_pages folio_check_dirty_writeback folio_check_references
        folio_putback_lru get_scan_count in_reclaim_compaction inactive_is_low
        isolate_lru_folios kswapd kswapd_age_node kswapd_highest_zoneidx kswapd_shrink_node
        kswapd_test_hopeless kswapd_try_clear_hopeless kswapd_try_to_sleep lruvec_lru_size
        pgdat_balanced pgdat_watermark_boosted prepare_kswapd_sleep prepare_scan_control
        sc_swappiness should_continue_reclaim shrink_active_list shrink_folio_list
        shrink_inactive_list shrink_list shrink_lruvec shrink_node shrink_zones
        throttle_direct_reclaim try_to_free_pages update_reclaim_active wakeup_kswapd
        zone_reclaimable_pages
    """,
    "mm/vmstat.c": """
        calculate_normal_threshold calculate_pressure_threshold fill_contig_page_info
        fragmentation_index __mod_zone_page_state refresh_cpu_vm_stats
        refresh_zone_stat_thresholds set_pgdat_percpu_threshold
    """,
    "mm/internal.h": """
        buddy_order find_buddy_page_pfn free_area_empty page_is_buddy pageblock_pfn_to_page
    """,
    "include/linux/compaction.h": "compact_gap",
    "include/linux/gfp.h": "gfp_compaction_allowed node_zonelist",
    "include/linux/list.h": "list_add list_add_tail list_del",
    "include/linux/log2.h": "ilog2 rounddown_pow_of_two",
    "include/linux/math.h": "int_sqrt roundup",
    "include/linux/memcontrol.h": "folio_lruvec lruvec_page_state",
    "include/linux/minmax.h": "clamp",
    "include/linux/mm.h": "compound_order folio_nr_pages folio_zone lru_to_folio page_zone",
    "include/linux/mm_inline.h": "lruvec_add_folio lruvec_del_folio update_lru_size",
    "include/linux/mmzone.h": "is_migrate_movable wmark_pages",
    "include/linux/page-flags.h": "page_folio",
    "include/linux/pageblock-flags.h": """
        get_pageblock_skip pageblock_aligned pageblock_end_pfn pageblock_start_pfn
        set_pageblock_skip
    """,
    "include/linux/vmstat.h": "zone_page_state zone_page_state_snapshot",
    "mm/huge_memory.c": "vma_thp_gfp_mask",
    "mm/khugepaged.c": "set_recommended_min_free_kbytes",
    "mm/mempolicy.c": "alloc_pages_mpol",
    "mm/migrate.c": "migrate_folio_move migrate_folio_unmap migrate_pages putback_movable_pages",
    "mm/shrinker.c": "do_shrink_slab shrink_slab",
    "mm/slub.c": "calculate_order",
    "mm/swap.c": "folio_activate folio_mark_accessed",
    "mm/workingset.c": """
        pack_shadow workingset_age_nonresident workingset_eviction workingset_refault
        workingset_test_recent
    """,
}
"""Functions and macros by the file that defines them in 7.2, else in the last that has them."""

ONLY_IN = {
    ("6.1",): """
        get_pcppage_migratetype __rmqueue_fallback set_pcppage_migratetype
        steal_suitable_fallback
    """,
    ("6.1", "6.12"): """
        can_steal_fallback
    """,
    ("6.1", "6.12", "7.2"): """
        gfp_to_alloc_flags gfp_to_alloc_flags_cma
    """,
    ("6.12", "7.2", "7.3"): """
        account_freepages __add_to_free_list alloc_pages_mpol compaction_suit_allocation_order
        decay_pcp_high __del_page_from_free_list free_unref_folios __move_freepages_block
        prepare_scan_control sc_swappiness nr_pcp_alloc page_del_and_expand
        prep_move_freepages_block release_free_list __rmqueue_claim __rmqueue_steal
        skip_isolation_on_order workingset_test_recent
    """,
    ("7.3",): """
        alloc_flags_nonblocking order_defrag_promoted
    """,
    ("7.2", "7.3"): """
        __alloc_frozen_pages free_frozen_page_commit __free_frozen_pages kswapd_test_hopeless
        kswapd_try_clear_hopeless should_try_claim_block try_to_claim_block
    """,
}
"""Functions that not every one of `SERIES` has."""

FORM = re.compile(
    r"(?P<none>No kernel function): \S"
    r"|Part of (?P<whole>\w+)\(\): \S"
    r"|(?P<first>\w+)\(\)(?: and (?P<second>\w+)\(\))?: \S"
)
"""How the docstring of a function begins."""

CITATION = re.compile(r"\bS\d{1,2}(?:\.\d{1,2})?\b")

INTRODUCTION = f"""\
# Kernel functions and what stands for them

Written by `make kernel-table` from the docstrings in `{MODEL}` and `{ORACLE}`.
Each of them begins with the kernel function that it stands for. A function in parentheses does a
part of the kernel's. Methods leave out leading underscores, which mean something else in a Python
class. Files are those of 7.2; kernels are named where not all of {", ".join(SERIES)} have the
function. Sections are those of [page_allocator.md](page_allocator.md).

| kernel function | kernel file | model function (module) | oracle | spec section |
|---|---|---|---|---|
"""


@dataclass(frozen=True)
class ModelFunction:
    """A function of the model or of the oracle.

    Attributes:
        path: its file, from the top of the source tree.
        line: where it begins.
        name: its name, after that of its class.
        docstring: "" if it has none.
    """

    path: Path
    line: int
    name: str
    docstring: str

    @property
    def begins_well(self) -> bool:
        """Whether its docstring begins in one of the three forms."""
        return FORM.match(self.docstring) is not None

    @property
    def kernel_functions(self) -> tuple[str, ...]:
        """Kernel functions that it stands for, wholly or in part."""
        found = FORM.match(self.docstring)
        return tuple(filter(None, found.group("whole", "first", "second"))) if found else ()

    @property
    def is_part(self) -> bool:
        """Whether it does a part of one."""
        return self.docstring.startswith("Part of ")

    @property
    def sections(self) -> frozenset[str]:
        """Sections of the specification that its docstring cites."""
        return frozenset(CITATION.findall(self.docstring))

    def shown(self) -> str:
        """Name and module as the table has them."""
        text = f"`{self.name}` ({self.path.stem})"
        return f"({text})" if self.is_part else text


def functions_in(folder: str, top: Path) -> Iterator[ModelFunction]:
    """Functions and methods of the model's or the oracle's allocator, file after file.

    Tests, special methods and functions within functions are left out.

    Args:
        folder: `MODEL` or `ORACLE`.
        top: of the source tree.
    """
    left_out = LEFT_OUT[folder].split()
    for path in sorted((top / folder).rglob("*.py")):
        part = path.relative_to(top / folder).parts[0].removesuffix(".py")
        if part not in left_out and not path.stem.startswith("test_"):
            yield from _functions_of(ast.parse(path.read_text()), path.relative_to(top), "")


def _functions_of(
    parent: ast.Module | ast.ClassDef, path: Path, prefix: str
) -> Iterator[ModelFunction]:
    for node in parent.body:
        if isinstance(node, ast.ClassDef):
            yield from _functions_of(node, path, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef) and not re.fullmatch(r"__\w+__", node.name):
            docstring = ast.get_docstring(node) or ""
            yield ModelFunction(path, node.lineno, prefix + node.name, docstring)


def kernel_file(name: str) -> str:
    """File that defines a kernel function.

    Raises:
        KeyError: `KERNEL_FILES` does not have it.
    """
    for path, names in KERNEL_FILES.items():
        if name in names.split():
            return path
    raise KeyError(f"{name}: no file of KERNEL_FILES has it; add it there")


def kernels_with(name: str) -> tuple[str, ...]:
    """Kernels of `SERIES` that have a function."""
    for series, names in ONLY_IN.items():
        if name in names.split():
            return series
    return SERIES


def table(top: Path) -> str:
    """The page with the table, of the source tree at `top`."""
    model, oracle = (list(functions_in(each, top)) for each in (MODEL, ORACLE))
    named = {name for each in [*model, *oracle] for name in each.kernel_functions}
    files = list(KERNEL_FILES)
    order = sorted(named, key=lambda name: (files.index(kernel_file(name)), name.strip("_"), name))
    return INTRODUCTION + "".join(_row(name, model, oracle) for name in order)


def _row(name: str, model: list[ModelFunction], oracle: list[ModelFunction]) -> str:
    sides = [[each for each in side if name in each.kernel_functions] for side in (model, oracle)]
    cited = {section for side in sides for each in side for section in each.sections}
    series = kernels_with(name)
    where = kernel_file(name) + (f" ({', '.join(series)})" if series != SERIES else "")
    cells = [f"`{name}`", where]
    for side in sides:
        cells.append(
            ", ".join(each.shown() for each in sorted(side, key=lambda each: each.is_part))
        )
    cells.append(", ".join(sorted(cited, key=_by_number)))
    return f"| {' | '.join(cells)} |\n"


def _by_number(section: str) -> list[int]:
    return [int(part) for part in section[1:].split(".")]


if __name__ == "__main__":
    TOP = Path(__file__).parents[1]
    (TOP / TABLE).write_text(table(TOP))
