"""Assumptions where a recording is silent; printed with every result."""

from __future__ import annotations

from dataclasses import dataclass, fields

from pagealloc_model.base.errors import PolicyError
from pagealloc_model.policy.policy_fields import Given

AUTO = "auto"
"""The mode of reclaim that a recording and a policy ask for (`predicted.reclaim_mode`)."""
CHOICES = {
    "reclaim": (AUTO, "literal", "elastic"),
    "start": ("recorded", "empty"),
    "counters": ("exact", "lagged"),
}
"""Words that fields of `Assumptions` take."""


@dataclass(frozen=True, kw_only=True)
class ElasticAssumptions(metaclass=Given):
    """Findings of the model's reclaim and compaction, and their costs (S9.8, S10.4).

    The values here are general: none is fitted to a recording or a post. What a recording shows
    takes their place (`predicted.elastic_values`). Shares are drawn per page, seeded, so that two
    policies meet the same answers. Those in per mille are 0 to 1000, in percent 0 to 100; times are
    in ns.

    Attributes:
        file_referenced_per_mille: scanned pages of files that turn out to be in use; the 16 that a
            fault maps together are used together (S10.5).
        anon_referenced_per_mille: the same of anonymous pages.
        file_dirty_per_mille: scanned pages of files that must be written first.
        anon_scan_percent: share of the anonymous lists that a pass scans, in percent of what it
            would of files; 0: no swap.
        reclaim_scan_ns: time of kswapd to look at a page, ns.
        kswapd_free_ns: time of kswapd to free one, ns.
        kswapd_as_recorded: at any time kswapd takes as long to free a page as the recorded one did
            then, in place of `kswapd_free_ns`, and is on the CPU that it was on; read where its
            runs were recorded. Its CPU and its locks are shared with what runs at that time, which
            the model does not know. Without it kswapd is on its node's first CPU.
        daemons_as_scheduled: with `kswapd_as_recorded`: kswapd and kcompactd work in the times for
            which the recorded ones were on a CPU, and wait between them as these did, one after the
            other; read where `sched:sched_switch` was recorded (S10.14). Without it, or without
            these events, waits are part of the time that a page takes.
        lru_as_recorded: where reclaim's frees were recorded, it takes the pages that were there at
            the start in the order in which the recorded one did, read off these; without it, by
            address. How much is reclaimed, and when, the model decides.
        kswapd_wake_ns: time from a wake to the first step of kswapd, ns.
        compact_scan_ns: time for compaction to look at a page, ns.
        compact_migrate_ns: time to move one, ns.
        anon_migration_fails_per_mille: anonymous folios that cannot be moved as long as they live;
            recorded kernels fail in less than one of a thousand attempts (S9.9).
        file_migration_fails_per_mille: the same of folios of files.
        base_pages_per_huge: base pages that a task asks for in place of a huge page that was
            refused, though the recording served it: as many of its addresses are touched (S10.5).
        slab_survivors_per_mille: slabs of reclaimable caches that keep an object which no shrinker
            frees, so that their pages stay in use until the recording frees them; what recordings
            show of it is in S10.8.
        compaction_contended_per_mille: blocks in which an asynchronous compaction meets others at
            a lock, so that it gives way at the block's end if it has no page by then.
        thp_madvised: huge pages are asked for in madvised memory; read where a policy changes
            `thp_defrag`, and where a huge page that was served on its node is refused there: the
            attempt elsewhere then retries (S8.5).
        file_uses: where filemap events were recorded, files' pages are used as these show, so that
            what is read depends on what is still in the page cache (S10.7); no: as recorded.
    """

    file_referenced_per_mille: int = 50
    anon_referenced_per_mille: int = 500
    file_dirty_per_mille: int = 20
    anon_scan_percent: int = 0
    reclaim_scan_ns: int = 300
    kswapd_free_ns: int = 500
    kswapd_as_recorded: bool = False
    daemons_as_scheduled: bool = False
    lru_as_recorded: bool = False
    kswapd_wake_ns: int = 20_000
    compact_scan_ns: int = 50
    compact_migrate_ns: int = 2_000
    anon_migration_fails_per_mille: int = 0
    file_migration_fails_per_mille: int = 0
    compaction_contended_per_mille: int = 0
    base_pages_per_huge: int = 512
    slab_survivors_per_mille: int = 1000
    thp_madvised: bool = False
    file_uses: bool = True

    def __post_init__(self) -> None:
        """Refuse what is no share and no time: a PolicyError."""
        for option in fields(self):
            value, ends = getattr(self, option.name), {"_per_mille": 1000, "_percent": 100}
            most = next((ends[end] for end in ends if option.name.endswith(end)), 1 << 40)
            if option.type != "bool" and (type(value) is not int or not 0 <= value <= most):
                raise PolicyError(
                    f"assumptions: {option.name}={value!r}: write a whole number from 0 to {most}"
                )

    @property
    def imposed(self) -> tuple[str, ...]:
        """Actions of the recorded kernel a replay takes over, in words; () for a prediction."""
        words = {
            "kswapd's pace and CPU": self.kswapd_as_recorded,
            "kswapd's and kcompactd's waits for a CPU": self.daemons_as_scheduled,
            "order of reclaim at the start": self.lru_as_recorded,
        }
        return tuple(name for name, taken in words.items() if taken)


