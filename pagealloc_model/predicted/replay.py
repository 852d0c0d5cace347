"""Replaying a recording's demand through the model under a policy: `replay` and its result."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.from_source.build import KernelBuild
from pagealloc_model.allocator.state import State
from pagealloc_model.base import progress_bar
from pagealloc_model.base.arrays import bin_edges, parts
from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.base.jit import kernel_fingerprint
from pagealloc_model.base.lazy import LazyMethod
from pagealloc_model.base.version import __version__
from pagealloc_model.measured.rules import ChosenRules, RuleEvidence, choose_rules
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.lock_costs import LockCosts
from pagealloc_model.policy.policy import ELASTIC_SETTINGS, Assumptions, Policy
from pagealloc_model.predicted import tables
from pagealloc_model.predicted.carrier import Carrier, ModelCarrier
from pagealloc_model.predicted.checkpoints import Checkpoints, Resumption
from pagealloc_model.predicted.demand.compaction import as_requests
from pagealloc_model.predicted.demand.sources import Exchange
from pagealloc_model.predicted.prepared import Imposed, Prepared, prepare
from pagealloc_model.predicted.run import Cancelled as Cancelled
from pagealloc_model.predicted.run import (
    Samples,
    advance_and_sample,
    divergence,
    fallback_counts,
    recorded_kswapd,
)
from pagealloc_model.predicted.tables import (
    TransactionCounts,
    list_use,
    refill_phases,
)
from pagealloc_model.recording.machine import Machine
from pagealloc_model.recording.provenance import ProvenanceCheck, demand_checks
from pagealloc_model.recording.recorded_machine import effective_policy
from pagealloc_model.recording.trace.columns import Event

if TYPE_CHECKING:
    from pagealloc_model.allocator.hooks import Hooks
    from pagealloc_model.predicted.demand.demand import Demand
    from pagealloc_model.recording.recording import Recording

BY_RECLAIM = ("min_free_kbytes", "watermark_scale_factor", "watermark_boost_factor")
"""Policy fields whose effect is mostly that of other reclaim: watermarks wake and end it."""

RECLAIMED = ("pgsteal_kswapd", "pgsteal_direct", "pgsteal_khugepaged", "pgsteal_proactive")
"""Counters of /proc/vmstat that add up to all reclaimed pages (T12.4)."""

WITHOUT_BUILD = ("kcompactd_unreserves",)
"""Fields of the model's compaction that reach into what a kernel build decides."""


def literal_part(policy: Policy) -> Policy:
    """The policy without what only an elastic replay reads."""
    given = policy.given()
    if not given.keys() & set(ELASTIC_SETTINGS):
        return policy
    return Policy.from_settings(
        {name: value for name, value in given.items() if name not in ELASTIC_SETTINGS}
    )


def check_mode(policy: Policy, assumptions: Assumptions, *, is_build: bool) -> None:
    """Refuse a replay whose mode of reclaim does not have what is asked for.

    Args:
        policy: what the caller changed.
        assumptions: name the mode.
        is_build: a kernel build takes the model's place.

    Raises:
        PolicyError: a field that only an elastic replay reads, in a literal one; one that an
            elastic replay by a kernel build does not have.
    """
    given = policy.given()
    if assumptions.reclaim == "elastic":
        if is_build:
            for name in WITHOUT_BUILD:
                if name in given:
                    raise PolicyError(
                        f"policy {name}: an elastic replay by a kernel build does not have it, as "
                        "it is about reserved blocks, which are the tree's; leave it out"
                    )
        return
    for name in ELASTIC_SETTINGS:
        if name in given:
            raise PolicyError(
                f"policy {name}: a literal replay repeats the recorded reclaim and compaction; "
                "use --reclaim elastic, in Python Assumptions(reclaim='elastic')"
            )


@dataclass(frozen=True)
class ReclaimChoice:
    """The mode of reclaim that a recording and policies ask for.

    Attributes:
        mode: "literal", what the recorded kernel reclaimed is repeated, or "elastic", the model
            decides what is reclaimed and compacted.
        why: a phrase.
    """

    mode: str
    why: str

    def __str__(self) -> str:
        acts = (
            "the model decides what is reclaimed and compacted"
            if self.mode == "elastic"
            else "what the recorded kernel reclaimed is repeated"
        )
        return f"Reclaim is {self.mode} ({acts}): {self.why}."


