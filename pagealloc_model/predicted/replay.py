"""Replaying a recording's demand through the model under a policy: `replay` and its result."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.state import State
from pagealloc_model.base import progress_bar
from pagealloc_model.base.arrays import bin_edges, parts
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.jit import kernel_fingerprint
from pagealloc_model.base.version import __version__
from pagealloc_model.measured.folios import folio_table
from pagealloc_model.measured.rules import ChosenRules, RuleEvidence, choose_rules
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.predicted import tables
from pagealloc_model.predicted.carrier import Carrier, Engine, ModelCarrier
from pagealloc_model.predicted.checkpoints import Checkpoints, Resumption
from pagealloc_model.predicted.demand.compaction import Exchange
from pagealloc_model.predicted.prepared import Imposed, Prepared, prepare
from pagealloc_model.predicted.reclaim_mode import (
    ReclaimChoice,
    check_mode,
    choose_reclaim,
    under,
)
from pagealloc_model.predicted.recorded_kswapd import RecordedKswapd, recorded_kswapd
from pagealloc_model.predicted.runner import Cancelled as Cancelled
from pagealloc_model.predicted.runner import Course
from pagealloc_model.predicted.start.settled import (
    let_kswapd_settle,
    moves_marks,
    slept_at_start,
)
from pagealloc_model.predicted.tables import Prediction
from pagealloc_model.recording.provenance import ProvenanceCheck, demand_checks
from pagealloc_model.recording.recorded_machine import effective_policy
from pagealloc_model.recording.trace.columns import Event

if TYPE_CHECKING:
    from pagealloc_model.allocator.hooks import Hooks
    from pagealloc_model.numbers.comparison import Comparison
    from pagealloc_model.predicted.demand.demand import Demand
    from pagealloc_model.predicted.lock_times import LockModel, LockTimes
    from pagealloc_model.recording.recording import Recording

_REQUESTS = (at.ALLOC, at.ALLOC_IN_ZONE, at.CAPTURE, at.RECORDED_FAILURE)


@dataclass(frozen=True, kw_only=True, eq=False)
class Replay(Prediction):
    """A prediction of the model for a recording under one policy.

    Attributes:
        recording: what was replayed.
        name: the recording's name.
        asked_policy: what the caller changed.
        rules_origin: one line on how the rules were chosen.
        rule_evidence: what each rule rests on.
        reclaim: the mode of reclaim, and why it was taken.
        seed: of choices that nothing settles.
        demand: the objects and events replayed.
        edges: int64, edges of the regular grid's bins.
        lost_pages: pages that are in no account at the end (see `PageBalance`).
        settled_pages: pages that kswapd freed before the first event (see `start.settled`).
        start_state: lines on the start image.
        kernel: the kernel build that took the model's place, "" if none did.
        hooks: decisions that functions of the caller made.
        not_covered: what that build leaves to us.
        imposed: decisions of the kernel that were taken from the recording; if any, this is no
            prediction of that recording.
    """

    recording: Recording = field(repr=False)
    name: str
    asked_policy: Policy
    rules_origin: str
    rule_evidence: tuple[RuleEvidence, ...]
    reclaim: ReclaimChoice
    seed: int
    demand: Demand
    edges: np.ndarray
    lost_pages: int
    settled_pages: int
    start_state: tuple[str, ...]
    kernel: str = ""
    hooks: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    imposed: tuple[str, ...] = ()

    def __repr__(self) -> str:
        chosen = f"{self.reclaim.mode} reclaim: {self.reclaim.why}"
        return f"<Replay of {self.name}, {self.asked_policy}, {chosen}>"

    def _repr_html_(self) -> str:
        from pagealloc_model.show.html.results import replay_html

        return replay_html(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        from pagealloc_model.show.html.results import replay_text

        printer.text(replay_text(self))

    def compare(self, patch: Replay) -> Comparison:
        """Put another replay of the same recording beside this one; see `comparison.compare`."""
        from pagealloc_model.numbers.comparison import compare

        return compare(self, patch)

    def lock_times(self, model: LockModel | None = None) -> LockTimes:
        """Time at zone->lock, from a queue at each lock; see `lock_times.lock_times`."""
        from pagealloc_model.predicted.lock_times import lock_times

        return lock_times(self, model)

    @property
    def losses(self) -> int:
        """Events that the recording lost."""
        return self.recording.trace.losses.total

    @cached_property
    def divergence(self) -> dict[str, int]:
        """Counts of what recording and model disagreed on, and of what demand had to make up.

        Pages that are missing at the end, those lost, and those that became free before the first
        event, are counts where there are any.
        """
        demand, words = self.demand, self.final.st
        pages = {
            "missing_pages": int(words[at.MISSING_PAGES]),
            "lost_pages": self.lost_pages,
            "settled_pages": self.settled_pages,
        }
        return {
            **{name: int(words[word]) for name, word in _STATE_COUNTS.items()},
            "live_at_start": len(demand.at_start),
            **{name: getattr(demand, name) for name in _DEMAND_COUNTS},
            "outside_zones": demand.outside,
            **super().divergence,
            **{name: count for name, count in pages.items() if count},
            **demand.by_orders,
        }

    @cached_property
    def checks(self) -> tuple[ProvenanceCheck, ...]:
        """Whether the recording and what a replay makes up are usable for predictions.

        Raises:
            RecordingError: a file of the recording cannot be read.
        """
        allocations = self.recording.trace.count(Event.ALLOC)
        return (*self.recording.provenance(), *demand_checks(self.divergence, allocations))

    @cached_property
    def lock(self) -> pd.DataFrame:
        """zone->lock acquisitions by time bin, zone and site (S11.1)."""
        return tables.lock(self.machine, self.edges, self.log)

    @cached_property
    def outcomes(self) -> pd.DataFrame:
        """Requests by order, and those that reclaimed or compacted; a literal replay's are NA."""
        is_elastic = self.assumptions.reclaim == "elastic"
        if is_elastic:
            words = tables.outcome_counts(self.samples.counters[-1:])[0].sum(axis=0)
            counts, served, stalled = words.T[:3]
        else:
            counts, events = np.zeros(at.ORDERS, np.int64), self.demand.events
            for part in parts(len(events)):
                asked = np.isin(events["operation"][part], _REQUESTS)
                counts += np.bincount(events["order"][part][asked], minlength=at.ORDERS)
        orders = np.flatnonzero(counts)
        columns = dict.fromkeys(("succeeded", "failed", "stalled"), [pd.NA] * len(orders))
        if is_elastic:
            failed = (counts - served)[orders]
            columns = {"succeeded": served[orders], "failed": failed, "stalled": stalled[orders]}
        frame = pd.DataFrame(
            {"class": "all", "order": orders.astype(np.int8), "asked": counts[orders]}
        )
        for name, values in columns.items():
            frame[name] = pd.array(values, dtype="Int64")
        return frame.assign(reason="" if is_elastic else tables.LITERAL)

    @cached_property
    def folios(self) -> pd.DataFrame:
        """Requests for anonymous memory and page cache by order (S10.12); a literal replay's none.

        `FOLIO_COLUMNS`.
        """
        if self.assumptions.reclaim != "elastic":
            return folio_table(np.zeros((pr.CLASSES, at.ORDERS, pr.OUTCOME_WORDS), np.int64))
        return folio_table(tables.outcome_counts(self.samples.counters[-1:])[0])

    @cached_property
    def vmstat(self) -> pd.DataFrame:
        """Counters under the kernel's names since the start; all NA in a literal replay."""
        types, times = self.machine.zone_types, self.samples.time_ns
        names = [*pr.COUNTER_NAMES, *(f"allocstall_{name.lower()}" for name in types)]
        columns = np.r_[
            pr.COUNTERS : pr.COUNTERS + len(pr.COUNTER_NAMES),
            pr.ALLOCSTALL : pr.ALLOCSTALL + len(types),
        ]
        reason = ""
        if self.assumptions.reclaim == "elastic":
            values = self.samples.counters[:, columns].ravel()
        else:
            names, times, reason = list(tables.UNKNOWN_COUNTERS), times[-1:], tables.LITERAL
            values = [pd.NA] * len(names)
        return pd.DataFrame(
            {
                "name": np.tile(np.array(names, object), len(times)),
                "time_ns": np.repeat(times, len(names)),
                "value": pd.array(values, dtype="Int64"),
                "reason": reason,
            }
        )

    @property
    def provenance(self) -> dict[str, object]:
        """Makers of this result: recording, policy, rules, assumptions, versions, losses."""
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
    policy: Policy | Engine | None = None,
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

    Uses the recording's demand (T10.11) and start state only: with a mode of reclaim that was asked
    for, and elastic values where it is elastic, the result does not change if zone_locked,
    pcpu_drain, extfrag, lock events and later snapshots are taken out of the recording. Otherwise
    the last snapshot has a say: its reclaimed pages in the mode, its scanned slabs in the values.
    When vmstat ticks ran, if that was recorded, is demand; what they drained is not.

    Args:
        recording: an opened recording.
        policy: fields that differ from the recorded policy; or a kernel build, whose own code
            then takes the model's place from the start state on.
        rules: as `choose_rules` takes them. None takes those of the recorded kernel by its release
            and settings; "evidence" uses what the allocator did as well, and then the
            result may change.
        assumptions: None for the defaults: the mode of reclaim is chosen as commands choose it.
            `Assumptions(reclaim="literal")` repeats what the recorded kernel reclaimed.
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
    engine = policy if isinstance(policy, Engine) else None
    if engine is not None and hooks is not None:
        raise UsageError("a kernel build has no hooks: change its source instead")
    span_ns = _span_ns(recording, window)
    asked = engine.policy if engine is not None else policy or Policy()
    assumptions = assumptions or Assumptions()
    reclaim = choose_reclaim(recording, engine or asked, asked=assumptions)
    assumptions = under(assumptions, reclaim)
    check_mode(asked, assumptions, is_build=engine is not None)
    question = _Question(
        recording=recording,
        asked=asked,
        chosen=choose_rules(recording, rules),
        reclaim=reclaim,
        assumptions=assumptions,
        seed=seed,
        span_ns=span_ns,
        engine=engine,
        hooks=hooks,
        checkpoints=checkpoints,
        progress=progress,
        cancel=cancel,
    )
    given = None if progress is None else progress_bar.unreported
    prepared = prepare(recording, question.chosen.rules, assumptions, seed, given)
    return _answer(question, prepared)


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
        imposed: as `diagnosis.budget` makes them.
        rules: the kernel generation.
        assumptions: ours, of a literal replay.
        seed: for choices that nothing in the recording settles.

    Raises:
        UsageError: no literal replay.
    """
    if assumptions.reclaim != "literal":
        raise UsageError("only a literal replay by the model can have decisions imposed")
    question = _Question(
        recording=recording,
        asked=Policy(),
        chosen=choose_rules(recording, rules),
        reclaim=choose_reclaim(recording, asked=assumptions),
        assumptions=assumptions,
        seed=seed,
        span_ns=recording.trace.demand_span_ns,
        imposed=imposed.names,
    )
    return _answer(question, imposed.prepared)


def _span_ns(recording: Recording, window: tuple[float, float] | None) -> tuple[int, int]:
    """Begin and end of the part of a recording that the tables cover."""
    first, last = recording.trace.demand_span_ns
    if window is None:
        return first, last
    if not all(map(math.isfinite, window)):
        raise UsageError(f"window {window[0]} to {window[1]} s: give two times in seconds")
    start = first + round(window[0] * 1e9)
    end = min(first + round(window[1] * 1e9), last)
    if not first <= start < end:
        raise UsageError(
            f"window {window[0]} to {window[1]} s is outside the recording, which lasts "
            f"{(last - first) / 1e9:.3f} s"
        )
    return start, end


@dataclass(frozen=True, kw_only=True, eq=False)
class _Question:
    """Parameters of `replay`; `imposed` names decisions of the kernel."""

    recording: Recording
    asked: Policy
    chosen: ChosenRules
    reclaim: ReclaimChoice
    assumptions: Assumptions
    seed: int
    span_ns: tuple[int, int]
    engine: Engine | None = None
    hooks: Hooks | None = None
    imposed: tuple[str, ...] = ()
    checkpoints: Checkpoints | None = None
    progress: Callable[[float], None] | None = None
    cancel: Callable[[], bool] | None = None

    @property
    def is_elastic(self) -> bool:
        """Whether the model decides what is reclaimed and compacted."""
        return self.assumptions.reclaim == "elastic"

    @property
    def elastic(self) -> ElasticAssumptions:
        """What reclaim and compaction find and cost."""
        return self.assumptions.elastic or ElasticAssumptions()

    @property
    def has_plain_demand(self) -> bool:
        """Whether what recorded compaction took is asked for like anything else."""
        return self.assumptions.plain_demand or (self.engine is not None and not self.is_elastic)

    def under_policy(self, prepared: Prepared) -> tuple[Prepared, Policy, KernelRules]:
        """What was prepared as the policy changes it; the policy in effect, and rules at boot."""
        if self.has_plain_demand:
            prepared = prepared.as_plain_requests()
        rules = (self.engine and self.engine.rules) or self.chosen.rules
        policy = effective_policy(self.recording, self.asked, elastic=self.is_elastic)
        policy = prepared.machine.at_boot(policy, rules)
        prepared = prepared.with_pageblocks(policy)
        if self.is_elastic:
            trace = self.recording.trace
            prepared = prepared.with_folio_orders(trace, policy, self.elastic)
        return prepared, policy, rules

    @property
    def settles_first(self) -> bool:
        """Whether kswapd works before the first event: for marks that are not the recorded ones."""
        if not self.is_elastic or not moves_marks(self.asked):
            return False
        return slept_at_start(self.recording)

    def carrier(self, state: State, demand: Demand) -> Carrier:
        """Who carries a state on."""
        leads = demand.leads if self.is_elastic else None
        if self.engine is not None:
            return self.engine.carrier(state, leads)
        return ModelCarrier(state, leads, self.hooks)

    @property
    def kswapd(self) -> RecordedKswapd | None:
        """The recorded one, where the model's goes on as it did."""
        if not self.is_elastic or not self.elastic.kswapd_as_recorded:
            return None
        return recorded_kswapd(self.recording.trace, scheduled=self.elastic.daemons_as_scheduled)

    def course(
        self,
        edges: np.ndarray,
        policy: Policy,
        state: State,
        demand: Demand,
        places: np.ndarray,
        kswapd: RecordedKswapd | None,
    ) -> Course:
        """The way through a demand: to each edge of a bin and each snapshot."""
        recording, start_ns = self.recording, self.span_ns[0]
        times = [edges, [s.time_ns for s in recording.dated_snapshots]]
        resumption = exchange = None
        arrays = [state.pages, state.blocks, state.st, state.folios, places]
        if demand.clusters and self.engine is None and not self.assumptions.plain_demand:
            exchange = Exchange(demand.clusters, demand.events, demand.objects, state, places)
            arrays.append(exchange.unowned)
        is_alone = self.engine is None and self.hooks is None and not self.imposed
        begins_later = start_ns > recording.trace.demand_span_ns[0]
        if self.checkpoints is not None and is_alone and begins_later:
            key = (recording, self.chosen.rules, policy, self.assumptions, self.seed)
            resumption = Resumption(self.checkpoints, key, tuple(arrays), start_ns)
        return Course(
            instants=np.unique(np.concatenate(times).astype(np.int64)),
            span=(start_ns, int(edges[-1])),
            resumption=resumption,
            kswapd=kswapd,
            exchange=exchange,
        )


