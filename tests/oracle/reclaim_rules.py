"""How kernels differ in reclaim: the rows of S13 that only an elastic replay has use for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ReclaimRules:
    """Behaviours of reclaim that differ between versions.

    Attributes:
        free_counts_as_reclaimable: a zone without reclaimable pages has its free ones counted as
            such (S8.3).
        tries_without_cache_trim: a run of kswapd that freed nothing and spared anonymous memory for
            a large cache begins again without doing so (S10.2).
        fruitless_reclaim_repeated: direct reclaim that freed nothing is done once more (S8.2).
        throttle_counts_exactly: free pages are counted exactly where requests may have to wait
            (S8.2).
        boosted_runs_never_fail: a run that began with a boost is no failure (S10.2).
        revived_when_balanced: progress makes a node hopeful only if it is balanced then, and a
            list's free that finds the zone well off does too (S10.2).
        ready_by_high_mark: compaction is ready if it suits by the high mark (S8.2).
        lru_skips_capped: one taking passes over so many folios of too high zones, and takes the
            others (S10.6).
        frees_backwards: single pages of a cluster are freed in reverse order, larger folios as soon
            as they are seen (S10.6).
    """

    free_counts_as_reclaimable: bool = True
    tries_without_cache_trim: bool = True
    fruitless_reclaim_repeated: bool = True
    throttle_counts_exactly: bool = True
    boosted_runs_never_fail: bool = False
    revived_when_balanced: bool = False
    ready_by_high_mark: bool = False
    lru_skips_capped: bool = False
    frees_backwards: bool = False


RULES_7_2 = ReclaimRules(
    free_counts_as_reclaimable=False,
    boosted_runs_never_fail=True,
    revived_when_balanced=True,
    ready_by_high_mark=True,
    lru_skips_capped=True,
)
RECLAIM_RULES = {
    "6.1": ReclaimRules(
        tries_without_cache_trim=False,
        fruitless_reclaim_repeated=False,
        throttle_counts_exactly=False,
        frees_backwards=True,
    ),
    "6.12": ReclaimRules(),
    "6.18": ReclaimRules(),
    "7.2": RULES_7_2,
    "7.3": RULES_7_2,
}
"""By name of the oracle's rules."""