def choose_reclaim(recording: Recording, *policies: Policy, asked: str = "") -> ReclaimChoice:
    """Elastic where a policy acts through reclaim or the recorded kernel reclaimed, else literal.

    Args:
        recording: an opened recording.
        policies: what is to be replayed.
        asked: a mode that is taken whatever the recording holds, "" for none.
    """
    if asked:
        return ReclaimChoice(asked, "as asked for")
    fields = dict.fromkeys(name for policy in policies for name in policy.given())
    acting = [name for name in fields if name in (*ELASTIC_SETTINGS, *BY_RECLAIM)]
    if acting:
        verb = "acts" if len(acting) == 1 else "act"
        return ReclaimChoice("elastic", f"{', '.join(acting)} {verb} through reclaim")
    pages = _reclaimed_pages(recording)
    if pages:
        return ReclaimChoice("elastic", f"the recorded kernel reclaimed {pages:,} pages")
    return ReclaimChoice("literal", "the recorded kernel reclaimed nothing")


def _reclaimed_pages(recording: Recording) -> int:
    """Pages that the recorded kernel reclaimed, by /proc/vmstat or else by events."""
    counts = [each.vmstat for each in recording.snapshots if each.vmstat is not None]
    if len(counts) > 1:
        first, last = counts[0], counts[-1]
        return sum((last.get(name) or 0) - (first.get(name) or 0) for name in RECLAIMED)
    shrinks = recording.trace.tables.get("vmscan:mm_vmscan_lru_shrink_inactive")
    return 0 if shrinks is None else int(shrinks["nr_reclaimed"].sum())


class Tables:
    """Tables of what a state was at instants, and of its holds of zone->lock; made on first use."""

    machine: Machine
    samples: Samples
    log: np.ndarray
    fallback_counts: np.ndarray
    final: State | None

    @cached_property
    def free_pages(self) -> pd.DataFrame:
        """Free buddies and pages by time, zone, order and migratetype."""
        return tables.free_pages(self.machine, self.samples.time_ns, self.samples.free_buddies)

    @cached_property
    def pageblocks(self) -> pd.DataFrame:
        """Pageblocks by time, zone and migratetype."""
        return tables.pageblocks(self.machine, self.samples.time_ns, self.samples.blocks)

    @cached_property
    def pcp(self) -> pd.DataFrame:
        """Per-CPU list counts and limits by time, zone and CPU."""
        return tables.pcp(self.machine, self.samples.time_ns, self.samples.pcp)

    @cached_property
    def boosts(self) -> pd.DataFrame:
        """time_ns, node, zone, pages: watermark boosts (S1.7)."""
        return tables.boosts(self.machine, self.samples.time_ns, self.samples.boosts)

    @cached_property
    def list_use(self) -> pd.DataFrame:
        """pcp->lock, and the work of pageblock ownership, by time and zone, cumulative (S12.8)."""
        samples = self.samples
        return list_use(self.machine, samples.time_ns, samples.list_locks, samples.ownership)

    @cached_property
    def refill_phases(self) -> pd.DataFrame:
        """Refills by phase, time and zone, cumulative; NA without ownership (S12.3)."""
        return refill_phases(self.machine, self.samples.time_ns, self.samples.ownership)

    @cached_property
    def transactions_full(self) -> pd.DataFrame:
        """Every zone->lock hold, one row each."""
        return tables.transactions_full(self.machine, self.log)

    def holds(self, costs: LockCosts | None = None) -> pd.DataFrame:
        """Every zone->lock hold with its work and the time that it takes by assumed costs.

        Args:
            costs: of units of work; None for the defaults. Nobody waits.

        Returns:
            Columns of `transactions_full`, splits, merges, inserts, scanned and hold_ns.
        """
        table = self.transactions_full
        log = self.log[self.log[:, 0] < at.SITES]
        names = ("splits", "merges", "inserts", "scanned")
        work = {name: log[:, at.LOG_WORK + unit] for unit, name in enumerate(names)}
        held = (costs or LockCosts()).hold_ns({"objects": log[:, 6], **work})
        return table.assign(**work, hold_ns=held)

    @cached_property
    def transactions(self) -> pd.DataFrame:
        """Histogram of transaction sizes by zone, CPU, site and cause."""
        counts = TransactionCounts(self.machine)
        for part in parts(len(self.log)):
            counts.add(self.log[part])
        return counts.transactions

    @cached_property
    def fallbacks(self) -> pd.DataFrame:
        """Fallbacks by types, orders and kind (S6.6)."""
        return tables.fallbacks(self.fallback_counts)

    @property
    def refill_probes(self) -> tuple[int, int]:
        """Free lists that refills looked at (S6.7): in all, since the start, and at most in one.

        Zeros under pageblock ownership, whose refills are not counted, and of a kernel build.
        """
        if self.final is None:
            return 0, 0
        return int(self.final.st[at.REFILL_PROBES]), int(self.final.st[at.REFILL_PROBES_MOST])


