"""The rules that a replay runs under, and what each of them rests on.

*Settings* do not depend on what the allocator did: the release, sysctls, zoneinfo before the start,
flag names in the event format. They may change the rules a prediction runs under. *Answers* are
what the allocator did: refills, drains, fallbacks, kprobes, later snapshots. They only check the
rules, so that no prediction peeks; `rules="evidence"` uses them all the same, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.measured.rule_findings import Finding, answer_findings
from pagealloc_model.policy.kernel_rules import BY_ANSWERS, KernelRules, preset_names
from pagealloc_model.recording.recorded_machine import recorded_policy, start_snapshots

if TYPE_CHECKING:
    from pagealloc_model.recording.proc.zoneinfo import ZoneInfoZone
    from pagealloc_model.recording.recording import Recording


MOVABLE_MIN_CAP = 128
"""Largest min watermark of a zone that has one of its own, pages (S1.6)."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Statements of a recording about its kernel before anything was allocated.

    Attributes:
        zones: zones with pages, from the snapshot the replay starts from; () without one.
        sysctls: vm.* as recorded; None where the kernel lacks one.
        gfp_names: flag names in the format of mm_page_alloc (S2.3); empty if unknown.
    """

    zones: tuple[ZoneInfoZone, ...] = ()
    sysctls: Mapping[str, Any] = field(default_factory=dict)
    gfp_names: frozenset[str] = frozenset()

    @staticmethod
    def of(recording: Recording) -> Settings:
        """The settings of a recording."""
        try:
            zoneinfo = start_snapshots(recording)[0].zoneinfo
        except UsageError:  # no usable snapshot
            zoneinfo = None
        trace = recording.trace
        return Settings(
            zones=tuple(zone for zone in (zoneinfo.zones if zoneinfo else ()) if zone.managed),
            sysctls=recording.meta.get("sysctl", {}),
            gfp_names=frozenset(trace.gfp_bits if trace.gfp_from_format else ()),
        )

    def findings(self) -> dict[str, Finding]:
        """Rules that they show, by field of `KernelRules`; the other fields rest on the release."""
        shown = {}
        if self.sysctls.get("pcp_free_batched") is not None:
            shown["free_batched"] = Finding(True, "sysctl pcp_free_batched exists")
        for zone in self.zones:
            highs = sorted({pageset.high for pageset in zone.pagesets})
            if len(highs) > 1:
                line = f"pcp->high of zone {zone.name} is {highs[0]} to {highs[-1]} by CPU"
                shown.setdefault("pcp_auto_tuned", Finding(True, line))
            if zone.name == "Movable":
                low = zone.min - (zone.boost or 0)
                capped = Finding(low <= MOVABLE_MIN_CAP, f"zone Movable's min watermark is {low}")
                shown.setdefault("movable_min_capped", capped)
        if any(pcp.high_min is not None for zone in self.zones for pcp in zone.pagesets):
            shown["pcp_auto_tuned"] = Finding(True, "zoneinfo prints high_min and high_max")
        # a kernel with defrag_mode has what it was built on (S8.6)
        defrag = ""
        if self.sysctls.get("defrag_mode") is not None:
            defrag = "sysctl defrag_mode exists"
        elif any("nr_free_pages_blocks" in zone.counters for zone in self.zones):
            defrag = "zoneinfo prints nr_free_pages_blocks"
        if defrag:
            shown["fallback_from_largest"] = Finding(False, f"{defrag}: built on claim and steal")
            shown["lists_match_blocks"] = Finding(True, f"{defrag}: built on typed free lists")
        if self.gfp_names:
            atomic = "__GFP_ATOMIC" in self.gfp_names
            line = f"the event format {'names' if atomic else 'does not name'} __GFP_ATOMIC"
            shown["boost_retry_by_high"] = Finding(not atomic, line)
        return shown


SHOWN, FROM_SOURCE, INFERRED, ASSUMED, GIVEN = (
    "evidence",
    "from source of this release",
    "inferred",
    "assumed",
    "given by the caller",
)
_UNVERIFIED = {
    INFERRED: "not read in that kernel's source, inferred",
    ASSUMED: "assumed from another release",
}
_POLICY_OF_RULE = {"free_batched": "pcp_free_batched"}
"""Rules that a recorded policy overrides, so that what the kernel did shows the policy."""


@dataclass(frozen=True, kw_only=True)
class RuleEvidence:
    """The ground that one rule of a replay rests on.

    Attributes:
        rule: field of `KernelRules`.
        value: its value in the replay.
        standing: "evidence" (the recording shows it), "from source of this release" (read there),
            "inferred" (a preset of this release, not read in its source), "assumed" (the preset
            of another release) or "given by the caller".
        line: the ground in words.
        check: "confirmed ..." or "contradicted ..." by what the allocator did; "" if neither.
    """

    rule: str
    value: object
    standing: str
    line: str
    check: str = ""

    @property
    def contradicted(self) -> bool:
        """True if the allocator did otherwise."""
        return self.check.startswith("contradicted")

    def to_dict(self) -> dict[str, object]:
        """As the JSON outputs print it."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class ChosenRules:
    """Rules for a replay.

    Attributes:
        rules: a preset, or one with the fields replaced that the recording shows otherwise.
        origin: one line on how they were chosen, contradictions included.
        evidence: what each rule rests on, in the order of the fields.
    """

    rules: KernelRules
    origin: str
    evidence: tuple[RuleEvidence, ...]


