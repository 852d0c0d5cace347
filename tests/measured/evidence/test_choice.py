"""Which rules a recording gets: by release, settings, and on demand by what the kernel did."""

from pathlib import Path

import pytest

from pagealloc_model.base.errors import PolicyError
from pagealloc_model.measured.rule_findings import ANSWER_FINDERS
from pagealloc_model.measured.rules import (
    ASSUMED,
    FROM_SOURCE,
    GIVEN,
    INFERRED,
    SHOWN,
    RuleEvidence,
    Settings,
    checked,
    choose_rules,
    recorded_rules,
    rule_notes,
)
from pagealloc_model.policy.kernel_rules import PRESETS, KernelRules
from pagealloc_model.recording.recording import Recording, open_recording
from tests.measured.evidence.test_drain_holds import drains
from tests.predicted.test_no_peeking import blinded
from tests.small_recordings import TimedEvents, busy_events, shipped_recording, write_recording


def made_recording(
    directory: Path, release: str, events: TimedEvents | None = None, **meta: object
) -> Recording:
    return open_recording(write_recording(directory / "made", events, release=release, **meta))


def of(evidence: tuple[RuleEvidence, ...], rule: str) -> RuleEvidence:
    return next(each for each in evidence if each.rule == rule)


def holding(*, batched: bool) -> TimedEvents:
    """A busy recording whose drains drop the lock after each batch, or do not."""
    events = busy_events()
    made = drains(pause=3 if batched else 0)
    last = events.now_us
    shifted = TimedEvents()
    shifted.lines = list(events.lines)
    for line in made.lines:
        head, time, rest = _split(line)
        moved = int(time * 1e6) - 1_000_000 + last
        shifted.lines.append(f"{head} {moved // 10**6}.{moved % 10**6:06d}: {rest}")
    return shifted


def _split(line: str) -> tuple[str, float, str]:
    left, _, rest = line.partition(": ")
    head, _, time = left.rpartition(" ")
    return head, float(time), rest


def test_every_rule_has_its_evidence_in_order(tmp_path: Path) -> None:
    chosen = recorded_rules(made_recording(tmp_path, "6.18.3"))
    assert tuple(each.rule for each in chosen.evidence) == KernelRules.rule_names()
    for each in chosen.evidence:
        assert each.value == getattr(chosen.rules, each.rule)
        assert each.line


@pytest.mark.parametrize(
    ("release", "standings"),
    [
        ("7.2.13", {FROM_SOURCE, SHOWN}),
        ("6.18.3", {SHOWN, INFERRED}),
        ("6.14.0", {ASSUMED, SHOWN}),
        ("9.9", {ASSUMED, SHOWN}),
        ("", {ASSUMED, SHOWN}),
    ],
)
def test_standings_follow_the_release(tmp_path: Path, release: str, standings: set[str]) -> None:
    chosen = recorded_rules(made_recording(tmp_path, release))
    assert {each.standing for each in chosen.evidence} <= standings
    assert chosen.origin == KernelRules.for_release(release)[1]


def test_settings_overrule_the_release_and_say_so(tmp_path: Path) -> None:
    recording = made_recording(tmp_path, "6.12.117", sysctl={"pcp_free_batched": "1"})
    chosen = recorded_rules(recording)
    assert PRESETS["6.12"].free_batched is False
    assert chosen.rules.free_batched is True
    assert chosen.rules.spelled() == "6.12,free_batched=true"
    found = of(chosen.evidence, "free_batched")
    assert found.standing == SHOWN
    assert found.line == "sysctl pcp_free_batched exists; the preset says False"
    assert "free_batched is True: sysctl pcp_free_batched exists" in chosen.origin
    assert "\n" not in chosen.origin