@dataclass(frozen=True, kw_only=True, eq=False)
class Replay(Tables):
    """What the model predicts for one policy; tables are DataFrames, made on first use.

    Attributes:
        name: the recording's name.
        machine: the machine replayed on.
        policy: the effective policy, recorded values filled in.
        asked_policy: what the caller changed.
        rules: the kernel rules used.
        rules_origin: one line on how they were chosen.
        rule_evidence: what each rule rests on.
        assumptions: ours.
        seed: of choices that nothing settles.
        samples: counters at every sample instant.
        edges: int64, edges of the regular grid's bins.
        log: int64, shape (transactions, LOG_COLUMNS): every zone->lock hold.
        places: int32, where the model put each object, -1 where nowhere.
        demand: the objects and events replayed.
        fallback_counts: int64, shape `layout.FALLBACK_SHAPE`.
        divergence: counts of what the recording and the model disagreed on.
        start_state: lines on the start image.
        losses: events the recording lost.
        kernel: the kernel build that took the model's place, "" if none did.
        hooks: decisions that functions of the caller made.
        not_covered: what that build leaves to us.
        imposed: decisions of the kernel that were taken from the recording; if any, this is no
            prediction of that recording.
        checks: whether the recording and what a replay makes up can carry a conclusion.
        recording: what was replayed.
    """

    compare = LazyMethod("verdict.comparison", "compare")
    lock_times = LazyMethod("predicted.lock_times", "lock_times")
    _repr_html_ = LazyMethod("show.html.results", "replay_html")
    _repr_pretty_ = LazyMethod("show.html.results", "print_replay")

    name: str
    machine: Machine
    policy: Policy
    asked_policy: Policy
    rules: KernelRules
    rules_origin: str
    rule_evidence: tuple[RuleEvidence, ...]
    assumptions: Assumptions
    seed: int
    samples: Samples
    edges: np.ndarray
    log: np.ndarray
    places: np.ndarray
    demand: Demand
    fallback_counts: np.ndarray
    divergence: dict[str, int]
    start_state: tuple[str, ...]
    losses: int = 0
    kernel: str = ""
    hooks: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    imposed: tuple[str, ...] = ()
    checks: tuple[ProvenanceCheck, ...] = ()
    recording: Recording | None = field(default=None, repr=False)
    final: State | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"<Replay of {self.name}, {self.asked_policy}, {self.assumptions.reclaim} reclaim>"

    @cached_property
    def lock(self) -> pd.DataFrame:
        """zone->lock acquisitions by time bin, zone and site (S11.1)."""
        return tables.lock(self.machine, self.edges, self.log)

    @cached_property
    def outcomes(self) -> pd.DataFrame:
        """Requests by order; success under another policy is NA in a literal replay."""
        if self.assumptions.reclaim == "elastic":
            return tables.elastic_outcomes(self.samples.counters[-1])
        return tables.outcomes(self.demand.events)

    @cached_property
    def vmstat(self) -> pd.DataFrame:
        """Counters under the kernel's names since the start; all NA in a literal replay."""
        if self.assumptions.reclaim == "elastic":
            return tables.elastic_vmstat(self.machine, self.samples.time_ns, self.samples.counters)
        return tables.vmstat(int(self.samples.time_ns[-1]))

    @property
    def provenance(self) -> dict[str, object]:
        """What made this result: recording, policy, rules, assumptions, versions, losses."""
        return {
            "recording": self.name,
            "rules": self.rules.spelled(),
            "rules_origin": self.rules_origin,
            "policy": self.policy.given(),
            "changed": self.asked_policy.given(),
            "assumptions": asdict(self.assumptions),
            "seed": self.seed,
            "version": __version__,
            "model": kernel_fingerprint(),
            "divergence": self.divergence,
            "lost_events": self.losses,
            "checks": [each.to_dict() for each in self.checks],
            **({"kernel_source": self.kernel} if self.kernel else {}),
            **({"hooks": list(self.hooks)} if self.hooks else {}),
            **({"imposed": list(self.imposed)} if self.imposed else {}),
        }