@dataclass(frozen=True, kw_only=True)
class Assumptions(metaclass=Given):
    """Assumptions where the recording is silent; printed with every result.

    Attributes:
        reclaim: "literal": frees done by reclaim replay as recorded (S10.4); "elastic": they are
            left out, and the model's own kswapd, direct reclaim and compaction decide; "auto":
            elastic where a policy acts through reclaim or the recorded kernel reclaimed, else
            literal. Results name the mode that was taken.
        decay_period_ns: time between two decay ticks of a CPU (S4.8: nominally 1 s), where the
            recording does not show them; 1 ms or more.
        decay_phase_ns: when within a period CPU 0's decay tick comes, on the recording's clock. It
            depends on when the machine booted; only recorded ticks show it.
        hidden_migratetype: migratetype of allocations the recording does not show (T9): 0 for
            unmovable, as bulk allocations mostly are, 1 for movable, 2 for reclaimable.
        start: "recorded": begin with the state that the recording's files and first touches show;
            "empty": with all managed pages free, for synthetic demand.
        free_high_batch: the CPU's data-cache slice exceeds 3 batches (FREE_HIGH_BATCH, S4.6).
        counters: what watermark tests read: "exact" counts, or counts that are "lagged" by what
            each CPU has not passed on yet (S1.10). They lag in a replay from a state file, which
            has what each CPU holds back.
        plain_demand: pages that recorded compaction took are asked for like any others, and what
            interrupts a folio batch finds its lists free (S4.10, S10.4): the demand that a kernel
            build always has, since its shim knows neither.
        elastic: what reclaim and compaction find and cost, in an elastic replay; None: as the
            recording shows it, and general values where it shows nothing. See
            `pagealloc_model.policy.ElasticAssumptions`.
    """

    reclaim: str = AUTO
    decay_period_ns: int = 1_000_000_000
    decay_phase_ns: int = 0
    hidden_migratetype: int = 0
    start: str = "recorded"
    free_high_batch: bool = True
    counters: str = "exact"
    plain_demand: bool = False
    elastic: ElasticAssumptions | None = None

    def __post_init__(self) -> None:
        """Refuse values no replay knows: a PolicyError."""
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                known = " or ".join(map(repr, choices))
                raise PolicyError(f"assumptions: {name}={value!r} is not known; use {known}")
        if self.decay_period_ns < 1_000_000:
            raise PolicyError("assumptions: decay_period_ns must be at least 1000000 (1 ms)")
        if not 0 <= self.decay_phase_ns < self.decay_period_ns:
            raise PolicyError("assumptions: decay_phase_ns must be within the period")
        if self.hidden_migratetype not in (0, 1, 2):
            raise PolicyError("assumptions: hidden_migratetype must be 0, 1 or 2")
