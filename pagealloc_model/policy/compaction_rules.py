"""Behaviours of compaction that differ between kernel versions (S13)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def rule(meaning: str, source: str) -> Any:
    """Declare a rule: what a kernel that has it does, and the section of the specification."""
    return field(metadata={"meaning": meaning, "source": source})


@dataclass(frozen=True, kw_only=True)
class CompactionRules:
    """The rules of S9; each has its `meaning` as metadata."""

    compact_gap_capped: bool = rule(
        "compaction asks for no more than 32 free pages beside the watermark", "S9.1"
    )
    suitable_by_request_mark: bool = rule(
        "compaction measures free memory by the request's own watermark", "S9.1"
    )
    suitable_beside_cma: bool = rule(
        "asynchronous compaction for costly orders that may not use CMA needs the free pages "
        "outside CMA",
        "S9.1",
    )
    direct_source_needs_cma: bool = rule(
        "direct compaction moves pages out of CMA blocks only for requests that may use CMA", "S9.3"
    )
    proactive_leeway_shrinks: bool = rule(
        "proactive compaction has no lowest score of 5, and begins at most half of the lower score "
        "above it",
        "S9.6",
    )
    async_source_by_order: bool = rule(
        "asynchronous compaction for whole blocks moves pages of movable blocks for any request",
        "S9.3",
    )
    compaction_moves_compound_pages: bool = rule(
        "compaction moves compound pages smaller than what it makes; otherwise single pages only",
        "S9.3",
    )
    scans_count_skipped_pages: bool = rule(
        "compaction counts each page of the buddies and compound pages that it steps over as "
        "scanned; otherwise one for each",
        "S9.3",
    )
    zone_start_begins_block: bool = rule(
        "a scan for sources from the zone's first page has all of that page's block, wherever in "
        "it the page is",
        "S9.3",
    )
    any_isolation_marks_block: bool = rule(
        "the first isolation sets the block's skip mark; otherwise that of the block's first page "
        "only",
        "S9.3",
    )
    fast_sources_marked: bool = rule(
        "the fast search for sources sets the skip mark of the block it finds, which is then left "
        "out",
        "S9.3",
    )
    failed_blocks_finished: bool = rule(
        "where a folio cannot be moved, compaction takes the rest of the block; otherwise "
        "asynchronous direct runs leave the order-aligned range",
        "S9.3",
    )
    moved_from_where_scan_ended: bool = rule(
        "the block moved from last is the one where the scan ended; otherwise where it began",
        "S9.3",
    )
    capture_ends_before_drain: bool = rule(
        "a captured page ends a run before it drains; otherwise behind that", "S9.7"
    )
    movable_capture_below_block: bool = rule(
        "movable requests capture pages below pageblock order from MOVABLE blocks; otherwise "
        "nobody does",
        "S9.7",
    )
    proactive_scans_counted: bool = rule(
        "proactive rounds count in compact_daemon_migrate_scanned and compact_daemon_free_scanned",
        "S9.6",
    )
    targets_kept_whole: bool = rule(
        "free pages that compaction holds stay whole until they are cut to size; otherwise all "
        "are single pages, the last held first",
        "S9.3",
    )
    target_block_by_order: bool = rule(
        "a block that begins with a free page of the order asked is no target; otherwise of "
        "pageblock order",
        "S9.3",
    )
    target_steps_end_in_block: bool = rule(
        "the scan for targets steps over a compound page only if it ends in the block", "S9.3"
    )
    target_position_leaves_block: bool = rule(
        "the cached target position goes below a block scanned to its end; otherwise to its first "
        "page",
        "S9.3",
    )
    fast_targets_end_at_enough: bool = rule(
        "the fast search for targets ends as it has enough, and the next begins with the same "
        "order",
        "S9.3",
    )
    fast_targets_marked_at_end: bool = rule(
        "after a fast search a block is marked if it was scanned to its end; otherwise if it had "
        "too few pages",
        "S9.3",
    )
    late_target_block_tested: bool = rule(
        "the block in the middle is scanned after a search in vain only if it is a target", "S9.3"
    )
    retry_counts_served_zones: bool = rule(
        "before more reclaim, a zone that could serve the request suits like others", "S8.4"
    )
    stall_leaves_out_deferred: bool = rule(
        "compact_stall leaves out attempts that were deferred", "S9"
    )