def _answer(question: _Question, prepared: Prepared) -> Replay:
    """Replay what was prepared: under the policy, by a carrier, along its course."""
    recording, engine, hooks = question.recording, question.engine, question.hooks
    chosen, assumptions, is_elastic = question.chosen, question.assumptions, question.is_elastic
    prepared, policy, rules = question.under_policy(prepared)
    demand = prepared.demand
    state, kswapd = prepared.state(rules, policy, assumptions, question.seed), question.kswapd
    if kswapd is not None and kswapd.schedule is not None:
        state = kswapd.schedule.put_into(state)
    places, edges = demand.starting_places(), bin_edges(*question.span_ns)
    course = question.course(edges, policy, state, demand, places, kswapd)
    carrier = question.carrier(state, demand)
    settled = 0
    if question.settles_first:
        settled = let_kswapd_settle(carrier, places, recording.trace.demand_span_ns[0], kswapd)
    with progress_bar.progress(
        f"replaying {recording.name}", len(demand.events), "events", given=question.progress
    ) as report:
        runner, lost = course.run(carrier, demand, places, report, question.cancel)
    carrier.close()
    return Replay(
        recording=recording,
        name=recording.name,
        policy=policy,
        asked_policy=question.asked,
        rules=chosen.rules,
        rules_origin=chosen.origin,
        rule_evidence=chosen.evidence,
        reclaim=question.reclaim,
        assumptions=assumptions,
        seed=question.seed,
        demand=demand,
        samples=runner.samples,
        log=runner.log,
        places=places,
        final=runner.state,
        edges=edges,
        lost_pages=lost,
        settled_pages=settled,
        start_state=prepared.image.origin,
        kernel="" if engine is None else engine.name,
        hooks=() if hooks is None else hooks.names,
        not_covered=() if engine is None else engine.not_covered(elastic=is_elastic),
        imposed=question.elastic.imposed if is_elastic else question.imposed,
    )


_STATE_COUNTS = {
    "forced": at.COUNT_FORCED,
    "in_base_pages": at.COUNT_IN_BASE_PAGES,
    "failed": at.COUNT_FAILED,
    "unlogged_transactions": at.LOG_DROPPED,
    "orphan_frees": at.COUNT_ORPHAN_FREE,
    "recorded_failures": at.COUNT_RECORDED_FAILURE,
}
_DEMAND_COUNTS = (
    "hidden_allocations",
    "hidden_over_losses",
    "repeated_frees",
    "isolated_pages",
    "isolated_unseen",
    "captured",
    "stayed_pages",
    "moved_frees",
    "failed_charges",
    "recorded_twice",
    "missed_frees",
    "split_frees",
    "grown_pages",
)