def choose_rules(recording: Recording, rules: KernelRules | str | None = None) -> ChosenRules:
    """The rules that `replay` and `validate` run under.

    Args:
        recording: the recording.
        rules: None for the recorded kernel's, by release and settings alone; "evidence" to let what
            the allocator did choose, too; else `KernelRules` or words for `KernelRules.named`.

    Raises:
        PolicyError: no such rules, or none for the recording's kernel.
    """
    if rules is None or (isinstance(rules, str) and rules == BY_ANSWERS):
        return recorded_rules(recording, with_answers=rules is not None)
    origin = f"rules {rules} named by the caller"
    if not isinstance(rules, str):
        origin = f"rules {rules.name} given by the caller"
    named = KernelRules.named(rules) if isinstance(rules, str) else rules
    evidence = tuple(
        RuleEvidence(rule=rule, value=getattr(named, rule), standing=GIVEN, line=origin)
        for rule in named.rule_names()
    )
    return ChosenRules(rules=named, origin=origin, evidence=evidence)


def recorded_rules(recording: Recording, *, with_answers: bool = False) -> ChosenRules:
    """The preset nearest to a recording's kernel, changed where the recording shows otherwise.

    Settings decide against the release: distributions backport. `with_answers` lets refills,
    drains, fallbacks, kprobes and later snapshots decide as well; a prediction under such rules has
    seen part of the answer, and `origin` says so. They are chosen once for a recording.

    Raises:
        PolicyError: the kernel is older than every preset; with answers the oldest is taken.
    """
    key = ("recorded rules", with_answers)
    return recording.remembered(key, lambda: _recorded_rules(recording, with_answers))


def _recorded_rules(recording: Recording, with_answers: bool) -> ChosenRules:
    release = recording.release
    try:
        base, origin = KernelRules.for_release(release)
    except PolicyError:
        if not with_answers:
            raise
        oldest = preset_names()[0]
        origin = f"kernel {release} is older than every preset, rules {oldest} assumed"
        base = KernelRules.preset(oldest)
    shown = Settings.of(recording).findings()
    if with_answers:
        policy = recorded_policy(recording).given()
        shown |= {
            rule: finding
            for rule, finding in answer_findings(recording).items()
            if _POLICY_OF_RULE.get(rule, "") not in policy
        }
    evidence, changed = [], {}
    for rule in base.rule_names():
        value = preset = getattr(base, rule)
        if rule in shown:
            standing, (value, line) = SHOWN, shown[rule]
            if value != preset:
                changed[rule] = value
                line += f"; the preset says {preset}"
        elif KernelRules.series(release) != base.name:
            standing, line = ASSUMED, origin
        elif rule in base.inferred:
            standing, line = INFERRED, "from patches and neighbouring releases (S13)"
        elif base.source:
            standing, line = FROM_SOURCE, f"read in source of {base.source}"
        else:
            standing, line = SHOWN, f"other recordings of {base.name} (S13)"
        evidence.append(RuleEvidence(rule=rule, value=value, standing=standing, line=line))
    rules = base
    if not shown.keys().isdisjoint(base.rule_names()):
        inferred = tuple(rule for rule in base.inferred if rule not in shown)
        rules = replace(base, inferred=inferred, **changed)
    lines = [origin, *(f"{rule} is {value}: {shown[rule].line}" for rule, value in changed.items())]
    if with_answers:
        lines.append("what the allocator did was used, so the prediction has seen part of it")
    return ChosenRules(rules=rules, origin="; ".join(lines), evidence=tuple(evidence))


def checked(recording: Recording, evidence: tuple[RuleEvidence, ...]) -> tuple[RuleEvidence, ...]:
    """The evidence with what the allocator did held against every rule."""
    answers = answer_findings(recording)
    policy = recorded_policy(recording).given()
    rules = []
    for rule in evidence:
        if finding := answers.get(rule.rule):
            expected, under = rule.value, ""
            if (name := _POLICY_OF_RULE.get(rule.rule)) in policy:
                expected = policy[name]
                under = f" under the recorded policy {name}={int(expected)}"
            verdict = "confirmed" if finding.value == expected else "contradicted"
            rule = replace(rule, check=f"{verdict} by events{under}: {finding.line}")
        rules.append(rule)
    return tuple(rules)


def rule_notes(evidence: tuple[RuleEvidence, ...], rules: KernelRules) -> list[str]:
    """Lines on the rules that rest on nothing, and on those the allocator did not follow."""
    lines = []
    for standing, why in _UNVERIFIED.items():
        names = [rule.rule for rule in evidence if rule.standing == standing and not rule.check]
        if names:
            lines.append(f"rules {why}: {', '.join(names)}")
    lines += [
        f"rule {rule.rule} = {rule.value} is {rule.check}; use --rules evidence, or --rules "
        f"{replace(rules, **{rule.rule: not rule.value}).spelled()}"
        for rule in evidence
        if rule.contradicted
    ]
    return lines
