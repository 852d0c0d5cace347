"""The rules that a replay runs under, and what each of them rests on.

Two kinds of sources are kept apart. *Settings* exist before the first event or do not depend on
what the allocator did: the release, sysctls, fields of the zoneinfo read before the start, the
flag names in the event format. They may change the rules a prediction runs under. *Answers* are
what the allocator did: refills, drains, fallbacks, kprobes, later snapshots. A free-running
prediction must not depend on them, so they only check the rules, and a contradiction is printed;
`rules="evidence"` uses them all the same, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.measured.rule_findings import Finding, answer_findings
from pagealloc_model.policy.kernel_rules import BY_ANSWERS, KernelRules, preset_names
from pagealloc_model.recording.recorded_machine import recorded_policy, start_snapshots
from pagealloc_model.recording.recording import Recording

if TYPE_CHECKING:
    from pagealloc_model.recording.proc.zoneinfo import ZoneInfoZone
    from pagealloc_model.recording.recording import Recording


MOVABLE_MIN_CAP = 128
"""Largest min watermark of a zone that has one of its own, pages (S1.6)."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a recording states about its kernel before anything was allocated.

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
        """The settings of a recording.

        Raises:
            RecordingError: the events cannot be read.
        """
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


def _free_batched(settings: Settings) -> Finding | None:
    if settings.sysctls.get("pcp_free_batched") is None:
        return None
    return Finding(value=True, line="sysctl pcp_free_batched exists")


def _pcp_auto_tuned(settings: Settings) -> Finding | None:
    pagesets = [pageset for zone in settings.zones for pageset in zone.pagesets]
    if any(pageset.high_min is not None for pageset in pagesets):
        return Finding(value=True, line="zoneinfo prints high_min and high_max")
    for zone in settings.zones:
        highs = sorted({pageset.high for pageset in zone.pagesets})
        if len(highs) > 1:
            span = f"{highs[0]} to {highs[-1]}"
            return Finding(value=True, line=f"pcp->high of zone {zone.name} is {span} by CPU")
    return None


def _defrag_mode(settings: Settings) -> str:
    """Where the recording shows that the kernel has defrag_mode (S8.6), "" if nowhere."""
    if settings.sysctls.get("defrag_mode") is not None:
        return "sysctl defrag_mode exists"
    if any("nr_free_pages_blocks" in zone.counters for zone in settings.zones):
        return "zoneinfo prints nr_free_pages_blocks"
    return ""


def _fallback_from_largest(settings: Settings) -> Finding | None:
    shown = _defrag_mode(settings)
    return Finding(value=False, line=f"{shown}: built on claim and steal") if shown else None


def _lists_match_blocks(settings: Settings) -> Finding | None:
    shown = _defrag_mode(settings)
    return Finding(value=True, line=f"{shown}: built on typed free lists") if shown else None


def _movable_min_capped(settings: Settings) -> Finding | None:
    movable = next((zone for zone in settings.zones if zone.name == "Movable"), None)
    if movable is None:
        return None
    raw = movable.min - (movable.boost or 0)
    return Finding(value=raw <= MOVABLE_MIN_CAP, line=f"zone Movable's min watermark is {raw}")


def _boost_retry_by_high(settings: Settings) -> Finding | None:
    if not settings.gfp_names:
        return None
    atomic = "__GFP_ATOMIC" in settings.gfp_names
    there = "names" if atomic else "does not name"
    return Finding(value=not atomic, line=f"the event format {there} __GFP_ATOMIC")


SETTINGS_FINDERS: dict[str, Callable[[Settings], Finding | None]] = {
    "free_batched": _free_batched,
    "pcp_auto_tuned": _pcp_auto_tuned,
    "fallback_from_largest": _fallback_from_largest,
    "lists_match_blocks": _lists_match_blocks,
    "movable_min_capped": _movable_min_capped,
    "boost_retry_by_high": _boost_retry_by_high,
}
"""By field of `KernelRules`; a field without a finder rests on the release."""