def replay(
    recording: Recording,
    policy: Policy | KernelBuild | None = None,
    *,
    rules: KernelRules | str | None = None,
    assumptions: Assumptions | None = None,
    seed: int = 0,
    window: tuple[float, float] | None = None,
    hooks: Hooks | None = None,
    checkpoints: Checkpoints | None = None,
    progress: Callable[[float], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> Replay:
    """Predict what the allocator would have done under a policy.

    Uses the recording's demand (T10.11) and start state only: the result does not change if
    zone_locked, pcpu_drain, extfrag, lock events and later snapshots are taken out of the
    recording. When vmstat ticks ran, if that was recorded, is demand; what they drained is not.

    Args:
        recording: an opened recording.
        policy: fields that differ from the recorded policy; or a kernel build, whose own code
            then takes the model's place from the start state on.
        rules: as `choose_rules` takes them. None takes those of the recorded kernel by its release
            and settings; "evidence" uses what the allocator did as well, and then the sentence
            above no longer holds.
        assumptions: None for the defaults.
        seed: for choices that nothing in the recording settles.
        window: (from, to) in seconds after the first event; the tables cover only that part, the
            replay still begins at the start.
        hooks: functions of your own in place of the model's decisions.
        checkpoints: states kept from earlier replays with the same policy, rules, assumptions and
            seed: a window then goes on from the latest one before it and leaves one where it
            begins. The result is the same. Not used with hooks or a kernel build.
        progress: called with the share replayed, 0 to 1; None shows a bar where one is seen.
        cancel: asked now and then; True ends the replay with `Cancelled`.

    Raises:
        UsageError: no snapshot, nothing to replay, an empty window, or hooks for a kernel
            build.
        PolicyError: no rules for the recording's kernel, or a policy that this mode of reclaim does
            not have.
        RecordingError: a file of the recording cannot be read.
        KernelSourceError: the build's tree lacks functions or does not compile.
        Cancelled: `cancel` said so.
    """
    build = policy if isinstance(policy, KernelBuild) else None
    if build is not None and hooks is not None:
        raise UsageError("a kernel build has no hooks: change its source instead")
    asked = build.policy if build is not None else policy or Policy()
    assumptions = assumptions or Assumptions()
    check_mode(asked, assumptions, is_build=build is not None)
    question = _Question(
        recording=recording,
        asked=asked,
        chosen=choose_rules(recording, rules),
        assumptions=assumptions,
        seed=seed,
        build=build,
        hooks=hooks,
        window=window,
    )
    with progress_bar.progress(
        f"preparing {recording.name}",
        len(recording.trace),
        "events",
        given=None if progress is None else progress_bar.unreported,
    ) as report:
        prepared = prepare(recording, question.chosen.rules, assumptions, seed, report)
    return _answer(question, prepared, checkpoints, progress, cancel)


def replay_imposed(
    recording: Recording,
    imposed: Imposed,
    *,
    rules: KernelRules,
    assumptions: Assumptions,
    seed: int = 0,
) -> Replay:
    """Replay with decisions of the kernel taken from the recording: no prediction of it.

    Args:
        recording: an opened recording.
        imposed: as `verdict.budget` makes them.
        rules: the kernel generation.
        assumptions: ours, of a literal replay.
        seed: for choices that nothing in the recording settles.

    Raises:
        UsageError: an elastic replay.
    """
    if assumptions.reclaim == "elastic":
        raise UsageError("only a literal replay by the model can have decisions imposed")
    question = _Question(
        recording=recording,
        asked=Policy(),
        chosen=choose_rules(recording, rules),
        assumptions=assumptions,
        seed=seed,
        imposed=imposed.names,
    )
    return _answer(question, imposed.prepared, None, None, None)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Question:
    """What a replay is asked for."""

    recording: Recording
    asked: Policy
    chosen: ChosenRules
    assumptions: Assumptions
    seed: int
    build: KernelBuild | None = None
    hooks: Hooks | None = None
    window: tuple[float, float] | None = None
    imposed: tuple[str, ...] = ()

    @property
    def is_elastic(self) -> bool:
        return self.assumptions.reclaim == "elastic"

    @cached_property
    def policy(self) -> Policy:
        """The effective one."""
        return effective_policy(self.recording, self.asked, elastic=self.is_elastic)

    def carrier(self, prepared: Prepared) -> Carrier:
        """What takes the start state through the events."""
        build, leads = self.build, prepared.demand.leads
        rules = build.rules if build and build.source.release else self.chosen.rules
        state = prepared.state(rules, self.policy, self.assumptions, self.seed)
        if build is None:
            return ModelCarrier(state, leads if self.is_elastic else None, self.hooks)
        return build.pressed_carrier(state, leads) if self.is_elastic else build.carrier(state)


def _answer(
    question: _Question,
    prepared: Prepared,
    checkpoints: Checkpoints | None,
    progress: Callable[[float], None] | None,
    cancel: Callable[[], bool] | None,
) -> Replay:
    recording, assumptions = question.recording, question.assumptions
    build, hooks = question.build, question.hooks
    demand = prepared.demand
    if assumptions.plain_demand or (build is not None and not question.is_elastic):
        demand = replace(demand, events=as_requests(demand.events, prepared.machine))
        prepared = replace(prepared, demand=demand)
    carrier = question.carrier(prepared)
    state, places = carrier.state, demand.starting_places()
    first, last = recording.trace.demand_span_ns
    start_ns, end_ns = _window_ns(first, last, question.window)
    edges = bin_edges(start_ns, end_ns)
    instants = np.unique(
        np.concatenate([edges, [s.time_ns for s in recording.dated_snapshots]]).astype(np.int64)
    )
    resumption = kswapd = None
    is_alone = build is None and hooks is None and not question.imposed
    if checkpoints is not None and is_alone and start_ns > first:
        key = (recording, question.chosen.rules, question.policy, assumptions, question.seed)
        resumption = Resumption(checkpoints, key, state, places, start_ns)
    if question.is_elastic and assumptions.elastic.kswapd_as_recorded:
        kswapd = recorded_kswapd(recording.trace)
    with progress_bar.progress(
        f"replaying {recording.name}", len(demand.events), "events", given=progress
    ) as report:
        span = (start_ns, int(edges[-1]))
        exchange = None
        if demand.clusters and build is None and not assumptions.plain_demand:
            exchange = Exchange(demand.clusters, demand.events, demand.objects, state, places)
        samples, log, lost = advance_and_sample(
            carrier, demand, places, instants, span, resumption, kswapd, exchange, report, cancel
        )
    carrier.close()
    counts = divergence(state, demand, lost)
    return Replay(
        name=recording.name,
        machine=state.machine,
        policy=question.policy,
        asked_policy=question.asked,
        rules=question.chosen.rules,
        rules_origin=question.chosen.origin,
        rule_evidence=question.chosen.evidence,
        assumptions=assumptions,
        seed=question.seed,
        samples=samples,
        edges=edges,
        log=log,
        places=places,
        demand=demand,
        fallback_counts=fallback_counts(state),
        divergence=counts,
        start_state=prepared.image.origin,
        losses=recording.trace.losses.total,
        kernel="" if build is None else build.name,
        hooks=() if hooks is None else hooks.names,
        not_covered=() if build is None else build.not_covered(elastic=question.is_elastic),
        imposed=assumptions.elastic.imposed if question.is_elastic else question.imposed,
        checks=(
            *recording.provenance(),
            *demand_checks(counts, recording.trace.count(Event.ALLOC)),
        ),
        recording=recording,
        final=state,
    )


def _window_ns(first: int, last: int, window: tuple[float, float] | None) -> tuple[int, int]:
    if window is None:
        return first, last
    if not all(map(math.isfinite, window)):
        raise UsageError(f"window {window[0]} to {window[1]} s: give two times in seconds")
    start = first + round(window[0] * 1e9)
    end = min(first + round(window[1] * 1e9), last)
    if not first <= start < end:
        raise UsageError(
            f"window {window[0]} to {window[1]} s is outside the recording, "
            f"which lasts {(last - first) / 1e9:.3f} s"
        )
    return start, end
