"""Which rules a replay runs under, and what each of them rests on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from pagealloc_model.base.errors import PolicyError
from pagealloc_model.measured.evidence.answers import answer_findings
from pagealloc_model.measured.evidence.finding import Finding
from pagealloc_model.measured.evidence.settings import settings_findings
from pagealloc_model.policy.kernel_rules import BY_ANSWERS, KernelRules, preset_names
from pagealloc_model.recording.recorded_machine import recorded_policy
from pagealloc_model.recording.recording import Recording

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
    """Lines on the rules nothing vouches for, and on those the allocator did not follow."""
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
