"""Behaviours of the allocator that differ between kernel versions (S13)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pagealloc_model.base.errors import PolicyError, known_names


def rule(meaning: str, source: str, *, of_demand: bool = False) -> Any:
    """Declare a rule: what a kernel that has it does, and the section of the specification.

    One `of_demand` says how events are read; no kernel of the model reads it.
    """
    metadata = {"meaning": meaning, "source": source, "of_demand": of_demand}
    return field(default=False, metadata=metadata)


BY_ANSWERS = "evidence"
"""The word for `rules=` that lets what the recorded kernel did choose, too."""


@dataclass(frozen=True, kw_only=True)
class KernelRules:
    """One kernel generation's rules; every field is a row of S13.

    Attributes are documented by their `meaning` metadata. `name` is the preset's name, `source`
    the release whose source was read for it, "" where recordings stand in for it, and `inferred`
    names the fields whose value neither shows (S13).
    """

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
    name: str
    high_order_flush_adds_half_high_min: bool = rule(
        "high-order frees flush once free_count >= batch + high_min/2, not batch", "S4.6"
    )
    pcp_auto_tuned: bool = rule(
        "pcp->high moves between high_min and high_max, transfers follow alloc_factor and "
        "free_count; otherwise high is fixed at high_min and drains double by free_factor",
        "S4.3 to S4.6",
    )
    pcp_decays: bool = rule("pcp->high sinks with every vmstat tick", "S4.8")
    free_batched: bool = rule("the free path drains in chunks of pcp->batch", "S4.7")
    decay_batched: bool = rule("the periodic decay drains in chunks of pcp->batch", "S4.8")
    full_drain_batched: bool = rule(
        "draining a zone's lists drops the lock after every batch << S pages", "S4.9"
    )
    fallback_from_largest: bool = rule(
        "a fallback moves the largest buddy of another type, or its block's free pages, to the "
        "requester's lists; otherwise claim, then steal",
        "S6.5",
    )
    refill_mode_persists: bool = rule(
        "after a steal the rest of a refill steals too, without looking for its own type or a "
        "block to claim again",
        "S6.2",
    )
    lists_match_blocks: bool = rule(
        "a free page is on the lists of its block's type: drains look the type up, merges and "
        "conversions retag; otherwise pages keep the type they had when freed",
        "S4.6, S5.3, S5.6",
    )
    free_split_by_block: bool = rule(
        "a page above pageblock order is freed block by block, each with its own type", "S5.4"
    )
    highatomic_needs_high: bool = rule(
        "only non-blocking requests with __GFP_HIGH may use the highatomic reserve", "S2.6"
    )
    highatomic_from_pcp: bool = rule(
        "requests served by a per-CPU list grow the highatomic reserve", "S7.1"
    )
    highatomic_refills_pcp: bool = rule(
        "HIGHATOMIC requests may refill a per-CPU list instead of going to the buddy", "S4.4"
    )
    reserve_cap_rounded: bool = rule(
        "the reserve's cap is the share rounded up to blocks, none below a block; otherwise the "
        "share plus a block",
        "S7.2",
    )
    watermark_subtracts_free: bool = rule(
        "watermark tests subtract the free highatomic pages; otherwise all reserved ones", "S3.3"
    )
    movable_min_capped: bool = rule(
        "ZONE_MOVABLE has a small min watermark of its own and no share in min_free_kbytes", "S1.6"
    )
    below_high_tested: bool = rule(
        "requests test the high watermark first and note zones below it", "S3.1"
    )
    boost_retry_by_high: bool = rule(
        "order-0 requests with __GFP_HIGH are retried without the boost; otherwise those with "
        "__GFP_ATOMIC that do not reclaim",
        "S3.3",
    )
    boosted_wake_needs_bit: bool = rule(
        "only requests that may wake kswapd do so for a boosted zone", "S3.2"
    )
    skips_busy_kswapd_nodes: bool = rule(
        "with several nodes, a first walk of the zonelist leaves out nodes whose kswapd runs",
        "S3.1",
    )
    huge_lists_hold_blocks: bool = rule(
        "the per-CPU lists behind those of costly orders hold pages of pageblock order; otherwise "
        "transparent huge pages",
        "S1.9",
    )
    refill_counted_at_end: bool = rule(
        "a refill's pages leave the count of free pages together, at its end", "S1.10"
    )
    initial_compaction_in_loop: bool = rule(
        "compaction that comes before reclaim is the first turn of the slow path's loop; otherwise "
        "it precedes the loop, and its result may end a request",
        "S8.1",
    )
    compaction_needs_reclaim: bool = rule(
        "only requests that may reclaim directly may compact", "S8.1"
    )
    defrag_mode_fixes: bool = rule(
        "under defrag_mode, requests that may not reclaim fall back instead of failing", "S8.6"
    )
    highatomic_fastpath: bool = rule(
        "atomic requests may draw on the highatomic reserve at their first attempt", "S2.5"
    )
    highatomic_slowpath_only: bool = rule(
        "only attempts at the min mark, the slow path's, grow the highatomic reserve", "S7.1"
    )
    defrag_promotes_order: bool = rule(
        "under defrag_mode, requests that are not movable reclaim and compact for whole blocks",
        "S8.7",
    )
    promoted_fall_back_afresh: bool = rule(
        "such requests compact again whatever their order, and count retries anew once they fall "
        "back",
        "S8.7",
    )
    free_counts_as_reclaimable: bool = rule(
        "a zone without pages on LRU lists counts as reclaimable what it has free", "S8.3"
    )
    tries_without_cache_trim: bool = rule(
        "a run of kswapd that freed nothing begins again without sparing ANON for a large cache",
        "S10.2",
    )
    fruitless_reclaim_repeated: bool = rule(
        "direct reclaim that freed nothing goes through all priorities a second time", "S8.2"
    )
    throttle_counts_exactly: bool = rule(
        "direct reclaim is throttled by exact counts of free pages, not by those that lag", "S8.2"
    )
    boosted_runs_never_fail: bool = rule(
        "a run of kswapd that began with boosts is not counted as a failure", "S10.2"
    )
    revived_when_balanced: bool = rule(
        "what is freed makes a node hopeful again only once it is balanced, or as a list's frees "
        "lift a zone above its high mark",
        "S10.2",
    )
    ready_by_high_mark: bool = rule(
        "compaction is left the rest of a costly request where it suits at the high mark", "S8.2"
    )
    lru_skips_capped: bool = rule(
        "a scan passes over 32768 folios in too high zones at most, then takes them", "S10.5"
    )
    reclaim_frees_backwards: bool = rule(
        "of the pages that a cluster of reclaim frees the last one taken is freed first", "S10.6"
    )
    claim_looks_first: bool = rule(
        "a claim looks for a buddy before it is asked whether its block is worth it", "S6.7"
    )
    frees_ranges_in_chunks: bool = rule(
        "pages of a contiguous range that are freed together go to the lists as one chunk",
        "S4.11",
        of_demand=True,
    )
    source: str = ""
    inferred: tuple[str, ...] = ()

    @staticmethod
    def rule_names() -> tuple[str, ...]:
        """The fields that are rules, in order."""
        return tuple(rule.name for rule in fields(KernelRules) if rule.metadata)

    @staticmethod
    def decision_names() -> tuple[str, ...]:
        """Those of them that kernels of the model read, in order: each is a word of the state."""
        rules = (rule for rule in fields(KernelRules) if rule.metadata)
        return tuple(rule.name for rule in rules if not rule.metadata["of_demand"])

    @staticmethod
    def preset(name: str) -> KernelRules:
        """The preset of one kernel series.

        Raises:
            PolicyError: no such preset.
        """
        if name not in PRESETS:
            raise PolicyError(f"no rules preset {name!r}; there are {', '.join(PRESETS)}")
        return PRESETS[name]

    @staticmethod
    def named(text: str) -> KernelRules:
        """The rules that words such as "6.18" or "6.18,free_batched=true" name.

        Raises:
            PolicyError: no such preset or rule, or a value that is neither true nor false.
        """
        name, *settings = text.split(",")
        rules, switches = KernelRules.preset(name.strip()), KernelRules.rule_names()
        for setting in settings:
            rule, _, value = (part.strip() for part in setting.partition("="))
            if rule not in switches:
                known = known_names(rule, switches, "fields")
                raise PolicyError(f"rules have no field {rule!r}; {known}")
            if value.lower() not in ("true", "false"):
                raise PolicyError(f"rule {setting!r}: write {rule}=true or {rule}=false")
            rules = replace(rules, **{rule: value.lower() == "true"})
        return rules

    def spelled(self) -> str:
        """The words that `named` takes for these rules."""
        preset = PRESETS.get(self.name, self)
        changed = [
            f"{rule}={str(getattr(self, rule)).lower()}"
            for rule in self.rule_names()
            if getattr(self, rule) != getattr(preset, rule)
        ]
        return ",".join([self.name, *changed])

    @staticmethod
    def series(release: str) -> str:
        """Major and minor version, as 6.18 of "6.18.44-generic"; "" if there is none."""
        match = re.match(r"(\d{1,4})\.(\d{1,4})", release)
        return f"{int(match[1])}.{int(match[2])}" if match else ""

    @staticmethod
    def for_release(release: str) -> tuple[KernelRules, str]:
        """The preset nearest to a kernel release, and one line on how well it fits.

        Args:
            release: as `uname -r` prints it, such as "6.18.44-generic"; "" if unknown.

        Raises:
            PolicyError: the release is older than every preset.
        """
        series = KernelRules.series(release)
        if not series:
            newest = list(PRESETS)[-1]
            return PRESETS[newest], f"kernel release unknown, rules {newest} assumed"
        known = {tuple(map(int, name.split("."))): name for name in PRESETS}
        version = tuple(map(int, series.split(".")))
        nearest = max((release for release in known if release <= version), default=None)
        if nearest is None:
            raise PolicyError(
                f"kernel {release} is older than the oldest rules preset "
                f"({next(iter(PRESETS))}); name one with rules= or --rules to go on all the same"
            )
        name = known[nearest]
        if nearest == version:
            return PRESETS[name], f"rules {name} from kernel release {release}"
        relation = "newer than every preset" if version > max(known) else "between presets"
        return PRESETS[name], f"kernel {release} is {relation}, rules {name} assumed"


def _since(before: KernelRules, name: str, on: str, off: str = "", **others: Any) -> KernelRules:
    """The rules of a later kernel, with the names of those that came and that went."""
    changed = dict.fromkeys(on.split(), True) | dict.fromkeys(off.split(), False)
    return replace(before, name=name, **changed, **others)


def _all_but(names: str) -> tuple[str, ...]:
    return tuple(name for name in KernelRules.rule_names() if name not in names.split())


_6_1 = _since(
    KernelRules(name=""),
    "6.1",
    """full_drain_batched fallback_from_largest highatomic_needs_high highatomic_from_pcp
    highatomic_refills_pcp refill_counted_at_end huge_lists_hold_blocks fast_sources_marked
    free_counts_as_reclaimable reclaim_frees_backwards claim_looks_first""",
    source="6.1.192",
)
_6_12 = _since(
    _6_1,
    "6.12",
    """pcp_auto_tuned pcp_decays decay_batched refill_mode_persists lists_match_blocks
    free_split_by_block reserve_cap_rounded watermark_subtracts_free movable_min_capped
    below_high_tested boost_retry_by_high boosted_wake_needs_bit tries_without_cache_trim
    fruitless_reclaim_repeated compaction_moves_compound_pages scans_count_skipped_pages
    zone_start_begins_block any_isolation_marks_block failed_blocks_finished
    moved_from_where_scan_ended capture_ends_before_drain movable_capture_below_block
    proactive_scans_counted targets_kept_whole target_block_by_order target_steps_end_in_block
    target_position_leaves_block fast_targets_end_at_enough fast_targets_marked_at_end
    late_target_block_tested retry_counts_served_zones throttle_counts_exactly""",
    """fallback_from_largest refill_counted_at_end huge_lists_hold_blocks reclaim_frees_backwards
    fast_sources_marked""",
    source="6.12.117",
)
_6_15 = _since(
    _6_12,
    "6.15",
    "suitable_by_request_mark",
    "decay_batched highatomic_needs_high",
    source="",
    inferred=_all_but("fallback_from_largest suitable_by_request_mark"),
)
"""The tree of March 2025 that "mm: page_alloc: defrag_mode kswapd/kcompactd assistance" was posted
for; S13 has the source of each value."""
_6_18 = _since(
    _6_12,
    "6.18",
    "high_order_flush_adds_half_high_min skips_busy_kswapd_nodes",
    "claim_looks_first",
    source="",
    inferred=_all_but(
        """high_order_flush_adds_half_high_min pcp_auto_tuned pcp_decays free_batched decay_batched
        fallback_from_largest lists_match_blocks"""
    ),
)
_7_2 = _since(
    _6_18,
    "7.2",
    """free_batched initial_compaction_in_loop compaction_needs_reclaim compact_gap_capped
    suitable_by_request_mark suitable_beside_cma direct_source_needs_cma proactive_leeway_shrinks
    async_source_by_order stall_leaves_out_deferred defrag_mode_fixes defrag_promotes_order
    boosted_runs_never_fail revived_when_balanced ready_by_high_mark lru_skips_capped
    frees_ranges_in_chunks""",
    "highatomic_from_pcp highatomic_refills_pcp free_counts_as_reclaimable",
    source="7.2.13",
    inferred=(),
)
_7_3 = _since(
    _7_2,
    "7.3",
    "highatomic_fastpath highatomic_slowpath_only promoted_fall_back_afresh",
    source="7.3.4",
)
PRESETS = {rules.name: rules for rules in (_6_1, _6_12, _6_15, _6_18, _7_2, _7_3)}


def preset_names() -> tuple[str, ...]:
    """Names of the presets, oldest first."""
    return tuple(PRESETS)