def test_what_the_kernel_did_checks_but_does_not_choose(tmp_path: Path) -> None:
    recording = made_recording(tmp_path, "6.18.3", holding(batched=True))
    chosen = recorded_rules(recording)
    assert chosen.rules.free_batched is False
    evidence = checked(recording, chosen.evidence)
    assert of(evidence, "free_batched").contradicted
    notes = rule_notes(evidence, chosen.rules)
    assert notes[-1].startswith("rule free_batched = False is contradicted by events: commit")
    assert notes[-1].endswith("use --rules evidence, or --rules 6.18,free_batched=true")


def test_rules_by_evidence_use_it_and_say_so(tmp_path: Path) -> None:
    recording = made_recording(tmp_path, "6.18.3", holding(batched=True))
    chosen = choose_rules(recording, "evidence")
    assert chosen.rules.free_batched is True
    assert of(chosen.evidence, "free_batched").standing == SHOWN
    assert "free_batched is True: commit drains" in chosen.origin
    assert "has seen part of it" in chosen.origin
    assert not of(checked(recording, chosen.evidence), "free_batched").contradicted


def test_agreement_is_confirmed(tmp_path: Path) -> None:
    recording = made_recording(tmp_path, "6.18.3", holding(batched=False))
    chosen = recorded_rules(recording)
    found = of(checked(recording, chosen.evidence), "free_batched")
    assert found.check.startswith("confirmed by events: commit drains")
    assert not any("contradicted" in note for note in rule_notes((found,), chosen.rules))


def test_a_switched_policy_is_no_contradiction(tmp_path: Path) -> None:
    recording = made_recording(
        tmp_path, "7.2.1", holding(batched=False), sysctl={"pcp_free_batched": "0"}
    )
    for rules in (None, "evidence"):
        chosen = choose_rules(recording, rules)
        assert chosen.rules.free_batched is True
        found = of(checked(recording, chosen.evidence), "free_batched")
        assert found.check.startswith("confirmed by events under the recorded policy")


def test_inferred_and_assumed_rules_stay_visible(tmp_path: Path) -> None:
    inferred = recorded_rules(made_recording(tmp_path / "a", "6.18.3"))
    assert "highatomic_from_pcp" in rule_notes(inferred.evidence, inferred.rules)[0]
    assumed = recorded_rules(made_recording(tmp_path / "b", "6.14.0"))
    assert "assumed from another release: " in rule_notes(assumed.evidence, assumed.rules)[0]
    read = recorded_rules(made_recording(tmp_path / "c", "7.2.13"))
    assert rule_notes(read.evidence, read.rules) == []


def test_an_old_kernel_is_refused_unless_evidence_may_choose(tmp_path: Path) -> None:
    recording = made_recording(tmp_path, "4.19.0")
    with pytest.raises(PolicyError, match="older than the oldest"):
        choose_rules(recording)
    chosen = choose_rules(recording, "evidence")
    assert chosen.rules.name == next(iter(PRESETS))
    assert "older than every preset" in chosen.origin


def test_given_rules_are_the_callers(tmp_path: Path) -> None:
    recording = made_recording(tmp_path, "6.18.3")
    by_name = choose_rules(recording, "7.2,decay_batched=false")
    assert by_name.rules == KernelRules.named("7.2,decay_batched=false")
    given = choose_rules(recording, PRESETS["6.12"])
    assert given.rules is PRESETS["6.12"]
    for chosen in (by_name, given):
        assert {each.standing for each in chosen.evidence} == {GIVEN}
        assert "by the caller" in chosen.origin


def test_rules_do_not_peek(tmp_path: Path) -> None:
    recording = made_recording(tmp_path, "6.18.3", holding(batched=True))
    assert recorded_rules(blinded(recording)) == recorded_rules(recording)
    assert choose_rules(blinded(recording), "evidence") != choose_rules(recording, "evidence")


def test_findings_are_of_rules_there_are() -> None:
    for recording in map(shipped_recording, ("xfree", "highatomic_stock")):
        assert {*Settings.of(recording).findings(), *ANSWER_FINDERS} <= {*KernelRules.rule_names()}