def settings_findings(recording: Recording) -> dict[str, Finding]:
    """What a recording's settings show, by rule."""
    settings = Settings.of(recording)
    found = {rule: find(settings) for rule, find in SETTINGS_FINDERS.items()}
    return {rule: finding for rule, finding in found.items() if finding is not None}


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
    """What one rule of a replay rests on.

    Attributes:
        rule: field of `KernelRules`.
        value: its value in the replay.
        standing: "evidence" (the recording shows it), "from source of this release" (read there),
            "inferred" (a preset of this release, not read in its source), "assumed" (the preset
            of another release) or "given by the caller".
        line: what shows or suggests the value.
        check: what the allocator did says of it, "" if it says nothing. It begins with
            "confirmed" or "contradicted".
    """

    rule: str
    value: object
    standing: str
    line: str
    check: str = ""

    @property
    def contradicted(self) -> bool:
        """Whether the allocator did otherwise."""
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
        rules: None for the recorded kernel's, by release and settings alone, so that a
            prediction does not peek; "evidence" to let what the allocator did choose, too; else
            `KernelRules` or words that `KernelRules.named` takes.

    Raises:
        PolicyError: no such rules, or none for the recording's kernel.
        RecordingError: the recording cannot be read.
    """
    if rules is None:
        return recorded_rules(recording)
    if rules == BY_ANSWERS:
        return recorded_rules(recording, with_answers=True)
    if isinstance(rules, str):
        return _given(KernelRules.named(rules), f"rules {rules} named by the caller")
    return _given(rules, f"rules {rules.name} given by the caller")


def recorded_rules(recording: Recording, *, with_answers: bool = False) -> ChosenRules:
    """The preset nearest to a recording's kernel, changed where the recording shows otherwise.

    Settings (sysctls, zoneinfo before the start, the event format) decide against the release:
    distributions backport. What the allocator did decides only with `with_answers`; a prediction
    under such rules has seen part of the answer, and `origin` says so.

    Args:
        recording: the recording.
        with_answers: use refills, drains, fallbacks, kprobes and later snapshots as well.

    Raises:
        PolicyError: the kernel is older than every preset; with answers the oldest is taken.
        RecordingError: the recording cannot be read.
    """
    base, origin = _nearest(recording.release, fall_back=with_answers)
    this_release = KernelRules.series(recording.release) == base.name
    shown = settings_findings(recording)
    if with_answers:
        shown |= _decisive_answers(recording)
    found = {rule: shown[rule] for rule in base.rule_names() if rule in shown}
    changed = {rule: f.value for rule, f in found.items() if f.value != getattr(base, rule)}
    inferred = tuple(rule for rule in base.inferred if rule not in found)
    rules = replace(base, inferred=inferred, **changed) if found else base
    lines = [f"{rule} is {found[rule].value}: {found[rule].line}" for rule in changed]
    if with_answers:
        lines.append("what the allocator did was used, so the prediction has seen part of it")
    return ChosenRules(
        rules=rules,
        origin="; ".join([origin, *lines]),
        evidence=tuple(_evidence(base, found, origin, this_release=this_release)),
    )


def checked(recording: Recording, evidence: tuple[RuleEvidence, ...]) -> tuple[RuleEvidence, ...]:
    """The evidence with what the allocator did held against every rule.

    Raises:
        RecordingError: the recording cannot be read.
    """
    found = answer_findings(recording)
    policy = recorded_policy(recording).given()
    return tuple(
        _check(each, found[each.rule], policy) if each.rule in found else each for each in evidence
    )


def rule_notes(evidence: tuple[RuleEvidence, ...], rules: KernelRules) -> list[str]:
    """Lines on the rules that rest on nothing, and on those the allocator did not follow."""
    lines = []
    for standing, why in _UNVERIFIED.items():
        names = [each.rule for each in evidence if each.standing == standing and not each.check]
        if names:
            lines.append(f"rules {why}: {', '.join(names)}")
    lines += [
        f"rule {each.rule} = {each.value} is {each.check}; use --rules evidence, or --rules "
        f"{replace(rules, **{each.rule: not each.value}).spelled()}"
        for each in evidence
        if each.contradicted
    ]
    return lines


def _nearest(release: str, *, fall_back: bool) -> tuple[KernelRules, str]:
    try:
        return KernelRules.for_release(release)
    except PolicyError:
        if not fall_back:
            raise
        oldest = preset_names()[0]
        line = f"kernel {release} is older than every preset, rules {oldest} assumed"
        return KernelRules.preset(oldest), line


def _decisive_answers(recording: Recording) -> dict[str, Finding]:
    """What the allocator did, but for rules that the recorded policy overrode."""
    policy = recorded_policy(recording).given()
    return {
        rule: finding
        for rule, finding in answer_findings(recording).items()
        if _POLICY_OF_RULE.get(rule, "") not in policy
    }


def _evidence(
    base: KernelRules, found: dict[str, Finding], origin: str, *, this_release: bool
) -> Iterator[RuleEvidence]:
    for rule in base.rule_names():
        value = getattr(base, rule)
        if rule in found:
            shown = found[rule]
            against = f"; the preset says {value}" if shown.value != value else ""
            yield RuleEvidence(
                rule=rule, value=shown.value, standing=SHOWN, line=shown.line + against
            )
            continue
        yield RuleEvidence(
            rule=rule, value=value, **_standing(base, rule, origin, this_release=this_release)
        )


def _standing(base: KernelRules, rule: str, origin: str, *, this_release: bool) -> dict[str, str]:
    """Standing and line of a rule on which the recording is silent."""
    if not this_release:
        return {"standing": ASSUMED, "line": origin}
    if rule in base.inferred:
        return {"standing": INFERRED, "line": "from patches and neighbouring releases (S13)"}
    if base.source:
        return {"standing": FROM_SOURCE, "line": f"read in source of {base.source}"}
    return {"standing": SHOWN, "line": f"other recordings of {base.name} (S13)"}


def _given(rules: KernelRules, origin: str) -> ChosenRules:
    evidence = tuple(
        RuleEvidence(rule=rule, value=getattr(rules, rule), standing=GIVEN, line=origin)
        for rule in rules.rule_names()
    )
    return ChosenRules(rules=rules, origin=origin, evidence=evidence)


def _check(evidence: RuleEvidence, finding: Finding, policy: dict[str, int | bool]) -> RuleEvidence:
    field = _POLICY_OF_RULE.get(evidence.rule, "")
    expected = policy.get(field, evidence.value)
    verdict = "confirmed" if finding.value == expected else "contradicted"
    under = f" under the recorded policy {field}={int(expected)}" if field in policy else ""
    return replace(evidence, check=f"{verdict} by events{under}: {finding.line}")
